package journal

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/ingest/local"
)

// foundIdentity identifies a row of findings.
type foundIdentity struct {
	aggregate.Source
	seq, id uint64
}

// find makes the ring find n more of a subject, now.
func (r *recording) find(id, n uint64) {
	// A pipeline never changes a list that it returned.
	list := append([]finding.Finding(nil), r.ring.Findings...)
	at := r.at.Add(time.Second).UnixNano()
	for i := range list {
		if f := &list[i]; f.ID == id {
			f.Count, f.To = f.Count+n, at
			n = 0
		}
	}
	if n > 0 {
		list = append(list, finding.Finding{Kind: finding.OrphanTag, ID: id, From: at, To: at, Count: n})
	}
	r.ring.Findings = list
	r.second(1, 0)
}

// sums returns the findings of all rows: count, first and last time.
func (r *recording) sums() map[uint64][3]int64 {
	sums := map[uint64][3]int64{}
	for k, row := range r.found {
		s, again := sums[k.id]
		if !again {
			s = [3]int64{0, row.From, row.To}
		}
		sums[k.id] = [3]int64{s[0] + int64(row.Count), min(s[1], row.From), max(s[2], row.To)}
	}
	return sums
}

// TestFindingsRecorded: a ring's findings are written every minute, and over a kill they add up
// to the findings until the last commit and after it.
func TestFindingsRecorded(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	r := newRecording(t, start)
	r.find(7, 3)
	for range 89 {
		r.second(1, 0)
	}
	r.find(7, 2)
	r.find(8, 1)
	saved, last := append([]byte(nil), r.section...), r.at
	r.find(8, 100) // lost: no round has it
	if got := r.sums(); len(r.found) != 1 || got[7] != [3]int64{3, start.Add(time.Second).UnixNano(), start.Add(time.Second).UnixNano()} {
		t.Errorf("after a minute: %v", r.found)
	}

	next := newRecording(t, last)
	next.written, next.gone, next.found = r.written, r.gone, r.found
	next.ring.Source.Incarnation++
	next.ring.Wrote = next.ring.Source
	if err := next.resume(saved, last); err != nil {
		t.Fatal(err)
	}
	next.find(8, 10)
	next.ring.Source.Epoch = 4 // another configuration
	next.barrier()
	next.ring.Wrote = next.ring.Source
	next.find(8, 5)
	next.last = true
	next.barrier()
	seconds := func(n int64) int64 { return start.UnixNano() + n*int64(time.Second) }
	got := next.sums()
	if want := [3]int64{5, seconds(1), seconds(91)}; got[7] != want {
		t.Errorf("of the first: %v, want %v", got[7], want)
	}
	if want := [3]int64{16, seconds(92), seconds(94)}; got[8] != want {
		t.Errorf("of the second: %v, want %v", got[8], want)
	}
	of4 := uint64(0)
	for k, row := range next.found {
		if k.Epoch == 4 {
			of4 += row.Count
		}
		if row.Kind != "orphan-tag" || row.Severity == "" || row.Seq == 0 || k.Producer != 1 || row.From > row.To {
			t.Errorf("%+v", row)
		}
	}
	if of4 != 5 || next.conflict {
		t.Errorf("%d of the new configuration, conflict %t", of4, next.conflict)
	}
}

// TestFindingsOfTheFuture: a packet from a clock that stepped ahead does not shift its own row
// or later rows of the same finding into the future.
func TestFindingsOfTheFuture(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	r := newRecording(t, start)
	r.find(7, 1)
	r.ring.Findings = []finding.Finding{{
		Kind: finding.OrphanTag, ID: 7, From: r.at.UnixNano(), To: r.at.Add(time.Hour).UnixNano(), Count: 2,
	}}
	for range 60 {
		r.second(1, 0)
	}
	r.ring.Findings = slices.Clone(r.ring.Findings)
	r.ring.Findings[0].Count += 3 // the last one stays in the future
	for range 60 {
		r.second(1, 0)
	}
	if len(r.found) != 2 {
		t.Fatalf("%d rows of findings, want 2", len(r.found))
	}
	for _, f := range r.found {
		tap := r.written[rowIdentity{f.Source, f.Seq}]
		if f.From < tap.From || f.To < f.From || f.To > tap.To {
			t.Errorf("%d from %v to %v, in a row from %v to %v", f.Count, time.Unix(0, f.From), time.Unix(0, f.To), time.Unix(0, tap.From), time.Unix(0, tap.To))
		}
	}
	if got := r.sums()[7][0]; got != 5 {
		t.Errorf("%d found, want 5", got)
	}
}

