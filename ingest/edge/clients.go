package edge

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	maxClients         = 1 << 16
	maxClientFileBytes = 16 << 20
	// MaxTokenBytes is the maximum length of a token in bytes.
	MaxTokenBytes = 4096
)

// clients is the content of a clients file.
type clients struct {
	tokens map[[sha256.Size]byte]token
	names  []string        // of tokens, in file order
	roles  map[string]Role // of certificates, by name
}

// token is a line of the file for a client with a token.
type token struct {
	name    string
	role    Role
	expires time.Time // zero: never
}

// readClients reads a file of lines "NAME: SHA256 [EXPIRES]": the owner of a token, the token's
// hash in hex, and its expiry (RFC 3339). With roles, a line is "NAME: ROLE SHA256 [EXPIRES]",
// or "NAME: ROLE certificate" for clients with a certificate of that name. Empty lines and
// lines that begin with # are ignored. A name may have several tokens, for rotation.
func readClients(path string, roles bool) (*clients, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read tokens: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxClientFileBytes+1))
	if err == nil && len(text) > maxClientFileBytes {
		err = fmt.Errorf("more than %d bytes", maxClientFileBytes)
	}
	if err != nil {
		return nil, fmt.Errorf("read tokens from %s: %w", path, err)
	}
	c, err := parseClients(text, roles)
	if err != nil {
		return nil, fmt.Errorf("read tokens from %s: %w", path, err)
	}
	return c, nil
}

func parseClients(text []byte, roles bool) (*clients, error) {
	c := &clients{tokens: make(map[[sha256.Size]byte]token), roles: make(map[string]Role)}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		t, hash, err := parseClient(line, roles)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if len(c.names)+len(c.roles) >= maxClients {
			return nil, fmt.Errorf("line %d: more than %d tokens", n, maxClients)
		}
		if hash == nil {
			if role, taken := c.roles[t.name]; taken && role != t.role {
				return nil, fmt.Errorf("line %d: the certificate of %s has the role %s already", n, t.name, role)
			}
			c.roles[t.name] = t.role
			continue
		}
		key := [sha256.Size]byte(hash)
		if other, taken := c.tokens[key]; taken && (other.name != t.name || other.role != t.role) {
			return nil, fmt.Errorf("line %d: %s has the same token as %s", n, t.name, other.name)
		}
		c.tokens[key] = t
		c.names = append(c.names, t.name)
	}
	return c, lines.Err()
}

// certificateWord replaces the hash in a line for a certificate.
const certificateWord = "certificate"

// parseClient parses a line and returns the hash of its token, or nil for a certificate.
func parseClient(line string, roles bool) (t token, hash []byte, err error) {
	expected := errors.New("expected NAME: SHA256 [EXPIRES]")
	if roles {
		expected = fmt.Errorf("expected NAME: ROLE SHA256 [EXPIRES] or NAME: ROLE %s, with a role of %v", certificateWord, allRoles())
	}
	// A name may be a URI, so it ends at a colon with a space if the line has one.
	name, rest, ok := strings.Cut(line, ": ")
	if !ok {
		name, rest, ok = strings.Cut(line, ":")
	}
	fields := strings.Fields(rest)
	t.name = strings.TrimSpace(name)
	if !ok || len(fields) == 0 {
		return t, nil, expected
	}
	if err := CheckName(t.name); err != nil {
		return t, nil, err
	}
	if roles {
		if t.role, fields = Role(fields[0]), fields[1:]; !slices.Contains(allRoles(), t.role) {
			return t, nil, fmt.Errorf("role %.64q of %s: %w", t.role, t.name, expected)
		}
		if len(fields) == 1 && fields[0] == certificateWord {
			return t, nil, nil
		}
	}
	if len(fields) < 1 || len(fields) > 2 {
		return t, nil, expected
	}
	hash, err = hex.DecodeString(fields[0])
	if err != nil || len(hash) != sha256.Size {
		return t, nil, fmt.Errorf("token of %s: expected the SHA-256 of the token, 64 hex digits", t.name)
	}
	if len(fields) == 2 {
		if t.expires, err = time.Parse(time.RFC3339, fields[1]); err != nil {
			return t, nil, fmt.Errorf("token of %s: expected a time such as 2027-01-31T00:00:00Z: %w", t.name, err)
		}
	}
	return t, hash, nil
}

// find returns the entry of a presented token. Its cost does not depend on the number of
// tokens, so wrong ones are cheap to refuse. Its timing may reveal something about a hash but
// nothing about a token.
func (c *clients) find(presented string, now time.Time) (t token, why Reason, ok bool) {
	if len(presented) > MaxTokenBytes {
		return t, UnknownToken, false
	}
	t, ok = c.tokens[sha256.Sum256([]byte(presented))]
	switch {
	case !ok:
		return t, UnknownToken, false
	case !t.expires.IsZero() && !now.Before(t.expires):
		return t, ExpiredToken, false
	}
	return t, 0, true
}

// certificate is a verified client certificate.
type certificate struct {
	name  string
	pool  *x509.CertPool // authority that verified it
	until time.Time      // earliest expiry in its chain
}

// maxVerified is the maximum number of cached certificates.
const maxVerified = 1 << 14

// verified caches verified certificates, because each request on a long-lived connection is
// identified again. It is safe for concurrent use.
type verified struct {
	mu   sync.Mutex
	list map[[sha256.Size]byte]certificate
}

// verify returns the name in a client certificate.
func (v *verified) verify(chain []*x509.Certificate, pool *x509.CertPool, now time.Time) (string, *refusedPeer) {
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
	if v.list == nil || len(v.list) >= maxVerified {
		v.list = map[[sha256.Size]byte]certificate{}
	}
	v.list[sum] = certificate{name, pool, until}
	return name, nil
}

// verifyClient returns the name in a client certificate and the earliest expiry of its chain.
func verifyClient(chain []*x509.Certificate, pool *x509.CertPool, now time.Time) (string, time.Time, *refusedPeer) {
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
		return "", time.Time{}, &refusedPeer{reason: ExpiredCertificate, cause: err}
	case err != nil:
		return "", time.Time{}, &refusedPeer{reason: ForeignCertificate, cause: err}
	}
	name, err := nameOf(leaf)
	if err != nil {
		return "", time.Time{}, &refusedPeer{reason: NamelessCertificate, cause: err}
	}
	until := leaf.NotAfter
	for _, c := range chains[0] {
		if c.NotAfter.Before(until) {
			until = c.NotAfter
		}
	}
	return name, until, nil
}

// nameOf returns the name in a certificate: its first URI (as in SPIFFE), else its first DNS
// name, else its common name.
func nameOf(c *x509.Certificate) (string, error) {
	name := c.Subject.CommonName
	switch {
	case len(c.URIs) > 0:
		name = c.URIs[0].String()
	case len(c.DNSNames) > 0:
		name = c.DNSNames[0]
	}
	return name, CheckName(name)
}
