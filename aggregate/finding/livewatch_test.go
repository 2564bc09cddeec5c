package finding

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// long passes tags of packets of a length, and sets how many of each window have a value at a port.
func (w *Watcher) long(n int, bytes uint32, d bool) {
	for range n {
		o := decode.Observation{TimeNS: 1e18, Kind: decode.Tag, Flags: decode.HasAddrs, Bytes: bytes, Tag: csig.Tag{Layout: wide, T: 2, S: 7, LM: 12, D: d}}
		w.Watched([]aggregate.Watched{{Observation: &o, Why: aggregate.WatchedLength}})
	}
}

// TestWatcherLive: the faults of one tap that it shows itself, and those of D.
func TestWatcherLive(t *testing.T) {
	t.Parallel()
	encoding := aggregate.Encoding(wide.Index())
	values := func(w *Watcher) {
		w.close(encoding, time.Second, 1, wrote{window: 1, at: 12, min: 100, max: 9000, n: 100, heavy: 1})
	}
	for _, test := range []struct {
		name string
		show func(*Watcher)
		want string
	}{
		{"clock set back", func(w *Watcher) {
			w.ObserveTime(2e9)
			for i := range int64(2 * staysBack) {
				w.ObserveTime(1e9 + i)
			}
		}, "clock-set a 1"},
		{"clock set back twice", func(w *Watcher) {
			for start := int64(9e9); start > 6e9; start -= 1e9 {
				for i := range int64(2 * staysBack) {
					w.ObserveTime(start + i)
				}
			}
		}, "clock-set a 2"},
		{"frames out of order", func(w *Watcher) {
			for i := range int64(2 * staysBack) {
				w.ObserveTime(2e9 + i)
				w.ObserveTime(1e9 + i)
			}
		}, ""},
		{"frames twice", func(w *Watcher) {
			for i := range int64(1000) {
				w.ObserveContent(i*1e7, uint64(i), i%40 == 0)
			}
		}, "duplicate-frames a 23"}, // those of the last second are pending
		{"frames three times", func(w *Watcher) {
			for i := range int64(1000) {
				w.ObserveContent(i*1e7, uint64(i), false)
				for range 2 * (1 - min(i%40, 1)) {
					w.ObserveContent(i*1e7+1e5, uint64(i), true)
				}
			}
		}, "duplicate-frames a 46"},
		{"frames twice, before and after the clock is set back", func(w *Watcher) {
			w.ObserveContent(3600e9, 1<<20, true)
			for i := range int64(1000) {
				w.ObserveContent(i*1e7, uint64(i), i%40 == 0)
			}
		}, "duplicate-frames a 24"},
		{"equal frames of a sender", func(w *Watcher) {
			for i := range int64(100_000) {
				w.ObserveContent(i*5e5, 7, i > 0)
			}
		}, ""},
		{"the same bytes now and then", func(w *Watcher) {
			for i := range int64(40_000) {
				w.ObserveContent(i*1e6, uint64(i), i%1500 == 1499)
			}
		}, ""},
		{"whole packets with D", func(w *Watcher) {
			w.long(1, 1400, false)
			w.long(30, 1400, true)
			values(w)
		}, "trim-invented wide/uec050 30"},
		{"until a window ends", func(w *Watcher) {
			w.long(1, 1400, false)
			w.long(30, 1400, true)
		}, ""},
		{"a longer one comes later", func(w *Watcher) {
			w.long(1, 320, false)
			w.long(30, 320, true)
			w.long(1, 1400, false)
			values(w)
		}, ""},
		{"trimmed to the headers, as long as others", func(w *Watcher) {
			w.long(1, 100, false)
			w.long(30, 100, true)
			values(w)
		}, ""},
		{"a layout that is misread", func(w *Watcher) {
			w.long(1, 1400, false)
			w.long(30, 1400, true)
			for range 20 {
				w.show(3, aggregate.WatchedValue, csig.Tag{Layout: wide, T: 2, S: 7, LM: 99}, 1099)
			}
			values(w)
		}, "unknown-locator unknown lm 99 20"},
	} {
		w := newWatcher(t, "", nil)
		w.Live("a")
		if test.show(w); w.text() != test.want {
			t.Errorf("%s: found %q, want %q", test.name, w.text(), test.want)
		}
	}
}

// TestWatcherLiveSwap: exchanged locators of ports are found by flows of two times ten windows; a
// reroute, which looks the same once, is not.
func TestWatcherLiveSwap(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	src, dst := netip.MustParseAddr("10.0.1.1"), netip.MustParseAddr("10.0.3.1")
	routes, ok := n.cfg.Routes.Routes(src, dst, maxRoutes)
	if !ok || len(routes) < 2 || len(routes[0]) < 3 {
		t.Fatalf("routes %v", routes)
	}
	for _, test := range []struct {
		name string
		odd  func(window int64) bool
		want int
	}{
		{"swapped", func(int64) bool { return true }, 1},
		{"sound", func(int64) bool { return false }, 0},
		{"moved", func(window int64) bool { return window < swapWindows }, 0},
	} {
		w, err := NewWatcher(n.cfg, "")
		if err != nil {
			t.Fatal(err)
		}
		w.Live("a")
		for window := range int64(4 * swapWindows) {
			b := &aggregate.Block{Resolution: int64(time.Second), WindowStart: 1e18 + window*int64(time.Second)}
			for f := range 8 {
				at := []aggregate.LocationID{routes[f%2][0], routes[f%2][1]}
				if test.odd(window) {
					at[0] = routes[1-f%2][0]
				}
				for _, location := range at {
					row := aggregate.FlowRow{Kind: uint8(decode.Tag), Signal: uint8(csig.MaxDelay), Location: uint64(location), LocationHeavy: 5}
					row.Src, row.Dst, row.SrcPort = src.As16(), dst.As16(), uint16(f)
					b.Flows = append(b.Flows, row)
				}
			}
			w.Closed(b, 1)
		}
		list := w.Findings()
		if len(list) != test.want {
			t.Errorf("%s: found %s", test.name, w.text())
		}
		for _, f := range list {
			if f.Kind != SwappedLocators || len(f.Candidates) != 2 || f.Device == "" || f.Count != 3*swapWindows*8*2*5 || f.Of != 0 {
				t.Errorf("%s: %s: %+v", test.name, fmt.Sprint(f.Kind), f)
			}
		}
	}
}
