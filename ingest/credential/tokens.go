package credential

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

const (
	maxClients         = 1 << 16
	maxClientFileBytes = 16 << 20
	// MaxTokenBytes bounds a token, in bytes.
	MaxTokenBytes = 4096
)

// clients are what a file of clients holds.
type clients struct {
	tokens map[[sha256.Size]byte]token
	names  []string          // of tokens, in the order of the file
	roles  map[string]string // of certificates, by name
}

// token is a line of the file that lets somebody in by a token.
type token struct {
	name, role string
	expires    time.Time // zero: never
}

// readClients reads a file of lines "NAME: [ROLE] SHA256 [EXPIRES]": who a token belongs to,
// the hash of it in hex, and until when it holds (RFC 3339); where there are roles also
// "NAME: ROLE certificate", for who comes with a certificate of that name. Empty lines and
// those that begin with # are passed over. A name may have several tokens, for their
// rotation.
func readClients(path string, roles []string) (*clients, error) {
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

func parseClients(text []byte, roles []string) (*clients, error) {
	c := &clients{tokens: make(map[[sha256.Size]byte]token), roles: make(map[string]string)}
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

// certificateWord stands where a token's hash would.
const certificateWord = "certificate"

// parseClient reads a line: the hash of a token, or none for a certificate.
func parseClient(line string, roles []string) (t token, hash []byte, err error) {
	expected := errors.New("expected NAME: SHA256 [EXPIRES]")
	if len(roles) > 0 {
		expected = fmt.Errorf("expected NAME: ROLE SHA256 [EXPIRES] or NAME: ROLE %s, with a role of %v", certificateWord, roles)
	}
	// A name may be a URI: what ends it is a colon and a space, where there is one.
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
	if len(roles) > 0 {
		if t.role, fields = fields[0], fields[1:]; !slices.Contains(roles, t.role) {
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

// find returns the token that was presented. What it costs does not depend on how many tokens
// there are, so wrong ones are cheap to refuse; how long it takes tells a guesser something
// of a hash at most, and nothing of a token.
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
