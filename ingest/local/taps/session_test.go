package taps

import (
	"net/netip"
	"testing"

	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
)

// TestSessions: the most specific session settings override those of its tap's name, which
// override the mirror's.
func TestSessions(t *testing.T) {
	m := Mirror{
		Name: "spine", At: window.TapAt("mid", 3), Clock: ClockSwitch, Sessions: make(map[SessionMatch]Session),
		Placed: func(name string) (window.Tap, bool) { return window.TapAt("sender", 5), name == "spine/192.0.2.1/8" },
	}
	for text, s := range map[string]Session{
		"192.0.2.1/7": {Place: "receiver"}, "7": {Weight: 9, Clock: ClockCollector}, "192.0.2.1": {Weight: 11},
	} {
		match, err := ParseSession(decode.MirrorERSPAN, text)
		if err != nil {
			t.Fatal(err)
		}
		m.Sessions[match] = s
	}
	for session, want := range map[string]struct {
		name     string
		tap      window.Tap
		switched bool
	}{
		"erspan/192.0.2.1/7": {"spine/192.0.2.1/7", window.TapAt("receiver", 3), true},
		"erspan/192.0.2.2/7": {"spine/192.0.2.2/7", window.TapAt("mid", 9), false},
		"erspan/192.0.2.1/8": {"spine/192.0.2.1/8", window.TapAt("sender", 11), true},
		"erspan/192.0.2.2/8": {"spine/192.0.2.2/8", window.TapAt("mid", 3), true},
		otherSessions:        {"spine/" + otherSessions, window.TapAt("mid", 3), false},
	} {
		got := m.session(session)
		if got.Name != want.name || got.Tap != want.tap || (got.Behind > 0) != want.switched {
			t.Errorf("%s: %+v, want %+v", session, got, want)
		}
	}
	if _, known := m.find(decode.SessionKey{Kind: decode.MirrorERSPAN, Source: netip.MustParseAddr("192.0.2.2"), ID: 8}); known {
		t.Error("a session that nothing is said of is known")
	}
}

// TestParseSession: invalid session names.
func TestParseSession(t *testing.T) {
	for _, text := range []string{"", "x", "192.0.2.1/x", "/7", "192.0.2/7", "192.0.2.1/7/8", "1024", "-1"} {
		if k, err := ParseSession(decode.MirrorERSPAN, text); err == nil {
			t.Errorf("%q: is taken for %+v", text, k)
		}
	}
}

// TestMappedSession: an IPv4 address in IPv6 is that address.
func TestMappedSession(t *testing.T) {
	for mapped, plain := range map[string]string{"::ffff:192.0.2.1/7": "192.0.2.1/7", "::ffff:192.0.2.1": "192.0.2.1"} {
		a, err := ParseSession(decode.MirrorERSPAN, mapped)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := ParseSession(decode.MirrorERSPAN, plain); err != nil || a != b {
			t.Errorf("%s is %+v, %s is %+v: %v", mapped, a, plain, b, err)
		}
	}
}

// TestClockChanged: a changed clock changes the capture settings of a mirror, a changed place
// does not.
func TestClockChanged(t *testing.T) {
	match, err := ParseSession(decode.MirrorVXLAN, "7")
	if err != nil {
		t.Fatal(err)
	}
	tap := func(s Session) *Tap {
		t.Helper()
		got, err := newMirror(&Mirror{
			Name: "leaf", From: "127.0.0.1:4789", Kinds: decode.Mirrors{VXLAN: 4789}, MaxSessions: 4, Sessions: map[SessionMatch]Session{match: s},
			Socket: capture.MirrorSocketConfig{Listen: netip.MustParseAddrPort("127.0.0.1:4789")},
		})
		if err != nil {
			t.Fatal(err)
		}
		got.open = func() error { t.Error("it is opened again"); return nil }
		return got
	}
	old := tap(Session{Place: "mid"})
	if reopen, err := tap(Session{Place: "sender", Weight: 2}).takeOver(old, nil); reopen || err != nil {
		t.Errorf("another place: reopen %t, %v", reopen, err)
	}
	if _, err := tap(Session{Place: "mid", Clock: ClockSwitch}).takeOver(old, nil); err == nil {
		t.Error("another clock goes on")
	}
}

// TestClockOfSessions: a reload may change sessions unless that changes the clock of one.
func TestClockOfSessions(t *testing.T) {
	type sessions map[string]Session
	own, place := Session{Clock: ClockSwitch}, Session{Place: "receiver"}
	tap := func(clock Clock, list sessions) *Tap {
		t.Helper()
		m := &Mirror{
			Name: "leaf", From: "127.0.0.1", Kinds: decode.Mirrors{ERSPAN: true}, MaxSessions: 4, Clock: clock, Sessions: make(map[SessionMatch]Session),
			Socket: capture.MirrorSocketConfig{Listen: netip.MustParseAddrPort("127.0.0.1:0")},
		}
		for text, s := range list {
			match, err := ParseSession(decode.MirrorERSPAN, text)
			if err != nil {
				t.Fatal(err)
			}
			m.Sessions[match] = s
		}
		got, err := newMirror(m)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	for _, tc := range []struct {
		name   string
		clock  Clock
		one    sessions
		other  sessions
		differ bool
	}{
		{"a place alone", "", sessions{}, sessions{"7": place, "192.0.2.1": place, "192.0.2.1/7": place}, false},
		{"a place beside another clock", "", sessions{"8": own}, sessions{"8": own, "7": place, "192.0.2.2/7": place}, false},
		{"the mirror's clock by name", "", sessions{"7": place}, sessions{"7": {Clock: ClockCollector}}, false},
		{"the mirror's clock as the default", ClockSwitch, sessions{}, sessions{"7": own}, false},
		{"another clock", "", sessions{"7": place}, sessions{"7": own}, true},
		{"the clock of a switch for one of its sessions too", "", sessions{"192.0.2.1": own}, sessions{"192.0.2.1": own, "192.0.2.1/7": own}, false},
		{"the mirror's clock for a session of a switch", "", sessions{"192.0.2.1": own}, sessions{"192.0.2.1": own, "192.0.2.1/7": place}, true},
		{"the mirror's clock for a number of a switch", "", sessions{"192.0.2.1": own}, sessions{"192.0.2.1": own, "7": place}, true},
		{"the mirror's clock for one session of a number", "", sessions{"7": own}, sessions{"7": own, "192.0.2.1/7": place}, true},
		{"the clock of a number, not of its switch", "", sessions{"192.0.2.1": own, "7": place}, sessions{"192.0.2.1": own, "7": place, "192.0.2.1/7": place}, false},
	} {
		for _, list := range [][2]sessions{{tc.one, tc.other}, {tc.other, tc.one}} {
			old, next := tap(tc.clock, list[0]), tap(tc.clock, list[1])
			if _, err := next.takeOver(old, nil); (err != nil) != tc.differ {
				t.Errorf("%s: from %v to %v: %v", tc.name, list[0], list[1], err)
			}
		}
	}
}
