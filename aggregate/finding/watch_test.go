package finding

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

func newWatcher(t *testing.T, file string, change func(*Config)) *Watcher {
	t.Helper()
	w, err := NewWatcher(configured(t, ports{}, change), file)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// show passes an observation of a host.
func (w *Watcher) show(host byte, why aggregate.WatchReason, tag csig.Tag, at aggregate.LocationID) {
	o := decode.Observation{TimeNS: 100 + int64(host), Packet: uint64(host), Kind: decode.Tag, Flags: decode.HasAddrs, Tag: tag}
	o.Src, o.Dst = netip.MustParseAddr(fmt.Sprintf("10.0.0.%d", host)).As16(), netip.MustParseAddr("10.9.9.9").As16()
	w.Watched([]aggregate.Watched{{Observation: &o, Why: why, Location: at}})
}

// text returns the findings.
func (w *Watcher) text() string {
	var out []string
	for _, f := range w.Findings() {
		out = append(out, fmt.Sprint(f.Kind, " ", f.Subject, " ", f.Count))
	}
	return strings.Join(out, ", ")
}

func TestWatcher(t *testing.T) {
	t.Parallel()
	abw := csig.Tag{Layout: wide, T: 0, S: 20_000_000 >> 16, LM: 12} // of ports of 1 Gbit/s
	delay := csig.Tag{Layout: wide, T: 2, S: 7, LM: 99}
	for _, test := range []struct {
		name string
		show func(*Watcher)
		want string
	}{
		{"source", func(w *Watcher) { w.show(3, aggregate.WatchedSource, delay, 0) }, "unauthorised-sender 10.0.0.3 1"},
		{"sent", func(w *Watcher) { w.show(3, aggregate.WatchedSent, delay, 0) }, "forged-value 10.0.0.3 1"},
		{"orphan", func(w *Watcher) { w.show(3, aggregate.WatchedOrphan, delay, 0) }, "orphan-tag wide/uec050 1"},
		{"reserved", func(w *Watcher) { w.show(3, aggregate.WatchedReserved, delay, 0) }, "reserved-bits wide/uec050 1"},
		{"unknown", func(w *Watcher) { w.show(3, aggregate.WatchedValue, delay, 1099) }, "unknown-locator unknown lm 99 1"},
		{"a port", func(w *Watcher) { w.show(3, aggregate.WatchedValue, csig.Tag{Layout: wide, T: 2, S: 7, LM: 12}, 12) }, ""},
		{"above", func(w *Watcher) {
			w.show(3, aggregate.WatchedValue, csig.Tag{Layout: wide, T: 0, S: 1 << 19, LM: 12}, 12)
		}, "above-capacity leaf1:up12 1"},
		{"within", func(w *Watcher) { w.show(3, aggregate.WatchedValue, csig.Tag{Layout: wide, T: 0, S: 1, LM: 12}, 12) }, ""},
		{"two", func(w *Watcher) {
			w.show(3, aggregate.WatchedSource, abw, 0)
			w.show(3, aggregate.WatchedOrphan, abw, 0)
			w.show(3, aggregate.WatchedSource, abw, 0)
		}, "unauthorised-sender 10.0.0.3 2, orphan-tag wide/uec050 1"},
	} {
		w := newWatcher(t, "a.pcap", nil)
		test.show(w)
		if got := w.text(); got != test.want {
			t.Errorf("%s: found %q, want %q", test.name, got, test.want)
		}
		for _, f := range w.Findings() {
			if !strings.Contains(f.Evidence, f.Subject) || len(f.Packets) == 0 || f.Packets[0] != (Packet{"a.pcap", 3}) || f.From != 103 || f.To != 103 {
				t.Errorf("%s: %+v", test.name, f)
			}
		}
	}
}

// TestWatcherFrom compares the least watched code with a check of each code.
func TestWatcherFrom(t *testing.T) {
	t.Parallel()
	w := newWatcher(t, "", nil)
	for _, layout := range []csig.Layout{ietf, uec, wide} {
		for signal := range uint8(4) {
			table := w.cfg.Domain.Table(layout, signal)
			if table == nil {
				continue
			}
			for _, capacity := range []uint64{0, 1, 1_000_000, 100_000_000, 1 << 50} {
				from := w.WatchFrom(table, 12, capacity)
				for code := uint32(0); code < table.Codes(); code += 1 + table.Codes()/2000 {
					low, _, _ := table.Range(code)
					if is := above(table.Signal(), low, capacity); is != (code >= from) {
						t.Fatalf("%v type %d, capacity %d: code %d above %t, watched from %d", layout, signal, capacity, code, is, from)
					}
				}
			}
			if from := w.WatchFrom(table, 5000, 0); from != 0 {
				t.Errorf("%v type %d: an unknown location is watched from %d", layout, signal, from)
			}
		}
	}
}

// TestWatcherBounds: past the bound of subjects everything is counted, in one more; a resumed
// Watcher continues the counts, and a new start does not.
func TestWatcherBounds(t *testing.T) {
	t.Parallel()
	w := newWatcher(t, "", func(c *Config) { c.MaxSubjects = 4 })
	for i := range 1000 {
		w.show(byte(i%100), aggregate.WatchedSource, csig.Tag{Layout: wide}, 0)
	}
	n := func(list []Finding) (sum uint64) {
		for _, f := range list {
			sum += f.Count
			if len(f.Packets) > 0 {
				t.Errorf("live packets have numbers: %+v", f)
			}
			if others := OverflowFinding(f.Kind); f.ID == others.ID && f.Evidence != others.Evidence {
				t.Errorf("others: %+v", f)
			}
		}
		return sum
	}
	list := w.Findings()
	if len(list) != 5 || n(list) != 1000 {
		t.Errorf("%d of 1000 in %d findings", n(list), len(list))
	}
	next := newWatcher(t, "", func(c *Config) { c.MaxSubjects = 4 })
	next.Resume(list)
	for i := range 100 {
		next.show(byte(50+i%100), aggregate.WatchedSource, csig.Tag{Layout: wide}, 0)
	}
	if got := next.Findings(); len(got) != 5 || n(got) != 1100 || n(list) != 1000 {
		t.Errorf("%d of 1100 in %d findings, %d before", n(got), len(got), n(list))
	}
	if next.Begin(""); len(next.Findings()) != 0 {
		t.Errorf("begun with %s", next.text())
	}
}

// TestWatcherAllocs: a known subject needs no memory.
func TestWatcherAllocs(t *testing.T) {
	w := newWatcher(t, "a.pcap", func(c *Config) { c.Senders = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")} })
	var list []aggregate.Watched
	for why := aggregate.WatchedSource; why <= aggregate.WatchedSent; why++ {
		o := decode.Observation{Flags: decode.HasAddrs, Kind: decode.Tag, Tag: csig.Tag{Layout: wide, T: 2, S: 7, LM: 99}}
		list = append(list, aggregate.Watched{Observation: &o, Why: why, Location: 1099})
	}
	for range maxPackets {
		w.Watched(list)
	}
	if n := testing.AllocsPerRun(100, func() { w.Watched(list) }); n != 0 || len(w.Findings()) != 5 {
		t.Errorf("%v allocations, found %s", n, w.text())
	}
}
