"use strict";

// One matrix of source rows and destination columns on a canvas. Cells are painted
// as one pixel each into an image that the canvas enlarges: the cost of a frame
// grows with the cells, not with their size on the screen.
class Matrix {
  constructor(canvas, side) {
    this.canvas = canvas;
    this.side = side;
    this.context = canvas.getContext("2d");
    this.image = document.createElement("canvas");
  }

  // layout fits the matrix into a width and height in CSS pixels.
  layout(model, width, height, scale) {
    const g = this.context;
    this.model = model;
    this.scale = scale;
    this.font = `${Math.round(11 * scale)}px system-ui, sans-serif`;
    g.font = this.font;
    const longest = Math.max(...model.groups.map((group) => g.measureText(group.name).width), 20 * scale);
    const label = Math.min(longest, 110 * scale);
    const size = Math.max(model.size, 1);
    this.left = Math.ceil(label + 24 * scale);
    const room = Math.min(width * scale - this.left, height * scale - 26 * scale - label);
    // Whole pixels keep large cells even; small ones would waste up to half of the room.
    const cell = (room - 2) / size;
    this.span = Math.max(cell < 5 ? Math.floor(room - 2) : Math.floor(cell) * size, size);
    this.cell = this.span / size;
    this.upright = longest <= this.cell - 4 * scale;
    this.top = Math.ceil((this.upright ? 14 * scale : label) + 24 * scale);
    this.canvas.width = Math.max(this.left + this.span + 1, 1);
    this.canvas.height = Math.max(this.top + this.span + 1, 1);
    this.canvas.style.width = `${this.canvas.width / scale}px`;
    this.canvas.style.height = `${this.canvas.height / scale}px`;
    this.image.width = this.image.height = size;
    this.pixels = this.image.getContext("2d").createImageData(size, size);
    this.packed = new Uint32Array(this.pixels.data.buffer);
    this.ground = null;
  }

  // dress takes over a theme's colours.
  dress(theme, palette) {
    this.theme = theme;
    this.palette = palette;
    this.ground = null;
  }

  // color is what a cell is painted with, null for cells without data.
  color(frame, row, view) {
    const pixel = this.pixel(frame, row, view);
    return pixel ? Palette.unpack(pixel) : null;
  }

  // pixel is the same as a number, 0 for cells without data.
  pixel(frame, row, view) {
    if (row < 0) return 0;
    const { palette } = this;
    const c = frame.columns;
    const state = frame.state(row);
    if (state === "no_data") return 0;
    const few = state === "too_few";
    if (this.side === "left") {
      const mean = c.mean[row];
      if (!(mean >= 0)) return palette.few;
      const at = Math.round(frame.signal.severity(mean) * 255);
      return few ? palette.uncertain[at] : palette.ramp[at];
    }
    if (few || state === "not_judged") return palette.few;
    const heavy = c.heavy[row];
    if (!(heavy > 0)) return palette.clear;
    const mode = frame.mode(row, view.level);
    const at = Palette.step(heavy / c.observations[row]);
    if (mode < 0) return palette.nowhere[at];
    const dimmed = view.highlight >= 0 && view.highlight !== mode;
    return (dimmed ? palette.dimmed : palette.places)[mode][at];
  }

  // draw paints a frame; waiting tells that it is not the one that was asked for.
  draw(frame, view, waiting) {
    const g = this.context;
    const neutral = Color.neutral(this.theme);
    this.ground ||= this.drawGround(neutral);
    g.clearRect(0, 0, this.canvas.width, this.canvas.height);
    g.drawImage(this.ground, 0, 0);
    this.paint(frame, view);
    g.imageSmoothingEnabled = false;
    g.globalAlpha = waiting ? 0.25 : 1;
    g.drawImage(this.image, this.left, this.top, this.span, this.span);
    g.globalAlpha = 1;
    if (this.cell >= 6 * this.scale) this.grid(Color.css(neutral.ground));
    if (this.cell >= 8 * this.scale && !waiting) {
      this.notches(frame, neutral.notch, neutral.ground, 1, (row) => frame.state(row) === "too_few");
      if (this.side === "right") this.notches(frame, neutral.trimmed, neutral.ground, -1, (row) => frame.trimmed(row));
    }
    this.outlines(frame, view, neutral);
  }

  // drawGround draws what all windows have behind them.
  drawGround(neutral) {
    const ground = document.createElement("canvas");
    ground.width = this.canvas.width;
    ground.height = this.canvas.height;
    const g = ground.getContext("2d");
    g.fillStyle = Color.hatch(this.theme, this.scale);
    g.fillRect(this.left, this.top, this.span, this.span);
    this.axes(g, neutral);
    return ground;
  }

