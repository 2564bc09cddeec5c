// One matrix of source rows and destination columns on a canvas, drawn from plain data. It does not
// depend on the page: the caller supplies rows, columns, and cells as columns of numbers, and can
// query which cell is at a point of the canvas.
//
// Each cell is painted as one pixel into an image that the canvas enlarges, so the cost of a frame
// depends on the number of cells and not on their size on the screen.

import { css, ink } from "./color.js";
import { Palette } from "./palette.js";

/** @typedef {import("./color.js").Theme} Theme */

/**
 * @typedef {object} Item  a row or column
 * @property {string} name
 * @property {string} [band] name of its parent, such as a pod, written beside its items
 */

/**
 * Cells as columns, source by source: the index of a cell is row * columns.length + column.
 * @typedef {object} Cells
 * @property {Uint8Array} state      index of STATES
 * @property {Float32Array} severity of the mean on the ramp, 0 calm to 1 worst; NaN without a mean
 * @property {Float32Array} share    of observations that are heavy, 0 to 1
 * @property {Int32Array} location   index of the mode in the palette's places, -1 for none
 * @property {Uint8Array} trimmed    1 to mark trimmed packets
 */

/** @typedef {{row: number, column: number}} At */

/**
 * @typedef {object} Marks  drawn over the cells
 * @property {boolean} [waiting]   pale, since the requested cells have not arrived yet
 * @property {Set<number> | null} [highlight] places whose cells are highlighted, null for all alike
 * @property {At | null} [pointer] outlined, with names at both axes
 * @property {At | null} [chosen]  outlined
 * @property {At[]} [marked]       outlined thinly
 * @property {{from: At, to: At} | null} [selection] rectangle of cells that the user is drawing
 */

/** The API's names of cell states, by number. */
export const STATES = Object.freeze(["no_data", "too_few", "clear", "congested", "brief", "not_judged"]);
const [NO_DATA, TOO_FEW, , CONGESTED, , NOT_JUDGED] = STATES.keys();

const LABEL = 110; // maximum width of names, CSS pixels
const LINE = 13; // distance of names, CSS pixels
const SHORT = 24; // without lines if bands are shorter on average, CSS pixels
const BAND = 16; // width of the bands beside the names, CSS pixels
const LONGEST = 2.4; // maximum ratio of a cell's sides
const MOST = 80; // maximum cell size, CSS pixels
const WRITTEN = 11; // minimum size of cells with ranks, CSS pixels

export class Matrix {
  /**
   * @param {HTMLCanvasElement} canvas
   * @param {"mean" | "mode"} kind mean: the ramp by severity; mode: the place's color by heavy share
   */
  constructor(canvas, kind) {
    this.canvas = canvas;
    this.kind = kind;
    this.context = context(canvas);
    this.image = canvas.ownerDocument.createElement("canvas");
    /** @type {Item[]} */
    this.rows = [];
    /** @type {Item[]} */
    this.columns = [];
    /** @type {HTMLCanvasElement | null} */
    this.ground = null;
    /** @type {Palette | null} */
    this.palette = null;
    /** @type {Map<string, HTMLCanvasElement>} */
    this.written = new Map();
    this.scale = 1;
    this.font = "";
    this.upright = false;
    // Position of the cells, and the size of one, in device pixels.
    this.left = this.top = this.right = this.bottom = 0;
    this.width = this.height = 1;
    this.pixels = new ImageData(1, 1);
    this.packed = new Uint32Array(1);
  }

