package journal

import (
	"slices"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/ingest/local"
)

// find adds what the ring has found since the last barrier to what is found since the last
// cut. Pipelines count on, and from 0 in another process. The first one of a barrier came
// after the last one of the barrier before.
func (g *ringRecord) find(s *local.RingStats, before, now time.Time) {
	earlier := make(map[uint64]*finding.Finding, len(g.seen.Findings))
	for i := range g.seen.Findings {
		earlier[g.seen.Findings[i].ID] = &g.seen.Findings[i]
	}
	for i := range s.Findings {
		f := s.Findings[i] // a copy
		if was := earlier[f.ID]; was != nil {
			if f.Count = since(f.Count, was.Count); f.Count == 0 {
				continue
			}
			f.From = min(max(was.To, before.UnixNano()), f.To)
		}
		if f.To > now.Add(aggregate.MaxAhead).UnixNano() {
			// By one packet of a clock that stepped, all later rows of the finding would be of
			// the future.
			f.To = now.UnixNano()
			f.From = min(f.From, f.To)
		}
		g.found(&f)
	}
	future := since(s.Counts.Rejected[aggregate.RejectFuture], g.seen.Counts.Rejected[aggregate.RejectFuture])
	if future > 0 {
		f := finding.TapAhead(g.Name, before.UnixNano(), now.UnixNano(), future)
		g.found(&f)
	}
}

// MaxFindings is how many findings go with a row of a tap at most.
const MaxFindings = 256

// maxRowFindings is how many of them are told apart: one of each kind is of all others.
const maxRowFindings = MaxFindings - finding.NumKinds

// found adds a finding to the row; past the bound, to that of all others of its kind.
func (g *ringRecord) found(f *finding.Finding) {
	if row := g.finding(f.ID); row != nil {
		row.Count += f.Count
		row.From, row.To = min(row.From, f.From), max(row.To, f.To)
		return
	}
	if rest := finding.Others(f.Kind); len(g.Findings) >= maxRowFindings && f.ID != rest.ID {
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

// cutFindings makes rows of what was found, under the number of the ring's row.
func (g *ringRecord) cutFindings(seq uint64) []store.FindingRow {
	list := g.Findings
	for i := range list {
		list[i].Source, list[i].Seq = g.Row.Source, seq
	}
	g.Findings = nil
	return list
}
