package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/store/chdb"
)

// awaited is the timeout for awaited conditions, long enough for a busy machine.
const awaited = 3 * time.Minute

// comes waits for a condition and reports whether it was met.
func comes(holds func() bool) bool {
	for begun := time.Now(); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Since(begun) > awaited {
			return false
		}
	}
	return true
}

// binaryEnv passes the built command to processes that tests start from the test binary.
const binaryEnv = "CSIGSCOPE_TEST_BINARY"

// binary builds the command once, for child processes too, and returns its path.
var binary = sync.OnceValues(func() (string, error) {
	if path := os.Getenv(binaryEnv); path != "" {
		return path, nil
	}
	dir, err := os.MkdirTemp("", "csigscope-test-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "csigscope")
	out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build csigscope: %w: %s", err, out)
	}
	return path, os.Setenv(binaryEnv, path)
})

// TestMain runs the tests without the developer's CSIGSCOPE variables, known or unknown, except
// for the engine's library.
func TestMain(m *testing.M) {
	for _, assignment := range os.Environ() {
		name, _, _ := strings.Cut(assignment, "=")
		if strings.HasPrefix(name, environmentPrefix) && !strings.HasPrefix(name, testPrefix) && name != chdb.LibraryEnv {
			_ = os.Unsetenv(name)
		}
	}
	inherited := [...]string{os.Getenv(binaryEnv), os.Getenv(migratedEnv)}
	code := m.Run()
	for i, name := range []string{binaryEnv, migratedEnv} {
		if path := os.Getenv(name); path != inherited[i] {
			_ = os.RemoveAll(filepath.Dir(path))
		}
	}
	os.Exit(code)
}

// engineEnv is shortEngineEnv for tests that only make test-all runs: each starts its own
// processes and engine.
func engineEnv(t *testing.T) []string {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: drives processes, which make test-all does")
	}
	return shortEngineEnv(t)
}

// shortEngineEnv returns the environment of commands that use the embedded engine. Without the
// engine the test fails in CI and is skipped elsewhere.
func shortEngineEnv(t *testing.T) []string {
	t.Helper()
	library := os.Getenv(chdb.LibraryEnv)
	if library == "" {
		matches, _ := filepath.Glob("../../aggregate/store/chdb/node_modules/@chdb/lib-*/libchdb.*")
		if len(matches) > 0 {
			library, _ = filepath.Abs(matches[0])
		}
	}
	if library == "" {
		if os.Getenv("CI") != "" {
			t.Fatal("the embedded engine is not installed: run make engine")
		}
		t.Skip("SKIPPED: the embedded engine is not installed: run make engine")
	}
	return append(os.Environ(), chdb.LibraryEnv+"="+library)
}

// migratedEnv passes the migrated store to processes that tests start from the test binary.
const migratedEnv = "CSIGSCOPE_TEST_MIGRATED"

var migrating sync.Mutex

// migratedStore migrates an empty store once, for child processes too, and returns its folder.
func migratedStore(t *testing.T, env []string) string {
	t.Helper()
	migrating.Lock()
	defer migrating.Unlock()
	if dir := os.Getenv(migratedEnv); dir != "" {
		return dir
	}
	parent, err := os.MkdirTemp("", "csigscope-test-")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(parent, "store")
	mustRun(t, env, "schema", "migrate", "--store", "embedded:"+dir)
	if err := os.Setenv(migratedEnv, dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// newStore makes an empty store in dir and returns its DSN. It copies a migrated one, which takes
// a second of CPU less than migrating again.
func newStore(t *testing.T, env []string, dir string) string {
	t.Helper()
	if err := os.CopyFS(dir, os.DirFS(migratedStore(t, env))); err != nil {
		t.Fatal(err)
	}
	return "embedded:" + dir
}

// keepEngine runs the engine of an embedded store until the test ends, for all commands that use
// the store: each would otherwise start its own, which takes most of its time.
func keepEngine(t *testing.T, env []string, dsn string) {
	t.Helper()
	engine := startEngine(t, env, strings.TrimPrefix(dsn, "embedded:"))
	t.Cleanup(func() { _ = engine.Close() })
}

// result is the result of a run of the binary.
type result struct {
	stdout, stderr string
	code           int
}

// runBinary runs a command to its end: in this process, or with the built binary if it needs
// another environment, as commands that start an engine do.
func runBinary(t *testing.T, env []string, args ...string) result {
	t.Helper()
	if env == nil || slices.Equal(env, os.Environ()) {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), args, &stdout, &stderr)
		return result{stdout.String(), stderr.String(), code}
	}
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = env
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatalf("csigscope %s: %v", strings.Join(args, " "), err)
	}
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// mustRun runs a command and fails the test unless it exits with 0.
func mustRun(t *testing.T, env []string, args ...string) string {
	t.Helper()
	r := runBinary(t, env, args...)
	if r.code != 0 {
		t.Fatalf("csigscope %s: exit code %d\n%s%s", strings.Join(args, " "), r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

// emitted is a scenario written to a folder.
type emitted struct{ dir string }

func emit(t *testing.T, args ...string) emitted {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "captures")
	mustRun(t, os.Environ(), append([]string{"emit", "--out", dir}, args...)...)
	return emitted{dir}
}

func (e emitted) fabric() string { return filepath.Join(e.dir, "fabric.yaml") }

func (e emitted) captures(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(e.dir, "*.pcap*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no captures in %s: %v", e.dir, err)
	}
	return files
}

// answeredCell is a cell in the JSON of the query API and of query.
type answeredCell struct {
	From, Src, Dst, Kind, State    string
	Observations, Untouched, Heavy uint64
	Mean, Min, Max                 map[string]float64 // the value by its unit
	Mode                           answeredBottleneck
	RunnerUp                       answeredBottleneck `json:"runner_up"`
}

type answeredBottleneck struct {
	Location string
	Heavy    uint64
}

// only returns the one value of a measure, 0 for none.
func only(measure map[string]float64) float64 {
	for _, v := range measure {
		return v
	}
	return 0
}

// answeredCells returns the cells of query cells -o json.
func answeredCells(t *testing.T, text string) []answeredCell {
	t.Helper()
	return decodeJSON[struct{ Cells []answeredCell }](t, text).Cells
}

// answeredWindows returns the rows of query windows -o json.
func answeredWindows(t *testing.T, text string) []answeredCell {
	t.Helper()
	return decodeJSON[struct{ Windows []answeredCell }](t, text).Windows
}

func decodeJSON[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("decode %.200q: %v", text, err)
	}
	return v
}
