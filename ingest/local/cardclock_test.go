package local_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
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

// card is a ring whose frames have the time of a network card: one every half minute, and
// silence between them.
type card struct {
	frame []byte
	later []byte               // the frames after the first; nil: the same
	ahead func() time.Duration // of the card's clock

	known int64
	quiet int64
	polls int
}

func (s *card) ReadBatch(b *capture.Batch) error {
	began := time.Now()
	time.Sleep(100 * time.Millisecond)
	b.N = 0
	if s.polls++; s.polls%300 != 1 {
		s.quiet = began.UnixNano()
		return nil
	}
	now := time.Now()
	s.known = int64(s.ahead())
	if s.polls > 1 && s.later != nil {
		s.frame = s.later
	}
	b.Frames[0] = capture.Frame{Data: s.frame, TimeNS: now.UnixNano() + s.known, WireLen: uint32(len(s.frame))}
	b.N = 1
	return nil
}

func (s *card) LowWatermark() int64 { return s.quiet }
func (s *card) Ahead() int64        { return s.known }
func (s *card) Close() error        { return nil }

// TestCardClocks: a card's clock decides when its windows close, whatever the system clock
// shows. Setting it back by less than the horizon of 5 minutes loses nothing, even over a
// reload.
func TestCardClocks(t *testing.T) {
	for name, ahead := range map[string]func(run time.Duration) time.Duration{
		"right":       func(time.Duration) time.Duration { return 0 },
		"since start": func(time.Duration) time.Duration { return -24 * time.Hour },
		"behind":      func(time.Duration) time.Duration { return -10 * time.Minute },
		"set back": func(run time.Duration) time.Duration {
			if run > 10*time.Minute+3*time.Second { // the first frame after the reload
				return -4 * time.Minute
			}
			return time.Second
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				j, began := newJournal(t), time.Now()
				source := func() *card {
					return &card{frame: tagged(), ahead: func() time.Duration { return ahead(time.Since(began)) }}
				}
				cfg := local.Config{Instance: "test", Interval: time.Second, Journal: j, Logger: slog.New(slog.NewTextHandler(&log, nil))}
				p, end := runPipeline(t, cfg, tapsPlan(t, tapOf("a", 0, source())))
				time.Sleep(10*time.Minute + 5*time.Second)
				// The idle tap's last window has closed, lateness included.
				if got := j.total(time.Second); got != 21 {
					t.Errorf("%d of 21 observations are in closed windows of 1 s", got)
				}
				if err := p.Reload(t.Context(), tapsPlan(t, tapOf("a", 0, source())), nil); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10*time.Minute + 5*time.Second)
				end()
				c := p.Stats().Counts()
				if got := j.total(time.Second); got != c.In || c.In != 42 || c.Late != 0 || slices.Max(c.Rejected[:]) != 0 {
					t.Errorf("of %d observations %d are stored, %d late, %v rejected", c.In, got, c.Late, c.Rejected)
				}
				if strings.Contains(log.String(), "before it had read all") {
					t.Errorf("the end waited for times that the card never shows:\n%s", log.String())
				}
			})
		})
	}
}

// stepped is a tap of a host whose clock is set back.
type stepped struct {
	*ticking
	back *atomic.Int64
}

func (s *stepped) now() time.Time { return time.Now().Add(-time.Duration(s.back.Load())) }

func (s *stepped) ReadBatch(b *capture.Batch) error {
	err := s.ticking.ReadBatch(b)
	for i := range b.N {
		b.Frames[i].TimeNS = s.now().UnixNano()
	}
	return err
}

func (s *stepped) LowWatermark() int64 { return s.now().UnixNano() }

