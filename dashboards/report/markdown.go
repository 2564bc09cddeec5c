package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/csigscope/csigscope/aggregate/query"
)

// WriteMarkdown writes the report for a ticket, without the matrices and the heatmap, which only
// the HTML has.
func (r *Report) WriteMarkdown(w io.Writer) error {
	b := bufio.NewWriter(w)
	period := "At an unknown time"
	if !r.To.IsZero() {
		period = clock(r.From) + " to " + clock(r.To)
	}
	fmt.Fprintf(b, "# %s\n\n%s: %s\n\n", plain(r.Title), period, plain(strings.Join(r.Files, ", ")))
	if r.Verdict != nil {
		r.Verdict.markdown(b)
	}
	for _, s := range r.Summary() {
		fmt.Fprintf(b, "* %s\n", plain(s))
	}
	fmt.Fprintf(b, "\n%s\n\n## Protocol faults\n\n", r.Rule())
	if len(r.Findings) == 0 {
		fmt.Fprintf(b, "None.\n")
	}
	for i := range r.Findings {
		f := &r.Findings[i]
		fmt.Fprintf(b, "* **%s: %s**, %s: %s. %d of %d %s", f.Severity, f.Kind, plain(f.Subject), plain(f.Evidence), f.Count, f.Of, f.Unit)
		if f.From != "" {
			fmt.Fprintf(b, ", %s to %s", f.From, f.To)
		} else {
			fmt.Fprint(b, ", at an unknown time")
		}
		fmt.Fprintf(b, ".\n  If that is not the cause: %s.\n", f.Otherwise)
		for _, p := range f.Packets {
			fmt.Fprintf(b, "  Packets of %s\n", plain(p.String()))
		}
	}
	for i := range r.Signals {
		r.Signals[i].markdown(b)
	}
	r.Coverage.markdown(b)
	fmt.Fprintf(b, "\n## Input\n\n| packets and observations | number | |\n|---|---:|---|\n")
	for _, c := range r.Counts {
		fmt.Fprintf(b, "| %s | %d | %s |\n", plain(c.Name), c.N, plain(c.About))
	}
	fmt.Fprintf(b, "\n## What this report cannot tell\n\n")
	if len(r.Unknown) == 0 {
		fmt.Fprintf(b, "Nothing.\n")
	}
	for _, u := range r.Unknown {
		fmt.Fprintf(b, "* %s\n", plain(u))
	}
	if err := b.Flush(); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

func (v *Verdict) markdown(w io.Writer) {
	fmt.Fprintf(w, "**%s**\n\n", plain(v.Text))
	for i := range v.Statements {
		fmt.Fprintf(w, "%d. %s. %s\n", i+1, plain(v.Statements[i].Text), plain(v.Statements[i].Detail()))
	}
	if v.LeftOut > 0 {
		fmt.Fprintf(w, "\n%s\n", v.Rest())
	}
	for _, n := range v.Notes {
		fmt.Fprintf(w, "\n%s\n", plain(n))
	}
	fmt.Fprintln(w)
}

func (s *Signal) markdown(w io.Writer) {
	fmt.Fprintf(w, "\n## %s\n\n%d of %d cells were congested.\n", s.Name, s.Congested, s.Cells)
	if text := s.Unjudged(); text != "" {
		fmt.Fprintf(w, "\n%s\n", text)
	}
	if len(s.Locations) == 0 {
		return
	}
	fmt.Fprintf(w, "\n| location | ports | heavy | mean of them | cells |\n|---|---:|---:|---:|---:|\n")
	for i := range s.Locations {
		l := &s.Locations[i]
		fmt.Fprintf(w, "| %s | %s | %d | %s | %d |\n", plain(l.Name), l.KnownPorts(), l.Heavy, l.HeavyMean, l.Cells)
	}
	fmt.Fprintf(w, "\n| source | destination | from | mean | heavy | mode | share | runner-up | observations | state |\n|---|---|---|---:|---:|---|---:|---|---:|---|\n")
	for i := range s.Worst {
		c := &s.Worst[i]
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s | %s | %s | %d | %s |\n", plain(c.Src), plain(c.Dst), c.Kind, c.MeanText, percent(c.HeavyShare),
			plain(c.Mode)+c.By(), share(c.ModeShare)+c.OfSet(), plain(c.RunnerUp), c.Observations, c.StateText())
	}
	fmt.Fprintln(w)
	for i := range s.Worst {
		s.Worst[i].markdown(w)
	}
	s.Flows.markdown(w)
	for i := range s.Rhythms {
		r := &s.Rhythms[i]
		fmt.Fprintf(w, "\n%s to %s repeats every %s: %d steps, congested %s of the time, idle for %s between (probability that a cell looks this regular by chance: %s).\n", plain(r.Src), plain(r.Dst),
			short(r.PeriodNS), r.Steps, percent(r.Duty), short(r.IdleNS), query.Percent(r.Significance))
	}
}

