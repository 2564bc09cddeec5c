// The page's state in the fragment of its address, so that a link shows others the same view. Names
// and times stay in the browser, since fragments are never sent.

const KEYS = ["signal", "level", "range", "from", "to", "step", "t", "src", "dst", "at", "live", "theme", "utc", "only", "sort", "fold"];
const QUIET = 250; // ms between two changes: browsers refuse hundreds of them in seconds
let written = null;
let current = location.hash; // last fragment that this page has seen
let timer = 0;
let next = null;

// read returns the state in the address, without unknown keys.
export function read() {
  const given = new URLSearchParams(location.hash.slice(1));
  return Object.fromEntries(KEYS.filter((key) => given.get(key)).map((key) => [key, given.get(key)]));
}

// write schedules an update of the address with the state. Empty values are left out.
export function write(state) {
  next = state;
  if (!timer) timer = setTimeout(flush, QUIET);
}

export function flush() {
  clearTimeout(timer);
  timer = 0;
  if (!next) return;
  const text = new URLSearchParams(KEYS.filter((key) => next[key]).map((key) => [key, next[key]])).toString();
  next = null;
  // Someone else changed the fragment: the hashchange event will follow.
  if (text === written || location.hash !== current) return;
  written = text;
  history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
  current = location.hash;
}

// listen calls changed if someone else changes the fragment.
export function listen(changed) {
  window.addEventListener("hashchange", () => {
    current = location.hash;
    if (location.hash.slice(1) === written) return;
    clearTimeout(timer);
    timer = 0;
    next = null;
    written = null;
    changed(read());
  });
}

// moment writes Unix ns (BigInt) as RFC 3339. parse reads it and returns null for anything else.
export function moment(ns) {
  const rest = ns % 1000000000n;
  const seconds = new Date(Number((ns - rest) / 1000000n)).toISOString().slice(0, 19);
  return seconds + (rest ? `.${String(rest).padStart(9, "0").replace(/0+$/, "")}` : "") + "Z";
}

// seconds rounds a range outward to whole seconds, as the API does.
export function seconds(from, to) {
  const second = 1000000000n;
  return [["from", moment((from / second) * second)], ["to", moment(((to + second - 1n) / second) * second)]];
}

export function parse(text) {
  const parts = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z$/.exec(text || "");
  const ms = parts ? Date.parse(`${parts[1]}Z`) : NaN;
  if (!Number.isFinite(ms) || ms < 0) return null;
  return BigInt(ms) * 1000000n + BigInt((parts[2] || "").padEnd(9, "0"));
}