  /**
   * layout fits the matrix into a width and height.
   * @param {Item[]} rows    sources, from above
   * @param {Item[]} columns destinations, from the left
   * @param {{width: number, height: number, scale: number}} room in CSS pixels; scale is device pixels per CSS pixel
   */
  layout(rows, columns, { width, height, scale }) {
    const g = this.context;
    this.rows = rows;
    this.columns = columns;
    this.scale = scale;
    this.font = `${Math.round(11 * scale)}px system-ui, sans-serif`;
    g.font = this.font;
    /** @param {Item[]} items */
    const longest = (items) => Math.max(20 * scale, ...items.map((item) => g.measureText(item.name).width));
    /** @param {Item[]} items */
    const band = (items) => (items.some((item) => item.band) ? BAND * scale : 0);
    this.left = Math.ceil(Math.min(longest(rows), LABEL * scale) + band(rows) + 24 * scale);
    const tallest = Math.min(longest(columns), LABEL * scale);
    const wide = (width * scale - this.left - 2) / Math.max(columns.length, 1);
    this.upright = longest(columns) <= Math.floor(wide) - 4 * scale;
    const head = band(columns) + 24 * scale;
    const above = Math.ceil(head + (this.upright ? 14 * scale : tallest));
    const high = (height * scale - above - 2) / Math.max(rows.length, 1);
    const most = MOST * scale;
    this.width = even(Math.min(wide, LONGEST * Math.min(high, most)), columns.length);
    this.height = even(Math.min(high, LONGEST * wide, most), rows.length);
    // Names that fitted wide cells may not fit narrow ones.
    this.upright = longest(columns) <= this.width - 4 * scale;
    this.top = Math.ceil(head + (this.upright ? 14 * scale : tallest));
    this.right = this.left + Math.round(this.width * columns.length);
    this.bottom = this.top + Math.round(this.height * rows.length);
    this.canvas.width = Math.max(this.right + 1, this.left + 100 * scale); // room for the axis's name
    this.canvas.height = this.bottom + 1;
    this.canvas.style.width = `${this.canvas.width / scale}px`;
    this.canvas.style.height = `${this.canvas.height / scale}px`;
    this.image.width = Math.max(columns.length, 1);
    this.image.height = Math.max(rows.length, 1);
    this.pixels = context(this.image).createImageData(this.image.width, this.image.height);
    this.packed = new Uint32Array(this.pixels.data.buffer);
    this.ground = null;
    this.written.clear();
  }

  /**
   * dress sets the palette: the colors of a theme and of places.
   * @param {Palette} palette
   */
  dress(palette) {
    this.palette = palette;
    this.ground = null;
    this.written.clear();
  }

  /**
   * color returns the color of a cell, or null for cells without data.
   * @param {Cells} cells
   * @param {At} at
   * @param {Set<number> | null} [highlight]
   */
  color(cells, { row, column }, highlight = null) {
    const pixel = this.pixel(cells, row * this.columns.length + column, highlight);
    return pixel ? css(Palette.unpack(pixel)) : null;
  }

  /**
   * pixel returns the color of a cell as a pixel value, 0 for cells without data.
   * @param {Cells} cells
   * @param {number} at
   * @param {Set<number> | null} highlight
   * @returns {number}
   */
  pixel(cells, at, highlight) {
    const palette = /** @type {Palette} */ (this.palette);
    const state = cells.state[at];
    if (state === NO_DATA) return 0;
    if (this.kind === "mean") {
      const severity = cells.severity[at];
      if (!(severity >= 0)) return palette.few;
      return (state === TOO_FEW ? palette.uncertain : palette.ramp)[Math.round(severity * 255)];
    }
    if (state === TOO_FEW || state === NOT_JUDGED) return palette.few;
    const share = cells.share[at];
    if (!(share > 0)) return palette.clear;
    const place = cells.location[at];
    const step = Palette.step(share);
    if (place < 0) return palette.nowhere[step];
    return (highlight && !highlight.has(place) ? palette.dimmed : palette.places)[place][step];
  }

  /**
   * draw paints the layout's cells in the palette's colors.
   * @param {Cells} cells
   * @param {Marks} marks
   */
  draw(cells, marks) {
    const g = this.context;
    const { theme } = /** @type {Palette} */ (this.palette);
    const { scale, left, top, right, bottom } = this;
    const { highlight = null } = marks;
    this.ground ||= this.drawGround(theme);
    g.clearRect(0, 0, this.canvas.width, this.canvas.height);
    g.drawImage(this.ground, 0, 0);
    this.paint(cells, highlight);
    g.imageSmoothingEnabled = false;
    g.globalAlpha = marks.waiting ? 0.25 : 1;
    g.drawImage(this.image, left, top, right - left, bottom - top);
    g.globalAlpha = 1;
    const size = Math.min(this.width, this.height);
    if (size >= 6 * scale) this.grid(css(theme.ground));
    if (size >= 8 * scale && !marks.waiting) {
      this.notches(theme.notch, theme.ground, 1, cells, (at) => cells.state[at] === TOO_FEW);
      if (this.kind === "mode") this.notches(theme.trimmed, theme.ground, -1, cells, (at) => cells.trimmed[at] === 1);
    }
    if (this.kind === "mode" && size >= WRITTEN * scale && !marks.waiting) this.write(cells, highlight);
    this.bounds(theme);
    this.outlines(cells, marks, theme);
  }

  /**
   * drawGround draws the background of all windows.
   * @param {Theme} theme
   */
  drawGround(theme) {
    const ground = this.canvas.ownerDocument.createElement("canvas");
    ground.width = this.canvas.width;
    ground.height = this.canvas.height;
    const g = context(ground);
    g.fillStyle = hatch(g, theme, this.scale);
    g.fillRect(this.left, this.top, this.right - this.left, this.bottom - this.top);
    this.names(g, theme);
    this.bands(g, theme);
    return ground;
  }

