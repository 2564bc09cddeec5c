package edge_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/csigscope/csigscope/ingest/edge"
	"github.com/csigscope/csigscope/ingest/edge/edgetest"
)

var everybody = &edge.Auth{Anonymous: edge.Peer{Name: "anonymous", Role: edge.Read}}

// serve serves h at the address until the test ends or end is called; by then all requests are
// answered and counted.
func serve(t *testing.T, cfg edge.Config, address string, h http.Handler) (d *edge.Server, end func()) {
	t.Helper()
	cfg.Exposed = true
	d, err := edge.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Listen(t.Context(), address, "--listen"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := d.Serve(ctx, h); err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	end = func() {
		cancel()
		serving.Wait()
	}
	t.Cleanup(end)
	return d, end
}

// ask returns the status and the HTTP major version of a response; 0 if there was none.
func ask(t *testing.T, c *http.Client, url, token, host string) (status, major int) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Error(err)
		return 0, 0
	}
	if r.Host = host; token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := c.Do(r)
	if err != nil {
		t.Errorf("%s: %v", url, err)
		return 0, 0
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, answer.ProtoMajor
}

func plain(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

var answered = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "answer") })

// TestCredentials: clients send requests concurrently over HTTP/2 while settings change and the
// counters are read. Clients with a token or a listed certificate are answered; others get open
// files only. The log names each client and contains no token.
func TestCredentials(t *testing.T) {
	t.Parallel()
	ca := edgetest.NewAuthority(t)
	noc, stranger := ca.Issue("noc.example", time.Now().Add(time.Hour)), ca.Issue("stranger", time.Now().Add(time.Hour))
	clients := filepath.Join(t.TempDir(), "clients")
	edgetest.WriteTokens(t, clients, edgetest.TokenLine("te", "read", "sesame", ""), "noc.example: admin certificate")
	var log bytes.Buffer // locked by the logger, read after the server has ended
	mux := http.NewServeMux()
	mux.Handle("/answer", answered)
	mux.Handle("/file", answered)
	d, end := serve(t, edge.Config{
		Auth:   &edge.Auth{TLS: ca.Server(), Clients: clients},
		Access: &edge.Access{Open: func(r *http.Request) bool { return r.URL.Path == "/file" }},
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	}, "127.0.0.1:0", mux)
	if !strings.HasPrefix(d.URL(), "https://") {
		t.Fatalf("at %s", d.URL())
	}
	const each = 10
	codes := make(map[string]map[int]uint64)
	var running sync.WaitGroup
	for _, client := range []struct {
		path, token string
		shown       edge.TLSFiles
		want        int
	}{
		{"/answer", "sesame", edge.TLSFiles{}, http.StatusOK},
		{"/answer", "", noc, http.StatusOK},
		{"/answer", "open", edge.TLSFiles{}, http.StatusUnauthorized},
		{"/answer", "", stranger, http.StatusUnauthorized},
		{"/answer", "", edge.TLSFiles{}, http.StatusUnauthorized},
		{"/file", "", edge.TLSFiles{}, http.StatusOK},
	} {
		name := client.path
		if client.want == http.StatusUnauthorized {
			name = "other" // refused before a handler's pattern is known
		}
		if codes[name] == nil {
			codes[name] = make(map[int]uint64)
		}
		codes[name][client.want] += each
		config := &tls.Config{RootCAs: ca.Pool()}
		if client.shown.Cert != "" {
			pair, err := tls.LoadX509KeyPair(client.shown.Cert, client.shown.Key)
			if err != nil {
				t.Fatal(err)
			}
			config.Certificates = []tls.Certificate{pair}
		}
		transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
		t.Cleanup(transport.CloseIdleConnections)
		running.Go(func() {
			for range each {
				if status, major := ask(t, &http.Client{Transport: transport}, d.URL()+client.path, client.token, ""); status != client.want || major != 2 {
					t.Errorf("%s with %q, %q: %d over HTTP/%d, want %d", client.path, client.token, client.shown.Cert, status, major, client.want)
				}
			}
		})
	}
	running.Go(func() {
		for n := range each {
			if err := d.Use(edge.Settings{Limits: edge.Limits{Requests: float64(1000 + n)}}); err != nil {
				t.Error(err)
			}
			d.Stats()
		}
	})
	running.Wait()
	end()
	stats := d.Stats()
	if stats.Running != 0 || len(stats.Endpoints) != len(codes) {
		t.Errorf("%+v", stats)
	}
	for _, e := range stats.Endpoints {
		for code, n := range codes[e.Name] {
			if e.Codes[code] != n {
				t.Errorf("%s: %d times %d, want %d: %v", e.Name, e.Codes[code], code, n, e.Codes)
			}
		}
	}
	for _, want := range []string{
		"who=te role=read by=token", "who=noc.example role=admin by=certificate", "reason=unknown_token", "reason=not_listed", "CN=stranger",
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %q", want)
		}
	}
	if strings.Contains(log.String(), "sesame") {
		t.Error("a token is in the log")
	}
}