  paint(frame, view) {
    const { packed } = this;
    const { rows } = frame;
    for (let i = 0; i < rows.length; i++) packed[i] = this.pixel(frame, rows[i], view);
    this.image.getContext("2d").putImageData(this.pixels, 0, 0);
  }

  grid(color) {
    const g = this.context;
    g.fillStyle = color;
    for (let i = 0; i <= this.model.size; i++) {
      g.fillRect(this.left + i * this.cell, this.top, 1, this.span);
      g.fillRect(this.left, this.top + i * this.cell, this.span, 1);
    }
  }

  // notches mark the cells that a test picks in a corner: upper right for 1, lower
  // left for -1. The middle keeps the colour of the data.
  notches(frame, color, ground, corner, picks) {
    const g = this.context;
    const size = corner * Math.round(this.cell * 0.3);
    g.fillStyle = color;
    g.beginPath();
    for (let at = 0; at < frame.rows.length; at++) {
      if (frame.rows[at] < 0 || !picks(frame.rows[at])) continue;
      const [src, dst] = this.ends(at);
      const x = this.left + (dst + (corner > 0 ? 1 : 0)) * this.cell + (corner > 0 ? 0 : 1);
      const y = this.top + (src + (corner > 0 ? 0 : 1)) * this.cell + (corner > 0 ? 1 : 0);
      g.moveTo(x - size, y);
      g.lineTo(x, y);
      g.lineTo(x, y + size);
      g.closePath();
    }
    g.fill();
    g.strokeStyle = Color.css(ground);
    g.lineWidth = this.scale;
    g.stroke();
  }

  axes(g, neutral) {
    const { groups } = this.model;
    const every = Math.max(1, Math.ceil((13 * this.scale) / this.cell));
    const room = 110 * this.scale;
    g.font = this.font;
    g.fillStyle = neutral.text;
    g.textBaseline = "middle";
    for (let i = 0; i < groups.length; i += every) {
      const middle = (i + 0.5) * this.cell;
      g.textAlign = "right";
      g.fillText(groups[i].name, this.left - 6 * this.scale, this.top + middle, room);
      g.save();
      g.translate(this.left + middle, this.top - 6 * this.scale);
      g.textAlign = this.upright ? "center" : "left";
      if (!this.upright) g.rotate(-Math.PI / 2);
      g.fillText(groups[i].name, 0, this.upright ? -5 * this.scale : 0, room);
      g.restore();
    }
    g.fillStyle = neutral.strong;
    g.textAlign = "center";
    g.fillText("destination group", this.left + this.span / 2, 8 * this.scale);
    g.save();
    g.translate(8 * this.scale, this.top + this.span / 2);
    g.rotate(-Math.PI / 2);
    g.fillText("source group", 0, 0);
    g.restore();
  }

  // outlines show the cell under the pointer in both matrices, and which cells of
  // the left one have the highlighted location as their mode.
  outlines(frame, view, neutral) {
    const g = this.context;
    g.strokeStyle = neutral.strong;
    if (this.side === "left" && view.highlight >= 0) {
      g.lineWidth = Math.max(1, this.scale);
      frame.rows.forEach((row, at) => {
        if (frame.state(row) === "congested" && frame.mode(row, view.level) === view.highlight) this.stroke(...this.ends(at), 1);
      });
    }
    for (const cell of [view.chosen, view.cell]) {
      if (!cell) continue;
      g.lineWidth = 2 * this.scale;
      this.stroke(cell.src, cell.dst, 0);
    }
  }

  // ends are the source and destination of a cell's place in a frame.
  ends(at) {
    const { size } = this.model;
    return [Math.floor(at / size), at % size];
  }

  stroke(src, dst, inset) {
    const size = this.cell - 2 * inset;
    this.context.strokeRect(this.left + dst * this.cell + inset + 0.5, this.top + src * this.cell + inset + 0.5, size, size);
  }

  // rect is a cell's place in CSS pixels of the canvas's own box.
  rect(src, dst) {
    return {
      x: (this.left + dst * this.cell) / this.scale, y: (this.top + src * this.cell) / this.scale,
      width: this.cell / this.scale, height: this.cell / this.scale,
    };
  }

  // hit is the cell at a place in CSS pixels, null outside.
  hit(x, y) {
    const column = Math.floor((x * this.scale - this.left) / this.cell);
    const row = Math.floor((y * this.scale - this.top) / this.cell);
    const { size } = this.model;
    return row >= 0 && column >= 0 && row < size && column < size ? { src: row, dst: column } : null;
  }
}
