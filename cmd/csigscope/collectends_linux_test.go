package main

import (
	"errors"
	"fmt"
	"net"
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

// ends waits for the end of a command, and returns its exit code.
func (c *collecting) ends() int {
	c.t.Helper()
	late := time.AfterFunc(awaited, func() { _ = c.cmd.Process.Signal(syscall.SIGQUIT) })
	defer late.Stop()
	err := c.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.t.Fatal(err)
	}
	return c.cmd.ProcessState.ExitCode()
}

// collectHanging stops the engines of two processes, which continue under another
// configuration: one gets a second signal and ends at once; the other ends within its time
// limit and reports the waiting rows. The next processes, under a third configuration, find
// everything outside of the gaps, and the meaning of the second configuration.
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
	stores := [2]string{newStore(t, env, filepath.Join(dir, "0")), newStore(t, env, filepath.Join(dir, "1"))}
	run := func(i int) *collecting {
		return runUntil(t, env, "collecting", "collect", "--config", config, "--interface", livetest.TapEnd, "--store", stores[i],
			"--instance", strconv.Itoa(i), "--commit-interval", "200ms", "--metrics-listen", addresses[i])
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
	// A signal before the first one is handled would be lost.
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
	code := hang[0].ends()
	close(done)
	if code != exitFailed || !strings.Contains(hang[0].log(), "ended at once: open windows are lost, and the next process records the time since ") {
		t.Errorf("after a second signal: exit code %d: %s", code, hang[0].log())
	}
	hang[1].waitLog("rows wait in the outbox", 1)
	signalAll(t, syscall.SIGKILL, engines[1]) // otherwise it would take 25 s more
	code = hang[1].ends()
	if code != exitFailed || !strings.Contains(hang[1].log(), "end: the store did not take ") {
		t.Errorf("a store that hangs: exit code %d: %s", code, hang[1].log())
	}
	quantum(3)
	for i := range hang {
		run(i).end(syscall.SIGTERM)
		keepEngine(t, env, stores[i])
		if got := askTaps(t, env, stores[i])[livetest.TapEnd]; got.Packets != sentEach || got.Stored != sentEach {
			t.Errorf("store %d: %+v of %d packets are stored", i, got, sentEach)
		}
		mustRun(t, env, "schema", "verify", "--store", stores[i]) // configurations, names and runs are present
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

// collectUnderSystemd checks the notifications of a process that starts, reloads and ends, and
// its watchdog messages. Settings that a reload does not apply are named.
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
	// hear returns the next state that is not a watchdog message.
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
	writeFile(t, config, section+"  commit_interval: 7s\n  ingest: {listen: 127.0.0.1:4319, anonymous: host}\nstore:\n  dsn: embedded:elsewhere\n  retention: {fine: 5h}\n")
	signalAll(t, syscall.SIGHUP, c.cmd.Process.Pid)
	if state := hear(); !regexp.MustCompile(`^RELOADING=1\nMONOTONIC_USEC=[1-9]\d+$`).MatchString(state) {
		t.Errorf("at a reload: %q", state)
	}
	if state := hear(); state != "READY=1" {
		t.Errorf("after the reload: %q", state)
	}
	c.waitLog(`msg="changed settings need a restart" settings="collect.commit_interval collect.ingest.anonymous collect.ingest.listen store.retention.fine"`, 1)
	c.end(syscall.SIGTERM)
	if state := hear(); state != "STOPPING=1" {
		t.Errorf("at the end: %q", state)
	}
}

// collectDrops stops collect while its ring overflows: the kernel's drops are in a gap of that
// time, coverage shows their number, and all stored totals are consistent.
func collectDrops(t *testing.T, env []string) {
	dir := t.TempDir()
	dsn := newStore(t, env, filepath.Join(dir, "store"))
	config := writeFile(t, filepath.Join(dir, "config.yaml"), "collect:\n  taps:\n  - {interface: "+livetest.TapEnd+", name: leaf, blocks: 2, weight: 3}\n")
	begun, address := time.Now(), freeAddress(t)
	c := runUntil(t, env, "collecting", "collect", "--config", config, "--store", dsn, "--commit-interval", "200ms", "--metrics-listen", address)
	signal := func(s syscall.Signal) {
		if err := c.cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	signal(syscall.SIGSTOP)
	s := livetest.NewSender(t, livetest.SendEnd)
	const sent = 40_000 // a ring of 2 MiB holds a third of them
	for range sent {
		s.Send(livetest.Tagged(livetest.Plain(1, 2, 100), 0x99002b85))
	}
	signal(syscall.SIGCONT)
	c.waitTaken(address, sent)
	c.end(syscall.SIGTERM)
	ended := time.Now()

	keepEngine(t, env, dsn)
	tap := askTaps(t, env, dsn)["leaf"]
	if tap.KernelDrops == 0 || tap.Packets+tap.KernelDrops != sent || tap.Stored != 3*tap.Packets {
		t.Errorf("of %d packets sent: %+v", sent, tap)
	}
	lost := uint64(0)
	earliest := begun.Add(-time.Second).Truncate(time.Second) // the kernel's counters may be a second old
	for _, w := range decodeJSON[[]struct {
		Window   time.Time `json:"window_start"`
		Lost     uint64
		GapRatio float64 `json:"gap_ratio"`
	}](t, mustRun(t, env, "query", "coverage", "--store", dsn, "--resolution", "1s", "-o", "json",
		"--from", begun.Add(-10*time.Second).UTC().Format(time.RFC3339), "--to", ended.Add(10*time.Second).UTC().Format(time.RFC3339))) {
		lost += w.Lost
		if w.GapRatio != 0 || w.Lost > 0 && (w.Window.Before(earliest) || w.Window.After(ended)) {
			t.Errorf("packets were dropped between %s and %s, coverage says %+v", begun, ended, w)
		}
	}
	// The part of a gap in each window is rounded down.
	if want := 3 * tap.KernelDrops; lost > want || lost+20 < want {
		t.Errorf("coverage is missing %d observations, the kernel dropped %d packets that stand for 3 each", lost, tap.KernelDrops)
	}
	if r := runBinary(t, env, "schema", "verify", "--store", dsn); r.code != 0 {
		t.Errorf("schema verify: exit code %d: %s%s\n%s", r.code, r.stdout, r.stderr, c.log())
	}
}

// apart returns the difference of two numbers.
func apart(a, b uint64) uint64 { return max(a, b) - min(a, b) }

// collectTapRows: the counts of taps before and after a kill equal the stored rows, except for
// windows open at the kill, which schema verify checks for complete runs, also of an earlier
// configuration. Their findings contain each packet of unauthorized senders.
func collectTapRows(t *testing.T, env []string) {
	dir := t.TempDir()
	section := "collect:\n  taps:\n  - {interface: " + livetest.TapEnd + ", name: leaf}\nfindings: {senders: [192.0.2.0/24]}\n"
	table := "csig:\n  tables:\n  - {format: compact, profile: ietf01, signal: type_5, unit: ns, aggregation: max, quantum: 7us, heavy: 20us}\n"
	store := filepath.Join(dir, "store")
	config, dsn := writeFile(t, filepath.Join(dir, "config.yaml"), section), newStore(t, env, store)
	start := func() *collecting {
		return runUntil(t, env, "collecting", "collect", "--config", config, "--store", dsn, "--commit-interval", "300ms")
	}
	c := start()
	stop := traffic(t, 2000)
	c.waitRounds(store, 3)
	writeFile(t, config, section+table)
	if err := c.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	c.waitLog("msg=reloaded", 1)
	kept := c.kept(store)
	c = start()
	again := time.Now()
	c.waitRounds(store, 3)
	times := stop()
	c.end(syscall.SIGTERM)
	sent, beside := uint64(len(times)), outside(times, kept.UnixNano(), again.UnixNano())
	mustRun(t, env, "schema", "verify", "--store", dsn)
	// An idle process resumes from the last round and writes the same rows again.
	start().end(syscall.SIGTERM)
	keepEngine(t, env, dsn)
	out := mustRun(t, env, "schema", "verify", "--store", dsn)
	taps := decodeJSON[[]struct {
		Tap, Place, Link, Frames                      string
		Packets, Observations, Stored, Late, Overflow uint64
		Tags, Reflections                             uint64
	}](t, mustRun(t, env, "query", "taps", "--store", dsn, "-o", "json"))
	got := stored(t, env, dsn)
	if len(taps) != 1 || got == 0 {
		t.Fatalf("%d observations stored, taps %+v", got, taps)
	}
	if tap := taps[0]; tap.Tap != "leaf" || tap.Place != "receiver" || tap.Stored+tap.Overflow != tap.Observations || tap.Tags != tap.Observations || apart(tap.Observations, got) > sent-beside || tap.Packets > sent {
		t.Errorf("%d observations stored of %d packets sent, the tap has %+v\n%s", got, sent, tap, out)
	}
	found := uint64(0)
	for _, f := range storedFindingsOf(t, env, dsn) {
		if found += f.Count; f.Kind != "unauthorised-sender" || f.First > f.Last {
			t.Errorf("found %+v", f)
		}
	}
	if apart(found, got) > sent-beside {
		t.Errorf("%d observations stored, %d found to be of others than the senders", got, found)
	}
	if dropped := droppedBy(t, env, dsn); got+dropped > sent || got+dropped < beside {
		t.Errorf("%d observations stored of %d packets sent, %d of them not around the kill; the kernel dropped %d", got, sent, beside, dropped)
	}
}
