package journal

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/ingest/local"
)

// rowIdentity identifies a row of a tap.
type rowIdentity struct {
	aggregate.Source
	seq uint64
}

// recording is a Recorder over a fake ring.
type recording struct {
	*Recorder
	ring     local.RingStats
	kernel   capture.TapCounters
	last     bool
	written  map[rowIdentity]store.TapRow // rows that are written again replace themselves
	gone     map[int64]store.Gap          // by begin
	found    map[foundIdentity]store.FindingRow
	failing  error
	section  []byte
	t        *testing.T
	at       time.Time
	conflict bool
}

func newRecording(t *testing.T, at time.Time) *recording {
	r := &recording{t: t, at: at, written: make(map[rowIdentity]store.TapRow), gone: make(map[int64]store.Gap), found: make(map[foundIdentity]store.FindingRow)}
	r.Recorder = NewRecorder(RecorderConfig{
		Stats: func() []local.RingStats { return []local.RingStats{r.ring} }, Tap: func(string) Tap { return leaf{&r.kernel} },
		Ending: func() bool { return r.last }, Logger: slog.New(slog.DiscardHandler),
		Writers: r.writers(),
	})
	r.ring = local.RingStats{Name: "leaf", Source: aggregate.Source{Producer: 1, Incarnation: 2, Epoch: 3}}
	r.ring.Wrote = r.ring.Source
	return r
}

// leaf is the tap of the ring; each of its packets counts as two.
type leaf struct{ kernel *capture.TapCounters }

func (leaf) At(string) (window.Tap, string)                   { return window.Tap{Place: "receiver", Weight: 2}, "eth1" }
func (l leaf) Counters() capture.TapCounters                  { return *l.kernel }
func (leaf) Session(string) (c local.SessionCounters, _ bool) { return c, false }

func (r *recording) writers() Writers {
	return Writers{
		Taps: func(_ context.Context, rows []store.TapRow, found []store.FindingRow) error {
			for _, row := range rows {
				key := rowIdentity{row.Source, row.Seq}
				if old, again := r.written[key]; again && old.Packets != row.Packets {
					r.conflict = true
				}
				r.written[key] = row
			}
			for _, row := range found {
				if row.To < row.From { // as the store and collectors
					return errors.New("a finding ends before it begins")
				}
				r.found[foundIdentity{row.Source, row.Seq, row.ID}] = row
			}
			return r.failing
		},
		Gaps: func(_ context.Context, list []store.Gap) error {
			for _, g := range list {
				if g.To.UnixNano() < g.From.UnixNano() { // as the store and collectors
					return errors.New("a gap ends before it begins")
				}
				r.gone[g.From.UnixNano()] = g
			}
			return r.failing
		},
	}
}

// second simulates a second with n tagged frames and m frames with reflections. All earlier
// windows are then closed.
func (r *recording) second(n, m uint64) {
	r.t.Helper()
	c := &r.ring.Counts
	c.Stored = c.In
	c.In += 2 * (n + m)
	r.ring.Packets += n + m
	r.ring.WireBytes += 100 * (n + m)
	r.ring.Frames[0] += n + m
	r.ring.Found[0][0][0] += n
	r.ring.Found[1][0][0] += m
	r.kernel.Frames += n + m
	r.kernel.Dropped++
	r.kernel.SuperFrames += 3
	r.at = r.at.Add(time.Second)
	r.ring.LastFrame = r.at
	r.barrier()
}

func (r *recording) barrier() {
	r.t.Helper()
	r.ring.Cut = r.at
	var err error
	if r.section, err = r.Recorder.barrier(r.at, []local.Mark{{Name: "leaf"}}); err != nil {
		r.t.Fatal(err)
	}
	r.flush(r.t.Context())
}

