"use strict";

// The colours of cells as numbers that go into images as they are (red in the lowest
// byte), worked out once for a theme and its locations: 65536 cells are painted 30 times
// a second.
class Palette {
  static STEPS = 32; // strengths of a location's colour, by heavy share

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
