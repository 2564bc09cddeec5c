package finding

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// wrote is a row for a port in a window.
type wrote struct {
	window   int64 // number
	at       uint64
	min, max uint64
	n, heavy uint64
	trimmed  uint64
	least    uint64 // of a flow through the port, 0: min
	hidden   bool   // no known flow names the port
	left     uint64 // minimum bandwidth that the port reports, kbit/s; 0: unknown
	source   byte   // of all flows, 0: two
}

// from returns the row with all flows from one source.
func (r wrote) from(source byte) wrote {
	r.source = source
	return r
}

// steady returns n observations of one heavy value of port 12.
func steady(window int64, n uint64) wrote {
	return wrote{window: window, at: 12, min: 5000, max: 5000, n: n, heavy: n}
}

// close passes rows, those of one window as one block.
func (w *Watcher) close(encoding aggregate.Encoding, length time.Duration, weight uint64, rows ...wrote) {
	for i := 0; i < len(rows); {
		b := &aggregate.Block{Resolution: int64(length), WindowStart: 1e18 + rows[i].window*int64(length)}
		for at := rows[i].window; i < len(rows) && rows[i].window == at; i++ {
			r := &rows[i]
			b.Signal, b.Encoding = append(b.Signal, uint8(csig.MaxDelay)), append(b.Encoding, uint8(encoding))
			b.Location, b.Observations, b.Trimmed = append(b.Location, r.at), append(b.Observations, r.n), append(b.Trimmed, r.trimmed)
			b.Untouched = append(b.Untouched, 0)
			b.Min, b.Max, b.Heavy = append(b.Min, r.min), append(b.Max, r.max), append(b.Heavy, r.heavy)
			if r.left > 0 {
				b.Signal, b.Encoding, b.Location = append(b.Signal, uint8(csig.MinABW)), append(b.Encoding, uint8(encoding)), append(b.Location, r.at)
				b.Observations, b.Trimmed, b.Untouched = append(b.Observations, 5), append(b.Trimmed, 0), append(b.Untouched, 0)
				b.Min, b.Max, b.Heavy = append(b.Min, r.left), append(b.Max, 2*r.left), append(b.Heavy, 0)
			}
			for i := range byte(2) {
				if r.hidden {
					continue
				}
				f := aggregate.FlowRow{Signal: uint8(csig.MaxDelay), Location: r.at, Min: cmp.Or(r.least, r.min), Max: r.max}
				f.Src = netip.AddrFrom4([4]byte{10, 0, 0, cmp.Or(r.source, 1+i)}).As16()
				b.Flows = append(b.Flows, f)
			}
		}
		w.Closed(b, weight)
	}
}

