package main

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/csigscope/csigscope/aggregate/feed"
	"github.com/csigscope/csigscope/aggregate/live"
	"github.com/csigscope/csigscope/capture"
)

const (
	// defaultMaxSessions is how many sessions of a mirror are taps of their own.
	defaultMaxSessions = 64
	largestMaxSessions = 1024
	// clockSwitch is the word for times of switches.
	clockSwitch = "switch"
)

// mirrorSession is how frames of one session of a mirror count. What it leaves out is as
// the mirror has it.
type mirrorSession struct {
	Place  word     `yaml:"place,omitempty"`
	Weight quantity `yaml:"weight,omitempty"`
	Clock  word     `yaml:"clock,omitempty"` // collector or switch
}

// sessionKey is what the configuration calls sessions: any of a switch, one of any switch,
// or one of one.
type sessionKey struct {
	source netip.Addr // the zero Addr for any
	id     uint64
	any    bool // whatever the id
}

// parseSession reads ADDRESS/SESSION, SESSION or ADDRESS.
func parseSession(kind capture.MirrorKind, text string) (k sessionKey, err error) {
	address, id, both := strings.Cut(text, "/")
	if !both {
		if k.source, err = netip.ParseAddr(text); err == nil {
			k.any = true
			return k, nil
		}
		id = text
	} else if k.source, err = netip.ParseAddr(address); err != nil {
		return k, fmt.Errorf("session %q: expected SESSION, ADDRESS or ADDRESS/SESSION", text)
	}
	k.id, err = capture.ParseSessionID(kind, id)
	return k, err
}

// checkSessions finds values out of bounds.
func (m *collectMirror) checkSessions() error {
	if n := m.MaxSessions.n; n > largestMaxSessions {
		return fmt.Errorf("%s: max_sessions %d: expected at most %d", m.name(), n, largestMaxSessions)
	}
	if n, most := len(m.Sessions), m.maxSessions(); n > most {
		return fmt.Errorf("%s: %d sessions: expected at most max_sessions, %d", m.name(), n, most)
	}
	kind, err := capture.ParseMirrorKind(m.Kind.text)
	if err != nil {
		return err
	}
	for _, text := range slices.Sorted(maps.Keys(m.Sessions)) {
		if _, err := parseSession(kind, text); err != nil {
			return fmt.Errorf("%s: %w", m.name(), err)
		}
		s := m.Sessions[text]
		if err := checkWords(fmt.Sprintf("%s: session %q", m.name(), text), []choice{{"place", s.Place, places}, {"clock", s.Clock, clocks}}); err != nil {
			return err
		}
	}
	return nil
}

func (m *collectMirror) maxSessions() int { return int(cmp.Or(m.MaxSessions.n, defaultMaxSessions)) }

// sessionTable finds the settings of a session.
type sessionTable map[sessionKey]mirrorSession

// table is that of the mirror, which has been checked.
func (m *collectMirror) table() sessionTable {
	kind, _ := capture.ParseMirrorKind(m.Kind.text)
	t := make(sessionTable, len(m.Sessions))
	for text, s := range m.Sessions {
		k, _ := parseSession(kind, text)
		s.Clock.text = cmp.Or(s.Clock.text, m.Clock.text)
		t[k] = s
	}
	return t
}

// find has what says most of a session first.
func (t sessionTable) find(k capture.SessionKey) (s mirrorSession, found bool) {
	for _, try := range [...]sessionKey{{source: k.Source, id: k.ID}, {id: k.ID}, {source: k.Source, any: true}} {
		if s, found = t[try]; found {
			return s, true
		}
	}
	return s, false
}

// switched tells whether frames of a session have the time of their switch.
func (m *collectMirror) switched(t sessionTable, k capture.SessionKey) bool {
	s, found := t.find(k)
	if !found {
		return m.Clock.text == clockSwitch
	}
	return s.Clock.text == clockSwitch
}

// sessions says what a session of the mirror is, where the mirror's own frames count as at.
// The fabric file may place it by its name, NAME/ADDRESS/SESSION.
func (m *collectMirror) sessions(n *network, at feed.Tap) func(session string) live.SessionTap {
	table := m.table()
	return func(session string) live.SessionTap {
		k, err := capture.ParseSessionKey(session)
		if err != nil {
			return live.SessionTap{Name: m.name() + "/" + session, Tap: at}
		}
		t := live.SessionTap{Name: fmt.Sprintf("%s/%s/%s", m.name(), k.Source, capture.SessionIDText(k.Kind, k.ID)), Tap: at}
		if named, ok := n.named(t.Name); ok {
			t.Tap = placedAs(named)
		}
		s, _ := table.find(k)
		t.Tap = withOwn(t.Tap, s.Place, s.Weight)
		if m.switched(table, k) {
			t.Behind = capture.MaxSwitchError
		}
		return t
	}
}
