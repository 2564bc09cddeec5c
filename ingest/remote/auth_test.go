package remote

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/csigscope/csigscope/ingest/edge"
	"github.com/csigscope/csigscope/ingest/edge/edgetest"
	"github.com/csigscope/csigscope/ingest/wire"
)

// pushOnce sends one request with a client's credentials.
func pushOnce(t *testing.T, cfg ClientConfig, m *wire.PushRequest) (*wire.PushResponse, error) {
	t.Helper()
	c, err := OpenClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	body, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return c.push(t.Context(), body)
}

// TestCertificates: a client with a valid certificate is admitted under its name; others are
// refused, counted and named in the log.
func TestCertificates(t *testing.T) {
	ca, foreign := edgetest.NewAuthority(t), edgetest.NewAuthority(t)
	hour := time.Now().Add(time.Hour)
	server := ca.Server()
	for _, tc := range []struct {
		name   string
		client edge.TLSFiles
		want   string // identity
		reason Reason
		logged string
	}{
		{"common name", ca.Issue("host1", hour), "host1", 0, ""},
		{"URI", ca.Issue("x", hour, edgetest.WithURI("spiffe://dc/host2")), "spiffe://dc/host2", 0, ""},
		{"DNS name", ca.Issue("x", hour, func(c *x509.Certificate) { c.DNSNames = []string{"host3.dc"} }), "host3.dc", 0, ""},
		{"expired", ca.Issue("late", time.Now().Add(-time.Minute)), "", Reason(edge.ExpiredCertificate), "CN=late"},
		{"foreign", foreign.Issue("stranger", hour), "", Reason(edge.ForeignCertificate), "CN=stranger"},
		{"for servers", ca.Issue("server", hour, func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		}), "", Reason(edge.ForeignCertificate), "CN=server"},
		{"nameless", ca.Issue("", hour), "", Reason(edge.NamelessCertificate), "address=127.0.0.1"},
		{"none", edge.TLSFiles{CA: ca.File}, "", Reason(edge.NoCredential), "address=127.0.0.1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l, log := newLedger(), &logBuffer{}
			cfg := testConfig(t)
			cfg.Auth, cfg.Permits, cfg.Logger = edge.Auth{TLS: server}, everybody, log.logger()
			s := startCollector(t, cfg, l, "")
			client := clientConfig(t, s.url)
			client.TLS = tc.client
			client.TLS.CA = ca.File
			_, err := pushOnce(t, client, &wire.PushRequest{Exporter: tc.want})
			if tc.want != "" {
				if st := s.Stats(); err != nil || len(st.Exporters) != 1 || st.Exporters[0].Name != tc.want {
					t.Errorf("%v, %+v, want %s let in", err, st.Exporters, tc.want)
				}
				return
			}
			if err != nil && (strings.Contains(err.Error(), "remote error") && !strings.Contains(err.Error(), "or requires one and got none") ||
				tc.client.Cert != "" && connect.CodeOf(err) != connect.CodeUnauthenticated && !strings.Contains(err.Error(), "certificate of this client")) {
				t.Errorf("%v: the exporter does not learn that its certificate matters", err)
			}
			if st := s.Stats(); err == nil || st.Unauthenticated.Refused[tc.reason] == 0 || len(st.Exporters) != 0 {
				t.Errorf("%v, %+v, want %s", err, st.Unauthenticated, tc.reason)
			}
			if text := log.String(); !strings.Contains(text, tc.logged) || !strings.Contains(text, "reason="+tc.reason.String()) {
				t.Errorf("log %q, want %q", text, tc.logged)
			}
		})
	}
}

// TestCertificateExpiresOnConnection: an open connection does not outlive its certificate.
func TestCertificateExpiresOnConnection(t *testing.T) {
	ca := edgetest.NewAuthority(t)
	cfg := testConfig(t)
	cfg.Auth, cfg.Permits = edge.Auth{TLS: ca.Server()}, everybody
	clock := newClock()
	cfg.Now = clock.now
	s := startCollector(t, cfg, newLedger(), "")
	client := clientConfig(t, s.url)
	client.TLS = ca.Issue("host1", time.Now().Add(10*time.Minute))
	c, err := OpenClient(client)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.push(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	clock.add(20 * time.Minute)
	if _, err := c.push(t.Context(), nil); connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("%v, want unauthenticated", err)
	}
	if n := s.Stats().Unauthenticated.Refused[Reason(edge.ExpiredCertificate)]; n != 1 {
		t.Errorf("%d counted as expired, want 1", n)
	}
}

