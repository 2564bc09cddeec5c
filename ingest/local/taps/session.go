package taps

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/ingest/local"
)

// Clock is whose times frames of a session have.
type Clock string

// The clocks. "" is that of the mirror and, of a mirror, ClockCollector.
const (
	ClockCollector Clock = "collector"
	ClockSwitch    Clock = "switch" // where the switch sends times that can be compared
)

// Session is what is said of one session, or of some; what it leaves out is as the mirror
// has it.
type Session struct {
	Place  string
	Weight uint64
	Clock  Clock
}

// SessionMatch is what sessions are called: any of a switch, one of any switch, or one of
// one.
type SessionMatch struct {
	source netip.Addr // the zero Addr for any
	id     uint64
	any    bool // whatever the id
}

// ParseSession reads ADDRESS/SESSION, SESSION or ADDRESS.
func ParseSession(kind decode.MirrorKind, text string) (k SessionMatch, err error) {
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
	k.id, err = decode.ParseSessionID(kind, id)
	return k, err
}

// find has what says most of a session first.
func (m *Mirror) find(k decode.SessionKey) (s Session, found bool) {
	for _, try := range [...]SessionMatch{{source: k.Source, id: k.ID}, {id: k.ID}, {source: k.Source, any: true}} {
		if s, found = m.Sessions[try]; found {
			return s, true
		}
	}
	return s, false
}

// switched tells whether frames of a session have the time of their switch.
func (m *Mirror) switched(k decode.SessionKey) bool {
	s, _ := m.find(k)
	return cmp.Or(s.Clock, m.Clock) == ClockSwitch
}

// session says what a session of the mirror is, which may be placed by its name,
// NAME/ADDRESS/SESSION.
func (m *Mirror) session(session string) local.SessionTap {
	k, err := decode.ParseSessionKey(session)
	if err != nil {
		return local.SessionTap{Name: m.Name + "/" + session, Tap: m.At}
	}
	t := local.SessionTap{Name: fmt.Sprintf("%s/%s/%s", m.Name, k.Source, decode.SessionIDText(k.Kind, k.ID)), Tap: m.At}
	if named, ok := m.Placed(t.Name); ok {
		t.Tap = named
		t.Mirrors = m.At.Mirrors // none
	}
	s, _ := m.find(k)
	t.Tap = t.With(s.Place, s.Weight)
	if m.switched(k) {
		t.Behind = MaxSwitchError
	}
	return t
}
