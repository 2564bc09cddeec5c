package deploy_test

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// madeSecrets is the output of secrets.sh.
type madeSecrets struct {
	dir       string
	variables []string // of .env
	values    []string
}

// secrets runs secrets.sh in a temporary folder.
func secrets(t *testing.T) madeSecrets {
	t.Helper()
	m := madeSecrets{dir: t.TempDir()}
	script := filepath.Join(m.dir, "secrets.sh")
	if err := os.WriteFile(script, read(t, "secrets.sh"), 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), script, "collector.example", "192.0.2.10", "2001:db8::1").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for line := range strings.Lines(string(read(t, filepath.Join(m.dir, ".env")))) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		m.variables, m.values = append(m.variables, name), append(m.values, value)
	}
	return m
}

// TestSecrets checks that the script's output works for its readers and that others cannot read it.
func TestSecrets(t *testing.T) {
	m := secrets(t)
	if out, err := exec.CommandContext(t.Context(), filepath.Join(m.dir, "secrets.sh")).CombinedOutput(); err == nil {
		t.Errorf("a second run replaces secrets: %s", out)
	}
	for i, value := range m.values {
		if len(value) < 32 || slices.Index(m.values, value) != i {
			t.Errorf("%s is %q", m.variables[i], value)
		}
	}
	for file, want := range map[string]os.FileMode{".env": 0o600, "secrets": 0o700, "secrets/authority/ca.key": 0o600, "secrets/collector/collector.key": 0o644} {
		info, err := os.Stat(filepath.Join(m.dir, file))
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s is %v, want %v", file, got, want)
		}
	}
	for who, file := range map[string]struct{ name, line string }{
		"exporter": {"tokens", "hosts: "}, "controller": {"clients", "controller: read "},
	} {
		token := strings.TrimSpace(string(read(t, filepath.Join(m.dir, "secrets", who, "token"))))
		sum := sha256.Sum256([]byte(token))
		if got, want := string(read(t, filepath.Join(m.dir, "secrets/collector", file.name))), file.line+hex.EncodeToString(sum[:])+"\n"; got != want {
			t.Errorf("%s: %q, want %q", file.name, got, want)
		}
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(read(t, filepath.Join(m.dir, "secrets/exporter/ca.pem"))) {
		t.Fatal("no authority")
	}
	block, _ := pem.Decode(read(t, filepath.Join(m.dir, "secrets/collector/collector.pem")))
	if block == nil {
		t.Fatal("no certificate")
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"localhost", "127.0.0.1", "collector.example", "192.0.2.10", "2001:db8::1"} {
		if _, err := certificate.Verify(x509.VerifyOptions{Roots: roots, DNSName: host}); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	if _, err := certificate.Verify(x509.VerifyOptions{Roots: roots, DNSName: "other.example"}); err == nil {
		t.Error("the certificate holds for everybody")
	}
}
