package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/finding"
)

// Summary returns a few sentences beside the verdict. Each says something once for all signals.
func (r *Report) Summary() []string {
	var list []string
	add := func(text string) {
		if text != "" {
			list = append(list, text)
		}
	}
	add(r.congested())
	add(r.repeating())
	add(r.suffering())
	add(r.faults())
	add(r.forgery())
	return list
}

// congested says how many cells were congested, by signal.
func (r *Report) congested() string {
	if len(r.Signals) == 0 {
		return "No signal was measured."
	}
	var parts []string
	most := 0
	for i := range r.Signals {
		s := &r.Signals[i]
		parts = append(parts, fmt.Sprintf("%s %d of %d", s.Name, s.Congested, s.Cells))
		most = max(most, s.Congested)
	}
	if most == 0 {
		return "Congested cells: none, by any of " + r.signalNames() + "."
	}
	return "Congested cells by signal: " + strings.Join(parts, ", ") + "."
}

func (r *Report) signalNames() string {
	var names []string
	for i := range r.Signals {
		names = append(names, r.Signals[i].Name)
	}
	return strings.Join(names, ", ")
}

// repeating names the worst cell with a period, of the first signal that has one.
func (r *Report) repeating() string {
	for i := range r.Signals {
		if list := r.Signals[i].Rhythms; len(list) > 0 {
			text := fmt.Sprintf("%s to %s is congested every %s", list[0].Src, list[0].Dst, short(list[0].PeriodNS))
			switch more := len(list) - 1; {
			case more == 1:
				text += ", and 1 more cell repeats"
			case more > 1:
				text += fmt.Sprintf(", and %d more cells repeat", more)
			}
			return text + " (" + r.Signals[i].Name + ")."
		}
	}
	return ""
}

// suffering names the flow with the most heavy observations of a signal.
func (r *Report) suffering() string {
	var worst *Flow
	for i := range r.Signals {
		if list := r.Signals[i].Flows.Top; len(list) > 0 && (worst == nil || list[0].Heavy > worst.Heavy) {
			worst = &list[0]
		}
	}
	if worst == nil {
		return ""
	}
	return fmt.Sprintf("The flow that suffers most is %s to %s.", worst.Src, worst.Dst)
}

// Lead returns the signal with the most heavy observations at the verdict's first place, or else
// the first signal. The other signals describe the same congestion and are folded.
func (r *Report) Lead() string {
	if r.Verdict != nil && len(r.Verdict.Statements) > 0 {
		for _, w := range r.Verdict.Statements[0].Worst {
			for i := range r.Signals {
				if r.Signals[i].Name == w.Signal {
					return w.Signal
				}
			}
		}
	}
	if len(r.Signals) > 0 {
		return r.Signals[0].Name
	}
	return ""
}

// Rule says when a cell is congested.
func (r *Report) Rule() string {
	return fmt.Sprintf("A cell is congested from a second in which at least %.6g %% of its observations are heavy until one below %.6g %%. A cell with fewer than 10 samples in each second is judged over the whole range.",
		100*r.OnsetRatio, 100*r.ClearRatio)
}

// namedFaults is the maximum number of protocol faults that the summary names, worst first.
const namedFaults = 3

// faults says how many findings there are and names the first ones.
func (r *Report) faults() string {
	bad := map[string]int{}
	var names []string
	for i := range r.Findings {
		f := &r.Findings[i]
		bad[f.Severity]++
		if len(names) < namedFaults {
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
		return "Protocol faults: none."
	}
	text := "Protocol faults: " + strings.Join(parts, ", ") + ": " + strings.Join(names, ", ")
	if more := len(r.Findings) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text + "."
}

// forgery warns of values that no hop measured.
func (r *Report) forgery() string {
	kind := finding.ForgedValue.String()
	if !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Kind == kind }) {
		return ""
	}
	return "Senders forge values (" + kind + " below): the tightest values may be theirs."
}

// By names the evidence for the mode, after a space; it is empty without a mode.
func (c *Cell) By() string {
	if len(c.Evidence) == 0 {
		return ""
	}
	phrases := strings.NewReplacer("locator", "its locator", "path", "its path", "ecmp", "its hash", "tap", "taps")
	return " by " + phrases.Replace(strings.Join(c.Evidence, " and "))
}

// OfSet marks a mode's share that holds for a whole set of ports.
func (c *Cell) OfSet() string {
	if c.ModePorts > 1 {
		return ", of the set"
	}
	return ""
}

// Unjudged says how many cells are not judged and what to do about it; it is empty if all are
// judged.
func (s *Signal) Unjudged() string {
	if s.NotJudged == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d cells are not judged: %s.", s.NotJudged, s.Cells, aggregate.HowToJudge(s.signal))
}
