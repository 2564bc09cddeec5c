package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestQueryTaps: the packets of taps equal those of the replay, also after a second replay, and
// the answers have their coverage.
func TestQueryTaps(t *testing.T) {
	t.Parallel()
	env := engineEnv(t)
	dsn := newStore(t, env, filepath.Join(t.TempDir(), "store"))
	keepEngine(t, env, dsn)
	e := emit(t, "--scenario", "quickstart", "--set", "duration=2s")
	var s summaryOutput
	for _, args := range [][]string{nil, {"--chunk-size", "100000"}} {
		s = replayInto(t, env, dsn, e, e.captures(t), args...)
	}
	ask := func(args ...string) string {
		return mustRun(t, env, append(append([]string{"query"}, args...), "--store", dsn, "-o", "json")...)
	}
	taps := decodeJSON[[]struct {
		Tap, Place, Link, Frames                      string
		Packets, Observations, Stored, Late, Overflow uint64
		Tags, Reflections                             uint64
	}](t, ask("taps"))
	var packets, in, stored uint64
	for _, tap := range taps {
		packets += tap.Packets
		in += tap.Observations
		stored += tap.Stored + tap.Overflow
		if tap.Place != "receiver" || tap.Link != "Ethernet" || tap.Tags+tap.Reflections != tap.Observations || !strings.HasPrefix(tap.Frames, "ok=") {
			t.Errorf("%+v", tap)
		}
	}
	if o := s.Observations; len(taps) != 4 || packets != s.Packets || in != o.In || stored != o.Stored+o.Overflow {
		t.Errorf("%d taps with %d packets and %d observations, want 4, %d and %+v", len(taps), packets, in, s.Packets, o)
	}
	if none := decodeJSON[[]any](t, ask("taps", "--to", "1999-01-01T00:00:00Z")); len(none) != 0 {
		t.Errorf("before the capture: %v", none)
	}

	windows := decodeJSON[[]struct {
		Observations uint64
		GapRatio     float64 `json:"gap_ratio"`
	}](t, ask("coverage"))
	sum := uint64(0)
	for _, w := range windows {
		sum += w.Observations
		if w.GapRatio != 0 {
			t.Errorf("%+v", w)
		}
	}
	if sum != stored {
		t.Errorf("%d observations in windows, want %d", sum, stored)
	}
	if now := decodeJSON[[]any](t, ask("coverage", "--since", "15m")); len(now) != 0 {
		t.Errorf("long after the capture: %v", now)
	}
	cells := decodeJSON[[]struct {
		Covered float64 `json:"covered_ratio"`
	}](t, ask("coverage", "--by", "cell"))
	if len(cells) == 0 || cells[0].Covered <= 0 || cells[len(cells)-1].Covered > 1 {
		t.Errorf("cells %+v", cells)
	}
	type counted struct {
		Kind         string
		Observations uint64
	}
	type answer struct{ Flows, Cells []counted }
	tags := func(rows []counted) (sum uint64) {
		for _, r := range rows {
			if r.Kind == "tag" {
				sum += r.Observations
			}
		}
		return sum
	}
	inFlows, inCells := tags(decodeJSON[answer](t, ask("flows", "--top", "10000")).Flows), tags(decodeJSON[answer](t, ask("cells")).Cells)
	if inFlows == 0 || inFlows != inCells {
		t.Errorf("%d observations in flows and the rest, %d in cells", inFlows, inCells)
	}
	if r := runBinary(t, env, "query", "coverage", "--by", "rack", "--store", dsn); r.code != 2 || !strings.Contains(r.stderr, "expected window or cell") {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
}