// TestClockSetBack: windows close by the host's clock after it was set back, also those of a tap that is idle since then.
// Rows of seconds that come twice add up.
func TestClockSetBack(t *testing.T) {
	for _, test := range []struct {
		by   time.Duration
		idle bool
	}{{time.Second, false}, {3 * time.Second, false}, {10 * time.Second, false}, {time.Minute, false}, {10 * time.Minute, false}, {time.Minute, true}} {
		t.Run(fmt.Sprintf("%s, idle %t", test.by, test.idle), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j, a := newJournal(t), &stepped{tick(), new(atomic.Int64)}
				cfg := config(j)
				cfg.Interval, cfg.Now = 100*time.Millisecond, a.now
				p, end := runPipeline(t, cfg, tapsPlan(t, tapOf("a", 0, a)))
				time.Sleep(8 * time.Second)
				a.silent.Store(test.idle)
				a.back.Store(int64(test.by))
				time.Sleep(5 * time.Second)
				given := a.n.Load() // lateness is 2 s, and the tap gives frames for some time more
				time.Sleep(4 * time.Second)
				if got := j.total(time.Second); got < uint64(given) {
					t.Errorf("%d observations are in closed windows of 1 s, %d frames came up to 4s ago", got, given)
				}
				end()
				conserved(t, p.Stats())
				if c := p.Stats().Counts(); c.In != uint64(a.n.Load()) || c.Stored != c.In || j.total(time.Second) != c.In || j.total(time.Minute) != c.In {
					t.Errorf("%d frames came, %d are stored in seconds and %d in minutes: %d late, %v rejected", a.n.Load(), j.total(time.Second), j.total(time.Minute), c.Late, c.Rejected)
				}
			})
		})
	}
}

// queued is a stepped tap whose frames wait in the ring, each with the time at which it came.
type queued struct {
	*stepped
	waiting []int64
}

func (s *queued) ReadBatch(b *capture.Batch) error {
	err := s.stepped.ReadBatch(b)
	for i := range b.N {
		s.waiting = append(s.waiting, b.Frames[i].TimeNS)
	}
	b.N = min(b.N, max(len(s.waiting)-10, 0))
	for i := range b.N {
		b.Frames[i].TimeNS = s.waiting[i]
	}
	s.waiting = s.waiting[b.N:]
	return err
}

func (s *queued) LowWatermark() int64 { return s.now().Add(-time.Second).UnixNano() }

// TestQueuedAtSetBack: frames that wait in the ring while the clock is set back count with the time at which they came.
func TestQueuedAtSetBack(t *testing.T) {
	for _, burst := range []int{1, 4, 20} {
		t.Run(fmt.Sprintf("%d frames per read", burst), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j, a := newJournal(t), &queued{stepped: &stepped{tick(), new(atomic.Int64)}}
				a.burst = burst
				cfg := config(j)
				cfg.Interval, cfg.Now = 100*time.Millisecond, a.now
				p, end := runPipeline(t, cfg, tapsPlan(t, tapOf("a", 0, a)))
				time.Sleep(3 * time.Second)
				a.back.Store(int64(time.Minute))
				time.Sleep(3 * time.Second)
				end()
				conserved(t, p.Stats())
				if c := p.Stats().Counts(); c.In != uint64(a.n.Load())-10 || c.Stored != c.In || j.total(time.Second) != c.In {
					t.Errorf("%d frames came, 10 of them wait: %d are stored, %d in seconds: %d late, %v rejected", a.n.Load(), c.Stored, j.total(time.Second), c.Late, c.Rejected)
				}
			})
		})
	}
}

// stepping is a source that counts packets by a clock that is set back, and is read once a second.
type stepping struct {
	back  atomic.Int64
	n     uint64
	list  []window.Counted
	read  time.Time
	quiet int64
}

func (s *stepping) now() time.Time { return time.Now().Add(-time.Duration(s.back.Load())) }

func (s *stepping) ReadBatch(b *capture.Batch) error {
	time.Sleep(time.Millisecond)
	o := decode.Observation{
		TimeNS: s.now().Truncate(time.Second).UnixNano(), Kind: decode.Tag,
		Tag: csig.Tag{Layout: csig.Layout{Format: csig.Compact, Profile: csig.IETF01}, S: 5, LM: 5},
	}
	s.list = append(s.list, window.Counted{Observation: o, N: 1, Bytes: 60})
	b.N = 0
	s.n++
	return nil
}

