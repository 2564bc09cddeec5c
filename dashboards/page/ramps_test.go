package page_test

import (
	"testing"

	"github.com/csigscope/csigscope/aggregate/query/querytest"
	"github.com/csigscope/csigscope/dashboards/page/pagetest"
)

// TestRampsSurviveColourBlindness holds that severity can be told by lightness alone: it
// rises or falls all along each ramp, far enough to see.
func TestRampsSurviveColourBlindness(t *testing.T) {
	v := pagetest.Visit(t, serve(t, querytest.Fabric(2, 2)), "dark")
	for theme, rising := range map[string]bool{"dark": true, "light": false} {
		light := pagetest.Evaluate[[]float64](v, `Array.from({length: 33}, (_, i) => {
			const [r, g, b] = Color.ramp(%q, i / 32).map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
			const y = 0.2126 * r + 0.7152 * g + 0.0722 * b;
			return y > 0.008856 ? 116 * Math.cbrt(y) - 16 : 903.3 * y;
		})`, theme)
		for i := 1; i < len(light); i++ {
			if (light[i] > light[i-1]) != rising {
				t.Errorf("%s: lightness goes from %.1f to %.1f at step %d", theme, light[i-1], light[i], i)
			}
		}
		for kind, distance := range stepDistances(v, theme) {
			if distance < 0.04 { // twice what is just told apart
				t.Errorf("%s: to %s eyes two of nine steps are %.3f apart", theme, kind, distance)
			}
		}
		if span := max(light[0], light[32]) - min(light[0], light[32]); span < 60 {
			t.Errorf("%s: lightness spans %.0f of 100", theme, span)
		}
	}
}

// stepDistances are the least distances, in OKLab, of two of nine steps of a ramp as eyes see them
// that lack one kind of cones (Machado, Oliveira, Fernandes 2009, severity 1), and as others do.
func stepDistances(v *pagetest.Visitor, theme string) map[string]float64 {
	return pagetest.Evaluate[map[string]float64](v, `(() => {
		const eyes = {
			usual: [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
			protan: [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
			deutan: [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
			tritan: [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
		};
		const times = (m, v) => m.map((row) => row.reduce((sum, x, i) => sum + x * v[i], 0));
		const linear = (c) => ((c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
		const toLMS = [[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566], [0.0883024619, 0.2817188376, 0.6299787005]];
		const toLab = [[0.2104542553, 0.793617785, -0.0040720468], [1.9779984951, -2.428592205, 0.4505937099], [0.0259040371, 0.7827717662, -0.808675766]];
		const seen = (eye, rgb) => times(toLab, times(toLMS, times(eye, rgb.map(linear)).map((c) => Math.max(c, 0))).map(Math.cbrt));
		const least = (eye) => {
			const steps = Array.from({ length: 9 }, (_, i) => seen(eye, Color.ramp(%q, i / 8)));
			return Math.min(...steps.flatMap((a, i) => steps.slice(0, i).map((b) => Math.hypot(...a.map((x, k) => x - b[k])))));
		};
		return Object.fromEntries(Object.entries(eyes).map(([name, eye]) => [name, least(eye)]));
	})()`, theme)
}
