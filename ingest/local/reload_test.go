package local_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/ingest/local"
)

// cable is an interface: each packet goes to one ring of every open tap, by its flow, and to every open counter. Tests
// send at times at which nothing else happens.
type cable struct {
	mu       sync.Mutex
	taps     [][]*fanned
	counters []*counting
	sent     uint64
}

// run sends a packet each millisecond until stop is called. Flows are numbered in turn.
func (c *cable) run(flows int) (stop func()) {
	var end atomic.Bool
	var running sync.WaitGroup
	running.Go(func() {
		time.Sleep(37 * time.Microsecond)
		for flow := 0; !end.Load(); flow = (flow + 1) % flows {
			c.send(flow)
			time.Sleep(time.Millisecond)
		}
	})
	return func() { end.Store(true); running.Wait() }
}

func (c *cable) send(flow int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent++
	for _, tap := range c.taps {
		f := tap[flow%len(tap)]
		f.queue = append(f.queue, time.Now().Add(f.ahead).UnixNano())
	}
	for _, k := range c.counters {
		k.n++
	}
}

// rings opens a tap; all of its rings have the same clock, which is ahead by some time.
func (c *cable) rings(n int, ahead time.Duration) (list []*fanned) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range n {
		list = append(list, &fanned{cable: c, frame: tagged(), ahead: ahead})
	}
	c.taps = append(c.taps, list)
	return list
}

// counter opens a source that counts.
func (c *cable) counter() *counting {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := &counting{cable: c}
	c.counters = append(c.counters, k)
	return k
}

// fanned is one of the rings of a tap.
type fanned struct {
	cable *cable
	frame []byte
	ahead time.Duration
	hang  atomic.Bool // in ReadBatch

	queue []int64 // times of frames that wait, guarded by the cable
	known int64
	quiet int64
}

func (f *fanned) ReadBatch(b *capture.Batch) error {
	for time.Sleep(100 * time.Microsecond); f.hang.Load(); {
		time.Sleep(time.Millisecond)
	}
	f.cable.mu.Lock()
	defer f.cable.mu.Unlock()
	for b.N = 0; len(f.queue) > 0 && b.N < 64; b.N++ {
		b.Frames[b.N] = capture.Frame{Data: f.frame, TimeNS: f.queue[0], WireLen: uint32(len(f.frame))}
		f.queue, f.known = f.queue[1:], int64(f.ahead)
	}
	if b.N == 0 {
		f.quiet = time.Now().UnixNano()
	}
	return nil
}

func (f *fanned) LowWatermark() int64 { return f.quiet }
func (f *fanned) Ahead() int64        { return f.known }
func (f *fanned) Close() error        { return nil }

func ringsOf(list []*fanned) (rings []local.Ring) {
	for i, f := range list {
		rings = append(rings, tapOf("a", i, f))
	}
	return rings
}

// counting counts the packets of a cable.
type counting struct {
	cable *cable
	n     uint64
	quiet int64
	hang  atomic.Bool // in ReadBatch
}

func (k *counting) take() (c local.Counts) {
	k.cable.mu.Lock()
	defer k.cable.mu.Unlock()
	n, now := k.n, time.Now().UnixNano()
	k.n, k.quiet = 0, now
	if n > 0 {
		o := decode.Observation{TimeNS: now, Kind: decode.Tag, Tag: csig.Tag{Layout: csig.Layout{Format: csig.Compact, Profile: csig.IETF01}, S: 5, LM: 5}}
		c.Frames = window.CountedFrames{Packets: n, WireBytes: 60 * n, First: now, Last: now}
		c.List = []window.Counted{{Observation: o, N: n, Bytes: 60 * n}}
	}
	return c
}

func (k *counting) LowWatermark() int64                                      { return k.quiet }
func (k *counting) Ahead() int64                                             { return 0 }
func (k *counting) Close() error                                             { return nil }
func (k *counting) Count(*window.Settings, window.Tap) (local.Counts, error) { return k.take(), nil }

func (k *counting) ReadCounts() (local.Counts, error) { return k.take(), nil }

func (k *counting) ReadBatch(b *capture.Batch) error {
	b.N = 0
	for time.Sleep(time.Millisecond); k.hang.Load(); {
		time.Sleep(time.Millisecond)
	}
	return nil
}

