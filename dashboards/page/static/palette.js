import * as Color from "./color.js";

/** @typedef {import("./color.js").RGB} RGB */
/** @typedef {import("./color.js").Theme} Theme */

/**
 * @typedef {object} Place  a location that cells name as their mode
 * @property {RGB} rgb
 * @property {number} [rank] of the legend, from 1 on, which is written into cells; 0 for none
 */

/**
 * The colours of cells as numbers that go into images as they are (red in the lowest
 * byte), worked out once for a theme and its locations: 65536 cells are painted 30 times
 * a second.
 */
export class Palette {
  static STEPS = 32; // strengths of a location's colour, by heavy share
  static TOP = 12; // locations that are told apart for certain
  static APART = 0.12; // least distance of their colours, see Color.apart
  static OTHER = 0.06; // least distance of other locations' colours from theirs

  /**
   * @param {Theme} theme
   * @param {Place[]} places in the order of the indexes that cells have
   */
  constructor(theme, places) {
    this.theme = theme;
    this.few = Palette.pack(theme.few);
    this.clear = Palette.pack(theme.clear);
    this.ramp = Uint32Array.from(theme.ramp, Palette.pack);
    this.uncertain = Uint32Array.from(theme.ramp, (c) => Palette.pack(Color.mix(c, theme.few, 0.5)));
    // A sum over hops is heavy without a bottleneck: it must not look clear for that.
    this.nowhere = Palette.strengths(theme.ramp[theme.ramp.length - 1], theme.clear, 1);
    this.places = places.map((l) => Palette.strengths(l.rgb, theme.clear, 1));
    this.dimmed = places.map((l) => Palette.strengths(l.rgb, theme.clear, 0.15));
    this.ranks = Uint16Array.from(places, (l) => l.rank || 0);
  }

  /**
   * spread has the colours of the first ranked locations differ. They keep their own, which follow
   * from names alone, but for those that are like another one of them. Those of a lower rank are
   * unlike the first ones, and locations have their ranks.
   * @param {{id: string, rgb: RGB, rank?: number, color?: string, ink?: string}[]} locations get colours and ranks
   * @param {{location: number}[]} ranked indexes of locations, the most heavily loaded first
   * @param {Map<string, RGB>} kept colours that locations got before, by id: they stay, whatever
   *   window or range comes next
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
   * distinct is a location's own colour where it is far enough from others, else the farthest one.
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
   * @param {number} most share of the colour at the greatest strength
   */
  static strengths(color, ground, most) {
    return Uint32Array.from({ length: Palette.STEPS }, (_, i) => {
      const strong = Color.mix(color, ground, 0.4 + (0.6 * i) / (Palette.STEPS - 1));
      return Palette.pack(most < 1 ? Color.mix(strong, ground, most) : strong);
    });
  }

  /**
   * step is the strength for a share of heavy observations; small shares differ most.
   * @param {number} share 0 to 1
   */
  static step(share) {
    return Math.round(Math.sqrt(Math.min(share, 1)) * (Palette.STEPS - 1));
  }
}
