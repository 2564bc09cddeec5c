package ingest

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
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// authority signs certificates of a test.
type authority struct {
	testing.TB
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
	n    int64
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{TB: t, dir: t.TempDir()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority of " + t.Name()}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	var der []byte
	der, a.key = a.sign(template, nil)
	a.cert, _ = x509.ParseCertificate(der)
	a.file = filepath.Join(a.dir, "ca.pem")
	a.write(a.file, "CERTIFICATE", der)
	return a
}

func (a *authority) sign(template, parent *x509.Certificate) ([]byte, *ecdsa.PrivateKey) {
	a.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.Fatal(err)
	}
	signer := a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.Fatal(err)
	}
	return der, key
}

func (a *authority) write(name, kind string, der []byte) {
	a.Helper()
	if err := os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.Fatal(err)
	}
}

// issue writes a certificate of a name that holds until a time.
func (a *authority) issue(name string, until time.Time, change ...func(*x509.Certificate)) TLSFiles {
	a.Helper()
	a.n++
	template := &x509.Certificate{
		SerialNumber: big.NewInt(a.n + 1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, f := range change {
		f(template)
	}
	der, key := a.sign(template, a.cert)
	f := TLSFiles{
		Cert: filepath.Join(a.dir, fmt.Sprintf("%d.pem", a.n)), Key: filepath.Join(a.dir, fmt.Sprintf("%d.key", a.n)), CA: a.file,
	}
	a.write(f.Cert, "CERTIFICATE", der)
	text, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.Fatal(err)
	}
	a.write(f.Key, "EC PRIVATE KEY", text)
	return f
}

// server writes a certificate for loopback.
func (a *authority) server() TLSFiles {
	a.Helper()
	return a.issue("collector", time.Now().Add(time.Hour), func(c *x509.Certificate) {
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	})
}

func withURI(text string) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		u, _ := url.Parse(text)
		c.URIs = []*url.URL{u}
	}
}

// writeTokens writes a token file of lines.
func writeTokens(t testing.TB, name string, lines ...string) {
	t.Helper()
	text := "# tokens of a test\n\n"
	for _, l := range lines {
		text += l + "\n"
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func tokenLine(name, secret, expires string) string {
	return fmt.Sprintf("%s: %x %s", name, sha256.Sum256([]byte(secret)), expires)
}
