package edge

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"
)

// Auth configures how clients authenticate: by certificates that the authority in TLS.CA
// signed, by bearer tokens from a file, or by either. A name is the same client in both cases.
type Auth struct {
	// TLS names the server's certificate and the authority for client certificates. Without a
	// certificate the server uses plain HTTP.
	TLS TLSFiles
	// Clients is the file of names and tokens, reloaded when it changes. Its lines are "NAME: SHA256
	// [EXPIRES]" or, with Config.Access, "NAME: ROLE SHA256 [EXPIRES]" and "NAME: ROLE certificate".
	Clients string
	// Anonymous is the identity of clients without a credential. If its name is empty, such
	// clients are refused.
	Anonymous Peer
	// Allows reports whether a client of this name is admitted, whatever its credential; nil
	// admits every client. It is called for each request and periodically for open connections,
	// so its result may change. It must be safe for concurrent use.
	Allows func(name string) bool
}

// Peer is the client at the other end of a connection.
type Peer struct {
	Name       string
	Role       Role // empty if the server has no roles
	Credential CredentialKind
}

// CredentialKind is the kind of credential that proved a peer's name. The zero value means no
// proof.
type CredentialKind string

// The kinds of credential.
const (
	ByCertificate CredentialKind = "certificate"
	ByToken       CredentialKind = "token"
)

// Check validates the settings. It reads no file.
func (a *Auth) Check() error {
	if a.TLS.CA != "" && a.TLS.Cert == "" {
		return errors.New("tls: ca: an authority for client certificates needs a certificate of this end")
	}
	if a.Anonymous.Name != "" {
		if err := CheckName(a.Anonymous.Name); err != nil {
			return fmt.Errorf("anonymous: %w", err)
		}
	} else if a.TLS.CA == "" && a.Clients == "" {
		return errors.New("no way to tell clients apart: expected a file of tokens, an authority for their certificates (tls: ca), or on loopback a name for clients without a credential (anonymous)")
	}
	if err := a.TLS.Check(); err != nil {
		return fmt.Errorf("tls: %w", err)
	}
	return nil
}

// Exposed returns the reason an address beyond loopback is unsafe, as a clause: a client may be
// unidentified, or traffic can be read or changed on the way. It returns nil if neither holds.
func (a *Auth) Exposed() error {
	switch {
	case a == nil:
		return errors.New("there is no authentication")
	case a.TLS.Cert == "":
		return errors.New("there is no TLS certificate")
	case a.Anonymous.Name != "":
		return errors.New("clients without a credential are let in (anonymous)")
	case a.TLS.CA == "" && a.Clients == "":
		return errors.New("there is neither an authority for client certificates nor a token file")
	}
	return nil
}

// Reason says why a client is refused before it has an identity.
type Reason uint8

// The reasons.
const (
	NoCredential Reason = iota
	UnknownToken
	ExpiredToken
	ForeignCertificate // not signed by our authority, or not for clients
	ExpiredCertificate // or not valid yet
	NamelessCertificate
	NotListed     // valid credential whose name is on no list
	TooManyConns  // too many connections at a time
	Handshake     // TLS handshake that failed for a reason other than the certificate
	ForeignOrigin // request for a host other than this machine, or sent by a web page
	AddressConns  // too many connections from one address at a time
	DisplacedConn // connection without a valid credential, closed to make room for another

	// NumReasons is the number of reasons.
	NumReasons
)

var reasonNames = [NumReasons]string{
	"no_credential", "unknown_token", "expired_token", "foreign_certificate", "expired_certificate", "nameless_certificate", "not_listed",
	"connections", "handshake", "foreign_origin", "address_connections", "displaced_connection",
}

