package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csigscope/csigscope/replay"
)

// TestTrace follows packets between two taps, one of which has its own clock.
func TestTrace(t *testing.T) {
	t.Parallel()
	file := writeFile(t, filepath.Join(t.TempDir(), "s.yaml"), `
base: alltoall
duration: 500ms
taps:
- {name: a, before: [leaf1]}
- {name: b, before: [leaf2], offset: 1ms}
`)
	e := emit(t, "--scenario-file", file, "--set", "capture_untagged=true")
	a, b := filepath.Join(e.dir, "a.pcapng"), filepath.Join(e.dir, "b.pcapng")
	hops := decodeJSON[replay.TracedHops](t, mustRun(t, os.Environ(), "trace", a, b, "--fabric", e.fabric(), "-o", "json"))
	if len(hops) != 1 || hops[0].OffsetNS == nil || *hops[0].OffsetNS < 998_000 || *hops[0].OffsetNS > 1_002_000 {
		t.Fatalf("%+v", hops)
	}
	// Between the two are the ports of leaf1 and the spines, and those of leaf2 on the way
	// back.
	for i, way := range []replay.TracedDirection{hops[0].Forward, hops[0].Backward} {
		for _, c := range way.Changes {
			if up := fmt.Sprintf("leaf%d:up", i+1); !strings.HasPrefix(c.Location, up) && !strings.HasPrefix(c.Location, "spine") {
				t.Errorf("a value from %q", c.Location)
			}
		}
		if len(way.Changes) == 0 || way.MedianNS <= 0 {
			t.Errorf("%+v", way)
		}
	}
	text := mustRun(t, os.Environ(), "trace", a, b, "--fabric", e.fabric(), "--timestamp-error", "1us")
	if !strings.Contains(text, "a.pcapng and b.pcapng: offset ") || !strings.Contains(text, " ± 0.") || !strings.Contains(text, " at leaf1:up") {
		t.Error(text)
	}
	receivers := writeFile(t, filepath.Join(t.TempDir(), "s.yaml"), "base: alltoall\nduration: 500ms\ntaps:\n- {name: a, before: [host1-*]}\n- {name: b, before: [host2-*], offset: 1ms}\n")
	e = emit(t, "--scenario-file", receivers)
	text = mustRun(t, os.Environ(), "trace", filepath.Join(e.dir, "a.pcapng"), filepath.Join(e.dir, "b.pcapng"))
	if !strings.Contains(text, "a.pcapng and b.pcapng: offset ") || !strings.Contains(text, "  clocks compared by ") {
		t.Error(text)
	}
	set := writeFile(t, filepath.Join(t.TempDir(), "s.yaml"), "base: alltoall\nduration: 500ms\ntaps:\n- {name: a, before: [leaf1]}\n- {name: b, before: [leaf2], step: -1s, step_at: 200ms}\n")
	e = emit(t, "--scenario-file", set, "--set", "capture_untagged=true")
	r := runBinary(t, os.Environ(), "trace", filepath.Join(e.dir, "a.pcapng"), filepath.Join(e.dir, "b.pcapng"), "--timestamp-error", "1us")
	if r.code != exitFound || !strings.Contains(r.stdout, "a.pcapng and b.pcapng: clocks unknown: ") || !strings.Contains(r.stdout, "a clock was set") || strings.Contains(r.stdout, " 0s ") ||
		!strings.Contains(r.stderr, "1 of 1 pairs of captures have no delays, since their clocks cannot be related") {
		t.Errorf("of a clock that was set: exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	wireless := writeFile(t, filepath.Join(t.TempDir(), "wireless.pcap"), "\xd4\xc3\xb2\xa1\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x7f\x00\x00\x00"+
		"\x01\x00\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00\x04\x00\x00\x00abcd")
	if r := runBinary(t, os.Environ(), "trace", wireless, wireless); r.code != exitFailed || !strings.Contains(r.stderr, "2 of 2 packets are of ") || !strings.Contains(r.stderr, "expected captures of Ethernet") {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
	for _, args := range [][]string{{"trace", a}, {"trace", a, b, "-o", "csv"}, {"trace", a, b, "--packets", "1"}, {"trace", a, b, "--timestamp-error", "-1s"}} {
		if r := runBinary(t, os.Environ(), args...); r.code != exitUsage {
			t.Errorf("%v: exit code %d: %s", args, r.code, r.stderr)
		}
	}
}
