package ingest

import (
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/csigscope/csigscope/ingest/credential"
)

// TLSFiles names the PEM files of one end of a connection.
type TLSFiles = credential.TLSFiles

// Auth says how exporters prove who they are: by certificates of the authority in
// TLS.CA, by bearer tokens, or by either. A name is the same exporter in both.
type Auth struct {
	// TLS is the collector's certificate, and the authority of the exporters'. Without
	// a certificate the collector speaks in the clear.
	TLS TLSFiles
	// Tokens is a file of lines "NAME: SHA256 [EXPIRES]", read again when it changes.
	Tokens string
	// Anonymous takes everybody in as this exporter who shows no credential. It is meant
	// for loopback and tests; empty: nobody.
	Anonymous string
}

func (a *Auth) gate() credential.Config {
	return credential.Config{TLS: a.TLS, Clients: a.Tokens, Anonymous: credential.Peer{Name: a.Anonymous}}
}

// Check says what is wrong with it. It reads no file.
func (a *Auth) Check() error {
	g := a.gate()
	return g.Check()
}

// Exposed tells whether a listener beyond loopback is safe: everybody is known, and
// nothing can be read or changed on the way.
func (a *Auth) Exposed() error {
	g := a.gate()
	return g.Exposed()
}

// newGate tells exporters from each other.
func newGate(a *Auth, now func() time.Time, logger *slog.Logger, refuse func(Reason, ...slog.Attr)) (*credential.Gate, error) {
	g := a.gate()
	g.Now, g.Logger = now, logger
	g.Refuse = func(r credential.Reason, attrs ...slog.Attr) { refuse(Reason(r), attrs...) }
	return credential.NewGate(g)
}

// checkListen refuses addresses beyond loopback where that is not safe.
func (a *Auth) checkListen(address string, anyway bool) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("address to listen on: %w", err)
	}
	if credential.IsLoopback(host) {
		return nil
	}
	if err := a.Exposed(); err != nil && !anyway {
		return fmt.Errorf("listen on %s: beyond loopback, and %w", address, err)
	}
	return nil
}