// String returns the name of the reason in metrics and logs, in snake case.
func (r Reason) String() string {
	if r < NumReasons {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason_%d", uint8(r))
}

// refusedPeer is the error for a refused client. Its text is for logs, not for the client.
type refusedPeer struct {
	reason Reason
	name   string // empty if unknown
	cause  error  // nil if none
}

func (e *refusedPeer) Error() string {
	text := "refuse client: " + e.reason.String()
	if e.name != "" {
		text += fmt.Sprintf(": %q", e.name)
	}
	if e.cause != nil {
		text += ": " + e.cause.Error()
	}
	return text
}

func (e *refusedPeer) Unwrap() error { return e.cause }

// Errors of Identify, worded for the refused client: they name the kind of credential that the server
// received, and its log has the reason.
var (
	ErrNone        = errors.New("no credential was sent: expected a client certificate or a bearer token")
	ErrToken       = errors.New("the token is unknown or has expired: the log of the server says which")
	ErrNoTokens    = errors.New("this server takes no tokens")
	ErrCertificate = errors.New("the client certificate is not accepted: the log of the server has the reason")
	ErrNotListed   = errors.New("the credential is valid, but no list of the server has its name")
)

// gate identifies peers and refuses unknown ones. It is safe for concurrent use.
type gate struct {
	auth    Auth
	roles   bool // a certificate counts only if the clients file gives its name a role
	now     func() time.Time
	refused func(Reason, ...slog.Attr) // of requests
	// refusedConn is called for connections that are refused in the handshake, or closed.
	refusedConn func(Reason, ...slog.Attr)
	keys        *watched[LoadedTLS] // nil: plain HTTP
	clients     *watched[*clients]  // nil: no file

	verified verified

	mu   sync.Mutex
	open map[*tls.Conn][]*x509.Certificate // connections with a client certificate
}

// newGate validates the configuration and loads the files.
func newGate(c *Config) (*gate, error) {
	g := &gate{auth: *c.Auth, roles: c.Access != nil, now: c.Now, refused: c.Refused}
	err := g.auth.Check()
	if err != nil {
		return nil, err
	}
	if g.keys, err = g.auth.TLS.watch(c.Now, c.Logger); err != nil {
		return nil, err
	}
	if g.auth.Clients != "" {
		g.clients, err = watch(func() (*clients, error) { return readClients(g.auth.Clients, g.roles) }, c.Now, c.Logger, g.auth.Clients)
	}
	return g, err
}

// tlsConfig returns the TLS configuration of the listener, nil for plain HTTP. Each handshake
// uses the certificates current at that time.
func (g *gate) tlsConfig() *tls.Config {
	if g == nil || g.keys == nil || g.auth.TLS.Cert == "" {
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

// configFor verifies certificates itself, because crypto/tls does not report the refused client
// and the reason for the log and the counters.
func (g *gate) configFor(peer net.Addr) *tls.Config {
	k := g.keys.get()
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
			if g.clients != nil || g.auth.Anonymous.Name != "" {
				return nil
			}
			g.refusedConn(NoCredential, slog.String("address", peer.String()))
			return &refusedPeer{reason: NoCredential, cause: errCertificate}
		}
		if _, refused := g.verified.verify(cs.PeerCertificates, k.Pool, g.now()); refused != nil {
			g.refusedConn(refused.reason, describe(peer.String(), cs.PeerCertificates[0], refused)...)
			return refused
		}
		return nil
	}
	return c
}

var errCertificate = errors.New("expected a client certificate")

func describe(peer string, c *x509.Certificate, err error) []slog.Attr {
	return []slog.Attr{
		slog.String("address", peer), slog.String("subject", Truncated(c.Subject.String())), slog.String("issuer", Truncated(c.Issuer.String())),
		slog.String("serial", c.SerialNumber.Text(16)), slog.Time("not_after", c.NotAfter), slog.String("error", Truncated(err.Error())),
	}
}

// Identify returns the peer that sent a request; see Server.Identify.
func (g *gate) Identify(r *http.Request) (Peer, error) {
	p, refused := g.identify(r)
	if refused == nil {
		if p.Credential != "" {
			authenticatedBy(r)
		}
		return p, nil
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		g.refused(refused.reason, describe(r.RemoteAddr, r.TLS.PeerCertificates[0], refused)...)
	} else {
		attrs := []slog.Attr{slog.String("address", r.RemoteAddr)}
		if refused.name != "" {
			attrs = append(attrs, slog.String("name", refused.name))
		}
		if refused.cause != nil {
			attrs = append(attrs, slog.String("error", refused.cause.Error()))
		}
		g.refused(refused.reason, attrs...)
	}
	return Peer{}, refused.answer()
}

// answer returns the error for the client.
func (e *refusedPeer) answer() error {
	switch e.reason {
	case NotListed:
		return fmt.Errorf("%w: %q", ErrNotListed, e.name)
	case NoCredential:
		return ErrNone
	case UnknownToken, ExpiredToken:
		return cmp.Or(e.cause, ErrToken)
	default:
		return ErrCertificate
	}
}

func (g *gate) identify(r *http.Request) (Peer, *refusedPeer) {
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 && g.auth.TLS.CA != "" {
		return g.certified(r.TLS.PeerCertificates)
	}
	// The scheme is case-insensitive (RFC 9110, section 11.1).
	scheme, bearer, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	hasToken := ok && strings.EqualFold(scheme, "Bearer")
	switch {
	case hasToken && g.clients != nil:
		c, why, ok := g.clients.get().find(bearer, g.now())
		if !ok {
			return Peer{}, &refusedPeer{reason: why, name: c.name}
		}
		return g.allowed(Peer{Name: c.name, Role: c.role, Credential: ByToken})
	case hasToken:
		return Peer{}, &refusedPeer{reason: UnknownToken, cause: ErrNoTokens}
	case g.auth.Anonymous.Name != "":
		return g.allowed(g.auth.Anonymous)
	}
	return Peer{}, &refusedPeer{reason: NoCredential}
}

// certified returns the peer of a certificate chain, by the current files and lists.
func (g *gate) certified(chain []*x509.Certificate) (Peer, *refusedPeer) {
	name, refused := g.verified.verify(chain, g.keys.get().Pool, g.now())
	if refused != nil {
		return Peer{}, refused
	}
	p := Peer{Name: name, Credential: ByCertificate}
	if g.roles {
		if g.clients != nil {
			p.Role = g.clients.get().roles[name]
		}
		if p.Role == "" {
			return Peer{}, &refusedPeer{reason: NotListed, name: name}
		}
	}
	return g.allowed(p)
}

func (g *gate) allowed(p Peer) (Peer, *refusedPeer) {
	if g.auth.Allows != nil && !g.auth.Allows(p.Name) {
		return Peer{}, &refusedPeer{reason: NotListed, name: p.Name}
	}
	return p, nil
}

// sweepEvery is the interval between checks of open connections. Together with watchEvery, it
// closes the connection of an invalid certificate within 3 s.
const sweepEvery = 2 * time.Second

// run closes connections whose certificate is no longer valid or whose name is no longer
// admitted, until ctx ends. It knows the connections of the http.Server that uses connState as
// its hook.
func (g *gate) run(ctx context.Context) {
	tick := time.Tick(sweepEvery)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
			g.sweep()
		}
	}
}

