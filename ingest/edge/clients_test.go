package edge

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"
)

func line(name, role, secret, expires string) string {
	return fmt.Sprintf("%s: %s %x %s\n", name, role, sha256.Sum256([]byte(secret)), expires)
}

// TestClients: a token belongs to the client named in the file, with its role, until it
// expires.
func TestClients(t *testing.T) {
	text := "# who may come\n\n" + line("te", "read", "one", "") + line("spiffe://dc/noc", "admin", "two", "2026-01-02T00:00:00Z") +
		line("te", "read", "three", "") + "noc.example: admin certificate\n"
	c, err := parseClients([]byte(text), true)
	if err != nil {
		t.Fatal(err)
	}
	before, after := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		secret string
		now    time.Time
		name   string
		role   Role
		why    Reason
		ok     bool
	}{
		{"one", after, "te", "read", 0, true},
		{"three", after, "te", "read", 0, true},
		{"two", before, "spiffe://dc/noc", "admin", 0, true},
		{"two", after, "spiffe://dc/noc", "admin", ExpiredToken, false},
		{"four", before, "", "", UnknownToken, false},
		{"", before, "", "", UnknownToken, false},
		{strings.Repeat("x", MaxTokenBytes+1), before, "", "", UnknownToken, false},
	} {
		got, why, ok := c.find(tc.secret, tc.now)
		if got.name != tc.name || got.role != tc.role || why != tc.why || ok != tc.ok {
			t.Errorf("%.10q: %s %s %s %v, want %+v", tc.secret, got.name, got.role, why, ok, tc)
		}
	}
	if c.roles["noc.example"] != "admin" || c.roles["te"] != "" {
		t.Errorf("roles of certificates %v", c.roles)
	}
}

// TestClientMistakes: the error names the line of a mistake.
func TestClientMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"te":                                    "line 1: expected NAME: ROLE SHA256",
		"\nte: root " + strings.Repeat("0", 64): `line 2: role "root" of te`,
		"te: read 12":                           "64 hex digits",
		"te: read":                              "line 1: expected",
		line("te", "read", "x", "tomorrow"):     "2027-01-31T00:00:00Z",
		line("te", "read", "x", "") + line("tf", "read", "x", ""):    "line 2: tf has the same token as te",
		line("te", "read", "x", "") + line("te", "admin", "x", ""):   "line 2: te has the same token",
		"noc: read certificate\nnoc: admin certificate":              "line 2: the certificate of noc has the role read",
		"\x01: read certificate":                                     "printable",
		line("te", "read", "x", "2027-01-31T00:00:00Z surplus"):      "line 1: expected",
		strings.Repeat("a", MaxNameBytes+1) + ": read certificate\n": "expected 1 to 256 bytes",
	} {
		if _, err := parseClients([]byte(text), true); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
	}
}

// TestTokenFiles: a line has no role if roles are off.
func TestTokenFiles(t *testing.T) {
	good := fmt.Sprintf("a: %x", sha256.Sum256([]byte("x")))
	for text, want := range map[string]string{
		good: "",
		"  " + good + " 2030-01-01T00:00:00Z\n# comment\n": "",
		strings.Replace(good, " ", "", 1):                  "",
		good + "\nb" + good[1:]:                            "line 2: b has the same token as a",
		"a " + good[3:]:                                    "expected NAME: SHA256",
		"a: 12":                                            "64 hex digits",
		"a: read" + good[2:]:                               "64 hex digits",
		"a: certificate":                                   "64 hex digits",
		good + " tomorrow":                                 "expected a time such as",
		"\x01" + good:                                      "printable",
		good + " 2030-01-01T00:00:00Z more":                "expected NAME: SHA256",
	} {
		_, err := parseClients([]byte(text), false)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// FuzzClients parses arbitrary bytes as a clients file.
func FuzzClients(f *testing.F) {
	f.Add([]byte(line("a", "", "x", "2030-01-01T00:00:00Z")+"\n# comment\n\n"+line("b", "", "y", "")), false)
	f.Add([]byte(line("a", "read", "x", "")+"b: admin certificate\n"), true)
	f.Fuzz(func(t *testing.T, data []byte, withRoles bool) {
		c, err := parseClients(data, withRoles)
		if err != nil {
			return
		}
		for _, tok := range c.tokens {
			if err := CheckName(tok.name); err != nil || withRoles != (tok.role != "") {
				t.Errorf("%+v: %v", tok, err)
			}
		}
		c.find("x", time.Unix(0, 0))
	})
}
