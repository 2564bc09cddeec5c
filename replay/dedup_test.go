package replay_test

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/replay"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// TestDedup checks that frames captured twice count once, however the files are read, and that all
// frames are accounted for. Without Dedup they count twice.
func TestDedup(t *testing.T) {
	t.Parallel()
	tap := scenario.Tap{Racks: true}
	once := record(t, func(s *scenario.Scenario) { s.Taps = []scenario.Tap{tap}; classic(s) })
	tap.Duplicate = scenario.WholeShare / 50
	twice := record(t, func(s *scenario.Scenario) { s.Taps = []scenario.Tap{tap}; classic(s) })
	want := replayed(t, once.config(new(blocks)))
	for _, test := range []struct {
		dedup   time.Duration
		pace    float64
		workers int
	}{{0, 0, 1}, {time.Millisecond, 0, 1}, {time.Millisecond, 0, 3}, {time.Millisecond, 1e9, 1}} {
		cfg := twice.config(new(blocks))
		cfg.Dedup, cfg.Pace, cfg.Workers, cfg.ChunkBytes = test.dedup, test.pace, test.workers, 100_000
		got := replayed(t, cfg)
		copies := got.Packets - want.Packets
		switch {
		case copies < want.Packets/100 || !got.Conserved():
			t.Errorf("%+v: %d of %d packets twice, conserved %t", test, copies, got.Packets, got.Conserved())
		case test.dedup == 0 && (got.Repeated != 0 || got.Counts.In <= want.Counts.In):
			t.Errorf("without: %d left out, %d observations of %d", got.Repeated, got.Counts.In, want.Counts.In)
		case test.dedup > 0 && got.Repeated != copies:
			t.Errorf("%+v: %d of %d left out", test, got.Repeated, copies)
		case test.dedup > 0:
			if diff := cmp.Diff(want.Counts, got.Counts); diff != "" {
				t.Errorf("%+v: (-once +twice)\n%s", test, diff)
			}
		}
	}
	cfg := twice.config(new(blocks))
	if cfg.Dedup = -1; func() error { _, err := replay.New(cfg); return err }() == nil {
		t.Error("a time below 0 is taken")
	}
}

// TestExaminedDedup checks that frames which are left out count nowhere, least of all at the packet
// after them: here 10.0.0.1 sends each acknowledgement with an empty reflection twice, and 10.0.0.2
// only tags.
func TestExaminedDedup(t *testing.T) {
	const n = 30
	empty := slices.Concat(tagged(0)[:12], []byte{8, 0, 0x45, 0, 0, 44, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 1, 1},
		[]byte{0, 1, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 0x60, 0x10, 1, 0, 0, 0, 0, 0}, []byte{253, 4, 0xc5, 0x16})
	other := tagged(1)
	other[33] = 2
	var file bytes.Buffer
	w := capture.NewWriter(&file, capture.Interface{Link: capture.LinkEthernet})
	for i := range int64(n) {
		for k, data := range [][]byte{empty, empty, other} {
			if err := w.Write(&capture.Frame{Data: data, TimeNS: (i+1)*1e9 + int64(k)*1000, WireLen: uint32(len(data))}, ""); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	last := func(a netip.Addr) aggregate.GroupID {
		return aggregate.GroupID(a.As4()[3])<<8 | aggregate.GroupID(a.As4()[2])
	}
	for _, test := range []struct {
		dedup time.Duration
		want  uint64
	}{{0, 2 * n}, {time.Millisecond, n}} {
		e := examineDefault(t, func(c *replay.ExamineConfig) { c.Group, c.Dedup = last, test.dedup }, file.Bytes())
		if e.Repeated != n || e.Packets != 3*n || e.Decoded.Frames != test.want+n || e.Decoded.EmptyReflections != test.want || e.Observations != n {
			t.Errorf("%s: %d repeated of %d, decoded %+v", test.dedup, e.Repeated, e.Packets, e.Decoded)
		}
		want := []replay.GroupPackets{{Src: 0x101, Dst: 0x100, Incapable: test.want}, {Src: 0x200, Dst: 0x101, Tagged: n}}
		slices.SortFunc(e.Pairs, func(a, b replay.GroupPackets) int { return int(a.Src) - int(b.Src) })
		if diff := cmp.Diff(want, e.Pairs); diff != "" {
			t.Errorf("%s: pairs (-want +got)\n%s", test.dedup, diff)
		}
	}
}
