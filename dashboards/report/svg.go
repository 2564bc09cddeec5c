package report

import (
	"fmt"
	"html/template"
	"strings"
)

// Sizes of drawings in SVG units.
const (
	heatWidth, heatRow = 1070.0, 16.0 // including the names
	letterWidth        = 5.6
	longestName        = 48 // letters

	histogramWidth, histogramHeight, histogramLabels = 420.0, 90.0, 30.0
	barsWidth, barsHeight                            = 120.0, 24.0
)

// heatSVG draws the heatmap of time and location: one row per location, with a color strength by
// the location's share of the step's heavy observations.
func heatSVG(h *Heat) template.HTML {
	var b strings.Builder
	height := heatRow * float64(len(h.Locations)+1)
	letters := 0
	for _, name := range h.Locations {
		letters = max(letters, min(len([]rune(name)), longestName))
	}
	labels := 20 + letterWidth*float64(letters)
	fmt.Fprintf(&b, `<svg class="heat" viewBox="0 0 %g %g" role="img" aria-label="bottlenecks over time">`, heatWidth, height)
	width := (heatWidth - labels) / float64(max(len(h.Starts), 1))
	for i, name := range h.Locations {
		y := float64(i) * heatRow
		fmt.Fprintf(&b, `<text x="%g" y="%g"><title>%s</title>%s</text>`, labels-6, y+heatRow-4, template.HTMLEscapeString(name), template.HTMLEscapeString(cut(name)))
		for k, share := range h.Share[i] {
			if share == 0 {
				continue
			}
			fmt.Fprintf(&b, `<rect x="%.2f" y="%g" width="%.2f" height="%g" fill="%s" fill-opacity="%.2f"><title>%s</title></rect>`,
				labels+float64(k)*width, y, width, heatRow-1, template.HTMLEscapeString(h.colors[i]), 0.15+0.85*share,
				template.HTMLEscapeString(fmt.Sprintf("%s: %s of %d heavy observations at %s", name, percent(share), h.Heavy[k], clock(h.Starts[k]))))
		}
	}
	for k, heavy := range h.Heavy {
		if heavy == 0 {
			fmt.Fprintf(&b, `<rect x="%.2f" y="0" width="%.2f" height="%g" class="idle"/>`, labels+float64(k)*width, width, height-heatRow)
		}
	}
	if n := len(h.Starts); n > 0 {
		y := height - 4
		fmt.Fprintf(&b, `<text x="%g" y="%g" class="first">%s</text><text x="%g" y="%g">%s</text>`,
			labels, y, clock(h.Starts[0]), heatWidth, y, clock(h.Starts[n-1].Add(h.Step)))
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String())
}

// cut shortens a long name.
func cut(name string) string {
	if letters := []rune(name); len(letters) > longestName {
		return string(letters[:longestName-1]) + "…"
	}
	return name
}

// histogramSVG draws a distribution with its axis. Bars have equal widths regardless of their value
// ranges; heavy bars have their own color.
func histogramSVG(d *Distribution) template.HTML {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="histogram" viewBox="0 0 %g %g" role="img" aria-label="distribution">`, histogramWidth, histogramHeight+histogramLabels)
	d.bars(&b, histogramWidth, histogramHeight)
	fmt.Fprintf(&b, `<line class="axis" x1="0" y1="%[2]g" x2="%[1]g" y2="%[2]g"/>`, histogramWidth, histogramHeight)
	label := func(x float64, anchor, text string, line float64) {
		fmt.Fprintf(&b, `<text x="%.1f" y="%g" text-anchor="%s">%s</text>`, x, histogramHeight+line, anchor, template.HTMLEscapeString(text))
	}
	last := len(d.Bins)
	end := d.edges[last]
	if end == "" {
		end = d.edges[last-1] + " and more"
	}
	label(0, "start", d.edges[0], 12)
	label(histogramWidth, "end", end, 12)
	// Bars between have labels too, where there is room.
	wide := func(text string) float64 { return letterWidth * 1.2 * float64(len([]rune(text))) }
	free := wide(d.edges[0])
	for _, at := range []int{last / 4, last / 2, 3 * last / 4} {
		x, half := histogramWidth*float64(at)/float64(last), wide(d.edges[at])/2
		if x-half > free && x+half < histogramWidth-wide(end) {
			label(x, "middle", d.edges[at], 12)
			free = x + half
		}
	}
	if at := d.thresholdEdge; at >= 0 {
		x := histogramWidth * float64(at) / float64(last)
		anchor := "middle"
		switch {
		case at*8 < last:
			anchor = "start"
		case at*8 > 7*last:
			anchor = "end"
		}
		label(x, anchor, "heavy: "+d.beyond()+" "+d.thresholdText, 25)
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String())
}

// beyond says on which side of the threshold values are heavy.
func (d *Distribution) beyond() string {
	if d.Bins[0].Heavy {
		return "below"
	}
	return "from"
}

// barsSVG draws the bars without an axis.
func barsSVG(d *Distribution) template.HTML {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="bars" viewBox="0 0 %g %g" role="img" aria-label="distribution">`, barsWidth, barsHeight)
	d.bars(&b, barsWidth, barsHeight)
	b.WriteString(`</svg>`)
	return template.HTML(b.String())
}

func (d *Distribution) bars(b *strings.Builder, width, height float64) {
	most := uint64(1)
	for i := range d.Bins {
		most = max(most, d.Bins[i].N)
	}
	step := width / float64(len(d.Bins))
	for i := range d.Bins {
		bin := &d.Bins[i]
		if bin.N == 0 {
			continue
		}
		h, class := max(height*float64(bin.N)/float64(most), 1), "light"
		if bin.Heavy {
			class = "heavy"
		}
		fmt.Fprintf(b, `<rect class="%s" x="%.2f" y="%.2f" width="%.2f" height="%.2f"><title>%s</title></rect>`,
			class, float64(i)*step, height-h, step*0.9, h, template.HTMLEscapeString(d.label(i)))
	}
	if d.thresholdEdge >= 0 {
		fmt.Fprintf(b, `<line class="threshold" x1="%[1]g" y1="0" x2="%[1]g" y2="%[2]g"/>`, step*float64(d.thresholdEdge), height)
	}
}

// label returns the tooltip of a bar.
func (d *Distribution) label(i int) string {
	values := d.edges[i] + " to below " + d.edges[i+1]
	if d.edges[i+1] == "" {
		values = d.edges[i] + " and more"
	}
	return fmt.Sprintf("%s: %d observations (%s)", values, d.Bins[i].N, percent(float64(d.Bins[i].N)/float64(max(d.Measured, 1))))
}
