package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query"
)

//go:embed report.html
var page string

// WriteHTML writes the report as one file without scripts and network resources. Names from
// captures are escaped.
func (r *Report) WriteHTML(w io.Writer) error {
	t, err := template.New("report").Funcs(template.FuncMap{
		"percent": percent, "time": clock, "shade": shade, "join": strings.Join, "duration": short, "share": share, "hour": hour, "code": code, "moment": moment, "likelihood": query.Percent,
		"number": func(i int) int { return i + 1 },
		"heat":   heatSVG, "histogram": histogramSVG, "bars": barsSVG,
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

// share returns a share in words, or "" for 0.
func share(part float64) string {
	if part == 0 {
		return ""
	}
	return percent(part)
}

func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000 MST") }

// moment reformats an RFC 3339 time with clock; other text is unchanged.
func moment(text string) string {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return text
	}
	return clock(t)
}

// code returns HTML in which text between backquotes is marked as code.
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

// hour returns the time of day, or "" for the zero time.
func hour(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("15:04:05.000")
}

// short returns a duration for people. ns is a number of nanoseconds or a pointer to one.
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

// Colors of cells with too few values or none, and of clear cells.
const (
	fewColor   = "background:var(--few)"
	clearColor = "background:var(--clear)"
)

// Level returns the color of a cell in the left matrix.
func (c *Cell) Level() template.CSS {
	if c.Mean == nil {
		return fewColor
	}
	return rampColor(c.severity)
}

// ModeColor returns the color of a cell in the right matrix.
func (c *Cell) ModeColor() template.CSS {
	switch {
	case c.color != "":
		strength := 0.25 + 0.75*math.Sqrt(c.HeavyShare)
		text := "var(--ink)"
		if strength > 0.6 {
			text = ink(c.color)
		}
		return template.CSS(fmt.Sprintf("background:color-mix(in srgb,%s %.0f%%,var(--clear));color:%s", c.color, 100*strength, text))
	case c.State == aggregate.TooFew.String(), c.State == aggregate.NotJudged.String():
		return fewColor
	}
	return clearColor
}

// Rank returns the mode's number in the list of bottlenecks, or "" if it is not listed.
func (c *Cell) Rank() string {
	if c.rank == 0 {
		return ""
	}
	return strconv.Itoa(c.rank)
}

// Side returns the size of a matrix cell.
func (m *Matrix) Side() template.CSS {
	return template.CSS(fmt.Sprintf("--side:%dpx", min(max(420/max(len(m.Groups), 1), 14), 44)))
}

// Calm returns the value at the calm end of the ramp.
func (m *Matrix) Calm() string { return m.calm }

// Worst returns the value at the worst end of the ramp.
func (m *Matrix) Worst() string { return m.worst }

// Title returns the tooltip of a cell.
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
