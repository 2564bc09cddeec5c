// What the tooltip says of a cell. Pure.

import type { Cell } from "./data";
import type { Pointer } from "./shared";

/** Format writes a mean in its unit. */
export type Format = (value: number) => string;

const percent = (share: number) => `${(100 * share).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;

/** lines say who sends to whom, then what is known of it. */
export function lines(pointer: Pointer, cell: Cell | undefined, format: Format): string[] {
  const head = `${pointer.src} to ${pointer.dst}`;
  if (!cell) return [head, "no data: silence, not health"];
  const out = [head, cell.state.replace("_", " ") + (cell.since > 0 ? ` since ${new Date(cell.since).toLocaleTimeString()}` : "")];
  if (!Number.isNaN(cell.mean)) out.push(`mean ${format(cell.mean)}`);
  out.push(`${percent(cell.heavy)} of ${cell.observations.toLocaleString("en")} observations heavily loaded`);
  const located = cell.heavy * cell.observations;
  if (cell.mode) {
    const others = cell.others > 0 ? ` or ${cell.others} other${cell.others > 1 ? "s" : ""}` : "";
    out.push(`${cell.mode}${others}: ${percent(Math.min(cell.named / located, 1))} of them`);
  }
  if (cell.second) out.push(`then ${cell.second}: ${percent(Math.min(cell.secondNamed / located, 1))}`);
  if (cell.trimmed > 0) out.push(`${percent(cell.trimmed)} trimmed`);
  return out;
}
