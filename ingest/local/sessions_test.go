package local_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/ingest/local"
	journals "github.com/csigscope/csigscope/ingest/local/journal"
)

// mirrored is a ticking source of sessions: frame n of a batch belongs to session n.
type mirrored struct {
	*ticking
	received int64
	behind   time.Duration // lag of the frames' times
	foreign  bool          // packets arrive without frames in them

	mu    sync.Mutex
	names []string
	given map[string]uint64 // frames by session
}

func mirror(sessions ...string) *mirrored {
	return &mirrored{ticking: tick(), names: append([]string{"others"}, sessions...), given: map[string]uint64{}}
}

func (m *mirrored) ReadBatch(b *capture.Batch) error {
	if err := m.ticking.ReadBatch(b); err != nil || b.N == 0 {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.received = b.Frames[0].TimeNS
	if b.N = 0; m.foreign {
		return nil
	}
	for i, name := range m.names {
		f := b.Frames[0]
		f.Interface, f.TimeNS = uint32(i), m.received-int64(m.behind)
		b.Frames[b.N] = f
		b.N++
		m.given[name]++
	}
	return nil
}

func (m *mirrored) Interfaces() []capture.Interface {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := make([]capture.Interface, len(m.names))
	for i, name := range m.names {
		list[i].Name = name
	}
	return list
}

func (m *mirrored) Received() int64 { return m.received }

func (m *mirrored) frames(session string) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.given[session]
}

// mirrorTap returns a tap with sessions. Those in the middle have seen half of the path, and
// each of their frames counts as weight.
func mirrorTap(m *mirrored, weight uint64, middle string) local.Ring {
	t := tapOf("spine", 0, nil)
	if m != nil {
		t.Source = m
	}
	t.Sessions = func(session string) local.SessionTap {
		s := local.SessionTap{Name: "spine/" + session, Tap: window.Tap{Tags: session != middle, Weight: weight}}
		if m != nil {
			s.Behind = m.behind
		}
		return s
	}
	return t
}

// storedOf returns the number of stored observations of a tap, and of its incarnations.
func (j *journal) storedOf(tap string) (n uint64, incarnations int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	seen := map[uint64]bool{}
	for k, b := range j.stored {
		if k.producer == local.Producer("test", tap) && b.Resolution == int64(time.Second) {
			n += sum(&b)
			seen[k.incarnation] = true
		}
	}
	return n, len(seen)
}

// TestSessions: each session is a tap of its own, with its place, weight, counts, rows and
// state, over a reload that changes places and a restart that has room for fewer.
func TestSessions(t *testing.T) {
	j := newJournal(t)
	m := mirror("a", "b", "c")
	p, end := runPipeline(t, config(j), tapsPlan(t, mirrorTap(m, 10, "b")))
	until(t, "frames come", func() bool { return m.frames("a") > 50 })
	if err := p.Reload(t.Context(), tapsPlan(t, mirrorTap(nil, 10, "c")), nil); err != nil {
		t.Fatal(err)
	}
	reloaded := m.frames("a")
	until(t, "frames come", func() bool { return m.frames("a") > reloaded+50 })
	end()
	conserved(t, p.Stats())
	total := m.frames("a")
	for _, r := range p.Stats().Rings {
		weight := uint64(10)
		if r.Session == "" {
			weight = 1
		}
		if r.Packets != total || r.Counts.In != total*weight || (r.Session != "") != (r.Of == "spine") || !r.Ended {
			t.Errorf("%s: %d packets and %d observations of %d frames, session %q of %q", r.Name, r.Packets, r.Counts.In, total, r.Session, r.Of)
		}
	}
	b, _ := j.storedOf("spine/b")
	c, _ := j.storedOf("spine/c")
	a, _ := j.storedOf("spine/a")
	if others, _ := j.storedOf("spine"); a != total*10 || others != total || b+c != total*10 || b < 500 || c < 500 {
		t.Errorf("of %d frames each, %d, %d and %d are stored of sessions that stand for 10, of which two were in the middle for a time, and %d of the others", total, a, b, c, others)
	}
	if len(p.Stats().Rings) != 4 || len(j.marks()) != 4 {
		t.Errorf("%d rings and %d states, want 4", len(p.Stats().Rings), len(j.marks()))
	}
}

