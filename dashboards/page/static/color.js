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

  function fromOklch([l, c, h]) {
    const a = c * Math.cos((h * Math.PI) / 180);
    const b = c * Math.sin((h * Math.PI) / 180);
    const x = (l + 0.3963377774 * a + 0.2158037573 * b) ** 3;
    const y = (l - 0.1055613458 * a - 0.0638541728 * b) ** 3;
    const z = (l - 0.0894841775 * a - 1.291485548 * b) ** 3;
    return [
      4.0767416621 * x - 3.3077115913 * y + 0.2309699292 * z,
      -1.2684380046 * x + 2.6097574011 * y - 0.3413193965 * z,
      -0.0041960863 * x - 0.7034186147 * y + 1.707614701 * z,
    ].map((v) => {
      const w = Math.min(Math.max(v, 0), 1);
      return Math.round(255 * (w <= 0.0031308 ? 12.92 * w : 1.055 * w ** (1 / 2.4) - 0.055));
    });
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

  return { ramp, mix, parse, css, gradient, hatch, neutral: (theme) => NEUTRAL[theme] };
})();
