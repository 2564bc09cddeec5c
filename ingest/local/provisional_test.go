package local_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/ingest/local"
)

// early records when windows had provisional rows, and their observations.
type early struct {
	mu   sync.Mutex
	came map[part]seen
}

// part identifies a window of a part of a producer.
type part struct {
	producer, part uint64
	start          int64
}

type seen struct {
	at           time.Time
	observations uint64
}

func (e *early) WriteProvisional(p *aggregate.Provisional) {
	b := (*aggregate.Block)(p)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.came[part{b.Producer, b.Part(), b.WindowStart}] = seen{time.Now(), sum(b)}
}

// final is a journal that records when windows of 1 s arrived.
type final struct {
	*journal
	early
}

func (f *final) WriteBlock(ctx context.Context, b *aggregate.Block) error {
	if b.Resolution == int64(aggregate.LiveResolution) {
		p := aggregate.Provisional(*b)
		f.WriteProvisional(&p)
	}
	return f.journal.WriteBlock(ctx, b)
}

// TestProvisional: two rings of a tap and an idle tap announce each window right after its end,
// and the journal has it right after its lateness, in few rounds however long the interval is.
func TestProvisional(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lateness = 300 * time.Millisecond
		came, closed := &early{came: map[part]seen{}}, &final{newJournal(t), early{came: map[part]seen{}}}
		idle := tick()
		plan := tapsPlan(t, tapOf("a", 0, tick()), tapOf("a", 1, tick()), tapOf("b", 0, idle))
		plan.Lateness = lateness
		p, end := runPipeline(t, local.Config{Instance: "test", Interval: time.Hour, Journal: closed, Provisional: came}, plan)
		time.Sleep(5500 * time.Millisecond)
		idle.silent.Store(true) // its open window ends by the clock
		time.Sleep(5 * time.Second)
		closed.journal.mu.Lock()
		rounds := closed.commits
		closed.journal.mu.Unlock()
		end()
		conserved(t, p.Stats())
		if rounds < 10 || rounds > 22 {
			t.Errorf("%d rounds in 10 s: want about one for each window", rounds)
		}
		if n := len(came.came); n < 10+10+6-3 {
			t.Errorf("%d windows were announced", n)
		}
		for k, e := range came.came {
			f, end := closed.came[k], time.Unix(0, k.start).Add(aggregate.LiveResolution)
			if late := e.at.Sub(end); late < 0 || late > 5*time.Millisecond {
				t.Errorf("%+v was announced %s after its end", k, late)
			}
			if late := f.at.Sub(end); late < lateness || late > lateness+50*time.Millisecond {
				t.Errorf("the journal had %+v %s after its end, want %s and at most 50ms more", k, late, lateness)
			}
			if e.observations != f.observations || e.observations == 0 {
				t.Errorf("%+v was announced with %d observations and has %d", k, e.observations, f.observations)
			}
		}
	})
}

// remembered is a journal of which live readers have the blocks.
type remembered struct {
	*journal
	*table.Memory
}

func (r *remembered) WriteBlock(ctx context.Context, b *aggregate.Block) error {
	return errors.Join(r.Memory.WriteBlock(ctx, b), r.journal.WriteBlock(ctx, b))
}

// TestFinalAfterReload: a window that a reload closes early, with another configuration or another source of its tap, is
// final only with its last rows.
func TestFinalAfterReload(t *testing.T) {
	for name, replaced := range map[string]bool{"another configuration": false, "another source": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const lateness = 300 * time.Millisecond
				to := &remembered{newJournal(t), table.NewMemory(table.MemoryOptions{Lateness: lateness})}
				plan := tapsPlan(t, tapOf("a", 0, tick()))
				plan.Lateness = lateness
				p, end := runPipeline(t, local.Config{Instance: "test", Interval: time.Hour, Journal: to, Provisional: to}, plan)
				final := map[int64]uint64{}
				publish := func() {
					t.Helper()
					to.Publish()
					for _, w := range to.State().Windows {
						if !w.Final {
							continue
						}
						n, start := uint64(0), w.Start.UnixNano()
						for _, c := range w.Cells(csig.MinABWRatio) {
							n += c.Observations
						}
						if before, known := final[start]; known && before != n {
							t.Errorf("the final window at %s changes from %d to %d observations", w.Start, before, n)
						}
						final[start] = n
					}
				}
				time.Sleep(2400 * time.Millisecond)
				next := plan
				next.Epoch, next.Rings = 2, []local.Ring{tapOf("a", 0, nil)}
				if replaced {
					next.Rings = []local.Ring{tapOf("a", 0, tick())}
				}
				if err := p.Reload(t.Context(), next, nil); err != nil {
					t.Fatal(err)
				}
				for range 40 {
					publish()
					time.Sleep(50 * time.Millisecond)
				}
				end()
				if len(final) < 3 {
					t.Errorf("%d windows were final", len(final))
				}
			})
		})
	}
}
