package remote

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/ingest/wire"
)

// TestFold: totals stay exact, the kept rows are unchanged, and the result is deterministic.
func TestFold(t *testing.T) {
	b := testBlock(newRand(t, 1), time.Now(), 300)
	// One kept row is already an overflow row.
	b.SrcGroup[3], b.DstGroup[3], b.Location[3] = uint64(aggregate.OverflowGroup), uint64(aggregate.OverflowGroup), uint64(aggregate.OverflowLocation)
	for _, keep := range []int{-5, 0, 1, 3, 4, 100, 299, 300, 1000} {
		out, rows, observations := overflowRows(b, keep)
		again, _, _ := overflowRows(b, keep)
		if diff := cmp.Diff(out, again); diff != "" {
			t.Fatalf("keep %d: differs from one time to the next: %s", keep, diff)
		}
		if keep >= b.Len() {
			if out != b || rows != 0 || observations != 0 {
				t.Errorf("keep %d: folded %d rows", keep, rows)
			}
			continue
		}
		want, got := totalsOf(b), totalsOf(out)
		if got != want {
			t.Errorf("keep %d: %+v, want %+v", keep, got, want)
		}
		if rows != b.Len()-max(keep, 0) || out.Len() > max(keep, 0)+3 {
			t.Errorf("keep %d: %d rows folded, %d left", keep, rows, out.Len())
		}
		folded := uint64(0)
		for i := max(keep, 0); i < b.Len(); i++ {
			folded += b.Observations[i]
		}
		if observations != folded {
			t.Errorf("keep %d: %d observations folded, want %d", keep, observations, folded)
		}
		if _, err := fromWire(toWire(out, 0, out.Len())); err != nil {
			t.Errorf("keep %d: %v", keep, err)
		}
		if err := new(uniqueRows).unique(out); err != nil {
			t.Errorf("keep %d: %v", keep, err)
		}
	}
}

// TestRoundTrip: a block sent in parts arrives unchanged.
func TestRoundTrip(t *testing.T) {
	b := testBlock(newRand(t, 3), time.Now(), 40)
	for _, cut := range []int{1, 17, 40} {
		var parts []*aggregate.Block
		for from := 0; from < b.Len(); from += cut {
			to := min(from+cut, b.Len())
			got, err := fromWire(toWire(b, from, to))
			if err != nil {
				t.Fatal(err)
			}
			if folded, _, _ := overflowRows(got, 1); got.More != (to < b.Len()) || folded.More != got.More {
				t.Errorf("rows to %d of %d: more are to come: %t, folded %t", to, b.Len(), got.More, folded.More)
			}
			parts = append(parts, got)
		}
		at := 0
		for _, p := range parts {
			for i := range p.Len() {
				if keyOf(p, i) != keyOf(b, at) || valuesOf(p, i) != valuesOf(b, at) {
					t.Fatalf("row %d differs", at)
				}
				at++
			}
		}
		if at != b.Len() {
			t.Errorf("%d rows, want %d", at, b.Len())
		}
	}
}

// TestWithoutSamples: rows of an exporter that does not send samples count as unweighted;
// otherwise its numbers count, even if all rows are trimmed.
func TestWithoutSamples(t *testing.T) {
	b := testBlock(newRand(t, 4), time.Now(), 3)
	b.Samples[0] = 1
	decoded := func(change func(*wire.Block)) *aggregate.Block {
		t.Helper()
		sent, m := toWire(b, 0, b.Len()), new(wire.Block)
		change(sent)
		if err := proto.Unmarshal(encode(t, sent), m); err != nil {
			t.Fatal(err)
		}
		got, err := fromWire(m)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := decoded(func(*wire.Block) {}); !slices.Equal(got.Samples, b.Samples) {
		t.Errorf("samples %v, want %v", got.Samples, b.Samples)
	}
	for i, n := range decoded(func(m *wire.Block) { m.Samples = nil }).Samples {
		if want := b.Observations[i] - b.Trimmed[i]; n != want {
			t.Errorf("row %d of %d observations, %d trimmed: %d samples, want %d", i, b.Observations[i], b.Trimmed[i], n, want)
		}
	}
	if got := decoded(func(m *wire.Block) { m.Evidence = nil }).Evidence; !slices.Equal(got, make([]uint8, b.Len())) {
		t.Errorf("evidence %v of an exporter that sends none", got)
	}
	if got := decoded(func(*wire.Block) {}).Evidence; !slices.Equal(got, b.Evidence) {
		t.Errorf("evidence %v, want %v", got, b.Evidence)
	}
	got := decoded(func(m *wire.Block) {
		zero := make([]uint64, b.Len())
		m.Trimmed, m.Samples, m.Unjudged, m.Sum, m.Min, m.Max, m.Untouched, m.Heavy, m.HeavySum = m.Observations, zero, zero, zero, zero, zero, zero, zero, zero
		m.DistSize, m.DistCode, m.DistCount = make([]uint32, b.Len()), nil, nil
	})
	if !slices.Equal(got.Samples, make([]uint64, b.Len())) {
		t.Errorf("samples %v of trimmed packets alone", got.Samples)
	}
}

// TestSeqs compares the numbers with a model based on a set.
func TestSeqs(t *testing.T) {
	rng := newRand(t, 5)
	var s dedupWindow
	taken := map[uint64]wire.Outcome{}
	top := uint64(0)
	for range 20000 {
		n := max(1, top+rng.Uint64N(60)-min(top, rng.Uint64N(1300)))
		if rng.IntN(500) == 0 {
			n = top + rng.Uint64N(5000)
		}
		want, known := taken[n]
		switch {
		case n <= top && top-n >= maxInFlightBlocks:
			want = wire.Outcome_OUTCOME_STALE
		case !known:
			want = wire.Outcome_OUTCOME_STORED
		}
		if got := s.begin(n); got != want {
			t.Fatalf("%d of %d: %s, want %s", n, top, got, want)
		}
		top = max(top, n)
		if want != wire.Outcome_OUTCOME_STORED {
			continue
		}
		taken[n] = wire.Outcome_OUTCOME_UNSPECIFIED
		switch rng.IntN(4) {
		case 0:
			s.end(n, false)
			taken[n] = wire.Outcome_OUTCOME_STORED
		case 1, 2:
			s.end(n, true)
			taken[n] = wire.Outcome_OUTCOME_REPEAT
		}
	}
}
