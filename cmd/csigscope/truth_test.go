package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/replay/emitter/truth"
)

// storedWindow is a row of query windows, with the row of its mode in query locations.
type storedWindow struct {
	WindowStart                    time.Time
	Src, Dst, Kind                 string
	Observations, Untouched, Heavy uint64
	Mean                           float64
	Mode                           string
	ModeCount                      uint64
	ModeStage, ModePorts           string
	Candidates                     int
}

func (w *storedWindow) key(signal string) string {
	return fmt.Sprintf("%s %s %s>%s", w.WindowStart.UTC().Format(time.RFC3339Nano), signal, w.Src, w.Dst)
}

// storedWindows reads all windows of all signals of a store, by one server: each command on the store
// would start an engine.
func storedWindows(t *testing.T, env []string, dsn string) map[string]storedWindow {
	t.Helper()
	windows := map[string]storedWindow{}
	t.Run("read windows", func(t *testing.T) { // the server ends with it
		server := serveBinary(t, env, "query", "serve", "--store", dsn, "--listen", "127.0.0.1:0")
		for _, signal := range []string{"min_abw", "min_abw_ratio", "max_delay", "max_nqd"} {
			readWindows(t, env, server, signal, windows)
		}
	})
	return windows
}

// readWindows adds the windows of a signal.
func readWindows(t *testing.T, env []string, server, signal string, windows map[string]storedWindow) {
	t.Helper()
	type location struct {
		Location, Stage string
		Candidates      []string
		Count           int `json:"candidate_count"`
	}
	locations := map[string]location{}
	found := mustRun(t, env, "query", "locations", "--server", server, "--signal", signal, "--top", "10000", "-o", "json")
	for _, l := range decodeJSON[struct{ Locations []location }](t, found).Locations {
		locations[l.Location] = l
	}
	for line := range strings.Lines(mustRun(t, env, "query", "windows", "--server", server, "--signal", signal, "--step", "1s", "-o", "ndjson")) {
		c := decodeJSON[answeredCell](t, line)
		start, err := time.Parse(time.RFC3339Nano, c.From)
		if err != nil {
			t.Fatalf("read windows of %s: %v", signal, err)
		}
		l := locations[c.Mode.Location]
		w := storedWindow{
			start, c.Src, c.Dst, c.Kind, c.Observations, c.Untouched, c.Heavy, only(c.Mean), c.Mode.Location, c.Mode.Heavy,
			l.Stage, strings.Join(l.Candidates, " "), l.Count,
		}
		windows[w.key(signal)] = w
	}
}

// truthCells reads the emitter's truth about a source: tag or reflection.
func truthCells(t *testing.T, e emitted, source string) map[string]truth.Cell {
	t.Helper()
	f, err := os.Open(filepath.Join(e.dir, truth.File))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cells := map[string]truth.Cell{}
	err = truth.Read(f, truth.Visitor{Cell: func(c truth.Cell) error {
		pair := c.Signal + " " + c.SrcGroup + ">" + c.DstGroup
		if c.Source == source {
			cells[fmt.Sprintf("%s %s", c.WindowStart.UTC().Format(time.RFC3339Nano), pair)] = c
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return cells
}

// accuracy compares stored modes with the truth.
type accuracy struct {
	heavy      int // cells and windows with heavy observations
	exact      int // the mode names only the true port
	contains   int // the mode's set contains the true port
	wrong      int // it does not, although the set is no likelier
	candidates []int
}

// compareWithTruth checks every cell and window of the truth against the store: counts and
// means for all, modes for the heavy ones.
func compareWithTruth(t *testing.T, truth map[string]truth.Cell, stored map[string]storedWindow, unit map[string]float64) accuracy {
	t.Helper()
	var a accuracy
	for key, want := range truth {
		got, ok := stored[key]
		switch {
		case !ok:
			t.Errorf("%s: is not stored, want %d observations", key, want.Observations)
			continue
		case got.Kind != want.Source || got.Observations != want.Observations || got.Heavy != want.Heavy || got.Untouched != want.Untouched:
			t.Errorf("%s: stored %s %d observations, %d heavy, %d untouched; want %s %d, %d, %d", key,
				got.Kind, got.Observations, got.Heavy, got.Untouched, want.Source, want.Observations, want.Heavy, want.Untouched)
		}
		mean := float64(want.Sum) / float64(want.Observations) * unit[want.Signal]
		if diff := got.Mean - mean; diff > 1e-9*mean || -diff > 1e-9*mean {
			t.Errorf("%s: mean %g, want %g", key, got.Mean, mean)
		}
		if want.Heavy > 0 {
			a.add(t, key, &want, &got)
		}
	}
	if len(stored) != len(truth) {
		t.Errorf("%d cells and windows are stored, the truth has %d", len(stored), len(truth))
	}
	slices.Sort(a.candidates)
	return a
}

// add judges one mode. If it contains the true port, it must be at that port's stage, and it
// must never have more observations than its ports truly had.
func (a *accuracy) add(t *testing.T, key string, want *truth.Cell, got *storedWindow) {
	t.Helper()
	truly := a.judge(want, got)
	if slices.Contains(strings.Fields(got.ModePorts), want.Bottleneck) && got.ModeStage != want.Stage {
		t.Errorf("%s: mode %s is at stage %s, the true port %s at %s", key, got.Mode, got.ModeStage, want.Bottleneck, want.Stage)
	}
	if got.ModeCount > truly {
		t.Errorf("%s: %d observations name %s, whose ports truly had %d", key, got.ModeCount, got.Mode, truly)
	}
}

// judge counts one mode as exact, containing the true port, outweighing it or wrong, and
// returns the true number of observations of its ports. A set of ports collects the
// observations of all of its ports, so it can be the mode although a port outside of it leads
// among single ports: it must then outweigh that port.
func (a *accuracy) judge(want *truth.Cell, got *storedWindow) (truly uint64) {
	a.heavy++
	a.candidates = append(a.candidates, got.Candidates)
	ports := strings.Fields(got.ModePorts)
	for _, p := range ports {
		truly += want.Ports[p]
	}
	switch {
	case got.Mode == want.Bottleneck && got.Candidates == 1:
		a.exact++
		a.contains++
	case slices.Contains(ports, want.Bottleneck):
		a.contains++
	case len(ports) > 1 && truly >= got.ModeCount && got.ModeCount >= want.BottleneckCount:
	default:
		a.wrong++
	}
	return truly
}

// units are the values of one in each signal's stored integers.
var units = map[string]float64{"min_abw": 1e3, "min_abw_ratio": 1e-6, "max_delay": 1, "max_nqd": 1e-6}