// TestSessionCrash: sessions have marks of their own, and returning ones start again.
func TestSessionCrash(t *testing.T) {
	j := newJournal(t)
	m := mirror("a")
	p, err := local.New(config(j), tapsPlan(t, mirrorTap(m, 1, "")))
	if err != nil {
		t.Fatal(err)
	}
	wait := start(t.Context(), t, p)
	until(t, "frames come", func() bool { return m.frames("a") > 50 })
	until(t, "a round has the session", func() bool { return len(j.marks()) > 1 })
	j.mu.Lock()
	j.onCommit = func() error { return fmt.Errorf("the machine is gone") }
	j.mu.Unlock()
	if err := wait(); err == nil {
		t.Fatal("the pipeline did not fail")
	}
	j.onCommit, j.held = nil, nil
	marked := false
	for _, m := range j.marks() {
		marked = marked || m.Session == "a" && m.Of == "spine" && m.At > 0
	}
	before, _ := j.storedOf("spine/a")
	next := mirror("b", "a")
	cfg := config(j)
	cfg.After = j.after()
	_, end := runPipeline(t, cfg, tapsPlan(t, mirrorTap(next, 1, "")))
	until(t, "frames come", func() bool { return next.frames("b") > 50 })
	end()
	a, _ := j.storedOf("spine/a")
	if b, _ := j.storedOf("spine/b"); a != before+next.frames("a") || !marked || b != next.frames("b") {
		t.Errorf("%d stored, want %d before the crash and %d after it; %d of the other session; marked %t", a, before, next.frames("a"), b, marked)
	}
}

// TestSessionClocks: if frames have times of a clock that is behind, their windows wait for it,
// and close by the clock; packets without a frame do not delay the end.
func TestSessionClocks(t *testing.T) { synctest.Test(t, sessionClocks) }

func sessionClocks(t *testing.T) {
	j := newJournal(t)
	m := mirror("a")
	m.behind = 500 * time.Millisecond
	plan := tapsPlan(t, mirrorTap(m, 1, ""))
	plan.Resolutions = []time.Duration{10 * time.Millisecond, time.Second}
	p, end := runPipeline(t, config(j), plan)
	time.Sleep(3 * time.Second)
	m.mu.Lock()
	m.foreign = true
	m.mu.Unlock()
	time.Sleep(3 * time.Second)
	if got := j.total(10 * time.Millisecond); got != 2*m.frames("a") || got == 0 {
		t.Errorf("%d observations of 10 ms are stored, want %d", got, 2*m.frames("a"))
	}
	began := time.Now()
	end()
	if took := time.Since(began); took > time.Second {
		t.Errorf("the end took %s", took)
	}
	for _, r := range p.Stats().Rings {
		if r.Session == "a" && (r.Counts.Late > 0 || r.Counts.Deltas > 0) {
			t.Errorf("%+v", r.Counts)
		}
	}
}

// TestSessionsMoved: a mirror that a reload moves to another address counts all frames of sessions whose clock is behind.
func TestSessionsMoved(t *testing.T) { synctest.Test(t, sessionsMoved) }

func sessionsMoved(t *testing.T) {
	j, old, next := newJournal(t), mirror("a"), mirror("a")
	old.behind, next.behind = 500*time.Millisecond, 500*time.Millisecond
	p, end := runPipeline(t, config(j), tapsPlan(t, mirrorTap(old, 1, "")))
	time.Sleep(3 * time.Second)
	if err := p.Reload(t.Context(), tapsPlan(t, mirrorTap(next, 1, "")), nil); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second)
	end()
	conserved(t, p.Stats())
	for _, r := range p.Stats().Rings {
		if given := old.frames("a") + next.frames("a"); r.Packets != given || r.Counts.Stored != given || next.frames("a") == 0 {
			t.Errorf("%s: %d frames came, %d of them after the reload; %d were counted and %d stored", r.Name, given, next.frames("a"), r.Packets, r.Counts.Stored)
		}
	}
}