  /**
   * @param {Cells} cells
   * @param {Set<number> | null} highlight
   */
  paint(cells, highlight) {
    const { packed } = this;
    const count = this.rows.length * this.columns.length;
    for (let at = 0; at < count; at++) packed[at] = this.pixel(cells, at, highlight);
    context(this.image).putImageData(this.pixels, 0, 0);
  }

  /** @param {string} color */
  grid(color) {
    const g = this.context;
    const { left, top, right, bottom } = this;
    g.fillStyle = color;
    for (let i = 0; i <= this.columns.length; i++) g.fillRect(left + i * this.width, top, 1, bottom - top);
    for (let i = 0; i <= this.rows.length; i++) g.fillRect(left, top + i * this.height, right - left, 1);
  }

  /**
   * bounds draws the lines between bands.
   * @param {Theme} theme
   */
  bounds(theme) {
    const g = this.context;
    const thick = Math.max(1, Math.round(this.scale));
    g.fillStyle = theme.text;
    /** @param {Item[]} items @param {number} size */
    const borders = (items, size) => {
      const list = runs(items);
      return size * items.length < SHORT * this.scale * list.length ? [] : list.slice(1).map(({ from }) => Math.round(from * size - thick / 2));
    };
    for (const at of borders(this.columns, this.width)) g.fillRect(this.left + at, this.top, thick, this.bottom - this.top);
    for (const at of borders(this.rows, this.height)) g.fillRect(this.left, this.top + at, this.right - this.left, thick);
  }

  /**
   * notches marks the cells that picks selects in a corner: upper right for 1, lower left for -1. The
   * middle keeps the data's color.
   * @param {string} color
   * @param {import("./color.js").RGB} ground
   * @param {1 | -1} corner
   * @param {Cells} cells
   * @param {(at: number) => boolean} picks
   */
  notches(color, ground, corner, cells, picks) {
    const g = this.context;
    const size = corner * Math.round(Math.min(this.width, this.height) * 0.3);
    g.fillStyle = color;
    g.beginPath();
    for (let at = 0; at < cells.state.length; at++) {
      if (cells.state[at] === NO_DATA || !picks(at)) continue;
      const { row, column } = this.at(at);
      const x = this.left + (column + (corner > 0 ? 1 : 0)) * this.width + (corner > 0 ? 0 : 1);
      const y = this.top + (row + (corner > 0 ? 0 : 1)) * this.height + (corner > 0 ? 1 : 0);
      g.moveTo(x - size, y);
      g.lineTo(x, y);
      g.lineTo(x, y + size);
      g.closePath();
    }
    g.fill();
    g.strokeStyle = css(ground);
    g.lineWidth = this.scale;
    g.stroke();
  }

  /**
   * write writes places' ranks into the cells that have their colors.
   * @param {Cells} cells
   * @param {Set<number> | null} highlight
   */
  write(cells, highlight) {
    const palette = /** @type {Palette} */ (this.palette);
    for (let at = 0; at < cells.state.length; at++) {
      const state = cells.state[at];
      const place = cells.location[at];
      if (state === NO_DATA || state === TOO_FEW || state === NOT_JUDGED || place < 0 || !(cells.share[at] > 0)) continue;
      const rank = palette.ranks[place];
      if (!rank || rank > 99 || (highlight && !highlight.has(place))) continue;
      const { row, column } = this.at(at);
      const text = this.number(rank, ink(Palette.unpack(this.pixel(cells, at, highlight))));
      this.context.drawImage(text, Math.round(this.left + (column + 0.5) * this.width - text.width / 2 + 0.5), Math.round(this.top + (row + 0.5) * this.height - text.height / 2 + 0.5));
    }
  }

  /**
   * number returns a rank as an image, which is drawn faster than text.
   * @param {number} rank
   * @param {string} color
   */
  number(rank, color) {
    const key = `${rank} ${color}`;
    const known = this.written.get(key);
    if (known) return known;
    const size = Math.round(Math.min(0.66 * Math.min(this.width, this.height), 13 * this.scale));
    const picture = this.canvas.ownerDocument.createElement("canvas");
    picture.width = Math.ceil(size * (rank > 9 ? 1.3 : 0.8));
    picture.height = size;
    const g = context(picture);
    g.font = `600 ${size}px system-ui, sans-serif`;
    g.textAlign = "center";
    g.textBaseline = "middle";
    g.fillStyle = color;
    g.fillText(String(rank), picture.width / 2, size * 0.55, picture.width);
    this.written.set(key, picture);
    return picture;
  }

