package flowplot

import (
	"bufio"
	"fmt"
	"html"
	"io"
	"maps"
	"slices"
	"time"
)

// File is the file name of the plot beside the captures.
const File = "flows.svg"

// Positions and sizes in the figure, in pixels.
const (
	figureWidth = 960
	left, right = 70, 250 // margins: axis, legend
	plotWidth   = figureWidth - left - right
	panelHeight = 150
	panelGap    = 46
	top         = 56
	stripHeight = 16
	gridLines   = 4
)

// colours distinguishes flows and locations, also for most color-blind readers (after Okabe and
// Ito).
var colours = []string{"#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#666666", "#000000"}

func colour(i int) string { return colours[i%len(colours)] }

// dashes keeps lines visible that lie below others.
var dashes = []string{"none", "none", "6 6", "2 4"}

// panel is one chart over time.
type panel struct {
	title, unit string
	value       func(r *Run, s *Sample) float64 // negative: no value
	target      func(f *Flow) float64           // the senders' target; 0: none
}

var panels = []panel{
	{"rate of data at the receiver", "Gbit/s", func(r *Run, s *Sample) float64 {
		return float64(s.Bytes) * 8 / r.Interval.Seconds() / 1e9
	}, func(*Flow) float64 { return 0 }},
	{"round trip (grey: the senders' target)", "us", func(_ *Run, s *Sample) float64 {
		return delay(s.RoundTripNS)
	}, func(f *Flow) float64 { return target(f, false) }},
	{"max(PD) in reflections (grey: the senders' target)", "us", func(_ *Run, s *Sample) float64 {
		return delay(s.WorstHopNS)
	}, func(f *Flow) float64 { return target(f, true) }},
}

func target(f *Flow, perHop bool) float64 {
	if f.Control.PerHop() != perHop {
		return 0
	}
	return float64(f.TargetNS) / 1e3
}

func delay(ns int64) float64 {
	if ns == 0 {
		return -1
	}
	return float64(ns) / 1e3
}

// writeSVG draws the run.
func (r *Run) writeSVG(out io.Writer, title string) error {
	w := bufio.NewWriter(out)
	height := top + len(panels)*(panelHeight+panelGap) + len(r.Flows)*(stripHeight+4) + panelGap
	fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n",
		figureWidth, height, figureWidth, height)
	fmt.Fprintf(w, `<rect width="%d" height="%d" fill="white"/>`+"\n", figureWidth, height)
	text(w, left, 18, "start", title)
	y := top
	for i := range panels {
		r.draw(w, &panels[i], y)
		if i == 0 {
			r.legend(w, y)
		}
		y += panelHeight + panelGap
	}
	r.strips(w, y)
	fmt.Fprintln(w, "</svg>")
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write plot: %w", err)
	}
	return nil
}

func text(w io.Writer, x, y int, anchor, s string) {
	fmt.Fprintf(w, `<text x="%d" y="%d" text-anchor="%s">%s</text>`+"\n", x, y, anchor, html.EscapeString(s))
}

// x returns the position of an interval's middle.
func (r *Run) x(interval, of int) float64 {
	return left + (float64(interval)+0.5)/float64(max(of, 1))*plotWidth
}

