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
		OtherSessions:        {"spine/" + OtherSessions, window.TapAt("mid", 3), false},
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
	if reopen, err := tap(Session{Place: "sender", Weight: 2}).takeOver(old); reopen || err != nil {
		t.Errorf("another place: reopen %t, %v", reopen, err)
	}
	if _, err := tap(Session{Place: "mid", Clock: ClockSwitch}).takeOver(old); err == nil {
		t.Error("another clock goes on")
	}
}
