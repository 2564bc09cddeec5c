package edge_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/csigscope/csigscope/ingest/edge"
	"github.com/csigscope/csigscope/ingest/edge/edgetest"
)

// crowd holds the connections of a test to one server, from any loopback address.
type crowd struct {
	t      *testing.T
	server *edge.Server
	tls    *tls.Config // nil: plain HTTP

	mu      sync.Mutex
	refused map[edge.Reason]int
}

func newCrowd(t *testing.T, cfg edge.Config) *crowd {
	c := &crowd{t: t, refused: map[edge.Reason]int{}}
	cfg.Refused = func(r edge.Reason, _ ...slog.Attr) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.refused[r]++
	}
	var s *edge.Server
	s, _ = serve(t, cfg, "127.0.0.1:0", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := s.Identify(r); err != nil {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	c.server = s
	return c
}

func (c *crowd) count(r edge.Reason) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused[r]
}

// connect opens an idle connection from 127.0.0.HOST.
func (c *crowd) connect(host int) net.Conn {
	c.t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(host))}}
	conn, err := d.DialContext(c.t.Context(), "tcp", c.server.Addr().String())
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { conn.Close() })
	return conn
}

// client is a connection that sends requests.
type client struct {
	net.Conn
	in *bufio.Reader
}

func (c *crowd) client(host int) *client {
	conn := c.connect(host)
	if c.tls != nil {
		conn = tls.Client(conn, c.tls)
	}
	return &client{conn, bufio.NewReader(conn)}
}

// ask sends a request, with the token unless it is empty, and returns the status; 0 if the
// connection is closed.
func (c *client) ask(token string) int {
	header := ""
	if token != "" {
		header = "Authorization: Bearer " + token + "\r\n"
	}
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: localhost\r\n"+header+"\r\n"); err != nil {
		return 0
	}
	answer, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, answer.Body)
	answer.Body.Close()
	return answer.StatusCode
}

