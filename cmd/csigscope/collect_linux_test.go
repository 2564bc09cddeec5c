package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/store/outbox/outboxtest"
	"github.com/csigscope/csigscope/capture/livetest"
	"github.com/csigscope/csigscope/ingest/local"
)

// TestCollect runs the built binary with the embedded engine, each part on its own link.
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
		{"fine", collectFineFeed},
		{"silence", collectSilence},
		{"kill", collectKill},
		{"truth", collectTruth},
		{"mirror", collectMirrored},
		{"forged", collectForged},
		{"drops", collectDrops},
		{"systemd", collectUnderSystemd},
		{"away", collectAway},
		{"never", collectNeverCame},
		{"exportaway", exportAway},
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
	migratedStore(t, engineEnv(t))
	return livetest.InNamespace(t)
}

// collecting is a running csigscope collect.
type collecting struct {
	t      *testing.T
	cmd    *exec.Cmd
	says   string // printed to standard output once it works
	mu     sync.Mutex
	stderr bytes.Buffer
	ended  chan string // further output, once it has ended
}

// Write appends to the log.
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

// runUntil starts a long-running command, and waits until it prints the given text to standard
// output.
func runUntil(t *testing.T, env []string, says string, args ...string) *collecting {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	return startUntil(t, path, env, says, args...)
}

// startUntil is runUntil for a command of another version.
func startUntil(t *testing.T, path string, env []string, says string, args ...string) *collecting {
	t.Helper()
	c := &collecting{t: t, cmd: exec.Command(path, args...), says: says, ended: make(chan string, 1)}
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
			go func() {
				var rest strings.Builder
				for lines.Scan() {
					rest.WriteString(lines.Text() + "\n")
				}
				c.ended <- rest.String()
			}()
			return c
		}
	}
	t.Fatalf("csigscope %s: %v\n%s", strings.Join(args, " "), c.cmd.Wait(), c.log())
	return nil
}

// end sends the signal and waits; except for SIGKILL, the command must end cleanly. It has half
// a minute for its store: on a busy machine the next one may have to store the rest.
func (c *collecting) end(signal syscall.Signal) {
	c.t.Helper()
	_ = c.cmd.Process.Signal(signal)
	late := time.AfterFunc(awaited, func() { _ = c.cmd.Process.Signal(syscall.SIGQUIT) })
	defer late.Stop()
	err := c.cmd.Wait()
	switch {
	case err == nil || signal == syscall.SIGKILL:
	case strings.Contains(c.log(), "wait in the outbox for the next command"):
		runUntil(c.t, c.cmd.Env, c.says, c.cmd.Args[1:]...).end(signal)
	default:
		c.t.Fatalf("after %s: %v\n%s", signal, err, c.log())
	}
}

// waitLog waits until the text occurs n times in the log.
func (c *collecting) waitLog(text string, n int) {
	c.t.Helper()
	if !comes(func() bool { return strings.Count(c.log(), text) >= n }) {
		c.t.Fatalf("%q does not come in the log %d times:\n%s", text, n, c.log())
	}
}

// lastRound returns the number of the last round of the only command whose outbox or spool is
// in the folder, 0 for none, and its marks.
func lastRound(dir string) (number uint64, marks []byte) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "position" {
			if n, b := outboxtest.Last(filepath.Dir(path), isMarks); n > number {
				number, marks = n, b
			}
		}
		return nil
	})
	return number, marks
}

func isMarks(payload []byte) bool { return bytes.HasPrefix(payload, []byte(`{"Name":"`)) }

// waitRounds waits for more rounds of a command that stores in the folder.
func (c *collecting) waitRounds(dir string, more uint64) {
	c.t.Helper()
	before, _ := lastRound(dir)
	done := func() bool {
		number, _ := lastRound(dir)
		return number >= before+more
	}
	if !comes(done) {
		c.t.Fatalf("no rounds in %s:\n%s", dir, c.log())
	}
}

// waitCounted waits until a round contains this many observations: metrics show them shortly
// before their round.
func (c *collecting) waitCounted(address, dir string, observations int) {
	c.t.Helper()
	c.waitSaid(address+"/metrics", fmt.Sprintf("\ncsigscope_observations_total %d\n", observations))
	c.waitRounds(dir, 1)
}

// tapFrames matches the metrics with a tap's frames and kernel drops.
var tapFrames = regexp.MustCompile(`(?m)^csigscope_tap_(frames|kernel_drops)_total{.*} (\d+)$`)

