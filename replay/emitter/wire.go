package emitter

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Wire says how Send sends.
type Wire struct {
	// Interface is the network interface that frames leave by.
	Interface string
	// Pace is how many times faster than simulated frames leave; 0 is as fast as they
	// can be made.
	Pace float64
	// Dir takes the fabric file and the truth; none if empty.
	Dir string
}

// Send simulates the scenario like Run, but sends the frames of all taps through an
// interface instead of writing them to files: whole, whatever the snap length, and
// with the losses and duplicates of their taps, whose clocks play no part. It needs
// Linux and CAP_NET_RAW, and an interface whose MTU has room for what stands around
// the packets of hosts. It blocks until the run is complete or ctx ends.
func Send(ctx context.Context, s Scenario, to Wire, progress Progress) (Report, error) {
	if to.Pace < 0 {
		return Report{}, fmt.Errorf("send: pace %v: expected 0 (as fast as possible) or more", to.Pace)
	}
	return emit(ctx, s, progress, func(m *sim, r *Report) error {
		send, closeSocket, err := openInterface(to.Interface)
		if err != nil {
			return fmt.Errorf("send to interface %q: %w", to.Interface, err)
		}
		m.taps.wire = &wire{name: to.Interface, send: send, close: closeSocket, ctx: ctx, pace: to.Pace}
		if to.Dir == "" {
			return nil
		}
		return writeNetwork(m, r, to.Dir)
	})
}

// errTooLong means that a frame does not fit the interface.
var errTooLong = errors.New("the frame is longer than the interface takes")

// wire sends frames instead of writing them to files.
type wire struct {
	name  string
	frame []byte
	send  func(frame []byte) error
	close func() error

	ctx     context.Context // of the run that the wire belongs to
	pace    float64
	started time.Time
	first   int64 // time of the first frame, Unix ns of the simulation
}

// packet sends a frame as a tap sees it, whole.
func (w *wire) packet(t *tap, f *framer, s *segment, ns int64) error {
	if err := w.wait(ns); err != nil {
		return err
	}
	w.frame = w.frame[:0]
	if t.mirror != nil {
		w.frame = t.mirror.append(w.frame, s, ns)
	}
	w.frame = f.append(w.frame, s, s.length)
	err := w.send(w.frame)
	if errors.Is(err, errTooLong) {
		return fmt.Errorf("send to interface %q: a frame of %d bytes is too long: set an MTU of at least %d (ip link set %s mtu %d), or a lower mtu in the scenario",
			w.name, len(w.frame), len(w.frame)-ethernetLen, w.name, len(w.frame)-ethernetLen)
	}
	if err != nil {
		return fmt.Errorf("send to interface %q: %w", w.name, err)
	}
	return nil
}

// lead is how far frames may run ahead of their time: sleeping for each one would
// make them late.
const lead = time.Millisecond

// wait sleeps until the time of a frame has come.
func (w *wire) wait(ns int64) error {
	if w.pace == 0 {
		return nil
	}
	if w.started.IsZero() {
		w.started, w.first = time.Now(), ns
	}
	ahead := time.Duration(float64(ns-w.first)/w.pace) - time.Since(w.started)
	if ahead < lead {
		return nil
	}
	timer := time.NewTimer(ahead)
	defer timer.Stop()
	select {
	case <-w.ctx.Done():
		return w.ctx.Err()
	case <-timer.C:
		return nil
	}
}
