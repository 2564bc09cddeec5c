package bpf

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/ingest/local"
)

// Source counts the packets of an interface in the kernel and, with Config.Odd, delivers odd packets as frames of a
// ring. Its program is attached from Open to Close, as long as the interface has its name. A killed process leaves nothing
// behind, since the kernel then closes the link and so detaches the program. After Open, Counters and State may be called
// from any goroutine; all other methods belong to one goroutine.
type Source struct {
	cfg     Config
	ring    *capture.Ring
	counter *counter
	link    link.Link // nil: the program is not attached

	settings window.Settings // of counter, and its tap
	at       window.Tap
	next     time.Time     // time of the next reading
	lateness time.Duration // of the finest windows
	looked   time.Time     // time of the last check of the interface
	ringAt   int64         // Unix ns: the ring has delivered all earlier frames

	mu      sync.Mutex
	tap     *capture.Tap
	counts  counters // since New
	reopens atomic.Uint64
}

// New returns an inert source, which Open starts. It fails if capture.NewTap refuses the configuration.
func New(cfg Config) (*Source, error) {
	cfg.setDefaults()
	tap, err := capture.NewTap(cfg.tap())
	if err != nil {
		return nil, err
	}
	return &Source{cfg: cfg, tap: tap}, nil
}

// Try checks whether the kernel can count packets under the settings for a tap: it loads the program and, with attach,
// attaches it for a moment. The error wraps ErrUnsupported if the program cannot serve the settings. With attach, a missing
// interface is an error, as for a ring.
func (s *Source) Try(settings *window.Settings, at window.Tap, attach bool) error {
	if err := Check(settings, at); err != nil {
		return err
	}
	c, err := newCounter(settings, at, 1, s.cfg.snap(), nil)
	if err != nil {
		return fmt.Errorf("count on %q: %w", s.cfg.Interface, err)
	}
	if attach {
		var l link.Link
		if l, err = s.attachTo(c.program); err == nil {
			err = l.Close()
		}
	}
	return errors.Join(err, c.close())
}

// Open starts counting, under the settings and for a tap; Count can change both later. After an error no
// program is attached.
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

// attachTo attaches a program before all others on the interface: another program there can end the chain, and this one
// always passes packets on.
func (s *Source) attachTo(p *ebpf.Program) (link.Link, error) {
	at, err := net.InterfaceByName(s.cfg.Interface)
	if err != nil {
		return nil, fmt.Errorf("count on %q: %w", s.cfg.Interface, err)
	}
	l, err := link.AttachTCX(link.TCXOptions{Interface: at.Index, Program: p, Attach: ebpf.AttachTCXIngress, Anchor: link.Head()})
	if err != nil {
		return nil, fmt.Errorf("count on %q: %w", s.cfg.Interface, explain(err))
	}
	return l, nil
}

// index returns the number of the interface that the program is attached to; 0 if there is none, such as after the interface
// was removed.
func (s *Source) index() int {
	if s.link == nil {
		return 0
	}
	info, err := s.link.Info()
	if err != nil {
		return 0
	}
	return int(info.TCX().Ifindex)
}

// Count changes the settings and the tap, and returns the last counts under the previous ones, which are valid until
// the next call of Count or ReadCounts. Each packet counts once, under the old settings or the new ones. Only a packet that
// one of them calls odd and the other does not may count twice or not at all, if it arrives after the program is exchanged
// and before the filter is.
func (s *Source) Count(settings *window.Settings, at window.Tap) (last local.Counts, err error) {
	if err := Check(settings, at); err != nil {
		return last, err
	}
	old := s.counter
	if old != nil && s.at == at && s.settings.Equal(settings) {
		return s.drain(old, false)
	}
	next, err := newCounter(settings, at, s.cfg.Keys, s.cfg.snap(), old)
	if err != nil {
		return last, fmt.Errorf("count on %q: %w", s.cfg.Interface, err)
	}
	if err := s.exchange(next); err != nil {
		return last, errors.Join(err, next.close())
	}
	s.settings, s.at = *settings, at
	s.counter, s.lateness = next, settings.LatenessOf(settings.Finest())
	s.next = s.after(time.Now())
	if s.cfg.Odd {
		err = s.tap.Extend(next.odd.FD())
	}
	if old == nil {
		return last, err
	}
	last, drained := s.drain(old, true)
	return last, errors.Join(err, drained, old.close())
}

