package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func writeFile(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestBadInput: each mistake gives one clear line with the problem, its place and the remedy,
// and the exit code of its class.
func TestBadInput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string { return writeFile(t, filepath.Join(dir, name), text) }
	empty, nonsense := file("empty.pcap", ""), file("nonsense.pcap", "this is no capture at all")
	unknownKey := file("config.yaml", "windows:\n  resolutions: [1s]\n  resolution: 1s\n")
	fine := file("fine.yaml", "windows:\n  resolutions: [100ms, 1s]\n")
	badTable := file("table.yaml", "csig:\n  tables:\n  - {format: compact, signal: max_delay, buckets: [\"0ns\", \"20us\", \"10us\"]}\n")
	badFabric := file("fabric.yaml", "version: 1\ngroups:\n- {name: rack1, level: rack, prefixes: [10.0.0.0/33]}\n")
	tests := map[string]struct {
		args []string
		code int
		want []string
	}{
		"missing file":       {[]string{"replay", "--store", "none", "gone.pcap"}, exitFailed, []string{"gone.pcap", "no such file"}},
		"empty file":         {[]string{"replay", "--store", "none", empty}, exitFailed, []string{empty, "empty", "expected pcap"}},
		"nonsense file":      {[]string{"replay", "--store", "none", nonsense}, exitFailed, []string{nonsense, "74 68 69 73", "expected pcap"}},
		"folder":             {[]string{"replay", "--store", "none", t.TempDir()}, exitFailed, []string{"holds no pcap"}},
		"no file":            {[]string{"replay"}, exitUsage, []string{"no capture file", "--help"}},
		"unknown flag":       {[]string{"replay", "--fabrik", "x"}, exitUsage, []string{"--fabrik", "--help"}},
		"unknown command":    {[]string{"repl"}, exitUsage, []string{`"repl"`, "did you mean replay?", "--help"}},
		"unknown, --help":    {[]string{"capture", "--help"}, exitUsage, []string{`"capture" of csigscope `}},
		"help of unknown":    {[]string{"help", "schema", "migrat"}, exitUsage, []string{`"migrat" of csigscope schema`, "did you mean migrate?"}},
		"unknown shell":      {[]string{"completion", "bach"}, exitUsage, []string{`"bach" of csigscope completion`, "did you mean bash?"}},
		"unknown subcommand": {[]string{"schema", "migrat"}, exitUsage, []string{`"migrat" of csigscope schema`, "did you mean migrate?"}},
		"nothing like it":    {[]string{"query", "bogus"}, exitUsage, []string{`"bogus"`, "csigscope query --help"}},
		"unknown key":        {[]string{"config", "check", "--config", unknownKey}, exitUsage, []string{unknownKey, "line 3", `unknown key "resolution": expected one of `, "max_keys"}},
		"overlapping bucket": {[]string{"config", "check", "--config", badTable}, exitUsage, []string{badTable, "tables[0]", "bucket 2", "10us"}},
		"bad fabric":         {[]string{"config", "check", "--fabric", badFabric}, exitUsage, []string{badFabric, "fabric.yaml:3:", "10.0.0.0/33"}},
		"files before store": {[]string{"replay", "--store", "clickhouse://127.0.0.1:1", nonsense}, exitFailed, []string{nonsense}},
		"store syntax":       {[]string{"query", "extent", "--store", "postgres://x"}, exitUsage, []string{"--store", "embedded", "clickhouse://"}},
		"unreachable server": {[]string{"query", "extent", "--store", "clickhouse://127.0.0.1:1/db?dial_timeout=1s"}, exitFailed, []string{"127.0.0.1:1", "refused"}},
		"unknown signal":     {[]string{"query", "cells", "--signal", "abw"}, exitUsage, []string{"abw", "min_abw_ratio"}},
		"unknown scenario":   {[]string{"emit", "--scenario", "x", "--out", dir}, exitUsage, []string{`"x"`, "quickstart"}},
		"report's folder":    {[]string{"report", "--out", filepath.Join(dir, "gone", "r.html"), empty}, exitUsage, []string{"--out", "no such file"}},
		"JUnit's folder":     {[]string{"conform", "--device", "leaf1", "--junit", filepath.Join(empty, "j.xml"), empty, empty}, exitUsage, []string{"--junit", "empty.pcap"}},
		"no number":          {[]string{"replay", "--pace", "fast", empty}, exitUsage, []string{`--pace "fast": expected a number (see csigscope replay --help)`}},
		"no time":            {[]string{"replay", "--fine", "10", empty}, exitUsage, []string{`--fine "10"`, "with a unit, such as 500ms"}},
		"no size":            {[]string{"replay", "--chunk-size", "-3", empty}, exitUsage, []string{"--chunk-size", `"-3"`, "200GiB"}},
		"two below 1s":       {[]string{"replay", "--store", "none", "--fine", "10ms", "--config", fine, empty}, exitUsage, []string{"--fine 10ms", "100ms", "at most one"}},
		"no part of 1s":      {[]string{"replay", "--store", "none", "--fine", "7ms", empty}, exitUsage, []string{"--fine 7ms", "whole part of 1s", "10ms"}},
		"backwards":          {[]string{"replay", "--store", "none", "--pace", "-1", empty}, exitUsage, []string{"--pace -1", "0 (as fast as possible)"}},
		"no cores":           {[]string{"replay", "--store", "none", "--workers", "0", empty}, exitUsage, []string{"--workers 0", "at least 1"}},
		"negative duration":  {[]string{"emit", "--set", "duration=-1s", "--out", dir}, exitUsage, []string{"duration -1s"}},
		"two kinds of emit":  {[]string{"emit", "--list", "--dump"}, exitUsage, []string{"csigscope: --list, --dump: expected at most one"}},
		"unknown encap":      {[]string{"emit", "--set", "encap=x", "--out", dir}, exitUsage, []string{`encap "x"`, "vxlan"}},
		"no date":            {[]string{"query", "cells", "--from", "yesterday"}, exitUsage, []string{`--from "yesterday"`, "2026-01-05T09:30:00Z"}},
		"top of nothing":     {[]string{"query", "flows", "--top", "0"}, exitUsage, []string{"--top 0", "at least 1"}},
		"top of too many":    {[]string{"query", "flows", "--top", "20000", "--from", "2026-01-05T00:00:00Z", "--to", "2026-01-05T00:00:01Z", "--server", "http://127.0.0.1:1"}, exitUsage, []string{"--top: expected a whole number from 1 to 10000"}},
		"step backwards":     {[]string{"query", "coverage", "--step", "-1s"}, exitUsage, []string{"--step -1s", "above 0"}},
		"no resolution":      {[]string{"query", "coverage", "--resolution", "-1s"}, exitUsage, []string{"--resolution -1s", "1m"}},
		"no finding":         {[]string{"query", "findings", "--top", "0"}, exitUsage, []string{"--top 0", "at least 1"}},
		"unknown severity":   {[]string{"query", "findings", "--severity", "high"}, exitUsage, []string{`--severity "high"`, "info, warning, error"}},
		"negative count":     {[]string{"query", "watch", "--count", "-1"}, exitUsage, []string{"--count -1"}},
		"negative changes":   {[]string{"query", "changes", "--count", "-1"}, exitUsage, []string{"--count -1"}},
		"forgotten --config": {[]string{"config", "check", unknownKey}, exitUsage, []string{"config.yaml", "behind --config", "behind --fabric"}},
		"fabric as config":   {[]string{"config", "check", "--config", badFabric}, exitUsage, []string{badFabric, `line 1: unknown key "version"`, "; line 2: ", "behind --fabric"}},
		"text as config":     {[]string{"config", "check", "--config", nonsense}, exitUsage, []string{"line 1: `this is...` is text, expected keys with values"}},
		"tabs in config":     {[]string{"config", "check", "--config", file("tabs.yaml", "windows:\n\tmax_keys: 3\n")}, exitUsage, []string{"tabs.yaml", "line 2: found", "not by tabs"}},
		"tab at the begin":   {[]string{"config", "check", "--config", file("tab.yaml", "\twindows: {}\n")}, exitUsage, []string{"tab.yaml", "line 1: found", "not by tabs"}},
		"tab in fabric":      {[]string{"config", "check", "--fabric", file("tab.fabric", "\tversion: 1\n")}, exitUsage, []string{"tab.fabric:1: found", "not by tabs"}},
		"scenario's key":     {[]string{"emit", "--out", dir, "--scenario-file", file("key.scenario", "base: demo\nworkloads:\n- {kin: ring}\n")}, exitUsage, []string{`key.scenario": line 3: unknown key "kin": expected one of kind, `}},
		"scenario's value":   {[]string{"emit", "--out", dir, "--scenario-file", file("value.scenario", "base: demo\nduration: [a]\n")}, exitUsage, []string{"line 2: is a list, expected a time with a unit"}},
		"scenario no file":   {[]string{"emit", "--out", dir, "--scenario-file", "gone.yaml"}, exitUsage, []string{"open gone.yaml: no such file"}},
		"decode no file":     {[]string{"decode", "gone.pcap"}, exitFailed, []string{"gone.pcap", "no such file"}},
		"folder as config":   {[]string{"config", "check", "--config", dir}, exitUsage, []string{dir, "is a directory"}},
		"no backup folder":   {[]string{"schema", "backup"}, exitUsage, []string{"backup: expected one FOLDER, got 0"}},
		"input twice":        {[]string{"decode", "-", "-"}, exitUsage, []string{"decode: - is given 2 times: expected standard input at most once"}},
		"a port's as well":   {[]string{"conform", "-", "up1=-"}, exitUsage, []string{"conform: - is given 2 times"}},
		"a tap's as well":    {[]string{"trace", "-", empty, "-"}, exitUsage, []string{"trace: - is given 2 times"}},
		"one capture":        {[]string{"trace", empty}, exitUsage, []string{"csigscope: trace: expected 2 to", "--help"}},
		"nobody serves":      {[]string{"query", "path", "--src", "a", "--dst", "b", "--server", "http://127.0.0.1:1"}, exitFailed, []string{"127.0.0.1:1", "refused", "collect with --api-listen"}},
		"no store":           {[]string{"query", "extent", "--store", "embedded:" + dir}, exitFailed, []string{dir, "nothing is stored", "replay first"}},
		"no folder of it":    {[]string{"query", "extent", "--store", "embedded:" + filepath.Join(empty, "store")}, exitFailed, []string{"open store", "not a directory"}},
		"no interface":       {[]string{"export", "--check", "--interface", "missing0"}, exitFailed, []string{"--check", `"missing0"`, "no such interface"}},
		"demo's public page": {[]string{"demo", "--dir", dir, "--listen", "0.0.0.0:8080"}, exitUsage, []string{"0.0.0.0:8080", "on loopback only", "query serve"}},
		"annotated itself":   {[]string{"decode", nonsense, "--annotate", filepath.Join(dir, ".", "nonsense.pcap")}, exitUsage, []string{"--annotate", nonsense, "is one of the captures to read"}},
		"annotated among":    {[]string{"decode", dir, "--annotate", filepath.Join(dir, "new.pcapng")}, exitUsage, []string{"--annotate", "lies in the folder that is read"}},
		"report over it":     {[]string{"report", nonsense, "--out", nonsense}, exitUsage, []string{"--out", "is one of the captures to read"}},
		"public listener":    {[]string{"query", "serve", "--listen", "0.0.0.0:8080"}, exitUsage, []string{"0.0.0.0:8080", "no TLS certificate"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := runBinary(t, os.Environ(), tt.args...)
			if r.code != tt.code {
				t.Errorf("exit code %d, want %d", r.code, tt.code)
			}
			line := strings.TrimSpace(r.stderr)
			if strings.Contains(line, "\n") || r.stdout != "" {
				t.Errorf("want one line on standard error, got %q and %q", r.stderr, r.stdout)
			}
			for _, want := range tt.want {
				if !strings.Contains(line, want) {
					t.Errorf("%q does not say %q", line, want)
				}
			}
		})
	}
}