// TestWatcherStuck: a port is stuck if for three windows it only writes one fine-grained, heavy
// value that is not the tightest.
func TestWatcherStuck(t *testing.T) {
	t.Parallel()
	encoding := aggregate.Encoding(wide.Index())
	last := func(w *Watcher) uint64 {
		return w.cfg.Domain.Table(wide, 2).Value(w.cfg.Domain.Table(wide, 2).Codes() - 1)
	}
	sound := wrote{window: 2, at: 12, min: 100, max: 9000, n: 3, heavy: 1}
	light := wrote{window: 2, at: 12, min: 100, max: 100, n: 3}
	for _, test := range []struct {
		name string
		show func(*Watcher)
		want string
	}{
		{"stuck", func(w *Watcher) { w.close(encoding, time.Second, 1, steady(1, 90), steady(2, 90), steady(3, 90)) }, "stuck-port leaf1:up12 max_delay 270"},
		{"of several cells", func(w *Watcher) {
			w.close(encoding, time.Second, 1, steady(1, 50), steady(1, 40), steady(2, 90), steady(3, 80), steady(3, 10), steady(4, 1))
		}, "stuck-port leaf1:up12 max_delay 271"},
		{"late ones", func(w *Watcher) {
			w.close(encoding, time.Second, 1, steady(1, 90), steady(2, 90), steady(3, 90), steady(2, 5))
		}, "stuck-port leaf1:up12 max_delay 275"},
		{"with pauses", func(w *Watcher) { w.close(encoding, time.Second, 1, steady(1, 90), steady(9, 90), steady(19, 90)) }, "stuck-port leaf1:up12 max_delay 270"},
		{"twice", func(w *Watcher) {
			w.close(encoding, time.Second, 1, steady(1, 90), steady(2, 90), steady(3, 90), sound, steady(5, 90), steady(6, 90), steady(7, 90))
		}, "stuck-port leaf1:up12 max_delay 540"},
		{"flows are known now and then", func(w *Watcher) {
			hidden := steady(2, 90)
			hidden.hidden = true
			w.close(encoding, time.Second, 1, steady(1, 90), hidden, steady(3, 90), steady(4, 90))
		}, "stuck-port leaf1:up12 max_delay 270"},
		{"no flows are known", func(w *Watcher) {
			for i := range int64(9) {
				hidden := steady(i, 90)
				hidden.hidden = true
				w.close(encoding, time.Second, 1, hidden)
			}
		}, ""},
		{"a flow through it has a better value", func(w *Watcher) {
			better := steady(3, 90)
			better.least = 4000
			w.close(encoding, time.Second, 1, steady(1, 90), steady(2, 90), better, steady(4, 90), steady(5, 90))
		}, ""},
		{"too few windows", func(w *Watcher) { w.close(encoding, time.Second, 1, steady(1, 900), steady(2, 900)) }, ""},
		{"late ones make no window", func(w *Watcher) { w.close(encoding, time.Second, 1, steady(1, 900), steady(2, 900), steady(1, 900)) }, ""},
		{"too few", func(w *Watcher) { w.close(encoding, time.Second, 1, steady(1, 60), steady(2, 60), steady(3, 60)) }, ""},
		{"each counts ten times", func(w *Watcher) { w.close(encoding, time.Second, 10, steady(1, 600), steady(2, 600), steady(3, 600)) }, ""},
		{"too long a pause", func(w *Watcher) { w.close(encoding, time.Second, 1, steady(1, 90), steady(13, 90), steady(14, 90)) }, ""},
		{"another value in a window", func(w *Watcher) {
			w.close(encoding, time.Second, 1, steady(1, 90), steady(2, 90), sound, steady(3, 90), steady(4, 90))
		}, ""},
		{"another value before it in a window", func(w *Watcher) {
			w.close(encoding, time.Second, 1, steady(1, 90), sound, steady(2, 90), steady(3, 90), steady(4, 90))
		}, ""},
		{"what is not heavy", func(w *Watcher) {
			w.close(encoding, time.Second, 1, steady(1, 90), light, steady(3, 90), steady(4, 90))
		}, ""},
		{"another value of another cell", func(w *Watcher) {
			other := steady(3, 90)
			other.min, other.max = 6000, 6000
			w.close(encoding, time.Second, 1, steady(1, 90), steady(2, 90), steady(3, 90), other, steady(4, 90))
		}, ""},
		{"another value in each window", func(w *Watcher) {
			for i := range int64(9) {
				r := steady(i, 90)
				r.min, r.max = 5000+uint64(i), 5000+uint64(i)
				w.close(encoding, time.Second, 1, r)
			}
		}, ""},
		{"a saturated port", func(w *Watcher) {
			for i := range int64(9) {
				r := steady(i, 90)
				r.min, r.max = last(w), last(w)
				w.close(encoding, time.Second, 1, r)
			}
		}, ""},
		{"trimmed ones", func(w *Watcher) {
			for i := range int64(9) {
				w.close(encoding, time.Second, 1, wrote{window: i, at: 12, n: 90, trimmed: 90})
			}
		}, ""},
		{"no port", func(w *Watcher) {
			for i := range int64(9) {
				r := steady(i, 90)
				r.at = 1099
				w.close(encoding, time.Second, 1, r)
			}
		}, ""},
		{"windows of another length", func(w *Watcher) {
			w.close(encoding, time.Minute, 1, steady(1, 90), steady(2, 90), steady(3, 90))
		}, ""},
	} {
		w := newWatcher(t, "", nil)
		test.show(w)
		if got := w.text(); got != test.want {
			t.Errorf("%s: found %q, want %q", test.name, got, test.want)
		}
		for _, f := range w.Findings() {
			if f.Device != "leaf1" || f.Port != "leaf1:up12" || f.From != 1e18+1e9 || f.To <= f.From || !strings.Contains(f.Evidence, "leaf1:up12 max_delay have the same value, 5 us") {
				t.Errorf("%s: %+v", test.name, f)
			}
		}
	}
}

