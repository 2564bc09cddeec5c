package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/live/journal"
	"github.com/csigscope/csigscope/aggregate/store/checkpoint"
	"github.com/csigscope/csigscope/capture/livetest"
)

// TestCollect runs the built binary into the embedded engine, each part on a link of its
// own.
func TestCollect(t *testing.T) {
	env := engineEnv(t)
	for _, part := range []struct {
		name string
		run  func(*testing.T, []string)
	}{
		{"hanging", collectHanging},
		{"reload", collectReload},
		{"taps", collectTapRows},
		{"sandbox", collectSandboxed},
		{"feed", collectFeed},
		{"kill", collectKill},
		{"truth", collectTruth},
		{"mirror", collectMirrored},
		{"drops", collectDrops},
		{"systemd", collectUnderSystemd},
	} {
		t.Run(part.name, func(t *testing.T) {
			t.Parallel()
			if inNamespace(t) {
				livetest.MakeLink(t)
				part.run(t, env)
			}
		})
	}
}

// inNamespace is livetest.InNamespace for tests of the built binary.
func inNamespace(t *testing.T) bool {
	t.Helper()
	if _, err := binary(); err != nil {
		t.Fatal(err)
	}
	return livetest.InNamespace(t)
}

// collecting is a running csigscope collect.
type collecting struct {
	t      *testing.T
	cmd    *exec.Cmd
	mu     sync.Mutex
	stderr bytes.Buffer
}

// Write takes the log.
func (c *collecting) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stderr.Write(b)
}

func (c *collecting) log() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stderr.String()
}

// runUntil starts a command that runs until it is told to end, and waits until it says on
// standard output that it works.
func runUntil(t *testing.T, env []string, says string, args ...string) *collecting {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	c := &collecting{t: t, cmd: exec.Command(path, args...)}
	c.cmd.Env, c.cmd.Stderr = env, c
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.cmd.Process.Kill() })
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if strings.Contains(lines.Text(), says) {
			go func() { _, _ = io.Copy(io.Discard, stdout) }()
			return c
		}
	}
	t.Fatalf("csigscope %s: %v\n%s", strings.Join(args, " "), c.cmd.Wait(), c.log())
	return nil
}

// end sends the signal and waits; without SIGKILL the command has to end well.
func (c *collecting) end(signal syscall.Signal) {
	c.t.Helper()
	_ = c.cmd.Process.Signal(signal)
	late := time.AfterFunc(30*time.Second, func() { _ = c.cmd.Process.Signal(syscall.SIGQUIT) })
	defer late.Stop()
	if err := c.cmd.Wait(); err != nil && signal != syscall.SIGKILL {
		c.t.Fatalf("after %s: %v\n%s", signal, err, c.log())
	}
}

