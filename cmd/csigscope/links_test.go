package main

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/csigscope/csigscope/replay/emitter/truth"
)

// linksOutput is the output of query links for ratios.
type linksOutput struct {
	Links []struct {
		Link         string `json:"link"`
		Peer         string `json:"peer"`
		Mean, Bound  *struct{ Ratio float64 }
		Observations uint64 `json:"observations"`
		Heavy        uint64 `json:"heavy"`
		Passed       uint64 `json:"passed"`
	} `json:"links"`
}

// portTruth is the emitter's truth about ports.
type portTruth struct {
	room  map[string]map[string]float64 // 1 - load, by window and port
	heavy map[string]uint64             // heavy observations of min_abw_ratio at the port
}

func portTruths(t *testing.T, e emitted) portTruth {
	t.Helper()
	f, err := os.Open(filepath.Join(e.dir, truth.File))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p := portTruth{map[string]map[string]float64{}, map[string]uint64{}}
	err = truth.Read(f, truth.Visitor{
		Port: func(port truth.Port) error {
			window := port.WindowStart.UTC().Format(time.RFC3339)
			if p.room[window] == nil {
				p.room[window] = map[string]float64{}
			}
			p.room[window][port.Port] = 1 - port.Load
			return nil
		},
		Cell: func(c truth.Cell) error {
			if c.Signal == "min_abw_ratio" && c.Source == "tag" {
				for port, n := range c.Ports {
					p.heavy[port] += n
				}
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestLinksEqualTruth: in a fabric with steady load, the mean of observations that name a port
// is its free bandwidth, and no bound of a port exceeds it. It skips the first window, in which
// flows begin.
func TestLinksEqualTruth(t *testing.T) {
	t.Parallel()
	env := engineEnv(t)
	for _, seed := range []string{"1", "2"} {
		e := emit(t, "--scenario", "permutation", "--set", "format=wide", "--set", "seed="+seed)
		dsn := newStore(t, env, filepath.Join(t.TempDir(), "store"))
		keepEngine(t, env, dsn)
		replayInto(t, env, dsn, e, e.captures(t))
		want := portTruths(t, e)
		named, bounded := 0, 0
		for window, room := range want.room {
			start, err := time.Parse(time.RFC3339, window)
			if err != nil {
				t.Fatal(err)
			}
			if start.Second() == 0 {
				continue
			}
			out := mustRun(t, env, "query", "links", "--store", dsn, "--from", window, "--to", start.Add(time.Second).Format(time.RFC3339), "--top", "1000", "-o", "json")
			for _, l := range decodeJSON[linksOutput](t, out).Links {
				truly, ok := room[l.Link]
				if !ok {
					t.Errorf("%s: is no port of the truth", l.Link)
					continue
				}
				// The port measures over 10 ms, the truth is over a second.
				const tolerance = 0.02
				if l.Mean != nil && l.Observations >= 10 {
					if named++; math.Abs(l.Mean.Ratio-truly) > tolerance {
						t.Errorf("seed %s, %s: %d tags name %s with room %g, it had %g", seed, window, l.Observations, l.Link, l.Mean.Ratio, truly)
					}
				}
				if l.Bound != nil {
					if bounded++; l.Bound.Ratio > truly+tolerance {
						t.Errorf("seed %s, %s: %d tags that passed %s bound its room by %g, it had %g", seed, window, l.Passed, l.Link, l.Bound.Ratio, truly)
					}
				}
			}
		}
		if named < 20 || bounded < 20 {
			t.Errorf("seed %s: %d ports and windows are named, %d have a bound", seed, named, bounded)
		}
	}
}

// TestLinksHeavyEqualTruth: the heavy observations of each link are those in the emitter's
// truth, and the topology is the fabric file's.
func TestLinksHeavyEqualTruth(t *testing.T) {
	t.Parallel()
	env := engineEnv(t)
	e := emit(t, "--scenario", "demo", "--set", "seed=3")
	dsn := newStore(t, env, filepath.Join(t.TempDir(), "store"))
	keepEngine(t, env, dsn)
	replayInto(t, env, dsn, e, e.captures(t))
	want := portTruths(t, e)
	ports := 0
	for _, l := range decodeJSON[linksOutput](t, mustRun(t, env, "query", "links", "--store", dsn, "--top", "10000", "-o", "json")).Links {
		if l.Heavy != want.heavy[l.Link] {
			t.Errorf("%s: %d heavy observations, the truth has %d", l.Link, l.Heavy, want.heavy[l.Link])
		}
		if l.Heavy > 0 {
			ports++
		}
		if l.Peer == "" {
			t.Errorf("%s: faces nothing", l.Link)
		}
	}
	if ports == 0 || ports != len(want.heavy) {
		t.Errorf("%d links with heavy observations, %d in the truth", ports, len(want.heavy))
	}
	topology := decodeJSON[struct{ Paths []struct{ Links []string } }](t, mustRun(t, env, "query", "topology", "--store", dsn, "--src", "rack1", "--dst", "rack2", "-o", "json"))
	if len(topology.Paths) < 2 {
		t.Errorf("paths %v", topology.Paths)
	}
}
