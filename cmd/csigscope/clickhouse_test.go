package main

import (
	"bytes"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// freeAddress is a loopback address that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// TestClickHouseListen opens a store to other programs, as the README shows it, and
// has further commands meet the engine that runs.
func TestClickHouseListen(t *testing.T) {
	env := engineEnv(t)
	e := emit(t, "--duration", "2s", "--seed", "3")
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
	// Commands share the engine, and its one address.
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
