package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/store/chdb"
)

// TestSchemaVerify finds nothing in the rows of replays at every resolution, with a second pass
// under another configuration and with few keys.
func TestSchemaVerify(t *testing.T) {
	t.Parallel()
	env := engineEnv(t)
	dsn := newStore(t, env, filepath.Join(t.TempDir(), "store"))
	keepEngine(t, env, dsn)
	store := "--store=" + dsn
	e := emit(t, "--scenario", "demo", "--set", "duration=2s")
	few := filepath.Join(t.TempDir(), "few.yaml")
	if err := os.WriteFile(few, []byte("windows: {max_keys: 100}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--fabric", e.fabric(), "--fine", "10ms"}, {"--fine", "10ms", "--fine-all"}, {"--config", few}} {
		mustRun(t, env, append(append([]string{"replay", store}, args...), e.captures(t)...)...)
		rows := decodeJSON[[]struct{ Kind, Check string }](t, mustRun(t, env, "schema", "verify", store, "-o", "json"))
		for _, r := range rows {
			if r.Kind != "info" {
				t.Errorf("%v: %+v", args, r)
			}
		}
	}
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{store, "--grace", "-1s"}, 2, "--grace"},
		{[]string{"--store=none"}, 2, "nothing to verify"},
	} {
		r := runBinary(t, env, append([]string{"schema", "verify"}, tt.args...)...)
		if r.code != tt.code || !strings.Contains(r.stderr, tt.want) {
			t.Errorf("%v: exit code %d, want %d and %q: %s", tt.args, r.code, tt.code, tt.want, r.stderr)
		}
	}
}

// TestSchemaDrop deletes a store in all permitted and forbidden ways.
func TestSchemaDrop(t *testing.T) {
	t.Parallel()
	env := engineEnv(t)
	dir := filepath.Join(t.TempDir(), "store")
	store := "--store=embedded:" + dir
	mustRun(t, env, "replay", "--scenario", "demo", "--set", "duration=1s", store)
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{store}, 2, "--yes"},
		{[]string{"--store=none", "--yes"}, 2, "nothing to drop"},
		{[]string{"--store=embedded:" + dir + "-absent", "--yes"}, 1, "nothing is stored in"},
		{[]string{store, "--yes"}, 0, "dropped"},
		{[]string{store, "--yes"}, 1, "no schema"},
	} {
		r := runBinary(t, env, append([]string{"schema", "drop"}, tt.args...)...)
		if text := r.stdout + r.stderr; r.code != tt.code || !strings.Contains(text, tt.want) {
			t.Errorf("%v: exit code %d, want %d and %q: %s", tt.args, r.code, tt.code, tt.want, text)
		}
		if tt.code == 0 && (!strings.Contains(r.stdout, " rows\n") || !strings.Contains(r.stdout, "windows from 20") || strings.Contains(r.stdout, "partials_1s 0 rows")) {
			t.Errorf("what will be lost: %s", r.stdout)
		}
	}
}

// TestEarlierStore: every command refuses a store from before version 1 of the schema in one
// line with a remedy, and the remedy works.
func TestEarlierStore(t *testing.T) {
	t.Parallel()
	env := engineEnv(t)
	dir := filepath.Join(t.TempDir(), "store")
	execEngine(t, env, dir, "CREATE DATABASE csigscope",
		"CREATE TABLE csigscope.schema_migrations (version UInt32, name String, checksum UInt64, at DateTime64(3, 'UTC')) ENGINE = ReplacingMergeTree(at) ORDER BY version",
		"CREATE TABLE csigscope.partials_1s (window_start DateTime64(9, 'UTC'), observations UInt64) ENGINE = ReplacingMergeTree ORDER BY window_start")
	keepEngine(t, env, dir)
	store := "--store=embedded:" + dir
	config := writeFile(t, filepath.Join(t.TempDir(), "collect.yaml"), "collect:\n  ingest: {listen: "+freeAddress(t)+", anonymous: host1}\n")
	replay := []string{"replay", "--scenario", "demo", "--set", "duration=1s"}
	for _, args := range [][]string{
		replay,
		{"collect", "--config", config},
		{"query", "cells"},
		{"query", "extent"},
		{"schema", "status"},
		{"schema", "migrate"},
		{"schema", "verify"},
		{"schema", "trim", "--max-disk", "1GB"},
		{"schema", "backup", dir + "-copy"},
	} {
		r := runBinary(t, env, append(args, store)...)
		if line, rest, _ := strings.Cut(r.stderr, "\n"); r.code != 1 || rest != "" || !strings.Contains(line, "csigscope schema drop") {
			t.Errorf("%v: exit code %d, %s", args, r.code, r.stderr)
		}
	}
	if out := mustRun(t, env, "schema", "drop", "--yes", store); !strings.Contains(out, "dropped") {
		t.Error(out)
	}
	mustRun(t, env, append(replay, store)...)
}