// TestCaptureIsKept: a capture named as an output stays unchanged.
func TestCaptureIsKept(t *testing.T) {
	t.Parallel()
	e := emit(t, "--scenario", "quickstart", "--set", "duration=50ms")
	path := e.captures(t)[0]
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link.pcapng")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"decode", path, "--annotate", link}, {"report", path, "--out", link}, {"report", filepath.Dir(path), "--out", path}, {"conform", path, "up1=" + path, "--junit", link}} {
		if r := runBinary(t, os.Environ(), args...); r.code != exitUsage {
			t.Errorf("%s: exit code %d: %s", args[0], r.code, r.stderr)
		}
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Errorf("the capture has %d bytes of %d, %v", len(after), len(before), err)
	}
}

// TestSettingsAreKept: a fabric file or scenario that a command reads stays unchanged if it is
// named as an output, also under another name.
func TestSettingsAreKept(t *testing.T) {
	t.Parallel()
	e := emit(t, "--scenario", "quickstart", "--set", "duration=50ms")
	mine := writeFile(t, filepath.Join(e.dir, "mine.yaml"), "name: mine\nfabric_file: fabric.yaml\nduration: 50ms\nworkloads:\n- {kind: incast, target: {rack: 1, host: 1}, rate: 100Mbps, racks: [2]}\n")
	scenario := writeFile(t, filepath.Join(t.TempDir(), "fabric.yaml"), "base: quickstart\nduration: 50ms\n")
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(e.fabric(), link); err != nil {
		t.Fatal(err)
	}
	capture := e.captures(t)[0]
	for _, tt := range []struct {
		kept, want string
		args       []string
	}{
		{e.fabric(), "fabric_file", []string{"emit", "--scenario-file", mine, "--out", e.dir}},
		{e.fabric(), "fabric_file", []string{"emit", "--scenario-file", mine, "--interface", "missing0", "--out", e.dir}},
		{scenario, "--scenario-file", []string{"emit", "--scenario-file", scenario, "--out", filepath.Dir(scenario)}},
		{e.fabric(), "--fabric", []string{"report", capture, "--fabric", e.fabric(), "--out", link}},
		{mine, "--config", []string{"decode", capture, "--config", mine, "--annotate", mine}},
		{mine, "--scenario-file", []string{"replay", "--store", "none", "--scenario-file", mine, "--out", mine}},
	} {
		before, err := os.ReadFile(tt.kept)
		if err != nil {
			t.Fatal(err)
		}
		if r := runBinary(t, os.Environ(), tt.args...); r.code != exitUsage || !strings.Contains(r.stderr, tt.want) || !strings.Contains(r.stderr, "another") {
			t.Errorf("%s: exit code %d, %q does not name %s and the remedy", tt.args, r.code, r.stderr, tt.want)
		}
		if after, err := os.ReadFile(tt.kept); err != nil || string(after) != string(before) {
			t.Errorf("%s: %s has %d bytes of %d, %v", tt.args, tt.kept, len(after), len(before), err)
		}
	}
}

