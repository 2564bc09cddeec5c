package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestDist packs the command with a stand-in for the engine's library, which is too large for
// every run: both packages contain all files of an installation, and the same files give the
// same bytes later, under another time zone and umask.
func TestDist(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: builds the command, which make test-all does")
	}
	t.Parallel()
	for _, tool := range []string{"../../.cache/tools/nfpm", "../../.cache/tools/go-md2man", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil && !errors.Is(err, exec.ErrDot) {
			if os.Getenv("CI") != "" {
				t.Fatalf("%s is not there: run make deps", filepath.Base(tool))
			}
			t.Skipf("SKIPPED: %s is not there: run make deps", filepath.Base(tool))
		}
	}
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	engine := filepath.Join(t.TempDir(), "libchdb.so")
	at := time.Unix(1767600000, 0)
	pack := func(zone, mask string) string {
		if err := os.WriteFile(engine, []byte("engine"), 0o644); err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(t.TempDir(), "dist")
		cmd := exec.CommandContext(t.Context(), "sh", "-c", "umask "+mask+`; exec ../../.ci/dist "$@"`, "dist", out, path, engine, "1.2.3", "1767600000")
		cmd.Env = append(os.Environ(), "TZ="+zone)
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		return out
	}
	first := pack("UTC", "022")
	sums := sumsOf(t, first)
	if again := sumsOf(t, pack("Asia/Tokyo", "077")); !bytes.Equal(sums, again) {
		t.Errorf("packed again:\n%s\nat first:\n%s", again, sums)
	}
	check := exec.CommandContext(t.Context(), "sha256sum", "--check", "SHA256SUMS")
	check.Dir = first
	if out, err := check.CombinedOutput(); err != nil || strings.Count(string(out), ": OK\n") != 3 {
		t.Errorf("%v\n%s", err, out)
	}
	archives, _ := filepath.Glob(filepath.Join(first, "*.tar.gz"))
	packages, _ := filepath.Glob(filepath.Join(first, "*.deb"))
	if len(archives) != 1 || len(packages) != 1 {
		t.Fatalf("archives %q, packages %q", archives, packages)
	}
	zipped, err := os.ReadFile(archives[0])
	if err != nil {
		t.Fatal(err)
	}
	archive, err := gzip.NewReader(bytes.NewReader(zipped))
	if err != nil {
		t.Fatal(err)
	}
	unpacked, err := exec.CommandContext(t.Context(), "dpkg-deb", "--fsys-tarfile", packages[0]).Output()
	if err != nil {
		t.Fatal(err)
	}
	top := strings.TrimSuffix(filepath.Base(archives[0]), ".tar.gz") + "/"
	checkPackage(t, archive, top, "/usr/local/bin", "site-functions", at)
	checkPackage(t, bytes.NewReader(unpacked), "./usr/", "/usr/bin", "vendor-completions", at)
	for _, script := range []string{"postinst", "postrm"} { // systemd uses the units of an upgrade
		text, err := exec.CommandContext(t.Context(), "dpkg-deb", "--info", packages[0], script).Output()
		if err != nil || !strings.Contains(string(text), "systemctl daemon-reload") {
			t.Errorf("%s: %v\n%s", script, err, text)
		}
	}
}

func sumsOf(t *testing.T, dir string) []byte {
	t.Helper()
	sums, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	return sums
}

// checkPackage checks the files below top, which must all have one time; the binary will be in
// bin, and zsh reads its completions in the folder zsh.
func checkPackage(t *testing.T, from io.Reader, top, bin, zsh string, at time.Time) {
	t.Helper()
	files := make(map[string][]byte)
	for r := tar.NewReader(from); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if !h.ModTime.Equal(at) || h.Uid != 0 || h.Gid != 0 || h.Mode&0o022 != 0 {
			t.Errorf("%s: %s, owner %d:%d, mode %o", h.Name, h.ModTime, h.Uid, h.Gid, h.Mode)
		}
		if name, ok := strings.CutPrefix(h.Name, top); ok && h.Typeflag == tar.TypeReg {
			if files[name], err = io.ReadAll(r); err != nil {
				t.Fatal(err)
			}
			if name == "bin/csigscope" && h.Mode&0o111 != 0o111 {
				t.Errorf("%s: mode %o", h.Name, h.Mode)
			}
		}
	}
	for name, want := range map[string]string{
		"bin/csigscope":                                     "\x7fELF",
		"lib/csigscope/libchdb.so":                          "engine",
		"lib/systemd/system/csigscope-tap.service":          "\nExecStart=" + bin + "/csigscope collect ",
		"lib/systemd/system/csigscope-collect.service":      "\nExecStart=" + bin + "/csigscope collect ",
		"lib/systemd/system/csigscope-export.service":       "\nExecStart=" + bin + "/csigscope export ",
		"lib/systemd/system/csigscope-query.service":        "\nExecStart=" + bin + "/csigscope query serve ",
		"share/bash-completion/completions/csigscope":       "csigscope",
		"share/zsh/" + zsh + "/_csigscope":                  "#compdef csigscope",
		"share/fish/vendor_completions.d/csigscope.fish":    "complete -c csigscope",
		"share/doc/csigscope/copyright":                     "Apache License",
		"share/doc/csigscope/examples/csigscope.yaml":       "collect:",
		"share/doc/csigscope/examples/csigscope.rules.yaml": "alert: CsigscopeProducersSilent",
		"share/doc/csigscope/README.md":                     "# csigscope",
	} {
		if !bytes.Contains(files[name], []byte(want)) {
			t.Errorf("%s%s: %d bytes without %q", top, name, len(files[name]), want)
		}
	}
	for _, link := range regexp.MustCompile(`\]\(([^):#]+)`).FindAllStringSubmatch(string(files["share/doc/csigscope/README.md"]), -1) {
		if files["share/doc/csigscope/"+link[1]] == nil {
			t.Errorf("README.md: the package has no %s", link[1])
		}
	}
	manual, err := gzip.NewReader(bytes.NewReader(files["share/man/man1/csigscope.1.gz"]))
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(manual)
	if err != nil || bytes.Contains(page, []byte("\n.TS\n")) {
		t.Errorf("manual page: %v, with tables: %t", err, bytes.Contains(page, []byte("\n.TS\n")))
	}
	for _, want := range []string{"\n.TH CSIGSCOPE 1\n", "\n.SH csigscope replay\n", "\n\\fB--odd-packets count|ring\\fR\n", "\n.TP\n\\fB--commit-interval DURATION\\fR (default 1s)\nlongest time"} {
		if !bytes.Contains(page, []byte(want)) {
			t.Errorf("manual page without %q", want)
		}
	}
	var parts struct {
		BOMFormat  string
		Components []struct{ Name, Version, PURL string }
	}
	if err := json.Unmarshal(files["share/doc/csigscope/csigscope.cdx.json"], &parts); err != nil || parts.BOMFormat != "CycloneDX" {
		t.Fatalf("parts: %v, %q", err, parts.BOMFormat)
	}
	for _, prefix := range []string{"pkg:golang/stdlib@go1.", "pkg:golang/github.com/ClickHouse/clickhouse-go/v2@v2.", "pkg:npm/%40chdb/lib-"} {
		if !slices.ContainsFunc(parts.Components, func(c struct{ Name, Version, PURL string }) bool { return strings.HasPrefix(c.PURL, prefix) }) {
			t.Errorf("no part %s in %v", prefix, parts.Components)
		}
	}
}
