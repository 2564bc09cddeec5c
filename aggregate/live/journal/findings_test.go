package journal

import (
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/finding"
)

// foundIdentity is that of a row of findings.
type foundIdentity struct {
	aggregate.Source
	seq, id uint64
}

// find makes the ring find n more of a subject, now.
func (r *recording) find(id, n uint64) {
	// A pipeline never changes a list that it gave.
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

// sums are the findings of all rows: how often, when first and when last.
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

// TestFindingsRecorded: what a ring finds is written by the minute, and adds up over a kill
// to what was found until the last checkpoint and after it.
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
	r.find(8, 100) // is lost: no checkpoint has it
	if got := r.sums(); len(r.found) != 1 || got[7] != [3]int64{3, start.Add(time.Second).UnixNano(), start.Add(time.Second).UnixNano()} {
		t.Errorf("after a minute: %v", r.found)
	}

	next := newRecording(t, last)
	next.written, next.gone, next.found = r.written, r.gone, r.found
	if err := next.restore(saved); err != nil {
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

// TestFindingsBounded: of more findings than an exporter may hand in with a row, those
// beyond are counted with all others of their kind.
func TestFindingsBounded(t *testing.T) {
	g := new(ringRecord)
	sums := func() (sum, rest uint64) {
		for _, f := range g.Findings {
			if sum += f.Count; strings.Contains(f.Evidence, "not told apart") {
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
		t.Errorf("%d findings of %d, of which %d are not told apart", len(g.Findings), sum, rest)
	}
	last := g.Findings[len(g.Findings)-1]
	if time.Duration(last.From) > time.Duration(last.To) || last.To != 999 {
		t.Errorf("%+v", last)
	}
}
