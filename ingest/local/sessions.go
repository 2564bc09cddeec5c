package local

import (
	"context"
	"fmt"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
)

// Sessions is a Source whose frames are of several taps, such as those that switches
// mirror to one address.
type Sessions interface {
	Source
	// Interfaces are what Frame.Interface indexes: first what is of the tap itself, then
	// its sessions by name. The list grows as frames come, up to a bound that the source
	// has to have, and its entries never change.
	Interfaces() []capture.Interface
	// Received is when the last packet was received (Unix ns, by the source's clock),
	// with a frame in it or not; 0 before the first. Times of frames may be by other
	// clocks: see SessionTap.
	Received() int64
}

// SessionTap is what a session counts as.
type SessionTap struct {
	Name string // of the tap, which no other tap or session has
	window.Tap
	// Behind is how far the times of its frames may be behind the source's clock.
	Behind time.Duration
}

// SessionCounters are the totals of one session.
type SessionCounters struct {
	Name   string // as in Sessions.Interfaces
	Frames uint64
	Lost   uint64 // gaps in its sequence numbers, in frames
	// SwitchTimes are frames that have the time of the switch, Unusable those that have
	// the time of reception since that of the switch is missing, without a known unit or
	// more than a minute off.
	SwitchTimes, Unusable uint64
}

// SessionShare is the part of Plan.MaxKeys, and of the budget of flows, that a session has:
// anybody may open sessions.
const SessionShare = 16

// placeOf is what a session of the worker's tap is, or the tap itself.
func (w *worker) placeOf(session string) SessionTap {
	if session == "" {
		return SessionTap{Name: w.tap.Name, Tap: w.tap.Tap}
	}
	return w.tap.Sessions(session)
}

// newLane makes a lane of the worker.
func (w *worker) newLane(session string) (*lane, error) {
	l := &lane{SessionTap: w.placeOf(session), ring: w.ring, session: session, link: w.tap.Link, hold: &w.hold, provisional: w.p.cfg.Provisional}
	if session != "" {
		l.of = w.name
	}
	l.source = aggregate.Source{Producer: Producer(w.p.cfg.Instance, l.Name), Incarnation: w.fresh}
	l.before = w.p.ring(key{l.Name, l.ring})
	l.seen = l.before.Counts.In
	if err := l.open(w.plan); err != nil {
		return nil, err
	}
	return l, nil
}

// put gives frames of an index their lane.
func (w *worker) put(index uint32, l *lane) {
	for len(w.byIndex) <= int(index) {
		w.byIndex = append(w.byIndex, nil)
	}
	w.byIndex[index] = l
	w.lanes = append(w.lanes, l)
}

// split takes frames into the lanes of their sessions.
func (w *worker) split(ctx context.Context, frames []capture.Frame) error {
	for i := range frames {
		f := &frames[i]
		if int(f.Interface) >= len(w.byIndex) || w.byIndex[f.Interface] == nil {
			if err := w.meet(f.Interface); err != nil {
				return err
			}
		}
		l := w.byIndex[f.Interface]
		if err := l.way.Add(ctx, frames[i:i+1]); err != nil {
			return err
		}
		l.last = f.TimeNS
	}
	return nil
}

// meet makes the lane of a session that is new.
func (w *worker) meet(index uint32) error {
	l, err := w.newLane(w.sessions.Interfaces()[index].Name)
	if err != nil {
		return fmt.Errorf("begin session: %w", err)
	}
	l.way.RejectAfter(w.p.cfg.Now().Add(aggregate.MaxAhead).UnixNano())
	w.put(index, l)
	return nil
}

// received takes over when a source with sessions received its last packet, and reports
// whether one came, with a frame in it or not.
func (w *worker) received() bool {
	if w.sessions == nil || w.sessions.Received() == w.last {
		return false
	}
	w.last = w.sessions.Received()
	return true
}
