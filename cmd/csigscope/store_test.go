package main

import (
	"errors"
	"io/fs"
	"log/slog"
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

// TestDocumentedStoreSection: the examples in the store's README are accepted.
func TestDocumentedStoreSection(t *testing.T) {
	text, err := os.ReadFile("../../aggregate/store/README.md")
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile("(?s)```yaml\n(store:\n.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(list) != 2 {
		t.Errorf("%d examples, want 2", len(list))
	}
	for _, example := range list {
		if _, err := loadConfig(writeFile(t, filepath.Join(t.TempDir(), "config.yaml"), example[1])); err != nil {
			t.Errorf("%v in:\n%s", err, example[1])
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
	o := chdb.Options{Dir: dir, Command: []string{path, "engine", "--dir", dir}, Logger: slog.New(slog.DiscardHandler)}
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

// retention queries the embedded store in a folder.
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

// TestStoreSectionIsUsed: all commands that store or query use the section, overridden by flags
// and environment.
func TestStoreSectionIsUsed(t *testing.T) {
	t.Parallel()
	env := engineEnv(t)
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	config := writeFile(t, at("config.yaml"), "store:\n  dsn: embedded:"+at("file")+
		"\n  retention: {fine: 2h, 1s: 30d}\n  outbox: {dir: "+at("outbox")+"}\n  max_disk: 1TB\n")
	replay := func(more ...string) []string {
		return append([]string{"replay", "--scenario", "demo", "--set", "duration=1s", "--fine", "10ms", "--config", config}, more...)
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
	keepEngine(t, env, at("file"))
	const day = 24 * time.Hour
	if got, want := retention(t, env, at("file")), (store.Retention{2 * time.Hour, 30 * day, 400 * day}); got != want {
		t.Errorf("retention %v, want %v", got, want)
	}
	want := mustRun(t, env, "query", "extent", "--config", config, "-o", "csv")
	inEnv := append(slices.Clone(env), "CSIGSCOPE_CONFIG="+config)
	for _, args := range [][]string{{"schema", "status"}, {"schema", "verify"}, {"schema", "trim"}, {"query", "cells"}, {"schema", "backup", at("backup")}} {
		mustRun(t, inEnv, args...)
	}
	mustRun(t, inEnv, "schema", "migrate", "--retention", "1s=20d")
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

// TestServeTrims: a long-running command keeps the store within its budget.
func TestServeTrims(t *testing.T) {
	t.Parallel()
	env := engineEnv(t)
	dir := t.TempDir()
	dsn := "--store=embedded:" + filepath.Join(dir, "store")
	mustRun(t, env, "replay", "--scenario", "demo", "--set", "duration=1s", dsn)
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

// TestStoreError: an error says whether nothing is stored, or somebody else's store cannot be
// read.
func TestStoreError(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"run csigscope replay first":   fs.ErrNotExist,
		"run as the user that owns it": fs.ErrPermission,
		"open store embedded: broken":  errors.New("broken"),
	} {
		err = storeError(err, "dir", store.Target{Kind: store.KindEmbedded})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "first") != strings.Contains(want, "first") {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := storeError(nil, "dir", store.Target{}); err != nil {
		t.Error(err)
	}
}