// closed waits until the server has closed a connection.
func closed(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

func withToken(t *testing.T, role string) *edge.Auth {
	file := filepath.Join(t.TempDir(), "tokens")
	edgetest.WriteTokens(t, file, edgetest.TokenLine("client", role, "secret", ""))
	return &edge.Auth{Clients: file}
}

// withCertificates returns a server's Auth that requires certificates, and a client's TLS
// configuration.
func withCertificates(t *testing.T) (*edge.Auth, *tls.Config) {
	ca := edgetest.NewAuthority(t)
	files := ca.Issue("exporter", time.Now().Add(time.Hour))
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	return &edge.Auth{TLS: ca.Server()}, &tls.Config{RootCAs: ca.Pool(), ServerName: "127.0.0.1", Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
}

// TestFloods: floods of unproven connections, from one address or many, leave room for new and
// existing clients that authenticate, with and without TLS.
func TestFloods(t *testing.T) {
	const slots = 64 // 16 for an address without a credential
	for _, by := range []string{"token", "token and role", "certificate"} {
		t.Run(by, func(t *testing.T) {
			cfg, token, connection := edge.Config{MaxConns: slots}, "", (*tls.Config)(nil)
			switch by {
			case "certificate":
				cfg.Auth, connection = withCertificates(t)
			case "token and role":
				cfg.Access, cfg.Auth, token = &edge.Access{}, withToken(t, "read"), "secret"
			default:
				cfg.Auth, token = withToken(t, ""), "secret"
			}
			c := newCrowd(t, cfg)
			c.tls = connection
			early := c.client(2)
			if got := early.ask(token); got != http.StatusOK {
				t.Fatalf("a client before the flood: %d", got)
			}
			for range 20 {
				c.connect(3)
			}
			for c.count(edge.AddressConns) < 4 {
				time.Sleep(time.Millisecond)
			}
			if n := c.count(edge.DisplacedConn); n > 0 {
				t.Errorf("%d connections are displaced by one address", n)
			}
			for i := range 3 * slots {
				c.connect(10 + i%50)
			}
			for c.count(edge.DisplacedConn) < 3*slots+16+1-slots {
				time.Sleep(time.Millisecond)
			}
			late := c.client(4)
			for i := range 2 * slots {
				if got := late.ask(token); got != http.StatusOK {
					t.Fatalf("a client in the flood, request %d: %d", i, got)
				}
				c.connect(60 + i%50)
			}
			if got := early.ask(token); got != http.StatusOK {
				t.Errorf("the client before the flood, later: %d", got)
			}
			if n := c.count(edge.TooManyConns); n > 0 {
				t.Errorf("%d connections are refused: expected that others give way", n)
			}
		})
	}
}

// TestAuthenticatedSlots: authenticated clients cannot take the slots reserved for authentication,
// and one address cannot take all slots.
func TestAuthenticatedSlots(t *testing.T) {
	const slots = 64 // 48 for authenticated connections, 32 for an address
	c := newCrowd(t, edge.Config{MaxConns: slots, Auth: withToken(t, "")})
	var there []*client
	for i := range 32 {
		there = append(there, c.client(2))
		if got := there[i].ask("secret"); got != http.StatusOK {
			t.Fatalf("client %d of one address: %d", i, got)
		}
	}
	closed(c.connect(2))
	if n := c.count(edge.AddressConns); n != 1 {
		t.Errorf("%d connections are refused for their address, want 1", n)
	}
	for i := range 32 {
		there = append(there, c.client(3+i%4))
		if got := there[32+i].ask("secret"); got != http.StatusOK {
			t.Fatalf("client %d: %d", 32+i, got)
		}
	}
	// All slots are taken. New clients displace the authenticated ones beyond three quarters and
	// are served.
	for i := range slots {
		if got := c.client(10 + i).ask("secret"); got != http.StatusOK {
			t.Fatalf("newcomer %d: %d", i, got)
		}
	}
	for i, one := range there {
		want := http.StatusOK
		if i >= slots/4*3 {
			want = 0
		}
		if got := one.ask("secret"); got != want {
			t.Errorf("client %d: %d, want %d", i, got, want)
		}
	}
	// A freed slot can be authenticated again.
	there[0].Close()
	for c.client(100).ask("secret") != http.StatusOK || c.count(edge.TooManyConns) > 0 {
		t.Fatal("no place is free")
	}
}

// TestWrongCredentialsProveNothing: a connection whose requests are refused gives way.
func TestWrongCredentialsProveNothing(t *testing.T) {
	c := newCrowd(t, edge.Config{MaxConns: 2, Auth: withToken(t, "")})
	wrong := []*client{c.client(2), c.client(3)}
	for _, one := range wrong {
		if got := one.ask("guess"); got != http.StatusUnauthorized {
			t.Fatal(got)
		}
	}
	for range 2 {
		if got := c.client(4).ask("secret"); got != http.StatusOK {
			t.Fatal(got)
		}
	}
	for _, one := range wrong {
		if got := one.ask("guess"); got != 0 {
			t.Errorf("status %d, want the connection closed", got)
		}
	}
	if got := c.client(5).ask("secret"); got != 0 && got != http.StatusServiceUnavailable || c.count(edge.TooManyConns) != 1 {
		t.Errorf("status %d, %d refused: authenticated connections gave way", got, c.count(edge.TooManyConns))
	}
	if text := fmt.Sprint(edge.AddressConns, edge.DisplacedConn); !strings.Contains(text, "address_connections") || !strings.Contains(text, "displaced_connection") {
		t.Error(text)
	}
}

// TestRefusedConnectionsAreCounted: a server with Access counts them with its requests.
func TestRefusedConnectionsAreCounted(t *testing.T) {
	d, _ := serve(t, edge.Config{MaxConns: 2, Auth: &edge.Auth{Anonymous: edge.Peer{Name: "anonymous", Role: edge.Read}}, Access: &edge.Access{}}, "127.0.0.1:0", answered)
	c := &crowd{t: t, server: d}
	for range 2 {
		if got := c.client(2).ask(""); got != http.StatusOK {
			t.Fatal(got)
		}
	}
	closed(c.connect(3))
	if got := d.Stats().Refused; got["connections"] != 1 || got["displaced_connection"] != 0 {
		t.Errorf("%v: nobody can prove anything here, so nobody gives way", got)
	}
}
