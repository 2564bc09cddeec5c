package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/csigscope/csigscope/capture/livetest"
)

// earlierCommit is the previous version with respect to the wire and the store. It changes with
// each release.
const earlierCommit = "7238a897fcc4126fa8c5dac7dbe754165e872650"

// earlierEnv passes the built command of that version to processes that tests start.
const earlierEnv = "CSIGSCOPE_TEST_EARLIER_BINARY"

// earlierBinary builds the command of earlierCommit. A checkout without history skips the test.
func earlierBinary(t *testing.T) string {
	t.Helper()
	if path := os.Getenv(earlierEnv); path != "" {
		return path
	}
	shallow, err := exec.CommandContext(t.Context(), "git", "rev-parse", "--is-shallow-repository").Output()
	if err != nil || strings.TrimSpace(string(shallow)) != "false" {
		t.Skip("SKIPPED: this checkout has no history: clone the whole repository")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "csigscope")
	for _, command := range []string{
		"git -C ../.. archive --format=tar " + earlierCommit + " | tar -x -C " + dir + " --one-top-level=source",
		"cd " + dir + "/source && go build -trimpath -o " + path + " ./cmd/csigscope",
	} {
		if out, err := exec.CommandContext(t.Context(), "bash", "-o", "pipefail", "-c", command).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
	}
	if err := os.Setenv(earlierEnv, path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Unsetenv(earlierEnv) })
	return path
}

// TestVersions: an exporter and a collector one version apart work together in both directions,
// this version upgrades the earlier one's store, and nothing is lost or counted twice on the
// way. The earlier version refuses the upgraded store: the way back is a backup from before the
// upgrade.
func TestVersions(t *testing.T) {
	t.Parallel()
	env := engineEnv(t)
	earlier := earlierBinary(t)
	if !inNamespace(t) {
		return
	}
	livetest.MakeLink(t)
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	store, backup, address := filepath.Join(dir, "store"), filepath.Join(dir, "backup"), freeAddress(t)
	dsn := "embedded:" + store
	config := writeFile(t, filepath.Join(dir, "collect.yaml"), "collect:\n  ingest: {listen: "+address+", anonymous: host1}\n")
	var sent, early int
	for _, step := range []struct{ name, exporter, collector string }{
		{"exporters first", path, earlier},
		{"the collector too", path, path},
		{"exporters back", earlier, path},
	} {
		server := startUntil(t, step.collector, env, "exporters at "+address, "collect", "--config", config, "--store", dsn)
		export := func() *collecting {
			return startUntil(t, step.exporter, env, "exporting from", "export", "--interface", livetest.TapEnd, "--collector", "http://"+address, "--spool", filepath.Join(dir, "spool"))
		}
		host := export()
		stop := traffic(t, 1000)
		host.waitRounds(dir, 2)
		sent += len(stop())
		handOver(host, export)
		server.end(syscall.SIGTERM)
		t.Logf("%s:\n%s%s", step.name, server.log(), host.log())
		if step.collector == earlier {
			early = sent
			runVersion(t, earlier, env, 0, "schema", "backup", "--store", dsn, backup)
		}
	}
	check := func(dsn string, sent int) {
		t.Helper()
		dropped := droppedBy(t, env, dsn)
		if got := stored(t, env, dsn); got == 0 || got+dropped != uint64(sent) {
			t.Errorf("%d packets sent, %d observations stored, the kernel dropped %d", sent, got, dropped)
		}
		mustRun(t, env, "schema", "verify", "--store", dsn)
	}
	check(dsn, sent)
	if text := runVersion(t, earlier, env, exitFailed, "collect", "--config", config, "--store", dsn); !strings.Contains(text, "schema is newer than this program") {
		t.Errorf("the earlier version does not say that the store is newer than itself:\n%s", text)
	}
	check(dsn, sent)
	back := "embedded:" + filepath.Join(dir, "back")
	runVersion(t, earlier, env, 0, "schema", "restore", "--store", back, backup)
	startUntil(t, earlier, env, "exporters at "+address, "collect", "--config", config, "--store", back).end(syscall.SIGTERM)
	mustRun(t, env, "schema", "migrate", "--store", back)
	check(back, early)
}

// runVersion runs another version's command, which must end with the exit code.
func runVersion(t *testing.T, path string, env []string, code int, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != code {
		t.Fatalf("csigscope %s: %v: want exit code %d\n%s", strings.Join(args, " "), err, code, out)
	}
	return string(out)
}
