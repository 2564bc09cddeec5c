package query

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode/csig"
)

// speak puts the verdict in words.
func (b *verdictBuilder) speak() {
	for i := range b.out.Statements {
		s := &b.out.Statements[i]
		s.Text = b.sentence(s)
	}
	b.out.Notes = b.notes()
	b.out.Kind, b.out.Text = b.headline()
}

// nameOf names the place of a statement.
func (b *verdictBuilder) nameOf(g *group, s *Statement) string {
	first := g.members[0].location
	ports := portsOf(g, s)
	switch s.Kind {
	case AboutUnlocated:
		return "no location named"
	case AboutUplinks:
		return s.Device + " uplinks" + ports
	case AboutDownlinks:
		return s.Device + " downlinks" + ports
	case AboutFarEnd:
		return "links into " + s.FarEnd + ports
	case AboutHost, AboutIncast:
		switch {
		case s.Host != "" && first.Kind == fabric.KindPort && g.whole == nil:
			return first.Name + ", " + s.Host
		case s.Host != "":
			return "links into " + s.Host + ports
		case s.Device != "":
			return s.Device + " downlinks" + ports
		}
	}
	if g.whole != nil {
		return g.whole.Name
	}
	return first.Name
}

// portsOf is the number of ports of a statement, with a space before.
func portsOf(g *group, s *Statement) string {
	switch {
	case g.whole == nil && s.OfPorts > 1:
		return fmt.Sprintf(" (%d ports, which of them is not known)", s.OfPorts)
	case g.whole == nil:
		return ""
	case s.Ports < s.OfPorts:
		return fmt.Sprintf(" (%d of %d ports)", s.Ports, s.OfPorts)
	}
	return fmt.Sprintf(" (%d ports)", s.OfPorts)
}

// sentence is the statement in words.
func (b *verdictBuilder) sentence(s *Statement) string {
	parts := []string{}
	if s.Kind == AboutIncast {
		parts = append(parts, fmt.Sprintf("incast from %d %s", len(s.Sources), b.levelOf(s.Sources)))
	}
	share := Percent(s.Share) + " of heavy observations"
	switch {
	case s.State == aggregate.Congested && s.Dated:
		parts = append(parts, share+" since "+b.clock(s.Since)+" UTC")
	case s.Last == 0:
		parts = append(parts, share)
	case s.State == aggregate.Congested:
		parts = append(parts, share, "at some time between "+b.clock(s.First)+" and "+b.clock(s.Last)+" UTC")
	case s.Onset && s.Paused:
		parts = append(parts, share, "on and off from "+b.clock(s.First)+" to "+b.clock(s.Last)+" UTC")
	case s.Onset:
		parts = append(parts, share, b.clock(s.First)+" to "+b.clock(s.Last)+" UTC")
	default:
		parts = append(parts, share, "briefly between "+b.clock(s.First)+" and "+b.clock(s.Last)+" UTC")
	}
	return s.Place + ": " + strings.Join(append(parts, count(len(s.Cells), "cell")), ", ")
}

// levelOf names the kind of the groups, such as racks.
func (b *verdictBuilder) levelOf(groups []aggregate.GroupID) string {
	level := b.Group(groups[0]).Level
	for _, g := range groups {
		if b.Group(g).Level != level {
			level = ""
		}
	}
	if level == "prefix" {
		return "prefixes"
	}
	return cmp.Or(level, "group") + "s"
}

// clock formats a time in UTC, with the date if that or the range's begin is not the date of its end.
func (b *verdictBuilder) clock(ns int64) string {
	at, day := time.Unix(0, ns).UTC(), b.To.UTC().Format(time.DateOnly)
	if b.From.UTC().Format(time.DateOnly) != day || at.Format(time.DateOnly) != day {
		return at.Format(time.DateTime)
	}
	return at.Format(time.TimeOnly)
}

// end is the time of the states, with its date: the end of the range, or of the data in it.
func (b *verdictBuilder) end() string {
	at := b.To
	if b.stopped() {
		at = b.Coverage.Newest
	}
	return at.UTC().Format(time.DateTime) + " UTC"
}

// stopped reports whether the data ends within the range.
func (b *verdictBuilder) stopped() bool {
	return b.Coverage.Newest.After(b.From) && b.Coverage.Newest.Before(b.To)
}

