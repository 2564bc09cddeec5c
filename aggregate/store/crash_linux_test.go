package store

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
)

// TestEngineCrash kills the engine while rows are on their way: unacknowledged rows are sent
// again, and none is lost or counted twice.
func TestEngineCrash(t *testing.T) {
	s := openStore(t)
	writeAncestry(t, s)
	g := traffic{resolution: time.Second, windows: 60, groups: 6, locations: 12, signals: allSignals}
	rows := g.rows(rand.New(rand.NewPCG(5, 5)), aggregate.Source{Producer: 1})
	list := blocks(rows)
	for i, b := range list {
		if i%(len(list)/3) == 1 {
			killChildren(t)
		}
		if err := s.WriteBlock(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if i%(len(list)/9) == 0 {
			if err := s.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	compareCells(t, s, rows, time.Second)
	if s.WriterStats().Retries == 0 {
		t.Error("nothing was sent again: the engine was not hit")
	}
}

// killChildren kills the processes started by this one.
func killChildren(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil || len(files) == 0 {
		t.Skip("SKIPPED: the kernel does not list child processes")
	}
	for _, file := range files {
		text, _ := os.ReadFile(file)
		for _, field := range strings.Fields(string(text)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
}
