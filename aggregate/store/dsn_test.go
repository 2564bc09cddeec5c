package store

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/ingest/edge/edgetest"
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

// TestTLSFiles: each connection to a server uses the present certificate and authorities in the
// files.
func TestTLSFiles(t *testing.T) {
	ca := edgetest.NewAuthority(t)
	files := ca.Issue("collector", time.Now().Add(time.Hour))
	target, err := ParseDSN("clickhouse://u@127.0.0.1/db?ca=" + ca.File + "&cert=" + files.Cert + "&key=" + files.Key)
	if err != nil {
		t.Fatal(err)
	}
	// shake returns the name of the certificate that a server of an authority sees.
	shake := func(of *edgetest.Authority) (string, error) {
		t.Helper()
		server := of.Server()
		pair, err := tls.LoadX509KeyPair(server.Cert, server.Key)
		if err != nil {
			t.Fatal(err)
		}
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		seen := make(chan string, 1)
		go func() {
			far, err := listener.Accept()
			if err != nil {
				seen <- err.Error()
				return
			}
			defer far.Close()
			s := tls.Server(far, &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAnyClientCert, SessionTicketsDisabled: true})
			_ = s.Handshake() // the client's error counts
			name := ""
			if certificates := s.ConnectionState().PeerCertificates; len(certificates) > 0 {
				name = certificates[0].Subject.CommonName
			}
			seen <- name
		}()
		near, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		err = tls.Client(near, target.Options.TLS).Handshake()
		near.Close()
		return <-seen, err
	}
	if name, err := shake(ca); err != nil || name != "collector" {
		t.Errorf("%q, %v", name, err)
	}
	var unknown x509.UnknownAuthorityError
	next := edgetest.NewAuthority(t)
	if _, err := shake(next); !errors.As(err, &unknown) {
		t.Errorf("a server of another authority: %v", err)
	}
	renewed := next.Issue("renewed", time.Now().Add(time.Hour))
	for to, from := range map[string]string{ca.File: next.File, files.Cert: renewed.Cert, files.Key: renewed.Key} {
		text, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(to, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if name, err := shake(next); err != nil || name != "renewed" {
		t.Errorf("after the files changed: %q, %v", name, err)
	}
	if _, err := shake(ca); !errors.As(err, &unknown) {
		t.Errorf("a server of the old authority: %v", err)
	}
	other, err := ParseDSN("clickhouse://u@localhost/db?ca=" + ca.File)
	if err != nil {
		t.Fatal(err)
	}
	target = other
	var name x509.HostnameError
	if _, err := shake(next); !errors.As(err, &name) {
		t.Errorf("a server of another name: %v", err)
	}
}

func TestPasswordFile(t *testing.T) {
	t.Setenv(PasswordVariable, "from-env")
	path := filepath.Join(t.TempDir(), "password")
	for content, want := range map[string]string{"s3cret\n": "s3cret", "a b\r\nsecond": "a b", "bare": "bare"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := ParseDSN("clickhouse://u@h/db?password_file=" + path)
		if err != nil || got.Options.Auth.Password != want {
			t.Errorf("%q: %v, want the password %q", content, err, want)
		}
	}
	if _, err := ParseDSN("clickhouse://u:p@h/db?password_file=" + path); err == nil || !strings.Contains(err.Error(), "one of them") {
		t.Errorf("two passwords: %v", err)
	}
	if err := os.WriteFile(path, []byte("\nsecond"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{path, path + "-absent"} {
		if _, err := ParseDSN("clickhouse://u@h/db?password_file=" + file); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestWithoutPassword(t *testing.T) {
	for dsn, want := range map[string]string{
		"": "", "none": "none", "embedded:/a:b@c": "embedded:/a:b@c",
		"clickhouse://u@h:9/db?secure=true&password_file=f": "clickhouse://u@h:9/db?secure=true&password_file=f",
		"clickhouse://u:secret@h:9/db?secure=true":          "clickhouse://u@h:9/db?secure=true",
		"clickhouse://u:@h":                                 "clickhouse://u@h",
		"clickhouse://u@h/db?password=secret&secure=1":      "clickhouse://u@h/db?secure=1",
		"clickhouse://u:secret%zz@h":                        "",
		"clickhouse:u:secret@h":                             "",
		"postgres://u:secret@h":                             "",
		"u:secret":                                          "",
	} {
		got, held := WithoutPassword(dsn)
		if got != want || held != (got != dsn) {
			t.Errorf("%s: %q, %t, want %q", dsn, got, held, want)
		}
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
		"clickhouse://u@h/?ca=missing.pem":   "missing.pem",
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
		if strings.Contains(dsn, "ca=") || strings.Contains(dsn, "password_file=") || strings.Contains(dsn, "cert=") {
			t.Skip("names files")
		}
		got, err := ParseDSN(dsn)
		if err == nil && got.Kind == KindServer && (got.Options == nil || !databaseName.MatchString(got.Database)) {
			t.Errorf("%q: %+v", dsn, got)
		}
	})
}

// TestServersOfACluster: the options for another server are the target's, with its own name.
func TestServersOfACluster(t *testing.T) {
	target, err := ParseDSN("clickhouse://u:p@db1:9440/db?secure=true&dial_timeout=3s")
	if err != nil {
		t.Fatal(err)
	}
	o, err := target.At("db2:9441")
	if err != nil || o.Addr[0] != "db2:9441" || o.Auth.Password != "p" || o.TLS.ServerName != "db2" || o.DialTimeout != 3*time.Second {
		t.Errorf("%+v, %v", o, err)
	}
	if _, err := target.At("db2"); err == nil {
		t.Error("an address without a port is accepted")
	}
}