// TestStuckCoarse: with 32 codes, a delay is stuck if it means a permanently long queue while the
// port always reports available bandwidth. A full queue and a steady load also give one value for a
// long time.
func TestStuckCoarse(t *testing.T) {
	t.Parallel()
	const found = "stuck-port leaf1:up12 max_delay 270"
	for _, test := range []struct {
		name   string
		change func(window int64, r *wrote)
		want   string
	}{
		{"bandwidth is left", func(int64, *wrote) {}, found},
		{"the longest delay", func(_ int64, r *wrote) { r.min, r.max = 1e9, 1e9 }, found},
		{"all of it is used at a time", func(window int64, r *wrote) {
			if window == 2 {
				r.left = 1
			}
		}, ""},
		{"nothing is known of it", func(_ int64, r *wrote) { r.left = 0 }, ""},
		{"nothing is known of it for a window", func(window int64, r *wrote) {
			if window == 2 {
				r.left = 0
			}
		}, ""},
		{"a few large packets", func(_ int64, r *wrote) { r.min, r.max = 200_000, 200_000 }, ""},
		{"two delays", func(_ int64, r *wrote) { r.max = 2 * r.min }, ""},
		{"a flow through it has a better value", func(_ int64, r *wrote) { r.least = 4000 }, ""},
	} {
		w := newWatcher(t, "", nil)
		for i := range int64(3) {
			r := steady(i, 90)
			r.min, r.max, r.left = 400_000, 400_000, 100_000_000
			test.change(i+1, &r)
			w.close(aggregate.Encoding(uec.Index()), time.Second, 1, r)
		}
		if got := w.text(); got != test.want {
			t.Errorf("%s: found %q, want %q", test.name, got, test.want)
		}
	}
}

// TestStuckOfOneSource: if all flows that name a port have one source, that may write the value
// itself, until another source has it too.
func TestStuckOfOneSource(t *testing.T) {
	t.Parallel()
	w := newWatcher(t, "", nil)
	for i, test := range []struct {
		source     byte
		port       string
		candidates []string
	}{
		{1, "", nil},
		{1, "", nil},
		{1, "", []string{"leaf1:up12", "10.0.0.1"}},
		{0, "leaf1:up12", nil},
		{1, "leaf1:up12", nil},
	} {
		w.close(aggregate.Encoding(wide.Index()), time.Second, 1, steady(int64(i), 100).from(test.source))
		for _, f := range w.Findings() {
			if f.Port != test.port || !slices.Equal(f.Candidates, test.candidates) {
				t.Errorf("after %d s: %+v", i+1, f)
			}
		}
		if n := len(w.Findings()); (n > 0) != (i >= 2) {
			t.Errorf("after %d s: %d findings", i+1, n)
		}
	}
}

