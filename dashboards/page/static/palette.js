"use strict";

// The colours of cells as numbers that go into images as they are (red in the lowest
// byte), worked out once for a theme and its locations: 65536 cells are painted 30 times
// a second.
class Palette {
  static STEPS = 32; // strengths of a location's colour, by heavy share
  static TOP = 8; // locations that are told apart for certain
  static APART = 0.1; // least distance of their colours, see Color.distance

  constructor(theme, locations) {
    const neutral = Color.neutral(theme);
    const severities = Array.from({ length: 256 }, (_, i) => Color.ramp(theme, i / 255));
    this.few = Palette.pack(neutral.few);
    this.clear = Palette.pack(neutral.clear);
    this.ramp = Uint32Array.from(severities, Palette.pack);
    this.uncertain = Uint32Array.from(severities, (c) => Palette.pack(Color.mix(c, neutral.few, 0.5)));
    // A sum over hops is heavy without a bottleneck: it must not look clear for that.
    this.nowhere = Palette.strengths(Color.ramp(theme, 1), neutral.clear, 1);
    this.places = locations.map((l) => Palette.strengths(l.rgb, neutral.clear, 1));
    this.dimmed = locations.map((l) => Palette.strengths(l.rgb, neutral.clear, 0.15));
  }

  // spread has the colours of the first ranked locations differ. They keep their own, which follow
  // from names alone, but for those that are like another one of them. Kept has the colours that
  // locations got before, by id: they stay, whatever window or range comes next.
  static spread(locations, ranked, kept) {
    const top = ranked.slice(0, Palette.TOP).map((c) => locations[c.location]);
    const taken = [];
    for (const l of [...top.filter((l) => kept.has(l.id)), ...top.filter((l) => !kept.has(l.id))]) {
      const own = kept.get(l.id) || l.rgb;
      const rgb = taken.every((other) => Color.distance(own, other) >= Palette.APART) ? own : Color.unlike(taken);
      taken.push(rgb);
      kept.set(l.id, rgb);
    }
    for (const l of locations) {
      l.rgb = kept.get(l.id) || l.rgb;
      l.color = Color.css(l.rgb);
    }
  }

  static pack([r, g, b]) {
    return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
  }

  static unpack(pixel) {
    return [pixel & 255, (pixel >> 8) & 255, (pixel >> 16) & 255];
  }

  static strengths(color, ground, most) {
    return Uint32Array.from({ length: Palette.STEPS }, (_, i) => {
      const strong = Color.mix(color, ground, 0.4 + (0.6 * i) / (Palette.STEPS - 1));
      return Palette.pack(most < 1 ? Color.mix(strong, ground, most) : strong);
    });
  }

  // step is the strength for a share of heavy observations; small shares differ most.
  static step(share) {
    return Math.round(Math.sqrt(Math.min(share, 1)) * (Palette.STEPS - 1));
  }
}
