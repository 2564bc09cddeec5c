package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// flowCounts are the heavy observations of flows, in descending order.
type flowCounts []flowHeavy

type flowHeavy struct {
	flow  string
	heavy uint64
}

func (c flowCounts) sorted() flowCounts {
	slices.SortFunc(c, func(a, b flowHeavy) int {
		return cmp.Or(cmp.Compare(b.heavy, a.heavy), strings.Compare(a.flow, b.flow))
	})
	return c
}

// decodedFlows counts by flow the tags in the output of decode whose whole bucket is at 20 % of
// the capacity or less. all is the number of all tags of the signal.
func decodedFlows(t *testing.T, files []string) (flows flowCounts, all uint64) {
	t.Helper()
	counts := map[string]uint64{}
	lines := bufio.NewScanner(strings.NewReader(mustRun(t, nil, append([]string{"decode"}, files...)...)))
	for lines.Scan() {
		var o struct {
			Kind, Signal, Src, Dst        string
			High                          *float64
			Untouched, Trimmed, Orphan    bool
			Proto, SrcPort, DstPort, Code int
		}
		if err := json.Unmarshal([]byte(strings.ReplaceAll(lines.Text(), "_port", "Port")), &o); err != nil {
			t.Fatal(err)
		}
		if o.Kind != "tag" || o.Signal != "min_abw_ratio" || o.Orphan {
			continue
		}
		all++
		if !o.Untouched && !o.Trimmed && o.High != nil && *o.High <= 0.2 {
			counts[fmt.Sprintf("%s:%d %s:%d %d", o.Src, o.SrcPort, o.Dst, o.DstPort, o.Proto)]++
		}
	}
	for f, n := range counts {
		flows = append(flows, flowHeavy{f, n})
	}
	return flows.sorted(), all
}

// storedFlows returns the flows that query flows lists. rest is the sum of all others.
func storedFlows(t *testing.T, env []string, args ...string) (flows flowCounts, all, rest uint64) {
	t.Helper()
	type row struct {
		Src, Dst                                              string
		SrcPort, DstPort, Proto, Observations, Heavy, Windows uint64
		Kind                                                  string
		Others                                                bool
	}
	out := mustRun(t, env, append([]string{"query", "flows", "--top", "1000", "-o", "json"}, args...)...)
	for _, r := range decodeJSON[struct{ Flows []row }](t, strings.NewReplacer("_port", "Port", "_address", "").Replace(out)).Flows {
		if all += r.Observations; r.Others {
			rest += r.Heavy
			continue
		}
		flows = append(flows, flowHeavy{fmt.Sprintf("%s:%d %s:%d %d", r.Src, r.SrcPort, r.Dst, r.DstPort, r.Proto), r.Heavy})
	}
	return flows.sorted(), all, rest
}

// TestFlows: a replay stores the most affected flows with the counts from decoding the captures
// by hand, at 1 s and 1 min, and the same in one piece and in many.
func TestFlows(t *testing.T) {
	t.Parallel()
	env := engineEnv(t)
	e := emit(t, "--scenario", "permutation", "--set", "duration=2s", "--set", "classic=true")
	files := e.captures(t)
	want, all := decodedFlows(t, files)
	if len(want) < 8 {
		t.Fatalf("%d flows were heavy: the traffic is too tame", len(want))
	}
	for i, pieces := range [][]string{{"--chunk-size", "0"}, {"--chunk-size", "100000", "--workers", "2"}} {
		dsn := newStore(t, env, filepath.Join(t.TempDir(), "store"))
		keepEngine(t, env, dsn)
		mustRun(t, env, append(append([]string{"replay", "--fabric", e.fabric(), "--store", dsn}, pieces...), files...)...)
		for _, resolution := range []string{"1s", "1m"} {
			got, total, rest := storedFlows(t, env, "--store", dsn, "--window", resolution)
			if !reflect.DeepEqual(got, want) || total != all || rest != 0 {
				t.Errorf("%v, windows of %s: %d observations, %d of them of others, flows\n%v, expected %d and\n%v", pieces, resolution, total, rest, got, all, want)
			}
		}
		if out := mustRun(t, env, "schema", "verify", "--store", dsn, "-o", "csv"); strings.Count(out, "\n") > 1 {
			t.Errorf("%v: schema verify: %s", pieces, out)
		}
		if i > 0 {
			continue
		}
		config := writeFile(t, filepath.Join(t.TempDir(), "config.yaml"), "flows: {top: 0}\n")
		none := newStore(t, env, filepath.Join(t.TempDir(), "none"))
		mustRun(t, env, append([]string{"replay", "--fabric", e.fabric(), "--store", none, "--config", config}, files...)...)
		if got, total, _ := storedFlows(t, env, "--store", none); len(got) != 0 || total != 0 {
			t.Errorf("%d flows of %d observations although none were asked for", len(got), total)
		}
	}
}