// waitLog waits for the text to be n times in the log.
func (c *collecting) waitLog(text string, n int) {
	c.t.Helper()
	for range 4000 {
		if strings.Count(c.log(), text) >= n {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	c.t.Fatalf("%q does not come in the log %d times:\n%s", text, n, c.log())
}

// waitCheckpoints waits for so many more checkpoints of a command that stores in the folder.
func (c *collecting) waitCheckpoints(dir string, more uint64) {
	c.t.Helper()
	if !reachCheckpoint(dir, checkpointNumber(dir)+more) {
		c.t.Fatalf("no checkpoint in %s:\n%s", dir, c.log())
	}
}

// waitCounted waits until a checkpoint has so many observations: metrics tell of them when
// it is about to be made.
func (c *collecting) waitCounted(address, dir string, observations int) {
	c.t.Helper()
	line := fmt.Sprintf("\ncsigscope_observations_total %d\n", observations)
	for begun := time.Now(); !strings.Contains(fetch(c.t, address+"/metrics"), line); time.Sleep(20 * time.Millisecond) {
		if time.Since(begun) > time.Minute {
			c.t.Fatalf("%q does not come in metrics:\n%s", line, c.log())
		}
	}
	c.waitCheckpoints(dir, 1)
}

// storedCells are what is stored of all cells of all signals.
func storedCells(t *testing.T, env []string, dsn string) map[string]queriedTotals {
	t.Helper()
	cells := map[string]queriedTotals{}
	for _, signal := range []string{"min_abw", "min_abw_ratio", "max_delay", "max_nqd"} {
		for _, c := range decodeJSON[[]queriedTotals](t, mustRun(t, env, "query", "cells", "--store", dsn, "--signal", signal, "-o", "json")) {
			cells[fmt.Sprintf("%s %s %s>%s", signal, c.Kind, c.Src, c.Dst)] = c
		}
	}
	return cells
}

// queriedTotals is one line of query cells: what does not hang on when packets came.
type queriedTotals struct {
	Src          string  `json:"src_group"`
	Dst          string  `json:"dst_group"`
	Kind         string  `json:"kind"`
	Observations uint64  `json:"observations"`
	Mean         float64 `json:"mean"`
	Min          float64 `json:"min"`
	Max          float64 `json:"max"`
	Untouched    uint64  `json:"untouched"`
	Heavy        uint64  `json:"heavy"`
	Mode         string  `json:"mode"`
	ModeCount    uint64  `json:"mode_count"`
	RunnerUp     string  `json:"runner_up"`
}

// collectTruth: what tcpreplay sends from the simulator's captures is in the store as a
// replay of the same captures has it there, and as many as the truth says. SIGTERM loses
// nothing of what was sent just before it.
func collectTruth(t *testing.T, env []string) {
	if _, err := exec.LookPath("tcpreplay"); err != nil {
		livetest.Missing(t, "tcpreplay is not installed")
	}
	dir := t.TempDir()
	e := emit(t, "--scenario", "quickstart", "--classic")
	live, replayed := "embedded:"+filepath.Join(dir, "live"), "embedded:"+filepath.Join(dir, "replayed")
	c := runUntil(t, env, "collecting", "collect", "--interface", livetest.TapEnd, "--fabric", e.fabric(), "--store", live)
	for _, file := range e.captures(t) {
		out, err := exec.CommandContext(t.Context(), "tcpreplay", "--quiet", "--intf1", livetest.SendEnd, "--mbps", "200", file).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "Failed packets:            0") {
			t.Fatalf("tcpreplay: %v\n%s", err, out)
		}
	}
	c.end(syscall.SIGTERM)
	mustRun(t, env, append([]string{"replay", "--fabric", e.fabric(), "--store", replayed}, e.captures(t)...)...)
	got, want := storedCells(t, env, live), storedCells(t, env, replayed)
	if len(want) == 0 || !maps.Equal(got, want) {
		t.Errorf("%d cells are stored, %d by a replay of the same captures: they differ", len(got), len(want))
		for key, w := range want {
			if got[key] != w {
				t.Logf("%s: got %+v, want %+v", key, got[key], w)
			}
		}
	}
	truth := map[string]uint64{}
	for _, cell := range truthCells(t, e, "tag") {
		truth[fmt.Sprintf("%s tag %s>%s", cell.Signal, cell.SrcGroup, cell.DstGroup)] += cell.Observations
	}
	for key, n := range truth {
		if got[key].Observations != n {
			t.Errorf("%s: %d observations are stored, the truth has %d", key, got[key].Observations, n)
		}
	}
	if len(truth) == 0 {
		t.Error("the truth is empty")
	}
}

// traffic sends tagged frames into the link, at about the rate, until stop is called,
// which tells when each was sent.
func traffic(t *testing.T, perSecond int) (stop func() []time.Time) {
	t.Helper()
	s := livetest.NewSender(t, livetest.SendEnd)
	frame := livetest.Tagged(livetest.Plain(1, 2, 100), 0x99002b85)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan []time.Time, 1)
	go func() {
		var sent []time.Time
		began := time.Now()
		for ctx.Err() == nil {
			for due := int(time.Since(began).Seconds() * float64(perSecond)); len(sent) < due; {
				sent = append(sent, time.Now())
				s.Send(frame)
			}
			time.Sleep(time.Millisecond)
		}
		done <- sent
	}()
	return func() []time.Time {
		cancel()
		return <-done
	}
}

// stored is how many observations a store has.
func stored(t *testing.T, env []string, dsn string) (n uint64) {
	t.Helper()
	for _, c := range storedCells(t, env, dsn) {
		n += c.Observations
	}
	return n
}

// fetch gets a page.
func fetch(t *testing.T, url string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "curl", "-sS", "--max-time", "10", "--noproxy", "*", "http://"+url).CombinedOutput()
	if err != nil {
		t.Fatalf("curl: %v: %s", err, out)
	}
	return string(out)
}

