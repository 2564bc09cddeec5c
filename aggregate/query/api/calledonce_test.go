package api

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/csigscope/csigscope/aggregate/query/wire"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/aggregate/table/tabletest"
	"github.com/csigscope/csigscope/decode/csig"
)

// recipientFunc is a recipient that is never slow.
type recipientFunc func(*event) error

func (f recipientFunc) send(_ *turn, e *event) error { return f(e) }
func (recipientFunc) charge(of askedEvent) any       { return of }
func (recipientFunc) stop()                          {}

// TestEventsAreCalledOnce: all callers that watch the same cells get the same event.
func TestEventsAreCalledOnce(t *testing.T) {
	memory, start := table.NewMemory(table.MemoryOptions{Now: tabletest.Still}), time.Unix(1e9, 0)
	a, err := New(Config{Memory: memory, Names: tabletest.Names{Racks: 2}, Now: tabletest.Still})
	if err != nil {
		t.Fatal(err)
	}
	window := func(second int) {
		b := tabletest.Block(rand.New(rand.NewPCG(1, 2)), 1, start.Add(time.Duration(second)*time.Second), 4, csig.MinABWRatio)
		if err := memory.WriteBlock(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		memory.Publish()
	}
	window(0)
	enough := errors.New("enough")
	var told [8][]*calledEvent
	var begun, running sync.WaitGroup
	for i := range told {
		begun.Add(1)
		running.Go(func() {
			err := follow(t.Context(), a, &wire.WatchRequest{Heartbeat: durationpb.New(time.Duration(30+i) * time.Second)}, a.newWatch, recipientFunc(func(e *event) error {
				called, err := e.called((*wire.WatchResponse)(nil).ProtoReflect().Type())
				if err != nil {
					return err
				}
				switch told[i] = append(told[i], called); len(told[i]) {
				case 2: // the snapshot and synced
					begun.Done()
				case 4: // two windows
					return enough
				}
				return nil
			}))
			if !errors.Is(err, enough) && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	begun.Wait()
	window(1)
	window(2)
	running.Wait()
	for i, events := range told {
		for n, e := range events {
			if n != 1 && e != told[0][n] { // each watcher has its own synced
				t.Errorf("event %d was made for watcher %d again", n, i)
			}
		}
	}
}
