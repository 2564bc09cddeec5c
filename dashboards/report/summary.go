package report

import (
	"fmt"
	"strings"

	"github.com/csigscope/csigscope/aggregate"
)

// Summary is the document in a few sentences, what is wrong first.
func (r *Report) Summary() []string {
	list := []string{r.findings()}
	for i := range r.Signals {
		list = append(list, r.Signals[i].summary())
	}
	if len(r.Signals) == 0 {
		list = append(list, "No signal was measured.")
	}
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

// Rule says when a cell is congested.
func (r *Report) Rule() string {
	return fmt.Sprintf("A cell is congested from a second in which at least %.6g %% of its observations are heavy until one below %.6g %%.",
		100*r.OnsetRatio, 100*r.ClearRatio)
}

// namedFindings is how many findings the summary names, the worst.
const namedFindings = 3

// findings says how many there are, and names the first ones.
func (r *Report) findings() string {
	bad := map[string]int{}
	var names []string
	for i := range r.Findings {
		f := &r.Findings[i]
		bad[f.Severity]++
		if len(names) < namedFindings {
			names = append(names, f.Kind+" of "+f.Subject)
		}
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
	if len(parts) == 0 {
		return "Findings: none."
	}
	text := "Findings: " + strings.Join(parts, ", ") + ": " + strings.Join(names, ", ")
	if more := len(r.Findings) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text + "."
}

// By says what evidence named the mode, with a space before; empty without a mode.
func (c *Cell) By() string {
	if len(c.Evidence) == 0 {
		return ""
	}
	phrases := strings.NewReplacer("locator", "its locator", "path", "its path", "ecmp", "its hash", "tap", "taps")
	return " by " + phrases.Replace(strings.Join(c.Evidence, " and "))
}

// OfSet marks the share of a mode that is a set of ports, which have it together.
func (c *Cell) OfSet() string {
	if c.ModePorts > 1 {
		return ", of the set"
	}
	return ""
}

// Unjudged says how many cells are not judged and what to do, empty where all are.
func (s *Signal) Unjudged() string {
	if s.NotJudged == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d cells are not judged: %s.", s.NotJudged, s.Cells, aggregate.HowToJudge)
}

func (s *Signal) summary() string {
	if s.NotJudged > 0 && s.Congested == 0 {
		return s.Name + ": " + s.Unjudged()
	}
	if s.Congested == 0 {
		return fmt.Sprintf("%s: none of %d cells was congested.", s.Name, s.Cells)
	}
	text := fmt.Sprintf("%s: %d of %d cells were congested.", s.Name, s.Congested, s.Cells)
	if len(s.Worst) > 0 {
		c := &s.Worst[0]
		text += fmt.Sprintf(" The worst is %s to %s: %s of its observations are heavy", c.Src, c.Dst, percent(c.HeavyShare))
		if c.Mode != "" {
			text += fmt.Sprintf(", most of them at %s", c.Mode)
		}
		if c.MeanText != "" {
			text += ", the mean is " + c.MeanText
		}
		text += "."
	}
	if len(s.Rhythms) > 0 {
		x := &s.Rhythms[0]
		text += fmt.Sprintf(" %s to %s repeats every %s.", x.Src, x.Dst, short(x.PeriodNS))
	}
	if len(s.Flows.Top) > 0 {
		f := &s.Flows.Top[0]
		text += fmt.Sprintf(" The flow that suffers most is %s to %s.", f.Src, f.Dst)
	}
	return text
}
