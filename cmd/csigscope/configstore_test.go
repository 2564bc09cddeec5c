package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/store/chdb"
)

// TestStoreSection: a dump of a section is the section, but for its password.
func TestStoreSection(t *testing.T) {
	t.Parallel()
	const text = `store:
  dsn: clickhouse://u:s3cret@h:9440/db?secure=true
  limits: {time: 10s, read_rows: 2e9, memory: 1GiB, result_rows: 1000}
  retention: {fine: 90m, 1s: 30d, 1m: 36h}
  max_disk: 50GB
  trim_every: 5m
  outbox: {dir: /var/spool/csigscope, size: 100MB, keep: 0s}
`
	dir := t.TempDir()
	path := writeFile(t, filepath.Join(dir, "config.yaml"), text)
	dump := mustRun(t, os.Environ(), "config", "dump", "--config", path)
	if strings.Contains(dump, "s3cret") || !strings.Contains(dump, "# the password is left out") {
		t.Errorf("the dump of a password:\n%s", dump)
	}
	again, err := loadConfig(writeFile(t, filepath.Join(dir, "dump.yaml"), dump))
	if err != nil {
		t.Fatalf("%v in:\n%s", err, dump)
	}
	c := again.Store
	target, err := c.target()
	if err != nil {
		t.Fatal(err)
	}
	const day = 24 * time.Hour
	if got, want := c.limits(target.Limits), (store.Limits{Time: 10 * time.Second, ReadRows: 2e9, Memory: 1 << 30, ResultRows: 1000}); got != want {
		t.Errorf("limits %+v, want %+v", got, want)
	}
	if got, want := c.retention(), (store.Retention{90 * time.Minute, 30 * day, 36 * time.Hour}); got != want {
		t.Errorf("retention %v, want %v", got, want)
	}
	if c.MaxDisk.n != 50e9 || c.TrimEvery.d != 5*time.Minute || c.Outbox.Size.n != 100e6 || c.Outbox.Keep.d != 0 || c.Outbox.Keep.IsZero() || c.Outbox.Dir != "/var/spool/csigscope" {
		t.Errorf("section %+v", c)
	}
	if got := c.limits(store.Limits{Time: time.Second}); got.Time != time.Second || got.Memory != 1<<30 {
		t.Errorf("limits of a target that has one itself: %+v", got)
	}
	// Nothing of it makes other rows.
	epochs := map[string]bool{}
	for _, args := range [][]string{nil, {"--config", writeFile(t, path, strings.Replace(text, "?secure=true", "", 1))}} {
		epochs[mustRun(t, os.Environ(), append([]string{"config", "check"}, args...)...)] = true
	}
	if len(epochs) != 1 {
		t.Errorf("epochs %v: the section is part of it", epochs)
	}
	plain := mustRun(t, os.Environ(), "config", "dump")
	if got := mustRun(t, os.Environ(), "config", "dump", "--config", writeFile(t, path, plain)); got != plain {
		t.Errorf("a dump of the defaults' dump:\n%s", got)
	}
}

// TestDocumentedStoreSection: the README's example is accepted.
func TestDocumentedStoreSection(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile("(?s)```yaml\n(store:\n.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(list) != 1 {
		t.Fatalf("%d examples, want 1", len(list))
	}
	if _, err := loadConfig(writeFile(t, filepath.Join(t.TempDir(), "config.yaml"), list[0][1])); err != nil {
		t.Errorf("%v in:\n%s", err, list[0][1])
	}
}

func TestStoreSectionMistakes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"store:\n  dns: none\n":                                `line 2: unknown key "dns"`,
		"store:\n  outbox:\n    sise: 1GB\n":                   `line 3: unknown key "sise"`,
		"store:\n  retention:\n    2s: 1h\n":                   `line 3: unknown key "2s"`,
		"store:\n  dsn: [none]\n":                              "line 2: store: dsn: expected none, embedded",
		"store:\n  dsn: postgres://u:s3cret@h\n":               "line 2: store: dsn: ",
		"store:\n  dsn: clickhouse://u:s3cret@h/a-b\n":         `line 2: store: dsn: read store clickhouse://h: database "a-b"`,
		"store:\n  dsn: clickhouse://h?password_file=absent\n": "line 2: store: dsn: read store clickhouse://h: read password_file: open absent",
		"store:\n  max_disk: lots\n":                           `line 2: store: max_disk: size "lots"`,
		"store:\n  max_disk: [1GB]\n":                          `line 2: store: max_disk: size ""`,
		"store:\n  trim_every: soon\n":                         `line 2: store: trim_every: "soon": expected a time such as`,
		"store:\n  trim_every: 1ms\n":                          "line 2: store: trim_every: 1ms: expected at least 1s",
		"store:\n  limits: {read_rows: -1}\n":                  `line 2: store: limits: read_rows: "-1": expected a whole number`,
		"store:\n  limits: {read_rows: 1.5}\n":                 `line 2: store: limits: read_rows: "1.5": expected a whole number`,
		"store:\n  limits: {time: 0s}\n":                       "line 2: store: limits: time: 0s: expected at least",
		"store:\n  retention:\n    fine: 59m\n":                "line 3: store: retention: fine: 59m0s: invalid retention",
		"store:\n  retention: {1s: 60000d}\n":                  "line 2: store: retention: 1s: 1440000h0m0s: invalid retention: expected whole seconds, at least 1h0m0s and at most 36500d",
		"store:\n  retention: {1s: 3600500ms}\n":               "expected whole seconds",
		"store:\n  outbox: {size: 1MB}\n":                      "line 2: store: outbox: size: 1000000: expected at least",
		"store:\n  outbox: {keep: 2h}\n":                       "line 2: store: outbox: keep: 2h0m0s: expected 0 to 1h",
	} {
		config := writeFile(t, filepath.Join(t.TempDir(), "config.yaml"), text)
		err := checkFiles(t, "--config", config)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), config) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// startEngine starts the engine of a store in a folder. The caller closes it.
