package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// givenPorts are the ports that freeAddress has returned.
var givenPorts sync.Map

// freeAddress returns an unused loopback address. Its port is below the kernel's ephemeral
// range, from which another program might get it before the test does.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 1000 {
		address := fmt.Sprintf("127.0.0.1:%d", 12_000+rand.IntN(20_000))
		l, err := net.Listen("tcp", address)
		if err != nil {
			continue
		}
		l.Close()
		if _, given := givenPorts.LoadOrStore(address, true); !given {
			return address
		}
	}
	t.Fatal("no port is free")
	return ""
}

// TestClickHouseListen opens a store to other programs, as the README shows it, and runs
// further commands against the running engine.
func TestClickHouseListen(t *testing.T) {
	t.Parallel()
	env := engineEnv(t)
	e := emit(t, "--set", "duration=2s", "--set", "seed=3")
	dir := filepath.Join(t.TempDir(), "store")
	store := "--store=embedded:" + dir
	mustRun(t, env, append([]string{"replay", "--fabric", e.fabric(), store}, e.captures(t)...)...)
	address, other := freeAddress(t), freeAddress(t)
	serveBinary(t, env, "query", "serve", store, "--listen", "127.0.0.1:0", "--clickhouse-listen", address)
	const count = "SELECT count() > 0 FROM csigscope.partials_1s"
	if got := ask(t, address, count); got != "1\n" {
		t.Errorf("got %q, want 1", got)
	}
	if got := ask(t, address, "DROP TABLE csigscope.partials_1s"); !strings.Contains(got, "Code: 164.") {
		t.Errorf("a client that drops a table got %q, want code 164", got)
	}
	// Commands share the engine and its one address.
	serveBinary(t, env, "query", "serve", store, "--listen", "127.0.0.1:0", "--clickhouse-listen", address)
	mustRun(t, env, "query", "extent", store)
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"query", "serve", store, "--listen", "127.0.0.1:0", "--clickhouse-listen", other}, 1, "elsewhere: at " + address},
		{[]string{"query", "serve", store, "--listen", "127.0.0.1:0", "--clickhouse-listen", "0.0.0.0:8123"}, 2, "loopback"},
		{[]string{"engine", "--dir", dir}, 1, "another process serves this folder"},
	} {
		r := runBinary(t, env, tt.args...)
		if r.code != tt.code || !strings.Contains(r.stderr, tt.want) {
			t.Errorf("%v: exit code %d, want %d and %q: %s", tt.args, r.code, tt.code, tt.want, r.stderr)
		}
	}
	if got := ask(t, address, count); got != "1\n" {
		t.Errorf("after that: got %q, want 1", got)
	}
}

// ask sends a query with curl.
func ask(t *testing.T, address, sql string) string {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "curl", "-sS", "--max-time", "60", "--noproxy", "*", "http://"+address, "-d", sql)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("curl: %v: %s", err, out.String())
	}
	return out.String()
}

// TestBackupAndRestore moves a store by a backup: both give the same answers.
func TestBackupAndRestore(t *testing.T) {
	t.Parallel()
	env := engineEnv(t)
	e := emit(t, "--set", "duration=2s", "--set", "seed=3")
	dir := t.TempDir()
	from, to, backup := "--store=embedded:"+filepath.Join(dir, "from"), "--store=embedded:"+filepath.Join(dir, "to"), filepath.Join(dir, "backup")
	mustRun(t, env, append([]string{"replay", "--fabric", e.fabric(), from}, e.captures(t)...)...)
	mustRun(t, env, "schema", "backup", backup, from)
	mustRun(t, env, "schema", "restore", backup, to)
	for _, name := range []string{"from", "to"} {
		keepEngine(t, env, filepath.Join(dir, name))
	}
	for _, question := range [][]string{
		{"query", "extent"}, {"query", "cells", "--signal", "min_abw_ratio", "-o", "csv"}, {"query", "locations", "--signal", "max_delay", "-o", "csv"},
	} {
		want, got := mustRun(t, env, append(question, from)...), mustRun(t, env, append(question, to)...)
		if got != want || len(want) < 100 {
			t.Errorf("%v: got %q, want %q", question, got, want)
		}
	}
	// The restored store accepts new rows.
	mustRun(t, env, append([]string{"replay", "--fabric", e.fabric(), to}, e.captures(t)...)...)
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"schema", "restore", backup, to}, 1, "not empty"},
		{[]string{"schema", "backup", backup, from}, 1, "exists already"},
		{[]string{"schema", "restore", dir, "--store=embedded:" + filepath.Join(dir, "other")}, 1, "no backup"},
		{[]string{"schema", "backup", backup + "2", "--store=none"}, 2, "not the embedded store"},
		{[]string{"schema", "backup", backup + "2", "--store=embedded:" + filepath.Join(dir, "missing")}, 1, "missing"},
		{[]string{"schema", "backup"}, 2, "expected one FOLDER"},
	} {
		r := runBinary(t, env, tt.args...)
		if r.code != tt.code || !strings.Contains(r.stderr, tt.want) {
			t.Errorf("%v: exit code %d, want %d and %q: %s", tt.args, r.code, tt.code, tt.want, r.stderr)
		}
	}
}