// execEngine runs statements in an embedded store.
func execEngine(t *testing.T, env []string, dir string, statements ...string) {
	t.Helper()
	engine := startEngine(t, env, dir)
	defer engine.Close()
	conn, err := clickhouse.Open(engine.ClickHouseOptions(chdb.RoleMigrator))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, statement := range statements {
		if err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

func TestConfirm(t *testing.T) {
	for answer, want := range map[string]bool{
		"csigscope\n": true, "csigscope \r\n": true, "csigscope": true,
		"": false, "\n": false, "y\n": false, "csigscop\n": false, strings.Repeat("csigscope", 1000): false,
	} {
		if err := confirm(strings.NewReader(answer), "csigscope"); (err == nil) != want {
			t.Errorf("%.20q: %v, want accepted %t", answer, err, want)
		}
	}
}

func TestSchemaGrants(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--user", "grafana"}, 0, "GRANT `csigscope_reader` TO `grafana`;"},
		{[]string{"--user", "tap", "--access", "writer"}, 0, "GRANT SELECT, INSERT ON csigscope.* TO `csigscope_writer`;"},
		{[]string{"--user", "grafana", "--max-time", "5s"}, 0, "max_execution_time = 5 MIN 1 MAX 5"},
		{[]string{"--user", "dba", "--access", "owner", "--cluster"}, 0, "GRANT REMOTE ON *.* TO `csigscope_owner`;"},
		{nil, 2, "expected a name"},
		{[]string{"--user", "x", "--access", "god"}, 2, "expected reader"},
		{[]string{"--user", "x", "--password-stdin"}, 2, "expected a password"},
	} {
		r := runBinary(t, nil, append([]string{"schema", "grants"}, tt.args...)...)
		if text := r.stdout + r.stderr; r.code != tt.code || !strings.Contains(text, tt.want) {
			t.Errorf("%v: exit code %d, want %d and %q: %s", tt.args, r.code, tt.code, tt.want, text)
		}
	}
}

// TestSchemaTrim shortens the retention, and then the disk budget.
func TestSchemaTrim(t *testing.T) {
	t.Parallel()
	env := engineEnv(t)
	dsn := newStore(t, env, filepath.Join(t.TempDir(), "store"))
	keepEngine(t, env, dsn)
	store := "--store=" + dsn
	mustRun(t, env, "replay", "--scenario", "demo", "--set", "duration=1s", "--fine", "10ms", "--fine-all", store)
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"migrate", store, "--retention", "fine=2h,1s=30d"}, 0, "up to date"},
		{[]string{"migrate", store, "--retention", "1s=1m"}, 2, `--retention: "1s=1m": invalid retention: expected whole seconds, at least 1h`},
		{[]string{"migrate", store, "--retention", "2s=1h"}, 2, "expected fine=TIME"},
		{[]string{"migrate", store, "--retention", "1s"}, 2, "such as 6h"},
		{[]string{"trim", store}, 2, "--max-disk"},
		{[]string{"trim", store, "--max-disk", "1TB", "-o", "csv"}, 0, "table,partition,rows,bytes\n"},
		{[]string{"trim", store, "--max-disk", "1kB"}, 1, "partials_fine"},
		{[]string{"trim", store, "--max-disk", "1kB"}, 1, "nothing left to delete"},
		{[]string{"trim", "--store=none", "--max-disk", "1kB"}, 2, "nothing to trim"},
	} {
		r := runBinary(t, env, append([]string{"schema"}, tt.args...)...)
		if text := r.stdout + r.stderr; r.code != tt.code || !strings.Contains(text, tt.want) {
			t.Errorf("%v: exit code %d, want %d and %q: %s", tt.args, r.code, tt.code, tt.want, text)
		}
	}
}

func TestSchemaPrint(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{nil, 0, "CREATE TABLE IF NOT EXISTS csigscope.partials_1s\n"},
		{[]string{"--cluster", "prod"}, 0, "CREATE TABLE IF NOT EXISTS csigscope.partials_1s AS csigscope.partials_1s_local\nENGINE = Distributed(`prod`, csigscope, partials_1s_local);\n"},
		{[]string{"--cluster", "a b"}, 2, "name cluster"},
	} {
		r := runBinary(t, nil, append([]string{"schema", "print"}, tt.args...)...)
		if text := r.stdout + r.stderr; r.code != tt.code || !strings.Contains(text, tt.want) {
			t.Errorf("%v: exit code %d, want %d and %q: %.500s", tt.args, r.code, tt.code, tt.want, text)
		}
	}
}

func TestReadPassword(t *testing.T) {
	g := store.Grants{User: "grafana"}
	if err := readPassword(strings.NewReader("s e'cret\r\nnot this"), &g); err != nil || g.Password != "s e'cret" {
		t.Errorf("password %q, %v", g.Password, err)
	}
	other := g
	if err := readPassword(strings.NewReader("x"), &other); err != nil || string(other.Salt) == string(g.Salt) {
		t.Errorf("salts %x and %x, %v", g.Salt, other.Salt, err)
	}
}
