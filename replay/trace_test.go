package replay_test

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/hop"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay"
	"github.com/csigscope/csigscope/replay/emitter/emittertest"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// traced returns the hops between two taps, into leaf1 and into leaf2. The second tap's clock
// differs.
func traced(t *testing.T, name string, offset time.Duration, ppb int64, jitter time.Duration) []replay.Hop {
	t.Helper()
	s := emittertest.Named(t, name)
	s.Duration, s.CaptureUntagged = time.Second, true
	s.Taps = []scenario.Tap{
		{Name: "a", Before: []string{"leaf1"}},
		{Name: "b", Before: []string{"leaf2"}, Offset: offset, Drift: ppb, Jitter: jitter},
	}
	dir := t.TempDir()
	report := emittertest.Run(t, s, dir)
	_, domain := emittertest.Network(t, report.Fabric)
	cfg := replay.TraceConfig{
		Files:  []string{filepath.Join(dir, "a.pcapng"), filepath.Join(dir, "b.pcapng")},
		Decode: decode.Config{Domain: domain}, Error: jitter,
	}
	run := func(limit int) []replay.Hop {
		cfg.MaxPackets = limit
		traced, err := replay.Trace(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		return traced.Hops
	}
	if once, again := run(12_000), run(12_000); !reflect.DeepEqual(once, again) {
		t.Errorf("a sample says %+v, and again %+v", once, again)
	}
	return run(0)
}

// Clock offset and queueing delay between two taps must be told apart, and the bound must hold.
func TestTraceClocks(t *testing.T) {
	t.Parallel()
	const offset, ppb, jitter = time.Millisecond, 20_000, 5 * time.Microsecond
	hops := traced(t, "alltoall", offset, ppb, jitter)
	if len(hops) != 1 || hops[0].Clock == nil || hops[0].Clock.OneWay {
		t.Fatalf("%+v", hops)
	}
	h := hops[0]
	if n := h.Forward.Packets + h.Backward.Packets; n < 10_000 {
		t.Errorf("%d packets passed both taps, too few for the goals", n)
	}
	start := time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC).UnixNano()
	truth := float64(offset) + float64(h.Clock.At-start)*ppb/1e9
	low, high := h.Clock.Bound(h.Clock.At)
	t.Logf("%d forward, %d backward: %s; true offset %s; delays %s, %s", h.Forward.Packets, h.Backward.Packets, h, time.Duration(truth), h.Forward.Median, h.Backward.Median)
	if truth < low || truth > high || h.Clock.DriftLow > ppb || h.Clock.DriftHigh < ppb {
		t.Errorf("the truth is beyond the bound: offset %g of %g to %g, drift %d of %g to %g", truth, low, high, ppb, h.Clock.DriftLow, h.Clock.DriftHigh)
	}
	if math.Abs(h.Clock.Offset-truth) > 2000 {
		t.Errorf("offset %g ns, want %g within 2 us", h.Clock.Offset, truth)
	}
	if math.Abs(h.Clock.Drift-ppb) > 1000 || h.Clock.Queued {
		t.Errorf("drift %g ± %g ppb, want %d within 1 ppm", h.Clock.Drift, h.Clock.DriftError, ppb)
	}
	if h.Forward.Median <= 0 || h.Backward.Median <= 0 || h.Forward.Longest < h.Forward.P99 || h.Forward.P99 < h.Forward.Median {
		t.Errorf("delays %+v, %+v", h.Forward, h.Backward)
	}
}

// Tags that change between two taps must get the locator metadata of ports between the taps.
func TestTraceChanges(t *testing.T) {
	t.Parallel()
	h := traced(t, "ring", 0, 0, 0)
	if len(h) != 1 || h[0].Forward.Tagged == 0 || len(h[0].Forward.Changes) == 0 {
		t.Fatalf("%+v", h)
	}
	changed := 0
	for _, c := range h[0].Forward.Changes {
		if changed += c.Count; c.LM == 0 {
			t.Errorf("a value without a port: %+v", c)
		}
	}
	if changed > h[0].Forward.Tagged {
		t.Errorf("%d of %d tags changed", changed, h[0].Forward.Tagged)
	}
}

// TestTraceOrder: a capture of many other packets, which are sampled, does not reduce the packets that
// two others have in common, in any order of files.
func TestTraceOrder(t *testing.T) {
	t.Parallel()
	const common, limit = 400, 500
	dir := t.TempDir()
	write := func(name string, n int, ttl, net byte) string {
		var out bytes.Buffer
		w := capture.NewWriter(&out, capture.Interface{Name: name, Link: capture.LinkEthernet})
		for i := range n {
			ip := []byte{0x45, 0, 0, 30, byte(i >> 8), byte(i), 0, 0, ttl, 17, 0, 0, 10, 0, net, 1, 10, 0, net, 2, 0, 7, 0, 8, 0, 10, 0, 0, byte(i >> 8), byte(i)}
			f := capture.Frame{Data: append(make([]byte, 12, 44), append([]byte{8, 0}, ip...)...), TimeNS: 1e18 + int64(i)*1e5 + int64(64-ttl)*1000, WireLen: 44}
			if err := w.Write(&f, ""); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	a, b, others := write("a", common, 64, 1), write("b", common, 62, 1), write("c", 20_000, 64, 2)
	domain, err := csig.DefaultSpec().Compile()
	if err != nil {
		t.Fatal(err)
	}
	for _, files := range [][]string{{a, b, others}, {a, others, b}, {others, a, b}, {others, b, a}} {
		traced, err := replay.Trace(t.Context(), replay.TraceConfig{Files: files, Decode: decode.Config{Domain: domain}, MaxPackets: limit})
		if err != nil || len(traced.Hops) != 1 || traced.Hops[0].Common() != common {
			t.Errorf("%v: %+v, %v", files, traced, err)
		}
	}
	// Samples of all three are small. The same packets remain in any order.
	counts := map[int]bool{}
	for _, files := range [][]string{{a, b, others}, {others, b, a}} {
		traced, err := replay.Trace(t.Context(), replay.TraceConfig{Files: files, Decode: decode.Config{Domain: domain}, MaxPackets: 399})
		if err != nil || len(traced.Hops) != 1 {
			t.Fatalf("%v: %+v, %v", files, traced, err)
		}
		counts[traced.Hops[0].Common()] = true
	}
	if len(counts) != 1 {
		t.Errorf("packets in common by order: %v", counts)
	}
}

// TestTraceLists: a trace prints the most frequent locations, and how many are left.
func TestTraceLists(t *testing.T) {
	t.Parallel()
	domain, err := csig.DefaultSpec().Compile()
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range map[uint16]string{
		6: ", 2 at lm:wide/uec050:2, 1 at lm:wide/uec050:1\n",
		7: ", 3 at lm:wide/uec050:3, 3 at 2 more locations (-o json lists all)\n",
	} {
		h := replay.Hop{From: "a", To: "b", Comparison: new(hop.Comparison)}
		for lm := uint16(1); lm <= n; lm++ {
			h.Forward.Changes = append(h.Forward.Changes, hop.Change{Changed: hop.Changed{Layout: csig.Layout{Format: csig.Wide, Profile: csig.UEC050}, LM: lm}, Count: int(lm)})
		}
		traced := replay.Traced{Hops: []replay.Hop{h}}
		var b strings.Builder
		if err := traced.Located(fabric.None(domain)).WriteText(&b); err != nil || !strings.Contains(b.String(), want) {
			t.Errorf("%d locations: %s%v", n, b.String(), err)
		}
	}
}
