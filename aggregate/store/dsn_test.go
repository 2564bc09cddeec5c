package store

import (
	"strings"
	"testing"
	"time"
)

func TestParseDSN(t *testing.T) {
	t.Setenv(PasswordVariable, "from-env")
	for _, c := range []struct{ dsn, kind, dir, database, addr, user, password string }{
		{dsn: "none", kind: KindNone},
		{dsn: "embedded", kind: KindEmbedded, database: "csigscope"},
		{dsn: "embedded:/var/lib/a:b", kind: KindEmbedded, dir: "/var/lib/a:b", database: "csigscope"},
		{"clickhouse://u:p%40ss@db.example:9001/net", KindServer, "", "net", "db.example:9001", "u", "p@ss"},
		{"clickhouse://u@db.example", KindServer, "", "csigscope", "db.example:9000", "u", "from-env"},
		{"clickhouse://[::1]/?secure=true", KindServer, "", "csigscope", "[::1]:9440", "default", "from-env"},
		{"clickhouse://u:@h", KindServer, "", "csigscope", "h:9000", "u", ""},
	} {
		got, err := ParseDSN(c.dsn)
		if err != nil {
			t.Errorf("%s: %v", c.dsn, err)
			continue
		}
		if got.Kind != c.kind || got.Dir != c.dir || got.Database != c.database {
			t.Errorf("%s: %+v", c.dsn, got)
		}
		if c.kind != KindServer {
			continue
		}
		if o := got.Options; o.Addr[0] != c.addr || o.Auth.Username != c.user || o.Auth.Password != c.password {
			t.Errorf("%s: address %s, user %s, password %s", c.dsn, o.Addr[0], o.Auth.Username, o.Auth.Password)
		}
		if s := got.String(); c.password != "" && strings.Contains(s, c.password) {
			t.Errorf("%s is printed with its password: %s", c.dsn, s)
		}
	}
}

func TestParseDSNOptions(t *testing.T) {
	got, err := ParseDSN("clickhouse://u@h/db?secure=1&skip_verify=true&dial_timeout=2s")
	if err != nil {
		t.Fatal(err)
	}
	if o := got.Options; o.TLS == nil || !o.TLS.InsecureSkipVerify || o.TLS.ServerName != "h" || o.DialTimeout != 2*time.Second {
		t.Errorf("options %+v", o)
	}
	if got, err := ParseDSN("clickhouse://u@h/db"); err != nil || got.Options.TLS != nil {
		t.Errorf("TLS without being asked for: %v", err)
	}
}

func TestParseDSNErrors(t *testing.T) {
	for dsn, want := range map[string]string{
		"":                                   "expected none, embedded",
		"embed":                              "expected none, embedded",
		"embedded:":                          "no folder",
		"postgres://u:secret@h":              "expected none, embedded",
		"clickhouse:u@h":                     "expected none, embedded",
		"clickhouse://":                      "no host",
		"clickhouse://u:secret@h:port":       "port",
		"clickhouse://u:secret@h/a-b":        "database",
		"clickhouse://u:secret@h/db?secur=1": "unknown parameter secur",
		"clickhouse://u@h/db?secure=maybe":   "parameter secure",
		"clickhouse://u@h/db?ca=a&ca=b":      "2 times",
		"clickhouse://u@h/db?cert=only.pem":  "expected both",
		"clickhouse://u@h/?ca=missing.pem":   "read ca",
		"clickhouse://u@h/?ca=dsn_test.go":   "no certificate",
		"clickhouse://u@h/?dial_timeout=-1s": "above 0",
	} {
		_, err := ParseDSN(dsn)
		if err == nil {
			t.Errorf("%s: accepted", dsn)
			continue
		}
		if text := err.Error(); !strings.Contains(text, want) || strings.Contains(text, "secret") || strings.Contains(text, "\n") {
			t.Errorf("%s: %q, want one line with %q and without the password", dsn, text, want)
		}
	}
}

func FuzzParseDSN(f *testing.F) {
	for _, seed := range []string{"none", "embedded:dir", "clickhouse://u:p@h:1/db?secure=true", "clickhouse://%zz"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, dsn string) {
		if strings.Contains(dsn, "ca=") || strings.Contains(dsn, "cert=") {
			t.Skip("names files")
		}
		got, err := ParseDSN(dsn)
		if err == nil && got.Kind == KindServer && (got.Options == nil || !databaseName.MatchString(got.Database)) {
			t.Errorf("%q: %+v", dsn, got)
		}
	})
}
