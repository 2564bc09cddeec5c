package main

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/query/client"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/aggregate/table/tabletest"
	"github.com/csigscope/csigscope/cmd/csigscope/internal/config"
	"github.com/csigscope/csigscope/dashboards/page"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/ingest/edge"
	"github.com/csigscope/csigscope/ingest/edge/edgetest"
)

// openTestServer serves one window of 4 cells with the given configuration.
func openTestServer(t *testing.T, c *config.API) *edge.Server {
	t.Helper()
	memory := table.NewMemory(table.MemoryOptions{})
	start := time.Now().Truncate(time.Second)
	if err := memory.WriteBlock(t.Context(), tabletest.Block(rand.New(rand.NewPCG(1, 1)), 1, start, 4, csig.MinABWRatio)); err != nil {
		t.Fatal(err)
	}
	memory.Publish()
	a, err := api.New(api.Config{Memory: memory, Names: tabletest.Names{Racks: 2}})
	if err != nil {
		t.Fatal(err)
	}
	d, err := openAPIServer(t.Context(), c, "--listen", "127.0.0.1:0", false, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := d.Serve(ctx, page.Handler(a)); err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	t.Cleanup(running.Wait)
	t.Cleanup(end)
	return d
}

// newTestClient returns a client with the flags of query cells.
func newTestClient(t *testing.T, server string, flags ...string) (*client.Client, error) {
	t.Helper()
	cmd := &cobra.Command{}
	addCredentialFlags(cmd)
	if err := cmd.ParseFlags(flags); err != nil {
		t.Fatal(err)
	}
	return newServerClient(cmd, server)
}

// TestAPIServer: behind TLS, clients with a token or a listed certificate are answered; others get
// only the page's files.
func TestAPIServer(t *testing.T) {
	dir, ca := t.TempDir(), edgetest.NewAuthority(t)
	server, noc, stranger := ca.Server(), ca.Issue("noc.example", time.Now().Add(time.Hour)), ca.Issue("stranger", time.Now().Add(time.Hour))
	clients := filepath.Join(dir, "clients")
	edgetest.WriteTokens(t, clients, edgetest.TokenLine("te", "read", "sesame", ""), "noc.example: admin certificate")
	section := &config.API{TLS: config.TLS{Cert: server.Cert, Key: server.Key, CA: server.CA}, Clients: clients}
	d := openTestServer(t, section)
	if !strings.HasPrefix(d.URL(), "https://") {
		t.Fatalf("at %s", d.URL())
	}
	good, bad := writeFile(t, filepath.Join(dir, "good"), "sesame\n"), writeFile(t, filepath.Join(dir, "bad"), "open\n")
	for _, tc := range []struct {
		name, want string
		flags      []string
	}{
		{"token", "", []string{"--server-ca", ca.File, "--token-file", good}},
		{"certificate", "", []string{"--server-ca", ca.File, "--client-cert", noc.Cert, "--client-key", noc.Key}},
		{"wrong token", "the token is unknown or has expired", []string{"--server-ca", ca.File, "--token-file", bad}},
		{"certificate of nobody", "no list of the server has its name", []string{"--server-ca", ca.File, "--client-cert", stranger.Cert, "--client-key", stranger.Key}},
		{"nothing", "no credential was sent", []string{"--server-ca", ca.File}},
		{"a server that nobody vouches for", "certificate", []string{"--token-file", good}},
	} {
		c, err := newTestClient(t, d.URL(), tc.flags...)
		if err != nil {
			t.Fatal(err)
		}
		cells, err := c.AllCells(t.Context(), url.Values{})
		if tc.want == "" && (err != nil || len(cells.Cells) != 4) || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
	for path, want := range map[string]int{"/": 200, "/app.js": 200, "/?token=sesame": 400, "/api/v1/health": 401, "/api/v1/frames": 401, "/openapi.json": 401, "/other.js": 401} {
		if got := getStatus(t, ca, d.URL()+path); got != want {
			t.Errorf("%s without a credential: %d, want %d", path, got, want)
		}
	}
	for _, flags := range [][]string{{"--token-file", good}, {"--client-cert", noc.Cert, "--client-key", noc.Key}} {
		if _, err := newTestClient(t, "http://192.0.2.1:80", flags...); err == nil || !strings.Contains(err.Error(), "expected https") {
			t.Errorf("%s in the clear: %v", flags[0], err)
		}
	}
}

// getStatus sends a request without a credential.
func getStatus(t *testing.T, ca *edgetest.Authority, url string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool()}}
	defer transport.CloseIdleConnections()
	answer, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	return answer.StatusCode
}

// TestAPIServerBeyondLoopback: an address that other machines can reach requires TLS and
// credentials, or the flag that names the danger.
func TestAPIServerBeyondLoopback(t *testing.T) {
	ca := edgetest.NewAuthority(t)
	server := ca.Server()
	files := config.TLS{Cert: server.Cert, Key: server.Key, CA: server.CA}
	clients := filepath.Join(t.TempDir(), "clients")
	edgetest.WriteTokens(t, clients, edgetest.TokenLine("te", "read", "sesame", ""))
	for name, tc := range map[string]struct {
		config  config.API
		address string
		exposed bool
		want    string
	}{
		"plain":               {config.API{}, "0.0.0.0:0", false, "no TLS certificate"},
		"tokens in the clear": {config.API{Clients: clients}, "0.0.0.0:0", false, "no TLS certificate"},
		"nobody is known":     {config.API{TLS: config.TLS{Cert: server.Cert, Key: server.Key}}, "[::]:0", false, "without a credential"},
		"strangers too":       {config.API{TLS: files, Clients: clients, Anonymous: "read"}, "0.0.0.0:0", false, "without a credential"},
		"safe":                {config.API{TLS: files, Clients: clients}, "0.0.0.0:0", false, ""},
		"dangerous":           {config.API{}, "0.0.0.0:0", true, ""},
		"loopback":            {config.API{}, "localhost:0", false, ""},
		"no address":          {config.API{}, "nonsense", true, "expected HOST:PORT"},
	} {
		d, err := openAPIServer(t.Context(), &tc.config, "--listen", tc.address, tc.exposed, slog.New(slog.DiscardHandler), nil)
		if err == nil {
			d.Close()
		}
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

// TestAPIServerAnonymous: on loopback everybody may read by default, except web sites that point
// their name here.
func TestAPIServerAnonymous(t *testing.T) {
	d := openTestServer(t, &config.API{})
	ask := func(method, path, host string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, d.URL()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, _ := io.ReadAll(answer.Body)
		return answer.StatusCode, string(body)
	}
	if code, body := ask("GET", "/api/v1/health", "evil.example"); code != 403 {
		t.Errorf("another site: %d %s", code, body)
	}
	if code, body := ask("GET", "/api/v1/admin/clients", "localhost"); code != 403 {
		t.Errorf("admin: %d %s", code, body)
	}
	if code, body := ask("GET", "/api/v1/health", "localhost"); code != 200 {
		t.Errorf("this machine: %d %s", code, body)
	}
}
