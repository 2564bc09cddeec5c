package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// WriteMarkdown writes the report for a ticket: all but the matrices and the heatmap, which
// are the HTML's.
func (r *Report) WriteMarkdown(w io.Writer) error {
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "# %s\n\n%s to %s: %s\n\n## Findings\n\n", plain(r.Title), clock(r.From), clock(r.To), plain(strings.Join(r.Files, ", ")))
	if len(r.Findings) == 0 {
		fmt.Fprintf(b, "None.\n")
	}
	for i := range r.Findings {
		f := &r.Findings[i]
		fmt.Fprintf(b, "* **%s: %s**, %s: %s. %d of %d observations", f.Severity, f.Kind, plain(f.Subject), plain(f.Evidence), f.Count, f.Of)
		if f.From != "" {
			fmt.Fprintf(b, ", %s to %s", f.From, f.To)
		}
		fmt.Fprintf(b, ".\n  Otherwise: %s.\n", f.Otherwise)
		for _, p := range f.Packets {
			fmt.Fprintf(b, "  Packets of %s\n", plain(p.String()))
		}
	}
	fmt.Fprintf(b, "\n## What was read\n\n| what | number | |\n|---|---:|---|\n")
	for _, c := range r.Counts {
		fmt.Fprintf(b, "| %s | %d | %s |\n", plain(c.Name), c.N, plain(c.About))
	}
	for i := range r.Signals {
		r.Signals[i].markdown(b)
	}
	fmt.Fprintf(b, "\n## What could not be known\n\n")
	for _, u := range r.Unknown {
		fmt.Fprintf(b, "* %s\n", plain(u))
	}
	if err := b.Flush(); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

func (s *Signal) markdown(w io.Writer) {
	fmt.Fprintf(w, "\n## %s\n\n%d of %d cells are congested.\n", s.Name, s.Congested, s.Cells)
	if len(s.Locations) == 0 {
		return
	}
	fmt.Fprintf(w, "\n| location | ports | heavy | mean of them | cells |\n|---|---:|---:|---:|---:|\n")
	for i := range s.Locations {
		l := &s.Locations[i]
		fmt.Fprintf(w, "| %s | %d | %d | %s | %d |\n", plain(l.Name), l.Ports, l.Heavy, l.HeavyMean, l.Cells)
	}
	fmt.Fprintf(w, "\n| source | destination | from | mean | heavy | mode | share | runner-up | samples |\n|---|---|---|---:|---:|---|---:|---|---:|\n")
	for i := range s.Worst {
		c := &s.Worst[i]
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s | %s | %s | %d |\n", plain(c.Src), plain(c.Dst), c.Kind, c.MeanText, percent(c.HeavyShare),
			plain(c.Mode), percent(c.ModeShare), plain(c.RunnerUp), c.Observations)
	}
	for i := range s.Rhythms {
		r := &s.Rhythms[i]
		fmt.Fprintf(w, "\n%s to %s repeats every %s: %d steps, congested %s of the time, idle for %s between.", plain(r.Src), plain(r.Dst),
			short(r.PeriodNS), r.Steps, percent(r.Duty), short(r.IdleNS))
		if r.BehindNS != nil {
			fmt.Fprintf(w, " It is %s behind the first one.", short(r.BehindNS))
		}
		if r.Straggles {
			fmt.Fprintf(w, " It ends %s of the steps last, by %s.", percent(r.LateShare), short(r.LateNS))
		}
		fmt.Fprintln(w)
	}
}

// plain keeps names from being read as Markdown or HTML.
func plain(s string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "\r", " ", "<", "&lt;", "*", `\*`, "_", `\_`, "`", "'", "[", `\[`, "#", `\#`).Replace(s)
}