// TestRecorder: rows are cut every minute, at a new epoch and at the end. Over a kill they add
// up to the counts until the last round and after it, without those in open windows.
func TestRecorder(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	r := newRecording(t, start)
	for range 150 {
		r.second(10, 5)
	}
	if len(r.written) != 2 {
		t.Errorf("%d rows after 150 s, want 2", len(r.written))
	}
	saved, at := append([]byte(nil), r.section...), r.at
	r.second(1000, 1000) // lost: no round has it

	next := newRecording(t, r.at)
	next.written, next.gone = r.written, r.gone
	next.ring.Source.Incarnation++
	next.ring.Wrote = next.ring.Source
	if err := next.resume(saved, at); err != nil {
		t.Fatal(err)
	}
	next.failing = errors.New("the store is away")
	for range 60 {
		next.second(10, 5)
	}
	next.failing = nil
	// New epoch: all windows close at that barrier, under the old one.
	next.ring.Counts.Stored = next.ring.Counts.In
	next.ring.Source.Epoch = 4
	next.barrier()
	next.ring.Wrote = next.ring.Source
	next.second(10, 5)
	next.last, next.ring.Counts.Stored = true, next.ring.Counts.In
	next.barrier()

	var sum, of4 store.TapRow
	for _, row := range next.written {
		if row.Tags+row.Reflections != row.Observations || row.Observations != row.Stored || row.Frames["no-csig"] != row.Packets || row.From > row.To ||
			row.Place != "receiver" || row.Interface != "eth1" || row.Timestamps != "software" {
			t.Errorf("%+v", row)
		}
		if row.Epoch == 4 {
			of4.Stored += row.Stored
		}
		sum.Packets += row.Packets
		sum.Stored += row.Stored
		sum.Tags += row.Tags
		sum.KernelDrops += row.KernelDrops
		sum.SuperFrames += row.SuperFrames
	}
	dropped := uint64(0)
	for _, g := range next.gone {
		if dropped += g.Observations; g.Reason != store.GapDrops || !g.From.Before(g.To) || g.To.Sub(g.From) > 2*tapPeriod {
			t.Errorf("gap %+v", g)
		}
	}
	if dropped != 2*sum.KernelDrops || len(next.gone) != 5 {
		t.Errorf("%d gaps with %d observations, %d drops that stand for two each", len(next.gone), dropped, sum.KernelDrops)
	}
	if sum.Packets != 211*15 || sum.Stored != 210*30 || sum.Tags != 211*20 /* those of a window that was open, too: they are told before reflections */ || sum.KernelDrops != 211 || sum.SuperFrames != 3*211 || of4.Stored != 30 || next.conflict {
		t.Errorf("%d packets, %d stored (%d under the last epoch), %d of them tags, %d drops, rows that differ %t",
			sum.Packets, sum.Stored, of4.Stored, sum.Tags, sum.KernelDrops, next.conflict)
	}
	if err := next.resume([]byte("no rows"), at); err == nil {
		t.Error("damage is taken for rows")
	}
}

// TestDropsAreApart: losses in quick succession are one gap, from before they were noticed to
// the last; others are a separate gap.
func TestDropsAreApart(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	r := newRecording(t, start)
	quiet := func(seconds int) {
		for range seconds {
			r.at = r.at.Add(time.Second)
			r.barrier()
		}
	}
	quiet(3)
	r.second(1, 0)
	quiet(3)
	r.second(1, 0)
	quiet(10)
	r.second(1, 0)
	quiet(10)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	for from, want := range map[int]store.Gap{2: {To: at(8), Observations: 4}, 17: {To: at(19), Observations: 2}} {
		if got := r.gone[at(from).UnixNano()]; !got.To.Equal(want.To) || got.Observations != want.Observations || got.Producer != 1 {
			t.Errorf("gap from %d s: %+v, want %+v", from, got, want)
		}
	}
	if len(r.gone) != 2 {
		t.Errorf("%d gaps, want 2", len(r.gone))
	}
}

