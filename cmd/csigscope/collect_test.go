package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestCollectExample: the annotated example is a good configuration, and dumped it is
// one again.
func TestCollectExample(t *testing.T) {
	t.Parallel()
	example := filepath.Join("testdata", "collect.yaml")
	if r := runBinary(t, os.Environ(), "config", "check", "--config", example); r.code != 0 {
		t.Fatalf("exit code %d: %s", r.code, r.stderr)
	}
	dumped := mustRun(t, os.Environ(), "config", "dump", "--config", example)
	for _, want := range []string{"interface: eth1", "rings: 2", "every: 1s", "timestamps: auto", "store_time: 30s", "tpid: 0x9900"} {
		if !strings.Contains(dumped, want) {
			t.Errorf("the dump has no %q", want)
		}
	}
	again := writeFile(t, filepath.Join(t.TempDir(), "dumped.yaml"), dumped)
	if twice := mustRun(t, os.Environ(), "config", "dump", "--config", again); twice != dumped {
		t.Error("a dump of the dump differs")
	}
}

// TestCollectMistakes: each gives one line, with its place, and exit code 2.
func TestCollectMistakes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, tt := range []struct{ name, config, want string }{
		{"no taps", "", "nothing to collect"},
		{"unknown key", "collect:\n  tabs: []\n", `line 2: unknown key "tabs"`},
		{"no interface", "collect:\n  taps:\n  - {name: a}\n", "expected the name of an interface"},
		{"place", "collect:\n  taps:\n  - interface: lo\n    place: moon\n", `line 4: collect: taps: place: "moon": expected one of [receiver sender mid]`},
		{"direction", "collect:\n  taps:\n  - {interface: lo, direction: up}\n", "expected one of [in both]"},
		{"rings", "collect:\n  taps:\n  - {interface: lo, rings: 1000}\n", "expected 1 to 256"},
		{"twice", "collect:\n  taps:\n  - {interface: lo}\n  - {interface: lo}\n", `line 4: collect: taps: "lo" is there twice`},
		{"mirror kind", "collect:\n  mirrors:\n  - {listen: 127.0.0.1}\n", "line 3: collect: mirrors: mirror \"127.0.0.1\": expected a kind"},
		{"mirror port", "collect:\n  mirrors:\n  - {listen: 127.0.0.1, kind: vxlan}\n", "expected IP:PORT such as 192.0.2.1:4789"},
		{"mirror host", "collect:\n  mirrors:\n  - {listen: \"127.0.0.1:1\", kind: erspan}\n", "without a port: GRE has none"},
		{"mirror session", "collect:\n  mirrors:\n  - {listen: 127.0.0.1, kind: erspan, sessions: {1024: {}}}\n", `erspan 127.0.0.1: session "1024" of erspan: expected a session of 0 to 1023`},
		{"mirror switch", "collect:\n  mirrors:\n  - {listen: 127.0.0.1, kind: erspan, sessions: {spine/7: {}}}\n", `session "spine/7": expected SESSION, ADDRESS or ADDRESS/SESSION`},
		{"mirror session's place", "collect:\n  mirrors:\n  - {listen: 127.0.0.1, kind: erspan, sessions: {7: {place: moon}}}\n", `line 3: collect: mirrors: sessions: 7: place: "moon": expected one of`},
		{"mirror clock", "collect:\n  mirrors:\n  - {listen: 127.0.0.1, kind: erspan, clock: sun}\n", `line 3: collect: mirrors: clock: "sun": expected one of [collector switch]`},
		{"mirror sessions", "collect:\n  mirrors:\n  - {listen: 127.0.0.1, kind: erspan, max_sessions: 1, sessions: {1: {}, 2: {}}}\n", "2 sessions: expected at most max_sessions, 1"},
		{"mirror session key", "collect:\n  mirrors:\n  - {listen: 127.0.0.1, kind: erspan, sessions: {7: {plaice: mid}}}\n", `line 3: unknown key "plaice"`},
		{"interval", "collect:\n  checkpoint: {every: 1ms}\n", "line 2: collect: checkpoint: every: 1ms: expected"},
		{"name", "collect:\n  instance: [a]\n", "line 2: collect: instance: expected a text"},
	} {
		path := writeFile(t, filepath.Join(dir, "config.yaml"), tt.config)
		r := runBinary(t, os.Environ(), "collect", "--config", path, "--store", "embedded:"+filepath.Join(dir, "store"))
		if r.code != exitUsage || !strings.Contains(r.stderr, tt.want) || strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("%s: exit code %d, want 2 and %q: %s", tt.name, r.code, tt.want, r.stderr)
		}
	}
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--interface", "no-such-if"}, 1, "no-such-if"},
		{[]string{"--interface", "lo", "--place", "moon"}, 2, `--place "moon"`},
		{[]string{"--interface", "lo", "--checkpoint", "1ns"}, 2, "expected 10ms to 1h0m0s"},
		{[]string{"--ingest-listen", "0.0.0.0:4319"}, 2, "is reachable from other machines, and there is no TLS certificate"},
		{[]string{"--ingest-listen", "4319"}, 2, "expected HOST:PORT"},
		{[]string{"extra"}, 2, "extra"},
	} {
		r := runBinary(t, os.Environ(), append([]string{"collect", "--store", "embedded:" + filepath.Join(dir, "store")}, tt.args...)...)
		if r.code != tt.code || !strings.Contains(r.stderr, tt.want) {
			t.Errorf("%v: exit code %d, want %d and %q: %s", tt.args, r.code, tt.code, tt.want, r.stderr)
		}
	}
}

