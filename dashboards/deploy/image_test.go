package deploy_test

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.." // of the repository, the images' build context

// stage is one image of a Containerfile.
type stage struct {
	from  string
	lines []string
}

func stages(t *testing.T) map[string]stage {
	t.Helper()
	all := make(map[string]stage)
	var current string
	for line := range strings.Lines(string(read(t, "Containerfile"))) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if m := regexp.MustCompile(`^FROM (?:--platform=\S+ )?(\S+) AS (\S+)$`).FindStringSubmatch(line); m != nil {
			current = m[2]
			all[current] = stage{from: m[1]}
			continue
		}
		s := all[current]
		s.lines = append(s.lines, line)
		all[current] = s
	}
	return all
}

// TestImages checks that both images hold only the binary, certificates and a state folder, and run
// as an unprivileged user; that copied files exist; and that only one image has the capability.
func TestImages(t *testing.T) {
	all := stages(t)
	if base := all["base"]; base.from != "scratch" || !slices.Contains(base.lines, "USER 65532:65532") ||
		!slices.Contains(base.lines, `ENTRYPOINT ["/usr/local/bin/csigscope"]`) || !slices.Contains(base.lines, "ENV XDG_DATA_HOME=/var/lib") {
		t.Errorf("base %+v", base)
	}
	for target, source := range map[string]string{"csigscope": "build", "tap": "capable"} {
		want := []string{"COPY --from=" + source + " /out/csigscope /usr/local/bin/csigscope"}
		if s := all[target]; s.from != "base" || !slices.Equal(s.lines, want) {
			t.Errorf("%s: %+v, want %q", target, s, want)
		}
	}
	for name, s := range all {
		for _, line := range s.lines {
			if strings.Contains(line, "setcap") && (name != "capable" || !strings.Contains(line, "setcap cap_net_raw+ep /out/csigscope")) {
				t.Errorf("%s: %s", name, line)
			}
			f := strings.Fields(line)
			if f[0] != "COPY" || strings.HasPrefix(f[1], "--from") {
				continue
			}
			for _, source := range f[1 : len(f)-1] {
				if _, err := os.Stat(filepath.Join(root, source)); err != nil {
					t.Error(err)
				}
			}
		}
	}
	module := string(read(t, filepath.Join(root, "go.mod")))
	if m := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(module); m == nil || all["build"].from != "golang:"+m[1]+"-bookworm" {
		t.Errorf("built with %s, the module wants %v", all["build"].from, m)
	}
}

// goBuild returns the image's build command.
func goBuild(t *testing.T) string {
	t.Helper()
	for _, line := range stages(t)["build"].lines {
		if command, ok := strings.CutPrefix(line, "RUN CGO_ENABLED=0 "); ok {
			return "CGO_ENABLED=0 " + command
		}
	}
	t.Fatal("the image does not build without cgo")
	return ""
}

// TestStatic checks that no dependency needs a libc and that the static variants compile.
func TestStatic(t *testing.T) {
	if !strings.Contains(goBuild(t), " -tags static ") {
		t.Fatalf("builds with %s", goBuild(t))
	}
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags", "static", "./cmd/csigscope")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, dependency := range strings.Fields(string(out)) {
		if dependency == "runtime/cgo" || strings.HasPrefix(dependency, "github.com/ebitengine/purego") {
			t.Errorf("depends on %s", dependency)
		}
	}
	cmd = exec.CommandContext(t.Context(), "go", "build", "-tags", "static", "./aggregate/store/chdb")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// TestStaticBinary builds the binary as the image does, which takes a minute, and runs it without
// any other files.
func TestStaticBinary(t *testing.T) {
	if os.Getenv("CSIGSCOPE_TEST_STATIC") == "" {
		t.Skip("SKIPPED: builds csigscope again: run make static")
	}
	out := filepath.Join(t.TempDir(), "csigscope")
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", strings.Replace(goBuild(t), "/out/csigscope", out, 1))
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "TARGETOS=linux", "TARGETARCH=amd64", "VERSION=v0.0.0-image")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	binary, err := elf.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer binary.Close()
	for _, p := range binary.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("is linked dynamically: %v", p.Type)
		}
	}
	text, err := exec.CommandContext(t.Context(), out, "version").CombinedOutput()
	if err != nil || !strings.Contains(string(text), "v0.0.0-image") {
		t.Errorf("%v: %s", err, text)
	}
	// Commands that need the engine must say so.
	cmd = exec.CommandContext(t.Context(), out, "replay", "--scenario", "quickstart")
	cmd.Env = append(os.Environ(), "XDG_DATA_HOME="+t.TempDir())
	if text, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(text), "built statically") || !strings.Contains(string(text), "--store clickhouse://") {
		t.Errorf("%v: %s", err, text)
	}
}
