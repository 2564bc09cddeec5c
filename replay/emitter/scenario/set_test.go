package scenario

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.yaml.in/yaml/v3"

	"github.com/csigscope/csigscope/decode/csig"
)

func named(t *testing.T, name string) Scenario {
	t.Helper()
	s, err := Named(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSet(t *testing.T) {
	original := named(t, "demo")
	var before bytes.Buffer
	if err := Dump(&before, original); err != nil {
		t.Fatal(err)
	}
	s, err := original.Set("seed=7", "duration=5s", "uplink_speed=25Gbps", "capture_untagged=true", "counters=leaf3:up*", "signals=[max_delay, min_abw]",
		"workloads[0].rate=100Mbps", "workloads[1].target.host=3", "workloads[2].sizes={distribution: fixed, min_bytes: 900}", "workloads[3]={kind: ring, rate: 1Mbps}",
		"rack_uplink_speed.6=2Gbps", "swift.target=50us", "seed=8")
	if err != nil {
		t.Fatal(err)
	}
	if s.Seed != 8 || s.Duration != 5*time.Second || s.UplinkSpeed != 25*Gbps || !s.CaptureUntagged || s.Swift.Target != 50*time.Microsecond {
		t.Errorf("set %+v", s)
	}
	if diff := cmp.Diff([]string{"leaf3:up*"}, s.Counters); diff != "" {
		t.Error(diff)
	}
	if len(s.Signals) != 2 || s.Signals[0] != csig.MaxDelay {
		t.Errorf("signals %v", s.Signals)
	}
	if s.RackUplinkSpeed[5] != 400*Mbps || s.RackUplinkSpeed[6] != 2*Gbps {
		t.Errorf("speeds of racks %v", s.RackUplinkSpeed)
	}
	if w := s.Workloads; len(w) != 4 || w[0].Rate != 100*Mbps || w[0].Connections != 32 || w[1].Target != (Host{14, 3}) || w[2].Sizes == nil || w[3].Kind != "ring" {
		t.Errorf("workloads %+v", w)
	}
	var after bytes.Buffer
	if err := Dump(&after, original); err != nil || after.String() != before.String() {
		t.Errorf("the original changed: %v, %s", err, cmp.Diff(before.String(), after.String()))
	}
}

// TestSetDumped sets every key of each scenario to its dumped value, which must change nothing.
func TestSetDumped(t *testing.T) {
	for _, name := range Names() {
		s := named(t, name)
		var tree yaml.Node
		if err := tree.Encode(s.file()); err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(tree.Content); i += 2 {
			key := tree.Content[i].Value
			tree.Content[i+1].Style = yaml.FlowStyle
			value, err := yaml.Marshal(tree.Content[i+1])
			if err != nil {
				t.Fatal(err)
			}
			if key == "leaves" || key == "spines" || key == "hosts_per_leaf" {
				continue
			}
			same, err := s.Set(key + "=" + string(value))
			if diff := cmp.Diff(s, same, cmpopts.EquateEmpty()); err != nil || key != "format" && key != "profile" && diff != "" {
				t.Errorf("%s: %s=%s: %v\n%s", name, key, value, err, diff)
			}
		}
	}
}

// TestSetLayout checks that the layout chooses signals and locator, as in a file.
func TestSetLayout(t *testing.T) {
	for _, order := range [][]string{{"format=compact", "profile=ietf01"}, {"profile=ietf01", "format=compact"}} {
		s, err := named(t, "demo").Set(order...)
		if err != nil {
			t.Fatal(err)
		}
		if want := named(t, "demo").WithLayout(compactIETF); cmp.Diff(want, s) != "" {
			t.Errorf("%v: %s", order, cmp.Diff(want, s))
		}
	}
}

// TestSetSize checks that racks move in proportion regardless of the order, and that other keys
// name racks of the new size.
func TestSetSize(t *testing.T) {
	s, err := named(t, "demo").Set("workloads[0].racks=[1, 8]", "leaves=8", "hosts_per_leaf=1")
	if err != nil {
		t.Fatal(err)
	}
	want := named(t, "demo").WithSize(8, 0, 1)
	want.Workloads[0].Racks = []int{1, 8}
	if diff := cmp.Diff(want, s); diff != "" {
		t.Error(diff)
	}
}

func TestSetErrors(t *testing.T) {
	for assignment, want := range map[string]string{
		"duration":                   "expected KEY=VALUE",
		"duration=":                  "set duration: expected a value",
		"duration=[a]":               "set duration: cannot unmarshal !!seq",
		"seed=1.5":                   "set seed: cannot unmarshal !!float `1.5` into uint64",
		"duration=-1s":               "duration -1s: expected",
		"uplink_speed=fast":          `set uplink_speed: `,
		"leaves=many":                `set leaves: "many": expected a whole number`,
		"durations=1s":               `set durations: unknown key "durations": did you mean duration or`,
		"duration.x=1":               `"duration" has no keys below it`,
		"workload.rate=1Gbps":        `unknown key "workload": did you mean workloads`,
		"hosts=3":                    "hosts_per_leaf",
		"connections=3":              "did you mean workloads[0].connections",
		"swift.targets=1us":          `did you mean swift.target or`,
		"workloads[0].rat=1Gbps":     `did you mean workloads[0].rate or`,
		"workloads.rate=1Gbps":       `"workloads" is a list: expected the number of an entry, such as [0]`,
		"workloads[9].rate=1Gbps":    "set workloads[9].rate: the list has 3 entries",
		"workloads[0]={kin: ring}":   "field kin not found",
		"seed[0]=1":                  `"seed" is no list`,
		"rack_uplink_speed.99=1Gbps": "rack",
		"base=ring":                  `unknown key "base"`,
		"format=long":                "set format: format: ",
		"encap={":                    "set encap: ",
	} {
		if _, err := named(t, "demo").Set(assignment); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "line ") {
			t.Errorf("%s: %v, want %q and no line", assignment, err, want)
		}
	}
}

func FuzzSet(f *testing.F) {
	f.Add("workloads[0].rate", "1Gbps")
	f.Add("rack_uplink_speed.5", "{a: 1}")
	f.Add("taps[0].before", "[spine1, *x]")
	f.Add("a[0][99999999999999999999].b", "- 1")
	f.Add("leaves", "3")
	f.Fuzz(func(t *testing.T, key, value string) {
		s, err := Named("ring")
		if err != nil {
			t.Fatal(err)
		}
		if s, err = s.Set(key + "=" + value); err != nil {
			return
		}
		if err := s.Check(); err != nil {
			t.Errorf("a scenario that Set takes fails its check: %v", err)
		}
	})
}
