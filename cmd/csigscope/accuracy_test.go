package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/cmd/csigscope/internal/config"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
	"github.com/csigscope/csigscope/replay/emitter/simulation"
)

// accuracyEnv selects the full durations of scenarios and names a file for the table; make
// accuracy sets it.
const accuracyEnv = "CSIGSCOPE_TEST_ACCURACY"

// shortRun is the default duration of a simulated scenario; otherRuns lists scenarios that
// congest later or have as many packets in less time.
const shortRun = 1200 * time.Millisecond

var otherRuns = map[string]time.Duration{
	"quickstart": 2200 * time.Millisecond, "noisy-taps": 2200 * time.Millisecond, "partial-deployment": 2200 * time.Millisecond,
	"fabric-like": 300 * time.Millisecond,
}

// locatorLayouts are the tag layouts of the table and the content of their locators.
var locatorLayouts = []struct {
	name   string
	layout csig.Layout
}{
	{"wide port", csig.Layout{Format: csig.Wide, Profile: csig.UEC050}},
	{"compact class", csig.Layout{Format: csig.Compact, Profile: csig.UEC050}},
	{"compact ietf01", csig.Layout{Format: csig.Compact, Profile: csig.IETF01}},
}

// imperfect are the scenarios whose captures or switches do not show the truth: counts differ,
// and a mode may.
var imperfect = map[string]bool{"noisy-taps": true, "rogue": true}

// unfit are the scenarios whose fabric does not fit the locator.
var unfit = map[string]bool{"mixed-generations compact class": true}

