// Package edgetest makes authorities, certificates and token files for tests.
package edgetest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/csigscope/csigscope/ingest/edge"
)

// Authority signs the certificates of a test.
type Authority struct {
	File string // its own certificate

	t    testing.TB
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	n    int64
}

// NewAuthority makes an authority that is valid for an hour. Its files are removed after the
// test.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t, dir: t.TempDir()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority of " + t.Name()}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	var der []byte
	der, a.key = a.sign(template, nil)
	a.cert, _ = x509.ParseCertificate(der)
	a.File = filepath.Join(a.dir, "ca.pem")
	a.write(a.File, "CERTIFICATE", der)
	return a
}

func (a *Authority) sign(template, parent *x509.Certificate) ([]byte, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	signer := a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	return der, key
}

func (a *Authority) write(name, kind string, der []byte) {
	a.t.Helper()
	if err := os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

// Issue writes a certificate for a name, valid until the given time.
func (a *Authority) Issue(name string, until time.Time, change ...func(*x509.Certificate)) edge.TLSFiles {
	a.t.Helper()
	a.n++
	template := &x509.Certificate{
		SerialNumber: big.NewInt(a.n + 1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, f := range change {
		f(template)
	}
	der, key := a.sign(template, a.cert)
	f := edge.TLSFiles{
		Cert: filepath.Join(a.dir, fmt.Sprintf("%d.pem", a.n)), Key: filepath.Join(a.dir, fmt.Sprintf("%d.key", a.n)), CA: a.File,
	}
	a.write(f.Cert, "CERTIFICATE", der)
	text, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(f.Key, "EC PRIVATE KEY", text)
	return f
}

// Server writes a server certificate for loopback.
func (a *Authority) Server() edge.TLSFiles {
	a.t.Helper()
	return a.Issue("collector", time.Now().Add(time.Hour), func(c *x509.Certificate) {
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	})
}

// Pool returns a pool that trusts the authority.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// WithURI sets the URI name of a certificate.
func WithURI(text string) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		u, _ := url.Parse(text)
		c.URIs = []*url.URL{u}
	}
}

// WriteTokens writes a token file with the given lines.
func WriteTokens(t testing.TB, name string, lines ...string) {
	t.Helper()
	text := "# tokens of a test\n\n"
	for _, l := range lines {
		text += l + "\n"
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TokenLine returns a line of a token file for the secret. Role and expires may be empty.
func TokenLine(name, role, secret, expires string) string {
	return fmt.Sprintf("%s: %s %x %s", name, role, sha256.Sum256([]byte(secret)), expires)
}

// Limited serves h to a client whose budget is exhausted for good: it is told to retry after retry, and has no watcher
// left. With 0, nothing is exhausted.
func Limited(t testing.TB, retry time.Duration, h http.Handler) http.Handler {
	t.Helper()
	now := time.Now()
	s, err := edge.New(edge.Config{
		Auth:   &edge.Auth{Anonymous: edge.Peer{Name: "anonymous", Role: edge.Read}},
		Access: &edge.Access{Settings: edge.Settings{Limits: edge.Limits{StoreTime: time.Minute, Watchers: 1}}},
		Now:    func() time.Time { return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	spend := httptest.NewRequest("GET", "/", nil)
	if retry > 0 {
		s.Guard(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			b := edge.BudgetOf(r.Context())
			b.ChargeTime(time.Minute + retry - time.Millisecond)
			_, err = b.AcquireStream() // never released
		})).ServeHTTP(httptest.NewRecorder(), spend)
	}
	if err != nil {
		t.Fatal(err)
	}
	guarded := s.Guard(h)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.RemoteAddr = spend.RemoteAddr // the same client
		guarded.ServeHTTP(w, r)
	})
}