// collectReload reloads 20 times under traffic, now and then with a configuration that is
// wrong: every packet is stored once.
func collectReload(t *testing.T, env []string) {
	dir := t.TempDir()
	config, dsn := filepath.Join(dir, "config.yaml"), "embedded:"+filepath.Join(dir, "store")
	section := "collect:\n  taps:\n  - {interface: " + livetest.TapEnd + "}\n"
	table := "csig:\n  tables:\n  - {format: compact, profile: ietf01, signal: type_5, unit: ns, aggregation: max, quantum: %dus, heavy: 20us}\n"
	writeFile(t, config, section)
	address := freeAddress(t)
	c := runUntil(t, env, "collecting", "collect", "--config", config, "--store", dsn, "--ops-listen", address)
	stop := traffic(t, 5000)
	reloaded, refused := 0, 0
	for i := range 20 {
		if i%5 == 4 {
			writeFile(t, config, section+"nonsense: true\n")
			refused++
		} else {
			writeFile(t, config, section+fmt.Sprintf(table, i+1))
			reloaded++
		}
		if err := c.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		c.waitLog("msg=reloaded", reloaded)
		c.waitLog("reload refused", refused)
	}
	sent := stop()
	// Metrics are those of the last checkpoint.
	c.waitCounted(address, filepath.Join(dir, "store"), len(sent))
	metrics := fetch(t, address+"/metrics")
	for _, want := range []string{
		fmt.Sprintf("csigscope_tap_frames_total{tap=%q} %d\n", livetest.TapEnd, len(sent)), fmt.Sprintf("csigscope_observations_total %d\n", len(sent)),
		fmt.Sprintf("csigscope_tap_up{tap=%q} 1\n", livetest.TapEnd), fmt.Sprintf("csigscope_config_reloads_total %d\n", reloaded),
		`csigscope_heavy_ratio{signal="min_abw_ratio",source="tag"} 0`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics do not say %s", want)
		}
	}
	if got := fetch(t, address+"/readyz"); got != "ok\n" {
		t.Errorf("readiness: %q", got)
	}
	livetest.IP(t, "link", "set", livetest.SendEnd, "down")
	time.Sleep(1500 * time.Millisecond)
	if got := fetch(t, address+"/readyz"); !strings.Contains(got, "tap "+livetest.TapEnd) {
		t.Errorf("readiness with a link that is down: %q", got)
	}
	livetest.IP(t, "link", "set", livetest.SendEnd, "up")
	c.end(syscall.SIGTERM)
	if got := stored(t, env, dsn); got != uint64(len(sent)) || got == 0 {
		t.Errorf("%d packets sent over 20 reloads, %d observations stored", len(sent), got)
	}
	if r := runBinary(t, env, "schema", "verify", "--store", dsn); r.code != 0 {
		t.Errorf("schema verify: exit code %d: %s%s\n%s", r.code, r.stdout, r.stderr, c.log())
	}
	if !strings.Contains(c.log(), `unknown key \"nonsense\"`) {
		t.Errorf("the log does not say what was wrong:\n%s", c.log())
	}
}

// collectKill kills collect under traffic. What was sent outside of the gap that the next
// one records is stored, and the gap begins where the last checkpoint ended.
func collectKill(t *testing.T, env []string) {
	dir := t.TempDir()
	store := filepath.Join(dir, "store")
	address := freeAddress(t)
	args := []string{"collect", "--interface", livetest.TapEnd, "--store", "embedded:" + store, "--instance", "one", "--checkpoint", "500ms"}
	c := runUntil(t, env, "collecting", args...)
	stop := traffic(t, 2000)
	c.waitCheckpoints(store, 4)
	last := checkpointNumber(store)
	time.Sleep(200 * time.Millisecond) // between two of them, as a rule
	killed := time.Now()
	c.end(syscall.SIGKILL)
	number, until := checkpointLeft(t, store)
	c = runUntil(t, env, "collecting", args...)
	again := time.Now()
	c.waitCheckpoints(store, 3)
	sent := stop()
	c.end(syscall.SIGTERM)

	got := stored(t, env, "embedded:"+store)
	serveBinary(t, env, "query", "serve", "--store", "embedded:"+store, "--listen", "127.0.0.1:0", "--clickhouse-listen", address)
	var from, to int64
	var reason string
	row := ask(t, address, "SELECT toUnixTimestamp64Nano(window_from), toUnixTimestamp64Nano(window_to), reason FROM csigscope.gaps FINAL")
	if n, err := fmt.Sscan(row, &from, &to, &reason); n != 3 || err != nil || reason != "restart" || strings.Count(row, "\n") != 1 {
		t.Fatalf("gaps: got %q, want one of a restart", row)
	}
	outside := uint64(0)
	for i, at := range sent {
		// One was on its way by the time that the next one was due.
		if at.UnixNano() > to || i+1 < len(sent) && sent[i+1].UnixNano() < from {
			outside++
		}
	}
	t.Logf("%d sent, %d stored, %d outside of the gap, which began %s before the kill and ended %s after it; next process after %s",
		len(sent), got, outside, killed.Sub(time.Unix(0, from)), time.Unix(0, to).Sub(killed), again.Sub(killed))
	if got < outside || got > uint64(len(sent)) {
		t.Errorf("%d packets were sent outside of the gap and %d in all, %d are stored", outside, len(sent), got)
	}
	if from != until || number < last || time.Unix(0, from).After(killed) {
		t.Errorf("the gap begins %s before the kill; checkpoint %d ended %s before it, and %d was there",
			killed.Sub(time.Unix(0, from)), number, killed.Sub(time.Unix(0, until)), last)
	}
	if time.Unix(0, to).After(again) || time.Unix(0, to).Before(killed) {
		t.Errorf("the gap ends %s after the kill, the next process was there after %s", time.Unix(0, to).Sub(killed), again.Sub(killed))
	}
}

// checkpointLeft is the number of the checkpoint that a killed collect left, and the time
// (Unix ns) up to which it has what its one tap saw.
func checkpointLeft(t *testing.T, dir string) (number uint64, until int64) {
	t.Helper()
	f, err := checkpoint.Open(checkpoint.Options{Dir: filepath.Dir(filepath.Dir(checkpointFile(dir))), Name: "collect one"})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	saved, err := f.Load()
	if err != nil || saved == nil {
		t.Fatalf("checkpoint: %v, %v", saved, err)
	}
	states, err := journal.States(saved)
	if err != nil || len(states) != 1 {
		t.Fatalf("%d states in the checkpoint, %v", len(states), err)
	}
	return saved.Number, states[0].At
}
