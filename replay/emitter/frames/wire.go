package frames

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// errTooLong means that a frame exceeds the interface's MTU.
var errTooLong = errors.New("the frame is longer than the interface takes")

// sender sends frames to an interface instead of writing them to files.
type sender struct {
	name  string
	frame []byte
	send  func(frame []byte) error
	close func() error

	ctx     context.Context // ends waiting; it belongs to the run
	pace    float64
	started time.Time
	first   int64 // time of the first frame, Unix ns of the simulation
}

// SendTo makes all taps send their frames to an interface until ctx ends. pace is the speed
// relative to the simulated clock; 0 sends as fast as frames come.
func (t *Taps) SendTo(ctx context.Context, name string, pace float64) error {
	send, closeSocket, err := openInterface(name)
	if err != nil {
		return fmt.Errorf("send to interface %q: %w", name, err)
	}
	t.sender = &sender{name: name, send: send, close: closeSocket, ctx: ctx, pace: pace}
	return nil
}

// packet sends a frame in full length, as a tap sees it.
func (w *sender) packet(t *tap, f *Framer, s *Segment, ns int64) error {
	if err := w.wait(ns); err != nil {
		return err
	}
	w.frame = w.frame[:0]
	if t.mirror != nil {
		w.frame = t.mirror.append(w.frame, s, ns)
	}
	w.frame = f.append(w.frame, s, s.Length)
	err := w.send(w.frame)
	if errors.Is(err, errTooLong) {
		return fmt.Errorf("send to interface %q: a frame of %d bytes is too long: set an MTU of at least %d (ip link set %s mtu %d), or a lower mtu in the scenario",
			w.name, len(w.frame), len(w.frame)-EthernetLen, w.name, len(w.frame)-EthernetLen)
	}
	if err != nil {
		return fmt.Errorf("send to interface %q: %w", w.name, err)
	}
	return nil
}

// lead is how far frames may run ahead of their time. A sleep per frame would make them late.
const lead = time.Millisecond

// wait sleeps until a frame is due.
func (w *sender) wait(ns int64) error {
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
	select {
	case <-w.ctx.Done():
		return w.ctx.Err()
	case <-time.After(ahead):
		return nil
	}
}