func TestTokens(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "tokens")
	edgetest.WriteTokens(t, file, edgetest.TokenLine("host1", "", "good", ""), edgetest.TokenLine("host1", "", "next", "2100-01-01T00:00:00Z"), edgetest.TokenLine("host2", "", "old", "2020-01-01T00:00:00Z"))
	l, log, clock := newLedger(), &logBuffer{}, newClock()
	cfg := testConfig(t)
	cfg.Auth, cfg.Logger, cfg.Now = edge.Auth{Clients: file}, log.logger(), clock.now
	s := startCollector(t, cfg, l, "")
	try := func(secret, as string) error {
		t.Helper()
		client := clientConfig(t, s.url)
		client.TokenFile = filepath.Join(dir, "token")
		if err := os.WriteFile(client.TokenFile, []byte(secret+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := pushOnce(t, client, &wire.PushRequest{Exporter: as})
		return err
	}
	for _, secret := range []string{"good", "next"} {
		if err := try(secret, "host1"); err != nil {
			t.Errorf("%s: %v", secret, err)
		}
	}
	// A forged name is refused with any valid credential.
	if err := try("good", "host2"); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("forged: %v", err)
	}
	for secret, reason := range map[string]Reason{"bad": Reason(edge.UnknownToken), "old": Reason(edge.ExpiredToken)} {
		if err := try(secret, ""); connect.CodeOf(err) != connect.CodeUnauthenticated || !errorSays(err, edge.ErrToken) || s.Stats().Unauthenticated.Refused[reason] != 1 {
			t.Errorf("%s: %v, %+v", secret, err, s.Stats().Unauthenticated)
		}
	}
	if text := log.String(); !strings.Contains(text, "calls_itself=host2") || !strings.Contains(text, "reason=expired_token address=127.0.0.1") || !strings.Contains(text, "name=host2") {
		t.Errorf("log %s", text)
	}
	if n := s.Stats().Total.Refused[ReasonForged]; n != 1 {
		t.Errorf("%d forged, want 1", n)
	}
	// The file changes: a removed token is refused, a bad file changes nothing.
	edgetest.WriteTokens(t, file, edgetest.TokenLine("host1", "", "next", ""))
	clock.add(2 * time.Second)
	if err := try("good", ""); connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("revoked: %v", err)
	}
	edgetest.WriteTokens(t, file, "nonsense")
	clock.add(2 * time.Second)
	if err := try("next", ""); err != nil {
		t.Errorf("after a bad change: %v", err)
	}
}

// errorSays reports whether the client learns an error of the collector.
func errorSays(err, want error) bool {
	return err != nil && strings.Contains(err.Error(), want.Error())
}

// TestMissingCredentials: a client learns whether the collector got a credential, and which it takes.
func TestMissingCredentials(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "tokens")
	edgetest.WriteTokens(t, file, edgetest.TokenLine("host1", "", "good", ""), edgetest.TokenLine("host2", "", "other", ""))
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("other\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		auth      edge.Auth
		tokenFile string
		want      error
	}{
		{edge.Auth{Clients: file}, "", edge.ErrNone},
		{edge.Auth{Clients: file}, token, edge.ErrNotListed},
		{edge.Auth{Anonymous: edge.Peer{Name: "host1"}}, token, edge.ErrNoTokens},
	} {
		log, cfg := &logBuffer{}, testConfig(t)
		cfg.Auth, cfg.Permits, cfg.Logger = tc.auth, []Permit{{Name: "host1"}}, log.logger()
		s := startCollector(t, cfg, newLedger(), "")
		client := clientConfig(t, s.url)
		client.TokenFile = tc.tokenFile
		_, err := pushOnce(t, client, nil)
		if !errorSays(err, tc.want) || errors.Is(tc.want, edge.ErrNotListed) && !strings.Contains(err.Error(), `"host2": collect.ingest`) {
			t.Errorf("%v, want %v", err, tc.want)
		}
		if text := log.String(); !strings.Contains(text, "refused a client") || !strings.Contains(text, "address=127.0.0.1") {
			t.Errorf("log %s", text)
		}
	}
}