// Succeed implements local.Successor for another Source of the same interface: its program is exchanged for that of s, so
// each packet runs through exactly one of them. If the interface disappears meanwhile, the program is attached when it is
// back.
func (s *Source) Succeed(before local.Counter) (last local.Counts, ok bool, err error) {
	old, ok := before.(*Source)
	if !ok || s.index() == 0 || s.index() != old.index() {
		return last, false, nil
	}
	s.detach()
	if _, err := s.drain(s.counter, true); err != nil {
		return last, true, err
	}
	s.mu.Lock()
	s.counts = counters{} // the old program counted these packets too
	s.mu.Unlock()
	if err := old.link.Update(s.counter.program); err == nil {
		s.link, old.link = old.link, nil
	} else if old.index() != 0 {
		return last, true, fmt.Errorf("count on %q: exchange program: %w", s.cfg.Interface, err)
	}
	old.detach()
	last, err = old.drain(old.counter, true)
	return last, true, err
}

// exchange attaches the program of a counter in place of the previous one; each packet runs through exactly one of them. If
// the name now belongs to another interface, the program is attached to that one. If it belongs to none, that is no error:
// look attaches the program when the name is back.
func (s *Source) exchange(c *counter) error {
	if s.strayed() {
		s.detach()
	}
	if s.link != nil {
		err := s.link.Update(c.program)
		if err == nil {
			return nil
		}
		if s.index() != 0 {
			return fmt.Errorf("count on %q: exchange program: %w", s.cfg.Interface, err)
		}
		s.detach()
	}
	s.looked = time.Now()
	l, err := s.attachTo(c.program)
	switch {
	case err == nil:
		s.link = l
		if s.counter != nil {
			s.reopens.Add(1)
		}
	case s.counter != nil:
		if _, gone := net.InterfaceByName(s.cfg.Interface); gone != nil {
			return nil
		}
	}
	return err
}

// strayed reports whether the program is not attached to the interface with the tap's name: an interface that was renamed or
// moved to another network namespace keeps its programs. A failed query is no proof.
func (s *Source) strayed() bool {
	at, err := net.InterfaceByName(s.cfg.Interface)
	if failed := new(os.SyscallError); errors.As(err, &failed) {
		return false
	}
	return err != nil || at.Index != s.index()
}

// detach closes the link, if there is one. It ignores errors: the interface may be gone. The next reading
// returns the counts until then.
func (s *Source) detach() {
	if s.link != nil {
		_ = s.link.Close()
		s.link = nil
	}
}

// ReadBatch fills b with odd packets, or sets b.N to 0 if none came within the ring's timeout. The frames are valid until the
// next call.
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

// ReadCounts returns the counts since the last reading if a window has ended, or its lateness is over and it closes.
// Otherwise it returns no counts. The counts are valid until the next call of ReadCounts or Count.
func (s *Source) ReadCounts() (counts local.Counts, err error) {
	now := time.Now()
	if now.Sub(s.looked) >= lookEvery {
		s.look(now)
	}
	if now.Before(s.next) {
		return counts, nil
	}
	counts, err = s.drain(s.counter, false)
	s.next = s.after(now)
	return counts, err
}

