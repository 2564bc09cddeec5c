package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/csigscope/csigscope/capture/livetest"
)

// ends waits for the end of a command and gives its exit code and how long it took.
func (c *collecting) ends() (code int, took time.Duration) {
	c.t.Helper()
	began := time.Now()
	late := time.AfterFunc(awaited, func() { _ = c.cmd.Process.Signal(syscall.SIGQUIT) })
	defer late.Stop()
	err := c.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.t.Fatal(err)
	}
	return c.cmd.ProcessState.ExitCode(), time.Since(began)
}

// collectHanging stops the engines of two processes, which go on under another configuration:
// one is told to end a second time, and does so at once; the other one ends in the time that
// it has, and tells what waits. The next ones find all that is not in a gap, and what that
// configuration means, for theirs is a third one.
func collectHanging(t *testing.T, env []string) {
	const sentEach = 3000
	dir := t.TempDir()
	var hang [2]*collecting
	var engines [2]int
	addresses := [2]string{freeAddress(t), freeAddress(t)}
	config := filepath.Join(dir, "config.yaml")
	quantum := func(us int) {
		writeFile(t, config, fmt.Sprintf("csig:\n  tables:\n  - {format: compact, profile: ietf01, signal: type_5, unit: ns, aggregation: max, quantum: %dus, heavy: 20us}\n", us))
	}
	quantum(1)
	run := func(i int) *collecting {
		instance := strconv.Itoa(i)
		return runUntil(t, env, "collecting", "collect", "--config", config, "--interface", livetest.TapEnd, "--store", "embedded:"+filepath.Join(dir, instance),
			"--instance", instance, "--checkpoint", "200ms", "--ops-listen", addresses[i])
	}
	names := func(i int) bool {
		_, err := os.Stat(filepath.Join(dir, strconv.Itoa(i), "outbox", "checkpoints", "names", "1", "checkpoint"))
		return err == nil
	}
	for i := range hang {
		hang[i] = run(i)
		engines[i] = childOf(t, hang[i].cmd.Process.Pid)
	}
	sender := livetest.NewSender(t, livetest.SendEnd)
	for range sentEach {
		sender.Send(livetest.Tagged(livetest.Plain(1, 2, 100), 0x99002b85))
	}
	quantum(2)
	for i, c := range hang {
		c.waitCounted(addresses[i], filepath.Join(dir, strconv.Itoa(i)), sentEach)
		signalAll(t, syscall.SIGSTOP, engines[i])
		signalAll(t, syscall.SIGHUP, c.cmd.Process.Pid)
		c.waitLog("msg=reloaded", 1)
		signalAll(t, syscall.SIGTERM, c.cmd.Process.Pid)
	}
	// One that comes before the first one was seen to is lost.
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(100 * time.Millisecond):
				_ = hang[0].cmd.Process.Signal(syscall.SIGTERM)
			}
		}
	}()
	code, took := hang[0].ends()
	close(done)
	if code != exitFailed || took > 20*time.Second || !strings.Contains(hang[0].log(), "ended at once: windows that are open are lost, and the next process records as a gap what came since ") {
		t.Errorf("after a second signal: exit code %d after %s: %s", code, took, hang[0].log())
	}
	began := time.Now()
	hang[1].waitLog("rows wait in the outbox", 1)
	signalAll(t, syscall.SIGKILL, engines[1]) // it has 25 s more otherwise
	code, _ = hang[1].ends()
	if took := time.Since(began); code != exitFailed || took > time.Minute || !strings.Contains(hang[1].log(), "end: the store did not take ") {
		t.Errorf("a store that hangs: exit code %d after %s: %s", code, took, hang[1].log())
	}
	quantum(3)
	for i := range hang {
		if !names(i) {
			t.Errorf("store %d: no names wait for it", i)
		}
		next := run(i)
		if !comes(func() bool { return !names(i) }) {
			t.Errorf("store %d does not get to know all names: %s", i, next.log())
		}
		next.end(syscall.SIGTERM)
		dsn := "embedded:" + filepath.Join(dir, strconv.Itoa(i))
		if got := askTaps(t, env, dsn)[livetest.TapEnd]; got.Packets != sentEach || got.Stored != sentEach {
			t.Errorf("store %d: %+v of %d packets are stored", i, got, sentEach)
		}
	}
}

func signalAll(t *testing.T, s syscall.Signal, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		if err := syscall.Kill(pid, s); err != nil {
			t.Fatalf("send %s: %v", s, err)
		}
	}
}

// collectUnderSystemd is what systemd hears of a process that starts, reloads and ends, and
// that it is alive meanwhile. What a reload does not take over is named.
func collectUnderSystemd(t *testing.T, env []string) {
	dir := t.TempDir()
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	heard := make(chan string, 1000)
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := socket.Read(b)
			if err != nil {
				close(heard)
				return
			}
			heard <- string(b[:n])
		}
	}()
	next := func() string {
		t.Helper()
		select {
		case state := <-heard:
			return state
		case <-time.After(awaited):
			t.Fatal("systemd hears nothing")
			return ""
		}
	}
	const alive = "WATCHDOG=1"
	// hear gives the next state that is no sign of life.
	hear := func() (state string) {
		t.Helper()
		for state = next(); state == alive; state = next() {
		}
		return state
	}
	section := "collect:\n  taps:\n  - {interface: " + livetest.TapEnd + "}\n"
	config := writeFile(t, filepath.Join(dir, "config.yaml"), section)
	env = append(env, "NOTIFY_SOCKET="+filepath.Join(dir, "notify"), "WATCHDOG_USEC=200000")
	c := runUntil(t, env, "collecting", "collect", "--config", config, "--store", "embedded:"+filepath.Join(dir, "store"))
	if state := hear(); state != "READY=1" {
		t.Errorf("at the start: %q", state)
	}
	for range 3 {
		if state := next(); state != alive {
			t.Errorf("while it runs: %q", state)
		}
	}
	writeFile(t, config, section+"  checkpoint: {every: 7s}\n  ingest: {listen: 127.0.0.1:4319, anonymous: host}\nstore:\n  dsn: embedded:elsewhere\n  retention: {fine: 5h}\n")
	signalAll(t, syscall.SIGHUP, c.cmd.Process.Pid)
	if state := hear(); !regexp.MustCompile(`^RELOADING=1\nMONOTONIC_USEC=[1-9]\d+$`).MatchString(state) {
		t.Errorf("at a reload: %q", state)
	}
	if state := hear(); state != "READY=1" {
		t.Errorf("after the reload: %q", state)
	}
	c.waitLog(`msg="changed settings need a restart" settings="collect.checkpoint.every collect.ingest.anonymous collect.ingest.listen store.retention.fine"`, 1)
	c.end(syscall.SIGTERM)
	if state := hear(); state != "STOPPING=1" {
		t.Errorf("at the end: %q", state)
	}
}