// waitTaken waits until all sent packets were captured or dropped by the kernel, and returns
// the number of drops: a ring holds a second or two of traffic, and a busy machine may delay
// its reader for longer.
func (c *collecting) waitTaken(address string, sent int) (dropped int) {
	c.t.Helper()
	var lines [][]string
	taken := comes(func() bool {
		all := 0
		dropped, lines = 0, tapFrames.FindAllStringSubmatch(fetch(c.t, address+"/metrics"), -1)
		for _, line := range lines {
			n, _ := strconv.Atoi(line[2])
			if all += n; line[1] == "kernel_drops" {
				dropped += n
			}
		}
		return all == sent
	})
	if !taken {
		c.t.Fatalf("%d packets were sent, metrics say %q\n%s", sent, lines, c.log())
	}
	return dropped
}

// droppedBy returns the number of packets that the kernel dropped at all taps of a store; see
// waitTaken.
func droppedBy(t *testing.T, env []string, dsn string) (n uint64) {
	t.Helper()
	for _, tap := range askTaps(t, env, dsn) {
		n += tap.KernelDrops
	}
	if n > 0 {
		t.Logf("the kernel dropped %d packets: this machine is busy", n)
	}
	return n
}

// waitSaid waits until a page of the command contains the text.
func (c *collecting) waitSaid(url, text string) {
	c.t.Helper()
	if !comes(func() bool { return strings.Contains(fetch(c.t, url), text) }) {
		c.t.Fatalf("%s does not say %q, but %s\n%s", url, text, fetch(c.t, url), c.log())
	}
}

// storedCells returns the stored totals of all cells of all signals.
func storedCells(t *testing.T, env []string, dsn string) map[string]queriedTotals {
	t.Helper()
	cells := map[string]queriedTotals{}
	defer startEngine(t, env, strings.TrimPrefix(dsn, "embedded:")).Close()
	for _, signal := range []string{"min_abw", "min_abw_ratio", "max_delay", "max_nqd"} {
		for _, a := range answeredCells(t, mustRun(t, env, "query", "cells", "--store", dsn, "--signal", signal, "-o", "json")) {
			c := totalsOf(&a)
			cells[fmt.Sprintf("%s %s %s>%s", signal, c.Kind, c.Src, c.Dst)] = c
		}
	}
	return cells
}

// queriedTotals are the numbers of a cell that do not depend on the arrival times of packets.
type queriedTotals struct {
	Src, Dst, Kind   string
	Observations     uint64
	Mean, Min, Max   float64
	Untouched, Heavy uint64
	Mode             string
	ModeCount        uint64
	RunnerUp         string
}

func totalsOf(c *answeredCell) queriedTotals {
	return queriedTotals{
		c.Src, c.Dst, c.Kind, c.Observations, only(c.Mean), only(c.Min), only(c.Max), c.Untouched, c.Heavy,
		c.Mode.Location, c.Mode.Heavy, c.RunnerUp.Location,
	}
}