// TestWrongBesideGood: a valid credential is accepted from an address that sends any number of
// wrong certificates and tokens.
func TestWrongBesideGood(t *testing.T) {
	t.Parallel()
	ca, foreign, hour := edgetest.NewAuthority(t), edgetest.NewAuthority(t), time.Now().Add(time.Hour)
	clients := filepath.Join(t.TempDir(), "clients")
	edgetest.WriteTokens(t, clients, edgetest.TokenLine("te", "read", "sesame", ""), "noc.example: admin certificate")
	d, _ := serve(t, edge.Config{
		Auth: &edge.Auth{TLS: ca.Server(), Clients: clients}, Access: &edge.Access{},
	}, "0.0.0.0:0", answered)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(d.URL(), "https://"))
	if err != nil {
		t.Fatal(err)
	}
	url := "https://127.0.0.1:" + port
	client := func(shown edge.TLSFiles, dials *atomic.Uint64) *http.Client {
		t.Helper()
		files := edge.TLSFiles{Cert: shown.Cert, Key: shown.Key, CA: ca.File}
		dial := func(ctx context.Context, network, address string) (net.Conn, error) {
			dials.Add(1)
			return new(net.Dialer).DialContext(ctx, network, address)
		}
		c, err := edge.NewClient(&http.Transport{ForceAttemptHTTP2: true, DialContext: dial}, files, "", time.Now, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.CloseIdleConnections)
		return c
	}
	var good, wrong atomic.Uint64
	nobody, stranger := client(edge.TLSFiles{}, &good), client(foreign.Issue("noc.example", hour), &wrong)
	unlisted, noc := client(ca.Issue("printer", hour), &good), client(ca.Issue("noc.example", hour), &good)
	held := 0
	for range 100 {
		if answer, err := stranger.Get(url); err == nil {
			answer.Body.Close()
			t.Fatal("a certificate of another authority is taken")
		}
		for _, c := range []*http.Client{nobody, unlisted} {
			switch status, _ := ask(t, c, url, "guess", ""); status {
			case http.StatusUnauthorized:
			case http.StatusTooManyRequests:
				held++
			default:
				t.Fatalf("a wrong credential: %d", status)
			}
		}
		if status, _ := ask(t, nobody, url, "sesame", ""); status != http.StatusOK {
			t.Fatalf("a good token: %d", status)
		}
		if status, _ := ask(t, noc, url, "", ""); status != http.StatusOK {
			t.Fatalf("a good certificate: %d", status)
		}
	}
	if held == 0 {
		t.Error("no wrong credential is held back")
	}
	// A request whose connection is refused early may try another.
	if n := d.Stats().Refused["foreign_certificate"]; n < 100 || n > wrong.Load() {
		t.Errorf("%d connections with a certificate of another authority are counted, want 100 to %d", n, wrong.Load())
	}
}

// TestRevokedConnection: a connection is cut when its certificate is no longer listed.
func TestRevokedConnection(t *testing.T) {
	t.Parallel()
	ca, clients := edgetest.NewAuthority(t), filepath.Join(t.TempDir(), "clients")
	edgetest.WriteTokens(t, clients, "noc.example: admin certificate")
	d, _ := serve(t, edge.Config{
		Auth: &edge.Auth{TLS: ca.Server(), Clients: clients}, Access: &edge.Access{},
	}, "127.0.0.1:0", answered)
	files := ca.Issue("noc.example", time.Now().Add(time.Hour))
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := tls.Dial("tcp", strings.TrimPrefix(d.URL(), "https://"), &tls.Config{RootCAs: ca.Pool(), Certificates: []tls.Certificate{pair}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	answer := bufio.NewReader(conn)
	if r, err := http.ReadResponse(answer, nil); err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("%v, %v", r, err)
	} else if _, err := io.Copy(io.Discard, r.Body); err != nil {
		t.Fatal(err)
	}
	edgetest.WriteTokens(t, clients, "other.example: admin certificate")
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil { // an idle connection would end after 2 minutes
		t.Fatal(err)
	}
	if more, err := io.ReadAll(answer); len(more) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%q, %v: want a connection that is cut", more, err)
	}
	if n := d.Stats().Refused["not_listed"]; n != 1 {
		t.Errorf("%d cut connections are counted, want 1", n)
	}
}

