package report

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/decode/csig"
)

// domain is the value range of a signal's ramp, in the signal's unit, by the page's rule
// (static/scale.js there). For ratios it is the same in every report.
type domain struct {
	low, high float64
	log       bool // for delays, which span decades
	direction csig.Direction
}

// domainOf returns a domain that covers the cells' means. capacity is the capacity of the fastest
// port in bit/s, 0 if unknown.
func domainOf(signal csig.Signal, cells []aggregate.CellStats, capacity float64) domain {
	d := domain{high: 1, direction: signal.Direction()}
	if signal.Unit() == csig.Ratio {
		return d
	}
	low, high := math.Inf(1), 0.0
	for i := range cells {
		if v := cells[i].MeanValue(); v > 0 {
			low, high = min(low, v), max(high, v)
		}
	}
	switch {
	case high == 0:
	case signal.Unit() == csig.BitPerSecond:
		d.high = max(high, capacity)
	case high > 10*low:
		d.low, d.high, d.log = low, high, true
	default:
		d.high = high
	}
	return d
}

// severity returns a value's position on the ramp: 0 is calm, 1 is worst.
func (d *domain) severity(v float64) float64 {
	at := (v - d.low) / (d.high - d.low)
	if d.log {
		at = math.Log(max(v, d.low)/d.low) / math.Log(d.high/d.low)
	}
	at = min(max(at, 0), 1)
	if d.direction == csig.Min {
		return 1 - at
	}
	return at
}

// stop is a ramp color in OKLCH: lightness, chroma, and hue in degrees.
type stop struct{ lightness, chroma, hue float64 }

// The page's ramps, calm first. Lightness is monotonic, so the order survives color blindness and
// print.
var (
	darkRamp  = []stop{{0.27, 0.05, 275}, {0.37, 0.12, 295}, {0.50, 0.18, 345}, {0.65, 0.19, 32}, {0.81, 0.16, 72}, {0.97, 0.09, 105}}
	lightRamp = []stop{{0.955, 0.03, 115}, {0.88, 0.10, 95}, {0.76, 0.15, 65}, {0.62, 0.19, 38}, {0.46, 0.17, 18}, {0.30, 0.10, 345}}
)

// rampSteps is the number of ramp colors that cells use.
const rampSteps = 17

// rampAt interpolates a ramp's color between its stops.
func rampAt(ramp []stop, severity float64) string {
	at := severity * float64(len(ramp)-1)
	i := min(int(at), len(ramp)-2)
	p, q, part := ramp[i], ramp[i+1], at-float64(i)
	turn := math.Mod(q.hue-p.hue+540, 360) - 180
	return query.OKLCH(p.lightness+part*(q.lightness-p.lightness), p.chroma+part*(q.chroma-p.chroma), (p.hue+part*turn)/360)
}

// rampColors returns the CSS declarations of a ramp's colors.
func rampColors(ramp []stop) string {
	var b strings.Builder
	for i := range rampSteps {
		fmt.Fprintf(&b, "--r%d:%s;", i, rampAt(ramp, float64(i)/(rampSteps-1)))
	}
	return b.String()
}

// RampStyle returns CSS with the ramps' colors, for screens by theme and for print.
func (r *Report) RampStyle() template.CSS {
	return template.CSS(fmt.Sprintf(":root{%s}@media screen and (prefers-color-scheme:dark){:root{%s}}", rampColors(lightRamp), rampColors(darkRamp)))
}

// rampColor returns the color of a severity.
func rampColor(severity float64) template.CSS {
	return template.CSS(fmt.Sprintf("background:var(--r%d)", int(math.Round(severity*(rampSteps-1)))))
}

// setScale sets the labels of the ends of the left matrix' domain.
func (m *Matrix) setScale(d domain, unit csig.Unit) {
	m.calm, m.worst = csig.FormatQuantity(unit, d.low/unit.PerStored()), csig.FormatQuantity(unit, d.high/unit.PerStored())
	if d.direction == csig.Min {
		m.calm, m.worst = m.worst, m.calm
	}
	m.worst += ", worst"
	if d.log {
		m.worst += " (log)"
	}
}

// Ramp returns a matrix's ramp from calm to worst.
func (m *Matrix) Ramp() template.CSS {
	colors := make([]string, rampSteps)
	for i := range colors {
		colors[i] = "var(--r" + strconv.Itoa(i) + ")"
	}
	return template.CSS("background:linear-gradient(to right," + strings.Join(colors, ",") + ")")
}

// ink returns the text color for a background #rrggbb.
func ink(color string) string {
	rgb, err := strconv.ParseUint(strings.TrimPrefix(color, "#"), 16, 32)
	if err != nil {
		return ""
	}
	if luma := 0.299*float64(rgb>>16) + 0.587*float64(rgb>>8&0xff) + 0.114*float64(rgb&0xff); luma < 130 {
		return "#fff"
	}
	return "#000"
}
