package main

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// storedFinding is a row of query findings.
type storedFinding struct {
	Severity, Kind, ID, Device, Port, Location, Evidence string
	First, Last                                          string
	Count                                                uint64
}

func storedFindingsOf(t *testing.T, env []string, dsn string) []storedFinding {
	t.Helper()
	return decodeJSON[struct{ Findings []storedFinding }](t, mustRun(t, env, "query", "findings", "--store", dsn, "--top", "1000", "-o", "json")).Findings
}

// kindsFound returns the kinds of findings, each once.
func kindsFound(list []storedFinding) []string {
	var kinds []string
	for _, f := range list {
		kinds = append(kinds, f.Kind)
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// rogueScenario is quickstart with a switch that writes values above its ports' capacity into
// every tag.
func rogueScenario(t *testing.T, dir string) string {
	t.Helper()
	text := mustRun(t, nil, "emit", "--scenario", "quickstart", "--set", "duration=1s", "--dump")
	return writeFile(t, filepath.Join(dir, "rogue.yaml"), text+"faults: [{match: 'leaf1:down*', kind: overwrite, values: {min_abw: 5Gbps}}]\n")
}

// TestFindingsOfReplay: a replay finds the values of a rogue switch under the names of its
// ports, once for any number of replays; another configuration gives other findings instead.
// Its correct twin has none.
func TestFindingsOfReplay(t *testing.T) {
	t.Parallel()
	env, dir := engineEnv(t), t.TempDir()
	rogue := emit(t, "--scenario-file", rogueScenario(t, dir))
	dsn := newStore(t, env, filepath.Join(dir, "store"))
	const hint = "\nlist the findings: csigscope query findings\n\nnext: "
	run := func(e emitted, args ...string) []storedFinding {
		t.Helper()
		out := mustRun(t, env, append(append([]string{"replay", "--store", dsn, "--fabric", e.fabric()}, args...), e.captures(t)...)...)
		list := storedFindingsOf(t, env, dsn)
		errors, warnings := 0, 0
		for _, f := range list {
			switch f.Severity {
			case "error":
				errors++
			case "warning":
				warnings++
			}
		}
		line := fmt.Sprintf("%d = %d errors + %d warnings + 0 infos", len(list), errors, warnings)
		if !strings.Contains(strings.Join(strings.Fields(out), " "), " findings "+line) || strings.Contains(out, hint) != (len(list) > 0) {
			t.Errorf("want %s in\n%s", line, out)
		}
		return list
	}
	keepEngine(t, env, dsn)
	first := run(rogue)
	for _, f := range first {
		if f.Kind != "above-capacity" || f.Device != "leaf1" || !strings.HasPrefix(f.Port, "leaf1:down") || f.Location != f.Port || f.Count == 0 || f.Severity != "warning" || f.First > f.Last {
			t.Errorf("found %+v", f)
		}
	}
	if len(first) != 4 {
		t.Errorf("%d findings, want one for each port to a host of leaf1", len(first))
	}
	if again := run(rogue, "--workers", "2"); !slices.Equal(again, first) {
		t.Errorf("replayed again: %+v, want %+v", again, first)
	}
	config := writeFile(t, filepath.Join(dir, "config.yaml"), "findings:\n  senders: [10.0.1.0/24]\n")
	if kinds := kindsFound(run(rogue, "--config", config)); !slices.Equal(kinds, []string{"above-capacity", "unauthorised-sender"}) {
		t.Errorf("with senders: found %q", kinds)
	}
	if out := mustRun(t, env, "schema", "verify", "--store", dsn, "-o", "csv"); strings.Contains(out, "error") {
		t.Errorf("schema verify: %s", out)
	}
	dsn = newStore(t, env, filepath.Join(dir, "sound"))
	if found := run(emit(t, "--scenario", "quickstart", "--set", "duration=1s")); len(found) != 0 {
		t.Errorf("without a fault: found %+v", found)
	}
}

// TestFindingsWithoutStore: without a store, findings are counted by severity, without a hint
// to look them up; with detection off there are none.
func TestFindingsWithoutStore(t *testing.T) {
	t.Parallel()
	scenario := rogueScenario(t, t.TempDir())
	off := writeFile(t, filepath.Join(t.TempDir(), "off.yaml"), "findings: {detect: false}\n")
	for name, test := range map[string]struct {
		args []string
		json map[string]int
		text string
	}{
		"looked for":   {nil, map[string]int{"error": 0, "warning": 4, "info": 0}, "findings 4 = 0 errors + 4 warnings + 0 infos"},
		"switched off": {[]string{"--config", off}, nil, "findings - not looked for"},
	} {
		args := append([]string{"replay", "--store", "none", "--scenario-file", scenario}, test.args...)
		text := mustRun(t, nil, args...)
		if !strings.Contains(strings.Join(strings.Fields(text), " "), " "+test.text) || strings.Contains(text, "query findings") {
			t.Errorf("%s: want %s in\n%s", name, test.text, text)
		}
		s := decodeJSON[summaryOutput](t, mustRun(t, nil, append(args, "-o", "json")...))
		if !maps.Equal(s.Findings, test.json) || (s.Findings == nil) != (test.json == nil) {
			t.Errorf("%s: %v, want %v", name, s.Findings, test.json)
		}
	}
}
