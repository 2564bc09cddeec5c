package agent_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/capture/livetest"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/ingest/local"
	"github.com/csigscope/csigscope/ingest/local/agent"
	"github.com/csigscope/csigscope/ingest/local/journal"
	"github.com/csigscope/csigscope/ingest/local/taps"
)

// TestReloadedSessions: a session that a reload names has a reserved place. A refused reload reserves none.
func TestReloadedSessions(t *testing.T) {
	if !livetest.InNamespace(t) {
		return
	}
	for name, refused := range map[string]error{"accepted": nil, "refused": errors.New("refused")} {
		t.Run(name, func(t *testing.T) { reloadedSessions(t, refused) })
	}
}

func reloadedSessions(t *testing.T, refused error) {
	const at = "127.0.0.1:4789"
	match, err := taps.ParseSession(decode.MirrorVXLAN, "7")
	if err != nil {
		t.Fatal(err)
	}
	with := func(sessions map[taps.SessionMatch]taps.Session) agent.Setup {
		s := setup(t, "one", 1)
		s.Taps.Mirrors = []taps.Mirror{{
			Name: "leaf", From: at, Kinds: decode.Mirrors{VXLAN: 4789}, MaxSessions: 2, Sessions: sessions,
			Placed: func(string) (window.Tap, bool) { return window.Tap{}, false },
			Socket: capture.MirrorSocketConfig{Listen: netip.MustParseAddrPort(at), Buffer: 1 << 20},
		}}
		return s
	}
	a, err := agent.Open(with(nil), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	none := func(*local.Mark, []store.Gap) error { return nil }
	to := journal.Writers{
		Taps: func(context.Context, []store.TapRow, []store.FindingRow) error { return nil },
		Gaps: func(context.Context, []store.Gap) error { return nil },
	}
	if _, err := a.Resume(journal.Config{Name: "test one", Log: log{}}, to, none); err != nil {
		t.Fatal(err)
	}
	if err := a.Start(&names{}, nil); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	reload := func(ctx context.Context) error {
		defer end()
		adopt := func() error { return refused }
		if err := a.Reload(ctx, with(map[taps.SessionMatch]taps.Session{match: {Place: "receiver"}}), adopt); !errors.Is(err, refused) {
			t.Errorf("reload: %v", err)
		}
		to, err := net.Dial("udp", at)
		if err != nil {
			return err
		}
		defer to.Close()
		for _, id := range []byte{5, 6, 7} {
			if _, err := to.Write(append([]byte{8, 0, 0, 0, 0, 0, id, 0}, livetest.Plain(1, 2, 60)...)); err != nil {
				return err
			}
		}
		for a.Taps()["leaf"].Mirror().Counters().Results[decode.MirrorOK] < 3 && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		return nil
	}
	if err := a.Run(ctx, []func(context.Context) error{reload}, nil); err != nil {
		t.Fatal(err)
	}
	leaf := a.Taps()["leaf"]
	_, strange := leaf.Session("vxlan/127.0.0.1/6")
	if _, named := leaf.Session("vxlan/127.0.0.1/7"); named != (refused == nil) || strange == named {
		t.Errorf("session 7 has a place: %t, session 6: %t", named, strange)
	}
}
