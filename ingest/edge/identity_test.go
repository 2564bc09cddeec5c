package edge_test

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/csigscope/csigscope/ingest/edge"
	"github.com/csigscope/csigscope/ingest/edge/edgetest"
)

// identifying is a server with roles that answers with the identity of its client.
type identifying struct {
	*edge.Server
	refused [edge.NumReasons]atomic.Uint64
}

func newIdentifying(t *testing.T, c edge.Config) *identifying {
	t.Helper()
	d := &identifying{}
	c.Access, c.Refused = &edge.Access{}, func(r edge.Reason, _ ...slog.Attr) { d.refused[r].Add(1) }
	d.Server, _ = serve(t, c, "127.0.0.1:0", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, err := d.Identify(r)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("X-Peer", p.Name+" "+string(p.Role)+" "+string(p.Credential))
	}))
	return d
}

// ask sends a request with the certificate in the files and an Authorization header.
func (d *identifying) ask(t *testing.T, files edge.TLSFiles, ca *edgetest.Authority, authorization string) string {
	t.Helper()
	c := &tls.Config{RootCAs: x509.NewCertPool()}
	if ca != nil {
		c.RootCAs = ca.Pool()
	}
	if files.Cert != "" {
		pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
		if err != nil {
			t.Fatal(err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	r, err := http.NewRequestWithContext(t.Context(), "GET", d.URL(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	transport := &http.Transport{TLSClientConfig: c}
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(r)
	if err != nil {
		return "no connection"
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return "refused"
	}
	return response.Header.Get("X-Peer")
}

// TestRoles: certificates and tokens have the roles in the file. A valid certificate that the
// file does not list is refused.
func TestRoles(t *testing.T) {
	ca := edgetest.NewAuthority(t)
	file := filepath.Join(t.TempDir(), "clients")
	edgetest.WriteTokens(t, file, "noc.example: admin certificate", "te: read certificate",
		edgetest.TokenLine("te", "read", "secret", ""), edgetest.TokenLine("old", "admin", "past", "2020-01-01T00:00:00Z"))
	d := newIdentifying(t, edge.Config{Auth: &edge.Auth{TLS: ca.Server(), Clients: file}})
	hour := time.Now().Add(time.Hour)
	none := edge.TLSFiles{}
	for _, tc := range []struct {
		name          string
		files         edge.TLSFiles
		authorization string
		want          string
		reason        edge.Reason
	}{
		{"certificate", ca.Issue("noc.example", hour), "", "noc.example admin certificate", 0},
		{"certificate before token", ca.Issue("noc.example", hour), "Bearer secret", "noc.example admin certificate", 0},
		{"unlisted", ca.Issue("intruder", hour), "", "refused", edge.NotListed},
		{"unlisted with a token", ca.Issue("intruder", hour), "Bearer secret", "refused", edge.NotListed},
		{"token", none, "Bearer secret", "te read token", 0},
		{"scheme in lower case", none, "bearer secret", "te read token", 0},
		{"expired", none, "Bearer past", "refused", edge.ExpiredToken},
		{"unknown", none, "Bearer Secret", "refused", edge.UnknownToken},
		{"basic", none, "Basic c2VjcmV0", "refused", edge.NoCredential},
		{"nothing", none, "", "refused", edge.NoCredential},
		{"foreign", edgetest.NewAuthority(t).Issue("noc.example", hour), "", "no connection", edge.ForeignCertificate},
	} {
		before := d.refused[tc.reason].Load()
		if got := d.ask(t, tc.files, ca, tc.authorization); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
		if counted := d.refused[tc.reason].Load() > before; counted != (tc.want == "refused" || tc.want == "no connection") {
			t.Errorf("%s: %s counted: %v", tc.name, tc.reason, counted)
		}
	}
}

// TestReload: names removed from the file are refused, and added names are admitted.
func TestReload(t *testing.T) {
	file := filepath.Join(t.TempDir(), "clients")
	var ahead atomic.Int64
	edgetest.WriteTokens(t, file, edgetest.TokenLine("te", "read", "secret", ""))
	d := newIdentifying(t, edge.Config{
		Auth: &edge.Auth{Clients: file, Anonymous: edge.Peer{Name: "anonymous", Role: edge.Read}},
		Now:  func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
	})
	want := func(authorization, want string) {
		t.Helper()
		if got := d.ask(t, edge.TLSFiles{}, nil, authorization); got != want {
			t.Errorf("%q: %q, want %q", authorization, got, want)
		}
	}
	want("Bearer secret", "te read token")
	want("", "anonymous read")
	want("Bearer other", "refused") // a wrong credential is not the same as none
	edgetest.WriteTokens(t, file, edgetest.TokenLine("te", "admin", "other", ""))
	ahead.Add(int64(time.Minute))
	want("Bearer secret", "refused")
	want("Bearer other", "te admin token")
	edgetest.WriteTokens(t, file, "te: root")
	ahead.Add(int64(time.Minute))
	want("Bearer other", "te admin token") // an unreadable file changes nothing
}