func (s *stepping) ReadCounts() (c local.Counts, err error) {
	if time.Since(s.read) < time.Second {
		return c, nil
	}
	return s.Count(nil, window.Tap{})
}

func (s *stepping) Count(*window.Settings, window.Tap) (c local.Counts, err error) {
	c.List, s.list = s.list, nil
	s.read, s.quiet = time.Now(), s.now().UnixNano()
	return c, nil
}

func (s *stepping) LowWatermark() int64 { return s.quiet }
func (s *stepping) Ahead() int64        { return 0 }
func (s *stepping) Close() error        { return nil }

// TestCountsAfterClockSetBack: no packet is late in the reading of counts during which the clock was set back.
func TestCountsAfterClockSetBack(t *testing.T) {
	for _, by := range []time.Duration{time.Second, 3 * time.Second, time.Minute, 10 * time.Minute} {
		t.Run(by.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				j, a := newJournal(t), new(stepping)
				cfg := config(j)
				cfg.Now, cfg.Logger = a.now, slog.New(slog.NewTextHandler(&log, nil))
				p, end := runPipeline(t, cfg, tapsPlan(t, tapOf("a", 0, a)))
				time.Sleep(3500 * time.Millisecond)
				a.back.Store(int64(by))
				time.Sleep(5 * time.Second)
				end()
				conserved(t, p.Stats())
				given := a.n - uint64(len(a.list))
				if c := p.Stats().Counts(); c.In != given || c.Stored != given || j.total(time.Second) != given || j.total(time.Minute) != given {
					t.Errorf("%d packets came, %d are stored in seconds and %d in minutes: %d late, %v rejected", given, j.total(time.Second), j.total(time.Minute), c.Late, c.Rejected)
				}
				if n := strings.Count(log.String(), "was set back"); n > 1 {
					t.Errorf("%d warnings:\n%s", n, log.String())
				}
			})
		})
	}
}

// TestObserved: a tap that sees nothing falls further and further behind, although its windows
// close by the clock, and so does one that never saw anything.
func TestObserved(t *testing.T) {
	for name, packets := range map[string]bool{"once": true, "never": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := &card{frame: tagged(), later: make([]byte, 60), ahead: func() time.Duration { return 0 }} // the sender dies
				if !packets {
					source.frame = make([]byte, 60)
				}
				began := time.Now()
				p, end := runPipeline(t, local.Config{Instance: "test", Journal: newJournal(t)}, tapsPlan(t, tapOf("a", 0, source)))
				time.Sleep(2 * time.Minute)
				rings := p.Stats().Rings
				if len(rings) != 1 || rings[0].Counts.In > 0 != packets {
					t.Fatalf("rings %+v", rings)
				}
				if at := time.Unix(0, rings[0].Observed).Sub(began); at < 0 || at > 5*time.Second {
					t.Errorf("observed until %s after the start, want less than 5s", at)
				}
				end()
			})
		})
	}
}

// TestObservedAfterClockSetBack: an observation before the clock was set back is of that moment, for a tap that is idle since
// then and has replaced another one.
func TestObservedAfterClockSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &stepped{tick(), new(atomic.Int64)}
		cfg := config(newJournal(t))
		cfg.Interval, cfg.Now = 100*time.Millisecond, a.now
		p, end := runPipeline(t, cfg, tapsPlan(t, tapOf("a", 0, a)))
		time.Sleep(3 * time.Second)
		a = &stepped{tick(), a.back}
		if err := p.Reload(t.Context(), tapsPlan(t, tapOf("a", 0, a)), nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3050 * time.Millisecond) // between two rounds
		a.silent.Store(true)
		a.back.Store(int64(time.Minute))
		set := a.now()
		for range 100 {
			time.Sleep(50 * time.Millisecond)
			for _, r := range p.Stats().Rings {
				if at := time.Unix(0, r.Observed); r.Cut.Before(set.Add(30*time.Second)) && (at.Before(set) || at.After(set.Add(time.Second))) {
					t.Errorf("%s after the clock was set back: last observed %s after it", r.Cut.Sub(set), at.Sub(set))
				}
			}
		}
		end()
	})
}
