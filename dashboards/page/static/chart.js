import * as Color from "./color.js";
import * as Format from "./format.js";

// alone returns the points to draw of a series of uPlot: those that no line joins to another one, unless all are drawn.
function alone(plot, series, all) {
  const values = plot.data[series];
  const none = (i) => (values[i] ?? null) === null;
  return all ? null : [...values.keys()].filter((i) => !none(i) && none(i - 1) && none(i + 1));
}

// The timeline of one cell: its mean between minimum and maximum, the heavy share with its
// thresholds, and below them the color of each window's mode.
export class Chart {
  static HEIGHT = 230;
  static STRIP = 8; // height of the row of modes

  constructor(box, choose) {
    this.box = box;
    this.plot = null;
    // uPlot treats a click as the end of a drag if the pointer has not moved before.
    box.addEventListener("click", (event) => {
      if (event.target === this.plot?.over) choose(this.plot.posToIdx(event.offsetX));
    }, true);
  }

  // show draws a series of the signal model's windows; view is the page's state.
  show(signal, series, view) {
    this.signal = signal;
    this.series = series;
    this.view = view;
    this.clear();
    const { windows } = signal.model;
    const column = (of) => windows.map((_, w) => (series[w] ? of(series[w]) : null));
    const number = (v) => (Number.isFinite(v) ? v : null);
    const c = (name) => column(({ frame, row }) => number(frame.columns[name]?.[row]));
    const data = [
      windows.map((ns) => Number(ns) / 1e9), c("min"), c("max"), c("mean"),
      column(({ frame, row }) => frame.columns.heavy[row] / frame.columns.observations[row]),
    ];
    this.plot = new uPlot(this.options(), data, this.box);
  }

  options() {
    const { view, signal: { info, model } } = this;
    const neutral = Color.theme(view.theme);
    const clock = (v) => Format.clock(BigInt(Math.round(v * 1e6)) * 1000n, model, view.utc);
    const axis = { stroke: neutral.text, grid: { stroke: Color.css(neutral.clear), width: 1 }, ticks: { stroke: Color.css(neutral.clear) } };
    const accent = Color.css(Color.ramp(view.theme, 0.55));
    const line = neutral.strong;
    const quantity = (_, list) => list.map((v) => (v === null ? "" : Format.quantity(v, info.unit)));
    const value = (_, v) => Format.quantity(v, info.unit);
    return {
      width: Math.max(this.box.clientWidth, 200), height: Chart.HEIGHT, padding: [10, null, Chart.STRIP + 4, null],
      tzDate: view.utc ? (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC") : (seconds) => new Date(seconds * 1000),
      cursor: { y: false, drag: { x: false, y: false } },
      scales: { x: { time: true }, share: { range: [0, 1] } },
      axes: [{ ...axis, values: (_, list) => list.map((v) => clock(v).replace(" ", "\n")), space: 90 }, { ...axis, size: 84, values: quantity },
        { ...axis, scale: "share", side: 1, size: 60, grid: { show: false }, values: (_, list) => list.map((v) => `${Math.round(100 * v)} %`) }],
      series: [
        { label: "time", value: (_, v) => (v === null ? "" : clock(v)) },
        { label: "least", stroke: "transparent", points: { show: false }, value },
        { label: "most", stroke: "transparent", points: { show: false }, value },
        { label: "mean", stroke: line, width: 2, value, points: { filter: alone } },
        { label: "heavy", scale: "share", stroke: accent, width: 1, fill: `color-mix(in srgb, ${accent} 30%, transparent)`,
          paths: uPlot.paths.bars({ size: [1] }), points: { show: false }, value: (_, v) => (v === null ? "\u2013" : Format.share(v)) },
      ],
      bands: [{ series: [2, 1], fill: `color-mix(in srgb, ${line} 14%, transparent)` }],
      hooks: { draw: [(plot) => this.thresholds(plot), (plot) => this.marks(plot)] },
    };
  }

  // thresholds draws the onset of congestion and, dashed, its end.
  thresholds(plot) {
    const { view, signal: { model: { bundle } } } = this;
    const g = plot.ctx;
    const { left, width } = plot.bbox;
    const scale = window.devicePixelRatio || 1;
    g.save();
    g.strokeStyle = Color.theme(view.theme).trimmed;
    g.lineWidth = scale;
    for (const [share, dash] of [[bundle.onset_ratio, []], [bundle.clear_ratio, [3 * scale, 3 * scale]]]) {
      const y = Math.round(plot.valToPos(share, "share", true)) - scale / 2;
      g.setLineDash(dash);
      g.beginPath();
      g.moveTo(left, y);
      g.lineTo(left + width, y);
      g.stroke();
    }
    g.restore();
  }

  // marks draws the modes and the present window.
  marks(plot) {
    const { view, signal: { model } } = this;
    const g = plot.ctx;
    const { left, top, width, height } = plot.bbox;
    const scale = window.devicePixelRatio || 1;
    const at = (w) => plot.valToPos(Number(model.windows[w]) / 1e9, "x", true);
    const step = Math.max(width / model.windows.length, 1);
    g.save();
    this.series.forEach((point, w) => {
      const place = point ? point.frame.mode(point.row, view.level) : -1;
      if (place < 0) return;
      g.fillStyle = model.locations[place].color;
      g.fillRect(at(w) - step / 2, plot.ctx.canvas.height - Chart.STRIP * scale, step, Chart.STRIP * scale);
    });
    if (view.window >= 0) {
      g.strokeStyle = Color.theme(view.theme).strong;
      g.lineWidth = 2 * scale;
      g.strokeRect(Math.max(at(view.window) - step / 2, left), top, Math.max(step, 2), height);
    }
    g.restore();
  }

  // follow redraws when the page's window has moved.
  follow() {
    this.plot?.redraw(false);
  }

  // data returns the plotted data, for tests.
  data() {
    return this.plot.data;
  }

  clear() {
    this.plot?.destroy();
    this.plot = null;
  }
}