// succeeding is a counting source that can replace another one, which takes time before and after the exchange.
type succeeding struct {
	*counting
	succeeded atomic.Bool
}

func (k *succeeding) Succeed(old local.Counter) (local.Counts, bool, error) {
	before, ok := old.(*succeeding)
	if !ok {
		return local.Counts{}, false, nil
	}
	time.Sleep(20 * time.Millisecond)
	k.take()
	last := before.take()
	time.Sleep(20 * time.Millisecond)
	k.succeeded.Store(true)
	return last, true, nil
}

// TestReplacedTap: if a tap is opened again, each packet counts once, whatever the numbers of rings before and after, their
// clock and the time that a commit takes, and whether the kernel counts.
func TestReplacedTap(t *testing.T) {
	rings := func(n int, ahead time.Duration) func(*cable) []local.Ring {
		return func(c *cable) []local.Ring { return ringsOf(c.rings(n, ahead)) }
	}
	counter := func(c *cable) []local.Ring { return []local.Ring{tapOf("a", 0, c.counter())} }
	successor := func(c *cable) []local.Ring { return []local.Ring{tapOf("a", 0, &succeeding{counting: c.counter()})} }
	renamed := func(open func(*cable) []local.Ring) func(*cable) []local.Ring {
		return func(c *cable) []local.Ring {
			list := open(c)
			for i := range list {
				list[i].Name, list[i].Before = "b", "a"
			}
			return list
		}
	}
	for name, test := range map[string]struct {
		before, after func(*cable) []local.Ring
		flows         int
	}{
		"one ring":             {rings(1, 0), rings(1, 0), 7},
		"more rings":           {rings(1, 0), rings(2, 0), 7},
		"fewer rings":          {rings(3, 0), rings(2, 0), 7},
		"an idle ring":         {rings(2, 0), rings(1, 0), 1},
		"an idle ring, again":  {rings(2, 0), rings(3, 0), 1},
		"a card behind":        {rings(2, -24*time.Hour), rings(3, -24*time.Hour), 7},
		"a card, and idle":     {rings(2, -24*time.Hour), rings(1, -24*time.Hour), 1},
		"a card ahead":         {rings(3, time.Second), rings(1, time.Second), 7},
		"counters":             {counter, counter, 1},
		"counters that follow": {successor, successor, 1},
		"another name":         {rings(2, 0), renamed(rings(2, 0)), 7},
		"and more rings":       {rings(2, 0), renamed(rings(3, 0)), 7},
		"a counter's name":     {successor, renamed(successor), 1},
		"rings to a counter":   {rings(2, 0), successor, 7},
		"a counter to rings":   {successor, rings(2, 0), 7},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, j := new(cable), newJournal(t)
				j.onCommit = func() error { time.Sleep(200 * time.Millisecond); return nil }
				p, stop := runPipeline(t, config(j), tapsPlan(t, test.before(c)...))
				end := c.run(test.flows)
				time.Sleep(700 * time.Millisecond)
				next := test.after(c)
				time.Sleep(100 * time.Millisecond)
				if err := p.Reload(t.Context(), tapsPlan(t, next...), nil); err != nil {
					t.Fatal(err)
				}
				time.Sleep(700 * time.Millisecond)
				end()
				stop()
				conserved(t, p.Stats())
				if s := p.Stats(); s.Counts().In != c.sent || j.total(time.Second) != c.sent || s.Stalled > 0 {
					t.Errorf("%d packets were sent, %d counted, %d stored; %d stalls", c.sent, s.Counts().In, j.total(time.Second), s.Stalled)
				}
				if s, is := next[0].Source.(*succeeding); is && name == "counters that follow" && !s.succeeded.Load() {
					t.Error("the counter did not replace the other one")
				}
			})
		})
	}
}

// TestReloadLeavesMarks: when a reload is done, its rings have marks, for the gaps after a kill and for the names of runs that
// end with the next reload.
func TestReloadLeavesMarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, j := new(cable), newJournal(t)
		p, end := runPipeline(t, config(j), tapsPlan(t, ringsOf(c.rings(1, 0))...))
		time.Sleep(10 * time.Millisecond)
		if err := p.Reload(t.Context(), tapsPlan(t, tapOf("b", 0, c.rings(1, 0)[0])), nil); err != nil {
			t.Fatal(err)
		}
		if m := j.marks(); len(m) != 1 || m[0].Name != "b" {
			t.Errorf("marks after the reload: %+v", m)
		}
		end()
	})
}

