import * as Color from "./color.js";

/** @typedef {import("./color.js").RGB} RGB */
/** @typedef {import("./color.js").Theme} Theme */

/**
 * @typedef {object} Place  a location that may be a mode
 * @property {RGB} rgb
 * @property {number} [rank] in the legend, from 1, written into cells; 0 for none
 */

/**
 * The colors of cells as pixel values (red in the lowest byte), computed once for a theme and its
 * locations, since 65536 cells are painted 30 times a second.
 */
export class Palette {
  static STEPS = 32; // strengths of a location's color, by heavy share
  static TOP = 12; // number of locations with clearly distinct colors
  static APART = 0.12; // minimum distance between their colors, see Color.apart
  static OTHER = 0.06; // minimum distance of all other colors from theirs

  /**
   * @param {Theme} theme
   * @param {Place[]} places indexed by the cells' location index
   */
  constructor(theme, places) {
    this.theme = theme;
    this.few = Palette.pack(theme.few);
    this.clear = Palette.pack(theme.clear);
    this.ramp = Uint32Array.from(theme.ramp, Palette.pack);
    this.uncertain = Uint32Array.from(theme.ramp, (c) => Palette.pack(Color.mix(c, theme.few, 0.5)));
    // A sum over hops can be heavy without a bottleneck, and must not look clear then.
    this.nowhere = Palette.strengths(theme.ramp[theme.ramp.length - 1], theme.clear, 1);
    this.places = places.map((l) => Palette.strengths(l.rgb, theme.clear, 1));
    this.dimmed = places.map((l) => Palette.strengths(l.rgb, theme.clear, 0.15));
    this.ranks = Uint16Array.from(places, (l) => l.rank || 0);
  }

  /**
   * spread makes the colors of the top locations distinct. A location keeps its own color, which
   * depends only on its name, unless it is too similar to another top color. Lower-ranked
   * locations get colors unlike the top ones. spread also sets the ranks.
   * @param {{id: string, rgb: RGB, rank?: number, color?: string, ink?: string}[]} locations receive colors and ranks
   * @param {{location: number}[]} ranked location indexes, those with the most heavy observations first
   * @param {Map<string, RGB>} kept colors assigned before, by id; they stay the same in later windows
   *   and ranges
   */
  static spread(locations, ranked, kept) {
    const list = ranked.map((c) => locations[c.location]);
    const top = list.slice(0, Palette.TOP);
    /** @type {[RGB, RGB][]} */
    const taken = [];
    for (const l of [...top.filter((l) => kept.has(l.id)), ...top.filter((l) => !kept.has(l.id))]) {
      l.rgb = Palette.distinct(kept.get(l.id) || l.rgb, taken, Palette.APART);
      taken.push(Color.look(l.rgb));
      kept.set(l.id, l.rgb);
    }
    const free = Color.besides(taken, Palette.OTHER);
    list.slice(Palette.TOP).forEach((l, i) => {
      const own = kept.get(l.id) || l.rgb;
      const seen = Color.look(own);
      l.rgb = free.length === 0 || taken.every((other) => Color.apart(seen, other) >= Palette.OTHER) ? own : free[i % free.length];
    });
    for (const l of locations) {
      l.rank = 0;
      l.color = Color.css(l.rgb);
      l.ink = Color.ink(l.rgb);
    }
    list.forEach((l, i) => { l.rank = i + 1; });
  }

  /**
   * distinct returns a location's own color if it is far enough from others, else the farthest color.
   * @param {RGB} own
   * @param {[RGB, RGB][]} others
   * @param {number} least
   */
  static distinct(own, others, least) {
    const seen = Color.look(own);
    return others.every((other) => Color.apart(seen, other) >= least) ? own : Color.unlike(others);
  }

  /** @param {RGB} color */
  static pack([r, g, b]) {
    return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
  }

  /**
   * @param {number} pixel
   * @returns {RGB}
   */
  static unpack(pixel) {
    return [pixel & 255, (pixel >> 8) & 255, (pixel >> 16) & 255];
  }

  /**
   * @param {RGB} color
   * @param {RGB} ground
   * @param {number} most share of the color at full strength
   */
  static strengths(color, ground, most) {
    return Uint32Array.from({ length: Palette.STEPS }, (_, i) => {
      const strong = Color.mix(color, ground, 0.4 + (0.6 * i) / (Palette.STEPS - 1));
      return Palette.pack(most < 1 ? Color.mix(strong, ground, most) : strong);
    });
  }

  /**
   * step returns the color strength of a heavy share; small shares differ most.
   * @param {number} share 0 to 1
   */
  static step(share) {
    return Math.round(Math.sqrt(Math.min(share, 1)) * (Palette.STEPS - 1));
  }
}
