// The state of the page in the fragment of its address, so that a link shows to others
// what is shown here. Names and times stay in the browser: fragments are never sent.

const KEYS = ["signal", "level", "range", "from", "to", "step", "t", "src", "dst", "at", "live", "theme", "utc", "only", "sort", "fold"];
const QUIET = 250; // ms between two changes: browsers refuse hundreds in seconds
let written = null;
let current = location.hash; // as this page knows it
let timer = 0;
let next = null;

// read is what the address says, without what nobody knows.
export function read() {
  const given = new URLSearchParams(location.hash.slice(1));
  return Object.fromEntries(KEYS.filter((key) => given.get(key)).map((key) => [key, given.get(key)]));
}

// write puts the state into the address soon. Empty values are left out.
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
  // Where somebody else has changed the fragment, the page is about to be told.
  if (text === written || location.hash !== current) return;
  written = text;
  history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
  current = location.hash;
}

// listen calls back where somebody else changes the fragment.
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

// moment writes Unix ns (BigInt) as RFC 3339, and parse reads it; null where it is none.
export function moment(ns) {
  const rest = ns % 1000000000n;
  const seconds = new Date(Number((ns - rest) / 1000000n)).toISOString().slice(0, 19);
  return seconds + (rest ? `.${String(rest).padStart(9, "0").replace(/0+$/, "")}` : "") + "Z";
}

// seconds are the whole seconds, which the API answers in, around two times.
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