// markdown writes the path of the cell's packets and its load.
func (c *WorstCell) markdown(w io.Writer) {
	hops := make([]string, len(c.Path))
	for i, h := range c.Path {
		hops[i] = plain(h.Name)
		if h.Count > 1 {
			hops[i] = fmt.Sprintf("%s (%d ports)", hops[i], h.Count)
		}
		if h.Bottleneck {
			hops[i] = "**" + hops[i] + "**"
		}
	}
	var parts []string
	if len(hops) > 0 {
		parts = append(parts, strings.Join(hops, " → "))
	}
	if c.Load != nil {
		parts = append(parts, c.Load.String())
	}
	if len(parts) > 0 {
		fmt.Fprintf(w, "* %s to %s: %s\n", plain(c.Src), plain(c.Dst), strings.Join(parts, "; "))
	}
}

func (f *Flows) markdown(w io.Writer) {
	if len(f.Top) == 0 {
		return
	}
	fmt.Fprintf(w, "\n| flow | to | | heavy | of all heavy | mean of them | at |\n|---|---|---|---:|---:|---:|---|\n")
	for i := range f.Top {
		one := &f.Top[i]
		fmt.Fprintf(w, "| %s | %s | %s | %d | %s | %s | %s |\n", plain(one.Src), plain(one.Dst), one.Transport(), one.Heavy,
			percent(one.HeavyShare), one.HeavyMean, plain(one.Location))
	}
	fmt.Fprintf(w, "| all others | | | %d | %s | | |\n", f.Others.Heavy, percent(f.Others.HeavyShare))
}

func (c *Coverage) markdown(w io.Writer) {
	fmt.Fprintf(w, "\n## Coverage\n\n| tap | place | weight | packets | tags | reflections | stored | untouched | trimmed | not counted |\n|---|---|---:|---:|---:|---:|---:|---:|---:|---|\n")
	for i := range c.Taps {
		t := &c.Taps[i]
		name := t.Name
		if t.Note != "" {
			name += " (" + t.Note + ")"
		}
		fmt.Fprintf(w, "| %s | %s | %d | %d | %d | %d | %d | %d | %d | %s |\n", plain(name), t.Place, t.Weight, t.Packets, t.Tags, t.Reflections,
			t.Stored, t.Untouched, t.Trimmed, plain(t.Refused()))
	}
	if len(c.Silent) > 0 {
		fmt.Fprintf(w, "\nConfigured taps without packets: %s.\n", plain(strings.Join(c.Silent, ", ")))
	}
	if c.ByReflections > 0 {
		fmt.Fprintf(w, "\n%d cells are known only by reflections.\n", c.ByReflections)
	}
	if len(c.Cells) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s.\n\n| source | destination | observations | untouched | trimmed | packets with a tag | without | not capable |\n|---|---|---:|---:|---:|---:|---:|---:|\n", c.Legend())
	for i := range c.Cells {
		one := &c.Cells[i]
		fmt.Fprintf(w, "| %s | %s | %d | %s | %s | %d | %d | %d |\n", plain(one.Src), plain(one.Dst), one.Observations,
			share(one.Share(one.Untouched)), share(one.Share(one.Trimmed)), one.Tagged, one.Untagged, one.Incapable)
	}
	if c.CellsLeftOut > 0 {
		fmt.Fprintf(w, "\n%d cells with less missing data are left out.\n", c.CellsLeftOut)
	}
}

// plain escapes names for Markdown and HTML.
func plain(s string) string {
	return strings.NewReplacer(`\`, `\\`, "&", `\&`, "|", `\|`, "\n", " ", "\r", " ", "<", "&lt;", "*", `\*`, "_", `\_`, "`", "'", "[", `\[`, "#", `\#`).Replace(s)
}
