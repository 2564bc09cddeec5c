package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/csigscope/csigscope/replay"
)

// leaf3Taps captures leaf3 on all sides.
const leaf3Taps = `
duration: 150ms
taps:
- {name: in, before: [leaf3]}
- {name: up1, ports: ["leaf3:up1"]}
- {name: up2, ports: ["leaf3:up2"]}
- {name: down1, ports: ["leaf3:down1"]}
- {name: down2, ports: ["leaf3:down2"]}
- {name: down3, ports: ["leaf3:down3"]}
- {name: down4, ports: ["leaf3:down4"]}
`

// mergedTaps captures the output of all ports of leaf3 in one file.
const mergedTaps = `
duration: 150ms
taps:
- {name: in, before: [leaf3]}
- {name: out, ports: ["leaf3:*"]}
`

// leaf3 returns the arguments of conform for captures with leaf3Taps.
func (e emitted) leaf3() []string {
	args := []string{filepath.Join(e.dir, "in.pcapng")}
	for _, port := range []string{"up1", "up2", "down1", "down2", "down3", "down4"} {
		args = append(args, "leaf3:"+port+"="+filepath.Join(e.dir, port+".pcapng"))
	}
	return args
}

// fromHosts has only packets of hosts, one of which forges its values.
const fromHosts = `faults: [{match: host3-1, kind: forge, values: {min_abw: 1Mbps, max_delay: 1ms}}]
`

// TestConform compares the findings of conform with the fault of a simulated switch, and
// expects none without a fault.
func TestConform(t *testing.T) {
	tests := []struct {
		name, yaml string
		args       []string
		code       int
		rules      []string
	}{
		{"honest", "", nil, exitDone, nil},
		{"insert", `faults: [{match: "leaf3:*", kind: insert}]`, nil, exitFound, []string{"inserted"}},
		{"lm-only", `faults: [{match: "leaf3:*", kind: lm-only}]`, nil, exitFound, []string{"locator-alone"}},
		{"overwrite", `faults: [{match: "leaf3:*", kind: overwrite}]`, nil, exitFound, []string{"direction", "locator-alone"}},
		{"reset", `faults: [{match: "leaf3:*", kind: reset}]`, nil, exitFound, []string{"direction"}},
		{"value-only", `faults: [{match: "leaf3:*", kind: value-only}]`, nil, exitFound, []string{"locator-kept"}},
		{"wrong-lm", `faults: [{match: "leaf3:*", kind: wrong-lm, lm: 99}]`, nil, exitFound, []string{"locator-other"}},
		{"a missing metric is no fault", `faults: [{match: "leaf3:*", kind: missing-metric}]`, nil, exitDone, nil},
		{"strip", `devices: [{match: leaf3, kind: strip}]`, nil, exitDone, []string{"stripped"}},
		{"strip, denied", `devices: [{match: leaf3, kind: strip}]`, []string{"--strip", "never"}, exitFound, []string{"stripped-partly"}},
		{"tags leave", "", []string{"--strip", "always"}, exitFound, []string{"not-stripped"}},
		{"pass-through", `devices: [{match: leaf3, kind: pass-through}]`, []string{"--role", "pass-through"}, exitDone, nil},
		{"no pass-through", "", []string{"--role", "pass-through"}, exitFound, []string{"transparent"}},
		{"ingress edge", fromHosts + `devices: [{match: leaf3, kind: ingress-edge}]`, []string{"--role", "ingress"}, exitDone, nil},
		{"no ingress edge", fromHosts, []string{"--role", "ingress"}, exitFound, []string{"not-scrubbed"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			yaml := leaf3Taps + test.yaml
			if strings.HasPrefix(test.yaml, fromHosts) {
				yaml = strings.Replace(yaml, "before: [leaf3]", "after: [host3-1, host3-2, host3-3, host3-4]", 1)
			}
			file := writeFile(t, filepath.Join(t.TempDir(), "s.yaml"), "base: ring\n"+yaml+"\n")
			e := emit(t, "--scenario-file", file, "--set", "capture_untagged=true")
			args := append([]string{"conform", "-o", "json", "--fabric", e.fabric()}, test.args...)
			r := runBinary(t, os.Environ(), append(args, e.leaf3()...)...)
			if r.code != test.code {
				t.Fatalf("exit code %d, want %d: %s", r.code, test.code, r.stderr)
			}
			c := decodeJSON[replay.Conformance](t, r.stdout)
			var rules []string
			for _, f := range c.Findings {
				rules = append(rules, f.Rule)
			}
			n := c.Counts
			if !slices.Equal(rules, test.rules) || n.Matched < n.Before*9/10 || n.Before != n.Matched+n.Lost+n.Ambiguous || n.After != n.Matched+n.Extra+n.Copies+n.Ambiguous {
				t.Errorf("rules %v, want %v; %+v", rules, test.rules, n)
			}
		})
	}
}

