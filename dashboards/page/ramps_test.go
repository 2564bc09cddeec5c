package page_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/csigscope/csigscope/aggregate/query/querytest"
	"github.com/csigscope/csigscope/dashboards/page/pagetest"
)

// TestRampsSurviveColourBlindness checks that lightness alone shows severity: it rises or falls
// along the whole ramp by visible amounts.
func TestRampsSurviveColourBlindness(t *testing.T) {
	v := pagetest.Visit(t, serve(t, querytest.Fabric(2, 2)), "dark")
	v.Import("Color", "color.js")
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
			if distance < 0.04 { // twice the just noticeable difference
				t.Errorf("%s: to %s eyes two of nine steps are %.3f apart", theme, kind, distance)
			}
		}
		if span := max(light[0], light[32]) - min(light[0], light[32]); span < 60 {
			t.Errorf("%s: lightness spans %.0f of 100", theme, span)
		}
	}
}

// stepDistances returns the smallest distance, in OKLab, between any two of nine steps of a ramp,
// for normal vision and for eyes that lack one kind of cones (Machado, Oliveira, Fernandes 2009,
// severity 1).
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

// leastApart is the minimum distance, in OKLab, between the colors of the locations with the most
// heavy observations: five times the just noticeable difference.
const leastApart = 0.1

// leastDeutan is the minimum for green-blind eyes, which also have the ranks.
const leastDeutan = 0.06

// TestLocationsAreToldApart checks that the colors of the first 8 locations differ at every level,
// and that they do not change with the window or the signal.
func TestLocationsAreToldApart(t *testing.T) {
	v := pagetest.Visit(t, serve(t, querytest.Fabric(16, 30)), "dark")
	v.Import("Color", "color.js")
	if got := pagetest.Evaluate[float64](v, "Color.distance([0, 0, 0], [255, 255, 255])"); math.Abs(got-1) > 1e-6 {
		t.Errorf("black and white are %g apart, want 1", got)
	}
	const shown = `Object.fromEntries([...document.querySelectorAll('#legend li')].slice(0, 8).map((e) =>
		[e.querySelector('.name').textContent, e.querySelector('.swatch').style.backgroundColor]))`
	colors := map[string]string{}
	for level := 1; level <= 5; level++ {
		v.Click(fmt.Sprintf("#levels label:nth-of-type(%d)", level))
		v.Wait(fmt.Sprintf("document.querySelector('#levels label:nth-of-type(%d) input').checked", level))
		for _, signal := range []string{"min_abw", "max_delay"} {
			pagetest.Evaluate[chromedp.Void](v, "csigscope.setSignal(%q)", signal)
			v.Wait("csigscope.current().signal === '" + signal + "'")
			least := pagetest.Evaluate[float64](v, `(() => {
				const list = Object.values(%s).map((text) => text.match(/\d+/g).map(Number));
				return Math.min(1, ...list.flatMap((a, i) => list.slice(0, i).map((b) => Color.distance(a, b))));
			})()`, shown)
			if least < leastApart {
				t.Errorf("%s, level %d: two locations are %.3f apart, want %g", signal, level, least, leastApart)
			}
			for name, color := range pagetest.Evaluate[map[string]string](v, shown) {
				if before, known := colors[name]; known && before != color {
					t.Errorf("%s is %s, and was %s", name, color, before)
				}
				colors[name] = color
			}
		}
	}
	if len(colors) < 8 {
		t.Errorf("only %d locations were shown", len(colors))
	}
}

// TestAlikeColorsAreReplaced checks that locations with similar colors get other ones that contrast
// with both backgrounds, in any order of their loads; the first location keeps its color.
func TestAlikeColorsAreReplaced(t *testing.T) {
	v := pagetest.Visit(t, serve(t, querytest.Fabric(2, 2)), "light")
	v.Import("Color", "color.js")
	v.Import("Palette", "palette.js")
	type result struct{ Least, Deutan, Contrast, Later float64 }
	for hue := range 12 {
		got := pagetest.Evaluate[result](v, `(() => {
			const own = Color.theme('dark').ramp[%d];
			const make = () => Array.from({length: 12}, (_, i) => ({id: String(i), rgb: own.map((c) => Math.min(c + i, 255))}));
			const light = (rgb) => rgb.map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4).reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
			const contrast = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
			const [kept, first, later] = [new Map(), make(), make()];
			const order = first.map((_, i) => ({location: i}));
			Palette.spread(first, order, kept);
			Palette.spread(later, order.slice(0, 8).reverse(), kept);
			const top = first.slice(0, 8);
			return {
				Least: Math.min(...top.flatMap((a, i) => top.slice(0, i).map((b) => Color.distance(a.rgb, b.rgb)))),
				Deutan: Math.min(...top.flatMap((a, i) => top.slice(0, i).map((b) => Math.hypot(...Color.look(a.rgb)[1].map((x, k) => x - Color.look(b.rgb)[1][k]))))),
				Contrast: Math.min(...top.slice(1).flatMap((l) => ['dark', 'light'].map((theme) => contrast(l.rgb, Color.theme(theme).ground)))),
				Later: Math.max(Color.distance(top[0].rgb, own), ...top.map((l, i) => Color.distance(l.rgb, later[i].rgb))),
			};
		})()`, 20*hue)
		if got.Least < leastApart || got.Deutan < leastDeutan || got.Contrast < 2 || got.Later != 0 {
			t.Errorf("ramp at %d: the least distance is %.3f, %.3f to eyes without green, the least contrast %.2f, and colours moved by %.3f", 20*hue, got.Least, got.Deutan, got.Contrast, got.Later)
		}
	}
}
