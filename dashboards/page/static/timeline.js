import * as Color from "./color.js";
import * as Format from "./format.js";
import { hatch } from "./matrix.js";

// The heatmap of heavy observations: time to the right, one row per location.
export class Timeline {
  static ROW = 14; // height of a row in CSS pixels
  static FAINTEST = 0.15; // ramp position of the smallest share

  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.image = document.createElement("canvas");
  }

  // layout prepares the rows of the given location indexes, for a width in CSS pixels.
  layout(signal, level, locations, width, scale) {
    const g = this.context;
    this.signal = signal;
    this.locations = locations;
    this.scale = scale;
    this.rows = signal.overTime(level, locations);
    // A window with few observations would make all others pale.
    this.peak = this.peakFrom(signal.model.bundle.min_observations) || this.peakFrom(1);
    this.font = `${Math.round(11 * scale)}px system-ui, sans-serif`;
    g.font = this.font;
    const names = locations.map((l) => g.measureText(signal.model.locations[l].name).width);
    this.left = Math.ceil(Math.min(Math.max(60 * scale, ...names), 190 * scale) + 33 * scale);
    this.row = Math.round(Timeline.ROW * scale);
    this.span = Math.max(Math.floor(width * scale) - this.left - Math.ceil(8 * scale), 1);
    this.height = this.row * Math.max(locations.length, 1);
    this.canvas.width = this.left + this.span + Math.ceil(8 * scale);
    this.canvas.height = this.height + Math.ceil(20 * scale);
    this.canvas.style.width = `${this.canvas.width / scale}px`;
    this.canvas.style.height = `${this.canvas.height / scale}px`;
    this.image.width = signal.model.windows.length;
    this.image.height = Math.max(locations.length, 1);
    this.ground = null;
  }

  // peakFrom returns the largest share of heavy observations in windows with at least some number of them.
  peakFrom(observations) {
    const { seen } = this.signal;
    return Math.max(0, ...this.rows.map(({ heavy }) => heavy.reduce((peak, n, w) => (seen[w] >= observations ? Math.max(peak, n / seen[w]) : peak), 0)));
  }

  color(index, window, view) {
    if (!this.signal.seen[window]) return null;
    const heavy = this.rows[index].heavy[window];
    if (!heavy) return Color.theme(view.theme).clear;
    const share = Math.min(heavy / this.signal.seen[window] / this.peak, 1);
    return Color.ramp(view.theme, Timeline.FAINTEST + (1 - Timeline.FAINTEST) * share);
  }

  // draw fades the locations that are not lit; null lights all.
  draw(view, lit) {
    const g = this.context;
    const { theme, utc, highlight } = view;
    this.lit = lit;
    if (!this.ground || this.ground.theme !== theme || this.ground.utc !== utc || this.ground.highlight !== highlight) {
      this.ground = { theme, utc, highlight, canvas: this.drawGround(view) };
    }
    g.clearRect(0, 0, this.canvas.width, this.canvas.height);
    g.drawImage(this.ground.canvas, 0, 0);
    this.cursor(view, Color.theme(theme));
  }

  // drawGround draws the parts that do not change while scrubbing.
  drawGround(view) {
    const ground = document.createElement("canvas");
    ground.width = this.canvas.width;
    ground.height = this.canvas.height;
    const g = ground.getContext("2d");
    const neutral = Color.theme(view.theme);
    g.fillStyle = hatch(g, neutral, this.scale);
    g.fillRect(this.left, 0, this.span, this.height);
    this.paint(view);
    g.imageSmoothingEnabled = false;
    g.drawImage(this.image, this.left, 0, this.span, this.height);
    g.fillStyle = Color.css(neutral.ground);
    for (let i = 1; i < this.locations.length; i++) g.fillRect(this.left, i * this.row, this.span, 1);
    this.labels(g, view, neutral);
    return ground;
  }

  paint(view) {
    const width = this.image.width;
    const picture = this.image.getContext("2d").createImageData(width, this.image.height);
    this.rows.forEach((_, index) => {
      for (let w = 0; w < width; w++) {
        const color = this.color(index, w, view);
        if (color) picture.data.set([...color, 255], 4 * (index * width + w));
      }
    });
    this.image.getContext("2d").putImageData(picture, 0, 0);
  }

  labels(g, view, neutral) {
    const swatch = 16 * this.scale;
    g.font = this.font;
    g.textBaseline = "middle";
    this.locations.forEach((l, i) => {
      const location = this.signal.model.locations[l];
      const middle = (i + 0.5) * this.row;
      g.globalAlpha = this.lit && !this.lit.has(l) ? 0.35 : 1;
      g.fillStyle = location.color;
      g.fillRect(this.left - 6 * this.scale - swatch, middle - 6 * this.scale, swatch, 12 * this.scale);
    g.textAlign = "center";
    g.fillStyle = location.ink;
    if (location.rank < 100) g.fillText(location.rank, this.left - 6 * this.scale - swatch / 2, middle);
      g.fillStyle = neutral.text;
      g.textAlign = "right";
      g.fillText(location.name, this.left - 12 * this.scale - swatch, middle, 190 * this.scale);
    });
    g.globalAlpha = 1;
    const { model, model: { windows } } = this.signal;
    const clock = (w) => Format.clock(windows[w], model, view.utc);
    const room = g.measureText(clock(0).padEnd("00:00:00.000000".length, "0")).width * 1.4;
    const stride = Math.max(1, Math.ceil((windows.length * room) / this.span));
    g.textAlign = "left";
    g.fillStyle = neutral.text;
    for (let w = 0; w < windows.length; w += stride) {
      const x = this.left + (w * this.span) / windows.length;
      g.fillRect(Math.round(x), this.height, 1, 5 * this.scale);
      g.fillText(clock(w), x + 4 * this.scale, this.height + 10 * this.scale);
    }
  }

  cursor(view, neutral) {
    if (view.window < 0) return;
    const g = this.context;
    const width = this.span / this.signal.model.windows.length;
    g.strokeStyle = neutral.strong;
    g.lineWidth = 2 * this.scale;
    g.strokeRect(this.left + view.window * width, 1, Math.max(width, 2 * this.scale), this.height - 2);
  }

  // place returns the center of a window in a row, in CSS pixels of the canvas's own box.
  place(window, index) {
    const width = this.span / this.signal.model.windows.length;
    return { x: (this.left + (window + 0.5) * width) / this.scale, y: ((index + 0.5) * this.row) / this.scale };
  }

  hit(x, y) {
    const { windows } = this.signal.model;
    const window = Math.floor(((x * this.scale - this.left) / this.span) * windows.length);
    const index = Math.floor((y * this.scale) / this.row);
    if (window < 0 || window >= windows.length || index < 0 || index >= this.locations.length) return null;
    return { window, index };
  }
}
