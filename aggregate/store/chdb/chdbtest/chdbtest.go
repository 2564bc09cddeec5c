// Package chdbtest gives tests the real embedded engine, over a folder of their own. It knows how
// to start one from a test binary. It must never know the stored data.
package chdbtest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/csigscope/csigscope/aggregate/store/chdb"
)

// Main runs a package's tests, or the engine in the child that Start makes of the test binary.
// TestMain only has to call it; it does not return.
func Main(m *testing.M) {
	if !InChild() {
		os.Exit(m.Run())
	}
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// InChild reports whether Start made this process, to run the engine.
func InChild() bool { return os.Getenv(chdb.ChildEnv) == "1" }

func serve() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return chdb.Serve(ctx, chdb.ServerOptions{Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
}

// Options configures an engine over dir whose child is the test binary. Without the engine's
// library the test is skipped, or fails if CI is set.
func Options(t testing.TB, dir string) chdb.Options {
	t.Helper()
	return chdb.Options{
		Dir:     dir,
		Command: []string{os.Args[0]},
		Logger:  slog.New(slog.NewTextHandler(t.Output(), nil)),
		Library: library(t),
	}
}

// Start runs an engine over a temporary folder until the test ends.
func Start(t testing.TB) *chdb.Engine {
	t.Helper()
	return StartIn(t, t.TempDir())
}

// StartIn runs an engine over dir until the test ends.
func StartIn(t testing.TB, dir string) *chdb.Engine {
	t.Helper()
	engine, err := chdb.Start(t.Context(), Options(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := engine.Close(); err != nil {
			t.Errorf("close engine: %v", err)
		}
	})
	return engine
}

// library finds the engine in its usual places, or in the checkout, which does not contain the
// test binary.
func library(t testing.TB) string {
	t.Helper()
	path, err := chdb.FindLibrary("")
	if err == nil {
		return path
	}
	for dir, _ := os.Getwd(); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		pattern := filepath.Join(dir, "aggregate", "store", "chdb", "node_modules", "@chdb", "lib-"+runtime.GOOS+"-*", "libchdb.so")
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return found[0]
		}
	}
	if os.Getenv("CI") != "" {
		t.Fatal(err)
	}
	t.Skip("SKIPPED, NOTHING OF THE STORE IS TESTED: ", err)
	return ""
}