// TestConformMerged: with one capture of all ports of a switch, the fabric file gives the
// egress port of each packet, and so its locator.
func TestConformMerged(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"wide", "compact"} {
		for _, test := range []struct {
			fault string
			args  []string
			name  string // of the capture after the device
			want  string
		}{
			{"", nil, "", ""},
			{"", []string{"--device", "leaf3"}, "", ""},
			{`faults: [{match: "leaf3:up1", kind: wrong-lm}]`, nil, "", "locator-other"},
			{`faults: [{match: "leaf3", kind: wrong-lm}]`, []string{"--device", "leaf3"}, "", "locator-other"},
			{`faults: [{match: "leaf3", kind: wrong-lm}]`, nil, "leaf3=", "locator-other"},
		} {
			file := writeFile(t, filepath.Join(t.TempDir(), "s.yaml"), "base: ring\n"+mergedTaps+test.fault+"\n")
			e := emit(t, "--scenario-file", file, "--set", "capture_untagged=true", "--set", "format="+format)
			args := append([]string{"conform", "-o", "json", "--fabric", e.fabric()}, test.args...)
			r := runBinary(t, os.Environ(), append(args, filepath.Join(e.dir, "in.pcapng"), test.name+filepath.Join(e.dir, "out.pcapng"))...)
			var rules []string
			for _, f := range decodeJSON[replay.Conformance](t, r.stdout).Findings {
				rules = append(rules, f.Rule)
			}
			if got := strings.Join(rules, " "); got != test.want {
				t.Errorf("%s, %q: breaks %q, want %q", format, test.fault, got, test.want)
			}
		}
	}
}

// TestConformMetrics judges values by the counters that emit writes: a switch that quantizes
// with another table contradicts its counters.
func TestConformMetrics(t *testing.T) {
	t.Parallel()
	for fault, want := range map[string]int{"": exitDone, `faults: [{match: "leaf3", kind: misbucketed, shift: 300}]`: exitFound} {
		file := writeFile(t, filepath.Join(t.TempDir(), "s.yaml"), "base: ring\n"+leaf3Taps+fault+"\n")
		e := emit(t, "--scenario-file", file, "--set", "capture_untagged=true", "--set", "counters=leaf3")
		args := []string{"conform", "--fabric", e.fabric(), "--metrics", filepath.Join(e.dir, "counters.csv"), "--slack", "50us"}
		r := runBinary(t, os.Environ(), append(args, e.leaf3()...)...)
		if found := strings.Contains(r.stdout, "error: written-value: "); r.code != want || found != (want == exitFound) {
			t.Errorf("%q: exit code %d, want %d\n%s%s", fault, r.code, want, r.stdout, r.stderr)
		}
		if fault != "" {
			continue
		}
		r = runBinary(t, os.Environ(), append(args, filepath.Join(e.dir, "in.pcapng"), filepath.Join(e.dir, "up1.pcapng"))...)
		if r.code != exitFailed || !strings.Contains(r.stderr, "has no value of the captured ports (up1.pcapng)") {
			t.Errorf("a port without a name: exit code %d: %s", r.code, r.stderr)
		}
		later := writeFile(t, filepath.Join(t.TempDir(), "later.csv"), "time,port,signal,value\n2027-01-01T00:00:00Z,leaf3:up1,min_abw,1Gbps\n")
		r = runBinary(t, os.Environ(), append([]string{"conform", "--fabric", e.fabric(), "--metrics", later}, e.leaf3()...)...)
		if r.code != exitFailed || !strings.Contains(r.stderr, "at the time of their packets, so no value is judged") {
			t.Errorf("counters of a later time: exit code %d: %s", r.code, r.stderr)
		}
	}
}

