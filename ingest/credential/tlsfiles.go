package credential

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// TLSFiles names the PEM files of one end of a connection. They are read again when they
// change. Connections that are open stay open at the end that opened them; a Gate cuts those
// that it would refuse by now.
type TLSFiles struct {
	Cert, Key string // of this end
	CA        string // the authorities that vouch for the other end
}

// Keys are what TLS files hold. They are read-only.
type Keys struct {
	Cert *tls.Certificate // nil without
	Pool *x509.CertPool   // nil without
}

// Check says which file is missing among those that are named. It reads none.
func (f TLSFiles) Check() error {
	if (f.Cert == "") != (f.Key == "") {
		return errors.New("expected a certificate and its key, or neither")
	}
	return nil
}

// Watch reads the files; nil where none are named.
func (f TLSFiles) Watch(now func() time.Time, logger *slog.Logger) (*Watched[Keys], error) {
	if f == (TLSFiles{}) {
		return nil, nil
	}
	if err := f.Check(); err != nil {
		return nil, fmt.Errorf("read TLS files: %w", err)
	}
	var paths []string
	for _, p := range []string{f.Cert, f.Key, f.CA} {
		if p != "" {
			paths = append(paths, p)
		}
	}
	w, err := Watch(f.Load, now, logger, paths...)
	if err != nil {
		return nil, fmt.Errorf("read TLS files: %w", err)
	}
	return w, nil
}

// Load reads the files as they are now.
func (f TLSFiles) Load() (k Keys, err error) {
	if f.Cert != "" {
		cert, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return k, fmt.Errorf("read certificate %s: %w", f.Cert, err)
		}
		k.Cert = &cert
	}
	if f.CA != "" {
		text, err := os.ReadFile(f.CA)
		if err != nil {
			return k, fmt.Errorf("read authorities: %w", err)
		}
		k.Pool = x509.NewCertPool()
		if !k.Pool.AppendCertsFromPEM(text) {
			return k, fmt.Errorf("read authorities from %s: no certificate in PEM found", f.CA)
		}
	}
	return k, nil
}

// vouched is a certificate that was verified.
type vouched struct {
	name  string
	pool  *x509.CertPool // against
	until time.Time      // the first certificate of its chain expires
}

// maxVouched bounds the certificates that are remembered.
const maxVouched = 1 << 14

// vouchers remembers who was verified: connections last long, and every request on them
// is asked who it is from. Safe for concurrent use.
type vouchers struct {
	mu   sync.Mutex
	list map[[sha256.Size]byte]vouched
}

// verify tells who a client's certificate belongs to.
func (v *vouchers) verify(chain []*x509.Certificate, pool *x509.CertPool, now time.Time) (string, *Error) {
	sum := sha256.Sum256(chain[0].Raw)
	v.mu.Lock()
	known, ok := v.list[sum]
	v.mu.Unlock()
	if ok && known.pool == pool && now.Before(known.until) {
		return known.name, nil
	}
	name, until, refused := verifyClient(chain, pool, now)
	if refused != nil {
		return "", refused
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.list == nil || len(v.list) >= maxVouched {
		v.list = map[[sha256.Size]byte]vouched{}
	}
	v.list[sum] = vouched{name, pool, until}
	return name, nil
}

// verifyClient tells who a client's certificate belongs to, and until when.
func verifyClient(chain []*x509.Certificate, pool *x509.CertPool, now time.Time) (string, time.Time, *Error) {
	leaf := chain[0]
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	chains, err := leaf.Verify(x509.VerifyOptions{
		Roots: pool, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "", time.Time{}, &Error{Reason: ExpiredCertificate, Cause: err}
	case err != nil:
		return "", time.Time{}, &Error{Reason: ForeignCertificate, Cause: err}
	}
	name, err := nameOf(leaf)
	if err != nil {
		return "", time.Time{}, &Error{Reason: NamelessCertificate, Cause: err}
	}
	until := leaf.NotAfter
	for _, c := range chains[0] {
		if c.NotAfter.Before(until) {
			until = c.NotAfter
		}
	}
	return name, until, nil
}
