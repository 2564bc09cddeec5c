// Starts the page and exposes its state to tests.

import * as Address from "./address.js";
import * as App from "./app.js";
import * as Detail from "./detail.js";
import * as Input from "./input.js";
import * as Live from "./live.js";
import * as Source from "./source.js";
import * as Verdict from "./verdict.js";

const { view, matrices, map } = App;

// state returns the state that screenshot tests compare with pixels.
function state() {
  const side = (name) => matrices[name === "left" ? 0 : 1];
  const after = (change) => (value) => { change(value); App.drawAll(); };
  return Object.freeze({
    ready: true,
    cellColor(name, src, dst) {
      const at = App.axes.at({ src, dst });
      return at && side(name).color(App.cells, at, App.lit());
    },
    cellRect(name, src, dst) {
      const { canvas } = side(name);
      const box = canvas.getBoundingClientRect();
      const r = side(name).rect(App.axes.at({ src, dst }));
      // Browsers paint a canvas at whole device pixels, whatever its layout position.
      const snap = (v) => Math.round(v * devicePixelRatio) / devicePixelRatio;
      return { x: snap(box.left + window.scrollX) + r.x, y: snap(box.top + window.scrollY) + r.y, width: r.width, height: r.height };
    },
    cell: (src, dst) => App.frame.cell(src, dst, view.level),
    link(name) {
      const box = map.canvas.getBoundingClientRect();
      const at = map.middle(name);
      const cells = map.counts.get(map.byName.get(name).index) || 0;
      return { cells, color: cells ? map.color(cells) : "", x: box.left + at.x, y: box.top + at.y };
    },
    links: () => [map.plan.ports.length, map.plan.ports.filter((p) => p.mate).length],
    series: () => Detail.data(),
    setWindow: after(App.setWindow),
    setSignal: after(App.setSignal),
    setLevel: after(App.setLevel),
    current: () => ({
      signal: view.signal, level: view.level, window: view.window, theme: view.theme, highlight: view.highlight,
      chosen: view.chosen, utc: view.utc, waiting: App.waiting, stale: Live.stale(), series: Detail.loaded(), kept: App.signal.frames.bytes,
    }),
  });
}

function navigate(state) {
  App.apply(state);
  Source.navigate();
}

Input.start();
App.apply(Address.read());
Address.listen(navigate);
Source.start().then(Verdict.settled).then(() => {
  if (App.model && view.signal) App.drawAll();
  window.csigscope = state();
});