// TestRotation: certificates of both ends and the authority change without a restart. A new
// connection uses the new ones, connections vouched for by the old authority are cut and
// refused, and unreadable files change nothing.
func TestRotation(t *testing.T) {
	ca, log := edgetest.NewAuthority(t), &logBuffer{}
	files := ca.Server()
	cfg := testConfig(t)
	clock := newClock()
	cfg.Auth, cfg.Permits, cfg.Now, cfg.Logger = edge.Auth{TLS: files}, everybody, clock.now, log.logger()
	s := startCollector(t, cfg, newLedger(), "")
	open := func(files edge.TLSFiles) *Client {
		t.Helper()
		client := clientConfig(t, s.url)
		client.TLS, client.Now = files, clock.now
		c, err := OpenClient(client)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if _, err := c.push(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		return c
	}
	hour := time.Now().Add(time.Hour)
	rotated := ca.Issue("host1", hour)
	stale := ca.Issue("host2", hour)
	staleCA := filepath.Join(t.TempDir(), "ca.pem")
	copyFile(t, staleCA, ca.File)
	stale.CA = staleCA
	c, left := open(rotated), open(stale)
	raw, err := tls.Dial("tcp", strings.TrimPrefix(s.url, "https://"), &tls.Config{
		RootCAs: ca.Pool(), ServerName: "127.0.0.1", Certificates: []tls.Certificate{loadPair(t, stale)},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	if _, err := io.WriteString(raw, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(files.Cert, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		clock.add(2 * time.Second)
		c.http.CloseIdleConnections()
		if _, err := c.push(t.Context(), nil); err != nil {
			t.Errorf("after a bad change: %v", err)
		}
	}
	if n := strings.Count(log.String(), "cannot be read"); n != 1 {
		t.Errorf("%d lines of a file that cannot be read, want 1: %s", n, log)
	}

	next := edgetest.NewAuthority(t)
	server, host := next.Server(), next.Issue("host1", hour)
	for to, from := range map[string]string{files.Cert: server.Cert, files.Key: server.Key, rotated.Cert: host.Cert, rotated.Key: host.Key, ca.File: next.File} {
		copyFile(t, to, from)
	}
	clock.add(2 * time.Second)
	if _, err := c.push(t.Context(), nil); err != nil {
		t.Errorf("after rotation: %v", err)
	}
	// The open connection used a certificate that is now foreign.
	if _, err := left.push(t.Context(), nil); err == nil {
		t.Error("the old authority still vouches for exporters")
	}
	copyFile(t, staleCA, next.File) // it trusts the collector, and shows a foreign certificate
	clock.add(2 * time.Second)
	if _, err := left.push(t.Context(), nil); err == nil {
		t.Error("the old authority still vouches for new connections")
	}
	_, _ = io.ReadAll(raw) // until the collector cuts it
	if n := s.Stats().Unauthenticated.Refused[Reason(edge.ForeignCertificate)]; n < 2 {
		t.Errorf("%d foreign certificates counted", n)
	}
}

func copyFile(t *testing.T, to, from string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func loadPair(t *testing.T, files edge.TLSFiles) tls.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// TestServerIsVerified: an exporter sends nothing to a collector with a foreign certificate or
// another name.
func TestServerIsVerified(t *testing.T) {
	ca, foreign := edgetest.NewAuthority(t), edgetest.NewAuthority(t)
	cfg := testConfig(t)
	cfg.Auth, cfg.Permits = edge.Auth{TLS: ca.Server()}, everybody
	s := startCollector(t, cfg, newLedger(), "")
	client := clientConfig(t, s.url)
	client.TLS = ca.Issue("host1", time.Now().Add(time.Hour))
	client.TLS.CA = foreign.File
	var unknown x509.UnknownAuthorityError
	if _, err := pushOnce(t, client, nil); !errors.As(err, &unknown) {
		t.Errorf("foreign collector: %v", err)
	}
	client.Collectors = []string{strings.Replace(s.url, "127.0.0.1", "localhost", 1)}
	client.TLS.CA, client.Dir = ca.File, t.TempDir()
	var name x509.HostnameError
	if _, err := pushOnce(t, client, nil); !errors.As(err, &name) {
		t.Errorf("another name: %v", err)
	}
}

// TestExposure: a collector without authentication stays on loopback.
func TestExposure(t *testing.T) {
	cfg := testConfig(t)
	cfg.Listen = "0.0.0.0:0"
	s, err := NewServer(cfg, newLedger(), newLedger())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(context.Background()); !errors.Is(err, edge.ErrExposed) {
		t.Errorf("run: %v", err)
	}
}