  /**
   * @param {CanvasRenderingContext2D} g
   * @param {Theme} theme
   */
  names(g, theme) {
    const { scale, left, top } = this;
    g.font = this.font;
    g.fillStyle = theme.text;
    g.textBaseline = "middle";
    const line = LINE * scale;
    for (let i = 0; i < this.rows.length; i += Math.max(1, Math.ceil(line / this.height))) this.rowName(g, i);
    for (let i = 0; i < this.columns.length; i += Math.max(1, Math.ceil(line / this.width))) this.columnName(g, i);
    g.fillStyle = theme.strong;
    g.textAlign = "center";
    g.fillText("destination group", Math.max((left + this.right) / 2, left + 50 * scale), 8 * scale);
    g.save();
    g.translate(8 * scale, (top + this.bottom) / 2);
    g.rotate(-Math.PI / 2);
    g.fillText("source group", 0, 0);
    g.restore();
  }

  /**
   * @param {CanvasRenderingContext2D} g
   * @param {number} row
   */
  rowName(g, row) {
    g.textAlign = "right";
    g.fillText(this.rows[row].name, this.left - 6 * this.scale, this.top + (row + 0.5) * this.height, LABEL * this.scale);
  }

  /**
   * @param {CanvasRenderingContext2D} g
   * @param {number} column
   */
  columnName(g, column) {
    g.save();
    g.translate(this.left + (column + 0.5) * this.width, this.top - 6 * this.scale);
    g.textAlign = this.upright ? "center" : "left";
    if (!this.upright) g.rotate(-Math.PI / 2);
    g.fillText(this.columns[column].name, 0, this.upright ? -5 * this.scale : 0, LABEL * this.scale);
    g.restore();
  }

  /**
   * bands writes the parent group of adjacent items. Where groups are narrower than their names, it writes
   * only every second, third or later one.
   * @param {CanvasRenderingContext2D} g
   * @param {Theme} theme
   */
  bands(g, theme) {
    const { scale } = this;
    g.fillStyle = theme.strong;
    g.textAlign = "center";
    g.textBaseline = "middle";
    for (const { begin, length, name, width } of this.places(g, this.columns, this.left, this.width)) {
      g.fillRect(begin, 30 * scale, length, scale);
      if (name) g.fillText(name, begin + length / 2, 23 * scale, width);
    }
    for (const { begin, length, name, width } of this.places(g, this.rows, this.top, this.height)) {
      g.fillRect(30 * scale, begin, scale, length);
      if (!name) continue;
      g.save();
      g.translate(23 * scale, begin + length / 2);
      g.rotate(-Math.PI / 2);
      g.fillText(name, 0, 0, width);
      g.restore();
    }
  }

  /**
   * places are where the bands of an axis are, in device pixels, with the names that there is room for.
   * @param {CanvasRenderingContext2D} g
   * @param {Item[]} items
   * @param {number} start of the axis
   * @param {number} size  of an item
   */
  places(g, items, start, size) {
    let free = start - LINE * this.scale;
    return runs(items).map(({ from, to, band }) => {
      const [begin, length] = [start + from * size + 2 * this.scale, (to - from) * size - 4 * this.scale];
      const width = Math.min(g.measureText(band).width, length < SHORT * this.scale ? LABEL * this.scale : length);
      const middle = begin + length / 2;
      const fits = middle - width / 2 >= free;
      if (fits) free = middle + (width + LINE * this.scale) / 2;
      return { begin, length, name: fits ? band : "", width };
    });
  }

  /**
   * outlines show the cells that are pointed at and chosen, and which cells of means have the
   * highlighted place as their mode.
   * @param {Cells} cells
   * @param {Marks} marks
   * @param {Theme} theme
   */
  outlines(cells, { highlight, pointer, chosen, marked = [], selection }, theme) {
    const g = this.context;
    g.strokeStyle = theme.strong;
    if (this.kind === "mean" && highlight) {
      g.lineWidth = Math.max(1, this.scale);
      for (let at = 0; at < cells.state.length; at++) {
        if (cells.state[at] === CONGESTED && highlight.has(cells.location[at])) this.outline(this.at(at), 1);
      }
    }
    g.lineWidth = Math.max(1, this.scale);
    for (const at of marked) this.outline(at, 1);
    g.lineWidth = 2 * this.scale;
    if (selection) this.select(selection);
    if (chosen) this.outline(chosen, 0);
    if (!pointer) return;
    this.outline(pointer, 0);
    this.point(pointer, theme);
  }

