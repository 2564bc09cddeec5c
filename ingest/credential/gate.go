package credential

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"
)

// Config says how peers prove who they are: by certificates of the authority in TLS.CA, by
// the bearer tokens of a file, or by either. A name is the same peer in both.
type Config struct {
	// TLS is this end's certificate, and the authority of the peers'. Without a
	// certificate the listener speaks in the clear.
	TLS TLSFiles
	// Clients is the file of who may come, read again when it changes; see ReadClients.
	Clients string
	// Roles are those that the lines of the file name; none where they name none. With
	// roles, a certificate counts only where the file lists its name.
	Roles []string
	// Anonymous is who shows no credential; without a name nobody is let in that way.
	Anonymous Peer

	Now    func() time.Time
	Logger *slog.Logger
	// Refuse is told of each peer that is refused. It is safe for concurrent use.
	Refuse func(r Reason, attrs ...slog.Attr)
}

// Exposed tells whether a listener beyond loopback is safe: everybody is known, and
// nothing can be read or changed on the way.
func (c *Config) Exposed() error {
	switch {
	case c.TLS.Cert == "":
		return errors.New("no TLS certificate")
	case c.Anonymous.Name != "":
		return errors.New("peers without a credential are let in")
	case c.TLS.CA == "" && c.Clients == "":
		return errors.New("neither an authority for client certificates nor a token file")
	}
	return nil
}

// Peer is who the other end is.
type Peer struct {
	Name string
	Role string // empty where there are no roles
	How  How
}

// How is what a peer proved its name with.
type How string

// What there is. The zero value is no proof.
const (
	ByCertificate How = "certificate"
	ByToken       How = "token"
)

// Gate tells peers from each other and keeps others out. It is safe for concurrent use.
type Gate struct {
	c       Config
	tls     *Watched[Keys]     // nil: in the clear
	clients *Watched[*clients] // nil: none

	vouchers vouchers
}

// Check says what is wrong with the configuration. It reads no file.
func (c *Config) Check() error {
	if c.TLS.CA != "" && c.TLS.Cert == "" {
		return errors.New("tls: ca: an authority for client certificates needs a certificate of this end")
	}
	if c.Anonymous.Name != "" {
		if err := CheckName(c.Anonymous.Name); err != nil {
			return fmt.Errorf("anonymous: %w", err)
		}
	} else if c.TLS.CA == "" && c.Clients == "" {
		return errors.New("no way to tell peers apart: expected an authority for client certificates or a token file")
	}
	if err := c.TLS.Check(); err != nil {
		return fmt.Errorf("tls: %w", err)
	}
	return nil
}

// NewGate checks the configuration and reads the files.
func NewGate(c Config) (*Gate, error) {
	g := &Gate{c: c}
	err := c.Check()
	if err != nil {
		return nil, err
	}
	if g.tls, err = c.TLS.Watch(c.Now, c.Logger); err != nil {
		return nil, err
	}
	if c.Clients != "" {
		g.clients, err = Watch(func() (*clients, error) { return readClients(c.Clients, c.Roles) }, c.Now, c.Logger, c.Clients)
	}
	return g, err
}

// TLS is the configuration of the listener, nil for none. Certificates are those of the
// files at the moment of each handshake.
func (g *Gate) TLS() *tls.Config {
	if g.tls == nil || g.c.TLS.Cert == "" {
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
func (g *Gate) configFor(peer net.Addr) *tls.Config {
	k := g.tls.Get()
	c := &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		Certificates: []tls.Certificate{*k.Cert}, SessionTicketsDisabled: true,
	}
	if k.Pool == nil {
		return c
	}
	c.ClientAuth = tls.RequestClientCert
	c.VerifyConnection = func(cs tls.ConnectionState) error {
		if len(cs.PeerCertificates) == 0 {
			if g.clients != nil || g.c.Anonymous.Name != "" {
				return nil
			}
			g.c.Refuse(NoCredential, slog.String("peer", peer.String()))
			return &Error{Reason: NoCredential, Cause: errCertificate}
		}
		if _, refused := g.vouchers.verify(cs.PeerCertificates, k.Pool, g.c.Now()); refused != nil {
			g.c.Refuse(refused.Reason, describe(peer.String(), cs.PeerCertificates[0], refused)...)
			return refused
		}
		return nil
	}
	return c
}

var errCertificate = errors.New("expected a client certificate")

func describe(peer string, c *x509.Certificate, err error) []slog.Attr {
	return []slog.Attr{
		slog.String("peer", peer), slog.String("subject", Limited(c.Subject.String())), slog.String("issuer", Limited(c.Issuer.String())),
		slog.String("serial", c.SerialNumber.Text(16)), slog.Time("not_after", c.NotAfter), slog.String("error", Limited(err.Error())),
	}
}

// ErrUnknown is what a refused peer learns; the log says why.
var ErrUnknown = errors.New("no valid credential: expected a client certificate or a bearer token")

// Identify tells who a request comes from. A certificate is verified again, since
// connections outlive certificates and authorities. Its error is ErrUnknown.
func (g *Gate) Identify(r *http.Request) (Peer, error) {
	bearer, hasToken := bearerOf(r)
	var pool *x509.CertPool
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 && g.tls != nil {
		pool = g.tls.Get().Pool
	}
	switch {
	case pool != nil:
		return g.certified(r, pool)
	case hasToken && g.clients != nil:
		c, why, ok := g.clients.Get().find(bearer, g.c.Now())
		if !ok {
			g.c.Refuse(why, slog.String("peer", r.RemoteAddr), slog.String("name", c.name))
			return Peer{}, ErrUnknown
		}
		return Peer{Name: c.name, Role: c.role, How: ByToken}, nil
	case !hasToken && g.c.Anonymous.Name != "":
		return g.c.Anonymous, nil
	}
	g.c.Refuse(NoCredential, slog.String("peer", r.RemoteAddr), slog.Bool("token", hasToken))
	return Peer{}, ErrUnknown
}

// bearerOf is the token of a request. The scheme's case is free (RFC 9110, section 11.1).
func bearerOf(r *http.Request) (string, bool) {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	return token, ok && strings.EqualFold(scheme, "Bearer")
}

func (g *Gate) certified(r *http.Request, pool *x509.CertPool) (Peer, error) {
	leaf := r.TLS.PeerCertificates[0]
	name, refused := g.vouchers.verify(r.TLS.PeerCertificates, pool, g.c.Now())
	p := Peer{Name: name, How: ByCertificate}
	if refused == nil && len(g.c.Roles) > 0 {
		if g.clients != nil {
			p.Role = g.clients.Get().roles[name]
		}
		if p.Role == "" {
			refused = &Error{Reason: NoRole, Name: name}
		}
	}
	if refused != nil {
		g.c.Refuse(refused.Reason, describe(r.RemoteAddr, leaf, refused)...)
		return Peer{}, ErrUnknown
	}
	return p, nil
}

// Names are those in the file of clients.
func (g *Gate) Names() (names []string) {
	if g.clients == nil {
		return nil
	}
	for _, c := range g.clients.Get().tokens {
		names = append(names, c.name)
	}
	return names
}
