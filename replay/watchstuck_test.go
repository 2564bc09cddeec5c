package replay_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/replay"
	"github.com/csigscope/csigscope/replay/emitter/emittertest"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// incast returns a recording with few packets that is long enough to reveal stuck ports in windows.
func incast(t *testing.T, faults ...scenario.Behavior) (recording, finding.Config) {
	t.Helper()
	rec := record(t, func(s *scenario.Scenario) {
		named := emittertest.Named(t, "incast")
		*s = named
		s.Duration, s.Faults = 7*time.Second, faults
		classic(s)
	})
	return rec, finding.Config{Domain: rec.domain, Locator: rec.fabric}
}

// TestWatchedStuck checks that stuck ports are found during a replay, 3 to 4 s after they get
// stuck, and no other ports, and none without faults. The result must be the same on more cores, at
// a pace, and in chunks that are each too short for three windows.
func TestWatchedStuck(t *testing.T) {
	t.Parallel()
	sound, looked := incast(t)
	var f findings
	cfg := sound.config(new(blocks))
	cfg.Taps, cfg.Finding = f.take, &looked
	replayed(t, cfg)
	if got := f.lines(); len(got) != 0 {
		t.Errorf("without a fault: found %q", got)
	}

	stuck := constant
	stuck.Start = time.Second
	rec, looked := incast(t, stuck)
	run := func(change func(*replay.Config)) (at map[tapIdentity][]finding.Finding, counted int) {
		var f findings
		cfg := rec.config(new(blocks))
		cfg.Taps, cfg.Finding = f.take, &looked
		change(&cfg)
		result := replayed(t, cfg)
		return f.at, len(result.Findings)
	}
	want, _ := run(func(*replay.Config) {})
	found := 0
	for _, list := range want {
		for _, f := range list {
			found++
			if f.Kind != finding.StuckPort || f.Device != "spine1" || !strings.HasPrefix(f.Port, "spine1:down") || f.Count < 200 || f.To-f.From < int64(3*time.Second) {
				t.Errorf("found %+v", f)
			}
		}
	}
	if found < 2 { // ports with 200 values of a signal
		t.Errorf("%d findings", found)
	}
	// Larger than the capture: one piece for any number of workers.
	got, _ := run(func(c *replay.Config) { c.Workers = 3 })
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("on more cores:\n%s", diff)
	}
	got, _ = run(func(c *replay.Config) { c.Pace = 1e12 })
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("paced:\n%s", diff)
	}
	stuckInPieces(t, want, run)
	examinedStuck(t, &rec, &looked, linesAt(want))
}

// examinedStuck checks that an examination finds the same ports with the same windows.
func examinedStuck(t *testing.T, rec *recording, looked *finding.Config, want []string) {
	t.Helper()
	cfg := rec.config(new(blocks))
	e, err := replay.Examine(t.Context(), replay.ExamineConfig{
		Files: rec.files, Decode: cfg.Decode, Finding: *looked, Windows: cfg.Settings, Tap: cfg.Tap,
	})
	if err != nil {
		t.Fatal(err)
	}
	got := linesOf(e.Findings, func(f *finding.Finding) bool { return f.Kind == finding.StuckPort })
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("replayed (-), examined (+):\n%s", diff)
	}
}