// TestUse: limits hold, and new ones apply after Use.
func TestUse(t *testing.T) {
	t.Parallel()
	limits := func(perSecond float64) edge.Settings {
		return edge.Settings{Limits: edge.Limits{Requests: perSecond}}
	}
	// One request, and the next one after 1000 s.
	d, _ := serve(t, edge.Config{Auth: everybody, Access: &edge.Access{Settings: limits(0.001)}}, "127.0.0.1:0", answered)
	c := plain(t)
	for i, want := range []int{http.StatusOK, http.StatusTooManyRequests, http.StatusTooManyRequests} {
		if status, _ := ask(t, c, d.URL(), "", ""); status != want {
			t.Errorf("request %d: %d, want %d", i, status, want)
		}
	}
	if err := d.Use(limits(-1)); err == nil {
		t.Error("a limit below 0 is in force")
	}
	if err := d.Use(limits(100)); err != nil {
		t.Fatal(err)
	}
	if status, _ := ask(t, c, d.URL(), "", ""); status != http.StatusOK {
		t.Errorf("with other limits: %d", status)
	}
}

// TestLocal: a server on loopback refuses requests under foreign names and counts them; other
// servers answer.
func TestLocal(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]int{"127.0.0.1:0": http.StatusForbidden, "0.0.0.0:0": http.StatusOK} {
		d, end := serve(t, edge.Config{Auth: everybody, Access: &edge.Access{}}, address, answered)
		_, port, err := net.SplitHostPort(strings.TrimPrefix(d.URL(), "http://"))
		if err != nil {
			t.Fatal(err)
		}
		for host, want := range map[string]int{"evil.example": want, "localhost": http.StatusOK} {
			if status, _ := ask(t, plain(t), "http://127.0.0.1:"+port, "", host); status != want {
				t.Errorf("%s as %s: %d, want %d", address, host, status, want)
			}
		}
		end()
		if n := d.Stats().Refused["foreign_origin"]; (n == 1) != (want == http.StatusForbidden) {
			t.Errorf("%s: %d counted", address, n)
		}
	}
}

// TestServeEnds: when serving ends, a running request is still answered, and no new one is.
func TestServeEnds(t *testing.T) {
	t.Parallel()
	asked, proceed := make(chan struct{}), make(chan struct{})
	d, end := serve(t, edge.Config{Auth: everybody, Access: &edge.Access{}}, "127.0.0.1:0", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(asked)
		<-proceed
		answered.ServeHTTP(w, r)
	}))
	var both sync.WaitGroup
	both.Go(func() {
		if status, _ := ask(t, plain(t), d.URL(), "", ""); status != http.StatusOK {
			t.Errorf("while serving ended: %d", status)
		}
	})
	<-asked
	both.Go(end)
	var dialer net.Dialer
	for begun := time.Now(); ; time.Sleep(time.Millisecond) {
		conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(d.URL(), "http://"))
		if err != nil {
			break
		}
		conn.Close()
		if time.Since(begun) > time.Minute {
			t.Error("the address stays open")
			break
		}
	}
	close(proceed)
	both.Wait()
	if err := d.Close(); err != nil {
		t.Errorf("closed again: %v", err)
	}
}

// TestCutOff: requests that outlast the grace period are cut off without an error, and this is
// logged.
func TestCutOff(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer // read after the server has ended
	asked := make(chan struct{})
	s, end := serve(t, edge.Config{Grace: time.Millisecond, Logger: slog.New(slog.NewTextHandler(&log, nil))}, "127.0.0.1:0",
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			close(asked)
			<-r.Context().Done()
		}))
	var client sync.WaitGroup
	client.Go(func() {
		if answer, err := plain(t).Get(s.URL()); err == nil {
			answer.Body.Close()
			t.Errorf("status %d, want a connection that is cut", answer.StatusCode)
		}
	})
	<-asked
	end()
	client.Wait()
	if !strings.Contains(log.String(), "requests were cut off") {
		t.Errorf("logged %q", log.String())
	}
}

