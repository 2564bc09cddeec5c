package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// verdictOutput is the output of query verdict.
type verdictOutput struct {
	Kind, Text     string
	Notes          []string
	Cells          int
	JudgedCells    int `json:"judged_cells"`
	CongestedCells int `json:"congested_cells"`
	Heavy          uint64
	Statements     []statementOutput
}

type statementOutput struct {
	Text, Place, Kind, State, Since, First, Last, Device, Host string
	FarEnd                                                     string `json:"far_end"`
	Heavy                                                      uint64
	Share                                                      float64 `json:"share_ratio"`
	Locations                                                  []string
	CellCount                                                  int `json:"cell_count"`
	Cells                                                      []struct {
		Src, Dst string
		Heavy    uint64
	}
	Sources     []string
	Destination string
	Signals     []struct {
		Signal string
		Heavy  uint64
		Worst  map[string]float64
	}
}

// heaviest returns the true ports of heavy observations of tags, with their numbers.
func heaviest(t *testing.T, e emitted) (heavy map[string]uint64, total uint64) {
	t.Helper()
	heavy = map[string]uint64{}
	for _, c := range truthCells(t, e, "tag") {
		for port, n := range c.Ports {
			heavy[port] += n
			total += n
		}
	}
	return heavy, total
}

// TestVerdictIsTrue: each statement about a fabric with a known cause has the true number of
// heavy observations of its ports, and the first ones name the cause. Locators of few bits name
// the same devices.
func TestVerdictIsTrue(t *testing.T) {
	t.Parallel()
	env := engineEnv(t)
	slowRack := []string{"links into leaf5 (4 ports)", "leaf5 uplinks (4 ports)"}
	for name, test := range map[string]struct {
		scenario []string
		exact    bool // locators name ports
		kind     string
		places   []string // the beginnings of the first statements, in any order
		host     string   // of the incast among them
	}{
		"demo":         {[]string{"--scenario", "demo"}, true, "was_congested", append(slowRack, "leaf14:down2, host14-2"), "host14-2"},
		"another seed": {[]string{"--scenario", "demo", "--set", "seed=3", "--set", "duration=16s"}, true, "congested", append(slowRack, "leaf14:down2, host14-2"), "host14-2"},
		"few bits":     {[]string{"--scenario", "demo", "--set", "format=compact"}, false, "was_congested", []string{"leaf5 uplinks (4 ports, which of them is not known)", "links into leaf5 (4 ports, which", "leaf14:down2, host14-2"}, "host14-2"},
		"incast":       {[]string{"--scenario", "incast"}, true, "congested", []string{"leaf4:down1, host4-1"}, "host4-1"},
		"healthy": {[]string{
			"--scenario", "demo", "--set", "duration=4s", "--set", "rack_uplink_speed={5: 1Gbps}",
			"--set", "workloads=[{kind: ring, racks: [1, 2, 3, 4, 5, 6], rate: 300Mbps, connections: 32, period: 4s, burst: 2s}, {kind: background, rate: 5Mbps, tag_every: 1}]",
		}, true, "healthy", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := emit(t, test.scenario...)
			dsn := newStore(t, env, filepath.Join(t.TempDir(), "store"))
			keepEngine(t, env, dsn)
			replayInto(t, env, dsn, e, e.captures(t))
			text := mustRun(t, env, "query", "verdict", "--store", dsn)
			v := decodeJSON[verdictOutput](t, mustRun(t, env, "query", "verdict", "--store", dsn, "-o", "json"))
			if v.Kind != test.kind || len(v.Statements) < len(test.places) || len(v.Notes) > 0 || v.JudgedCells != v.Cells || !strings.HasPrefix(text, v.Text+"\n") {
				t.Fatalf("%s:\n%s", v.Kind, text)
			}
			heavy, total := heaviest(t, e)
			if total == 0 != (v.Heavy == 0) {
				t.Errorf("%d heavy observations, %d tags in the truth", v.Heavy, total)
			}
			for _, place := range test.places {
				i := slices.IndexFunc(v.Statements[:len(test.places)], func(s statementOutput) bool { return strings.HasPrefix(s.Place, place) })
				if i < 0 {
					t.Fatalf("no statement about %s:\n%s", place, text)
				}
				s, truly := &v.Statements[i], uint64(0)
				for _, port := range s.Locations {
					truly += heavy[port]
				}
				if !strings.HasPrefix(s.Text, s.Place+": ") || test.exact && truly != s.Heavy || (s.Kind == "incast") != (s.Host != "") || s.Host != "" && s.Host != test.host {
					t.Errorf("%s %q with %d heavy observations at %q: its ports truly had %d", s.Kind, s.Text, s.Heavy, s.Host, truly)
				}
			}
		})
	}
}

// TestVerdictOfMemory: the windows of the demo in memory and in the store give the same
// verdict, which names the rack with slow uplinks and the incast, and when.
func TestVerdictOfMemory(t *testing.T) {
	t.Parallel()
	env := engineEnv(t)
	dir := t.TempDir()
	url := serveBinary(t, env, "demo", "--dir", dir, "--listen", "127.0.0.1:0", "--set", "duration=20s")
	live := decodeJSON[verdictOutput](t, mustRun(t, env, "query", "verdict", "--server", url, "-o", "json"))
	stored := decodeJSON[verdictOutput](t, mustRun(t, env, "query", "verdict", "--store", "embedded:"+onlyMatch(t, filepath.Join(dir, "demo-*", "store")), "-o", "json"))
	if diff := gocmp.Diff(stored, live, cmpopts.EquateApprox(1e-5, 0)); diff != "" || len(live.Statements) < 3 {
		t.Fatalf("%d statements (-store +memory):\n%s", len(live.Statements), diff)
	}
	incast := live.Statements[2]
	want := []string{"rack1", "rack11", "rack13", "rack15", "rack16", "rack2", "rack3", "rack7", "rack9"}
	if slices.Sort(incast.Sources); !slices.Equal(incast.Sources, want) || incast.Destination != "rack14" || !strings.HasSuffix(incast.First, "T00:00:09Z") || !strings.HasSuffix(incast.Last, "T00:00:17Z") {
		t.Errorf("%q from %q, %s to %s", incast.Text, incast.Sources, incast.First, incast.Last)
	}
	if slow := live.Statements[0]; len(slow.Signals) != 4 || slow.CellCount < len(slow.Cells) || slow.Cells[0].Src != "rack4" && slow.Cells[0].Src != "rack5" {
		t.Errorf("%+v", slow)
	}
}