// collectTruth: tcpreplay sends the simulator's captures, and the store has the rows of a
// replay of the same captures, with the numbers of the truth. SIGTERM loses no packet sent just
// before it.
func collectTruth(t *testing.T, env []string) {
	if _, err := exec.LookPath("tcpreplay"); err != nil {
		livetest.Missing(t, "tcpreplay is not installed")
	}
	dir := t.TempDir()
	e := emit(t, "--scenario", "quickstart", "--set", "classic=true")
	live, replayed := newStore(t, env, filepath.Join(dir, "live")), newStore(t, env, filepath.Join(dir, "replayed"))
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

// traffic sends tagged frames into the link, at about the rate, until stop is called, which
// returns the times of sending.
func traffic(t *testing.T, perSecond int) (stop func() []time.Time) {
	t.Helper()
	return taggedTraffic(t, perSecond, 0x99002b85)
}

// taggedTraffic does the same with a given tag.
func taggedTraffic(t *testing.T, perSecond int, tag uint32) (stop func() []time.Time) {
	t.Helper()
	s := livetest.NewSender(t, livetest.SendEnd)
	frame := livetest.Tagged(livetest.Plain(1, 2, 100), tag)
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

// outside counts the packets sent before from (Unix ns) or after to.
func outside(sent []time.Time, from, to int64) (n uint64) {
	for i, at := range sent {
		// One was on its way when the next one was due.
		if at.UnixNano() > to || i+1 < len(sent) && sent[i+1].UnixNano() < from {
			n++
		}
	}
	return n
}

// kept kills a collect that stores in the folder, once all packets sent so far are in closed
// windows, and returns the time at the call: 20 rounds take at least 4 s, and a window of 1 s
// waits 2 s for late packets.
func (c *collecting) kept(dir string) (by time.Time) {
	c.t.Helper()
	by = time.Now()
	c.waitRounds(dir, 20)
	c.end(syscall.SIGKILL)
	return by
}

// stored returns the number of observations in a store.
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
	out, err := exec.CommandContext(t.Context(), "curl", "-sS", "--max-time", "60", "--noproxy", "*", "http://"+url).CombinedOutput()
	if err != nil {
		t.Fatalf("curl: %v: %s", err, out)
	}
	return string(out)
}

// collectReload reloads 20 times under traffic, sometimes with an invalid configuration: every
// packet is stored once.
func collectReload(t *testing.T, env []string) {
	dir := t.TempDir()
	config, dsn := filepath.Join(dir, "config.yaml"), newStore(t, env, filepath.Join(dir, "store"))
	section := "collect:\n  taps:\n  - {interface: " + livetest.TapEnd + "}\n"
	table := "csig:\n  tables:\n  - {format: compact, profile: ietf01, signal: type_5, unit: ns, aggregation: max, quantum: %dus, heavy: 20us}\n"
	writeFile(t, config, section)
	address := freeAddress(t)
	c := runUntil(t, env, "collecting", "collect", "--config", config, "--store", dsn, "--metrics-listen", address)
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
	// Metrics are those of the last round.
	taken := len(sent) - c.waitTaken(address, len(sent))
	c.waitCounted(address, filepath.Join(dir, "store"), taken)
	metrics := fetch(t, address+"/metrics")
	for _, want := range []string{
		fmt.Sprintf("csigscope_tap_frames_total{tap=%q} %d\n", livetest.TapEnd, taken), fmt.Sprintf("csigscope_observations_total %d\n", taken),
		fmt.Sprintf("csigscope_tap_up{tap=%q} 1\n", livetest.TapEnd), fmt.Sprintf("csigscope_config_reloads_total %d\n", reloaded),
		`csigscope_heavy_ratio{signal="min_abw_ratio",source="tag"} 0`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics do not say %s", want)
		}
	}
	c.waitSaid(address+"/readyz", "ok\n")
	livetest.IP(t, "link", "set", livetest.SendEnd, "down")
	c.waitSaid(address+"/readyz", "tap "+livetest.TapEnd)
	c.waitLog("link lost: the tap captures nothing until it is back\" interface="+livetest.TapEnd+" state=down", 1)
	livetest.IP(t, "link", "set", livetest.SendEnd, "up")
	c.waitLog("link is back\" interface="+livetest.TapEnd, 1)
	writeFile(t, config, section) // the next process reads it
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	said := <-c.ended
	c.end(syscall.SIGTERM)
	for _, want := range []string{
		fmt.Sprintf("observations  %d   = %d stored + 0 late + 0 rejected + 0 overflow: every one accounted for\n", taken, taken),
		fmt.Sprintf("tap %s: frames %d, dropped by the kernel %d, link losses 1\n", livetest.TapEnd, taken, len(sent)-taken),
	} {
		if !strings.Contains(strings.Join(strings.Fields(said), " "), strings.Join(strings.Fields(want), " ")) {
			t.Errorf("at the end it does not say %q:\n%s", want, said)
		}
	}
	if got := stored(t, env, dsn); got != uint64(taken) || got == 0 {
		t.Errorf("%d packets sent over 20 reloads, %d of them taken in, %d observations stored", len(sent), taken, got)
	}
	// The next process writes the configurations that a slow store does not have yet.
	next := runUntil(t, env, "collecting", "collect", "--config", config, "--store", dsn)
	if !comes(func() bool { return runBinary(t, env, "schema", "verify", "--store", dsn).code == 0 }) {
		t.Errorf("the store does not get to know all configurations:\n%s", next.log())
	}
	next.end(syscall.SIGTERM)
	if r := runBinary(t, env, "schema", "verify", "--store", dsn); r.code != 0 {
		t.Errorf("schema verify: exit code %d: %s%s\n%s", r.code, r.stdout, r.stderr, next.log())
	}
	if !strings.Contains(c.log(), `unknown key \"nonsense\"`) {
		t.Errorf("the log does not say what was wrong:\n%s", c.log())
	}
}