// TestPanics: a panic in a handler is logged, and again only after a while.
func TestPanics(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer // locked by the logger, read after the server has ended
	s, end := serve(t, edge.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, "127.0.0.1:0",
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("out of order") }))
	for range 3 {
		if answer, err := plain(t).Get(s.URL()); err == nil {
			answer.Body.Close()
			t.Errorf("status %d, want a connection that is cut", answer.StatusCode)
		}
	}
	end()
	if n := strings.Count(log.String(), "out of order"); n != 1 {
		t.Errorf("%d lines, want 1: %s", n, log.String())
	}
}

// TestHandshakes: failed handshakes are reported and delay no other client.
func TestHandshakes(t *testing.T) {
	ca := edgetest.NewAuthority(t)
	failed := make(chan string, 1)
	serveFor := func(header time.Duration) (*edge.Server, func()) {
		return serve(t, edge.Config{Auth: &edge.Auth{TLS: ca.Server()}, Header: header, Refused: func(r edge.Reason, attrs ...slog.Attr) {
			failed <- fmt.Sprint(r, attrs)
		}}, "127.0.0.1:0", answered)
	}
	impatient, end := serveFor(time.Millisecond)
	conn, err := net.Dial("tcp", impatient.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if got := <-failed; !strings.Contains(got, "deadline exceeded") {
		t.Errorf("says nothing: %s, want that the deadline was exceeded", got)
	}
	conn.Close()
	end()
	s, end := serveFor(time.Minute)
	address := s.Addr().String()
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
		want string // expected in the error
	}{
		{"speaks in the clear", say("GET / HTTP/1.1\r\n\r\n"), "does not look like a TLS handshake"},
		{"speaks nonsense", say(strings.Repeat("\x00", 100)), "does not look like a TLS handshake"},
		{"old version", shake(func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 }), "unsupported version"},
		{"does not know us", shake(func(c *tls.Config) { c.RootCAs = x509.NewCertPool() }), "the client does not accept the certificate of this server"},
		{"no certificate", shake(func(c *tls.Config) { c.Certificates = nil }), "no_credential"},
	} {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		tc.do(conn)
		if got := <-failed; !strings.Contains(got, tc.want) {
			t.Errorf("%s: %s, want %q", tc.name, got, tc.want)
		}
		if tc.name == "speaks in the clear" {
			if answer, err := io.ReadAll(conn); err != nil || !strings.Contains(string(answer), "expected https") {
				t.Errorf("%s: answer %q, %v", tc.name, answer, err)
			}
		}
		conn.Close()
	}
	if conn, err = net.Dial("tcp", address); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if got := <-failed; got != "handshake []" {
		t.Errorf("left without a word: %s, which would be logged", got)
	}
	peer, err := tls.Dial("tcp", address, good)
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	if _, err := io.WriteString(peer, "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(peer); err != nil || !strings.Contains(string(answer), "answer") {
		t.Errorf("after a handshake: %q, %v", answer, err)
	}
	// A running handshake does not delay the end.
	silent, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	end()
	if _, err := net.Dial("tcp", address); err == nil {
		t.Error("the address stays open")
	}
}

// TestConnections: connections beyond the limit are answered and reported, and a freed slot
// can be taken again.
func TestConnections(t *testing.T) {
	refused := make(chan edge.Reason, 1)
	s, _ := serve(t, edge.Config{MaxConns: 1, Refused: func(r edge.Reason, _ ...slog.Attr) { refused <- r }}, "127.0.0.1:0", answered)
	ask := func(header string) (net.Conn, string) {
		t.Helper()
		conn, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: localhost\r\n"+header+"\r\n"); err != nil {
			t.Fatal(err)
		}
		status, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return conn, strings.TrimSpace(status)
	}
	first, status := ask("")
	if status != "HTTP/1.1 200 OK" {
		t.Fatal(status)
	}
	beyond, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer beyond.Close()
	if answer, err := io.ReadAll(beyond); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 503") || <-refused != edge.TooManyConns {
		t.Errorf("beyond the limit: %q, %v", answer, err)
	}
	if _, err := io.WriteString(first, "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(first); err != nil { // until the server has closed it
		t.Fatal(err)
	}
	if _, status := ask(""); status != "HTTP/1.1 200 OK" {
		t.Errorf("after the first has left: %s", status)
	}
}

