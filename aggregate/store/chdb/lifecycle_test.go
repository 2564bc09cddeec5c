package chdb_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"go.uber.org/goleak"

	"github.com/csigscope/csigscope/aggregate/store/chdb"
	"github.com/csigscope/csigscope/aggregate/store/chdb/chdbtest"
)

// ended waits a while for a process to end, and reports whether it did.
func ended(pid int) bool {
	return comes(func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) })
}

func start(t *testing.T, o chdb.Options) *chdb.Engine {
	t.Helper()
	engine, err := chdb.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { engine.Close() })
	return engine
}

func TestQueryAfterCrash(t *testing.T) {
	engine := chdbtest.Start(t)
	writer, reader := open(t, engine, chdb.RoleWriter), open(t, engine, chdb.RoleReader)
	exec(t, writer, "CREATE TABLE kept (n UInt64) ENGINE = MergeTree ORDER BY n", "INSERT INTO kept VALUES (42)")
	for restarts := uint64(1); restarts <= 2; restarts++ {
		inFlight := make(chan error, 1)
		go func() {
			inFlight <- reader.Exec(context.Background(), "SELECT sum(sipHash64(number)) FROM numbers(100000000000)")
		}()
		waitForQuery(t, open(t, engine, chdb.RoleMigrator), "numbers(100000000000)", true)
		if err := syscall.Kill(engine.ChildPID(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if err := <-inFlight; err == nil {
			t.Error("the query in flight met no error")
		}
		if got := value[uint64](t, reader, "SELECT n FROM kept"); got != 42 {
			t.Errorf("got %d after the crash, want 42", got)
		}
		if got := engine.Restarts(); got != restarts {
			t.Errorf("counted %d restarts, want %d", got, restarts)
		}
	}
	exec(t, writer, "INSERT INTO kept VALUES (43)")
}

// waitForQuery waits until a query whose text contains part runs, or no longer does.
func waitForQuery(t *testing.T, conn driver.Conn, part string, running bool) {
	t.Helper()
	reached := comes(func() bool {
		n := value[uint64](t, conn, "SELECT count() FROM system.processes WHERE position(query, ?) > 0 AND position(query, 'system.processes') = 0", part)
		return (n > 0) == running
	})
	if !reached {
		t.Fatalf("query with %q: running is not %v", part, running)
	}
}

// TestLinkedLibrary: a process that may read no other folders can load a library through a link.
func TestLinkedLibrary(t *testing.T) {
	library := filepath.Join(t.TempDir(), "libchdb.so")
	if err := os.WriteFile(library, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "libchdb.so")
	if err := os.Symlink(library, link); err != nil {
		t.Fatal(err)
	}
	_, read, err := chdb.Folders(t.TempDir(), link)
	if want := []string{filepath.Dir(link), filepath.Dir(library)}; err != nil || !slices.Equal(read, want) {
		t.Errorf("reads %q, %v, want %q", read, err, want)
	}
}

// TestRootInForeignFolder: root learns how to give its files to the owner of the folder.
func TestRootInForeignFolder(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: needs root")
	}
	dir := t.TempDir()
	const nobody = 65534
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	options := chdbtest.Options(t, dir)
	options.Logger = slog.New(slog.NewTextHandler(&log, nil))
	if err := start(t, options).Close(); err != nil {
		t.Fatal(err)
	}
	if want := "chown -R --reference=" + dir + " " + dir; strings.Count(log.String(), want) != 1 {
		t.Errorf("no %q in %s", want, log.String())
	}
}

func TestSecondStartAttaches(t *testing.T) {
	options := chdbtest.Options(t, t.TempDir())
	first, second := start(t, options), start(t, options)
	pid := first.ChildPID()
	if pid == 0 || second.ChildPID() != 0 {
		t.Fatalf("children %d and %d: want one, of the first", pid, second.ChildPID())
	}
	if first.Socket() != second.Socket() {
		t.Errorf("sockets %s and %s differ", first.Socket(), second.Socket())
	}
	exec(t, open(t, first, chdb.RoleMigrator), "CREATE TABLE shared (n UInt64) ENGINE = MergeTree ORDER BY n")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	// The child outlives the process that started it.
	if got := value[uint64](t, open(t, second, chdb.RoleReader), "SELECT count() FROM shared"); got != 0 {
		t.Errorf("got %d rows, want none", got)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	// Only this test's process is left to wait for the child.
	var status syscall.WaitStatus
	if got, err := syscall.Wait4(pid, &status, 0, nil); err != nil || got != pid || status.ExitStatus() != 0 {
		t.Errorf("child %d ended with status %d (%v), want 0", got, status.ExitStatus(), err)
	}
	third := start(t, options)
	if third.ChildPID() == 0 {
		t.Error("the third start found a child that should have ended")
	}
}

func TestAttachedEngineTakesOver(t *testing.T) {
	options := chdbtest.Options(t, t.TempDir())
	first, second := start(t, options), start(t, options)
	writer := open(t, second, chdb.RoleWriter)
	if err := syscall.Kill(first.ChildPID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	exec(t, writer, "CREATE TABLE later (n UInt64) ENGINE = MergeTree ORDER BY n")
}

func TestChildEndsWithItsClients(t *testing.T) {
	engine, err := chdb.Start(t.Context(), chdbtest.Options(t, t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	pid := engine.ChildPID()
	if err := engine.Close(); err != nil {
		t.Fatal(err)
	}
	if !ended(pid) {
		t.Errorf("child %d still runs", pid)
	}
	if err := engine.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
}

func TestChildEndsAfterClientThatDied(t *testing.T) {
	engine := start(t, chdbtest.Options(t, t.TempDir()))
	pid := engine.ChildPID()
	ctx, die := context.WithCancel(t.Context())
	defer die()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://engine/attach?id=other", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := overSocket(t, engine.Socket()).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if err := engine.Close(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, 0); err != nil {
		t.Fatalf("the child ended under a client: %v", err)
	}
	die()
	if _, err := syscall.Wait4(pid, nil, 0, nil); err != nil {
		t.Error(err)
	}
}

func TestTerminateClosesCleanly(t *testing.T) {
	options := chdbtest.Options(t, t.TempDir())
	engine := start(t, options)
	exec(t, open(t, engine, chdb.RoleWriter), "CREATE TABLE kept (n UInt64) ENGINE = MergeTree ORDER BY n", "INSERT INTO kept VALUES (1)")
	if err := syscall.Kill(engine.ChildPID(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := value[uint64](t, open(t, engine, chdb.RoleReader), "SELECT n FROM kept"); got != 1 {
		t.Errorf("got %d, want 1", got)
	}
}

func TestLongFolder(t *testing.T) {
	t.Setenv("TMPDIR", "/tmp")
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	engine := start(t, chdbtest.Options(t, dir))
	if n := len(engine.Socket()); n > 100 {
		t.Errorf("socket path has %d bytes", n)
	}
	for path, want := range map[string]os.FileMode{dir: 0o700, filepath.Dir(engine.Socket()): 0o700, engine.Socket(): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: mode %v (%v), want %v", path, info.Mode().Perm(), err, want)
		}
	}
	if got := value[uint8](t, open(t, engine, chdb.RoleReader), "SELECT 1"); got != 1 {
		t.Errorf("got %d, want 1", got)
	}
}

func TestStartFailures(t *testing.T) {
	options := chdbtest.Options(t, t.TempDir())
	t.Run("no library", func(t *testing.T) {
		o := options
		o.Library = filepath.Join(t.TempDir(), "missing.so")
		_, err := chdb.Start(t.Context(), o)
		if !errors.Is(err, chdb.ErrNoEngine) {
			t.Fatalf("got %v, want ErrNoEngine", err)
		}
		for _, part := range []string{o.Library, `run "make engine"`, "set CSIGSCOPE_ENGINE", "--store clickhouse://"} {
			if !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %q, want one line with %q", err, part)
			}
		}
	})
	t.Run("library of another kind", func(t *testing.T) {
		o := options
		o.Library = filepath.Join(t.TempDir(), "text.so")
		if err := os.WriteFile(o.Library, []byte("no library"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := chdb.Start(t.Context(), o); err == nil || !strings.Contains(err.Error(), "load engine") {
			t.Fatalf("got %v, want an error about loading", err)
		}
	})
	t.Run("child that ends", func(t *testing.T) {
		o := options
		o.Command = []string{"/bin/sh", "-c", "echo first >&2; echo out of luck >&2"}
		if _, err := chdb.Start(t.Context(), o); err == nil || !strings.Contains(err.Error(), "first | out of luck") {
			t.Fatalf("got %v, want the end of the log", err)
		}
	})
	t.Run("child that hangs", func(t *testing.T) {
		o := options
		o.Command = []string{"/bin/sleep", "600"}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := chdb.Start(ctx, o); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v, want the deadline", err)
		}
	})
	t.Run("address for everyone", func(t *testing.T) {
		if _, err := start(t, options).Listen(t.Context(), "0.0.0.0:0"); err == nil || !strings.Contains(err.Error(), "loopback") {
			t.Fatalf("got %v, want an error about loopback", err)
		}
	})
}

// TestStartLater: starting an engine is retried until it answers, and Wait reports each failure.
func TestStartLater(t *testing.T) {
	o := chdbtest.Options(t, t.TempDir())
	mended := filepath.Join(t.TempDir(), "mended")
	o.Command = []string{"/bin/sh", "-c", `test -e "$0" && exec "$1"; echo out of luck >&2`, mended, o.Command[0]}
	engine, err := chdb.StartLater(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	for range 2 {
		if err := engine.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "out of luck") {
			t.Fatalf("got %v, want the end of the log", err)
		}
	}
	if err := os.WriteFile(mended, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for engine.Wait(t.Context()) != nil { // attempts that had already begun
	}
	if got := value[uint8](t, open(t, engine, chdb.RoleReader), "SELECT 1"); got != 1 || engine.Restarts() != 0 {
		t.Errorf("got %d after %d restarts, want 1 after none", got, engine.Restarts())
	}
}

// TestStartLaterEnds: an engine that never answers leaves nothing behind.
func TestStartLaterEnds(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	o := chdbtest.Options(t, t.TempDir())
	o.Command = []string{"/bin/sleep", "600"}
	engine, err := chdb.StartLater(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := engine.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the deadline", err)
	}
	if err := engine.Close(); err != nil {
		t.Error(err)
	}
}

func TestServeRefusesFolderInUse(t *testing.T) {
	dir := t.TempDir()
	start(t, chdbtest.Options(t, dir))
	err := chdb.Serve(t.Context(), chdb.ServerOptions{Dir: dir, Logger: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "another process serves") {
		t.Errorf("got %v, want an error about the lock", err)
	}
}

func TestNoGoroutineStays(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	engine, err := chdb.Start(t.Context(), chdbtest.Options(t, t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := clickhouse.Open(engine.ClickHouseOptions(chdb.RoleReader))
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	conn.Close()
	if err := engine.Close(); err != nil {
		t.Error(err)
	}
}