// TestTapAhead: observations that a tap rejected as too far in the future become a finding
// about the tap, with the host's time.
func TestTapAhead(t *testing.T) {
	r := newRecording(t, time.Unix(1_700_000_000, 0))
	r.second(1, 0)
	for range 60 {
		r.ring.Counts.In += 3
		r.ring.Counts.Rejected[aggregate.RejectFuture] += 3
		r.second(1, 0)
	}
	for _, f := range r.found {
		if f.Kind != finding.ClockAhead.String() || f.Count != 180 && f.Count != 177 || f.To > r.at.UnixNano() || !strings.Contains(f.Evidence, r.ring.Name) {
			t.Errorf("found %+v", f)
		}
	}
	if len(r.found) != 1 {
		t.Errorf("%d findings, want one", len(r.found))
	}
}

// TestFindingsAtSetBack: findings of a row in which the clock is set back end after they begin, and not in the future.
func TestFindingsAtSetBack(t *testing.T) {
	r := newRecording(t, time.Unix(1_700_000_000, 0))
	r.find(7, 1)
	r.at = r.at.Add(-time.Minute)
	r.ring.Counts.In += 3
	r.ring.Counts.Rejected[aggregate.RejectFuture] += 3
	r.last = true
	r.second(1, 0)
	for _, f := range r.found {
		if f.From > f.To || f.To > r.at.UnixNano() {
			t.Errorf("%s from %d to %d, at %d", f.Kind, f.From, f.To, r.at.UnixNano())
		}
	}
	if len(r.found) != 2 {
		t.Errorf("%d findings, want two", len(r.found))
	}
}

// TestWaitingFindingsBounded: while writes fail, the oldest findings beyond the limit are
// dropped and the rows of their taps stay. The findings of one barrier are written, however
// many there are.
func TestWaitingFindingsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("of one goroutine: left out by -short")
	}
	const (
		of    = 64 // findings of each ring
		rings = maxFindingRows/of + 1
		each  = rings * of
	)
	r := newRecording(t, time.Unix(1_700_000_000, 0))
	r.last = true // rows are cut at every barrier
	count := uint64(0)
	r.cfg.Stats = func() (list []local.RingStats) {
		count++
		for i := range rings {
			s := r.ring
			s.Ring = i
			for id := range uint64(of) {
				s.Findings = append(s.Findings, finding.Finding{Kind: finding.OrphanTag, ID: id, From: 1, To: 1, Count: count})
			}
			list = append(list, s)
		}
		return list
	}
	r.failing = errors.New("the store is away")
	for range 3 {
		r.barrier()
	}
	if n := len(r.state.Findings); n != maxFindingRows+each {
		t.Fatalf("%d findings wait, want %d and %d of the last barrier", n, maxFindingRows, each)
	}
	last := r.state.Rows[len(r.state.Rows)-1].Seq
	if at := len(r.state.Findings) - 1; len(r.state.Rows) != 3*rings || r.state.Findings[at].Seq != last || r.state.Findings[at-each].Seq != last-1 {
		t.Errorf("%d rows wait, want all %d with the latest findings", len(r.state.Rows), 3*rings)
	}
	r.failing, r.found = nil, make(map[foundIdentity]store.FindingRow)
	r.barrier()
	if n := len(r.found); n != maxFindingRows+each || len(r.state.Findings) != 0 {
		t.Errorf("%d findings are written, %d wait, want %d written", n, len(r.state.Findings), maxFindingRows+each)
	}
}

// TestFindingsBounded: findings beyond the maximum per row are counted with all others of their
// kind.
func TestFindingsBounded(t *testing.T) {
	g := new(ringRecord)
	sums := func() (sum, rest uint64) {
		for _, f := range g.Findings {
			if sum += f.Count; strings.Contains(f.Evidence, "counted together") {
				rest += f.Count
			}
		}
		return sum, rest
	}
	for i := range 1000 {
		for k := range finding.Kind(finding.NumKinds) {
			g.found(&finding.Finding{Kind: k, ID: uint64(i)<<8 | uint64(k), From: int64(i), To: int64(i), Count: 2})
		}
	}
	apart := uint64(maxRowFindings)
	sum, rest := sums()
	if len(g.Findings) != MaxFindings || sum != 2000*finding.NumKinds || rest != sum-2*apart {
		t.Errorf("%d findings of %d, of which %d are counted together", len(g.Findings), sum, rest)
	}
	last := g.Findings[len(g.Findings)-1]
	if time.Duration(last.From) > time.Duration(last.To) || last.To != 999 {
		t.Errorf("%+v", last)
	}
}
