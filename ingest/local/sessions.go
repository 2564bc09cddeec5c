package local

import (
	"context"
	"fmt"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
)

// Sessions is a Source with the frames of several taps, such as those that switches mirror to
// one address.
type Sessions interface {
	Source
	// Interfaces returns the list that Frame.Interface indexes: first the tap itself, then its
	// sessions, each with its name. It grows as frames arrive, up to a limit that the source must enforce,
	// and its entries never change.
	Interfaces() []capture.Interface
	// Received returns when the last packet was received (Unix ns, by the source's clock), with
	// or without a frame in it; 0 before the first. Frames may have times of other clocks: see
	// SessionTap.
	Received() int64
}

// SessionTap is the tap that a session counts as.
type SessionTap struct {
	Name string // of the tap, unique among taps and sessions
	window.Tap
	// Behind is how far its frames' times may lag the source's clock.
	Behind time.Duration
}

// SessionCounters holds the totals of one session.
type SessionCounters struct {
	Name   string // as in Sessions.Interfaces
	Frames uint64
	Lost   uint64 // missing sequence numbers, in frames
	// SwitchTimes counts frames with the switch's time. Unusable counts frames with the time of
	// reception because the switch's is missing, has no known unit or is more than a minute
	// off.
	SwitchTimes, Unusable uint64
}

// SessionShare is the divisor of Settings.MaxSeries and of the flow budget for each session, since
// anybody may open sessions.
const SessionShare = 16

// tapOf returns the tap of a session, or the worker's own tap for "".
func (w *worker) tapOf(session string) SessionTap {
	if session == "" {
		return SessionTap{Name: w.tap.Name, Tap: w.tap.Tap}
	}
	return w.tap.Sessions(session)
}

// newLane makes a lane of the worker.
func (w *worker) newLane(session string) (*lane, error) {
	l := &lane{SessionTap: w.tapOf(session), ring: w.ring, session: session, link: w.tap.Link, pending: &w.pending, provisional: w.p.cfg.Provisional}
	if session != "" {
		l.of = w.name
	}
	l.source = aggregate.Source{Producer: Producer(w.p.cfg.Instance, l.Name), Incarnation: w.incarnation}
	l.before = w.p.ring(ringID{l.Name, l.ring})
	if err := l.open(w.plan); err != nil {
		return nil, err
	}
	return l, nil
}

// put assigns a lane to an interface index.
func (w *worker) put(index uint32, l *lane) {
	for len(w.byIndex) <= int(index) {
		w.byIndex = append(w.byIndex, nil)
	}
	w.byIndex[index] = l
	w.lanes = append(w.lanes, l)
}

// split adds frames to the lanes of their sessions.
func (w *worker) split(ctx context.Context, frames []capture.Frame) error {
	for i := range frames {
		f := &frames[i]
		if int(f.Interface) >= len(w.byIndex) || w.byIndex[f.Interface] == nil {
			if err := w.meet(f.Interface); err != nil {
				return err
			}
		}
		l := w.byIndex[f.Interface]
		if err := l.stream.Add(ctx, frames[i:i+1]); err != nil {
			return err
		}
		l.last = f.TimeNS
	}
	return nil
}

// meet makes the lane of a new session.
func (w *worker) meet(index uint32) error {
	l, err := w.newLane(w.sessions.Interfaces()[index].Name)
	if err != nil {
		return fmt.Errorf("begin session: %w", err)
	}
	l.stream.RejectAfter(w.p.cfg.Now().Add(aggregate.MaxAhead).UnixNano())
	w.put(index, l)
	return nil
}

// received updates the reception time from a source with sessions, and reports whether a packet
// arrived, with or without a frame in it.
func (w *worker) received() bool {
	if w.sessions == nil || w.sessions.Received() == w.last {
		return false
	}
	w.last = w.sessions.Received()
	return true
}
