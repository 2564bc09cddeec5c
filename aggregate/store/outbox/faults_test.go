package outbox

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
)

// fault is a way for a file system to fail at its n-th operation.
type fault struct {
	name  string
	fail  func(at int) func(n int, op string) (float64, error)
	after func(f *fakeFS, rng *rand.Rand) *fakeFS // the file system for the next process
}

func kill(f *fakeFS, _ *rand.Rand) *fakeFS { return f.killed() }

func powerCut(f *fakeFS, rng *rand.Rand) *fakeFS { return f.powerCut(rng) }

// once fails one operation; forever all from there on.
func once(part float64, err error) func(int) func(int, string) (float64, error) {
	return func(at int) func(int, string) (float64, error) {
		return func(n int, _ string) (float64, error) {
			if n == at {
				return part, err
			}
			return 0, nil
		}
	}
}

func forever(part float64, err error) func(int) func(int, string) (float64, error) {
	return func(at int) func(int, string) (float64, error) {
		return func(n int, _ string) (float64, error) {
			if n == at {
				return part, err
			}
			if n > at {
				return 0, err
			}
			return 0, nil
		}
	}
}

// full makes all writes that need room fail for a while.
func full(at int) func(int, string) (float64, error) {
	return func(n int, op string) (float64, error) {
		if n >= at && n < at+25 && (op == "write" || op == "create") {
			return 0.3, syscall.ENOSPC
		}
		return 0, nil
	}
}

func faults() []fault {
	return []fault{
		{"one operation fails", once(0, errInjected), kill},
		{"one write is short", once(0.5, errInjected), kill},
		{"one operation fails, then a power cut", once(0.5, errInjected), powerCut},
		{"the process is killed", forever(0, errInjected), kill},
		{"the process is killed in a write", forever(0.6, errInjected), kill},
		{"the power is cut", forever(0.6, errInjected), powerCut},
		{"the disk is full for a while", full, kill},
		{"the disk is full for a while, then a power cut", full, powerCut},
	}
}

// TestFaults makes every operation of a process fail in every way. A second process continues
// with the remaining files, and is killed too.
func TestFaults(t *testing.T) {
	count := newFakeFS()
	h := newHistory(t)
	h.work(h.mustOpen(count))
	for _, fault := range faults() {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			step := 1
			if testing.Short() {
				step = 7
			}
			for at := 1; at <= count.ops && !t.Failed(); at += step {
				for seed := range uint64(3) {
					t.Run(fmt.Sprintf("at %d seed %d", at, seed), func(t *testing.T) { oneFault(t, fault, at, seed) })
				}
			}
		})
	}
}

func oneFault(t *testing.T, fault fault, at int, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, uint64(at)))
	h, fsys := newHistory(t), newFakeFS()
	fsys.fail = fault.fail(at)
	if l, err := h.open(fsys); err == nil {
		h.work(l)
	}
	fsys = fault.after(fsys, rng)
	fsys.fail = fault.fail(1 + rng.IntN(100))
	if l, err := h.open(fsys); err == nil {
		h.work(l)
	}
	h.drain(fault.after(fsys, rng))
	for at, reason := range h.lost {
		// Failed writes must not lose confirmed records.
		if payload, ok := h.confirmed[at]; ok && reason != "full" && h.sentAs[payload] == "" {
			t.Errorf("record %d of class %d was confirmed and is %s", at.seq, at.class, reason)
		}
	}
}
