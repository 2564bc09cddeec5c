package finding

import (
	"math/rand/v2"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/aggregate"
)

// TestPassages: the pieces of a capture together find the same as the whole capture, wherever it is
// divided, between windows and inside them.
func TestPassages(t *testing.T) {
	t.Parallel()
	encoding := aggregate.Encoding(wide.Index())
	cfg := configured(t, ports{}, nil)
	watcher := func() *Watcher {
		w, err := NewWatcher(cfg, "a.pcap")
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	found := 0
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 1))
		whole, piece, follower := watcher(), watcher(), watcher()
		piece.InPieces()
		parts := map[uint64]Finding{}
		next := func() {
			for _, f := range follower.Follow(piece.Passage(), piece.Findings()) {
				sum := f
				if was, known := parts[f.ID]; known {
					sum.Count, sum.From, sum.To = was.Count+f.Count, min(was.From, f.From), max(was.To, f.To)
				}
				sum.Evidence = ""
				parts[f.ID] = sum
			}
			piece.Begin("a.pcap")
			piece.InPieces()
		}
		for at, n := int64(0), 5+random.Int64N(40); at < n; at++ {
			if random.IntN(8) == 0 {
				at += random.Int64N(14)
			}
			rows := randomRows(random, at)
			if random.IntN(3) == 0 { // within the window; the first part has all that contradicts
				first, second := divided(rows)
				whole.close(encoding, time.Second, 1, append(first, second...)...)
				piece.close(encoding, time.Second, 1, first...)
				next()
				piece.close(encoding, time.Second, 1, second...)
				continue
			}
			whole.close(encoding, time.Second, 1, rows...)
			piece.close(encoding, time.Second, 1, rows...)
			if random.IntN(3) == 0 {
				next()
			}
		}
		next()
		want := map[uint64]Finding{}
		for _, f := range whole.Findings() {
			f.Evidence = ""
			want[f.ID] = f
			found++
		}
		if diff := gocmp.Diff(want, parts); diff != "" {
			t.Fatalf("seed %d: as a whole (-), in pieces (+):\n%s", seed, diff)
		}
	}
	if found < 20 {
		t.Errorf("%d findings in all", found)
	}
}

// divided returns the rows of two pieces that share a window, of which the second has only one value
// of each port, with flows that agree.
func divided(rows []wrote) (first, second []wrote) {
	for _, r := range rows {
		rest := steady(r.window, 30)
		rest.at, rest.hidden = r.at, r.hidden
		r.n, r.heavy = r.n-30, r.n-30
		first, second = append(first, r), append(second, rest)
	}
	return first, second
}

// randomRows returns the rows of a few ports in a window, most of which continue as before.
func randomRows(random *rand.Rand, window int64) (rows []wrote) {
	for port := range uint64(3) {
		r := steady(window, 60+random.Uint64N(60))
		r.at += port
		switch random.IntN(16) {
		case 0:
			continue
		case 1:
			r.min, r.max = 6000, 6000
		case 2:
			r.min = 4000
		case 3:
			r.least = 4000
		case 4, 5, 6:
			r.hidden = true
		}
		rows = append(rows, r)
	}
	return rows
}