// TestWhoMayExport: mistakes about exporters and collectors are found when the file is read, a
// list of exporters is no reason for a restart, and the way to a store is.
func TestWhoMayExport(t *testing.T) {
	name := filepath.Join(t.TempDir(), "config.yaml")
	load := func(text string) (config, error) {
		t.Helper()
		return loadConfig(writeFile(t, name, text))
	}
	for text, want := range map[string]string{
		"collect: {ingest: {tls: {cert: c, key: k, ca: a}}}":                                           "any certificate of this authority could export",
		"collect: {ingest: {tls: {cert: c, key: k, ca: a}, exporters: [{name: \"*\"}]}}":               "",
		"collect: {ingest: {tokens: t, exporters: [{name: rack1-*, rows: 100000}]}}":                   "",
		"collect: {ingest: {tokens: t, exporters: [{name: host1, rows: 100}]}}":                        "exporters: host1: limits",
		"collect: {ingest: {tokens: t, exporters: [{rows: 100000}]}}":                                  "expected 1 to 256 bytes",
		"collect: {ingest: {tokens: t, exporters: [{name: host1, rate: 100}]}}":                        "rate",
		"collect: {ingest: {anonymous: local, exporters: [{name: host1}]}}":                            "anonymous: local is not among the exporters",
		"collect: {ingest: {tokens: t, expect: [host1]}}":                                              "expect",
		"export: {collectors: [\"http://collector.example:4319\"]}":                                    "expected https",
		"export: {collectors: [\"http://127.0.0.1:4319\", \"https://collector.example\"]}":             "",
		"export: {collectors: [\"http://127.0.0.1:4319\"], tls: {ca: a}}":                              "expected https",
		"collect: {ingest: {limits: {rows: 100000, exporters: 7}, exporters: [{name: h, rows: 2e5}]}}": "",
	} {
		if _, err := load(text); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	fixed := func(text string) settings {
		t.Helper()
		c, err := load(text)
		if err != nil {
			t.Fatal(err)
		}
		f := &collector{}
		f.cmd = newCollectCommand()
		s, err := f.fixedSettings(&network{config: c.merge()}, &c.Collect)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	before := fixed("collect: {ingest: {tokens: t, exporters: [{name: h}], limits: {rows: 1e5, exporters: 7}}}")
	if list := before.differ(fixed("collect: {ingest: {tokens: t, exporters: [{name: g, rows: 2e5}], limits: {rows: 3e5, exporters: 7}}}")); len(list) > 0 {
		t.Errorf("a restart is wanted for %v", list)
	}
	if list := before.differ(fixed("collect: {ingest: {tokens: u, limits: {exporters: 8}}}")); !slices.Equal(list, []string{"collect.ingest.limits.exporters", "collect.ingest.tokens"}) {
		t.Errorf("a restart is wanted for %v", list)
	}
}
