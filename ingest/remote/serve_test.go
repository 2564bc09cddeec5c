package remote

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/ingest/edge"
	"github.com/csigscope/csigscope/ingest/edge/edgetest"
)

// TestHandshakesAreCounted: failed connections have a reason and a line in the log, whose
// length does not grow with their number.
func TestHandshakesAreCounted(t *testing.T) {
	ca, log, now := edgetest.NewAuthority(t), &logBuffer{}, newClock()
	cfg := testConfig(t)
	cfg.Auth, cfg.Permits, cfg.Logger, cfg.Now = edge.Auth{TLS: ca.Server()}, everybody, log.logger(), now.now
	s := startCollector(t, cfg, newLedger(), "")
	say := func(text string) {
		t.Helper()
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "https://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, text); err != nil {
			t.Fatal(err)
		}
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		_, _ = io.ReadAll(conn) // until the collector has closed it
	}
	say("") // a load balancer's health check
	if text := log.String(); text != "" {
		t.Errorf("a check is logged: %s", text)
	}
	for range 20 {
		say("nonsense")
	}
	now.add(time.Minute)
	say("nonsense")
	if st := s.Stats(); st.Unauthenticated.Refused[Reason(edge.Handshake)] != 22 {
		t.Errorf("%+v, want 22 handshakes counted", st.Unauthenticated)
	}
	text := log.String()
	if n := strings.Count(text, "reason=handshake"); n != 2 || !strings.Contains(text, "address=127.0.0.1:") || !strings.Contains(text, "left_out=19") {
		t.Errorf("%d lines, want 2, of which one says how many are left out: %s", n, text)
	}
}

// TestConnectionsAreBounded: connections beyond the limit are counted.
func TestConnectionsAreBounded(t *testing.T) {
	cfg := testConfig(t)
	cfg.Limits.MaxConns = 2
	s := startCollector(t, cfg, newLedger(), "")
	for range 5 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	wait(t, "3 connections are refused", func() bool { return s.Stats().Unauthenticated.Refused[Reason(edge.TooManyConns)] == 3 })
}
