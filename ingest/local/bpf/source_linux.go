package bpf

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/ingest/local"
)

// Source counts the packets of an interface in the kernel, and delivers odd ones as frames of a ring where that is
// wanted. Its program is attached from Open to Close: a process that is killed leaves nothing behind, since the kernel
// detaches a program when its last descriptor is closed. All but Counters, Odd and State belong to one goroutine.
type Source struct {
	cfg     Config
	ring    *capture.Ring
	counter *counter
	link    link.Link
	index   int // of the interface that the program is attached to

	next     time.Time     // when counts are to be read
	lateness time.Duration // of short windows
	looked   time.Time     // when the interface was looked at
	attached bool
	ringAt   int64 // the ring has delivered all frames before it

	mu      sync.Mutex
	tap     *capture.Tap
	counts  counters // so far
	reopens atomic.Uint64
}

// New makes a source. Nothing is opened before Open.
func New(cfg Config) (*Source, error) {
	cfg.setDefaults()
	tap, err := capture.NewTap(cfg.tap())
	if err != nil {
		return nil, err
	}
	return &Source{cfg: cfg, tap: tap}, nil
}

// Try finds out whether packets can be counted under settings and at a place: it has the kernel take the program and attaches
// it for a moment. The error wraps ErrUnsupported where the settings need what the program does not read. An interface that is
// missing is an error too, as for a ring.
func (s *Source) Try(settings *window.Settings, at window.Tap) error {
	if err := Check(settings, at); err != nil {
		return err
	}
	c, err := newCounter(settings, at, 1, s.cfg.snap(), nil)
	if err != nil {
		return fmt.Errorf("count on %q: %w", s.cfg.Interface, err)
	}
	l, _, err := s.attachTo(c.program)
	if err == nil {
		err = l.Close()
	}
	return errors.Join(err, c.close())
}

// Open begins to count, under settings and at a place, until Count says others.
func (s *Source) Open(settings *window.Settings, at window.Tap) error {
	if err := s.tap.Open(); err != nil {
		return err
	}
	s.ring = s.tap.Rings()[0]
	if _, err := s.Count(settings, at); err != nil {
		return errors.Join(err, s.Close())
	}
	return nil
}

func (s *Source) attachTo(p *ebpf.Program) (link.Link, int, error) {
	at, err := net.InterfaceByName(s.cfg.Interface)
	if err != nil {
		return nil, 0, fmt.Errorf("count on %q: %w", s.cfg.Interface, err)
	}
	l, err := link.AttachTCX(link.TCXOptions{Interface: at.Index, Program: p, Attach: ebpf.AttachTCXIngress})
	if err != nil {
		return nil, 0, fmt.Errorf("count on %q: %w", s.cfg.Interface, err)
	}
	return l, at.Index, nil
}

// Count counts from now on under settings and at a place. What it returns was counted under those before, and is valid until
// the next call: each packet is counted under one of them.
func (s *Source) Count(settings *window.Settings, at window.Tap) (last local.Counts, err error) {
	if err := Check(settings, at); err != nil {
		return last, err
	}
	old := s.counter
	next, err := newCounter(settings, at, s.cfg.Keys, s.cfg.snap(), old)
	if err != nil {
		return last, fmt.Errorf("count on %q: %w", s.cfg.Interface, err)
	}
	if err := s.exchange(next); err != nil {
		return last, errors.Join(err, next.close())
	}
	if s.cfg.Odd {
		if err := s.tap.Extend(next.odd.FD()); err != nil {
			return last, err
		}
	}
	s.counter, s.lateness = next, settings.LatenessOf(settings.Finest())
	s.next = s.after(time.Now())
	if old == nil {
		return last, nil
	}
	last, err = s.drain(old)
	return last, errors.Join(err, old.close())
}

// exchange attaches the program of a counter in place of the one before: a packet runs through one of them. Where the
// interface has gone since Open, look attaches it.
func (s *Source) exchange(c *counter) (err error) {
	if s.attached {
		if err = s.link.Update(c.program); err == nil {
			return nil
		}
		err = fmt.Errorf("count on %q: exchange program: %w", s.cfg.Interface, err)
	} else {
		s.link, s.index, err = s.attachTo(c.program)
		s.attached = err == nil
		s.looked = time.Now()
	}
	if err == nil || s.counter == nil {
		return err
	}
	if _, gone := net.InterfaceByName(s.cfg.Interface); gone == nil {
		return err
	}
	s.detach()
	return nil
}