// TestAddresses: an address beyond loopback needs TLS and authentication, unless exposed.
func TestAddresses(t *testing.T) {
	ca := edgetest.NewAuthority(t)
	tokens := &edge.Auth{TLS: edge.TLSFiles{Cert: "c", Key: "k"}, Clients: "t"}
	for _, tc := range []struct {
		address string
		auth    *edge.Auth
		exposed bool
		good    bool
	}{
		{"127.0.0.1:0", nil, false, true},
		{"[::1]:0", nil, false, true},
		{"localhost:0", everybody, false, true},
		{":0", nil, false, false},
		{"0.0.0.0:0", everybody, false, false},
		{"192.0.2.1:80", &edge.Auth{TLS: edge.TLSFiles{Cert: "c", Key: "k"}}, false, false},
		{"192.0.2.1:80", &edge.Auth{Clients: "t"}, false, false},
		{"192.0.2.1:80", &edge.Auth{TLS: ca.Server(), Anonymous: edge.Peer{Name: "x"}}, false, false},
		{"192.0.2.1:80", &edge.Auth{TLS: ca.Server()}, false, true},
		{"192.0.2.1:80", tokens, false, true},
		{":0", nil, true, true},
		{"80", tokens, true, false},
	} {
		c := edge.Config{Auth: tc.auth, Exposed: tc.exposed}
		err := c.CheckAddress(tc.address)
		if (err == nil) != tc.good || err != nil && errors.Is(err, edge.ErrExposed) == tc.exposed {
			t.Errorf("%s, exposed %t: %v", tc.address, tc.exposed, err)
		}
	}
	s, err := edge.New(edge.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Listen(t.Context(), "0.0.0.0:0", "--listen"); !errors.Is(err, edge.ErrExposed) {
		t.Errorf("listen: %v", err)
	}
}

// TestForeignOrigin: without Access, a server on loopback still refuses foreign host names, and
// every server refuses changes by a foreign web page.
func TestForeignOrigin(t *testing.T) {
	refused := make(chan edge.Reason, 1)
	s, _ := serve(t, edge.Config{Refused: func(r edge.Reason, _ ...slog.Attr) { refused <- r }}, "127.0.0.1:0", answered)
	for _, tc := range []struct {
		method, host, site string
		code               int
	}{
		{"GET", "evil.example", "", 403}, {"POST", "", "cross-site", 403}, {"GET", "localhost", "cross-site", 200}, {"POST", "", "same-origin", 200},
	} {
		r, err := http.NewRequestWithContext(t.Context(), tc.method, s.URL(), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = tc.host
		r.Header.Set("Sec-Fetch-Site", tc.site)
		answer, err := plain(t).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != tc.code || tc.code == 403 && <-refused != edge.ForeignOrigin {
			t.Errorf("%+v: %d", tc, answer.StatusCode)
		}
	}
}

// TestHTTPForHTTPS: a client that sends HTTP to a TLS listener, ours or Go's, learns that it
// needs https; other answers reach it whole.
func TestHTTPForHTTPS(t *testing.T) {
	t.Parallel()
	ca, clients := edgetest.NewAuthority(t), filepath.Join(t.TempDir(), "clients")
	edgetest.WriteTokens(t, clients, edgetest.TokenLine("te", "read", "sesame", ""))
	ours, _ := serve(t, edge.Config{Auth: &edge.Auth{TLS: ca.Server(), Clients: clients}, Access: &edge.Access{}}, "127.0.0.1:0", answered)
	others := httptest.NewUnstartedServer(answered)
	others.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	others.StartTLS()
	t.Cleanup(others.Close)
	old := strings.Repeat("expects something else ", 100)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = bufio.NewReader(conn).ReadString('\n')
		_, _ = io.WriteString(conn, "HTTP/1.0 400 Bad Request\r\nContent-Length: "+strconv.Itoa(len(old))+"\r\n\r\n"+old)
		_, _ = io.Copy(io.Discard, conn)
	}()
	for name, tc := range map[string]struct {
		url  string
		want error
	}{
		"ours":         {"http" + strings.TrimPrefix(ours.URL(), "https"), edge.ErrWantsTLS},
		"Go's":         {"http" + strings.TrimPrefix(others.URL, "https"), edge.ErrWantsTLS},
		"HTTP/1.0 400": {"http://" + l.Addr().String(), nil},
	} {
		c, err := edge.NewClient(&http.Transport{ForceAttemptHTTP2: true}, edge.TLSFiles{}, "", time.Now, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.CloseIdleConnections)
		answer, err := c.Get(tc.url)
		if !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
		if err != nil {
			continue
		}
		if body, err := io.ReadAll(answer.Body); err != nil || string(body) != old {
			t.Errorf("%s: %q, %v", name, body, err)
		}
		answer.Body.Close()
	}
}
