// The text of a cell's tooltip and of a legend, by pure functions.

import type { Under } from "./data";
import type { Pointer } from "./shared";

/** Format writes a mean in its unit. */
export type Format = (value: number) => string;

const percent = (share: number) => `${(100 * share).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;

/** lines returns source and destination, then the details. */
export function lines(pointer: Pointer, under: Under, format: Format): string[] {
  const head = `${pointer.src} to ${pointer.dst}`;
  if (!under.cells.length) return [head, "no data: silence, not health"];
  return [head, ...(under.of > 1 ? several(under) : one(under, format))];
}

/** one returns the details of a single cell. */
function one({ cells: [cell] }: Under, format: Format): string[] {
  const out = [named(cell.state) + (cell.since > 0 ? ` since ${new Date(cell.since).toLocaleTimeString()}` : "")];
  if (!Number.isNaN(cell.mean)) out.push(`mean ${format(cell.mean)}`);
  out.push(loaded(cell.heavy, cell.observations));
  const located = cell.heavy * cell.observations;
  if (cell.mode) {
    const others = cell.others > 0 ? ` or ${cell.others} other${cell.others > 1 ? "s" : ""}` : "";
    out.push(`${cell.mode}${others}: ${percent(Math.min(cell.named / located, 1))} of them`);
  }
  if (cell.second) out.push(`then ${cell.second}: ${percent(Math.min(cell.secondNamed / located, 1))}`);
  if (cell.trimmed > 0) out.push(`${percent(cell.trimmed)} trimmed`);
  return out;
}

/** several returns the details of a folded cell, as the page shows them. */
function several({ cells, of, state, mode }: Under): string[] {
  const observations = cells.reduce((sum, c) => sum + c.observations, 0);
  const heavy = cells.reduce((sum, c) => sum + (c.heavy * c.observations || 0), 0);
  const out = [`${named(state)}: the gravest of ${of} cells`, loaded(heavy / observations, observations)];
  if (mode) out.push(`${mode}, named by most`);
  return [...out, "click for its cells"];
}

const named = (state: string) => state.replace("_", " ");
const loaded = (share: number, of: number) => `${percent(share)} of ${of.toLocaleString("en")} observations heavy`;

// Width of a character of a legend, of its swatch, and of the space between two entries, CSS pixels.
// Digits and capitals are wider than the mean, so this is more than most texts need.
const [CHARACTER, SWATCH, GAP] = [6.6, 16, 12];

/**
 * fitting returns how many of the places a legend has room for in two lines of a width, at least one.
 * tail are the entries behind the places.
 */
export function fitting(places: string[], most: number, tail: string[], width: number): number {
  for (let n = Math.min(places.length, most); n > 1; n--) {
    const more = places.length > n ? [`and ${places.length - n} more`] : [];
    if (rows([...places.slice(0, n), ...more, ...tail], width) <= 2) return n;
  }
  return Math.min(places.length, 1);
}

/** rows returns the number of lines into which a legend wraps. */
function rows(entries: string[], width: number): number {
  let [count, used] = [1, 0];
  for (const entry of entries) {
    const wide = SWATCH + CHARACTER * entry.length;
    if (used > 0 && used + GAP + wide > width) [count, used] = [count + 1, 0];
    used += (used > 0 ? GAP : 0) + wide;
  }
  return count;
}
