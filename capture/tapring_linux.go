package capture

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// checkEvery is the interval at which a busy ring checks that its interface still has its name. An
// idle ring checks on every wait.
const checkEvery = time.Second

// Ring delivers a tap's frames to one core. Counters, State and Timestamps are safe for concurrent
// use; all other methods belong to one goroutine.
type Ring struct {
	tap     *Tap
	control int     // socket for queries about interfaces
	sock    *socket // nil while the interface is gone
	cursor  cursor  // in the blocks of sock
	links   [1]Interface
	packets uint64
	checked time.Time // last check of the link
	lost    time.Time // when the interface of sock disappeared or got another name; zero while it has the tap's
	quiet   int64     // see LowWatermark
	opened  bool      // opened at least once
	refused string    // last logged reason why the kernel did not reopen the ring
	closed  bool

	state atomic.Uint32
	stamp atomic.Uint32
	count ringCounters
}

func openRing(t *Tap) (*Ring, error) {
	control, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a socket for questions about interfaces: %w", err)
	}
	r := &Ring{tap: t, control: control}
	r.links[0] = Interface{Name: t.cfg.Interface, Link: LinkEthernet, SnapLen: t.cfg.SnapLen, NanosPerTick: 1}
	if err := r.open(); err != nil && !errors.Is(err, unix.ENETDOWN) {
		return nil, errors.Join(err, unix.Close(control))
	}
	r.checkLink(time.Now())
	return r, nil
}

// open opens the ring for the interface that has the tap's name now.
func (r *Ring) open() error {
	l, err := lookUp(r.control, r.tap.cfg.Interface)
	if err != nil {
		return err
	}
	began := time.Now()
	s, err := openSocket(r.tap, l)
	if err != nil {
		return err
	}
	r.sock = s
	r.cursor = cursor{
		ring: s.memory, blockSize: r.tap.cfg.BlockSize, blocks: r.tap.cfg.Blocks,
		longest: s.longest(), stamps: s.stamp,
		// The measured lead is kept until frames show another one.
		stampClock: stampClock{quiet: began.UnixNano(), measured: r.cursor.measured, ahead: r.cursor.ahead},
	}
	r.stamp.Store(uint32(s.stamp.resolved()))
	if r.opened {
		r.count.reopens.Add(1)
	}
	r.opened = true
	return nil
}

// extend applies the tap's extended filter to the socket. Without a socket, or if its interface has disappeared,
// the next socket gets the filter when it is opened.
func (r *Ring) extend() error {
	if r.sock == nil || !r.lost.IsZero() {
		return nil
	}
	if err := r.sock.admit(r.tap); !errors.Is(err, unix.ENODEV) {
		return err
	}
	return nil
}

// ReadBatch fills b with the next frames and waits for them at most for
// TapConfig.Wait. Without any, b.N is 0 and the error is nil, so that the caller can
// look at its context and advance the clock of an idle tap: see LowWatermark.
//
// The frames' Data lies in the ring itself and is valid until the next call of ReadBatch or Close.
// Frames in use reduce the room in the ring: the kernel drops and counts frames that are not read
// in time.
//
// An interface that is down or gone is no error: see State. Errors mean that the ring is closed, or
// that it may not be reopened for an interface that came back because the process gave up the
// privileges for it.
func (r *Ring) ReadBatch(b *Batch) error {
	b.N = 0
	if r.closed {
		return fmt.Errorf("read tap %q: %w", r.tap.cfg.Interface, os.ErrClosed)
	}
	if r.sock == nil {
		return r.revive()
	}
	r.cursor.release()
	if r.cursor.left == 0 && !r.cursor.acquire() {
		began := time.Now()
		if err := r.wait(); err != nil {
			return err
		}
		if r.sock == nil || !r.cursor.acquire() {
			// Also after a signal: the previous value may be from before the clock was set back.
			r.setQuiet(began.Add(-2 * r.tap.cfg.Retire))
			return nil
		}
	}
	r.fill(b)
	return nil
}

