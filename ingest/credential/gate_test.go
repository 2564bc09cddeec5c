package credential_test

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/csigscope/csigscope/ingest/credential"
	"github.com/csigscope/csigscope/ingest/credential/credentialtest"
)

// door is a server behind a gate, which answers with who came.
type door struct {
	url     string
	gate    *credential.Gate
	refused [credential.NumReasons]atomic.Uint64
}

func newDoor(t *testing.T, c credential.Config) *door {
	t.Helper()
	d := &door{}
	c.Logger, c.Refuse = slog.New(slog.DiscardHandler), func(r credential.Reason, _ ...slog.Attr) { d.refused[r].Add(1) }
	if c.Now == nil {
		c.Now = time.Now
	}
	var err error
	if d.gate, err = credential.NewGate(c); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, err := d.gate.Identify(r)
		if err != nil {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("X-Peer", p.Name+" "+p.Role+" "+string(p.How))
	}))
	if server.TLS = d.gate.TLS(); server.TLS != nil {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	d.url = server.URL
	return d
}

// ask comes with the certificate of the files, and a header.
func (d *door) ask(t *testing.T, files credential.TLSFiles, ca *credentialtest.Authority, authorization string) string {
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
	r, err := http.NewRequestWithContext(t.Context(), "GET", d.url, nil)
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

// TestRoles: certificates and tokens have the roles of the file; a certificate of the
// authority that the file does not list opens nothing.
func TestRoles(t *testing.T) {
	ca := credentialtest.NewAuthority(t)
	file := filepath.Join(t.TempDir(), "clients")
	credentialtest.WriteTokens(t, file, "noc.example: admin certificate", "te: read certificate",
		credentialtest.TokenLine("te", "read", "secret", ""), credentialtest.TokenLine("old", "admin", "past", "2020-01-01T00:00:00Z"))
	d := newDoor(t, credential.Config{TLS: ca.Server(), Clients: file, Roles: []string{"read", "admin"}})
	hour := time.Now().Add(time.Hour)
	none := credential.TLSFiles{}
	for _, tc := range []struct {
		name          string
		files         credential.TLSFiles
		authorization string
		want          string
		reason        credential.Reason
	}{
		{"certificate", ca.Issue("noc.example", hour), "", "noc.example admin certificate", 0},
		{"certificate before token", ca.Issue("noc.example", hour), "Bearer secret", "noc.example admin certificate", 0},
		{"unlisted", ca.Issue("intruder", hour), "", "refused", credential.NotListed},
		{"unlisted with a token", ca.Issue("intruder", hour), "Bearer secret", "refused", credential.NotListed},
		{"token", none, "Bearer secret", "te read token", 0},
		{"scheme in lower case", none, "bearer secret", "te read token", 0},
		{"expired", none, "Bearer past", "refused", credential.ExpiredToken},
		{"unknown", none, "Bearer Secret", "refused", credential.UnknownToken},
		{"basic", none, "Basic c2VjcmV0", "refused", credential.NoCredential},
		{"nothing", none, "", "refused", credential.NoCredential},
		{"foreign", credentialtest.NewAuthority(t).Issue("noc.example", hour), "", "no connection", credential.ForeignCertificate},
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

// TestReload: who is taken out of the file is out, and who is put in is in.
func TestReload(t *testing.T) {
	file := filepath.Join(t.TempDir(), "clients")
	var ahead atomic.Int64
	credentialtest.WriteTokens(t, file, credentialtest.TokenLine("te", "read", "secret", ""))
	d := newDoor(t, credential.Config{
		Clients: file, Roles: []string{"read", "admin"}, Anonymous: credential.Peer{Name: "anonymous", Role: "read"},
		Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
	})
	want := func(authorization, want string) {
		t.Helper()
		if got := d.ask(t, credential.TLSFiles{}, nil, authorization); got != want {
			t.Errorf("%q: %q, want %q", authorization, got, want)
		}
	}
	want("Bearer secret", "te read token")
	want("", "anonymous read")
	want("Bearer other", "refused") // a wrong credential is not none
	credentialtest.WriteTokens(t, file, credentialtest.TokenLine("te", "admin", "other", ""))
	ahead.Add(int64(time.Minute))
	want("Bearer secret", "refused")
	want("Bearer other", "te admin token")
	credentialtest.WriteTokens(t, file, "te: root")
	ahead.Add(int64(time.Minute))
	want("Bearer other", "te admin token") // a file that cannot be read changes nothing
}
