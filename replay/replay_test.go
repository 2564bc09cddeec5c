package replay_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/replay"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// The same file gives the same blocks and taps, whoever reads which chunk, and at any pace.
func TestWorkersAgree(t *testing.T) {
	t.Run("classic", func(t *testing.T) { workersAgree(t, shared(t, classic)) })
	t.Run("pcapng", func(t *testing.T) { workersAgree(t, shared(t, singleFile)) })
}

func workersAgree(t *testing.T, rec recording) {
	t.Helper()
	if chunks, err := capture.Chunks(rec.files[0], 300<<10); err != nil || len(chunks) < 3 {
		t.Fatalf("%d chunks, error %v: expected at least 3 to share", len(chunks), err)
	}
	sizes := []int64{64 << 10, 300 << 10, -1}
	if testing.Short() {
		sizes = sizes[:1] // the same goroutines, with the most data to pass on
	}
	for _, chunkBytes := range sizes {
		var want blocks
		var wantTaps tapCounts
		cfg := rec.config(&want)
		cfg.ChunkBytes, cfg.Taps = chunkBytes, wantTaps.take
		wantResult := replayed(t, cfg)
		if len(want.list) == 0 || wantResult.Counts.Rejected[aggregate.RejectRepeat] == 0 {
			t.Fatalf("%d blocks, counts %+v: the capture shows too little", len(want.list), wantResult.Counts)
		}
		if got, want := want.observations(time.Minute), wantResult.Counts.Stored; got != want {
			t.Errorf("blocks have %d observations, expected %d", got, want)
		}
		if got := wantResult.Packets; got != rec.report.Captured {
			t.Errorf("%d packets, expected %d", got, rec.report.Captured)
		}
		for _, test := range []struct {
			name    string
			workers int
			pace    float64
		}{{"two workers", 2, 0}, {"seven workers", 7, 0}, {"paced", 1, 1e6}} {
			var got blocks
			var gotTaps tapCounts
			cfg.Sink, cfg.Taps, cfg.Workers, cfg.Pace = &got, gotTaps.take, test.workers, test.pace
			result := *replayed(t, cfg)
			if !reflect.DeepEqual(got.sorted(), want.sorted()) {
				t.Errorf("chunks of %d bytes, %s: %d blocks differ from %d", chunkBytes, test.name, len(got.list), len(want.list))
			}
			if !reflect.DeepEqual(gotTaps.sorted(), wantTaps.sorted()) {
				t.Errorf("chunks of %d bytes, %s: %d taps differ from %d", chunkBytes, test.name, len(gotTaps.list), len(wantTaps.list))
			}
			result.Elapsed = wantResult.Elapsed
			result.Counts.CacheResets = wantResult.Counts.CacheResets
			if !reflect.DeepEqual(&result, wantResult) {
				t.Errorf("chunks of %d bytes, %s: result %+v, expected %+v", chunkBytes, test.name, &result, wantResult)
			}
		}
	}
}

// Interfaces of one file are separate taps, and the lanes of one file are reused for the next.
func TestInterfaces(t *testing.T) {
	one, many := shared(t, singleFile), shared(t, singleFile)
	if len(one.files) != 1 {
		t.Fatalf("%d files, expected one", len(one.files))
	}
	// A second capture: the first half of the same packets.
	half := filepath.Join(t.TempDir(), "half.pcapng")
	truncate(t, one.files[0], half, 0.5)
	many.files = append(many.files, half)

	var mu sync.Mutex
	taps := map[string]int{}
	var got blocks
	cfg := many.config(&got)
	cfg.Tap = func(name string) window.Tap {
		mu.Lock()
		defer mu.Unlock()
		taps[name]++
		return window.Tap{Tags: true, Reflections: !strings.Contains(name, "1"), Weight: 1}
	}
	result := replayed(t, cfg)
	if len(taps) != 4 {
		t.Errorf("taps %v, expected one for each of 4 racks", taps)
	}
	for name, n := range taps {
		if n != 2 {
			t.Errorf("tap %q was asked for %d times, expected once a file", name, n)
		}
	}
	if result.Counts.Rejected[aggregate.RejectPlace] == 0 {
		t.Error("reflections at the first tap were counted")
	}

	var apart blocks
	for _, file := range many.files {
		cfg.Files, cfg.Sink = []string{file}, &apart
		replayed(t, cfg)
	}
	if !reflect.DeepEqual(got.sorted(), apart.sorted()) {
		t.Errorf("%d blocks of two files replayed together differ from %d replayed apart", len(got.list), len(apart.list))
	}
}

func truncate(t *testing.T, from, to string, share float64) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data[:int(float64(len(data))*share)], 0o600); err != nil {
		t.Fatal(err)
	}
}

// A truncated file ends where it is cut, without an error, and everything before counts.
func TestCut(t *testing.T) {
	rec := shared(t, classic)
	cut := filepath.Join(t.TempDir(), "cut.pcap")
	truncate(t, rec.files[0], cut, 0.7)
	rec.files = []string{cut}
	var want blocks
	cfg := rec.config(&want)
	cfg.ChunkBytes = 100 << 10
	result := replayed(t, cfg)
	if len(result.Cuts) != 1 || !strings.Contains(result.Cuts[0].Error(), cut) {
		t.Errorf("cuts %v, expected one that names the file", result.Cuts)
	}
	if result.Packets == 0 || result.Packets >= rec.report.Captured {
		t.Errorf("%d of %d packets", result.Packets, rec.report.Captured)
	}
	var paced blocks
	cfg.Sink, cfg.Pace = &paced, 1e6
	if got := replayed(t, cfg); len(got.Cuts) != 1 || got.Packets != result.Packets {
		t.Errorf("paced: %d packets, cuts %v", got.Packets, got.Cuts)
	}
	if !reflect.DeepEqual(paced.sorted(), want.sorted()) {
		t.Error("paced: blocks differ")
	}
}

