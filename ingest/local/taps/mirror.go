package taps

import (
	"fmt"

	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/ingest/local"
)

// Mirror is an address to which switches send mirrored frames.
type Mirror struct {
	Name   string
	From   string     // the address as users write it
	At     window.Tap // place of frames without a session and of sessions without settings
	Socket capture.MirrorSocketConfig
	Kinds  decode.Mirrors // expected kinds of sessions
	// MaxSessions is the maximum number of sessions that are taps of their own; others count
	// together.
	MaxSessions int
	Clock       Clock
	Sessions    map[SessionMatch]Session
	// Placed returns the place of a session's tap by name, if one is configured.
	Placed func(name string) (window.Tap, bool)
}

// mirrorHow holds the capture settings of a mirror. They are fixed at the start, because a
// running socket cannot be opened twice. clocks has the matches without which some session would
// have another clock.
type mirrorHow struct {
	socket   capture.MirrorSocketConfig
	mirrors  decode.Mirrors
	sessions int
	clock    Clock
	clocks   map[SessionMatch]Clock
}

func (m *Mirror) how() mirrorHow {
	how := mirrorHow{m.Socket, m.Kinds, m.MaxSessions, m.clock(Session{}), make(map[SessionMatch]Clock)}
	bySwitch := false // all sessions of a switch have another clock, unless their numbers have settings
	for match, s := range m.Sessions {
		bySwitch = bySwitch || match.any && m.clock(s) != how.clock
	}
	for match, s := range m.Sessions {
		var without Session
		if match.source.IsValid() && !match.any {
			without, _ = m.first(SessionMatch{id: match.id}, SessionMatch{source: match.source, any: true})
		}
		if clock := m.clock(s); clock != m.clock(without) || bySwitch && !match.source.IsValid() {
			how.clocks[match] = clock
		}
	}
	return how
}

func newMirror(m *Mirror) (*Tap, error) {
	own := *m
	m = &own
	m.At.Mirrors = decode.Mirrors{} // frames are already unwrapped: a mirror inside them is not the switch's
	t := &Tap{name: m.Name, from: m.From, how: m.how(), fixed: true, feed: m.At, sessions: m.session}
	t.expected = Expected{len(m.Sessions), func(k decode.SessionKey) bool { _, known := m.find(k); return known }}
	socket, err := capture.NewMirrorSocket(m.Socket)
	if err != nil {
		return nil, err
	}
	t.open = func() error {
		if err := socket.Open(); err != nil {
			return fmt.Errorf("mirror %q: %w", t.name, err)
		}
		t.mirror = newMirrorReader(socket, mirrorConfig{
			Mirrors: m.Kinds, MaxSessions: m.MaxSessions, Expected: t.expected, SwitchTime: m.switched,
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