// TestExaminedRotated checks that the files of a rotated capture have the findings of one file, in
// any order, and that files which overlap have only their own.
func TestExaminedRotated(t *testing.T) {
	t.Parallel()
	stuck := constant
	stuck.Start = time.Second
	rec, looked := incast(t, stuck)
	cfg := rec.config(new(blocks))
	examined := func(files []string) []finding.Finding {
		e, err := replay.Examine(t.Context(), replay.ExamineConfig{
			Files: files, Decode: cfg.Decode, Finding: looked, Windows: cfg.Settings, Tap: cfg.Tap,
		})
		if err != nil {
			t.Fatal(err)
		}
		for i := range e.Findings {
			e.Findings[i].Packets = nil // numbered in files
		}
		return e.Findings
	}
	dir := t.TempDir()
	part := func(path string, from, to time.Duration) string { return cutCapture(t, dir, path, from, to) }
	// A packet without a time is first.
	untimed := func(path string) string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		at := binary.LittleEndian.Uint32(b[4:])
		at += binary.LittleEndian.Uint32(b[at+4:])
		arp := append(make([]byte, 12), 8, 6)
		if err := os.WriteFile(path, slices.Insert(b, int(at), simplePacket(arp)...), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	var whole, parts, overlapping []string
	for _, path := range rec.files {
		whole = append(whole, part(path, 0, time.Hour))
		cuts := []time.Duration{0, 1700 * time.Millisecond, 2 * time.Second, 3900 * time.Millisecond, 6 * time.Second, time.Hour}
		for i := range cuts[1:] {
			parts = append(parts, untimed(part(path, cuts[i], cuts[i+1])))
		}
		for from := time.Second; from < 5*time.Second; from += time.Second {
			overlapping = append(overlapping, untimed(part(path, from, from+2*time.Second)))
		}
	}
	want := examined(whole)
	if len(want) < 2 {
		t.Errorf("found %+v", want)
	}
	if diff := gocmp.Diff(want, examined(parts)); diff != "" {
		t.Errorf("one file (-), rotated (+):\n%s", diff)
	}
	slices.Reverse(parts)
	if diff := gocmp.Diff(want, examined(parts)); diff != "" {
		t.Errorf("one file (-), rotated in reverse (+):\n%s", diff)
	}
	if got := examined(overlapping); len(got) != 0 {
		t.Errorf("in files of two windows that overlap: found %+v", got)
	}
}

// cutCapture writes a part of a capture, by time since the second of its first frame, as a pcapng file of the same
// tap, and returns its path.
func cutCapture(t *testing.T, dir, path string, from, to time.Duration) string {
	t.Helper()
	r, err := capture.Open(path, capture.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	tap := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	name := filepath.Join(dir, fmt.Sprintf("%s-%s-%s.pcapng", tap, from, to))
	out, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	w := capture.NewWriter(out, capture.Interface{Name: tap, Link: capture.LinkEthernet})
	start := int64(0)
	var batch capture.Batch
	for r.ReadBatch(&batch) == nil {
		for i := range batch.Frames[:batch.N] {
			f := &batch.Frames[i]
			if start == 0 {
				start = f.TimeNS - f.TimeNS%int64(time.Second)
			}
			if f.TimeNS < start+int64(from) || f.TimeNS >= start+int64(to) {
				continue
			}
			if err := w.Write(f, ""); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return name
}

// watchedRun runs a changed configuration and returns its findings and their count.
type watchedRun func(change func(*replay.Config)) (at map[tapIdentity][]finding.Finding, counted int)

// stuckInPieces checks that chunks of less than a second together give the same findings as one
// piece.
func stuckInPieces(t *testing.T, whole map[tapIdentity][]finding.Finding, run watchedRun) {
	t.Helper()
	want := map[tapIdentity][]finding.Finding(nil)
	for _, test := range []struct {
		pace    float64
		workers int
	}{{0, 1}, {0, 3}, {1e12, 1}} {
		got, counted := run(func(c *replay.Config) { c.Pace, c.ChunkBytes, c.Workers = test.pace, 256<<10, test.workers })
		if want == nil {
			want = got
		}
		if diff := gocmp.Diff(linesAt(whole), linesAt(got)); diff != "" || counted != len(linesAt(whole)) {
			t.Errorf("%+v: counted %d; as a whole (-), in pieces (+):\n%s", test, counted, diff)
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("%+v: on one core (-), otherwise (+):\n%s", test, diff)
		}
	}
}

// linesAt returns findings as lines, by subject.
func linesAt(at map[tapIdentity][]finding.Finding) []string {
	f := findings{at: at}
	return f.lines()
}

// TestWatchedSilent checks that nothing is found without faults, even if flows of constant rate
// make correct ports repeat one value for seconds. If the table of faults is requested, it covers
// the other built-in scenarios. The result must be the same in chunks.
func TestWatchedSilent(t *testing.T) {
	t.Parallel()
	scenarios, seeds := []string{"permutation"}, uint64(1)
	if os.Getenv(faultsEnv) != "" {
		seeds = 2
		scenarios = slices.DeleteFunc(scenario.Names(), func(name string) bool {
			// Excluded as in TestFaultFree; seconds of the fast flows of fairness take minutes.
			return slices.Contains([]string{"figure5", "worst-case", "fabric-like"}, name) || strings.HasPrefix(name, "fairness")
		})
	}
	for _, name := range scenarios {
		for seed := range seeds {
			t.Run(fmt.Sprint(name, " ", seed), func(t *testing.T) {
				rec := record(t, func(s *scenario.Scenario) {
					named := emittertest.Named(t, name)
					*s = named
					s.Seed, s.Duration, s.Faults = seed+1, 6*time.Second, nil
					s.Classic = true
				})
				looked := finding.Config{Domain: rec.domain, Locator: rec.fabric}
				for _, chunk := range []int64{-1, 1 << 20} {
					var f findings
					cfg := rec.config(new(blocks))
					cfg.Taps, cfg.Finding, cfg.ChunkBytes = f.take, &looked, chunk
					replayed(t, cfg)
					if got := f.lines(); len(got) != 0 {
						t.Errorf("in pieces of %d bytes, found %q", chunk, got)
					}
				}
			})
		}
	}
}