// TestSessionMarks: the windows of a session whose clock is behind are stored, or the marks of each round show that they are
// open.
func TestSessionMarks(t *testing.T) { synctest.Test(t, sessionMarks) }

func sessionMarks(t *testing.T) {
	j, m := newJournal(t), mirror("a")
	m.behind = 500 * time.Millisecond
	plan := tapsPlan(t, mirrorTap(m, 1, ""))
	plan.Resolutions = []time.Duration{time.Second}
	rounds := 0
	j.onCommit = func() error { // marks are those of the round before
		until := map[uint64]int64{} // ends of the latest stored windows
		for k, b := range j.stored {
			until[k.producer] = max(until[k.producer], b.WindowStart+b.Resolution)
		}
		for _, mark := range j.saved {
			end := until[mark.Source.Producer]
			for _, g := range journals.OpenWindows(&mark, &plan.Settings) {
				if rounds++; end > 0 && g.From.UnixNano() > end {
					t.Errorf("%s is stored until %s, and its open windows begin at %s", mark.Name, time.Unix(0, end), g.From)
				}
			}
		}
		return nil
	}
	_, end := runPipeline(t, config(j), plan)
	time.Sleep(6 * time.Second)
	end()
	if rounds == 0 {
		t.Error("no marks")
	}
}

// forgetful is a log that keeps nothing.
type forgetful struct{ aggregate.Sink }

func (forgetful) Commit(context.Context, []byte) error { return nil }
func (forgetful) Marks() ([][]byte, error)             { return nil, nil }

// TestSessionEndsEarly: the rows of a session have a name although it ends, with its tap, before its first round.
func TestSessionEndsEarly(t *testing.T) { synctest.Test(t, sessionEndsEarly) }

func sessionEndsEarly(t *testing.T) {
	var p *local.Pipeline
	named, wrote := map[uint64]string{}, map[string]bool{}
	j := journals.New(journals.Config{
		Log: forgetful{aggregate.Sinks{}},
		Begin: func(sources map[aggregate.Source]bool, marks []local.Mark) {
			for i := range marks {
				named[marks[i].Source.Producer] = marks[i].Name
			}
			for source := range sources {
				wrote[named[source.Producer]] = true
			}
		},
		Records: journals.NewRecorder(journals.RecorderConfig{
			Stats: func() []local.RingStats { return p.Stats().Rings }, Tap: func(string) journals.Tap { return nil }, Ending: func() bool { return false },
			Writers: journals.Writers{
				Taps: func(context.Context, []store.TapRow, []store.FindingRow) error { return nil },
				Gaps: func(context.Context, []store.Gap) error { return nil },
			},
			Logger: slog.New(slog.DiscardHandler),
		}),
		Logger: slog.New(slog.DiscardHandler),
	})
	m := mirror()
	var err error
	p, err = local.New(local.Config{Instance: "test", Interval: time.Hour, Journal: j}, tapsPlan(t, mirrorTap(m, 1, "")))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	wait := start(ctx, t, p)
	until(t, "frames come", func() bool { return m.frames("others") > 10 })
	m.mu.Lock()
	m.names = append(m.names, "late")
	m.mu.Unlock()
	until(t, "frames of the session come", func() bool { return m.frames("late") > 10 })
	if err := p.Reload(ctx, tapsPlan(t, tapOf("b", 0, tick())), nil); err != nil {
		t.Fatal(err)
	}
	stop()
	if err := wait(); err != nil {
		t.Fatal(err)
	}
	if !wrote["spine/late"] || wrote[""] {
		t.Errorf("rows of %v, want none without a name", wrote)
	}
}

// TestSessionsNeedASource: a tap with sessions needs a source that implements Sessions.
func TestSessionsNeedASource(t *testing.T) {
	tap := mirrorTap(nil, 1, "")
	tap.Source = tick()
	if _, err := local.New(config(newJournal(t)), tapsPlan(t, tap)); err == nil || !strings.Contains(err.Error(), "source with sessions") {
		t.Error(err)
	}
}