// TestConformForPeople checks the printed text and the errors.
func TestConformForPeople(t *testing.T) {
	t.Parallel()
	file := writeFile(t, filepath.Join(t.TempDir(), "s.yaml"), "base: ring\n"+leaf3Taps+`faults: [{match: "leaf3:*", kind: lm-only}]`+"\n")
	e := emit(t, "--scenario-file", file, "--set", "capture_untagged=true")
	in, up1 := filepath.Join(e.dir, "in.pcapng"), filepath.Join(e.dir, "up1.pcapng")
	junit := filepath.Join(t.TempDir(), "leaf3.xml")
	r := runBinary(t, os.Environ(), "conform", in, up1, "--device", "leaf3", "--junit", junit)
	if r.code != exitFound || !strings.Contains(r.stdout, "error: locator-alone: ") || !strings.Contains(r.stdout, "by up1.pcapng") ||
		!strings.Contains(r.stderr, "leaf3 breaks 1 rule\n") {
		t.Errorf("exit code %d:\n%s%s", r.code, r.stdout, r.stderr)
	}
	if text, err := os.ReadFile(junit); err != nil || !strings.Contains(string(text), `failures="1"`) {
		t.Errorf("%s: %v", text, err)
	}
	empty := writeFile(t, filepath.Join(t.TempDir(), "empty.csv"), "")
	header := "\xd4\xc3\xb2\xa1\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00"
	none := writeFile(t, filepath.Join(t.TempDir(), "none.pcap"), header+"\x01\x00\x00\x00")
	wireless := writeFile(t, filepath.Join(t.TempDir(), "wireless.pcap"), header+"\x7f\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00\x04\x00\x00\x00abcd")
	tpid := writeFile(t, filepath.Join(t.TempDir(), "tpid.yaml"), "csig: {tpids: [{tpid: 0x9999, format: wide, profile: uec050}]}\n")
	for _, test := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{in}, exitUsage, "at least one after it"},
		{[]string{in, up1, "--role", "edge"}, exitUsage, "expected transit, ingress or pass-through"},
		{[]string{in, up1, "--strip", "yes"}, exitUsage, "expected unknown, never or always"},
		{[]string{in, up1, "--match", "all"}, exitUsage, "expected packet or payload"},
		{[]string{in, up1, "--signals", "speed"}, exitUsage, "--signals"},
		{[]string{in, up1, "--metrics", empty}, exitUsage, "empty.csv"},
		{[]string{in, up1, "--memory-packets", "0"}, exitUsage, "expected 1 or more"},
		{[]string{in, up1, "-o", "csv"}, exitUsage, "expected table or json"},
		{[]string{in, "up9=" + in + "x"}, exitFailed, "in.pcapngx"},
		{[]string{filepath.Join(e.dir, "up2.pcapng"), up1}, exitFailed, "nothing is judged"},
		{[]string{in, up1, "--config", tpid}, exitFailed, "only the rules inserted and malformed are judged"},
		{[]string{in, up1, "--config", tpid}, exitFailed, "TPID, here 0x9999: "},
		{[]string{in, none}, exitFailed, "none.pcap: expected packets, got none"},
		{[]string{none, up1}, exitFailed, "none.pcap: expected packets, got none"},
		{[]string{in, wireless}, exitFailed, "wireless.pcap: expected Ethernet packets, got 1 packets of other link types"},
		{[]string{in, "leaf9=" + up1, "--fabric", e.fabric()}, exitFound, "warning: leaf9: no port or device"},
	} {
		r := runBinary(t, os.Environ(), append([]string{"conform"}, test.args...)...)
		if r.code != test.code || !strings.Contains(r.stderr, test.says) {
			t.Errorf("%v: exit code %d: %s", test.args, r.code, r.stderr)
		}
	}
	small := runBinary(t, os.Environ(), "conform", in, up1, "--memory-packets", "1000")
	large := runBinary(t, os.Environ(), "conform", in, up1)
	if small.stdout != large.stdout {
		t.Errorf("in parts:\n%s\nas a whole:\n%s", small.stdout, large.stdout)
	}
}
