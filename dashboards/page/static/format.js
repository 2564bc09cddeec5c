// Numbers and times for people.

function digits(v) {
  const text = v >= 100 ? v.toFixed(0) : v >= 10 ? v.toFixed(1) : v.toFixed(2);
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

function scaled(v, base, units) {
  let i = 0;
  while (v >= base * 0.9995 && i < units.length - 1) {
    v /= base;
    i++;
  }
  return digits(v) + units[i];
}

export function quantity(v, unit) {
  if (!Number.isFinite(v)) return "\u2013";
  switch (unit) {
    case "bit/s": return scaled(v, 1000, [" bit/s", " kbit/s", " Mbit/s", " Gbit/s", " Tbit/s"]);
    case "ratio": return share(v);
    case "ns": return scaled(v, 1000, [" ns", " \u00b5s", " ms", " s"]);
  }
  return digits(v);
}

export function share(v) {
  if (!Number.isFinite(v)) return "\u2013";
  if (v > 0 && v < 0.001) return "< 0.1 %";
  if (v < 1 && v > 0.999) return "> 99.9 %";
  return `${(100 * v).toFixed(1).replace(/\.0$/, "")} %`;
}

// exactly prints a configured share, however small, with all its digits.
export function exactly(v) {
  return `${Number((100 * v).toPrecision(6))} %`;
}

export function count(v) {
  return String(v).replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
}

export function shortCount(v) {
  return v < 10000 ? count(v) : scaled(v, 1000, ["", " k", " M", " G", " T"]);
}

export function duration(ns) {
  const seconds = ns / 1e9;
  if (seconds < 1) return scaled(ns, 1000, [" ns", " \u00b5s", " ms", " s"]);
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  let left = Math.round(seconds);
  const out = [];
  for (const [size, name] of parts) {
    if (left >= size) out.push(`${Math.floor(left / size)} ${name}`);
    left %= size;
  }
  return out.slice(0, 2).join(" ");
}

const two = (v) => String(v).padStart(2, "0");

// time prints Unix ns (BigInt) with as many decimals as windows of step ns need, and with the date and
// the zone if withDate is set.
export function time(ns, step, utc, withDate) {
  const d = new Date(Number(ns / 1000000n));
  const get = (part) => (utc ? d[`getUTC${part}`]() : d[`get${part}`]());
  let text = `${two(get("Hours"))}:${two(get("Minutes"))}:${two(get("Seconds"))}`;
  const decimals = step % 1e9 === 0 ? 0 : step % 1e6 === 0 ? 3 : 6;
  if (decimals) text += `.${String(ns % 1000000000n).padStart(9, "0").slice(0, decimals)}`;
  if (!withDate) return text;
  return `${get("FullYear")}-${two(get("Month") + 1)}-${two(get("Date"))} ${text} ${zone(ns, utc)}`;
}

// clock prints a time of a model's range: with the date if the range is longer than a day, since its times
// of day repeat.
export function clock(ns, { windows, step }, utc) {
  const [date, text] = time(ns, step, utc, true).split(" ");
  return windows.length * step > 864e11 ? `${date} ${text}` : text;
}

// zone names the zone of a time, such as UTC+01:00: a local zone can have a summer time.
export function zone(ns, utc) {
  if (utc) return "UTC";
  const minutes = -new Date(Number(ns / 1000000n)).getTimezoneOffset();
  const size = Math.abs(minutes);
  return `UTC${minutes < 0 ? "\u2212" : "+"}${two(Math.floor(size / 60))}:${two(size % 60)}`;
}
