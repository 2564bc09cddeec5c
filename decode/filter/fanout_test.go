package filter

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"golang.org/x/net/bpf"

	"github.com/csigscope/csigscope/capture/livetest"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/replay/emitter/emittertest"
)

// fanoutMachine runs a fanout program on whole frames, as for sent frames.
func fanoutMachine(t *testing.T, cfg Config) func(frame []byte) int {
	t.Helper()
	code, err := buildFanout(cfg, func(a *assembler) {
		a.emit(bpf.LoadConstant{Dst: bpf.RegX, Val: 14}, bpf.LoadAbsolute{Off: 12, Size: 2})
	})
	if err != nil {
		t.Fatal(err)
	}
	vm, err := bpf.NewVM(code)
	if err != nil {
		t.Fatal(err)
	}
	return func(frame []byte) int {
		n, err := vm.Run(frame)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
}

// TestFanoutKeepsPairsTogether: all frames about a pair of hosts, from both of them, go to one
// place, whatever tags and tunnels are around them.
func TestFanoutKeepsPairsTogether(t *testing.T) {
	cfg := Config{Decode: decode.Config{Domain: domain(t, nil)}}
	hash := fanoutMachine(t, cfg)
	d, err := decode.New(cfg.Decode)
	if err != nil {
		t.Fatal(err)
	}
	type pair [2][16]byte
	of := map[pair]int{}
	var r decode.Result
	for _, frame := range emittertest.EveryEncapsulation(t) {
		d.Decode(frame, &r)
		if r.N == 0 || r.Obs[0].Flags&decode.HasAddrs == 0 {
			continue
		}
		p := pair{r.Obs[0].Src, r.Obs[0].Dst}
		if string(p[0][:]) > string(p[1][:]) {
			p[0], p[1] = p[1], p[0]
		}
		h := hash(frame)
		if before, known := of[p]; known && before != h {
			t.Fatalf("a pair of hosts is in two places:\n%x", frame)
		}
		if of[p] = h; h == 0 {
			t.Errorf("no hash of:\n%x", frame)
		}
	}
	if len(of) < 8 {
		t.Errorf("%d pairs", len(of))
	}
}

// TestFanoutSpreads distributes the pairs of neighboring hosts evenly.
func TestFanoutSpreads(t *testing.T) {
	hash := fanoutMachine(t, Config{Decode: decode.Config{Domain: domain(t, nil)}})
	for _, rings := range []int{2, 3, 4, 8} {
		counts := make([]int, rings)
		const pairs = 8192
		r := rand.New(rand.NewPCG(1, 2))
		for range pairs {
			f := livetest.Plain(1, 2, 60)
			binary.BigEndian.PutUint16(f[28:], uint16(r.Uint32N(1<<10)))
			binary.BigEndian.PutUint16(f[32:], uint16(r.Uint32N(1<<10)))
			counts[hash(livetest.Tagged(f, 0x9900<<16))%rings]++
		}
		for ring, n := range counts {
			if fair := pairs / rings; n < fair*3/4 || n > fair*5/4 {
				t.Errorf("ring %d of %d: %d pairs, want about %d", ring, rings, n, fair)
			}
		}
	}
}