// TestAccuracy replays every named scenario in every locator layout, and compares the location
// of each heavy cell and window with the true port. With tags and lossless taps, no location is
// ever wrong.
func TestAccuracy(t *testing.T) {
	t.Parallel()
	file := os.Getenv(accuracyEnv)
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "scenario\tlocator\theavy\texact\tcontains\toutweighs\twrong\tcandidates")
	for i, name := range scenario.Names() {
		s, err := scenario.Named(name)
		if err != nil {
			t.Fatal(err)
		}
		layouts := locatorLayouts
		if testing.Short() { // one for each scenario, in turn
			layouts = layouts[i%len(layouts):][:1]
		}
		if s.RandomFlows > 0 {
			fmt.Fprintf(w, "%s\t\tno truth: nothing is simulated\n", name)
			continue
		}
		if file == "" {
			s.Duration, s.Packets = min(s.Duration, cmp.Or(otherRuns[name], shortRun)), 0
		} else if s.Packets > 0 {
			s.Packets = min(s.Packets, 2_000_000)
		}
		for _, l := range layouts {
			t.Run(name+" "+l.name, func(t *testing.T) {
				s := s.WithLayout(l.layout)
				if _, err := scenario.Fabric(s); (err != nil) != unfit[name+" "+l.name] {
					t.Fatal(err)
				} else if err != nil {
					fmt.Fprintf(w, "%s\t%s\t%v\n", name, l.name, err)
					return
				}
				a := judge(t, s, imperfect[name])
				a.write(w, name, l.name)
				switch {
				case a.heavy == 0:
					t.Error("no cell has heavy observations")
				case a.wrong > 0 && !imperfect[name]:
					t.Errorf("%d of %d heavy cells and windows are wrong", a.wrong, a.heavy)
				case a.exact < a.heavy && l.layout.Format == csig.Wide && !imperfect[name]:
					t.Errorf("%d of %d heavy cells and windows name the true port alone", a.exact, a.heavy)
				}
			})
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	text := `Cells and windows with heavy observations, by the location that replay names: the true
port alone; a set that contains it; a set that does not, but whose ports truly have more
of them together; a wrong one. Candidates: ports of a location, median and most.

` + table.String()
	t.Log(text)
	if file == "" {
		return
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// write adds a line to the table.
func (a *accuracy) write(w io.Writer, scenario, locator string) {
	share := func(n int) string { return fmt.Sprintf("%.1f %%", 100*float64(n)/float64(max(a.heavy, 1))) }
	median, most := 0, 0
	if n := len(a.candidates); n > 0 {
		median, most = a.candidates[n/2], a.candidates[n-1]
	}
	outweighs := a.heavy - a.contains - a.wrong
	fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%s\t%s\t%d, %d\n", scenario, locator, a.heavy,
		share(a.exact), share(a.contains-a.exact), share(outweighs), share(a.wrong), median, most)
}

// judge emits a scenario, replays it in memory and compares every cell and window with the
// truth; for imperfect captures only the modes.
func judge(t *testing.T, s scenario.Scenario, imperfect bool) accuracy {
	t.Helper()
	dir := t.TempDir()
	report, err := simulation.Run(t.Context(), s, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	n, err := openNetwork("", report.Fabric)
	if err != nil {
		t.Fatal(err)
	}
	got := &modes{rows: map[modeKey]*modeRow{}}
	r, err := replay.New(replay.Config{
		Files: report.Captures, Sink: got, Workers: 1, Logger: slog.New(slog.DiscardHandler),
		Tap:      func(name string) window.Tap { return n.Tap(name, config.TapDefaults{Place: "receiver"}) },
		Settings: window.Settings{Decode: n.Decode, Resolver: n.Fabric, Epoch: n.Epoch, Resolutions: []time.Duration{s.Window}, MaxSeries: 1 << 20},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !r.Result().Conserved() || r.Result().Counts.Overflow > 0 {
		t.Errorf("observations are not conserved: %+v", r.Result().Counts)
	}
	truth := truthCells(t, emitted{filepath.Clean(dir)}, "tag")
	stored, _ := got.windows(n.Fabric)
	if !imperfect {
		for key := range stored { // cells without tags have reflections, which have a truth of their own
			if stored[key].Kind != "tag" {
				delete(stored, key)
			}
		}
		return compareWithTruth(t, truth, stored, units)
	}
	var a accuracy
	for key, want := range truth {
		if want.Faithful != nil {
			want.Mode = want.Faithful.Mode
		}
		if have, ok := stored[key]; ok && want.Heavy > 0 && have.Heavy > 0 {
			a.judge(&want, &have)
		}
	}
	slices.Sort(a.candidates)
	return a
}

// modes is a sink that keeps the input for modes of the bottleneck.
type modes struct {
	mu   sync.Mutex
	rows map[modeKey]*modeRow
}

type modeKey struct {
	window   int64
	signal   csig.Signal
	src, dst uint64
	kind     decode.Kind
	location aggregate.LocationID
}

type modeRow struct{ observations, untouched, sum, heavy, heavySum uint64 }

// WriteBlock implements aggregate.Sink.
func (m *modes) WriteBlock(_ context.Context, b *aggregate.Block) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range b.Len() {
		k := modeKey{
			b.WindowStart, csig.Signal(b.Signal[i]), b.SrcGroup[i], b.DstGroup[i],
			decode.Kind(b.Kind[i]), aggregate.LocationID(b.Location[i]),
		}
		r := m.rows[k]
		if r == nil {
			r = new(modeRow)
			m.rows[k] = r
		}
		r.observations += b.Observations[i]
		r.untouched += b.Untouched[i]
		r.sum += b.Sum[i]
		r.heavy += b.Heavy[i]
		r.heavySum += b.HeavySum[i]
	}
	return nil
}

// windows computes the answer of query windows: the tags of each cell, or else its reflections,
// and the location with the most heavy ones; ties go to the more severe mean, then to the lower
// identity. ports are the candidates of the heavy ones.
func (m *modes) windows(f *fabric.Fabric) (out map[string]storedWindow, ports map[string][]aggregate.Candidate) {
	names := map[uint64]string{}
	for _, g := range f.Groups() {
		names[uint64(g.ID)] = g.Name
	}
	type mode struct {
		storedWindow
		sum   uint64
		heavy modeRow
		at    aggregate.LocationID

		signal    csig.Signal
		locations []aggregate.LocationStats
	}
	cells := map[string]*mode{}
	for k, r := range m.rows {
		w := storedWindow{WindowStart: time.Unix(0, k.window), Src: names[k.src], Dst: names[k.dst], Kind: k.kind.String()}
		key := w.key(k.signal.String())
		c := cells[key]
		if c == nil || c.Kind == "reflection" && k.kind == decode.Tag {
			c = &mode{storedWindow: w, signal: k.signal}
			cells[key] = c
		}
		if c.Kind != w.Kind {
			continue
		}
		c.Observations += r.observations
		c.Untouched += r.untouched
		c.Heavy += r.heavy
		c.sum += r.sum
		if r.heavy > 0 {
			c.locations = append(c.locations, aggregate.LocationStats{Location: k.location, Heavy: r.heavy, HeavySum: r.heavySum})
			if worse(k.signal, r, &c.heavy, k.location, c.at) {
				c.heavy, c.at = *r, k.location
			}
		}
	}
	out, ports = map[string]storedWindow{}, map[string][]aggregate.Candidate{}
	for key, c := range cells {
		signal := strings.Fields(key)[1]
		c.Mean = float64(c.sum) / float64(c.Observations) * units[signal]
		if l, ok := f.Location(c.at); ok && c.heavy.heavy > 0 {
			c.Mode, c.ModeCount, c.ModeStage = l.Name, c.heavy.heavy, l.Stage
			c.ModePorts, c.Candidates = strings.Join(l.Candidates, " "), l.CandidateCount
			stats := aggregate.CellStats{Signal: c.signal}
			stats.SetMode(c.locations, true)
			ports[key] = stats.Candidates(func(id aggregate.LocationID) ([]string, int) {
				l, _ := f.Location(id)
				return l.Candidates, l.CandidateCount
			})
		}
		out[key] = c.storedWindow
	}
	return out, ports
}

// worse reports whether a location precedes the best so far.
func worse(signal csig.Signal, r, best *modeRow, at, bestAt aggregate.LocationID) bool {
	if best.heavy == 0 || r.heavy != best.heavy {
		return r.heavy > best.heavy
	}
	severe := cmp.Compare(r.heavySum, best.heavySum)
	if signal.Direction() == csig.Min {
		severe = -severe
	}
	return cmp.Or(-severe, cmp.Compare(at, bestAt)) < 0
}
