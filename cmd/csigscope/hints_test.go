package main

import (
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/aggregate/table/tabletest"
)

// TestWithoutTags: a capture without tags causes a note about the tags looked for and how to
// configure others; one with tags does not.
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

// TestDemoTellsBefore: a demo reports before it simulates that its page cannot be served.
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

// TestNothingThatFits: an answer without rows comes with a note. A replay without a fabric file
// leaves the earlier topology in force.
func TestNothingThatFits(t *testing.T) {
	t.Parallel()
	env := engineEnv(t)
	dsn := "embedded:" + filepath.Join(t.TempDir(), "store")
	mustRun(t, env, "schema", "migrate", "--store", dsn)
	keepEngine(t, env, dsn)
	if r := runBinary(t, env, "query", "extent", "--store", dsn, "-o", "csv"); r.code != exitDone || strings.Contains(r.stdout, "0001") || !strings.Contains(r.stderr, "nothing is stored in "+dsn) {
		t.Errorf("extent: exit code %d, %q, %q", r.code, r.stdout, r.stderr)
	}
	e := emit(t, "--scenario", "quickstart", "--set", "duration=100ms")
	mustRun(t, env, append([]string{"replay", "--store", dsn, "--fabric", e.fabric()}, e.captures(t)...)...)
	topology := mustRun(t, env, "query", "topology", "--store", dsn)
	mustRun(t, env, append([]string{"replay", "--store", dsn}, e.captures(t)[:1]...)...) // a later one without a fabric file
	if got := mustRun(t, env, "query", "topology", "--store", dsn); got != topology || !strings.Contains(got, "leaf1:up1") {
		t.Errorf("topology %q, was %q", got, topology)
	}
	for want, args := range map[string][]string{
		"no rows match: there are rows from 2026-": {"query", "cells", "--since", "2d"},
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

// TestServerWithoutRows: a server's answer without rows comes with a note.
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

// TestNext: a replay ends with the command that shows its results, and query serve begins with
// how to query it.
func TestNext(t *testing.T) {
	t.Parallel()
	e := emit(t, "--scenario", "quickstart", "--set", "duration=100ms")
	replay := append([]string{"replay", "--fabric", e.fabric()}, e.captures(t)...)
	if out := mustRun(t, nil, append(replay, "--store", "none")...); !strings.HasSuffix(out, "\nnext: csigscope report FILE... for one document, or repeat this command without --store none to store the result\n") {
		t.Errorf("without a store: %q", out)
	}
	if out := mustRun(t, nil, append(replay, "--store", "none", "-o", "json")...); strings.Contains(out, "next:") {
		t.Errorf("JSON: %q", out)
	}
	env := engineEnv(t)
	dsn := "embedded:" + filepath.Join(t.TempDir(), "store")
	config := writeFile(t, filepath.Join(t.TempDir(), "config.yaml"), "store: {dsn: "+strconv.Quote(dsn+"'s")+"}")
	for _, into := range []struct {
		arguments []string
		store     string
	}{
		{[]string{"--store", dsn}, dsn},
		{[]string{"--config", config}, dsn + `'\''s`},
	} {
		if out := mustRun(t, env, append(replay, into.arguments...)...); !strings.HasSuffix(out, "\nnext: csigscope query serve --store '"+into.store+"'\n") {
			t.Errorf("%q: %q", into.arguments, out)
		}
	}
	runUntil(t, env, "next: open it in a browser, or ask: csigscope query cells --server http://127.0.0.1:", "query", "serve", "--store", dsn, "--listen", "127.0.0.1:0").end(syscall.SIGTERM)
}

// TestDecodeTable: the table has the same times as the JSON output, and also as RFC 3339.
func TestDecodeTable(t *testing.T) {
	t.Parallel()
	e := emit(t, "--scenario", "quickstart", "--set", "duration=100ms")
	files := e.captures(t)
	lines := strings.Split(mustRun(t, nil, append([]string{"decode", "-o", "table"}, files...)...), "\n")
	objects := strings.Split(mustRun(t, nil, append([]string{"decode"}, files...)...), "\n")
	if len(lines) != len(objects) || len(lines) < 100 {
		t.Fatalf("%d lines, %d objects", len(lines), len(objects))
	}
	for i, line := range lines[:len(lines)-1] {
		o := decodeJSON[struct {
			File, Src string
			Packet    uint64
			TimeNS    int64 `json:"time_ns"`
		}](t, objects[i])
		at := time.Unix(0, o.TimeNS).UTC().Format("2006-01-02T15:04:05.000000000Z07:00")
		if want := fmt.Sprintf("%s %s %d packet %d %s", o.File, at, o.TimeNS, o.Packet, o.Src); !strings.HasPrefix(line, want) {
			t.Fatalf("%q, want %q", line, want)
		}
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