// TestFabricWarnings: only the check warns of allowed values that look like mistakes.
func TestFabricWarnings(t *testing.T) {
	t.Parallel()
	path := writeFile(t, filepath.Join(t.TempDir(), "fabric.yaml"), `version: 1
groups:
- {name: rack1, level: rack, prefixes: [10.0.1.0/24]}
devices:
- {name: leaf1, stage: leaf, ports: [{name: down1, orientation: down, peer: host1, speed: 100Gbps}]}
hosts:
- {name: host1, addresses: [10.0.1.1, 10.0.2.1]}
`)
	r := runBinary(t, os.Environ(), "config", "check", "--fabric", path)
	if r.code != exitDone || !strings.Contains(r.stderr, "warning: ") || !strings.Contains(r.stderr, "10.0.2.1") {
		t.Errorf("exit code %d, %q does not warn of 10.0.2.1", r.code, r.stderr)
	}
}

// TestMissingEngine: without the library, commands that do not store work, and those that do
// say how to get it.
func TestMissingEngine(t *testing.T) {
	t.Parallel()
	e := emit(t, "--scenario", "quickstart", "--set", "duration=200ms")
	env := append(os.Environ(), "CSIGSCOPE_ENGINE="+filepath.Join(t.TempDir(), "none.so"))
	args := append([]string{"replay", "--fabric", e.fabric()}, e.captures(t)...)
	r := runBinary(t, env, append(args, "--store", "embedded:"+t.TempDir())...)
	if r.code != exitFailed || !strings.Contains(r.stderr, "make engine") || !strings.Contains(r.stderr, "clickhouse://") {
		t.Errorf("exit code %d: %q does not say how to get an engine", r.code, r.stderr)
	}
	mustRun(t, env, append(args, "--store", "none")...)
}

