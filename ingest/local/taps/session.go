package taps

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/ingest/local"
)

// Clock selects the source of frame times in a session.
type Clock string

// The clocks. "" means the mirror's clock for a session, and ClockCollector for a mirror.
const (
	ClockCollector Clock = "collector"
	ClockSwitch    Clock = "switch" // the switch's time, if it is usable
)

// Session holds settings for one or several sessions; empty fields have the mirror's values.
type Session struct {
	Place  string
	Weight uint64
	Clock  Clock
}

// SessionMatch selects sessions: all of a switch, one number of any switch, or one number of
// one switch.
type SessionMatch struct {
	source netip.Addr // zero: any
	id     uint64
	any    bool // any id
}

// ParseSession reads ADDRESS/SESSION, SESSION or ADDRESS.
func ParseSession(kind decode.MirrorKind, text string) (k SessionMatch, err error) {
	address, id, both := strings.Cut(text, "/")
	if !both {
		if k.source, err = parseSource(text); err == nil {
			k.any = true
			return k, nil
		}
		id = text
	} else if k.source, err = parseSource(address); err != nil {
		return k, fmt.Errorf("session %q: expected SESSION, ADDRESS or ADDRESS/SESSION", text)
	}
	k.id, err = decode.ParseSessionID(kind, id)
	return k, err
}

// parseSource reads the address of a switch. IPv4 in IPv6, such as ::ffff:192.0.2.1, is the IPv4 address that packets have.
func parseSource(text string) (netip.Addr, error) {
	a, err := netip.ParseAddr(text)
	return a.Unmap(), err
}

// find returns the settings of the most specific match.
func (m *Mirror) find(k decode.SessionKey) (s Session, found bool) {
	return m.first(SessionMatch{source: k.Source, id: k.ID}, SessionMatch{id: k.ID}, SessionMatch{source: k.Source, any: true})
}

// first returns the settings of the first match that has some.
func (m *Mirror) first(list ...SessionMatch) (s Session, found bool) {
	for _, match := range list {
		if s, found = m.Sessions[match]; found {
			return s, true
		}
	}
	return s, false
}

// clock returns the clock of a session with these settings.
func (m *Mirror) clock(s Session) Clock { return cmp.Or(s.Clock, m.Clock, ClockCollector) }

// switched reports whether frames of a session get the time of their switch.
func (m *Mirror) switched(k decode.SessionKey) bool {
	s, _ := m.find(k)
	return m.clock(s) == ClockSwitch
}

// session returns the tap of a mirror's session, which may be placed by its name,
// NAME/ADDRESS/SESSION.
func (m *Mirror) session(session string) local.SessionTap {
	k, err := decode.ParseSessionKey(session)
	if err != nil {
		return local.SessionTap{Name: m.Name + "/" + session, Tap: m.At}
	}
	t := local.SessionTap{Name: fmt.Sprintf("%s/%s/%s", m.Name, k.Source, decode.SessionIDText(k.Kind, k.ID)), Tap: m.At}
	if named, ok := m.Placed(t.Name); ok {
		t.Tap = named
		t.Mirrors = m.At.Mirrors // empty: frames are already unwrapped
	}
	s, _ := m.find(k)
	t.Tap = t.With(s.Place, s.Weight)
	if m.switched(k) {
		t.Behind = time.Duration(maxSwitchError)
	}
	return t
}
