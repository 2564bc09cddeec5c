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
	const wanted = 3
	var hits uint64
	list := blocks(rows)
	for i, b := range list {
		kill := hits < wanted && i%(len(list)/9) == 0
		if kill {
			signalChildren(t, syscall.SIGSTOP)
		}
		if err := s.WriteBlock(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if !kill {
			continue
		}
		flushed := make(chan error, 1)
		go func() { flushed <- s.Flush(t.Context()) }()
		waitUntilSending(s.writer)
		signalChildren(t, syscall.SIGKILL)
		if err := <-flushed; err != nil {
			t.Fatal(err)
		}
		hits = s.WriterStats().Retries
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	compareStored(t, s, rows, time.Second)
	if hits == 0 {
		t.Error("nothing was sent again: the engine was not hit")
	}
}

// waitUntilSending waits until the sender holds all accepted rows. With a stopped engine it does
// not get rid of them.
func waitUntilSending(w *writer) {
	for sending := false; !sending; {
		time.Sleep(10 * time.Millisecond)
		w.mu.Lock()
		sending = len(w.open) == 0 && len(w.ready) == 0 && w.buffered > 0
		w.mu.Unlock()
	}
	time.Sleep(100 * time.Millisecond) // until the request has reached the engine
}

// signalChildren sends a signal to the processes started by this one.
func signalChildren(t *testing.T, signal syscall.Signal) {
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
			if err := syscall.Kill(pid, signal); err != nil {
				t.Fatal(err)
			}
		}
	}
}
