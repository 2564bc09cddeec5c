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
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate/query/access"
	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/query/client"
	"github.com/csigscope/csigscope/aggregate/query/door"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/aggregate/table/tabletest"
	"github.com/csigscope/csigscope/dashboards/page"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/ingest/credential/credentialtest"
)

// openTestDoor serves one window of 4 cells as the configuration says.
func openTestDoor(t *testing.T, c *apiConfig) *door.Door {
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
	d, err := c.open(t.Context(), "--listen", "127.0.0.1:0", false, slog.New(slog.DiscardHandler))
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

// newTestAsker is a client with the flags of query cells.
func newTestAsker(t *testing.T, server string, flags ...string) (*client.Client, error) {
	t.Helper()
	cmd := &cobra.Command{}
	addCredentialFlags(cmd)
	if err := cmd.ParseFlags(flags); err != nil {
		t.Fatal(err)
	}
	return newServerClient(cmd, server)
}

// TestDoor: behind TLS, who has a token or a certificate that the file lists is answered, and
// nobody else is but for the page's files.
func TestDoor(t *testing.T) {
	dir, ca := t.TempDir(), credentialtest.NewAuthority(t)
	server, noc, stranger := ca.Server(), ca.Issue("noc.example", time.Now().Add(time.Hour)), ca.Issue("stranger", time.Now().Add(time.Hour))
	clients := filepath.Join(dir, "clients")
	credentialtest.WriteTokens(t, clients, credentialtest.TokenLine("te", "read", "sesame", ""), "noc.example: admin certificate")
	config := &apiConfig{TLS: tlsConfig{Cert: server.Cert, Key: server.Key, CA: server.CA}, Clients: clients}
	if err := config.check(); err != nil {
		t.Fatal(err)
	}
	d := openTestDoor(t, config)
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
		{"wrong token", "no valid credential", []string{"--server-ca", ca.File, "--token-file", bad}},
		{"certificate of nobody", "no list here has its name", []string{"--server-ca", ca.File, "--client-cert", stranger.Cert, "--client-key", stranger.Key}},
		{"nothing", "no valid credential", []string{"--server-ca", ca.File}},
		{"a server that nobody vouches for", "certificate", []string{"--token-file", good}},
	} {
		c, err := newTestAsker(t, d.URL(), tc.flags...)
		if err != nil {
			t.Fatal(err)
		}
		cells, err := c.AllCells(t.Context(), url.Values{})
		if tc.want == "" && (err != nil || len(cells.Values) != 4) || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
	for path, want := range map[string]int{"/": 200, "/app.js": 200, "/?token=sesame": 400, "/api/v1/health": 401, "/api/v1/frames": 401, "/openapi.json": 401, "/other.js": 401} {
		if got := getStatus(t, ca, d.URL()+path); got != want {
			t.Errorf("%s without a credential: %d, want %d", path, got, want)
		}
	}
	for _, flags := range [][]string{{"--token-file", good}, {"--client-cert", noc.Cert, "--client-key", noc.Key}} {
		if _, err := newTestAsker(t, "http://192.0.2.1:80", flags...); err == nil || !strings.Contains(err.Error(), "expected https") {
			t.Errorf("%s in the clear: %v", flags[0], err)
		}
	}
}

// getStatus asks without a credential.
func getStatus(t *testing.T, ca *credentialtest.Authority, url string) int {
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

// TestDoorBeyondLoopback: an address that others reach takes TLS and credentials, or the flag
// that names the danger.
func TestDoorBeyondLoopback(t *testing.T) {
	ca := credentialtest.NewAuthority(t)
	server := ca.Server()
	files := tlsConfig{Cert: server.Cert, Key: server.Key, CA: server.CA}
	clients := filepath.Join(t.TempDir(), "clients")
	credentialtest.WriteTokens(t, clients, credentialtest.TokenLine("te", "read", "sesame", ""))
	for name, tc := range map[string]struct {
		config  apiConfig
		address string
		exposed bool
		want    string
	}{
		"plain":               {apiConfig{}, "0.0.0.0:0", false, "no TLS certificate"},
		"tokens in the clear": {apiConfig{Clients: clients}, "0.0.0.0:0", false, "no TLS certificate"},
		"nobody is known":     {apiConfig{TLS: tlsConfig{Cert: server.Cert, Key: server.Key}}, "[::]:0", false, "without a credential"},
		"strangers too":       {apiConfig{TLS: files, Clients: clients, Anonymous: choice[anonymousRoles]{word{text: "read"}}}, "0.0.0.0:0", false, "without a credential"},
		"safe":                {apiConfig{TLS: files, Clients: clients}, "0.0.0.0:0", false, ""},
		"dangerous":           {apiConfig{}, "0.0.0.0:0", true, ""},
		"loopback":            {apiConfig{}, "localhost:0", false, ""},
		"no address":          {apiConfig{}, "nonsense", true, "expected HOST:PORT"},
	} {
		d, err := tc.config.open(t.Context(), "--listen", tc.address, tc.exposed, slog.New(slog.DiscardHandler))
		if err == nil {
			d.Close()
		}
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

// TestDoorAnonymous: on loopback everybody reads by default; web sites that point their name
// here do not.
func TestDoorAnonymous(t *testing.T) {
	d := openTestDoor(t, &apiConfig{})
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
	if code, body := ask("GET", "/api/v1/admin/askers", "localhost"); code != 403 {
		t.Errorf("admin: %d %s", code, body)
	}
	if code, body := ask("GET", "/api/v1/health", "localhost"); code != 200 {
		t.Errorf("this machine: %d %s", code, body)
	}
}

// TestAPILimits: what the section says is what askers may.
func TestAPILimits(t *testing.T) {
	path := writeFile(t, filepath.Join(t.TempDir(), "config.yaml"),
		"api: {origins: [\"https://te.example\"], limits: {requests: 5, concurrent: 6, watchers: 7, store_time: 8s, askers: 9}}")
	config, err := loadConfig(path)
	if err != nil {
		t.Fatal(err)
	}
	want := access.Settings{Origins: []string{"https://te.example"}, Limits: access.Limits{Requests: 5, Concurrent: 6, Watchers: 7, StoreTime: 8 * time.Second, Askers: 9}}
	if got := config.API.settings(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestAPISection: mistakes in the section are named.
func TestAPISection(t *testing.T) {
	for text, want := range map[string]string{
		"api: {anonymous: root}":                        "line 1: api: anonymous",
		"api: {tls: {ca: x}}":                           "without a file of clients",
		"api: {origins: [te.example]}":                  "origins",
		"api: {limits: {concurrent: 99999999999}}":      "concurrent",
		"api: {limits: {store_time: 2h}}":               "store_time",
		"api: {limits: {requests: 9e9}}":                "requests",
		"api: {token: x}":                               `unknown key "token"`,
		"api: {limits: {requests: 5, store_time: 10s}}": "",
	} {
		path := writeFile(t, filepath.Join(t.TempDir(), "config.yaml"), text)
		if _, err := loadConfig(path); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
