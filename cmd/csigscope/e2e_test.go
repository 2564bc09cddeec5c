package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// summaryOutput is the part of replay -o json that tests use.
type summaryOutput struct {
	Packets      uint64         `json:"packets"`
	Conserved    bool           `json:"conserved"`
	Findings     map[string]int `json:"findings"`
	Observations struct {
		In       uint64            `json:"in"`
		Stored   uint64            `json:"stored"`
		Late     uint64            `json:"late"`
		Overflow uint64            `json:"overflow"`
		Rejected map[string]uint64 `json:"rejected"`
	} `json:"observations"`
	LocationSizes struct {
		Locations, Median, Largest int
	} `json:"location_sizes"`
}

func replayInto(t *testing.T, env []string, dsn string, e emitted, files []string, args ...string) summaryOutput {
	t.Helper()
	args = append([]string{"replay", "--fabric", e.fabric(), "--store", dsn, "-o", "json"}, args...)
	s := decodeJSON[summaryOutput](t, mustRun(t, env, append(args, files...)...))
	o := s.Observations
	sum := o.Stored + o.Late + o.Overflow
	for _, n := range o.Rejected {
		sum += n
	}
	if !s.Conserved || o.In != sum || o.In == 0 {
		t.Errorf("%d observations read, %d accounted for", o.In, sum)
	}
	return s
}

// TestModeEqualsTruth runs the demo scenario and another seed through the built binary and
// the engine: with port ids in the locator, the mode of every cell and window with heavy observations is
// the true port.
func TestModeEqualsTruth(t *testing.T) {
	t.Parallel()
	env := shortEngineEnv(t)
	seeds := []string{"1", "2"}
	if testing.Short() {
		seeds = seeds[:1]
	}
	for _, seed := range seeds {
		t.Run("seed "+seed, func(t *testing.T) {
			e := emit(t, "--scenario", "demo", "--set", "seed="+seed)
			dsn := newStore(t, env, filepath.Join(t.TempDir(), "store"))
			replayInto(t, env, dsn, e, e.captures(t))
			a := compareWithTruth(t, truthCells(t, e, "tag"), storedWindows(t, env, dsn), units)
			if a.heavy == 0 || a.exact != a.heavy {
				t.Errorf("%d of %d heavy cells and windows have the true port as mode, %d are wrong", a.exact, a.heavy, a.wrong)
			}
			t.Logf("%d of %d heavy cells and windows equal the truth", a.exact, a.heavy)
		})
	}
}

// TestCompactLocator: seven bits name stage, orientation and capacity. The mode is a set that
// contains the true port, at its stage.
func TestCompactLocator(t *testing.T) {
	t.Parallel()
	env := engineEnv(t)
	e := emit(t, "--scenario", "demo", "--set", "format=compact", "--set", "profile=ietf01")
	dsn := newStore(t, env, filepath.Join(t.TempDir(), "store"))
	s := replayInto(t, env, dsn, e, e.captures(t))
	a := compareWithTruth(t, truthCells(t, e, "tag"), storedWindows(t, env, dsn), units)
	if a.heavy == 0 || a.wrong > 0 {
		t.Errorf("%d of %d heavy cells and windows are wrong", a.wrong, a.heavy)
	}
	if s.LocationSizes.Locations == 0 {
		t.Error("the summary does not say how large the sets are")
	}
	t.Logf("%d heavy cells and windows: %d contain the true port, %d name it alone, %d are sets that outweigh it; candidates: median %d, largest %d",
		a.heavy, a.contains, a.exact, a.heavy-a.contains-a.wrong, a.candidates[len(a.candidates)/2], a.candidates[len(a.candidates)-1])
}

// TestReflections: without tags, reflections to senders give the same results, each measurement
// once.
func TestReflections(t *testing.T) {
	t.Parallel()
	env := engineEnv(t)
	e := emit(t, "--scenario", "demo", "--set", "seed=5")
	config := writeFile(t, filepath.Join(t.TempDir(), "config.yaml"), "csig:\n  tpids: []\n")
	dsn := newStore(t, env, filepath.Join(t.TempDir(), "store"))
	s := replayInto(t, env, dsn, e, e.captures(t), "--config", config)
	if s.Observations.Rejected["repeat"] == 0 {
		t.Error("no reflection was repeated, although receivers acknowledge some packets twice")
	}
	a := compareWithTruth(t, truthCells(t, e, "reflection"), storedWindows(t, env, dsn), units)
	if a.heavy == 0 || a.exact != a.heavy {
		t.Errorf("%d of %d heavy cells and windows have the true port as mode, %d are wrong", a.exact, a.heavy, a.wrong)
	}
}

// TestReplayIsIdempotent replays the same captures again, renamed, in another order, on another
// number of cores, in pieces and at a pace: no number changes.
func TestReplayIsIdempotent(t *testing.T) {
	t.Parallel()
	env := engineEnv(t)
	e := emit(t, "--scenario", "quickstart", "--set", "classic=true")
	files := e.captures(t)
	dir := t.TempDir()
	dsn := newStore(t, env, filepath.Join(dir, "store"))
	keepEngine(t, env, dsn)
	replayInto(t, env, dsn, e, files)
	want := storedWindows(t, env, dsn)
	if len(want) == 0 {
		t.Fatal("nothing is stored")
	}
	check := func(what, dsn string) {
		t.Helper()
		if got := storedWindows(t, env, dsn); !maps.Equal(got, want) {
			t.Errorf("%s: %d cells and windows differ from the first replay's %d", what, len(got), len(want))
		}
	}
	replayInto(t, env, dsn, e, files, "--workers", "1")
	check("again on one core", dsn)

	renamed := filepath.Join(dir, "renamed.pcap")
	data, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(renamed, data, 0o644); err != nil {
		t.Fatal(err)
	}
	replayInto(t, env, dsn, e, []string{renamed}, "--place", "receiver")
	check("one file under another name", dsn)

	slices.Reverse(files)
	other := newStore(t, env, filepath.Join(dir, "other"))
	keepEngine(t, env, other)
	for _, f := range files {
		replayInto(t, env, other, e, []string{f})
	}
	check("in the other order, one by one", other)

	replayInto(t, env, dsn, e, files, "--chunk-size", "100000")
	check("in pieces: the later replay is the one that counts", dsn)

	paced := "embedded:" + filepath.Join(dir, "paced")
	replayInto(t, env, paced, e, files, "--pace", "1000", "--chunk-size", "100000")
	check("at a pace", paced)
}