  /**
   * point writes a cell's row and column at the axes, which have no room for all names.
   * @param {At} at
   * @param {Theme} theme
   */
  point({ row, column }, theme) {
    const g = this.context;
    const { scale } = this;
    const half = (LINE * scale) / 2;
    const [x, y] = [this.left + (column + 0.5) * this.width, this.top + (row + 0.5) * this.height];
    g.font = this.font;
    g.textBaseline = "middle";
    g.fillStyle = css(theme.ground);
    const long = Math.min(g.measureText(this.rows[row].name).width, LABEL * scale) + 4 * scale;
    g.fillRect(this.left - 6 * scale - long, y - half, long + 5 * scale, 2 * half);
    const tall = this.upright ? 2 * half : Math.min(g.measureText(this.columns[column].name).width, LABEL * scale) + 8 * scale;
    const wide = this.upright ? this.width : 2 * half;
    g.fillRect(x - wide / 2, this.top - scale - tall, wide, tall);
    g.fillStyle = theme.strong;
    this.rowName(g, row);
    this.columnName(g, column);
  }

  /**
   * at returns the row and column of an index into the columns of cells.
   * @param {number} index
   * @returns {At}
   */
  at(index) {
    const row = Math.floor(index / this.columns.length);
    return { row, column: index - row * this.columns.length };
  }

  /**
   * @param {At} at
   * @param {number} inset
   */
  outline({ row, column }, inset) {
    this.context.strokeRect(this.left + column * this.width + inset + 0.5, this.top + row * this.height + inset + 0.5, this.width - 2 * inset, this.height - 2 * inset);
  }

  /** @param {{from: At, to: At}} selection */
  select({ from, to }) {
    const [left, top] = [Math.min(from.column, to.column), Math.min(from.row, to.row)];
    const [wide, high] = [Math.abs(from.column - to.column) + 1, Math.abs(from.row - to.row) + 1];
    this.context.strokeRect(this.left + left * this.width, this.top + top * this.height, wide * this.width, high * this.height);
  }

  /**
   * rect returns a cell's rectangle in CSS pixels of the canvas's own box.
   * @param {At} at
   */
  rect({ row, column }) {
    const { scale } = this;
    return {
      x: (this.left + column * this.width) / scale, y: (this.top + row * this.height) / scale,
      width: this.width / scale, height: this.height / scale,
    };
  }

  /**
   * hit returns the cell at a point in CSS pixels of the canvas's own box, or null.
   * @param {number} x
   * @param {number} y
   * @returns {At | null}
   */
  hit(x, y) {
    const column = Math.floor((x * this.scale - this.left) / this.width);
    const row = Math.floor((y * this.scale - this.top) / this.height);
    return row >= 0 && column >= 0 && row < this.rows.length && column < this.columns.length ? { row, column } : null;
  }
}

/**
 * hatch returns the pattern for "no data": visible, and unlike any value.
 * @param {CanvasRenderingContext2D} g of the target canvas
 * @param {Theme} theme
 * @param {number} scale
 */
export function hatch(g, theme, scale) {
  const size = Math.round(6 * scale);
  const tile = g.canvas.ownerDocument.createElement("canvas");
  tile.width = tile.height = size;
  const t = context(tile);
  t.fillStyle = css(theme.ground);
  t.fillRect(0, 0, size, size);
  t.strokeStyle = css(theme.hatch);
  t.lineWidth = scale;
  for (const shift of [-size, 0, size]) {
    t.beginPath();
    t.moveTo(shift - 1, size + 1);
    t.lineTo(shift + size + 1, -1);
    t.stroke();
  }
  return /** @type {CanvasPattern} */ (g.createPattern(tile, "repeat"));
}

/**
 * even returns the size of cells within the given room. Large cells have a whole number of pixels,
 * so that they are equal; small ones would waste up to half of the room.
 * @param {number} room device pixels per cell
 * @param {number} count of cells
 */
function even(room, count) {
  if (room >= 5) return Math.floor(room);
  return Math.max(Math.floor(room * count) / Math.max(count, 1), 1);
}

/**
 * runs returns the ranges of adjacent items in the same band.
 * @param {Item[]} items
 */
function runs(items) {
  /** @type {{from: number, to: number, band: string}[]} */
  const out = [];
  items.forEach(({ band = "" }, i) => {
    const last = out[out.length - 1];
    if (last?.band === band) last.to = i + 1;
    else out.push({ from: i, to: i + 1, band });
  });
  return out.length > 1 || out[0]?.band ? out : [];
}

/**
 * @param {HTMLCanvasElement} canvas
 * @returns {CanvasRenderingContext2D}
 */
function context(canvas) {
  return /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
}
