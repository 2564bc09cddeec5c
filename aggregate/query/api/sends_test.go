package api

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/csigscope/csigscope/aggregate/query/wire"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/aggregate/table/tabletest"
	"github.com/csigscope/csigscope/decode/csig"
)

// TestSends: an event for several watchers counts once, and watchers that do not read are cut off
// after a while, the slowest first.
func TestSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, stopped := newSends(100), map[string]int{}
		begin := func(name string, key any, bytes int) *turn {
			n, err := s.begin(t.Context(), key, bytes, func() { stopped[name]++ })
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		start := time.Now()
		a, b := begin("a", "shared", 60), begin("b", "shared", 60)
		time.Sleep(time.Second)
		c := begin("c", "other", 40)
		if s.held != 100 || time.Since(start) != time.Second {
			t.Errorf("%d bytes held after %s, want 100: one event counts once", s.held, time.Since(start))
		}
		go func() { // like writers after their deadline
			time.Sleep(crowdedAfter)
			for _, old := range []*turn{a, b} {
				if s.isCut(old) {
					s.count(old, time.Hour, time.Minute)
					s.end(old)
				}
			}
		}()
		d := begin("d", "third", 50)
		if took := time.Since(start); took != 3*time.Second || stopped["a"] != 1 || stopped["b"] != 1 || stopped["c"] != 0 {
			t.Errorf("%v cut after %s, want the two that share, after they had their time", stopped, took)
		}
		if s.crowded != 2 || s.slow != 0 || s.held != 90 {
			t.Errorf("%d crowded, %d slow, %d bytes: want two cut, and their bytes given back", s.crowded, s.slow, s.held)
		}
		s.weigh(d, 20)
		s.weigh(c, 30)
		if s.held != 50 {
			t.Errorf("%d bytes held, want those that events have come to", s.held)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.begin(ctx, "fourth", 90, func() {}); !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want the end of a reader that waits", err)
		}
		s.count(d, time.Minute, time.Minute)
		s.end(c)
		s.end(d)
		if s.held != 0 || len(s.charges) != 0 || s.turns.Len() != 0 || s.slow != 1 {
			t.Errorf("%+v, want nothing left", s)
		}
		if big := begin("big", "big", 1000); big == nil {
			t.Error("an event that is larger than all room is not sent where there is no other")
		}
	})
}

// TestWaitingKeepsNoWindow: a watcher that waits for room keeps no window alive, and starts again
// if memory has dropped it.
func TestWaitingKeepsNoWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := table.NewMemory(table.MemoryOptions{Windows: 2, Log: 2, Now: tabletest.Still})
		a, err := New(Config{Memory: memory, Names: tabletest.Names{Racks: 2}})
		if err != nil {
			t.Fatal(err)
		}
		second := 0
		window := func() {
			b := tabletest.Block(rand.New(rand.NewPCG(1, 2)), 1, time.Unix(1e9+int64(second), 0), 4, csig.MinABWRatio)
			if err := memory.WriteBlock(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			memory.Publish()
			second++
		}
		window()
		ctx, cancel := context.WithCancel(t.Context())
		var told []string
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = follow(ctx, a, &wire.WatchRequest{Heartbeat: durationpb.New(time.Minute)}, a.newWatch, recipientFunc(func(e *event) error {
				told = append(told, e.name)
				return nil
			}))
		}()
		synctest.Wait()
		all, err := a.sends.begin(t.Context(), "all", maxSending, func() {})
		if err != nil {
			t.Fatal(err)
		}
		window()
		dropped := weak.Make(memory.State().Newest())
		synctest.Wait() // until the watcher waits for room
		for range 5 {
			window()
		}
		runtime.GC()
		if dropped.Value() != nil {
			t.Error("a watcher that waits for room keeps its window")
		}
		a.sends.end(all)
		synctest.Wait()
		cancel()
		<-done
		if want := []string{eventSnapshot, eventSynced, eventLagging, eventSnapshot, eventSynced}; !slices.Equal(told, want) {
			t.Errorf("watcher was told %v, want %v", told, want)
		}
	})
}
