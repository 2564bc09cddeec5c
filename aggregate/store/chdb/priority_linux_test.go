package chdb_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csigscope/csigscope/aggregate/store/chdb"
	"github.com/csigscope/csigscope/aggregate/store/chdb/chdbtest"
)

// TestMergesGiveWay: threads that merge have a lower priority than those that insert, also in a process
// with a low priority (nice).
func TestMergesGiveWay(t *testing.T) {
	engine := chdbtest.Start(t)
	writer := open(t, engine, chdb.RoleWriter)
	exec(t, writer, "CREATE TABLE merged (n UInt64) ENGINE = MergeTree ORDER BY n")
	for range 2 {
		exec(t, writer, "INSERT INTO merged VALUES (1)")
	}
	exec(t, writer, "OPTIMIZE TABLE merged FINAL")
	own, err := unix.Getpriority(unix.PRIO_PROCESS, engine.ChildPID())
	if err != nil {
		t.Fatal(err)
	}
	late := time.Now().Add(awaited)
	for merging, given := 0, 0; merging == 0 || given < merging; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("%d of %d threads that merge give way", given, merging)
		}
		merging, given = 0, 0
		names, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", engine.ChildPID()))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil || strings.TrimSpace(string(text)) != "MergeMutate" {
				continue
			}
			merging++
			var id int
			if _, err := fmt.Sscan(filepath.Base(filepath.Dir(name)), &id); err != nil {
				t.Fatal(err)
			}
			// The system call returns 20 - nice.
			if n, err := unix.Getpriority(unix.PRIO_PROCESS, id); err == nil && n < own {
				given++
			}
		}
	}
}
