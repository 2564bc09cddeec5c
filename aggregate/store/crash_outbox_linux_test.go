package store

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/store/chdb"
	"github.com/csigscope/csigscope/aggregate/store/chdb/chdbtest"
)

// crashFolder names the environment variable that makes TestOutboxCrashChild a process
// which writes until it is killed.
const crashFolder = "CSIGSCOPE_TEST_CRASH"

// crashTraffic is what the child writes, block by block.
func crashTraffic() ([]row, []*aggregate.Block) {
	g := traffic{resolution: time.Second, windows: 600, groups: 3, locations: 12, signals: allSignals[:2]}
	var rows []row
	for producer := range uint64(4) {
		rows = append(rows, g.rows(rand.New(rand.NewPCG(50, producer)), aggregate.Source{Producer: producer, Incarnation: 3})...)
	}
	return rows, blocks(rows)
}

func crashStore(t *testing.T, dir string) *Store {
	t.Helper()
	engine, err := chdb.Start(t.Context(), chdbtest.Options(t, filepath.Join(dir, "engine")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { engine.Close() })
	s := open(t, Options{
		Writer:   engine.ClickHouseOptions(chdb.RoleWriter),
		Migrator: engine.ClickHouseOptions(chdb.RoleMigrator),
		Reader:   engine.ClickHouseOptions(chdb.RoleReader),
		Logger:   slog.New(slog.NewTextHandler(t.Output(), nil)),
		Outbox:   &Outbox{Dir: filepath.Join(dir, "outbox")},
	})
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestOutboxCrashChild writes blocks, from the one that standard input names on, and
// says after each one that it is in the outbox.
func TestOutboxCrashChild(t *testing.T) {
	dir := os.Getenv(crashFolder)
	if dir == "" {
		t.Skip("SKIPPED: this is the child of TestOutboxCrash")
	}
	s := crashStore(t, dir)
	_, list := crashTraffic()
	var next int
	if _, err := fmt.Scan(&next); err != nil {
		t.Fatal(err)
	}
	for i := next; i < len(list); i++ {
		if err := s.WriteBlock(t.Context(), list[i]); err != nil {
			t.Fatal(err)
		}
		if err := s.writer.flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		fmt.Printf("\nconfirmed %d\n", i)
	}
	fmt.Printf("\nconfirmed %d\n", len(list)-1)
	time.Sleep(time.Hour)
}

// TestOutboxCrash kills processes while they write, now and then the engine too. What
// was confirmed is in the store in the end, once.
func TestOutboxCrash(t *testing.T) {
	const kills = 50
	dir := t.TempDir()
	s := crashStore(t, dir)
	writeAncestry(t, s)
	rows, list := crashTraffic()
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	next := 0
	for round := range kills {
		confirmed := crashOnce(t, dir, next, time.Duration(rng.IntN(60))*time.Millisecond)
		next = max(next, confirmed+1)
		if round%17 == 16 {
			killChildren(t)
		}
	}
	t.Logf("%d of %d blocks confirmed over %d kills", next, len(list), kills)
	if next < kills/2 {
		t.Error("next to nothing was confirmed")
	}
	for ; next < len(list); next++ {
		if err := s.WriteBlock(t.Context(), list[next]); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	last := crashStore(t, dir) // takes over all outboxes
	if err := last.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	compareCells(t, last, rows, time.Second)
	for _, d := range last.deliveries {
		if st := d.log.Stats(); st.Waiting.Records > 0 {
			t.Errorf("%+v waits in %s", st.Waiting, d.log.Dir())
		}
	}
}

// crashOnce runs a child and kills it some time after its first word. It gives the last
// block that the child has confirmed, -1 for none.
func crashOnce(t *testing.T, dir string, next int, after time.Duration) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestOutboxCrashChild$")
	cmd.Env = append(os.Environ(), crashFolder+"="+dir)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(stdin, strconv.Itoa(next))
	last, said := -1, false
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		var n int
		if _, err := fmt.Sscanf(lines.Text(), "confirmed %d", &n); err != nil {
			continue
		}
		last = n
		if !said {
			said = true
			time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
		}
	}
	if err := cmd.Wait(); err == nil {
		t.Fatal("the child ended by itself")
	}
	return last
}
