package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// TestNamedScenariosReplay emits the scenarios about capturing and replays them with the built
// binary, from files and without any: the summaries are equal except for the elapsed time.
func TestNamedScenariosReplay(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"overlay":    nil,
		"ipv6":       {"--set", "compress=gzip"},
		"vlans":      {"--set", "classic=true", "--set", "compress=zstd"},
		"mirrors":    {"--set", "format=compact", "--set", "profile=ietf01"},
		"noisy-taps": {"--set", "compress=zstd"},
	} {
		t.Run(name, func(t *testing.T) {
			same := []string{"--scenario", name, "--set", "duration=1500ms"}
			if name == "mirrors" {
				same = append(same, args...)
				args = nil
			}
			e := emit(t, append(args, same...)...)
			files := append([]string{"replay", "--store", "none", "-o", "json", "--fabric", e.fabric()}, e.captures(t)...)
			want := summaryOf(mustRun(t, os.Environ(), files...))
			text := mustRun(t, os.Environ(), append([]string{"replay", "--store", "none", "-o", "json"}, same...)...)
			if got := summaryOf(text); got != want {
				t.Errorf("without files:\n%s\nfrom files:\n%s", got, want)
			}
			s := decodeJSON[summaryOutput](t, text)
			if !s.Conserved || s.Observations.Stored == 0 || s.Observations.Late > 0 {
				t.Errorf("%+v", s.Observations)
			}
		})
	}
}

// summaryOf returns a summary without the parts that differ between equal runs.
func summaryOf(text string) string {
	var kept []string
	for line := range strings.Lines(text) {
		if !strings.Contains(line, "seconds") && !strings.Contains(line, "_per_second") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

// TestScenarioIsOneFile: emit reads back its own dump, and emits the same captures from it.
func TestScenarioIsOneFile(t *testing.T) {
	t.Parallel()
	list := mustRun(t, os.Environ(), "emit", "--list")
	for _, name := range scenario.Names() {
		if !strings.Contains(list, name+"  ") {
			t.Errorf("%s is not listed in\n%s", name, list)
		}
	}
	short := []string{"--set", "duration=300ms"}
	named := emit(t, append(short, "--scenario", "overlay")...)
	text := mustRun(t, os.Environ(), append([]string{"emit", "--dump", "--scenario", "overlay"}, short...)...)
	file := writeFile(t, filepath.Join(t.TempDir(), "mine.yaml"), text)
	dumped := emit(t, "--scenario-file", file)
	for _, path := range append(named.captures(t), named.fabric()) {
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(dumped.dir, filepath.Base(path)))
		if err != nil || string(got) != string(want) {
			t.Errorf("%s: %d bytes from the dumped scenario, want %d: %v", filepath.Base(path), len(got), len(want), err)
		}
	}
	bad := writeFile(t, filepath.Join(t.TempDir(), "bad.yaml"), text+"spinse: 3\n")
	if r := runBinary(t, os.Environ(), "emit", "--scenario-file", bad); r.code != 2 || !strings.Contains(r.stderr, "line ") || !strings.Contains(r.stderr, "spinse") {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
	folder := filepath.Join(t.TempDir(), "run[1]") // no pattern
	if err := os.Rename(dumped.dir, folder); err != nil {
		t.Fatal(err)
	}
	again := []string{"emit", "--scenario", "quickstart", "--set", "duration=10ms", "--out", folder}
	if out := mustRun(t, os.Environ(), again...); !strings.Contains(out, " of earlier runs, ") || strings.Contains(out, "*.pcapng") {
		t.Errorf("into a folder with captures of another fabric: %s", out)
	}
	about := mustRun(t, os.Environ(), "emit", "--describe", "--scenario", "overlay")
	for _, want := range []string{"leaf: 4 switches", "vxlan in IPv4 between leaves", "tap to-spines: mid, 8 links"} {
		if !strings.Contains(about, want) {
			t.Errorf("%q is not in\n%s", want, about)
		}
	}
}

// TestTunnelEndsAreConfigured: the fabric file has the addresses of hosts outside and inside of
// tunnels, so either gives the same cells and locations.
func TestTunnelEndsAreConfigured(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	inner := writeFile(t, filepath.Join(dir, "inner.yaml"), "decode:\n  endpoints: inner\n")
	for i, encap := range []string{"ipip", "gre", "nvgre", "vxlan", "vxlan-gpe", "geneve", "gtpu", "srv6"} {
		text := fmt.Sprintf("base: ring\nduration: 250ms\nsnap_len: 256\nencap: %s\nip: %d\nunderlay: %d\n", encap, 4+2*(i%2), 4+2*(i/2%2))
		file := writeFile(t, filepath.Join(dir, encap+".yaml"), text)
		args := []string{"replay", "--scenario-file", file, "--store", "none", "-o", "json"}
		outside := mustRun(t, os.Environ(), args...)
		inside := mustRun(t, os.Environ(), append(args, "--config", inner)...)
		if summaryOf(outside) != summaryOf(inside) {
			t.Errorf("%s: by outer addresses\n%s\nby inner ones\n%s", encap, summaryOf(outside), summaryOf(inside))
		}
		s := decodeJSON[struct {
			Frames map[string]uint64 `json:"frames"`
			Cells  []answeredCell    `json:"cells"`
		}](t, outside)
		if len(s.Frames) != 1 || s.Frames["ok"] == 0 || len(s.Cells) == 0 {
			t.Errorf("%s: frames %v, %d cells", encap, s.Frames, len(s.Cells))
		}
		for _, c := range s.Cells {
			if !strings.HasPrefix(c.Src, "rack") || strings.HasPrefix(c.Mode.Location, "unknown") {
				t.Errorf("%s: cell %+v", encap, c)
			}
		}
	}
}
