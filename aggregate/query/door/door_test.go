package door_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/query/access"
	"github.com/csigscope/csigscope/aggregate/query/door"
	"github.com/csigscope/csigscope/ingest/credential"
	"github.com/csigscope/csigscope/ingest/credential/credentialtest"
)

var everybody = credential.Config{Anonymous: credential.Peer{Name: "anonymous", Role: string(access.Read)}}

// open serves behind a door at the address, until the test or what it returns ends it. All
// requests have been answered and counted then.
func open(t *testing.T, cfg door.Config, address string, h http.Handler) (d *door.Door, end func()) {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	d, err := door.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Listen(t.Context(), address); err != nil {
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

// ask is the status of an answer, and its protocol; 0 when there was none.
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

// TestCredentials: askers come at the same time, over HTTP/2, while settings change and
// somebody looks at what was counted. Who has a token or a listed certificate is answered,
// and nobody else but for what is open; the log says who asked and holds no token.
func TestCredentials(t *testing.T) {
	t.Parallel()
	ca := credentialtest.NewAuthority(t)
	noc, stranger := ca.Issue("noc.example", time.Now().Add(time.Hour)), ca.Issue("stranger", time.Now().Add(time.Hour))
	clients := filepath.Join(t.TempDir(), "clients")
	credentialtest.WriteTokens(t, clients, credentialtest.TokenLine("te", "read", "sesame", ""), "noc.example: admin certificate")
	var log bytes.Buffer // which the logger locks, and is read when the door is closed
	mux := http.NewServeMux()
	mux.Handle("/answer", answered)
	mux.Handle("/file", answered)
	d, end := open(t, door.Config{
		Gate:   credential.Config{TLS: ca.Server(), Clients: clients, Roles: []string{string(access.Read), string(access.Admin)}},
		Open:   func(r *http.Request) bool { return r.URL.Path == "/file" },
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	}, "127.0.0.1:0", mux)
	if !strings.HasPrefix(d.URL(), "https://") {
		t.Fatalf("at %s", d.URL())
	}
	const each = 10
	codes := make(map[string]map[int]uint64)
	var askers sync.WaitGroup
	for _, asker := range []struct {
		path, token string
		shown       credential.TLSFiles
		want        int
	}{
		{"/answer", "sesame", credential.TLSFiles{}, http.StatusOK},
		{"/answer", "", noc, http.StatusOK},
		{"/answer", "open", credential.TLSFiles{}, http.StatusUnauthorized},
		{"/answer", "", stranger, http.StatusUnauthorized},
		{"/answer", "", credential.TLSFiles{}, http.StatusUnauthorized},
		{"/file", "", credential.TLSFiles{}, http.StatusOK},
	} {
		name := asker.path
		if asker.want == http.StatusUnauthorized {
			name = "other" // nobody has looked at what was asked
		}
		if codes[name] == nil {
			codes[name] = make(map[int]uint64)
		}
		codes[name][asker.want] += each
		config := &tls.Config{RootCAs: ca.Pool()}
		if asker.shown.Cert != "" {
			pair, err := tls.LoadX509KeyPair(asker.shown.Cert, asker.shown.Key)
			if err != nil {
				t.Fatal(err)
			}
			config.Certificates = []tls.Certificate{pair}
		}
		transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
		t.Cleanup(transport.CloseIdleConnections)
		askers.Go(func() {
			for range each {
				if status, major := ask(t, &http.Client{Transport: transport}, d.URL()+asker.path, asker.token, ""); status != asker.want || major != 2 {
					t.Errorf("%s with %q, %q: %d over HTTP/%d, want %d", asker.path, asker.token, asker.shown.Cert, status, major, asker.want)
				}
			}
		})
	}
	askers.Go(func() {
		for n := range each {
			if err := d.Use(access.Settings{Limits: access.Limits{Requests: float64(1000 + n)}}); err != nil {
				t.Error(err)
			}
			d.Stats()
		}
	})
	askers.Wait()
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

// TestWrongBesideGood: however many wrong certificates and tokens come from an address, a good
// one from there is answered.
func TestWrongBesideGood(t *testing.T) {
	t.Parallel()
	ca, foreign, hour := credentialtest.NewAuthority(t), credentialtest.NewAuthority(t), time.Now().Add(time.Hour)
	clients := filepath.Join(t.TempDir(), "clients")
	credentialtest.WriteTokens(t, clients, credentialtest.TokenLine("te", "read", "sesame", ""), "noc.example: admin certificate")
	d, _ := open(t, door.Config{
		Gate: credential.Config{TLS: ca.Server(), Clients: clients, Roles: []string{string(access.Read), string(access.Admin)}},
	}, "0.0.0.0:0", answered)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(d.URL(), "https://"))
	if err != nil {
		t.Fatal(err)
	}
	url := "https://127.0.0.1:" + port
	client := func(shown credential.TLSFiles) *http.Client {
		t.Helper()
		files := credential.TLSFiles{Cert: shown.Cert, Key: shown.Key, CA: ca.File}
		c, err := credential.NewClient(&http.Transport{ForceAttemptHTTP2: true}, files, "", time.Now, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.CloseIdleConnections)
		return c
	}
	nobody, stranger, unlisted, noc := client(credential.TLSFiles{}), client(foreign.Issue("noc.example", hour)), client(ca.Issue("printer", hour)), client(ca.Issue("noc.example", hour))
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
}

// TestRevokedConnection: a connection whose certificate is listed no more is cut.
func TestRevokedConnection(t *testing.T) {
	t.Parallel()
	ca, clients := credentialtest.NewAuthority(t), filepath.Join(t.TempDir(), "clients")
	credentialtest.WriteTokens(t, clients, "noc.example: admin certificate")
	d, _ := open(t, door.Config{
		Gate: credential.Config{TLS: ca.Server(), Clients: clients, Roles: []string{string(access.Read), string(access.Admin)}},
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
	credentialtest.WriteTokens(t, clients, "other.example: admin certificate")
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil { // a silent connection ends in 2
		t.Fatal(err)
	}
	if more, err := io.ReadAll(answer); len(more) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%q, %v: want a connection that is cut", more, err)
	}
}

// TestUse: limits hold, and other ones hold from Use on.
func TestUse(t *testing.T) {
	t.Parallel()
	limits := func(perSecond float64) access.Settings {
		return access.Settings{Limits: access.Limits{Requests: perSecond}}
	}
	// One request, and the next one after 1000 s.
	d, _ := open(t, door.Config{Gate: everybody, Settings: limits(0.001)}, "127.0.0.1:0", answered)
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

// TestLocal: a door on loopback answers under no foreign name, and counts that; others do.
func TestLocal(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]int{"127.0.0.1:0": http.StatusForbidden, "0.0.0.0:0": http.StatusOK} {
		d, end := open(t, door.Config{Gate: everybody}, address, answered)
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

// TestServeEnds: when serving ends, a request that is being answered is answered, and no
// other one.
func TestServeEnds(t *testing.T) {
	t.Parallel()
	asked, proceed := make(chan struct{}), make(chan struct{})
	d, end := open(t, door.Config{Gate: everybody}, "127.0.0.1:0", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
			t.Error("the door stays open")
			break
		}
	}
	close(proceed)
	both.Wait()
	if err := d.Close(); err != nil {
		t.Errorf("closed again: %v", err)
	}
}