// TestCutFile: a cut capture yields all of its intact packets and the place of the cut; the
// other captures are not affected.
func TestCutFile(t *testing.T) {
	t.Parallel()
	env := engineEnv(t)
	e := emit(t, "--scenario", "quickstart", "--set", "duration=500ms", "--set", "classic=true")
	files := e.captures(t)
	whole := decodeJSON[summaryOutput](t, mustRun(t, env, append([]string{"replay", "--store", "none", "-o", "json"}, files...)...))
	data, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, files[0], string(data[:len(data)-7]))
	dsn := newStore(t, env, filepath.Join(t.TempDir(), "store"))
	r := runBinary(t, env, append([]string{"replay", "--fabric", e.fabric(), "--store", dsn, "-o", "json"}, files...)...)
	cut := decodeJSON[summaryOutput](t, r.stdout)
	if r.code != exitFailed || cut.Packets != whole.Packets-1 || !cut.Conserved {
		t.Errorf("exit code %d, %d packets, want %d and %d", r.code, cut.Packets, exitFailed, whole.Packets-1)
	}
	for _, want := range []string{files[0], "byte offset", "wanted", "intact"} {
		if !strings.Contains(r.stderr, want) {
			t.Errorf("%q does not say %q", r.stderr, want)
		}
	}
	if len(storedWindows(t, env, dsn)) == 0 {
		t.Error("nothing of the cut capture is stored")
	}
}

// TestUnknownAddress: addresses unknown to the fabric are counted in a visible group.
func TestUnknownAddress(t *testing.T) {
	t.Parallel()
	env := engineEnv(t)
	e := emit(t, "--scenario", "quickstart", "--set", "duration=500ms")
	text, err := os.ReadFile(e.fabric())
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, e.fabric(), strings.ReplaceAll(string(text), "10.0.2.", "10.77.2."))
	dsn := newStore(t, env, filepath.Join(t.TempDir(), "store"))
	r := runBinary(t, env, append([]string{"replay", "--fabric", e.fabric(), "--store", dsn, "-o", "json"}, e.captures(t)...)...)
	if r.code != exitDone {
		t.Fatalf("exit code %d: %s", r.code, r.stderr)
	}
	unknown := 0
	for _, w := range storedWindows(t, env, dsn) {
		if w.Src == "unknown" || w.Dst == "unknown" {
			unknown++
		}
	}
	if unknown == 0 {
		t.Error("observations of unknown addresses are in no group")
	}
}