func startEngine(t *testing.T, env []string, dir string) *chdb.Engine {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	o := chdb.Options{Dir: dir, Command: []string{path, "engine", "--dir", dir}}
	for _, v := range env {
		if library, ok := strings.CutPrefix(v, chdb.LibraryEnv+"="); ok {
			o.Library = library
		}
	}
	engine, err := chdb.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return engine
}

// retention asks the embedded store in a folder.
func retention(t *testing.T, env []string, dir string) store.Retention {
	t.Helper()
	engine := startEngine(t, env, dir)
	defer engine.Close()
	s, err := store.Open(t.Context(), store.Options{Reader: engine.ClickHouseOptions(chdb.RoleReader), Migrator: engine.ClickHouseOptions(chdb.RoleMigrator)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r, err := s.Retention(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestStoreSectionIsUsed by all that store and ask, after flags and environment.
func TestStoreSectionIsUsed(t *testing.T) {
	t.Parallel()
	env := engineEnv(t)
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	config := writeFile(t, at("config.yaml"), "store:\n  dsn: embedded:"+at("file")+
		"\n  retention: {fine: 2h, 1s: 30d}\n  outbox: {dir: "+at("outbox")+"}\n  max_disk: 1TB\n")
	replay := func(more ...string) []string {
		return append([]string{"replay", "--scenario", "demo", "--duration", "1s", "--fine", "10ms", "--config", config}, more...)
	}
	exists := func(what string, want bool) {
		t.Helper()
		if _, err := os.Stat(what); (err == nil) != want {
			t.Errorf("%s exists: %t, want %t", what, err == nil, want)
		}
	}
	mustRun(t, env, replay()...)
	exists(at("file"), true)
	exists(at("outbox"), true)
	exists(filepath.Join(at("file"), "outbox"), false)
	const day = 24 * time.Hour
	if got, want := retention(t, env, at("file")), (store.Retention{2 * time.Hour, 30 * day, 400 * day}); got != want {
		t.Errorf("retention %v, want %v", got, want)
	}
	want := mustRun(t, env, "query", "extent", "--config", config, "-o", "csv")
	inEnv := append(slices.Clone(env), "CSIGSCOPE_CONFIG="+config)
	for _, args := range [][]string{{"schema", "status"}, {"schema", "verify"}, {"schema", "trim"}, {"query", "cells"}, {"schema", "backup", at("backup")}} {
		mustRun(t, inEnv, args...)
	}
	mustRun(t, inEnv, "schema", "migrate", "--keep", "1s=20d")
	if got, want := retention(t, env, at("file")), (store.Retention{2 * time.Hour, 20 * day, 400 * day}); got != want {
		t.Errorf("retention by flag %v, want %v", got, want)
	}
	if got := mustRun(t, inEnv, "query", "extent", "-o", "csv"); got != want || len(want) < 50 {
		t.Errorf("%q, want %q", got, want)
	}
	mustRun(t, env, replay("--store", "embedded:"+at("flag"), "--outbox", "none")...)
	exists(at("flag"), true)
	mustRun(t, append(inEnv, "CSIGSCOPE_QUERY_EXTENT_STORE=embedded:"+at("flag")), "query", "extent")
	mustRun(t, append(env, "CSIGSCOPE_REPLAY_STORE=embedded:"+at("variable")), replay()...)
	exists(at("variable"), true)
	r := runBinary(t, env, "query", "extent", "--config", writeFile(t, at("bad.yaml"), "store: {dsn: nowhere}\n"))
	if r.code != exitUsage || !strings.Contains(r.stderr, "line 1: store: dsn") {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
}

// TestServeTrims: a command that goes on keeps the store within its budget.
func TestServeTrims(t *testing.T) {
	t.Parallel()
	env := engineEnv(t)
	dir := t.TempDir()
	dsn := "--store=embedded:" + filepath.Join(dir, "store")
	mustRun(t, env, "replay", "--scenario", "demo", "--duration", "1s", dsn)
	config := writeFile(t, filepath.Join(dir, "config.yaml"), "store: {max_disk: 1kB, trim_every: 1s}\n")
	address := freeAddress(t)
	serveBinary(t, env, "query", "serve", "--config", config, dsn, "--listen", "127.0.0.1:0", "--clickhouse-listen", address)
	var rows string
	trimmed := comes(func() bool {
		rows = ask(t, address, "SELECT (SELECT count() FROM csigscope.partials_1s), (SELECT count() > 0 FROM csigscope.gaps WHERE reason = 'trimmed'), (SELECT count() > 0 FROM csigscope.partials_1m)")
		return rows == "0\t1\t1\n"
	})
	if !trimmed {
		t.Fatalf("rows of 1 s, gaps, rows of 1 min: %q", rows)
	}
}
