package report

import (
	"cmp"
	"fmt"
	"strings"
)

// Summary is the document in a few sentences.
func (r *Report) Summary() []string {
	list := []string{}
	for i := range r.Signals {
		list = append(list, r.Signals[i].summary())
	}
	if len(list) == 0 {
		list = append(list, "No signal was measured.")
	}
	bad := map[string]int{}
	for i := range r.Findings {
		bad[r.Findings[i].Severity]++
	}
	var parts []string
	for _, severity := range []string{"error", "warning", "info"} {
		if n := bad[severity]; n > 0 {
			if n > 1 && severity != "info" {
				severity += "s"
			}
			parts = append(parts, fmt.Sprintf("%d %s", n, severity))
		}
	}
	list = append(list, "Findings: "+cmp.Or(strings.Join(parts, ", "), "none")+".")
	quiet := len(r.Coverage.Silent)
	for i := range r.Coverage.Taps {
		if r.Coverage.Taps[i].Note != "" {
			quiet++
		}
	}
	if quiet > 0 {
		list = append(list, fmt.Sprintf("%d of %d taps are silent or say little.", quiet, len(r.Coverage.Taps)+len(r.Coverage.Silent)))
	}
	return list
}

func (s *Signal) summary() string {
	if s.Congested == 0 {
		return fmt.Sprintf("%s: none of %d cells is congested.", s.Name, s.Cells)
	}
	text := fmt.Sprintf("%s: %d of %d cells are congested.", s.Name, s.Congested, s.Cells)
	if len(s.Worst) > 0 {
		c := &s.Worst[0]
		text += fmt.Sprintf(" The worst is %s to %s: %s of its observations are heavy", c.Src, c.Dst, percent(c.HeavyShare))
		if c.Mode != "" {
			text += fmt.Sprintf(", most of them at %s", c.Mode)
		}
		text += "."
	}
	if len(s.Flows.Top) > 0 {
		f := &s.Flows.Top[0]
		text += fmt.Sprintf(" The flow that suffers most is %s to %s.", f.Src, f.Dst)
	}
	return text
}