// Percent formats a share for people.
func Percent(share float64) string {
	switch {
	case share > 0 && share < 0.001:
		return "below 0.1 %"
	case share < 0.1:
		return strconv.FormatFloat(100*share, 'f', 1, 64) + " %"
	}
	return strconv.FormatFloat(100*share, 'f', 0, 64) + " %"
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// headline is the verdict in a sentence or two. Silence is never health.
func (b *verdictBuilder) headline() (VerdictKind, string) {
	out, now, was, untimed := b.out, 0, 0, 0
	for i := range out.Statements {
		switch s := &out.Statements[i]; {
		case s.Dated:
			now++
		case s.State == aggregate.Congested:
			untimed++
		case s.Onset:
			was++
		}
	}
	period, lately := "the whole range", ""
	if b.long() {
		period = fmt.Sprintf("the last %d windows of the range", aggregate.Horizon)
		lately = " in " + period
	}
	over := "" // each signal alone may have fewer cells
	if len(b.Signals) > 1 {
		over = ", over all signals"
	}
	cells := fmt.Sprintf("%d of %d cells", out.CongestedCells, out.Cells)
	summary := fmt.Sprintf("In %s %s were congested%s.", period, cells, over)
	judged := fmt.Sprintf("%s judged%s", count(out.JudgedCells, "cell"), b.seen())
	if out.JudgedCells < out.Cells {
		judged = fmt.Sprintf("%d of %d cells judged%s", out.JudgedCells, out.Cells, b.seen())
	}
	switch {
	case out.Cells == 0 || out.Observations == 0:
		return VerdictNoData, b.nothing()
	case now > 0:
		return VerdictCongested, fmt.Sprintf("Congested at the end (%s): %s%s%s. %s", b.end(), count(now, "place"), earlier(was, "other"), unknown(untimed), summary)
	case b.anyOngoing():
		return VerdictCongested, fmt.Sprintf("Cells are congested at the end (%s), but no single place is. %s", b.end(), summary)
	case len(b.ongoing) > 0:
		what, before := count(len(b.ongoing), "cell"), "place"
		if untimed > 0 {
			what, before = count(untimed, "place"), "other"
		}
		return VerdictCongested, fmt.Sprintf("Congested over the range as a whole: %s, with too few observations in each window to say when%s. %s", what, earlier(was, before), summary)
	case was > 0 || out.CongestedCells > 0:
		return VerdictWasCongested, fmt.Sprintf("Nothing is congested at the end (%s); before that %s and%s %s were%s.", b.end(), count(was, "place"), lately, cells, over)
	case out.JudgedCells == 0:
		return VerdictNotJudged, "Nothing could be judged: " + b.whyNotJudged() + "."
	case b.incomplete():
		return VerdictIncomplete, fmt.Sprintf("No observed cell was congested%s, but data is missing: %s.", lately, judged)
	case out.Heavy > 0 || b.trimmed > 0:
		return VerdictBrief, fmt.Sprintf("No cell was congested%s; %s of the observations were heavy: %s.", lately, Percent(ZeroNaN(float64(out.Heavy)/float64(out.Observations))), judged)
	}
	return VerdictHealthy, fmt.Sprintf("No cell was congested: %s.", judged)
}

// long reports whether the range has more windows than those that decide whether a cell was congested.
func (b *verdictBuilder) long() bool {
	for i := range b.Signals {
		if r := b.Signals[i].Recent; b.From.UnixNano() < r.End-aggregate.Horizon*r.Length {
			return true
		}
	}
	return false
}

// anyOngoing reports whether a cell is congested at the end of the range.
func (b *verdictBuilder) anyOngoing() bool {
	for _, v := range b.ongoing {
		if v.Lasted > 0 {
			return true
		}
	}
	return false
}

// earlier is the number of places that are no longer congested, in words.
func earlier(n int, what string) string {
	switch n {
	case 0:
		return ""
	case 1:
		return "; 1 " + what + " was earlier"
	}
	return fmt.Sprintf("; %s were earlier", count(n, what))
}

// unknown is the number of places that were congested at a time that no window shows, in words.
func unknown(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("; %s had too few observations in each window to say when", count(n, "other"))
}

func more(n int, what string) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf(" and %d %s", n, what)
}

