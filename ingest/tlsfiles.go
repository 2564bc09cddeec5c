package ingest

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"
)

// TLSFiles names the PEM files of one end of a connection. They are read again when they
// change; connections that are open stay open.
type TLSFiles struct {
	Cert, Key string // of this end
	CA        string // the authorities that vouch for the other end
}

// keys are what TLS files hold.
type keys struct {
	cert *tls.Certificate // nil without
	pool *x509.CertPool   // nil without
}

// watch reads the files; nil where none are named.
func (f TLSFiles) watch(now func() time.Time, logger *slog.Logger) (*watched[keys], error) {
	if f == (TLSFiles{}) {
		return nil, nil
	}
	if (f.Cert == "") != (f.Key == "") {
		return nil, errors.New("read TLS files: expected a certificate and its key, or neither")
	}
	var paths []string
	for _, p := range []string{f.Cert, f.Key, f.CA} {
		if p != "" {
			paths = append(paths, p)
		}
	}
	w, err := newWatched(f.load, now, logger, paths...)
	if err != nil {
		return nil, fmt.Errorf("read TLS files: %w", err)
	}
	return w, nil
}

func (f TLSFiles) load() (k keys, err error) {
	if f.Cert != "" {
		cert, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return k, fmt.Errorf("read certificate %s: %w", f.Cert, err)
		}
		k.cert = &cert
	}
	if f.CA != "" {
		text, err := os.ReadFile(f.CA)
		if err != nil {
			return k, fmt.Errorf("read authorities: %w", err)
		}
		k.pool = x509.NewCertPool()
		if !k.pool.AppendCertsFromPEM(text) {
			return k, fmt.Errorf("read authorities from %s: no certificate in PEM found", f.CA)
		}
	}
	return k, nil
}

// certError says why a client's certificate is refused.
type certError struct {
	reason Reason
	err    error
}

func (e *certError) Error() string { return fmt.Sprintf("refuse client certificate: %v", e.err) }
func (e *certError) Unwrap() error { return e.err }

// verifyClient tells who a client's certificate belongs to.
func verifyClient(chain []*x509.Certificate, pool *x509.CertPool, now time.Time) (string, *certError) {
	leaf := chain[0]
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := leaf.Verify(x509.VerifyOptions{
		Roots: pool, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "", &certError{ReasonExpiredCertificate, err}
	case err != nil:
		return "", &certError{ReasonForeignCertificate, err}
	}
	name, err := identityOf(leaf)
	if err != nil {
		return "", &certError{ReasonNamelessCertificate, err}
	}
	return name, nil
}
