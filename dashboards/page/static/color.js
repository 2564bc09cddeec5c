// Colors: the severity ramp, the colors of both themes, and distances. All functions work on [red,
// green, blue] from 0 to 255 and do not depend on the page.

/** @typedef {[number, number, number]} RGB red, green and blue, 0 to 255 each */

/**
 * @typedef {object} Theme  colors of the drawings
 * @property {RGB[]} ramp     256 severities, calm first
 * @property {RGB} ground     background
 * @property {RGB} clear      cells without heavy observations
 * @property {RGB} few        cells with too few samples, or not judged
 * @property {RGB} hatch      lines that mean "no data"
 * @property {string} text    names
 * @property {string} strong  outlines
 * @property {string} notch   corner of cells with too few samples
 * @property {string} trimmed corner of cells with trimmed packets
 */

/** @typedef {"dark" | "light"} ThemeName */

/**
 * Stops of the ramps in OKLCH (lightness, chroma, hue in degrees), calm first.
 * Lightness is monotonic, so the order survives color blindness and print.
 * @type {Record<ThemeName, RGB[]>}
 */
const STOPS = {
  dark: [[0.27, 0.05, 275], [0.37, 0.12, 295], [0.50, 0.18, 345], [0.65, 0.19, 32], [0.81, 0.16, 72], [0.97, 0.09, 105]],
  light: [[0.955, 0.03, 115], [0.88, 0.10, 95], [0.76, 0.15, 65], [0.62, 0.19, 38], [0.46, 0.17, 18], [0.30, 0.10, 345]],
};
const SIZE = 256;

/**
 * linear returns linear red, green and blue, outside of 0 to 1 if no screen can show them.
 * @param {RGB} color in OKLCH
 * @returns {RGB}
 */