// after returns the time of the next reading: when one of the finest windows ends, or closes because its lateness is over.
// Reading more often would cost more, because fewer packets would share an entry. Like now, the result has a monotonic clock
// reading, so that a reading is due in time after the system clock was set.
func (s *Source) after(now time.Time) time.Time {
	every := readEvery(time.Duration(s.counter.resolution))
	next := now.Truncate(every).Add(every)
	if closes := now.Add(-s.lateness).Truncate(every).Add(every + s.lateness); closes.Before(next) {
		next = closes
	}
	return now.Add(next.Add(margin).Sub(now))
}

const (
	minEvery  = 10 * time.Millisecond
	maxEvery  = time.Second
	margin    = 2 * time.Millisecond // from the end of a window until its last packets are counted
	lookEvery = time.Second          // between checks of the interface
)

// readEvery returns the time between readings if the finest windows have this length.
func readEvery(finest time.Duration) time.Duration { return min(max(finest, minEvery), maxEvery) }

// look detaches the program if its interface lost the name, and attaches it again once an interface has that name.
func (s *Source) look(now time.Time) {
	s.looked = now
	if !s.strayed() {
		return
	}
	if err := s.exchange(s.counter); err != nil {
		s.cfg.Logger.Warn("cannot count on the interface again, trying again", slog.String("interface", s.cfg.Interface), slog.String("error", err.Error()))
	}
}

// drain returns the counts of a counter since its last reading. ended says that its program is no longer attached.
func (s *Source) drain(c *counter, ended bool) (counts local.Counts, err error) {
	before := c.swapped
	b, frames, err := c.swap(ended)
	if err != nil {
		return counts, err
	}
	if counts.List, err = c.drain(b); err != nil {
		return counts, err
	}
	if counts.Samples, err = c.drainSamples(b); err != nil {
		return counts, err
	}
	counts.Frames = window.CountedFrames{
		Packets: frames.delivered(), WireBytes: frames.Bytes, First: before, Last: c.swapped, Empty: frames.Empty, Invalid: frames.Invalid,
	}
	s.mu.Lock()
	s.counts.add(&frames, 1)
	s.mu.Unlock()
	return counts, nil
}

// LowWatermark returns a time (Unix ns, system clock). All packets received before it have been counted, and odd ones
// delivered.
func (s *Source) LowWatermark() int64 {
	if !s.cfg.Odd {
		return s.counter.swapped
	}
	return min(s.counter.swapped, s.ringAt)
}

// Ahead returns 0: the Source takes all times from the system clock.
func (s *Source) Ahead() int64 { return 0 }

// Close detaches the program and stops counting. Counts since the last ReadCounts are lost.
func (s *Source) Close() error {
	var failed []error
	if s.link != nil {
		failed = append(failed, s.link.Close())
		s.link = nil
	}
	if s.counter != nil {
		failed = append(failed, s.counter.close())
		s.counter = nil
	}
	return errors.Join(append(failed, s.tap.Close())...)
}

// State returns the state of the interface's link.
func (s *Source) State() capture.LinkState { return s.ring.State() }

// Counters returns the sums of the packets counted in the kernel and those of the ring, since New.
func (s *Source) Counters() capture.TapCounters {
	c := s.ring.Counters()
	s.mu.Lock()
	n := s.counts
	s.mu.Unlock()
	n.addTo(&c)
	c.Reopens = max(c.Reopens, s.reopens.Load())
	return c
}

// delivered returns the number of packets whose observations had room. The program counts each packet before it looks
// for room, so Packets includes those behind Lost. A dropped packet counts once, even if several of its observations are
// lost.
func (c *counters) delivered() uint64 { return c.Packets - min(c.Lost, c.Packets) }

// addTo adds the program's counts to those of a ring. The bytes of dropped packets count.
func (c *counters) addTo(t *capture.TapCounters) {
	t.Received += c.Packets
	t.Dropped += c.Packets - c.delivered()
	t.Frames += c.delivered()
	t.Bytes += c.Bytes
	t.SuperFrames += c.Supers
	for _, odd := range c.Odd {
		t.Odd += odd
	}
	t.Unsampled += c.Unsampled
}