// TestReplacedLate: a ring that hangs while it is replaced, by one reload or by two, hands over its frames later. Each packet
// counts once, and the counters of the tap never fall.
func TestReplacedLate(t *testing.T) {
	for _, rings := range []struct {
		before, after int
		removed       bool // for a time
	}{{1, 1, false}, {2, 2, false}, {2, 1, false}, {1, 2, false}, {1, 1, true}, {1, 2, true}} {
		t.Run(fmt.Sprintf("%d to %d, removed %t", rings.before, rings.after, rings.removed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, j := new(cable), newJournal(t)
				old := c.rings(rings.before, 0)
				cfg := config(j)
				cfg.BarrierTimeout = 40 * time.Millisecond
				p, stop := runPipeline(t, cfg, tapsPlan(t, ringsOf(old)...))
				end := c.run(7)
				time.Sleep(500 * time.Millisecond)
				old[0].hang.Store(true)
				time.Sleep(100 * time.Millisecond)
				if rings.removed {
					if err := p.Reload(t.Context(), tapsPlan(t), nil); err != nil {
						t.Fatal(err)
					}
					time.Sleep(100 * time.Millisecond)
				}
				if err := p.Reload(t.Context(), tapsPlan(t, ringsOf(c.rings(rings.after, 0))...), nil); err != nil {
					t.Fatal(err)
				}
				latest, packets := p.Stats().Counts().In, map[int]uint64{}
				for i := range 100 {
					time.Sleep(5 * time.Millisecond)
					if i == 50 {
						old[0].hang.Store(false)
					}
					s := p.Stats()
					if s.Counts().In < latest {
						t.Fatalf("%d observations were counted, now %d", latest, s.Counts().In)
					}
					latest = s.Counts().In
					for _, r := range s.Rings {
						if r.Packets < packets[r.Ring] {
							t.Fatalf("ring %d: %d packets were counted, now %d", r.Ring, packets[r.Ring], r.Packets)
						}
						packets[r.Ring] = r.Packets
					}
				}
				end()
				stop()
				conserved(t, p.Stats())
				if s := p.Stats(); s.Counts().In != c.sent || j.total(time.Second) != c.sent || s.Stalled == 0 {
					t.Errorf("%d packets were sent, %d counted, %d stored; %d stalls", c.sent, s.Counts().In, j.total(time.Second), s.Stalled)
				}
			})
		})
	}
}

// TestReplacedCounterLate: if a source that counts hangs while it is replaced, no packet counts twice. Those that it has not
// handed over are lost, which the log says.
func TestReplacedCounterLate(t *testing.T) { synctest.Test(t, replacedCounterLate) }

func replacedCounterLate(t *testing.T) {
	var log bytes.Buffer
	c, j := new(cable), newJournal(t)
	old := &succeeding{counting: c.counter()}
	cfg := config(j)
	cfg.BarrierTimeout, cfg.Logger = 40*time.Millisecond, slog.New(slog.NewTextHandler(&log, nil))
	p, stop := runPipeline(t, cfg, tapsPlan(t, tapOf("a", 0, old)))
	end := c.run(1)
	time.Sleep(500 * time.Millisecond)
	old.hang.Store(true)
	time.Sleep(100 * time.Millisecond)
	if err := p.Reload(t.Context(), tapsPlan(t, tapOf("a", 0, &succeeding{counting: c.counter()})), nil); err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	lost := old.n
	c.mu.Unlock()
	time.Sleep(200 * time.Millisecond)
	old.hang.Store(false)
	time.Sleep(200 * time.Millisecond)
	end()
	stop()
	conserved(t, p.Stats())
	if n := p.Stats().Counts().In; n+lost != c.sent || lost < 100 || !strings.Contains(log.String(), "are lost") {
		t.Errorf("%d packets were sent, %d counted, %d lost:\n%s", c.sent, n, lost, log.String())
	}
}
