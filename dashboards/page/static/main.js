"use strict";

// Wires events, starts, and shows tests what is drawn.
(() => {
  const { find } = Panels;
  const { view, matrices, timeline } = App;

  function pointer(matrix) {
    const { canvas } = matrix;
    canvas.addEventListener("pointermove", (event) => App.showCell(matrix, matrix.hit(event.offsetX, event.offsetY), false));
    canvas.addEventListener("pointerleave", () => App.showCell(matrix, null, false));
    canvas.addEventListener("blur", () => App.showCell(matrix, null, false));
    canvas.addEventListener("keydown", (event) => {
      const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      if (event.key === "Escape") App.showCell(matrix, null, false);
      if (!step) return;
      event.preventDefault();
      event.stopPropagation();
      const limit = App.model().size - 1;
      const at = view.cell || { src: 0, dst: 0 };
      const move = (v, by) => Math.max(0, Math.min(limit, v + (view.cell ? by : 0)));
      App.showCell(matrix, { src: move(at.src, step[0]), dst: move(at.dst, step[1]) }, true);
    });
  }

  function timelineEvents() {
    timeline.canvas.addEventListener("click", (event) => {
      const hit = timeline.hit(event.offsetX, event.offsetY);
      if (hit) App.setWindow(hit.window);
    });
    timeline.canvas.addEventListener("pointerleave", Panels.hideTip);
    timeline.canvas.addEventListener("pointermove", (event) => {
      const hit = timeline.hit(event.offsetX, event.offsetY);
      if (!hit) return Panels.hideTip();
      const { model, seen } = App.signal();
      const location = model.locations[timeline.locations[hit.index]];
      const row = timeline.rows[hit.index];
      const all = seen[hit.window];
      const rows = all
        ? [["heavy", `${Format.share(row.heavy[hit.window] / all)} of the window`], ["heavy here", Format.count(row.heavy[hit.window])],
          ["named here", Format.count(row.observations[hit.window])], ["samples", Format.count(all)]]
        : [["state", "no data: nothing was heard"]];
      const at = { left: event.clientX, right: event.clientX, top: event.clientY };
      Panels.tip(`${location.name} \u00b7 ${Format.time(model.windows[hit.window], model.step, view.utc, false)}`, rows, at);
    });
  }

  // The page's own keys leave alone what has the focus and uses keys itself.
  function keys(event) {
    if (event.target.closest("input, select, button, canvas") && event.key !== "w") return;
    const last = (App.model()?.windows.length || 1) - 1;
    const actions = {
      ArrowLeft: () => App.setWindow(Math.max(view.window - 1, 0)),
      ArrowRight: () => App.setWindow(view.window + 1),
      Home: () => App.setWindow(0),
      End: () => App.setWindow(last),
      " ": () => App.play(!App.playing()),
      w: () => App.setWindow(view.window < 0 ? 0 : -1),
    };
    if (!App.model() || !actions[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    actions[event.key]();
  }

  function controls() {
    find("scrubber").addEventListener("input", (event) => App.setWindow(Number(event.target.value)));
    find("play").addEventListener("click", () => App.play(!App.playing()));
    find("zone").addEventListener("click", () => App.setUTC(!view.utc));
    find("whole").addEventListener("click", () => App.setWindow(view.window < 0 ? Number(find("scrubber").value) : -1));
    document.addEventListener("keydown", keys);
    window.addEventListener("resize", App.relayout);
    App.dark.addEventListener("change", App.relayout);
  }

  // state is what a screenshot test checks pixels against.
  function state() {
    const side = (name) => matrices[name === "left" ? 0 : 1];
    const after = (change) => (value) => { change(value); App.drawAll(); };
    return Object.freeze({
      ready: true,
      cellColor(name, src, dst) {
        const frame = App.frame();
        const color = side(name).color(frame, frame.row(src, dst), view);
        return color ? Color.css(color) : null;
      },
      cellRect(name, src, dst) {
        const { canvas } = side(name);
        const box = canvas.getBoundingClientRect();
        const r = side(name).rect(src, dst);
        // Browsers paint a canvas at whole device pixels, wherever layout puts it.
        const snap = (v) => Math.round(v * devicePixelRatio) / devicePixelRatio;
        return { x: snap(box.left + window.scrollX) + r.x, y: snap(box.top + window.scrollY) + r.y, width: r.width, height: r.height };
      },
      setWindow: after(App.setWindow),
      setSignal: after(App.setSignal),
      setLevel: after(App.setLevel),
      current: () => ({ signal: view.signal, level: view.level, window: view.window, theme: view.theme, highlight: view.highlight }),
    });
  }

  matrices.forEach(pointer);
  timelineEvents();
  controls();
  Source.start().then(() => {
    if (App.model() && view.signal) App.drawAll();
    window.csigscope = state();
  });
})();