function linear([l, c, h]) {
  const a = c * Math.cos((h * Math.PI) / 180);
  const b = c * Math.sin((h * Math.PI) / 180);
  const x = (l + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const y = (l - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const z = (l - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    4.0767416621 * x - 3.3077115913 * y + 0.2309699292 * z,
    -1.2684380046 * x + 2.6097574011 * y - 0.3413193965 * z,
    -0.0041960863 * x - 0.7034186147 * y + 1.707614701 * z,
  ];
}

/**
 * @param {RGB} color
 * @param {(v: number, i: number) => number} change
 * @returns {RGB}
 */
function each(color, change) {
  return [change(color[0], 0), change(color[1], 1), change(color[2], 2)];
}

/**
 * @param {RGB} color in OKLCH
 * @returns {RGB}
 */
function fromOklch(color) {
  return each(linear(color), fromLight);
}

/** @param {number} v linear light, clamped to 0 to 1 */
function fromLight(v) {
  const w = Math.min(Math.max(v, 0), 1);
  return Math.round(255 * (w <= 0.0031308 ? 12.92 * w : 1.055 * w ** (1 / 2.4) - 0.055));
}

/** @param {number} v 0 to 255 */
function toLight(v) {
  return v <= 10.31475 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4;
}

/**
 * ink returns the text color on a background: black or white.
 * @param {RGB} color
 */
export function ink([r, g, b]) {
  return 0.299 * r + 0.587 * g + 0.114 * b > 130 ? "#000" : "#fff";
}

/**
 * vivid returns the color with the largest chroma that screens can show at a lightness and hue, at
 * most 0.2.
 * @param {number} lightness
 * @param {number} hue in degrees
 */
function vivid(lightness, hue) {
  let chroma = 0.2;
  while (linear([lightness, chroma, hue]).some((v) => v < 0 || v > 1)) chroma -= 0.005;
  return fromOklch([lightness, chroma, hue]);
}

// Colors to choose from if two are similar. Their lightness contrasts with both backgrounds.
const CHOICE = [0.45, 0.55, 0.65, 0.75].flatMap((lightness) => Array.from({ length: 24 }, (_, i) => vivid(lightness, 15 * i)));

/**
 * @param {RGB} color
 * @returns {RGB}
 */
function toOklab(color) {
  const [r, g, b] = each(color, toLight);
  const x = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
  const y = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
  const z = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
  return [
    0.2104542553 * x + 0.793617785 * y - 0.0040720468 * z,
    1.9779984951 * x - 2.428592205 * y + 0.4505937099 * z,
    0.0259040371 * x + 0.7827717662 * y - 0.808675766 * z,
  ];
}

/**
 * distance returns the OKLab distance of two colors: 1 for black and white, about 0.02 for a just
 * noticeable difference.
 * @param {RGB} p
 * @param {RGB} q
 */
export function distance(p, q) {
  return gap(toOklab(p), toOklab(q));
}

/**
 * @param {RGB} p in OKLab
 * @param {RGB} q
 */
function gap(p, q) {
  return Math.hypot(p[0] - q[0], p[1] - q[1], p[2] - q[2]);
}

/**
 * Linear color as seen by eyes without medium-wave cones (Machado, Oliveira, Fernandes 2009,
 * severity 1).
 */
const DEUTERANOPIA = [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]];
const DIMMED = 1.5; // factor on their distances, since green-blind vision has few large ones

/**
 * look returns a color in OKLab as normal and as green-blind eyes see it.
 * @param {RGB} color
 * @returns {[RGB, RGB]}
 */
export function look(color) {
  const light = each(color, toLight);
  const seen = DEUTERANOPIA.map((row) => fromLight(row[0] * light[0] + row[1] * light[1] + row[2] * light[2]));
  return [toOklab(color), toOklab([seen[0], seen[1], seen[2]])];
}

/**
 * apart returns the smaller of two colors' distances to normal and to green-blind eyes.
 * @param {[RGB, RGB]} p from look
 * @param {[RGB, RGB]} q
 */
export function apart(p, q) {
  return Math.min(gap(p[0], q[0]), DIMMED * gap(p[1], q[1]));
}

const LOOKS = CHOICE.map(look);
const STRIDE = 29; // prime, so that successive colors differ

/**
 * unlike returns the color whose nearest other color is farthest away.
 * @param {[RGB, RGB][]} others from look, at least one
 * @returns {RGB}
 */
export function unlike(others) {
  const least = LOOKS.map((one) => Math.min(...others.map((other) => apart(one, other))));
  return CHOICE[least.indexOf(Math.max(...least))];
}

/**
 * besides returns colors with at least this distance from all others, in an order in which
 * successive ones differ.
 * @param {[RGB, RGB][]} others from look
 * @param {number} least minimum of apart
 */
export function besides(others, least) {
  const free = CHOICE.filter((_, i) => others.every((other) => apart(LOOKS[i], other) >= least));
  return free.map((_, i) => free[(i * STRIDE) % free.length]);
}

/** @param {RGB[]} stops */
function table(stops) {
  const out = [];
  for (let i = 0; i < SIZE; i++) {
    const t = (i / (SIZE - 1)) * (stops.length - 1);
    const k = Math.min(Math.floor(t), stops.length - 2);
    const [p, q] = [stops[k], stops[k + 1]];
    const turn = ((q[2] - p[2] + 540) % 360) - 180;
    const f = t - k;
    out.push(fromOklch([p[0] + f * (q[0] - p[0]), p[1] + f * (q[1] - p[1]), p[2] + f * turn]));
  }
  return out;
}

/** @type {Record<ThemeName, Theme>} */
const THEMES = {
  dark: {
    ramp: table(STOPS.dark), ground: [16, 20, 27], clear: [38, 46, 59], few: [72, 82, 99], hatch: [84, 94, 110],
    text: "#aab4c3", strong: "#f2f5f9", notch: "#dfe6f0", trimmed: "#ff5d5d",
  },
  light: {
    ramp: table(STOPS.light), ground: [255, 255, 255], clear: [229, 233, 240], few: [190, 198, 210], hatch: [186, 194, 206],
    text: "#536072", strong: "#10151c", notch: "#3a4452", trimmed: "#c4001a",
  },
};

/**
 * @param {ThemeName} name
 * @returns {Theme} shared: copy it to change it
 */
export const theme = (name) => THEMES[name];

/**
 * ramp returns the color of a severity, 0 (calm) to 1 (worst).
 * @param {ThemeName} name
 * @param {number} severity
 * @returns {RGB}
 */
export function ramp(name, severity) {
  return THEMES[name].ramp[Math.round(Math.min(Math.max(severity, 0), 1) * (SIZE - 1))];
}

/**
 * mix lays a colour over a ground.
 * @param {RGB} color
 * @param {RGB} ground
 * @param {number} share of the colour, 0 to 1
 * @returns {RGB}
 */
export function mix(color, ground, share) {
  return each(color, (v, i) => Math.round(ground[i] + (v - ground[i]) * share));
}

/**
 * @param {string} hex as #rrggbb
 * @returns {RGB}
 */
export function parse(hex) {
  return each([1, 3, 5], (i) => parseInt(hex.slice(i, i + 2), 16));
}

/** @param {RGB} color */
export function css([r, g, b]) {
  return `rgb(${r}, ${g}, ${b})`;
}

/**
 * gradient is the ramp from a severity on as a CSS background, calm at the given side.
 * @param {ThemeName} name
 * @param {"left" | "right"} toward where the worst is
 * @param {number} [from] severity at the calm end
 */
export function gradient(name, toward, from = 0) {
  const steps = Array.from({ length: 17 }, (_, i) => css(ramp(name, from + ((1 - from) * i) / 16)));
  return `linear-gradient(to ${toward}, ${steps.join(", ")})`;
}
