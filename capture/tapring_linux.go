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

// checkEvery is how often a busy ring looks whether its interface is still the one
// of its name: an idle one does each time that it waits.
const checkEvery = time.Second

// Ring is what one core reads a tap's frames from. All but Counters, State and Stamp
// belong to one goroutine.
type Ring struct {
	tap     *Tap
	control int     // socket for questions about interfaces
	sock    *socket // nil while the interface is gone
	cursor  cursor  // in the blocks of sock
	links   [1]Interface
	packets uint64
	checked time.Time // when the link was looked at
	lost    time.Time // when the interface of sock was found to be gone; zero while it is there
	quiet   int64     // see QuietUntil
	opened  bool      // at least once
	refused string    // why the kernel did not open the ring anew, when that was said
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

// open makes the ring for the interface that has the tap's name now.
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
		// What the clock showed holds until frames show something else.
		stampClock: stampClock{quiet: began.UnixNano(), measured: r.cursor.measured, ahead: r.cursor.ahead},
	}
	r.stamp.Store(uint32(s.stamp.resolved()))
	r.lost = time.Time{}
	if r.opened {
		r.count.reopens.Add(1)
	}
	r.opened = true
	return nil
}

// ReadBatch fills b with the next frames and waits for them at most for
// TapConfig.Wait. Without any, b.N is 0 and the error is nil, so that the caller can
// look at its context and advance the clock of an idle tap: see QuietUntil.
//
// Data of the frames lies in the ring itself and is valid until the next call of
// ReadBatch or Close. While frames are kept, the ring has less room: what is not read
// in time is dropped by the kernel and counted.
//
// An interface that is down or gone is no error: see State. Errors are that the ring
// is closed, and that it may not be opened anew for an interface that came back,
// because the rights to do so were given up.
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
		if err := r.wait(); err != nil {
			return err
		}
		if r.sock == nil || !r.cursor.acquire() {
			return nil
		}
	}
	r.fill(b)
	return nil
}

// fill hands out frames of the block at hand.
func (r *Ring) fill(b *Batch) {
	var t batchTally
	r.cursor.fill(b, r.packets, &t)
	r.packets += uint64(b.N)
	r.count.add(&t)
	if r.cursor.first { // once a block is enough to look at the clock
		r.cursor.first = false
		if now := time.Now(); now.Sub(r.checked) >= checkEvery {
			r.checkLink(now)
			r.readStatistics()
		}
	}
}

// wait waits for a block, and looks after the link when there is none.
func (r *Ring) wait() error {
	began := time.Now()
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
		// The link went down or away: reading the error is what clears it.
		_, _ = unix.GetsockoptInt(r.sock.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	}
	r.setQuiet(began.Add(-2 * r.tap.cfg.Retire))
	r.readStatistics()
	now := time.Now()
	r.checkLink(now)
	// The last block of a ring whose interface went away retires like any other.
	if !r.lost.IsZero() && now.Sub(r.lost) > 3*r.tap.cfg.Retire {
		r.drop()
	}
	return nil
}

// checkLink asks for the state of the interface, and whether it is still the same.
func (r *Ring) checkLink(now time.Time) {
	r.checked = now
	l, err := lookUp(r.control, r.tap.cfg.Interface)
	switch {
	case r.sock != nil && (err != nil || l.index != r.sock.link.index):
		if r.lost.IsZero() {
			r.lost = now
		}
		r.setState(LinkGone)
	case err != nil:
		r.setState(LinkGone)
	case l.flags&(unix.IFF_UP|unix.IFF_RUNNING) != unix.IFF_UP|unix.IFF_RUNNING:
		r.setState(LinkDown)
	default:
		r.setState(LinkUp)
	}
	if r.sock != nil && r.lost.IsZero() {
		r.sock.link = l
		r.cursor.longest = r.sock.longest() // the MTU may have changed
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
		r.tap.cfg.Logger.Warn("link lost: nothing is captured until it is back", name, slog.String("state", s.String()))
	case s == LinkUp && r.count.downs.Load() > 0:
		r.tap.cfg.Logger.Warn("link is back", name)
	default: // of two lost states, or the first one
		r.tap.cfg.Logger.Info("tap's link changed", name, slog.String("state", s.String()))
	}
}

// drop closes the socket of an interface that is gone.
func (r *Ring) drop() {
	r.readStatistics()
	if err := r.sock.close(r.tap); err != nil {
		r.tap.cfg.Logger.Warn("tap's ring did not close", slog.String("interface", r.tap.cfg.Interface), slog.Any("error", err))
	}
	r.sock, r.cursor = nil, cursor{stampClock: r.cursor.stampClock}
}

// revive opens the ring anew once there is an interface of the name again.
func (r *Ring) revive() error {
	now := time.Now()
	err := r.open()
	r.checkLink(now)
	if err == nil {
		return nil
	}
	time.Sleep(r.tap.cfg.Wait)
	r.setQuiet(now)
	switch {
	case errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES):
		return fmt.Errorf("read tap %q: open its ring anew: %w", r.tap.cfg.Interface, err)
	case errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENETDOWN) || errors.Is(err, unix.ENXIO):
	case r.refused != err.Error(): // such as for memory; said once
		r.refused = err.Error()
		r.tap.cfg.Logger.Warn("tap's ring did not open, it is tried again", slog.String("interface", r.tap.cfg.Interface), slog.Any("error", err))
	}
	return nil
}

// readStatistics takes over what the kernel counted, which reading sets to 0.
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

// QuietUntil is a time (Unix ns, system clock) before which no frame was received
// that is yet to be delivered, as of the last ReadBatch without frames: what an idle
// tap's clock may be advanced to, after Ahead was added. It is 0 before the first.
func (r *Ring) QuietUntil() int64 { return r.quiet }

// Ahead is how far the clock of the frames' times is at least ahead of the system's, in
// ns, as the frames show it: negative where it is behind, 0 for software times.
func (r *Ring) Ahead() int64 { return r.cursor.ahead }

// Interfaces is the tap's one interface, as for a Reader.
func (r *Ring) Interfaces() []Interface { return r.links[:] }

// State is that of the link when it was last looked at: at least each second.
func (r *Ring) State() LinkState { return LinkState(r.state.Load()) }

// Stamp says whose times the frames have: StampSoftware or StampHardware.
func (r *Ring) Stamp() Stamp { return Stamp(r.stamp.Load()) }

// Close frees the ring; frames that were delivered are not valid any more. Closing
// twice is fine.
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

// ringCounters are written by the ring's goroutine once a batch and read by anyone.
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

// Counters are the totals since the ring was opened. It is safe to call at any time;
// what the kernel counts is up to a second old.
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