// sweep closes the sockets below TLS, so that no peer can delay the sweep.
func (g *gate) sweep() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for conn, chain := range g.open {
		if _, refused := g.certified(chain); refused != nil {
			g.refusedConn(refused.reason, describe(conn.RemoteAddr().String(), chain[0], refused)...)
			conn.NetConn().Close()
			delete(g.open, conn)
		}
	}
}

// connState is a hook for http.Server.
func (g *gate) connState(c net.Conn, state http.ConnState) {
	conn, ok := c.(*tls.Conn)
	if !ok || g.auth.TLS.CA == "" {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch state {
	case http.StateActive: // first request after the handshake
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

// names returns the names that have a token.
func (g *gate) names() []string {
	if g.clients == nil {
		return nil
	}
	return g.clients.get().names
}

// MaxNameBytes is the maximum length of a name in bytes.
const MaxNameBytes = 256

// CheckName rejects names that would garble a log or a metric.
func CheckName(name string) error {
	if name == "" || len(name) > MaxNameBytes || !utf8.ValidString(name) {
		return fmt.Errorf("name %.64q: expected 1 to %d bytes of UTF-8", name, MaxNameBytes)
	}
	for _, r := range name {
		if !unicode.IsPrint(r) {
			return fmt.Errorf("name %.64q: expected printable characters", name)
		}
	}
	return nil
}

// Truncated returns untrusted text, truncated for a log line.
func Truncated(s string) string {
	if len(s) > MaxNameBytes {
		return s[:MaxNameBytes] + "..."
	}
	return s
}

// IsLoopback reports whether only this machine can reach a host.
func IsLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// InClear reports whether traffic to a URL can be read and changed on the way.
func InClear(u *url.URL) bool { return u.Scheme == "http" && !IsLoopback(u.Hostname()) }

// checkLoopback rejects a request for any host other than loopback. It is for listeners on
// loopback: otherwise a web site that points its own name at 127.0.0.1 could reach them through
// the browser of a visitor on this machine.
func checkLoopback(r *http.Request) error {
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if !IsLoopback(strings.Trim(host, "[]")) {
		return fmt.Errorf("this address is on loopback, and the request is for host %.100q: expected localhost or 127.0.0.1", host)
	}
	return nil
}