// TestStuckOfDetector: a Detector has the stuck ports of its taps' windows, each port once, except
// those of a misread layout, and no other findings of its Watchers.
func TestStuckOfDetector(t *testing.T) {
	t.Parallel()
	s := newShown(t, func(c *Config) { c.Senders = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")} })
	for range 1000 {
		s.see(1, csig.Tag{Layout: wide, T: 2})
	}
	for _, name := range []string{"tap1", "tap2"} {
		w := s.Windows(&Tap{Name: name})
		for i := range int64(4) {
			w.close(aggregate.Encoding(wide.Index()), time.Second, 1, steady(i, 100))
		}
		w.show(3, aggregate.WatchedOrphan, csig.Tag{Layout: wide}, 0)
		if w.Suspicious(netip.MustParseAddr("192.0.2.1")) || w.WatchFrom(s.cfg.Domain.Table(wide, 2), 1099, 0) != aggregate.NotWatched {
			t.Error("the Watcher is shown what the Detector observes")
		}
	}
	if f := s.Findings(); len(f) != 1 || f[0].Kind != StuckPort || f[0].Count != 800 || f[0].Of < f[0].Count {
		t.Errorf("found %+v", f)
	}
	for range 10_000 { // the captures end before the packet
		s.Observe(&s.tap, &decode.Observation{Kind: decode.Tag, Tag: csig.Tag{Layout: wide}, Flags: decode.Cut})
	}
	if got := s.kinds(); strings.Contains(got, "wrong-format") {
		t.Errorf("of cut packets: found %q", got)
	}
	for range 10_000 { // no packet follows
		s.Observe(&s.tap, &decode.Observation{Kind: decode.Tag, Tag: csig.Tag{Layout: wide}})
	}
	if got := s.kinds(); got != "wrong-format wide/uec050" {
		t.Errorf("of a layout that is misread: found %q", got)
	}
}

// TestWatcherStuckGoesOn: wherever one Watcher continues another one, the findings are the same.
func TestWatcherStuckGoesOn(t *testing.T) {
	t.Parallel()
	encoding := aggregate.Encoding(wide.Index())
	for cut := range int64(8) {
		w := newWatcher(t, "", nil)
		for i := range int64(8) {
			if i == cut {
				next := newWatcher(t, "", nil)
				next.Resume(w.Findings())
				next.ResumeRuns(w.Runs())
				w = next
			}
			w.close(encoding, time.Second, 1, steady(i, 100))
		}
		if got := w.text(); got != "stuck-port leaf1:up12 max_delay 800" {
			t.Errorf("cut at %d: %s", cut, got)
		}
	}
}

// anywhere is a locator for which each location is a port.
type anywhere struct{ ports }

func (anywhere) Location(id aggregate.LocationID) (fabric.Location, bool) {
	return fabric.Location{ID: id, Name: fmt.Sprint("leaf1:up", id), Kind: fabric.KindPort, Device: "leaf1"}, true
}

// steadyPorts returns windows in which n ports, from first on, write one value.
func steadyPorts(window int64, first, n int) []wrote {
	list := make([]wrote, n)
	for i := range list {
		list[i] = steady(window, 100)
		list[i].at = uint64(first + i)
	}
	return list
}

// TestWatcherStuckBounds: ports past the bound are not tracked, findings past it become others, and
// windows without anything unusual need no memory.
func TestWatcherStuckBounds(t *testing.T) {
	w := newWatcher(t, "", func(c *Config) { c.Locator, c.MaxSubjects = anywhere{}, 4 })
	encoding := aggregate.Encoding(wide.Index())
	for window := range int64(4) {
		w.close(encoding, time.Second, 1, steadyPorts(window, 1, maxRuns+100)...)
	}
	sum := uint64(0)
	for _, f := range w.Findings() {
		if sum += f.Count; f.Subject == beyond && (f.ID != OverflowFinding(StuckPort).ID || f.Evidence != OverflowFinding(StuckPort).Evidence) {
			t.Errorf("others: %+v", f)
		}
	}
	if len(w.runs.of) != maxRuns || len(w.Findings()) != 5 || sum != 400*maxRuns {
		t.Errorf("%d runs, %d findings of %d", len(w.runs.of), len(w.Findings()), sum)
	}
	sound := &aggregate.Block{
		Resolution: int64(time.Second), WindowStart: 2e18, Signal: []uint8{uint8(csig.MaxDelay)}, Kind: []uint8{1}, Encoding: []uint8{uint8(encoding)},
		Location: []uint64{12}, Observations: []uint64{10}, Trimmed: []uint64{0}, Untouched: []uint64{0}, Heavy: []uint64{3}, Min: []uint64{5}, Max: []uint64{9000},
	}
	w.Closed(sound, 1) // the large maps are gone
	if n := testing.AllocsPerRun(100, func() { w.Closed(sound, 1) }); n != 0 {
		t.Errorf("%v allocations for a window without anything odd", n)
	}
}

// TestWatcherStuckSilentPorts: ports that went silent leave their room to others.
func TestWatcherStuckSilentPorts(t *testing.T) {
	t.Parallel()
	w := newWatcher(t, "", func(c *Config) { c.Locator = anywhere{} })
	encoding := aggregate.Encoding(wide.Index())
	w.close(encoding, time.Second, 1, steadyPorts(0, 1, maxRuns)...)
	const after = 1 + stuckPause/stuckWindow
	for window := int64(1); window < after+4; window++ {
		w.close(encoding, time.Second, 1, steadyPorts(window, 1+maxRuns, 3)...)
		if room := window > after; len(w.runs.of) != maxRuns && !room || len(w.runs.of) != 3 && room {
			t.Fatalf("window %d: %d runs", window, len(w.runs.of))
		}
	}
	if got := len(w.Findings()); got != 3 {
		t.Errorf("found %s", w.text())
	}
}

// TestWatcherStuckRawLocations: locations that no flow names need no memory, however many of them
// have one value.
func TestWatcherStuckRawLocations(t *testing.T) {
	w := newWatcher(t, "", nil)
	b := &aggregate.Block{Resolution: int64(time.Second), WindowStart: 2e18}
	for i := range 10_000 {
		b.Signal, b.Kind, b.Encoding = append(b.Signal, uint8(csig.MaxDelay)), append(b.Kind, 1), append(b.Encoding, uint8(wide.Index()))
		b.Location, b.Observations, b.Trimmed = append(b.Location, uint64(1001+i)), append(b.Observations, 1), append(b.Trimmed, 0)
		b.Min, b.Max, b.Heavy = append(b.Min, 5000), append(b.Max, 5000), append(b.Heavy, 1)
	}
	if n := testing.AllocsPerRun(10, func() { w.Closed(b, 1) }); n != 0 || len(w.runs.of)+len(w.runs.here) > 0 {
		t.Errorf("%v allocations, %d runs, %d ports of the window", n, len(w.runs.of), len(w.runs.here))
	}
}
