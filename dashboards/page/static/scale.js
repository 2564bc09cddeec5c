// The scale of means: the range of the ramp, and a value's position on it. Page, report and Grafana
// share it.

/**
 * @typedef {object} Domain
 * @property {number} low   in the signal's unit
 * @property {number} high
 * @property {boolean} log  whether the scale is logarithmic
 */

/**
 * domain returns the range of the color scale. It is the same for all windows, so that colors are
 * comparable over time. Delays span decades and use a logarithmic scale.
 * @param {string} unit "ratio", "bit/s", "ns" or another one
 * @param {Iterable<number>[]} columns with all values for the scale; NaN means no value
 * @param {number} capacity of the fastest port in bit/s, 0 if unknown
 * @returns {Domain}
 */
export function domain(unit, columns, capacity) {
  if (unit === "ratio") return { low: 0, high: 1, log: false };
  let low = Infinity;
  let high = 0;
  for (const column of columns) {
    for (const v of column) {
      if (v > 0) low = Math.min(low, v);
      if (v > high) high = v;
    }
  }
  if (unit === "bit/s") return { low: 0, high: Math.max(high, capacity) || 1, log: false };
  if (high / low > 10) return { low, high, log: true };
  return { low: 0, high: high || 1, log: false };
}

/**
 * severity returns a mean's position on the ramp: 0 calm, 1 worst.
 * @param {number} mean
 * @param {Domain} domain
 * @param {string} direction "min" if low values are tight, "max" if high ones are
 */
export function severity(mean, { low, high, log }, direction) {
  const at = log
    ? (Math.log(Math.max(mean, low)) - Math.log(low)) / (Math.log(high) - Math.log(low))
    : (mean - low) / (high - low || 1);
  const t = Math.min(Math.max(at, 0), 1);
  return direction === "min" ? 1 - t : t;
}