// fill delivers frames of the present block.
func (r *Ring) fill(b *Batch) {
	var t batchTally
	r.cursor.fill(b, r.packets, &t)
	r.packets += uint64(b.N)
	r.count.add(&t)
	if r.cursor.first { // checking the clock once per block is enough
		r.cursor.first = false
		if now := time.Now(); now.Sub(r.checked) >= checkEvery {
			r.checkLink(now)
			r.readStatistics()
		}
	}
}

// wait waits for a block, and checks the link if there is none.
func (r *Ring) wait() error {
	r.sock.poll[0] = unix.PollFd{Fd: int32(r.sock.fd), Events: unix.POLLIN}
	n, err := unix.Poll(r.sock.poll[:], int(r.tap.cfg.Wait.Milliseconds()))
	switch {
	case errors.Is(err, unix.EINTR):
		return nil
	case err != nil:
		return fmt.Errorf("read tap %q: wait for frames: %w", r.tap.cfg.Interface, err)
	case n > 0 && r.sock.poll[0].Revents&unix.POLLIN != 0:
		return nil
	case n > 0:
		// The link went down or disappeared: reading the error clears it.
		_, _ = unix.GetsockoptInt(r.sock.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	}
	r.readStatistics()
	now := time.Now()
	r.checkLink(now)
	// The last block of a ring whose interface disappeared retires like any other.
	if !r.lost.IsZero() && now.Sub(r.lost) > 3*r.tap.cfg.Retire {
		r.drop()
	}
	return nil
}

// checkLink queries the state of the interface, and whether it is still the same one.
func (r *Ring) checkLink(now time.Time) {
	r.checked = now
	l, err := lookUp(r.control, r.tap.cfg.Interface)
	if r.sock != nil {
		r.follow(err == nil && l.index == r.sock.link.index, now)
	}
	switch {
	case err != nil || !r.lost.IsZero():
		r.setState(LinkGone)
	case r.sock == nil || l.flags&(unix.IFF_UP|unix.IFF_RUNNING) != unix.IFF_UP|unix.IFF_RUNNING:
		r.setState(LinkDown)
	default:
		r.setState(LinkUp)
	}
	if r.sock != nil && r.lost.IsZero() {
		r.sock.link = l
		r.cursor.longest = r.sock.longest() // the MTU may have changed
	}
}

// follow has the socket capture only while its interface has the tap's name. An interface that was renamed would go on
// delivering frames, and a busy one would never let the ring run empty. Frames that already wait in the ring are the
// tap's.
func (r *Ring) follow(named bool, now time.Time) {
	var err error
	switch {
	case !named && r.lost.IsZero():
		r.lost = now
		err = r.sock.attach(nothing)
	case named && !r.lost.IsZero():
		if err = r.sock.admit(r.tap); err == nil {
			r.lost = time.Time{}
		}
	}
	if err != nil {
		r.tap.cfg.Logger.Warn("cannot change the filter of the tap's ring", slog.String("interface", r.tap.cfg.Interface), slog.Any("error", err))
	}
}

func (r *Ring) setState(s LinkState) {
	before := LinkState(r.state.Swap(uint32(s)))
	if before == s {
		return
	}
	if s == LinkUp && r.packets+r.count.downs.Load() > 0 {
		r.count.ups.Add(1)
	}
	name := slog.String("interface", r.tap.cfg.Interface)
	switch {
	case before == LinkUp:
		r.count.downs.Add(1)
		r.tap.cfg.Logger.Warn("link lost: the tap captures nothing until it is back", name, slog.String("state", s.String()))
	case s == LinkUp && r.count.downs.Load() > 0:
		r.tap.cfg.Logger.Warn("link is back", name)
	default: // from one lost state to another, or the first state
		r.tap.cfg.Logger.Info("tap's link changed", name, slog.String("state", s.String()))
	}
}

// drop closes the socket of an interface that is gone.
func (r *Ring) drop() {
	r.readStatistics()
	if err := r.sock.close(r.tap); err != nil {
		r.tap.cfg.Logger.Warn("cannot close the tap's ring", slog.String("interface", r.tap.cfg.Interface), slog.Any("error", err))
	}
	r.sock, r.lost, r.cursor = nil, time.Time{}, cursor{stampClock: r.cursor.stampClock}
}

// revive reopens the ring when there is an interface with the name again.
func (r *Ring) revive() error {
	now := time.Now()
	r.setQuiet(now)
	err := r.open()
	r.checkLink(now)
	if err == nil {
		return nil
	}
	time.Sleep(r.tap.cfg.Wait)
	switch {
	case errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES):
		return fmt.Errorf("read tap %q: reopen its ring: %w", r.tap.cfg.Interface, err)
	case errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENETDOWN) || errors.Is(err, unix.ENXIO):
	case r.refused != err.Error(): // for example for lack of memory; logged once
		r.refused = err.Error()
		r.tap.cfg.Logger.Warn("cannot open the tap's ring, trying again", slog.String("interface", r.tap.cfg.Interface), slog.Any("error", err))
	}
	return nil
}

