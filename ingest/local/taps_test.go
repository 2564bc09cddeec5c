package local_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/ingest/local"
)

// until waits for a condition.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	// The timeout is long, so that a busy machine cannot cause a failure.
	for begun := time.Now(); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Since(begun) > 2*time.Minute {
			t.Fatalf("%s: does not come true", what)
		}
	}
}

// ticking returns tagged frames with the current time on each read.
type ticking struct {
	frame  []byte
	burst  int           // frames per read; 0 is 1
	behind time.Duration // lag of the clock that stamps frames
	n      atomic.Int64
	hang   atomic.Bool // in ReadBatch
	fail   atomic.Bool
	silent atomic.Bool
	closed atomic.Bool
}

func (s *ticking) ReadBatch(b *capture.Batch) error {
	for s.hang.Load() {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(100 * time.Microsecond)
	if s.fail.Load() {
		return errors.New("the interface is on fire")
	}
	if b.N = 0; s.silent.Load() {
		return nil
	}
	for b.N < max(s.burst, 1) {
		b.Frames[b.N] = capture.Frame{Data: s.frame, TimeNS: time.Now().Add(-s.behind).UnixNano(), WireLen: uint32(len(s.frame))}
		b.N++
	}
	s.n.Add(int64(b.N))
	return nil
}

func (s *ticking) LowWatermark() int64 { return time.Now().UnixNano() }
func (s *ticking) Ahead() int64        { return 0 }
func (s *ticking) Close() error        { s.closed.Store(true); return nil }

// tagged returns a frame with a compact tag and IPv4.
func tagged() []byte {
	b := make([]byte, 60)
	copy(b[12:], []byte{0x99, 0x00, 0x2b, 0x85, 0x08, 0x00, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 1, 1, 10, 0, 2, 1})
	return b
}

func tick() *ticking { return &ticking{frame: tagged()} }

// tapOf returns a ring.
func tapOf(name string, ring int, s local.Source) local.Ring {
	return local.Ring{Name: name, Ring: ring, Source: s, Tap: window.Tap{Tags: true, Weight: 1}}
}

func tapsPlan(t *testing.T, taps ...local.Ring) local.Plan {
	t.Helper()
	domain, err := csig.DefaultSpec().Compile()
	if err != nil {
		t.Fatal(err)
	}
	return local.Plan{Settings: window.Settings{Decode: decode.Config{Domain: domain}, Resolver: fabric.None(domain), Epoch: 1}, Rings: taps}
}

// TestTapsComeAndGo adds, removes and replaces taps of a running pipeline. Every frame of a
// source is stored, under identities that never repeat.
func TestTapsComeAndGo(t *testing.T) {
	j := newJournal(t)
	a, b, c, a2, b2 := tick(), tick(), tick(), tick(), tick()
	p, end := runPipeline(t, config(j), tapsPlan(t, tapOf("a", 0, a), tapOf("a", 1, b)))
	flow := func(s *ticking) {
		n := s.n.Load()
		until(t, "frames come", func() bool { return s.n.Load() > n+20 })
	}
	reload := func(taps ...local.Ring) {
		if err := p.Reload(t.Context(), tapsPlan(t, taps...), nil); err != nil {
			t.Fatal(err)
		}
	}
	flow(a)
	reload(tapOf("a", 0, nil), tapOf("a", 1, nil), tapOf("c", 0, c))
	flow(c)
	reload(tapOf("c", 0, nil), tapOf("a", 1, nil)) // a/0 is removed
	until(t, "the tap that was removed is closed", a.closed.Load)
	if b.closed.Load() || c.closed.Load() {
		t.Error("a tap that stays is closed")
	}
	reload(tapOf("c", 0, nil), tapOf("a", 1, nil), tapOf("a", 0, a2)) // and added again
	flow(a2)
	reload(tapOf("a", 0, nil), tapOf("a", 1, b2)) // c is removed, a/1 starts from scratch
	flow(b2)
	extra := tick()
	for _, bad := range [][]local.Ring{
		{tapOf("new", 0, nil), tapOf("x", 0, extra)}, {tapOf("a", 0, nil), tapOf("a", 0, extra)}, {tapOf("", 0, extra)}, {tapOf("a", 1<<16, extra)},
	} {
		extra.closed.Store(false)
		adopt := func() error { t.Errorf("plan %+v: the rest of its configuration is applied", bad); return nil }
		if err := p.Reload(t.Context(), tapsPlan(t, bad...), adopt); err == nil || !extra.closed.Load() {
			t.Errorf("plan %+v: error %v, source closed %t; want it refused and closed", bad, err, extra.closed.Load())
		}
	}
	extra.closed.Store(false)
	refused, reloads := errors.New("refused"), p.Stats().Reloads
	if err := p.Reload(t.Context(), tapsPlan(t, tapOf("a", 0, extra)), func() error { return refused }); !errors.Is(err, refused) || !extra.closed.Load() || p.Stats().Reloads != reloads {
		t.Errorf("error %v, source closed %t, %d reloads; want the plan refused and its source closed", err, extra.closed.Load(), p.Stats().Reloads-reloads)
	}
	end()
	if err := p.Reload(t.Context(), tapsPlan(t), nil); !errors.Is(err, local.ErrEnded) {
		t.Errorf("reload after the end: %v", err)
	}
	conserved(t, p.Stats())
	given := a.n.Load() + b.n.Load() + c.n.Load() + a2.n.Load() + b2.n.Load()
	counted := p.Stats().Counts()
	// The first frames of a ring that takes over belong to the replaced ring.
	if counted.In > uint64(given) || counted.In+5 < uint64(given) || j.total(time.Second) != counted.In {
		t.Errorf("%d frames given, %d counted, %d stored", given, counted.In, j.total(time.Second))
	}
}

// uncounted is a Counter that cannot count.
type uncounted struct{ *ticking }

func (uncounted) Count(*window.Settings, window.Tap) (local.Counts, error) {
	return local.Counts{}, errors.New("the kernel has no program")
}
func (uncounted) ReadCounts() (local.Counts, error) { return local.Counts{}, nil }

// TestFailedStart: if a tap of a plan cannot start, Run fails, and every source is closed.
func TestFailedStart(t *testing.T) {
	for _, reloads := range []bool{false, true} {
		a, b, c := tick(), tick(), tick()
		first, second := tapOf("a", 0, a), []local.Ring{tapOf("b", 0, uncounted{b}), tapOf("c", 0, c)}
		plan := tapsPlan(t, append([]local.Ring{first}, second...)...)
		if reloads {
			plan = tapsPlan(t, first)
		}
		p, err := local.New(config(newJournal(t)), plan)
		if err != nil {
			t.Fatal(err)
		}
		wait := start(t.Context(), t, p)
		if reloads {
			first.Source = nil
			if err := p.Reload(t.Context(), tapsPlan(t, append([]local.Ring{first}, second...)...), nil); err == nil {
				t.Error("a plan with a tap that cannot start is loaded")
			}
		}
		if err := wait(); err == nil || !strings.Contains(err.Error(), "no program") {
			t.Errorf("run: %v", err)
		}
		if !a.closed.Load() || !b.closed.Load() || !c.closed.Load() {
			t.Errorf("with a reload %t: sources closed: %t, %t, %t", reloads, a.closed.Load(), b.closed.Load(), c.closed.Load())
		}
	}
}

// TestFailedBarrier: a plan whose barrier fails starts none of its taps, and its sources are closed.
func TestFailedBarrier(t *testing.T) {
	j, a, b := newJournal(t), tick(), tick()
	p, err := local.New(config(j), tapsPlan(t, tapOf("a", 0, a)))
	if err != nil {
		t.Fatal(err)
	}
	wait := start(t.Context(), t, p)
	until(t, "frames come", func() bool { return a.n.Load() > 20 })
	j.mu.Lock()
	j.onCommit = func() error { return errors.New("the disk is on fire") }
	j.mu.Unlock()
	if err := p.Reload(t.Context(), tapsPlan(t, tapOf("a", 0, nil), tapOf("b", 0, b)), nil); err == nil {
		t.Error("a plan is loaded without a barrier")
	}
	if err := wait(); err == nil || !a.closed.Load() || !b.closed.Load() {
		t.Errorf("run: %v, sources closed: %t, %t", err, a.closed.Load(), b.closed.Load())
	}
}

// TestClockBehind: a tap whose card's clock is behind ends within half of the drain time,
// although its frames never reach the time of the order, and its replacement continues where it
// ended.
func TestClockBehind(t *testing.T) { synctest.Test(t, clockBehind) }

func clockBehind(t *testing.T) {
	j := newJournal(t)
	a, b := tick(), tick()
	a.behind, b.behind = 20*24*time.Hour, 20*24*time.Hour
	cfg := config(j)
	cfg.Drain = time.Second
	p, end := runPipeline(t, cfg, tapsPlan(t, tapOf("a", 0, a)))
	until(t, "frames come", func() bool { return a.n.Load() > 20 })
	if err := p.Reload(t.Context(), tapsPlan(t, tapOf("a", 0, b)), nil); err != nil || p.Stats().Stalled != 0 {
		t.Fatalf("%v, %d stalls", err, p.Stats().Stalled)
	}
	until(t, "frames come", func() bool { return b.n.Load() > 20 })
	told := time.Now()
	end()
	if took := time.Since(told); took > cfg.Drain*3/4 {
		t.Errorf("the end took %s", took)
	}
	conserved(t, p.Stats())
	given := uint64(a.n.Load() + b.n.Load())
	if counted := p.Stats().Counts().In; counted != given || j.total(time.Second) != given {
		t.Errorf("%d frames given, %d counted, %d stored", given, counted, j.total(time.Second))
	}
}

// TestClockAhead: frames from a card whose clock is ahead of the host's are rejected and
// counted, while another card's frames count normally.
func TestClockAhead(t *testing.T) { synctest.Test(t, clockAhead) }

func clockAhead(t *testing.T) {
	j := newJournal(t)
	ahead, right, near := tick(), tick(), tick()
	ahead.behind, near.behind = -3*time.Second, -time.Second
	p, end := runPipeline(t, config(j), tapsPlan(t, tapOf("ahead", 0, ahead), tapOf("near", 0, near), tapOf("right", 0, right)))
	until(t, "frames come", func() bool { return min(ahead.n.Load(), near.n.Load(), right.n.Load()) > 20 })
	end()
	conserved(t, p.Stats())
	c := p.Stats().Counts()
	if kept := uint64(right.n.Load() + near.n.Load()); c.Rejected[aggregate.RejectFuture] != uint64(ahead.n.Load()) || c.Stored != kept || j.total(time.Second) != kept {
		t.Errorf("%d frames ahead, %d others: counts %+v, %d stored", ahead.n.Load(), kept, c, j.total(time.Second))
	}
}

// TestStalledTap: a hanging ring does not keep others from closing windows, and loses nothing.
func TestStalledTap(t *testing.T) {
	j := newJournal(t)
	a, b := tick(), tick()
	cfg := config(j)
	cfg.BarrierTimeout = 5 * time.Millisecond
	p, end := runPipeline(t, cfg, tapsPlan(t, tapOf("a", 0, a), tapOf("b", 0, b)))
	until(t, "both rings are in a commit", func() bool { return len(j.marks()) == 2 })
	a.hang.Store(true)
	until(t, "the stall is counted", func() bool { return p.Stats().Stalled > 2 })
	before := p.Stats()
	until(t, "commits go on", func() bool { return p.Stats().Barriers > before.Barriers+5 })
	if len(j.marks()) != 2 {
		t.Errorf("%d states in the commit, want also that of the ring that hangs", len(j.marks()))
	}
	if err := p.Reload(t.Context(), func() local.Plan { n := tapsPlan(t, tapOf("a", 0, nil), tapOf("b", 0, nil)); n.Epoch = 2; return n }(), nil); err != nil {
		t.Fatal(err)
	}
	a.hang.Store(false)
	end()
	conserved(t, p.Stats())
	if got, want := j.total(time.Second), uint64(a.n.Load()+b.n.Load()); got != want {
		t.Errorf("%d observations stored, %d frames given", got, want)
	}
}

// TestSourceFails: earlier frames of all taps are stored, and the failure is returned.
func TestSourceFails(t *testing.T) {
	j := newJournal(t)
	a, b := tick(), tick()
	p, err := local.New(config(j), tapsPlan(t, tapOf("a", 0, a), tapOf("b", 0, b)))
	if err != nil {
		t.Fatal(err)
	}
	wait := start(t.Context(), t, p)
	until(t, "frames come", func() bool { return a.n.Load() > 10 && b.n.Load() > 10 })
	a.fail.Store(true)
	if err := wait(); err == nil || !strings.Contains(err.Error(), `tap "a"`) || !strings.Contains(err.Error(), "on fire") {
		t.Errorf("error %v", err)
	}
	if got, want := j.total(time.Second), uint64(a.n.Load()+b.n.Load()); got != want || !a.closed.Load() || !b.closed.Load() {
		t.Errorf("%d observations stored, %d frames given", got, want)
	}
}

// TestIdleTap: the windows of a silent tap close by the clock, and a ring that holds too many
// rows waits for a commit. It uses the time of a synctest bubble, so that a busy machine closes
// as many windows as an idle one.
func TestIdleTap(t *testing.T) { synctest.Test(t, idleTap) }

func idleTap(t *testing.T) {
	j := newJournal(t)
	a := tick()
	a.burst = 20
	cfg := config(j)
	plan := tapsPlan(t, tapOf("a", 0, a))
	plan.Resolutions, plan.FineHeavyOnly = []time.Duration{time.Millisecond, time.Second}, false
	cfg.Interval, cfg.MaxHeldRows = 300*time.Millisecond, 3
	p, end := runPipeline(t, cfg, plan)
	until(t, "rows are held", func() bool { return p.Stats().Full > 0 })
	a.silent.Store(true)
	until(t, "windows close", func() bool { return j.total(time.Millisecond) == uint64(a.n.Load()) && p.Stats().Counts().In > 0 })
	end()
}

// TestBadConfig: invalid settings are rejected before anything runs.
func TestBadConfig(t *testing.T) {
	good := func() local.Config { return config(newJournal(t)) }
	for name, change := range map[string]func(*local.Config, *local.Plan){
		"instance": func(c *local.Config, _ *local.Plan) { c.Instance = "" },
		"journal":  func(c *local.Config, _ *local.Plan) { c.Journal = nil },
		"interval": func(c *local.Config, _ *local.Plan) { c.Interval = -1 },
		"source":   func(_ *local.Config, p *local.Plan) { p.Rings[0].Source = nil },
		"twice":    func(_ *local.Config, p *local.Plan) { p.Rings = append(p.Rings, p.Rings[0]) },
		"link":     func(_ *local.Config, p *local.Plan) { p.Rings[0].Link = 99 },
		"weight":   func(_ *local.Config, p *local.Plan) { p.Rings[0].Weight = 1 << 40 },
		"domain":   func(_ *local.Config, p *local.Plan) { p.Decode.Domain = nil },
	} {
		c, p := good(), tapsPlan(t, tapOf("a", 0, tick()))
		change(&c, &p)
		if _, err := local.New(c, p); err == nil {
			t.Errorf("%s: no error", name)
		} else if strings.Contains(fmt.Sprint(err), "%!") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
