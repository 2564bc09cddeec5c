package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"
)

//go:embed report.html
var page string

// WriteHTML writes the report as one file, without script and without anything from the
// network. Names from captures are escaped.
func (r *Report) WriteHTML(w io.Writer) error {
	t, err := template.New("report").Funcs(template.FuncMap{
		"percent": percent, "time": clock, "shade": shade, "heat": heatSVG, "join": strings.Join, "duration": short,
	}).Parse(page)
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	if err := t.Execute(w, r); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000 MST") }

// short is a time for people, of ns or a pointer to such.
func short(ns any) string {
	var d time.Duration
	switch ns := ns.(type) {
	case int64:
		d = time.Duration(ns)
	case *int64:
		d = time.Duration(*ns)
	}
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		if d.Abs() >= unit {
			return d.Round(unit / 1000).String()
		}
	}
	return d.String()
}

// scale is a ramp that people tell apart whatever colours they see: from light, much room,
// to dark, none.
var scale = [...][3]float64{{253, 231, 37}, {94, 201, 98}, {33, 145, 140}, {59, 82, 139}, {68, 1, 84}}

// Level colours a cell of the left matrix.
func (c *Cell) Level() template.CSS {
	if c.Mean == nil {
		return "background:#ddd"
	}
	at := min(max(c.level, 0), 1) * float64(len(scale)-1)
	i := min(int(at), len(scale)-2)
	part := at - float64(i)
	mix := func(k int) int { return int(scale[i][k] + part*(scale[i+1][k]-scale[i][k])) }
	return template.CSS(fmt.Sprintf("background:rgb(%d,%d,%d)", mix(0), mix(1), mix(2)))
}

// ModeColor colours a cell of the right matrix.
func (c *Cell) ModeColor() template.CSS {
	if c.color == "" {
		return "background:#eee"
	}
	return template.CSS("background:" + c.color)
}

// Side is how large a cell of the matrices is.
func (m *Matrix) Side() template.CSS {
	return template.CSS(fmt.Sprintf("--side:%dpx", min(max(420/max(len(m.Groups), 1), 12), 44)))
}

// Title is what a cell says when it is pointed at.
func (c *Cell) Title() string {
	s := fmt.Sprintf("%s to %s: %s, %d observations (%s), %s heavy", c.Src, c.Dst, c.State, c.Observations, c.Kind, percent(c.HeavyShare))
	if c.MeanText != "" {
		s += ", mean " + c.MeanText
	}
	if c.Mode != "" {
		s += fmt.Sprintf(", mode %s (%s)", c.Mode, percent(c.ModeShare))
	}
	return s
}

func shade(color string) template.CSS { return template.CSS("background:" + color) }

const (
	heatWidth, heatRow, heatLabels = 900.0, 16.0, 170.0
)

// heatSVG draws the time x location heatmap: a row each location, its colour as strong as
// its share of a step's heavy observations.
func heatSVG(h *Heat) template.HTML {
	var b strings.Builder
	height := heatRow * float64(len(h.Locations)+1)
	fmt.Fprintf(&b, `<svg viewBox="0 0 %g %g" role="img" aria-label="bottlenecks over time">`, heatLabels+heatWidth, height)
	width := heatWidth / float64(max(len(h.Starts), 1))
	for i, name := range h.Locations {
		y := float64(i) * heatRow
		fmt.Fprintf(&b, `<text x="%g" y="%g">%s</text>`, heatLabels-6, y+heatRow-4, template.HTMLEscapeString(name))
		for k, share := range h.Share[i] {
			if share == 0 {
				continue
			}
			fmt.Fprintf(&b, `<rect x="%.2f" y="%g" width="%.2f" height="%g" fill="%s" fill-opacity="%.2f"><title>%s</title></rect>`,
				heatLabels+float64(k)*width, y, width, heatRow-1, template.HTMLEscapeString(h.colors[i]), 0.15+0.85*share,
				template.HTMLEscapeString(fmt.Sprintf("%s: %s of %d heavy observations at %s", name, percent(share), h.Heavy[k], clock(h.Starts[k]))))
		}
	}
	for k, heavy := range h.Heavy {
		if heavy == 0 {
			fmt.Fprintf(&b, `<rect x="%.2f" y="0" width="%.2f" height="%g" fill="#999" fill-opacity="0.12"/>`, heatLabels+float64(k)*width, width, height-heatRow)
		}
	}
	if n := len(h.Starts); n > 0 {
		y := height - 4
		fmt.Fprintf(&b, `<text x="%g" y="%g" class="first">%s</text><text x="%g" y="%g">%s</text>`,
			heatLabels, y, clock(h.Starts[0]), heatLabels+heatWidth, y, clock(h.Starts[n-1].Add(h.Step)))
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String())
}
