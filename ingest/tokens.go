package ingest

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

const (
	maxTokens         = 1 << 16
	maxTokenFileBytes = 16 << 20
	maxTokenBytes     = 4096
)

// token is a line of a token file.
type token struct {
	name    string
	hash    [sha256.Size]byte
	expires time.Time // zero: never
}

// readTokens reads a file of lines "NAME: SHA256 [EXPIRES]": the exporter's identity, the
// hash of its token in hex, and until when it holds (RFC 3339). Empty lines and those
// that begin with # are passed over. A name may have several tokens, for their rotation.
func readTokens(path string) ([]token, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read tokens: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxTokenFileBytes+1))
	if err == nil && len(text) > maxTokenFileBytes {
		err = fmt.Errorf("more than %d bytes", maxTokenFileBytes)
	}
	if err != nil {
		return nil, fmt.Errorf("read tokens from %s: %w", path, err)
	}
	tokens, err := parseTokens(text)
	if err != nil {
		return nil, fmt.Errorf("read tokens from %s: %w", path, err)
	}
	return tokens, nil
}

func parseTokens(text []byte) ([]token, error) {
	var tokens []token
	owner := map[[sha256.Size]byte]string{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		t, err := parseToken(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if other, taken := owner[t.hash]; taken && other != t.name {
			return nil, fmt.Errorf("line %d: %s has the same token as %s", n, t.name, other)
		}
		owner[t.hash] = t.name
		if tokens = append(tokens, t); len(tokens) > maxTokens {
			return nil, fmt.Errorf("line %d: more than %d tokens", n, maxTokens)
		}
	}
	return tokens, lines.Err()
}

func parseToken(line string) (t token, err error) {
	name, rest, ok := strings.Cut(line, ":")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 1 || len(fields) > 2 {
		return t, errors.New("expected NAME: SHA256 [EXPIRES]")
	}
	t.name = strings.TrimSpace(name)
	if err := checkName(t.name); err != nil {
		return t, err
	}
	sum, err := hex.DecodeString(fields[0])
	if err != nil || len(sum) != sha256.Size {
		return t, fmt.Errorf("token of %s: expected the SHA-256 of the token, 64 hex digits", t.name)
	}
	copy(t.hash[:], sum)
	if len(fields) == 2 {
		if t.expires, err = time.Parse(time.RFC3339, fields[1]); err != nil {
			return t, fmt.Errorf("token of %s: expected a time such as 2027-01-31T00:00:00Z: %w", t.name, err)
		}
	}
	return t, nil
}

// findToken tells whose token it is. It looks at all tokens, whichever one fits, so that
// how long it takes tells nothing.
func findToken(tokens []token, presented string, now time.Time) (name string, why Reason, ok bool) {
	if len(presented) > maxTokenBytes {
		return "", ReasonUnknownToken, false
	}
	hash := sha256.Sum256([]byte(presented))
	at := -1
	for i := range tokens {
		at = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(tokens[i].hash[:], hash[:]), i, at)
	}
	if at < 0 {
		return "", ReasonUnknownToken, false
	}
	t := &tokens[at]
	if !t.expires.IsZero() && !now.Before(t.expires) {
		return t.name, ReasonExpiredToken, false
	}
	return t.name, 0, true
}
