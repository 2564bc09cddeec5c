package journal

import (
	"slices"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/ingest/local"
)

// find adds the ring's findings since the last barrier to those since the last cut. Counts in a
// pipeline are cumulative, and start at 0 in a new process. The first finding after a barrier
// is later than the last one before it.
func (g *ringRecord) find(s *local.RingStats, before, now time.Time) {
	earlier := make(map[uint64]*finding.Finding, len(g.seen.Findings))
	for i := range g.seen.Findings {
		earlier[g.seen.Findings[i].ID] = &g.seen.Findings[i]
	}
	for i := range s.Findings {
		f := s.Findings[i] // copy
		if was := earlier[f.ID]; was != nil {
			if f.Count = since(f.Count, was.Count); f.Count == 0 {
				continue
			}
			f.From = min(max(was.To, before.UnixNano()), f.To)
		}
		// Otherwise one packet of a clock that stepped would put all later rows of the finding into
		// the future.
		f.From, f.To = plausible(f.From, f.To, now)
		g.found(&f)
	}
	future := since(s.Counts.Rejected[aggregate.RejectFuture], g.seen.Counts.Rejected[aggregate.RejectFuture])
	if future > 0 {
		f := finding.TapAhead(g.Name, min(before.UnixNano(), now.UnixNano()), now.UnixNano(), future) // before is later if the clock was set back
		g.found(&f)
	}
}

// plausible returns the times (Unix ns) of a finding without the future, for which collectors would refuse it.
func plausible(from, to int64, now time.Time) (int64, int64) {
	if to > now.Add(aggregate.MaxAhead).UnixNano() {
		to = now.UnixNano()
	}
	return min(from, to), to
}

// MaxFindings is the maximum number of findings per row of a tap.
const MaxFindings = 256

// maxRowFindings is the number of individual findings among them; one more per kind counts all
// others.
const maxRowFindings = MaxFindings - finding.NumKinds

// found adds a finding to the row, or beyond the limit to the finding for all others of its
// kind.
func (g *ringRecord) found(f *finding.Finding) {
	if row := g.finding(f.ID); row != nil {
		row.Count += f.Count
		row.From, row.To = min(row.From, f.From), max(row.To, f.To)
		return
	}
	if rest := finding.OverflowFinding(f.Kind); len(g.Findings) >= maxRowFindings && f.ID != rest.ID {
		rest.From, rest.To, rest.Count = f.From, f.To, f.Count
		g.found(&rest)
		return
	}
	g.Findings = append(g.Findings, store.NewFindingRow(f, g.Row.Source, 0))
}

func (g *ringRecord) finding(id uint64) *store.FindingRow {
	at := slices.IndexFunc(g.Findings, func(r store.FindingRow) bool { return r.ID == id })
	if at < 0 {
		return nil
	}
	return &g.Findings[at]
}

// cutFindings returns the findings as rows under the number of the ring's row. If the clock was set back, earlier ones end
// now.
func (g *ringRecord) cutFindings(seq uint64, now time.Time) []store.FindingRow {
	list := g.Findings
	for i := range list {
		list[i].From, list[i].To = plausible(list[i].From, list[i].To, now)
		list[i].Source, list[i].Seq = g.Row.Source, seq
	}
	g.Findings = nil
	return list
}
