package credential

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
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
	// Allows tells whether a peer of this name may come in, however it proved it; nil:
	// every peer may. It is asked again for each request, and while a connection is open, so
	// what it answers may change. It is safe for concurrent use.
	Allows func(name string) bool

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

	mu   sync.Mutex
	open map[*tls.Conn][]*x509.Certificate // connections of peers that showed a certificate
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

// What a refused peer learns; the log says more.
var (
	ErrUnknown   = errors.New("no valid credential: expected a client certificate or a bearer token")
	ErrNotListed = errors.New("the credential is valid, and no list here has its name")
)

// Identify returns the peer that a request comes from. Certificates are verified again, since
// connections outlive certificates, authorities and lists. Its error is ErrUnknown or
// ErrNotListed.
func (g *Gate) Identify(r *http.Request) (Peer, error) {
	p, refused := g.identify(r)
	if refused == nil {
		return p, nil
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		g.c.Refuse(refused.Reason, describe(r.RemoteAddr, r.TLS.PeerCertificates[0], refused)...)
	} else {
		g.c.Refuse(refused.Reason, slog.String("peer", r.RemoteAddr), slog.String("name", refused.Name))
	}
	if refused.Reason == NotListed {
		return Peer{}, ErrNotListed
	}
	return Peer{}, ErrUnknown
}

func (g *Gate) identify(r *http.Request) (Peer, *Error) {
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 && g.c.TLS.CA != "" {
		return g.certified(r.TLS.PeerCertificates)
	}
	bearer, hasToken := bearerOf(r)
	switch {
	case hasToken && g.clients != nil:
		c, why, ok := g.clients.Get().find(bearer, g.c.Now())
		if !ok {
			return Peer{}, &Error{Reason: why, Name: c.name}
		}
		return g.allowed(Peer{Name: c.name, Role: c.role, How: ByToken})
	case !hasToken && g.c.Anonymous.Name != "":
		return g.allowed(g.c.Anonymous)
	}
	return Peer{}, &Error{Reason: NoCredential}
}

// certified returns the peer of a certificate chain as files and lists are now.
func (g *Gate) certified(chain []*x509.Certificate) (Peer, *Error) {
	name, refused := g.vouchers.verify(chain, g.tls.Get().Pool, g.c.Now())
	if refused != nil {
		return Peer{}, refused
	}
	p := Peer{Name: name, How: ByCertificate}
	if len(g.c.Roles) > 0 {
		if g.clients != nil {
			p.Role = g.clients.Get().roles[name]
		}
		if p.Role == "" {
			return Peer{}, &Error{Reason: NotListed, Name: name}
		}
	}
	return g.allowed(p)
}

func (g *Gate) allowed(p Peer) (Peer, *Error) {
	if g.c.Allows != nil && !g.c.Allows(p.Name) {
		return Peer{}, &Error{Reason: NotListed, Name: p.Name}
	}
	return p, nil
}

// sweepEvery is how often open connections are looked at. With watchEvery, a certificate that
// holds no longer is cut off within 3 s.
const sweepEvery = 2 * time.Second

// Run cuts connections whose certificate holds no longer, or whose name is no longer let in,
// until ctx ends. It knows those of the http.Server whose hook ConnState is.
func (g *Gate) Run(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			g.sweep()
		}
	}
}

// sweep closes the sockets below TLS, so that no peer holds up the others.
func (g *Gate) sweep() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for conn, chain := range g.open {
		if _, refused := g.certified(chain); refused != nil {
			g.c.Refuse(refused.Reason, describe(conn.RemoteAddr().String(), chain[0], refused)...)
			conn.NetConn().Close()
			delete(g.open, conn)
		}
	}
}

// ConnState is a hook for http.Server.
func (g *Gate) ConnState(c net.Conn, state http.ConnState) {
	conn, ok := c.(*tls.Conn)
	if !ok || g.c.TLS.CA == "" {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch state {
	case http.StateActive: // the first request has come, after the handshake
		if _, known := g.open[conn]; known {
			return
		}
		if chain := conn.ConnectionState().PeerCertificates; len(chain) > 0 {
			if g.open == nil {
				g.open = make(map[*tls.Conn][]*x509.Certificate)
			}
			g.open[conn] = chain
		}
	case http.StateClosed, http.StateHijacked:
		delete(g.open, conn)
	default:
	}
}

// bearerOf is the token of a request. The scheme's case is free (RFC 9110, section 11.1).
func bearerOf(r *http.Request) (string, bool) {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	return token, ok && strings.EqualFold(scheme, "Bearer")
}

// Names returns the names that tokens are given to.
func (g *Gate) Names() []string {
	if g.clients == nil {
		return nil
	}
	return g.clients.Get().names
}
