package filter_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/net/bpf"

	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/capture/livetest"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/decode/filter"
	"github.com/csigscope/csigscope/replay/emitter/emittertest"
)

func programs(t *testing.T) (cfg filter.Config, pass, fanout []bpf.RawInstruction) {
	t.Helper()
	dom, err := csig.DefaultSpec().Compile()
	if err != nil {
		t.Fatal(err)
	}
	cfg = filter.Config{Decode: decode.Config{Domain: dom}}
	if pass, err = filter.New(cfg); err != nil {
		t.Fatal(err)
	}
	if fanout, err = filter.Fanout(cfg); err != nil {
		t.Fatal(err)
	}
	return cfg, pass, fanout
}

func open(t *testing.T, cfg capture.TapConfig) *capture.Tap {
	t.Helper()
	cfg.BlockSize, cfg.Retire = 256<<10, 100*time.Millisecond // frames are sent before they are read
	tap, err := capture.NewTap(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := tap.Open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tap.Close() })
	return tap
}

// drain decodes the frames waiting in a ring, and counts the results by their printed form.
func drain(t *testing.T, cfg decode.Config, r *capture.Ring, said map[string]int) (frames int) {
	t.Helper()
	d, err := decode.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var b capture.Batch
	var res decode.Result
	for idle := 0; idle < 15; {
		if err := r.ReadBatch(&b); err != nil {
			t.Fatal(err)
		}
		if idle++; b.N > 0 {
			idle = 0
		}
		frames += b.N
		for i := range b.N {
			f := &b.Frames[i]
			d.DecodeFrame(decode.Framing{Link: decode.Ethernet}, &decode.Frame{Data: f.Data, WireLen: f.WireLen, TPID: f.TPID, TCI: f.TCI}, &res)
			note(&res, said)
		}
	}
	return frames
}

func note(r *decode.Result, said map[string]int) {
	for i := range r.Obs[:r.N] {
		r.Obs[i].Bytes = 0 // Decode does not set it
		said[fmt.Sprint(r.Obs[i], r.Encap.Layers())]++
	}
}

// TestKernelPassesWhatDecodes sends frames of every encapsulation through the kernel's filter:
// decoding a tap's frames gives the same as decoding all frames, and frames without CSIG never
// reach the tap.
func TestKernelPassesWhatDecodes(t *testing.T) {
	if !livetest.InNamespace(t) {
		return
	}
	cfg, pass, fanout := programs(t)
	livetest.MakeLink(t)
	frames := emittertest.EveryEncapsulation(t)
	d, err := decode.New(cfg.Decode)
	if err != nil {
		t.Fatal(err)
	}
	want, something := map[string]int{}, 0
	var r decode.Result
	for _, f := range frames {
		d.Decode(f, &r)
		note(&r, want)
		if r.N > 0 || r.Reason == decode.Hidden {
			something++
		}
	}
	for rings := 1; rings <= 2; rings++ {
		tap := open(t, capture.TapConfig{Interface: livetest.TapEnd, Filter: pass, Fanout: fanout, Rings: rings})
		livetest.NewSender(t, livetest.SendEnd).Send(frames...)
		got, arrived := map[string]int{}, 0
		for _, ring := range tap.Rings() {
			n := drain(t, cfg.Decode, ring, got)
			if arrived += n; n == 0 {
				t.Error("a ring got nothing")
			}
		}
		if arrived != something || something < 100 || something > len(frames)*3/4 {
			t.Errorf("%d of %d frames arrived, want %d", arrived, len(frames), something)
		}
		differ := 0
		for said, n := range want {
			if got[said] != n {
				differ++
			}
		}
		if differ > 0 || len(got) != len(want) {
			t.Errorf("%d of %d different observations differ in number, of %d", differ, len(want), len(got))
		}
		if err := tap.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestKernelFansOutBothWays sends frames of one pair of hosts in both directions, received and
// sent: one ring gets them all.
func TestKernelFansOutBothWays(t *testing.T) {
	if !livetest.InNamespace(t) {
		return
	}
	cfg, pass, fanout := programs(t)
	livetest.MakeLink(t)
	tap := open(t, capture.TapConfig{Interface: livetest.TapEnd, Filter: pass, Fanout: fanout, Rings: 2, Outgoing: true})
	received, sent := livetest.NewSender(t, livetest.SendEnd), livetest.NewSender(t, livetest.TapEnd)
	const pairs = 32
	for host := range pairs {
		received.Send(livetest.Tagged(livetest.Plain(100, host, 60), 0x8100<<16|5, 0x9900<<16))
		sent.Send(livetest.Tagged(livetest.Plain(host, 100, 60), 0x9900<<16))
	}
	var counts []int
	for _, ring := range tap.Rings() {
		said := map[string]int{}
		counts = append(counts, drain(t, cfg.Decode, ring, said))
		if counts[len(counts)-1]%2 != 0 {
			t.Errorf("a pair is in two rings: %v", counts)
		}
	}
	if counts[0]+counts[1] != 2*pairs || slices.Min(counts) < pairs/4 {
		t.Errorf("frames by ring: %v, want %d in all", counts, 2*pairs)
	}
}
