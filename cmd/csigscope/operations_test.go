package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// daemonProcess is a long-running command.
type daemonProcess struct {
	t      *testing.T
	cmd    *exec.Cmd
	stderr bytes.Buffer
	notify *net.UnixConn
	urls   map[string]string // by the beginning of the line that names them
}

// startDaemon runs a command until the test ends, as systemd would. It must end cleanly.
func startDaemon(t *testing.T, env []string, args ...string) *daemonProcess {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "notify") // short enough for a socket path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "notify")
	p := &daemonProcess{t: t, cmd: exec.Command(path, args...)}
	if p.notify, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"}); err != nil {
		t.Fatal(err)
	}
	stdout, err := os.Create(filepath.Join(dir, "stdout"))
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Env = slices.Concat(env, []string{"NOTIFY_SOCKET=" + socket})
	p.cmd.Stdout, p.cmd.Stderr = stdout, &p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.stop)
	p.await("READY=1")
	text, err := os.ReadFile(stdout.Name())
	if err != nil {
		t.Fatal(err)
	}
	p.urls = make(map[string]string)
	for _, line := range regexp.MustCompile(`(?m)^(\S+ \S+).*(http://\S+)/`).FindAllStringSubmatch(string(text), -1) {
		p.urls[line[1]] = line[2]
	}
	return p
}

func (p *daemonProcess) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(awaited, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	p.await("STOPPING=1")
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("after a termination: %v\n%s", err, p.stderr.String())
	}
}

// await waits for a notification to systemd.
func (p *daemonProcess) await(state string) {
	p.t.Helper()
	b := make([]byte, 100)
	_ = p.notify.SetReadDeadline(time.Now().Add(awaited))
	n, err := p.notify.Read(b)
	if err != nil || string(b[:n]) != state {
		p.t.Errorf("systemd gets %q, %v; want %s", b[:n], err, state)
	}
}

// get requests one of the process's addresses.
func (p *daemonProcess) get(server, path string) (status int, body string) {
	p.t.Helper()
	answer, err := http.Get(p.urls[server] + path)
	if err != nil {
		p.t.Fatalf("%v; addresses %v; %s", err, p.urls, p.stderr.String())
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// TestServeOperations: the page's process reports its health, drops its privileges, and
// continues when the engine is killed, which is restarted without those privileges.
func TestServeOperations(t *testing.T) {
	t.Parallel()
	env := engineEnv(t)
	store := filepath.Join(t.TempDir(), "store")
	dsn := newStore(t, env, store)
	mustRun(t, env, "replay", "--scenario", "ring", "--set", "duration=1s", "--store", dsn)
	p := startDaemon(t, env, "query", "serve", "--store", dsn, "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--pprof")
	const aPage, ops = "the page", "metrics and"
	for _, test := range []struct {
		server, path, want string
		status             int
	}{
		{aPage, "/", "csigscope", 200},
		{aPage, "/healthz", "ok", 200},
		{aPage, "/readyz", "ok", 200},
		{aPage, "/metrics", `csigscope_http_requests_total{code="200"} 1`, 200},
		{aPage, "/debug/pprof/", "", 404},
		{ops, "/metrics", "csigscope_build_info{", 200},
		{ops, "/metrics", "csigscope_engine_restarts_total 0", 200},
		{ops, "/metrics", "go_goroutines", 200},
		{ops, "/readyz", "ok", 200},
		{ops, "/debug/pprof/", "goroutine", 200},
	} {
		if status, body := p.get(test.server, test.path); status != test.status || !strings.Contains(body, test.want) {
			t.Errorf("%s%s: %d %.300s, want %d %s", test.server, test.path, status, body, test.status, test.want)
		}
	}
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil { // reloads its limits and continues
		t.Fatal(err)
	}
	unprivileged(t, p.cmd.Process.Pid)
	engine := childOf(t, p.cmd.Process.Pid)
	unprivileged(t, engine)
	if err := syscall.Kill(engine, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	back := comes(func() bool {
		_, again := p.get(ops, "/metrics")
		status, _ := p.get(ops, "/readyz")
		return strings.Contains(again, "csigscope_engine_restarts_total 1") && status == http.StatusOK
	})
	if !back {
		status, why := p.get(ops, "/readyz")
		t.Fatalf("the engine is not back: %d %s\n%s", status, why, p.stderr.String())
	}
	answered := comes(func() bool { // a new engine may exceed the time limit of a question
		status, _ := p.get(aPage, "/api/v1/bundle")
		return status == http.StatusOK || status == http.StatusNotFound
	})
	if !answered {
		status, body := p.get(aPage, "/api/v1/bundle")
		t.Errorf("a question after that: %d %s", status, body)
	}
	unprivileged(t, childOf(t, p.cmd.Process.Pid))
}

// unprivileged checks that a process cannot gain privileges, which Landlock requires.
func unprivileged(t *testing.T, pid int) {
	t.Helper()
	if _, err := os.Stat("/proc/self/status"); err != nil {
		return
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(status), "NoNewPrivs:\t1") && landlock() {
		t.Errorf("process %d is not restricted", pid)
	}
}

// landlock reports whether the kernel has Landlock.
func landlock() bool {
	const createRuleset, askVersion = 444, 1
	_, _, failed := syscall.Syscall(createRuleset, 0, 0, askVersion)
	return failed == 0
}

// childOf returns the only child of a process.
func childOf(t *testing.T, pid int) int {
	t.Helper()
	child, err := findChild(pid)
	if err != nil {
		t.Fatal(err)
	}
	return child
}

// findChild is childOf for a process that may have none, or several.
func findChild(pid int) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if fields := strings.Fields(string(text)); err == nil && len(fields) == 1 {
		return strconv.Atoi(fields[0])
	}
	out, err := exec.Command("pgrep", "-P", strconv.Itoa(pid)).Output()
	if err != nil {
		return 0, fmt.Errorf("find child of %d: %w", pid, err)
	}
	return strconv.Atoi(strings.TrimSpace(string(out)))
}

// TestOperationsUsage: addresses that other machines can reach are refused, also for profiles.
func TestOperationsUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--metrics-listen", "0.0.0.0:9464"},
		{"--metrics-listen", "nonsense"},
		{"--metrics-listen", "0.0.0.0:9464", "--metrics-unauthenticated", "--pprof"},
		{"--pprof"},
	} {
		r := runBinary(t, os.Environ(), append([]string{"query", "serve"}, args...)...)
		if r.code != exitUsage || !strings.Contains(r.stderr, "--metrics-listen") {
			t.Errorf("%q: exit code %d: %s", args, r.code, r.stderr)
		}
	}
}
