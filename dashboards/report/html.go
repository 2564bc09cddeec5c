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
		"percent": percent, "time": clock, "shade": shade, "join": strings.Join, "duration": short, "share": share, "hour": hour, "code": code, "moment": moment,
		"heat": heatSVG, "histogram": histogramSVG, "bars": barsSVG,
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

// share is a part of something in words, nothing where there is none.
func share(part float64) string {
	if part == 0 {
		return ""
	}
	return percent(part)
}

func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000 MST") }

// moment is the time of RFC 3339 as clock has it; what is none stays as it is.
func moment(text string) string {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return text
	}
	return clock(t)
}

// code is a text in which what stands between backquotes is code.
func code(text string) template.HTML {
	var b strings.Builder
	for i, part := range strings.Split(text, "`") {
		tag := "span"
		if i%2 == 1 {
			tag = "code"
		}
		fmt.Fprintf(&b, "<%s>%s</%s>", tag, template.HTMLEscapeString(part), tag)
	}
	return template.HTML(b.String())
}

// hour is the time of day, nothing for no time.
func hour(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("15:04:05.000")
}

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

// unknownColor is of cells without a value, and of clear ones.
const unknownColor = "background:var(--clear)"

// Level colours a cell of the left matrix.
func (c *Cell) Level() template.CSS {
	if c.Mean == nil {
		return unknownColor
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
		return unknownColor
	}
	return template.CSS("background:" + c.color)
}

// Side is how large a cell of the matrices is.
func (m *Matrix) Side() template.CSS {
	return template.CSS(fmt.Sprintf("--side:%dpx", min(max(420/max(len(m.Groups), 1), 12), 44)))
}

// Ramp is the colours of the left matrix, from much room to none.
func (m *Matrix) Ramp() template.CSS {
	colors := make([]string, len(scale))
	for i, c := range scale {
		colors[i] = fmt.Sprintf("rgb(%g,%g,%g)", c[0], c[1], c[2])
	}
	return template.CSS("background:linear-gradient(to right," + strings.Join(colors, ",") + ")")
}

// Best and Worst are the ends of the ramp.
func (m *Matrix) Best() string { return m.best }

// Worst is the mean of the tightest cell.
func (m *Matrix) Worst() string { return m.worst }

// Title is what a cell says when it is pointed at.
func (c *Cell) Title() string {
	s := fmt.Sprintf("%s to %s: %s, %d observations (%s), %s heavy", c.Src, c.Dst, c.State, c.Observations, c.Kind, percent(c.HeavyShare))
	if c.MeanText != "" {
		s += ", mean " + c.MeanText
	}
	if c.Mode != "" {
		s += fmt.Sprintf(", mode %s (%s%s)", c.Mode, percent(c.ModeShare), c.OfSet())
	}
	return s
}

func shade(color string) template.CSS { return template.CSS("background:" + color) }
