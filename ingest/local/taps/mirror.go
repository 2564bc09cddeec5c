package taps

import (
	"fmt"

	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/ingest/local"
)

// Mirror is an address that switches send mirrored frames to.
type Mirror struct {
	Name   string
	From   string     // the address, as people write it
	At     window.Tap // frames of no session, and sessions that nothing else is said of
	Socket capture.MirrorSocketConfig
	Kinds  decode.Mirrors // of sessions that are expected
	// MaxSessions are taps of their own; further ones count together.
	MaxSessions int
	Clock       Clock
	Sessions    map[SessionMatch]Session
	// Placed is where a session's tap of a name stands, if anything is said of it.
	Placed func(name string) (window.Tap, bool)
}

// mirrorHow is how frames of a mirror are taken in. It is as it was at the start: what a
// running socket brings cannot be had twice.
type mirrorHow struct {
	socket   capture.MirrorSocketConfig
	mirrors  decode.Mirrors
	sessions int
	clock    Clock
	clocks   map[SessionMatch]Clock
}

func (m *Mirror) how() mirrorHow {
	how := mirrorHow{m.Socket, m.Kinds, m.MaxSessions, m.Clock, make(map[SessionMatch]Clock)}
	for match, s := range m.Sessions {
		if s.Clock != "" {
			how.clocks[match] = s.Clock
		}
	}
	return how
}

func newMirror(m *Mirror) (*Tap, error) {
	own := *m
	m = &own
	m.At.Mirrors = decode.Mirrors{} // frames are taken out by then: one in them is not the switch's
	t := &Tap{name: m.Name, from: m.From, how: m.how(), fixed: true, feed: m.At, sessions: m.session}
	socket, err := capture.NewMirrorSocket(m.Socket)
	if err != nil {
		return nil, err
	}
	t.open = func() error {
		if err := socket.Open(); err != nil {
			return fmt.Errorf("mirror %q: %w", t.name, err)
		}
		t.mirror = NewMirrorReader(socket, MirrorConfig{
			Mirrors: m.Kinds, MaxSessions: m.MaxSessions, Reserved: len(m.Sessions),
			Known:      func(k decode.SessionKey) bool { _, known := m.find(k); return known },
			SwitchTime: m.switched,
		})
		t.sources = []local.Source{t.mirror}
		t.state = func() capture.LinkState { return capture.LinkUp }
		t.count = func() capture.TapCounters {
			c := socket.Counters()
			return capture.TapCounters{Frames: c.Packets, Received: c.Packets + c.Dropped, Dropped: c.Dropped}
		}
		return nil
	}
	return t, nil
}
