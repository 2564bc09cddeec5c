package simulation

import (
	"testing"

	"github.com/csigscope/csigscope/replay/emitter/exact"
)

func TestAgendaFindsTheEarliest(t *testing.T) {
	for _, n := range []int{0, 1, 2, 3, 7, 64, 100} {
		a := newEventQueue(n)
		want := make([]int64, n)
		for i := range want {
			want[i] = never
		}
		rng := exact.Random(uint64(n))
		for range 2000 {
			earliest, at := int32(0), int64(never)
			for i, v := range want {
				if v < at {
					earliest, at = int32(i), v
				}
			}
			source, got := a.next()
			if got != at || (at != never && source != earliest) {
				t.Fatalf("%d sources: next is %d at %d, want %d at %d", n, source, got, earliest, at)
			}
			if n == 0 {
				break
			}
			i := rng.Below(uint64(n))
			want[i] = int64(rng.Below(50))
			if rng.Below(4) == 0 {
				want[i] = never
			}
			a.set(int32(i), want[i])
		}
	}
}

func TestSignalsTakeTurns(t *testing.T) {
	for n := uint32(1); n <= 4; n++ {
		for begin := uint32(0); begin < 4*n*n; begin += n {
			seen := map[uint8]bool{}
			for i := range n {
				seen[signalAt(begin+i, n)] = true
			}
			if len(seen) != int(n) {
				t.Errorf("%d signals: tags %d to %d carry only %d of them", n, begin, begin+n-1, len(seen))
			}
		}
		last := map[uint8]bool{}
		for i := n - 1; i < n*n; i += n {
			last[signalAt(i, n)] = true
		}
		if len(last) != int(n) {
			t.Errorf("%d signals: every %d-th tag carries only %d of them", n, n, len(last))
		}
	}
}

func TestPacingKeepsRateAndBursts(t *testing.T) {
	tests := []struct {
		name string
		pace pacing
		want int
	}{
		{"steady", pacing{gap: 1000, end: 1e6}, 1000},
		{"irregular", pacing{gap: 1000, end: 1e6, irregular: true}, 1000},
		{"from start to end", pacing{gap: 1000, start: 500_000, end: 700_000}, 200},
		{"bursts", pacing{gap: 1000, end: 1e6, period: 100_000, burst: 30_000}, 300},
		{"bursts shorter than a gap", pacing{gap: 1000, end: 100_000, period: 2000, burst: 100}, 50},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := tt.pace
			p.random = exact.Derive(9)
			n, last := 0, int64(-1)
			for at := p.first(); at != never; at = p.after(at) {
				if at <= last || at < p.start || at >= p.end {
					t.Fatalf("packet at %d after %d", at, last)
				}
				if p.period > 0 && (at-p.start)%p.period >= p.burst {
					t.Fatalf("packet at %d, outside the burst", at)
				}
				n, last = n+1, at
			}
			if n < tt.want*9/10 || n > tt.want*11/10 {
				t.Errorf("%d packets, want about %d", n, tt.want)
			}
		})
	}
}
