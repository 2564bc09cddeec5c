package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/replay/emitter/scenario"
	"github.com/csigscope/csigscope/replay/emitter/simulation"
)

// TestExposedListenWarning: an address that collect accepts only with a flag causes a warning,
// not an error.
func TestExposedListenWarning(t *testing.T) {
	t.Parallel()
	var warnings strings.Builder
	root := newRoot()
	root.SetOut(io.Discard)
	root.SetErr(&warnings)
	root.SetArgs([]string{"config", "check", "--config", writeFile(t, filepath.Join(t.TempDir(), "config.yaml"), "collect: {ingest: {listen: \"0.0.0.0:4319\", tokens: file}}\n")})
	if err := root.ExecuteContext(t.Context()); err != nil || !strings.Contains(warnings.String(), "without --ingest-dangerously-exposed") {
		t.Errorf("%v: %q", err, warnings.String())
	}
}

// TestCheckReplaced: a dump changes nothing of a fabric file, and check warns of a configuration that does.
func TestCheckReplaced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fabric := writeFile(t, filepath.Join(dir, "fabric.yaml"), "version: 1\ncsig: {tpids: [{tpid: 0x9901, format: wide, profile: ietf01}]}\n")
	run := func(args ...string) (string, string) {
		var out, warnings strings.Builder
		root := newRoot()
		root.SetOut(&out)
		root.SetErr(&warnings)
		root.SetArgs(append([]string{"config"}, args...))
		if err := root.ExecuteContext(t.Context()); err != nil {
			t.Errorf("config %v: %v", args, err)
		}
		return out.String(), warnings.String()
	}
	dump, _ := run("dump")
	epoch, _ := run("check", "--fabric", fabric)
	if again, warnings := run("check", "--fabric", fabric, "--config", writeFile(t, filepath.Join(dir, "dump.yaml"), dump)); again != epoch || strings.Contains(warnings, "csig: tpids") {
		t.Errorf("with a dump: %s%s, want %s", again, warnings, epoch)
	}
	own := writeFile(t, filepath.Join(dir, "own.yaml"), "csig: {tpids: [{tpid: 0x9902, format: wide, profile: ietf01}]}\n")
	const want = "warning: csig: tpids: the configuration replaces entries of the fabric file\n"
	if again, warnings := run("check", "--fabric", fabric, "--config", own); again == epoch || strings.Count(warnings, want) != 1 {
		t.Errorf("with other TPIDs: %s%s, want %s", again, warnings, want)
	}
}

// TestCheckSeen: the hashes in a fabric file are checked against captures inside the fabric.
func TestCheckSeen(t *testing.T) {
	t.Parallel()
	s, err := scenario.Named("quickstart")
	if err != nil {
		t.Fatal(err)
	}
	s.Duration, s.ECMPHash, s.Taps = 100*time.Millisecond, "crc32", []scenario.Tap{{Racks: true}, {Name: "inside", After: []string{"spine1"}}}
	dir := t.TempDir()
	report, err := simulation.Run(t.Context(), s, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	check := func(fabricFile, capture string) (string, error) {
		var out strings.Builder
		root := newRoot()
		root.SetOut(&out)
		root.SetErr(io.Discard)
		root.SetArgs([]string{"config", "check", "--fabric", fabricFile, "--seen", filepath.Join(dir, capture)})
		err := root.ExecuteContext(t.Context())
		return out.String(), err
	}
	if out, err := check(report.Fabric, "inside.pcapng"); err != nil || !strings.Contains(out, "(100.00 %)") {
		t.Errorf("with the true hash: %v: %q", err, out)
	}
	text, err := os.ReadFile(report.Fabric)
	if err != nil {
		t.Fatal(err)
	}
	wrong := writeFile(t, filepath.Join(t.TempDir(), "fabric.yaml"), strings.Replace(string(text), "hash: crc32", "hash: crc16", 1))
	if out, err := check(wrong, "inside.pcapng"); err != nil || !strings.Contains(out, "ecmp: right for ") || strings.Contains(out, "(100.00 %)") {
		t.Errorf("with another hash: %v: %q", err, out)
	}
	if _, err := check(report.Fabric, "rack1.pcapng"); err == nil || !strings.Contains(err.Error(), "no flow was seen") {
		t.Errorf("without a capture inside: %v", err)
	}
}