// detach lets go of a link to an interface that is gone, of which an error says nothing.
func (s *Source) detach() {
	if s.attached {
		_ = s.link.Close()
		s.attached = false
	}
}

// ReadBatch fills b with odd packets, or waits, at most until counts are to be read.
func (s *Source) ReadBatch(b *capture.Batch) error {
	b.N = 0
	if err := s.ring.ReadBatch(b); err != nil {
		return err
	}
	if b.N > 0 {
		s.ringAt = b.Frames[b.N-1].TimeNS
	} else {
		s.ringAt = s.ring.LowWatermark()
	}
	return nil
}

// ReadCounts returns what was counted since the last time, when a window has ended or is to close. It is valid until the next
// call.
func (s *Source) ReadCounts() (counts local.Counts, err error) {
	now := time.Now()
	if now.Sub(s.looked) >= lookEvery {
		s.look(now)
	}
	if now.Before(s.next) {
		return counts, nil
	}
	counts, err = s.drain(s.counter)
	s.next = s.after(now)
	return counts, err
}

// after is when counts are read next: when a short window ends, or closes since no late packet may come for it any more. The
// more seldom counts are read, the fewer entries a packet costs.
func (s *Source) after(now time.Time) time.Time {
	every := min(max(time.Duration(s.counter.resolution), minEvery), maxEvery)
	next := now.Truncate(every).Add(every)
	if closes := now.Add(-s.lateness).Truncate(every).Add(every + s.lateness); closes.Before(next) {
		next = closes
	}
	return next.Add(margin)
}

const (
	minEvery  = 10 * time.Millisecond
	maxEvery  = time.Second
	margin    = 2 * time.Millisecond // within which packets of a window are counted after it has ended
	lookEvery = time.Second          // at the interface
)

// look attaches the program anew where the interface was made anew.
func (s *Source) look(now time.Time) {
	s.looked = now
	at, err := net.InterfaceByName(s.cfg.Interface)
	if err != nil || s.attached && at.Index == s.index {
		return
	}
	s.detach()
	if err := s.exchange(s.counter); err != nil {
		s.cfg.Logger.Warn("counting did not begin again, it is tried again", slog.String("interface", s.cfg.Interface), slog.String("error", err.Error()))
		return
	}
	if s.attached {
		s.reopens.Add(1)
	}
}

// drain returns what a counter has counted.
func (s *Source) drain(c *counter) (counts local.Counts, err error) {
	before := c.swapped
	b, err := c.swap()
	if err != nil {
		return counts, err
	}
	frames, err := c.frames()
	if err != nil {
		return counts, err
	}
	if counts.List, err = c.drain(b); err != nil {
		return counts, err
	}
	counts.Frames = window.CountedFrames{
		Packets: frames.Packets, WireBytes: frames.Bytes, First: before, Last: c.swapped, Empty: frames.Empty, Invalid: frames.Invalid,
	}
	s.mu.Lock()
	s.counts.add(&frames, 1)
	s.mu.Unlock()
	return counts, nil
}

// LowWatermark is a time (Unix ns, system clock) before which no packet was received that is yet to be delivered.
func (s *Source) LowWatermark() int64 {
	if !s.cfg.Odd {
		return s.counter.swapped
	}
	return min(s.counter.swapped, s.ringAt)
}

// Ahead is 0: times are the system's.
func (s *Source) Ahead() int64 { return 0 }

// Close ends counting. What was counted since the last ReadCounts is lost.
func (s *Source) Close() error {
	var failed []error
	if s.attached {
		failed = append(failed, s.link.Close())
		s.attached = false
	}
	if s.counter != nil {
		failed = append(failed, s.counter.close())
		s.counter = nil
	}
	return errors.Join(append(failed, s.tap.Close())...)
}

// State is that of the interface's link.
func (s *Source) State() capture.LinkState { return s.ring.State() }

// Counters are what was counted and what the ring took in.
func (s *Source) Counters() capture.TapCounters {
	c := s.ring.Counters()
	s.mu.Lock()
	n := s.counts
	s.mu.Unlock()
	c.Frames += n.Packets
	c.Bytes += n.Bytes
	c.Received += n.Packets + n.Lost
	c.Dropped += n.Lost
	for _, odd := range n.Odd {
		c.Odd += odd
	}
	c.Reopens = max(c.Reopens, s.reopens.Load())
	return c
}