// readStatistics adds the kernel's counts, which are reset to 0 when read.
func (r *Ring) readStatistics() {
	if s, err := unix.GetsockoptTpacketStatsV3(r.sock.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
		r.count.received.Add(uint64(s.Packets))
		r.count.dropped.Add(uint64(s.Drops))
		r.count.freezes.Add(uint64(s.Freeze_q_cnt))
	}
}

func (r *Ring) setQuiet(t time.Time) {
	r.quiet = t.UnixNano()
	r.cursor.quiet = r.quiet
}

// LowWatermark returns a time (Unix ns, system clock) as of the last ReadBatch without frames: all
// frames received before it have been delivered. An idle tap's clock may advance to it plus Ahead.
// It is 0 before the first such call.
func (r *Ring) LowWatermark() int64 { return r.quiet }

// Ahead returns a lower bound of the lead of the frames' clock over the system's, in ns, as
// measured from frames. It is negative if that clock is behind, and 0 for software times.
func (r *Ring) Ahead() int64 { return r.cursor.ahead }

// Interfaces returns the tap's one interface, like a Reader's method.
func (r *Ring) Interfaces() []Interface { return r.links[:] }

// State returns the link state at the last check, which is at most a second ago.
func (r *Ring) State() LinkState { return LinkState(r.state.Load()) }

// Timestamps returns the source of the frames' times: TimestampSoftware or TimestampHardware.
func (r *Ring) Timestamps() TimestampSource { return TimestampSource(r.stamp.Load()) }

// Close frees the ring; delivered frames are no longer valid. Further calls do nothing.
func (r *Ring) Close() error {
	if r.closed {
		return nil
	}
	r.closed = true
	var err error
	if r.sock != nil {
		r.readStatistics()
		err = r.sock.close(r.tap)
		r.sock, r.cursor = nil, cursor{}
	}
	if err = errors.Join(err, unix.Close(r.control)); err != nil {
		return fmt.Errorf("close tap %q: %w", r.tap.cfg.Interface, err)
	}
	return nil
}

// ringCounters are written once per batch by the ring's goroutine and may be read by any goroutine.
type ringCounters struct {
	frames, bytes, received, dropped, freezes  atomic.Uint64
	stripped, supers, hardware, restamped, bad atomic.Uint64
	downs, ups, reopens                        atomic.Uint64
}

func (c *ringCounters) add(t *batchTally) {
	c.frames.Add(t.frames)
	c.bytes.Add(t.bytes)
	for _, n := range [...]struct {
		to *atomic.Uint64
		by uint64
	}{{&c.stripped, t.stripped}, {&c.supers, t.supers}, {&c.hardware, t.hardware}, {&c.restamped, t.restamped}, {&c.bad, t.bad}} {
		if n.by > 0 {
			n.to.Add(n.by)
		}
	}
}

// Counters returns the totals since the ring was opened. It is safe for concurrent use; the
// kernel's counts are up to a second old.
func (r *Ring) Counters() TapCounters {
	c := &r.count
	return TapCounters{
		Frames: c.frames.Load(), Bytes: c.bytes.Load(),
		Received: c.received.Load(), Dropped: c.dropped.Load(), Freezes: c.freezes.Load(),
		Stripped: c.stripped.Load(), SuperFrames: c.supers.Load(),
		HardwareStamps: c.hardware.Load(), Restamped: c.restamped.Load(), Malformed: c.bad.Load(),
		Downs: c.downs.Load(), Ups: c.ups.Load(), Reopens: c.reopens.Load(),
	}
}
