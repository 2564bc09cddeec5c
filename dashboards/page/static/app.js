"use strict";

// What the page shows, and how it reacts. The state is one object; every change
// goes through show(), which draws once per animation frame.
const App = (() => {
  const { find } = Panels;
  const view = { signal: "", level: "location", window: -1, highlight: -1, cell: null, utc: false, theme: "dark" };
  const matrices = [new Matrix(find("mean"), "left"), new Matrix(find("mode"), "right")];
  const timeline = new Timeline(find("timeline"));
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  let model = null;
  let signal = null;
  let frame = null;
  let playing = 0;
  let pending = 0;

  // open shows a bundle. What was selected before stays selected where it can.
  function open(bundle) {
    const last = model && view.window === model.windows.length - 1;
    const moment = model && view.window >= 0 ? model.windows[view.window] : null;
    const highlighted = model && view.highlight >= 0 ? model.locations[view.highlight].id : null;
    model = new Model(bundle);
    if (!model.signal(view.signal)) {
      view.signal = bundle.data.length ? bundle.signals[bundle.data[0].signal].name : "";
    }
    if (!bundle.levels.includes(view.level)) view.level = bundle.levels[0];
    if (moment !== null) view.window = last ? model.windows.length - 1 : model.windows.indexOf(moment);
    view.highlight = model.locations.findIndex((l) => l.id === highlighted);
    view.cell = null;
    find("main").hidden = !view.signal;
    if (view.signal) relayout();
  }

  // relayout follows changes of data, signal, level, theme or size of the window.
  function relayout() {
    if (!model || !view.signal) return;
    signal = model.signal(view.signal);
    view.theme = dark.matches ? "dark" : "light";
    const scale = window.devicePixelRatio || 1;
    const panel = find("mean").parentElement;
    const width = panel.clientWidth - 28;
    const height = Math.max(260, window.innerHeight - 446);
    for (const m of matrices) m.layout(model, width, Math.max(Math.min(height, width), 120), scale);
    const ranked = signal.byLocation(view.level);
    const tallest = Math.max(panel.offsetHeight, find("mode").parentElement.offsetHeight);
    find("legend").parentElement.style.height = `${tallest}px`;
    Panels.legend(signal, ranked, view.highlight, highlight);
    // The time heatmap takes what the window has left, and never less than ten rows.
    const below = window.innerHeight - find("timeline").getBoundingClientRect().top - window.scrollY - 52;
    const shown = ranked.slice(0, Math.max(10, Math.floor(below / Timeline.ROW))).map((c) => c.location);
    timeline.layout(signal, view.level, shown, find("timeline").parentElement.clientWidth - 28, scale);
    texts(ranked);
    show();
  }

  function texts(ranked) {
    const { bundle } = model;
    const { unit, direction } = signal.info;
    document.title = `csigscope${bundle.fabric ? ` \u2013 ${bundle.fabric}` : ""}`;
    find("fabric").textContent = bundle.fabric;
    find("mean-title").textContent = Panels.title(signal.info);
    for (const m of matrices) {
      m.canvas.ariaLabel = `${m.side === "left" ? Panels.title(signal.info) : "Mode of the bottleneck"}, source by destination group`;
    }
    find("ramp").style.background = Color.gradient(view.theme, direction === "min" ? "left" : "right");
    const { low, high, log } = signal.domain;
    find("scale-low").textContent = Format.quantity(low, unit);
    find("scale-high").textContent = Format.quantity(high, unit) + (log ? " (log)" : "");
    const notes = ["share of each window's observations"];
    if (timeline.peak) notes.push(`at most ${Format.share(timeline.peak)}`);
    const rows = timeline.locations.length;
    if (ranked.length > rows) notes.push(`the first ${rows} of ${ranked.length} locations`);
    find("timeline-note").textContent = notes.join(", ");
    const { sum } = signal;
    const share = (v) => Format.share(v / sum.observations);
    const end = model.windows.at(-1) + BigInt(model.step);
    Panels.facts([
      ["from", Format.time(model.windows[0], model.step, view.utc, true)],
      ["to", Format.time(end, model.step, view.utc, true)],
      ["window", Format.duration(model.step), bundle.resolution_ns ? `made from rows of ${Format.duration(bundle.resolution_ns)}` : ""],
      ["observations", Format.shortCount(sum.observations), `${Format.count(sum.observations)} of ${Panels.short(view.signal)}`],
      ["heavy", share(sum.heavy), "share of observations that are heavily loaded"],
      ["trimmed", share(sum.trimmed), "share of observations from trimmed packets"],
      ["untouched", share(sum.untouched), "share of observations that no hop updated"],
    ]);
    const withData = bundle.signals.filter((s) => Source.canFetch() || model.signal(s.name));
    Panels.tabs(withData, view.signal, setSignal);
    Panels.levels(Source.canFetch() ? Object.keys(LEVEL_FIELDS) : bundle.levels, view.level, setLevel);
    find("scrubber").max = model.windows.length - 1;
    find("zone").ariaPressed = String(view.utc);
    if (bundle.heavy_only) {
      Panels.banner("Rows below 1 s exist only where something was heavy: here, cells without data may be clear, and means lean to the heavy side.");
    }
  }

  function show() {
    if (!pending) pending = requestAnimationFrame(drawAll);
  }

  function drawAll() {
    if (pending) cancelAnimationFrame(pending);
    pending = 0;
    frame = signal.frame(view.window);
    for (const m of matrices) m.draw(frame, view);
    timeline.draw(view);
    Panels.states(frame.states());
    const whole = view.window < 0;
    find("whole").ariaPressed = String(whole);
    find("scrubber").classList.toggle("idle", whole);
    if (!whole) find("scrubber").value = view.window;
    const start = model.windows[Math.max(view.window, 0)];
    find("when").textContent = whole ? `whole range, ${model.windows.length} windows`
      : `${Format.time(start, model.step, view.utc, true)} ${Format.zone(view.utc)} \u00b7 ${view.window + 1} / ${model.windows.length}`;
  }

  function setWindow(index) {
    view.window = Math.max(-1, Math.min(Math.trunc(index), model.windows.length - 1));
    show();
  }

  function setSignal(name) {
    if (!model.bundle.signals.some((s) => s.name === name)) return;
    if (!model.signal(name)) return Source.fetchBundle(name, view.level).then(() => setSignal(name), () => {});
    view.signal = name;
    relayout();
  }

  function setLevel(level) {
    if (!model.bundle.levels.includes(level)) {
      return Source.fetchBundle(view.signal, level).then(() => setLevel(level), () => {});
    }
    view.level = level;
    view.highlight = -1;
    relayout();
  }

  function highlight(location) {
    view.highlight = view.highlight === location ? -1 : location;
    Panels.legend(signal, signal.byLocation(view.level), view.highlight, highlight);
    show();
  }

  function setUTC(utc) {
    view.utc = utc;
    relayout();
  }

  function play(on) {
    clearInterval(playing);
    playing = on ? setInterval(() => setWindow((view.window + 1) % model.windows.length), 250) : 0;
    find("play").textContent = on ? "\u23f8" : "\u25b6";
    find("play").ariaLabel = on ? "Pause" : "Play";
  }

  function showCell(matrix, cell, speak) {
    view.cell = cell;
    show();
    if (!cell) return Panels.hideTip();
    const box = matrix.canvas.getBoundingClientRect();
    const r = matrix.rect(cell.src, cell.dst);
    const known = frame.cell(cell.src, cell.dst, view.level);
    const rows = Panels.cellRows(known, signal.info.unit);
    const heading = `${known.src} \u2192 ${known.dst}`;
    Panels.tip(heading, rows, { left: box.left + r.x, right: box.left + r.x + r.width, top: box.top + r.y });
    if (speak) find("spoken").textContent = `${heading}: ${rows.map((row) => `${row[0]} ${row[1]}`).join(", ")}`;
  }

  return {
    view, matrices, timeline, open, relayout, show, drawAll, setWindow, setSignal, setLevel, setUTC, play, showCell,
    model: () => model, signal: () => signal, frame: () => frame, playing: () => playing !== 0, dark,
  };
})();