// collectKill kills collect under traffic. Packets outside of the gap that the next process
// records are stored, and the gap begins at the end of the last round.
func collectKill(t *testing.T, env []string) {
	dir := t.TempDir()
	store := filepath.Join(dir, "store")
	dsn, address := newStore(t, env, store), freeAddress(t)
	args := []string{"collect", "--interface", livetest.TapEnd, "--store", dsn, "--instance", "one", "--commit-interval", "500ms"}
	c := runUntil(t, env, "collecting", args...)
	stop := traffic(t, 2000)
	c.waitRounds(store, 4)
	last, _ := lastRound(store)
	time.Sleep(200 * time.Millisecond) // usually between two rounds
	killed := time.Now()
	c.end(syscall.SIGKILL)
	number, until := roundLeft(t, store)
	c = runUntil(t, env, "collecting", args...)
	again := time.Now()
	c.waitRounds(store, 3)
	sent := stop()
	c.end(syscall.SIGTERM)

	keepEngine(t, env, dsn)
	got, dropped := stored(t, env, dsn), droppedBy(t, env, dsn)
	mustRun(t, env, "schema", "verify", "--store", dsn)
	serveBinary(t, env, "query", "serve", "--store", dsn, "--listen", "127.0.0.1:0", "--clickhouse-listen", address)
	var from, to, first int64
	// On a busy machine end starts another process, and its gap comes later.
	row := ask(t, address, "SELECT toUnixTimestamp64Nano(window_from), toUnixTimestamp64Nano(window_to) FROM csigscope.gaps FINAL WHERE reason = 'restart' ORDER BY window_from LIMIT 1")
	if n, err := fmt.Sscan(row, &from, &to); n != 2 || err != nil {
		t.Fatalf("gaps: got %q, want one of a restart", row)
	}
	row = ask(t, address, "SELECT toUnixTimestamp64Nano(window_from) FROM csigscope.gaps FINAL WHERE reason = 'open' AND resolution_ns = 1000000000 AND toUnixTimestamp64Nano(window_to) = "+strconv.FormatInt(from, 10))
	if n, err := fmt.Sscan(row, &first); n != 1 || err != nil || first >= from {
		t.Fatalf("gaps: got %q, want the seconds that were open", row)
	}
	if row := ask(t, address, "SELECT minute, a, b FROM (SELECT toStartOfMinute(window_start) AS minute, sum(observations) AS a FROM csigscope.partials_1s FINAL GROUP BY minute) AS s "+
		"FULL JOIN (SELECT window_start AS minute, sum(observations) AS b FROM csigscope.partials_1m FINAL GROUP BY minute) AS m USING (minute) WHERE a != b"); row != "" {
		t.Errorf("minutes and their seconds differ: %q", row)
	}
	beside := outside(sent, first, to)
	t.Logf("%d sent, %d stored, %d outside of the gap, which began %s before the kill and ended %s after it; next process after %s",
		len(sent), got, beside, killed.Sub(time.Unix(0, from)), time.Unix(0, to).Sub(killed), again.Sub(killed))
	if got+dropped < beside || got+dropped > uint64(len(sent)) {
		t.Errorf("%d packets were sent outside of the gap and %d in all, %d are stored", beside, len(sent), got)
	}
	if from != until || number < last || time.Unix(0, from).After(killed) {
		t.Errorf("the gap begins %s before the kill; round %d ended %s before it, and %d was there",
			killed.Sub(time.Unix(0, from)), number, killed.Sub(time.Unix(0, until)), last)
	}
	if time.Unix(0, to).After(again) || time.Unix(0, to).Before(killed) {
		t.Errorf("the gap ends %s after the kill, the next process was there after %s", time.Unix(0, to).Sub(killed), again.Sub(killed))
	}
}

// roundLeft returns the number of the last round of a killed collect, and the time (Unix ns) up
// to which it has the packets of its only tap.
func roundLeft(t *testing.T, dir string) (number uint64, until int64) {
	t.Helper()
	number, marks := lastRound(dir)
	var last struct{ Marks []local.Mark }
	if err := json.Unmarshal(marks, &last); err != nil || len(last.Marks) != 1 {
		t.Fatalf("%d marks in the last round, %v", len(last.Marks), err)
	}
	return number, last.Marks[0].At
}