// TestDropsOfTapAgain: a tap that one reload removes and another one adds again counts its drops from 0.
func TestDropsOfTapAgain(t *testing.T) {
	r := newRecording(t, time.Unix(1_700_000_000, 0))
	tap := r.cfg.Tap
	r.kernel.Dropped = 4
	r.second(1, 0)
	r.cfg.Tap = func(string) Tap { return nil }
	r.barrier()
	r.cfg.Tap, r.kernel = tap, capture.TapCounters{Dropped: 8}
	r.last = true
	r.second(1, 0)
	drops := uint64(0)
	for _, row := range r.written {
		drops += row.KernelDrops
	}
	if drops != 5+9 {
		t.Errorf("%d drops, want 14", drops)
	}
}

// TestDropsAtSetBack: the clock is set back while the kernel drops packets. All losses are in gaps that end after they
// begin, and the row does not begin in the future. A process that finds a waiting gap and a finding of an earlier
// release, which end before they begin, writes them.
func TestDropsAtSetBack(t *testing.T) {
	for name, quiet := range map[string]bool{"packets after it": false, "quiet after it": true} {
		t.Run(name, func(t *testing.T) {
			r := newRecording(t, time.Unix(1_700_000_000, 0))
			r.second(10, 0)
			r.at = r.at.Add(-time.Hour)
			back := r.at
			if !quiet {
				r.second(10, 0)
			}
			r.last = true
			r.barrier()
			drops, lost := uint64(0), uint64(0)
			for _, row := range r.written {
				if drops += row.KernelDrops; row.From > row.To || row.From > r.at.UnixNano() {
					t.Errorf("row from %d to %d, at %d", row.From, row.To, r.at.UnixNano())
				}
			}
			for _, g := range r.gone {
				if lost += g.Observations; !quiet && g.From.After(back.Add(time.Second)) {
					t.Errorf("gap %+v", g)
				}
			}
			if lost != 2*drops || drops == 0 || len(r.state.Gaps) > 0 {
				t.Errorf("%d observations in gaps, %d drops that stand for two each, %d gaps wait", lost, drops, len(r.state.Gaps))
			}

			r.state.Gaps = []store.Gap{{From: r.at, To: r.at.Add(-time.Minute), Reason: store.GapDrops, Observations: 5}}
			r.state.Rows, r.state.Findings = []store.TapRow{{Seq: 9}}, []store.FindingRow{{Seq: 9, From: 2, To: 1}}
			saved, err := json.Marshal(&r.state)
			if err != nil {
				t.Fatal(err)
			}
			next := newRecording(t, r.at)
			if err := next.resume(saved, r.at); err != nil {
				t.Fatal(err)
			}
			next.barrier()
			if len(next.gone) != 1 || len(next.state.Gaps) > 0 || len(next.found) != 1 || len(next.state.Rows) > 0 {
				t.Errorf("the next process writes %v and %v; %d gaps and %d rows wait", next.gone, next.found, len(next.state.Gaps), len(next.state.Rows))
			}
		})
	}
}

// TestDropsCoverTheStall: a ring that hangs for a minute counts its drops at the end. The gap
// begins before the stall.
func TestDropsCoverTheStall(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	r := newRecording(t, start)
	for range 20 {
		r.second(10, 0)
		r.kernel.Dropped = 0
	}
	cut := r.at
	for range 60 {
		r.at = r.at.Add(time.Second)
		r.ring.Cut = cut // as in the pipeline
		if _, err := r.Recorder.barrier(r.at, []local.Mark{{Name: "leaf"}}); err != nil {
			t.Fatal(err)
		}
	}
	r.gone = map[int64]store.Gap{}
	r.kernel.Dropped += 8500
	r.last = true
	r.barrier()
	for _, g := range r.gone {
		if g.Observations != 2*8500 || g.From.After(cut) || g.From.Before(cut.Add(-2*time.Second)) || g.To.Before(r.at) {
			t.Errorf("gap of %d from %s to %s after the last second that was read, want it from there to %s",
				g.Observations, g.From.Sub(cut), g.To.Sub(cut), r.at.Sub(cut))
		}
	}
	if len(r.gone) != 1 {
		t.Errorf("%d gaps, want one", len(r.gone))
	}
}