// seen is the number of taps that sent data, in words.
func (b *verdictBuilder) seen() string {
	if b.Coverage.Expected == 0 {
		return ""
	}
	return fmt.Sprintf(", %d of %s sent data", b.Coverage.Present, count(b.Coverage.Expected, "tap"))
}

// incomplete reports whether coverage is incomplete. Pairs that stopped sending are no gap.
func (b *verdictBuilder) incomplete() bool {
	return b.Coverage.Present < b.Coverage.Expected || b.Coverage.Covered < 1 || b.states[aggregate.NoData] > b.silent
}

// nothing states that nothing was observed.
func (b *verdictBuilder) nothing() string {
	switch {
	case !b.From.Before(b.To):
		return "Nothing was observed" + b.seen() + "."
	case b.stopped():
		return "Nothing was observed since " + b.end() + b.seen() + "."
	}
	return fmt.Sprintf("Nothing was observed from %s to %s UTC%s.", b.clock(b.From.UnixNano()), b.clock(b.To.UnixNano()), b.seen())
}

// whyNotJudged states why no cell was judged.
func (b *verdictBuilder) whyNotJudged() string {
	if n := b.states[aggregate.NotJudged]; n > 0 {
		why := []string{}
		for i := range b.Signals {
			if s := b.Signals[i].Signal; b.unjudged[s] > 0 {
				why = append(why, fmt.Sprintf("%s: %s", s, aggregate.HowToJudge(s)))
			}
		}
		return fmt.Sprintf("no threshold applies to %s. %s", count(n, "cell"), strings.Join(why, ". "))
	}
	if n := b.states[aggregate.TooFew]; n > 0 {
		return fmt.Sprintf("each of %s has fewer than %d samples", count(n, "cell"), aggregate.MinObservations)
	}
	return fmt.Sprintf("none of %s sent anything lately", count(b.states[aggregate.NoData], "cell"))
}

const (
	// namedSilent is how many silent taps are named.
	namedSilent = 5
	// noted is the least silence at the end of a range that a note mentions. It is longer than a window
	// takes to be stored.
	noted = time.Minute
)

// notes are the gaps in the verdict's data.
func (b *verdictBuilder) notes() []string {
	list := []string{}
	if missing := b.Coverage.Expected - b.Coverage.Present; missing > 0 {
		are := "are"
		if missing == 1 {
			are = "is"
		}
		text := fmt.Sprintf("%d of %s %s silent", missing, count(b.Coverage.Expected, "tap"), are)
		if names := b.Coverage.Silent; len(names) > 0 {
			text += ": " + strings.Join(names[:min(len(names), namedSilent)], ", ") + more(len(names)-namedSilent, "others")
		}
		list = append(list, text+"; cells seen there may be missing or look better than they are.")
	}
	if silence := b.To.Sub(b.Coverage.Newest); b.stopped() && silence >= noted {
		list = append(list, fmt.Sprintf("Nothing was observed in the last %s of the range.", silence.Round(time.Second)))
	}
	if b.Coverage.Covered < 1 {
		list = append(list, fmt.Sprintf("Windows of at least one tap are missing in %s of the range.", Percent(1-b.Coverage.Covered)))
	}
	if n := b.states[aggregate.NoData]; n > 0 {
		list = append(list, fmt.Sprintf("%s sent nothing lately.", count(n, "cell")))
	}
	for i := range b.Signals {
		s := b.Signals[i].Signal
		if n := b.unjudged[s]; n > 0 && b.out.JudgedCells > 0 {
			list = append(list, fmt.Sprintf("%s: %d of %d cells are not judged: %s.", s, n, len(b.Signals[i].Cells), aggregate.HowToJudge(s)))
		}
	}
	if n := b.states[aggregate.TooFew]; n > 0 && b.out.JudgedCells > 0 {
		list = append(list, fmt.Sprintf("%s with fewer than %d samples: not judged.", count(n, "cell"), aggregate.MinObservations))
	}
	if b.trimmed > 0 {
		share := float64(b.trimmed) / float64(b.out.Observations)
		list = append(list, fmt.Sprintf("%s of the observations are of packets that a switch trimmed: congestion whose place is not in this list.", Percent(share)))
	}
	return list
}

// WorstText is the tightest value of a signal, with its unit; empty without one.
func (s *StatementSignal) WorstText() string {
	if math.IsNaN(s.Worst) {
		return ""
	}
	return csig.FormatQuantity(s.Signal.Unit(), s.Worst)
}
