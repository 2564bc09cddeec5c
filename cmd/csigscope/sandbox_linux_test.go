package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/csigscope/csigscope/capture/livetest"
)

// collectSandboxed: collect captures packets, reloads, survives a crash of its engine, and a
// later process resumes, all without access to other files, for the engine too.
func collectSandboxed(t *testing.T, env []string) {
	if !landlock() {
		t.Skip("SKIPPED: this kernel has no Landlock")
	}
	dir := t.TempDir()
	etc, elsewhere := filepath.Join(dir, "etc"), filepath.Join(dir, "elsewhere")
	for _, d := range []string{etc, elsewhere} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	section := "collect:\n  taps:\n  - {interface: " + livetest.TapEnd + "}\n"
	table := "csig:\n  tables:\n  - {format: compact, profile: ietf01, signal: type_5, unit: ns, aggregation: max, quantum: 7us, heavy: 20us}\n"
	store := filepath.Join(dir, "store")
	config, dsn := writeFile(t, filepath.Join(etc, "config.yaml"), section), "embedded:"+store
	secret := writeFile(t, filepath.Join(elsewhere, "config.yaml"), section+table)
	start := func(extra ...string) *collecting {
		return runUntil(t, env, "collecting", append([]string{"collect", "--config", config, "--store", dsn, "--commit-interval", "300ms"}, extra...)...)
	}
	c := start()
	unprivileged(t, c.cmd.Process.Pid)
	engine := childOf(t, c.cmd.Process.Pid)
	unprivileged(t, engine)
	stop := traffic(t, 2000)
	c.waitRounds(store, 2)

	replace := func(with func(path string) error) {
		t.Helper()
		if err := with(config + ".new"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(config+".new", config); err != nil {
			t.Fatal(err)
		}
		if err := c.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	replace(func(path string) error { return os.WriteFile(path, []byte(section+table), 0o600) })
	c.waitLog("msg=reloaded", 1)
	replace(func(path string) error { return os.Symlink(secret, path) })
	c.waitLog("reload refused", 1)
	if !strings.Contains(c.log(), "permission denied") {
		t.Errorf("a file elsewhere is not refused:\n%s", c.log())
	}
	if err := os.Remove(config); err != nil {
		t.Fatal(err)
	}
	writeFile(t, config, section+table)

	if err := syscall.Kill(engine, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	again := comes(func() bool { child, err := findChild(c.cmd.Process.Pid); return err == nil && child != engine })
	if !again {
		t.Errorf("the engine is not started again:\n%s", c.log())
	}
	from := c.kept(store)
	c = start()
	to := time.Now()
	c.waitRounds(store, 2)
	sent := stop()
	c.end(syscall.SIGTERM)
	// Packets between the last round and the second process are in a gap.
	beside := outside(sent, from.UnixNano(), to.UnixNano())
	got, dropped := stored(t, env, dsn), droppedBy(t, env, dsn)
	if got == 0 || got+dropped > uint64(len(sent)) || got+dropped < beside {
		t.Errorf("%d packets sent, %d of them not around the kill, %d dropped by the kernel, %d observations stored\n%s", len(sent), beside, dropped, got, c.log())
	}

	c = start("--no-sandbox")
	status, err := os.ReadFile("/proc/" + strconv.Itoa(c.cmd.Process.Pid) + "/status")
	if err != nil || strings.Contains(string(status), "NoNewPrivs:\t1") {
		t.Errorf("with --no-sandbox it is restricted: %v", err)
	}
	c.end(syscall.SIGTERM)
}