// TestRenamed: a copy under another name is the same capture. Its rows are another run if its tap has
// the file's name.
func TestRenamed(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*scenario.Scenario)
		same   bool
	}{{"classic", classic, false}, {"pcapng", singleFile, true}} {
		rec := shared(t, test.change)
		twin := filepath.Join(t.TempDir(), "twin.pcap")
		truncate(t, rec.files[0], twin, 1)
		var of [2]aggregate.Source
		for i, file := range []string{rec.files[0], twin} {
			cfg := rec.config(&blocks{})
			cfg.Files = []string{file}
			r, err := replay.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			of[i] = r.Sources()[0].Source
		}
		if of[0].Producer != of[1].Producer || (of[0] == of[1]) != test.same {
			t.Errorf("%s: %+v and, renamed, %+v", test.name, of[0], of[1])
		}
	}
}

func TestNewRefuses(t *testing.T) {
	rec := shared(t, classic)
	twin := filepath.Join(t.TempDir(), "twin.pcap")
	truncate(t, rec.files[0], twin, 1)
	text := filepath.Join(t.TempDir(), "notes.txt")
	if err := os.WriteFile(text, []byte("no capture at all, but long enough"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		change func(*replay.Config)
		want   string
	}{
		{"no file", func(c *replay.Config) { c.Files = nil }, "no capture file"},
		{"missing", func(c *replay.Config) { c.Files = []string{"missing.pcap"} }, "missing.pcap"},
		{"foreign", func(c *replay.Config) { c.Files = []string{text} }, text},
		{"twice", func(c *replay.Config) { c.Files = append(slices.Clone(c.Files), twin) }, "same content"},
		{"pace", func(c *replay.Config) { c.Pace = -1 }, "pace -1"},
	} {
		cfg := rec.config(&blocks{})
		test.change(&cfg)
		if _, err := replay.New(cfg); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, expected one with %q", test.name, err, test.want)
		}
	}
}

// TestIdleCaptures: captures without packets are equal byte for byte, and add nothing.
func TestIdleCaptures(t *testing.T) {
	rec := shared(t, classic)
	header, err := os.ReadFile(rec.files[0])
	if err != nil {
		t.Fatal(err)
	}
	var want blocks
	wantResult := *replayed(t, rec.config(&want))
	dir := t.TempDir()
	files := slices.Clone(rec.files)
	for _, name := range []string{"rack1.pcap", "rack2.pcap", "again/rack1.pcap"} {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, header[:24], 0o600)); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	for _, pace := range []float64{0, 1e6} {
		var got blocks
		cfg := rec.config(&got)
		cfg.Files, cfg.Pace = files, pace
		result := *replayed(t, cfg)
		if result.Packets != wantResult.Packets || result.Counts != wantResult.Counts || len(result.Cuts) != 0 {
			t.Errorf("pace %v: %d packets, %+v, cuts %v, want %d and %+v", pace, result.Packets, result.Counts, result.Cuts, wantResult.Packets, wantResult.Counts)
		}
		if !reflect.DeepEqual(got.sorted(), want.sorted()) {
			t.Errorf("pace %v: idle captures change the blocks", pace)
		}
		r, err := replay.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if of := r.Sources(); of[1].Producer == of[2].Producer || of[1].Source != of[3].Source {
			t.Errorf("idle captures of two taps and of one: %+v", of[1:])
		}
	}
}

// failing is a sink that fails, or cancels, at its first block.
type failing struct{ err error }

func (s failing) WriteBlock(context.Context, *aggregate.Block) error { return s.err }

func TestRunEnds(t *testing.T) {
	rec := shared(t, classic)
	full := errors.New("disk is full")
	for _, pace := range []float64{0, 1e6} {
		cfg := rec.config(failing{full})
		cfg.ChunkBytes, cfg.Workers, cfg.Pace = 64<<10, 3, pace
		r, err := replay.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Run(t.Context()); !errors.Is(err, full) {
			t.Errorf("pace %v: error %v, expected that of the sink", pace, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		cfg.Sink = &blocks{}
		if r, err = replay.New(cfg); err != nil {
			t.Fatal(err)
		}
		if err := r.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("pace %v: error %v, expected that of the context", pace, err)
		}
	}
}

// TestSummaryLists: lists of a summary as JSON are lists also where a capture has no tags.
func TestSummaryLists(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	rows := table.New(table.Bounds{Resolution: time.Minute, Rows: 1}).Total()
	if err := new(replay.Result).WriteJSON(&out, rows, fabric.None(nil).Names(), []json.RawMessage{}); err != nil {
		t.Fatal(err)
	}
	for _, list := range []string{"found", "cells", "cuts"} {
		if want := fmt.Sprintf("%q: []", list); !strings.Contains(out.String(), want) {
			t.Errorf("without %s in\n%s", want, &out)
		}
	}
}
