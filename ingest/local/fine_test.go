package local_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/query/rest/resttest"
	"github.com/csigscope/csigscope/aggregate/query/wire"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/aggregate/table/tabletest"
	"github.com/csigscope/csigscope/ingest/local"
)

// shown is a journal and a sink of provisional rows, as live views see them.
type shown struct {
	*journal
	seconds, fine *table.Memory
}

func (s *shown) WriteBlock(ctx context.Context, b *aggregate.Block) error {
	return aggregate.Sinks{s.journal, s.seconds, s.fine}.WriteBlock(ctx, b)
}

func (s *shown) WriteProvisional(p *aggregate.Provisional) {
	s.seconds.WriteProvisional(p)
	s.fine.WriteProvisional(p)
}

// TestFineWindows: a watcher sees a 100 ms window right after its end, and its stored form once
// its rows are stored. It contains only cells with heavy observations, with the states of the 1
// s windows.
func TestFineWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const length, soon = 100 * time.Millisecond, 20 * time.Millisecond
		s := &shown{journal: newJournal(t), seconds: table.NewMemory(table.MemoryOptions{})}
		s.fine = table.NewFineMemory(s.seconds, length, 2*length, 1<<20)
		a, err := api.New(api.Config{Memory: s.seconds, Fine: s.fine, Names: tabletest.Names{}})
		if err != nil {
			t.Fatal(err)
		}
		heavy, clear := tick(), tick()
		heavy.frame[14], clear.frame[29] = 0x20, 9 // no bandwidth left; another source
		plan := tapsPlan(t, tapOf("heavy", 0, heavy), tapOf("clear", 0, clear))
		plan.Resolutions, plan.FineHeavyOnly = []time.Duration{length, time.Second, time.Minute}, true
		begin := time.Now()
		watching, leave := context.WithCancel(t.Context())
		events := httptest.NewRecorder()
		var running sync.WaitGroup
		running.Go(func() { _ = s.seconds.Run(watching) })
		running.Go(func() { _ = s.fine.Run(watching) })
		running.Go(func() {
			a.ServeHTTP(events, httptest.NewRequestWithContext(watching, "GET", "/api/v1/watch?resolution=100ms", nil))
		})
		p, end := runPipeline(t, local.Config{Instance: "test", Journal: s, Provisional: s}, plan)
		time.Sleep(6 * time.Second)
		end()
		time.Sleep(time.Second)
		leave()
		running.Wait()
		conserved(t, p.Stats())

		stored := make(map[int64]uint64)
		for _, b := range s.stored {
			if b.Resolution == int64(length) {
				stored[b.WindowStart] += sum(&b)
			}
		}
		told := make(map[int64][]*wire.WindowEvent)
		for text := range strings.SplitSeq(events.Body.String(), "\n\n") {
			if _, data, ok := strings.Cut(text, "event: window\ndata: "); ok {
				e := &wire.WindowEvent{}
				if err := resttest.Read([]byte(data), e); err != nil {
					t.Fatal(err)
				}
				start := e.WindowStart.AsTime().UnixNano()
				told[start] = append(told[start], e)
			}
		}
		if len(stored) < 60 {
			t.Errorf("%d windows are stored", len(stored))
		}
		for start, observations := range stored {
			list, at := told[start], time.Unix(0, start).Sub(begin)
			if len(list) == 0 {
				t.Fatalf("no event of the window at %s", at)
			}
			first, last := list[0], list[len(list)-1]
			after := func(e *wire.WindowEvent) time.Duration { return e.AsOf.AsTime().Sub(e.WindowEnd.AsTime()) }
			if first.Final || after(first) > soon || !last.Final || after(last) > 1500*time.Millisecond {
				t.Errorf("%s: first event final %t after %s, last one final %t after %s", at, first.Final, after(first), last.Final, after(last))
			}
			if len(last.Cells) != 1 || last.Cells[0].Observations != observations {
				t.Errorf("%s: cells %v, want one with %d observations", at, last.Cells, observations)
			}
			if at >= 2*time.Second && at < 5*time.Second && (first.Cells[0].State != wire.State_STATE_CONGESTED || first.CompletenessRatio != 1 || first.ExpectedProducers != 2) {
				t.Errorf("%s: %v of %d producers, complete %g", at, first.Cells[0].State, first.ExpectedProducers, first.CompletenessRatio)
			}
		}
	})
}
