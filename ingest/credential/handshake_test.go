package credential_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/ingest/credential"
	"github.com/csigscope/csigscope/ingest/credential/credentialtest"
)

// TestHandshakes: connections that do not come about are told of, and hold up nobody.
func TestHandshakes(t *testing.T) {
	ca := credentialtest.NewAuthority(t)
	gate, err := credential.NewGate(credential.Config{
		TLS: ca.Server(), Now: time.Now, Logger: slog.New(slog.DiscardHandler), Refuse: func(credential.Reason, ...slog.Attr) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	h := credential.NewHandshakes(raw, gate.TLS(), 300*time.Millisecond, func(_ net.Addr, err error) { failed <- err })
	came := make(chan net.Conn)
	ended := make(chan error)
	go func() {
		for {
			c, err := h.Accept()
			if err != nil {
				ended <- err
				return
			}
			came <- c
		}
	}()
	files := ca.Issue("host", time.Now().Add(time.Hour))
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	good := &tls.Config{RootCAs: ca.Pool(), ServerName: "127.0.0.1", Certificates: []tls.Certificate{pair}}
	shake := func(change func(*tls.Config)) func(net.Conn) {
		c := good.Clone()
		change(c)
		return func(conn net.Conn) { _ = tls.Client(conn, c).Handshake() }
	}
	say := func(text string) func(net.Conn) {
		return func(conn net.Conn) { _, _ = io.WriteString(conn, text) }
	}
	for _, tc := range []struct {
		name string
		do   func(net.Conn)
		want string // in the error
	}{
		{"speaks in the clear", say("GET / HTTP/1.1\r\n\r\n"), "does not look like a TLS handshake"},
		{"speaks nonsense", say(strings.Repeat("\x00", 100)), "does not look like a TLS handshake"},
		{"old version", shake(func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 }), "unsupported version"},
		{"does not know us", shake(func(c *tls.Config) { c.RootCAs = x509.NewCertPool() }), "bad certificate"},
		{"says nothing", func(net.Conn) {}, "deadline exceeded"},
		{"no certificate", shake(func(c *tls.Config) { c.Certificates = nil }), "no_credential"},
	} {
		conn, err := net.Dial("tcp", raw.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		tc.do(conn)
		if err := <-failed; !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
		if tc.name == "speaks in the clear" {
			if answer, err := io.ReadAll(conn); err != nil || !strings.Contains(string(answer), "expected https") {
				t.Errorf("%s: answer %q, %v", tc.name, answer, err)
			}
		}
		conn.Close()
	}
	conn, err := net.Dial("tcp", raw.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if err := <-failed; !errors.Is(err, io.EOF) {
		t.Errorf("went without a word: %v", err)
	}
	peer, err := tls.Dial("tcp", raw.Addr().String(), good)
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	c := <-came
	defer c.Close()
	if s, ok := c.(*tls.Conn); !ok || !s.ConnectionState().HandshakeComplete {
		t.Errorf("%T came, want one that has shaken hands", c)
	}
	// A handshake that is under way does not hold up the end.
	silent, err := net.Dial("tcp", raw.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("%v, want a listener that is closed", err)
	}
}