func (r *Run) draw(w io.Writer, p *panel, y int) {
	most := 0.0
	for i := range r.Flows {
		for j := range r.Flows[i].Samples {
			most = max(most, p.value(r, &r.Flows[i].Samples[j]))
		}
		most = max(most, p.target(&r.Flows[i]))
	}
	step := niceStep(most / gridLines)
	most = step * gridLines
	text(w, left, y-8, "start", p.title+", "+p.unit)
	for n := range gridLines + 1 {
		at := y + panelHeight - n*panelHeight/gridLines
		fmt.Fprintf(w, `<line x1="%d" x2="%d" y1="%d" y2="%d" stroke="#dddddd"/>`+"\n", left, left+plotWidth, at, at)
		text(w, left-6, at+4, "end", fmt.Sprintf("%g", step*float64(n)))
	}
	for i := range r.Flows {
		if v := p.target(&r.Flows[i]); v > 0 {
			at := float64(y) + panelHeight*(1-v/most)
			fmt.Fprintf(w, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#888888" stroke-dasharray="4 3"/>`+"\n", left, left+plotWidth, at, at)
		}
	}
	for i := range r.Flows {
		samples := r.Flows[i].Samples
		fmt.Fprintf(w, `<polyline fill="none" stroke="%s" stroke-width="1.5" stroke-dasharray="%s" points="`, colour(i), dashes[i%len(dashes)])
		for j := range samples {
			if v := p.value(r, &samples[j]); v >= 0 {
				fmt.Fprintf(w, "%.1f,%.1f ", r.x(j, len(samples)), float64(y)+panelHeight*(1-v/most))
			}
		}
		fmt.Fprintln(w, `"/>`)
	}
	r.timeAxis(w, y+panelHeight)
}

// timeAxis labels the start and the end of the run.
func (r *Run) timeAxis(w io.Writer, y int) {
	text(w, left, y+16, "start", "0")
	end := time.Duration(len(r.Flows[0].Samples)) * r.Interval
	text(w, left+plotWidth, y+16, "end", end.String())
}

func (r *Run) legend(w io.Writer, y int) {
	for i, t := range r.Totals() {
		at := y + 12 + i*34
		fmt.Fprintf(w, `<rect x="%d" y="%d" width="12" height="12" fill="%s"/>`+"\n", left+plotWidth+16, at-10, colour(i))
		text(w, left+plotWidth+34, at, "start", fmt.Sprintf("%d: %s to %s", t.Flow.Flow, t.Flow.Src, t.Flow.Dst))
		text(w, left+plotWidth+34, at+15, "start", fmt.Sprintf("%s in the second half", bitRate(t.BitPerSecond)))
	}
}

// strips draws the bottleneck of each flow over time, with one color per location.
func (r *Run) strips(w io.Writer, y int) {
	text(w, left, y-8, "start", "bottleneck of each flow: the port that most heavy reflections name")
	order := r.locations()
	for i := range r.Flows {
		samples := r.Flows[i].Samples
		at := y + i*(stripHeight+4)
		text(w, left-6, at+12, "end", fmt.Sprintf("flow %d", r.Flows[i].Flow))
		fmt.Fprintf(w, `<rect x="%d" y="%d" width="%d" height="%d" fill="#eeeeee"/>`+"\n", left, at, plotWidth, stripHeight)
		width := plotWidth / float64(max(len(samples), 1))
		for j := range samples {
			name, n := samples[j].Bottleneck()
			if n == 0 {
				continue
			}
			fmt.Fprintf(w, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n",
				left+float64(j)*width, at, width+0.1, stripHeight, colour(3+slices.Index(order, name)))
		}
	}
	for i, name := range append(order, "none is heavy") {
		fill := colour(3 + i)
		if i == len(order) {
			fill = "#eeeeee"
		}
		at := y + 12 + i*18
		fmt.Fprintf(w, `<rect x="%d" y="%d" width="12" height="12" fill="%s"/>`+"\n", left+plotWidth+16, at-10, fill)
		text(w, left+plotWidth+34, at, "start", name)
	}
	r.timeAxis(w, y+len(r.Flows)*(stripHeight+4))
}

// locations returns the names of all bottlenecks in alphabetical order.
func (r *Run) locations() []string {
	names := map[string]bool{}
	for i := range r.Flows {
		for j := range r.Flows[i].Samples {
			if name, n := r.Flows[i].Samples[j].Bottleneck(); n > 0 {
				names[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// niceStep returns the smallest of 1, 2, 2.5, 5 times a power of ten that is not below v.
func niceStep(v float64) float64 {
	if v <= 0 {
		return 1
	}
	base := 1.0
	for base > v {
		base /= 10
	}
	for base*10 <= v {
		base *= 10
	}
	for _, n := range []float64{1, 2, 2.5, 5, 10} {
		if base*n >= v {
			return base * n
		}
	}
	return base * 10
}
