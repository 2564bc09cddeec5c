package main

import (
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/aggregate/table/tabletest"
)

// TestWithoutTags: captures without a tag say what tags are looked for, and where to say what
// else; those with tags do not.
func TestWithoutTags(t *testing.T) {
	t.Parallel()
	none := emit(t, "--scenario", "quickstart", "--set", "duration=100ms", "--set", "tag_every=-1", "--set", "capture_untagged=true")
	some := emit(t, "--scenario", "quickstart", "--set", "duration=100ms")
	for _, args := range [][]string{{"replay", "--store", "none"}, {"decode"}, {"report", "--out", filepath.Join(t.TempDir(), "r.html")}} {
		r := runBinary(t, os.Environ(), append(args, none.captures(t)[0])...)
		for _, want := range []string{"0x9900, 0x88b5, 0x88b6", "csig: tpids", "config dump"} {
			if r.code != exitDone || !strings.Contains(r.stderr, want) {
				t.Errorf("%s: exit code %d, %q does not say %q", args[0], r.code, r.stderr, want)
			}
		}
		if r := runBinary(t, os.Environ(), append(args, some.captures(t)[0])...); strings.Contains(r.stderr, "tpids") {
			t.Errorf("%s: with tags: %q", args[0], r.stderr)
		}
	}
}

// TestDemoTellsBefore: a demo whose page cannot be served says so before it simulates.
func TestDemoTellsBefore(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	missing := append(os.Environ(), "CSIGSCOPE_ENGINE="+filepath.Join(t.TempDir(), "none.so"))
	for _, tt := range []struct {
		env  []string
		args []string
		want string
	}{
		{os.Environ(), []string{"--listen", l.Addr().String()}, "choose another port with --listen"},
		{missing, []string{"--listen", "127.0.0.1:0"}, "make engine"},
	} {
		r := runBinary(t, tt.env, append([]string{"demo", "--dir", t.TempDir()}, tt.args...)...)
		if r.code != exitFailed || r.stdout != "" || !strings.Contains(r.stderr, tt.want) {
			t.Errorf("exit code %d, %q and %q: want %q alone", r.code, r.stdout, r.stderr, tt.want)
		}
	}
}

// TestNothingThatFits: an answer without rows says that it is one.
func TestNothingThatFits(t *testing.T) {
	t.Parallel()
	env := engineEnv(t)
	dsn := "embedded:" + filepath.Join(t.TempDir(), "store")
	mustRun(t, env, "schema", "migrate", "--store", dsn)
	if r := runBinary(t, env, "query", "extent", "--store", dsn, "-o", "csv"); r.code != exitDone || strings.Contains(r.stdout, "0001") || !strings.Contains(r.stderr, "nothing is stored in "+dsn) {
		t.Errorf("extent: exit code %d, %q, %q", r.code, r.stdout, r.stderr)
	}
	e := emit(t, "--scenario", "quickstart", "--set", "duration=100ms")
	mustRun(t, env, append([]string{"replay", "--store", dsn, "--fabric", e.fabric()}, e.captures(t)...)...)
	for want, args := range map[string][]string{
		"no rows match: there are rows from 2026-": {"query", "cells", "--since", "1h"},
		"no rows match": {"query", "findings", "--kind", "stuck-port"},
	} {
		if r := runBinary(t, env, append(args, "--store", dsn)...); r.code != exitDone || !strings.Contains(r.stderr, want) {
			t.Errorf("%v: exit code %d, %q does not say %q", args, r.code, r.stderr, want)
		}
	}
	for _, flags := range []string{"coverage --resolution 3s", "windows --step 1500ms", "windows --step 10ms", "flows --window 10ms", "locations --top 100000000"} {
		if r := runBinary(t, env, append([]string{"query"}, strings.Fields(flags+" --store "+dsn)...)...); r.code != exitUsage {
			t.Errorf("%s: exit code %d, want %d: %s", flags, r.code, exitUsage, r.stderr)
		}
	}
}

// TestServerWithoutRows: a server's answer without rows says that it is one.
func TestServerWithoutRows(t *testing.T) {
	t.Parallel()
	h, err := api.New(api.Config{Memory: table.NewMemory(table.MemoryOptions{}), Names: tabletest.Names{Racks: 2}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	defer server.Close()
	r := runBinary(t, os.Environ(), "query", "cells", "--server", server.URL)
	if r.code != exitDone || !strings.Contains(r.stderr, "there are none yet") {
		t.Errorf("exit code %d, %q", r.code, r.stderr)
	}
}

// TestHelpGroups: the help lists each command under a title.
func TestHelpGroups(t *testing.T) {
	t.Parallel()
	for _, cmd := range newRoot().Commands() {
		if cmd.IsAvailableCommand() && cmd.GroupID == "" {
			t.Errorf("%s is in no group", cmd.Name())
		}
	}
}
