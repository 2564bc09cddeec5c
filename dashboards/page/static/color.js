"use strict";

// Colours: the ramp for severity, the neutral ones for states, and mixing. All
// functions work on [red, green, blue] of 0 to 255.
const Color = (() => {
  // Stops of the ramps in OKLCH (lightness, chroma, hue in degrees), calm first.
  // Lightness is monotonic, so that the order survives colour blindness and print.
  const STOPS = {
    dark: [[0.27, 0.05, 275], [0.37, 0.12, 295], [0.50, 0.18, 345], [0.65, 0.19, 32], [0.81, 0.16, 72], [0.97, 0.09, 105]],
    light: [[0.955, 0.03, 115], [0.88, 0.10, 95], [0.76, 0.15, 65], [0.62, 0.19, 38], [0.46, 0.17, 18], [0.30, 0.10, 345]],
  };
  const NEUTRAL = {
    dark: { ground: [16, 20, 27], clear: [38, 46, 59], few: [72, 82, 99], hatch: [84, 94, 110], text: "#aab4c3", strong: "#f2f5f9", notch: "#dfe6f0", trimmed: "#ff5d5d" },
    light: { ground: [255, 255, 255], clear: [229, 233, 240], few: [190, 198, 210], hatch: [186, 194, 206], text: "#536072", strong: "#10151c", notch: "#3a4452", trimmed: "#c4001a" },
  };
  const SIZE = 256;

  // linear are the shares of red, green and blue light, outside of 0 to 1 where no screen has them.
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

  function fromOklch(color) {
    return linear(color).map((v) => {
      const w = Math.min(Math.max(v, 0), 1);
      return Math.round(255 * (w <= 0.0031308 ? 12.92 * w : 1.055 * w ** (1 / 2.4) - 0.055));
    });
  }

  // vivid has as much chroma as screens have at a lightness and hue, at most 0.2.
  function vivid(lightness, hue) {
    let chroma = 0.2;
    while (linear([lightness, chroma, hue]).some((v) => v < 0 || v > 1)) chroma -= 0.005;
    return fromOklch([lightness, chroma, hue]);
  }

  // Colours to choose from where two are alike. Their lightness has contrast with both grounds.
  const CHOICE = [0.55, 0.62, 0.69].flatMap((lightness) => Array.from({ length: 24 }, (_, i) => vivid(lightness, 15 * i)));

  function toOklab(color) {
    const [r, g, b] = color.map((v) => (v <= 10.31475 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    const x = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
    const y = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
    const z = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
    return [
      0.2104542553 * x + 0.793617785 * y - 0.0040720468 * z,
      1.9779984951 * x - 2.428592205 * y + 0.4505937099 * z,
      0.0259040371 * x + 0.7827717662 * y - 0.808675766 * z,
    ];
  }

  // distance is how far two colours are apart in OKLab: black and white are 1 apart, and what eyes
  // just tell apart about 0.02.
  function distance(p, q) {
    const other = toOklab(q);
    return Math.hypot(...toOklab(p).map((v, i) => v - other[i]));
  }

  // unlike is the colour that is the farthest from the nearest of the others.
  function unlike(others) {
    const apart = CHOICE.map((color) => Math.min(...others.map((other) => distance(color, other))));
    return CHOICE[apart.indexOf(Math.max(...apart))];
  }

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

  const RAMPS = { dark: table(STOPS.dark), light: table(STOPS.light) };

  // ramp maps a severity of 0 (calm) to 1 (worst).
  function ramp(theme, severity) {
    return RAMPS[theme][Math.round(Math.min(Math.max(severity, 0), 1) * (SIZE - 1))];
  }

  function mix(color, ground, share) {
    return color.map((v, i) => Math.round(ground[i] + (v - ground[i]) * share));
  }

  function parse(hex) {
    return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  }

  function css([r, g, b]) {
    return `rgb(${r}, ${g}, ${b})`;
  }

  // gradient is the ramp from a severity on as a CSS background, calm at the given side.
  function gradient(theme, toward, from = 0) {
    const steps = Array.from({ length: 17 }, (_, i) => css(ramp(theme, from + ((1 - from) * i) / 16)));
    return `linear-gradient(to ${toward}, ${steps.join(", ")})`;
  }

  // hatch is what stands for "no data": visible, and never mistaken for a value.
  function hatch(theme, scale) {
    const size = Math.round(6 * scale);
    const tile = document.createElement("canvas");
    tile.width = tile.height = size;
    const g = tile.getContext("2d");
    g.fillStyle = css(NEUTRAL[theme].ground);
    g.fillRect(0, 0, size, size);
    g.strokeStyle = css(NEUTRAL[theme].hatch);
    g.lineWidth = scale;
    for (const shift of [-size, 0, size]) {
      g.beginPath();
      g.moveTo(shift - 1, size + 1);
      g.lineTo(shift + size + 1, -1);
      g.stroke();
    }
    return g.createPattern(tile, "repeat");
  }

  return { ramp, mix, distance, unlike, parse, css, gradient, hatch, neutral: (theme) => NEUTRAL[theme] };
})();
