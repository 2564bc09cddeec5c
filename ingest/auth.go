package ingest

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
)

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

// Exposed tells whether a listener beyond loopback is safe: everybody is known, and
// nothing can be read or changed on the way.
func (a *Auth) Exposed() error {
	switch {
	case a.TLS.Cert == "":
		return errors.New("no TLS certificate")
	case a.Anonymous != "":
		return errors.New("exporters without a credential are let in")
	case a.TLS.CA == "" && a.Tokens == "":
		return errors.New("neither an authority for client certificates nor a token file")
	}
	return nil
}

// gate tells exporters from each other and keeps others out.
type gate struct {
	o      Auth
	tls    *watched[keys]    // nil: in the clear
	tokens *watched[[]token] // nil: none
	now    func() time.Time
	refuse func(r Reason, attrs ...slog.Attr)

	vouchers vouchers
}

func newGate(o Auth, now func() time.Time, logger *slog.Logger, refuse func(Reason, ...slog.Attr)) (*gate, error) {
	g := &gate{o: o, now: now, refuse: refuse}
	if o.TLS.CA != "" && o.TLS.Cert == "" {
		return nil, errors.New("an authority for client certificates needs a certificate of the collector")
	}
	if o.Anonymous != "" {
		if err := checkName(o.Anonymous); err != nil {
			return nil, err
		}
	} else if o.TLS.CA == "" && o.Tokens == "" {
		return nil, errors.New("no way to tell exporters apart: expected an authority for client certificates or a token file")
	}
	var err error
	if g.tls, err = o.TLS.watch(now, logger); err != nil {
		return nil, err
	}
	if o.Tokens != "" {
		g.tokens, err = newWatched(func() ([]token, error) { return readTokens(o.Tokens) }, now, logger, o.Tokens)
	}
	return g, err
}

// config is the TLS configuration, nil for none.
func (g *gate) config() *tls.Config {
	if g.tls == nil {
		return nil
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			return g.configFor(hello.Conn.RemoteAddr()), nil
		},
	}
}

// configFor verifies by itself, so that who is refused is known: crypto/tls would not
// tell.
func (g *gate) configFor(peer net.Addr) *tls.Config {
	k := g.tls.get()
	c := &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		Certificates: []tls.Certificate{*k.cert}, SessionTicketsDisabled: true,
	}
	if k.pool == nil {
		return c
	}
	c.ClientAuth = tls.RequestClientCert
	c.VerifyConnection = func(cs tls.ConnectionState) error {
		if len(cs.PeerCertificates) == 0 {
			if g.tokens != nil || g.o.Anonymous != "" {
				return nil
			}
			g.refuse(ReasonNoCredential, slog.String("peer", peer.String()))
			return errors.New("expected a client certificate")
		}
		if _, refused := g.vouchers.verify(cs.PeerCertificates, k.pool, g.now()); refused != nil {
			g.refuse(refused.reason, g.describe(peer.String(), cs.PeerCertificates[0], refused)...)
			return refused
		}
		return nil
	}
	return c
}

func (g *gate) describe(peer string, c *x509.Certificate, err error) []slog.Attr {
	return []slog.Attr{
		slog.String("peer", peer), slog.String("subject", limited(c.Subject.String())), slog.String("issuer", limited(c.Issuer.String())),
		slog.String("serial", c.SerialNumber.Text(16)), slog.Time("not_after", c.NotAfter), slog.String("error", limited(err.Error())),
	}
}

// limited bounds what a stranger can write into a log line.
func limited(s string) string {
	if len(s) > maxNameBytes {
		return s[:maxNameBytes] + "..."
	}
	return s
}

// errUnknown is what a refused peer learns; the log says why.
var errUnknown = errors.New("no valid credential: expected a client certificate or a bearer token")

// identify tells who a request comes from. A certificate is verified again, since
// connections outlive certificates and authorities.
func (g *gate) identify(r *http.Request) (string, error) {
	bearer, hasToken := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	var pool *x509.CertPool
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 && g.tls != nil {
		pool = g.tls.get().pool
	}
	if pool != nil {
		name, refused := g.vouchers.verify(r.TLS.PeerCertificates, pool, g.now())
		if refused != nil {
			g.refuse(refused.reason, g.describe(r.RemoteAddr, r.TLS.PeerCertificates[0], refused)...)
			return "", errUnknown
		}
		return name, nil
	}
	if hasToken && g.tokens != nil {
		name, why, ok := findToken(g.tokens.get(), bearer, g.now())
		if !ok {
			g.refuse(why, slog.String("peer", r.RemoteAddr), slog.String("exporter", name))
			return "", errUnknown
		}
		return name, nil
	}
	if g.o.Anonymous != "" && !hasToken {
		return g.o.Anonymous, nil
	}
	g.refuse(ReasonNoCredential, slog.String("peer", r.RemoteAddr), slog.Bool("token", hasToken))
	return "", errUnknown
}

// expected are the names that are to come: those given, and those with tokens.
func (g *gate) expected(names []string) []string {
	if g.tokens == nil {
		return names
	}
	names = slices.Clone(names)
	for _, t := range g.tokens.get() {
		names = append(names, t.name)
	}
	return names
}

// checkListen refuses addresses beyond loopback where that is not safe.
func (a *Auth) checkListen(address string, anyway bool) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("address to listen on: %w", err)
	}
	if isLoopback(host) {
		return nil
	}
	if err := a.Exposed(); err != nil && !anyway {
		return fmt.Errorf("listen on %s: beyond loopback, and %w", address, err)
	}
	return nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
