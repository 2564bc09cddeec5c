package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/csigscope/csigscope/capture/livetest"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
	"github.com/csigscope/csigscope/replay/emitter/simulation"
)

// soakEnv sets the duration of TestSoak.
const soakEnv = "CSIGSCOPE_TEST_SOAK"

// TestSoak runs a collector with a tap, and an exporter that sends to it through a proxy, under
// a sequence of faults. In the end every packet outside of the gaps is stored once, and memory
// and descriptors have not grown.
func TestSoak(t *testing.T) {
	t.Parallel()
	duration := 10 * time.Second
	if text := os.Getenv(soakEnv); text != "" {
		var err error
		if duration, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	} else if testing.Short() {
		t.Skip("SKIPPED: short tests")
	}
	env := engineEnv(t)
	if !inNamespace(t) {
		return
	}
	livetest.MakeLink(t)
	const hostSend, hostTap = "hsend", "htap"
	livetest.MakeLinkOf(t, hostSend, hostTap)
	s := newSoak(t, env, hostTap)
	s.begin()
	frames := taggedFrames(t)
	tapped, handed := send(t, livetest.SendEnd, frames), send(t, hostSend, frames)
	s.run(duration)
	tappedAt, handedAt := tapped(), handed()
	s.finish()
	s.checkConservation(tappedAt, handedAt)
	s.checkFlat()
}

// taggedFrames returns frames of the simulator with one tag each, and no other observation.
func taggedFrames(t *testing.T) [][]byte {
	t.Helper()
	s, err := scenario.Named("quickstart")
	if err != nil {
		t.Fatal(err)
	}
	s.Duration /= 4
	report, err := simulation.Run(t.Context(), s, t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	domain, err := csig.DefaultSpec().Compile()
	if err != nil {
		t.Fatal(err)
	}
	decoder, err := decode.New(decode.Config{Domain: domain})
	if err != nil {
		t.Fatal(err)
	}
	var frames [][]byte
	for _, path := range report.Captures {
		for _, frame := range livetest.Read(t, path) {
			var r decode.Result
			if decoder.Decode(frame, &r); r.N == 1 && r.Obs[0].Kind == decode.Tag && r.Obs[0].Flags&decode.Orphan == 0 {
				frames = append(frames, frame)
			}
		}
	}
	if len(frames) < 1000 {
		t.Fatalf("%d frames with one tag", len(frames))
	}
	return frames
}

// soakRate is the number of packets per second on each link.
const soakRate = 2000

// send loops the frames into a link until stop is called, which returns the number sent in each
// millisecond.
func send(t *testing.T, link string, frames [][]byte) (stop func() map[int64]int) {
	t.Helper()
	s := livetest.NewSender(t, link)
	var ended atomic.Bool
	done := make(chan map[int64]int, 1)
	go func() {
		sent, at := make(map[int64]int), 0
		for began := time.Now(); !ended.Load(); time.Sleep(time.Millisecond) {
			for due := int(time.Since(began).Seconds() * soakRate); at < due; at++ {
				sent[time.Now().UnixMilli()]++
				s.Send(frames[at%len(frames)])
			}
		}
		done <- sent
	}()
	return func() map[int64]int {
		ended.Store(true)
		return <-done
	}
}

// soak holds the processes and the state of their faults.
type soak struct {
	t       *testing.T
	env     []string
	dir     string
	hostTap string
	address string // of the collector
	proxy   *proxy

	server, host *collecting
	lives        [][]soakSample // of the collector
	reloads      int
	kills        int // of the collector
	starts       int // of the exporter
}

// span is an interval in Unix ms.
type span struct{ from, to int64 }

// split counts packets sent outside and inside of the spans.
func split(sent map[int64]int, spans []span) (outside, inside int) {
	for at, n := range sent {
		if slices.ContainsFunc(spans, func(g span) bool { return g.from <= at && at <= g.to }) {
			inside += n
		} else {
			outside += n
		}
	}
	return outside, inside
}

// soakSample is the resource usage of the collector at one time.
type soakSample struct {
	at  time.Duration
	rss int64 // KiB
	fds int
}

func newSoak(t *testing.T, env []string, hostTap string) *soak {
	s := &soak{t: t, env: env, dir: t.TempDir(), hostTap: hostTap, address: freeAddress(t)}
	s.proxy = newProxy(t, s.address)
	s.writeConfig()
	return s
}

func (s *soak) store() string  { return "embedded:" + filepath.Join(s.dir, "store") }
func (s *soak) config() string { return filepath.Join(s.dir, "collect.yaml") }

// writeConfig writes a configuration that differs each time in the content of the epoch.
func (s *soak) writeConfig() {
	writeFile(s.t, s.config(), fmt.Sprintf("csig:\n  tables:\n  - {format: compact, profile: ietf01, signal: type_5, unit: ns, aggregation: max, quantum: %dus, heavy: 20us}\n"+
		"collect:\n  instance: soak\n  taps:\n  - interface: %s\n  ingest: {listen: %q, anonymous: host1}\n", s.reloads%20+1, livetest.TapEnd, s.address))
}

func (s *soak) begin() {
	s.server = runUntil(s.t, s.env, "collecting", "collect", "--config", s.config(), "--store", s.store())
	s.lives = append(s.lives, nil)
	s.host = s.export()
}

func (s *soak) export() *collecting {
	s.starts++
	return runUntil(s.t, s.env, "exporting", "export", "--interface", s.hostTap, "--collector", "http://"+s.proxy.address(), "--spool", filepath.Join(s.dir, "spool"))
}

// faults follow each other, evenly over the run.
var faults = []struct {
	name  string
	cause func(*soak)
}{
	{"reload", (*soak).reload},
	{"cut the exporter's connection", func(s *soak) { s.proxy.cut(2 * time.Second) }},
	{"kill the engine", (*soak).killEngine},
	{"reload", (*soak).reload},
	{"kill the exporter", func(s *soak) { s.restartExporter(syscall.SIGKILL) }},
	{"end the exporter, and start it again", func(s *soak) { s.restartExporter(syscall.SIGTERM) }},
	{"kill the exporter while it is cut off", func(s *soak) {
		s.proxy.cut(3 * time.Second)
		time.Sleep(time.Second)
		s.restartExporter(syscall.SIGKILL)
	}},
	{"kill the collector", (*soak).killCollector},
}

func (s *soak) reload() {
	s.reloads++
	s.writeConfig()
	if err := s.server.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		s.t.Fatal(err)
	}
}

// restartExporter leaves the host without a capture for a moment.
func (s *soak) restartExporter(signal syscall.Signal) {
	s.host.end(signal)
	s.host = s.export()
}

func (s *soak) killCollector() {
	s.kills++
	s.server.end(syscall.SIGKILL)
	s.server = runUntil(s.t, s.env, "collecting", "collect", "--config", s.config(), "--store", s.store())
	s.lives = append(s.lives, nil)
}

// killEngine kills the process of this store's embedded engine.
func (s *soak) killEngine() {
	list, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		s.t.Fatal(err)
	}
	for _, path := range list {
		text, err := os.ReadFile(path)
		args := strings.Split(string(text), "\x00")
		if err != nil || !slices.Contains(args, "engine") || !slices.Contains(args, filepath.Join(s.dir, "store")) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// rounds is how often all faults happen.
const rounds = 2

func (s *soak) run(duration time.Duration) {
	began := time.Now()
	every := max(duration/120, 500*time.Millisecond)
	done := 0
	for n := rounds * len(faults); time.Since(began) < duration; time.Sleep(every) {
		s.sample(time.Since(began))
		if due := int(time.Since(began) * time.Duration(n+1) / duration); done < due && done < n {
			f := faults[done%len(faults)]
			s.t.Logf("%s: %s", time.Since(began).Round(time.Second), f.name)
			f.cause(s)
			done++
		}
	}
}

func (s *soak) sample(at time.Duration) {
	dir := fmt.Sprintf("/proc/%d/", s.server.cmd.Process.Pid)
	status, err := os.ReadFile(dir + "status")
	if err != nil {
		s.t.Fatalf("the collector is gone: %v\n%s", err, s.server.log())
	}
	fds, err := os.ReadDir(dir + "fd")
	if err != nil {
		s.t.Fatal(err)
	}
	x := soakSample{at: at, fds: len(fds)}
	for line := range strings.Lines(string(status)) {
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &x.rss); err == nil {
			break
		}
	}
	life := &s.lives[len(s.lives)-1]
	*life = append(*life, x)
	s.t.Logf("%s: collector %d MiB, %d descriptors", at.Round(time.Second), x.rss>>10, x.fds)
}

// finish ends all processes, once the collector has the exporter's captures.
func (s *soak) finish() {
	s.proxy.cut(0)
	for range 10 {
		s.host.end(syscall.SIGTERM)
		if !strings.Contains(s.host.log(), "windows wait in the spool") {
			break
		}
		s.host = s.export()
		time.Sleep(2 * time.Second)
	}
	s.server.end(syscall.SIGTERM)
}

// checkConservation compares stored rows with sent packets, for the collector's tap and for the
// exporter's; packets in a gap may be stored or not.
func (s *soak) checkConservation(tapped, handed map[int64]int) {
	t := s.t
	address := freeAddress(t)
	serveBinary(t, s.env, "query", "serve", "--store", s.store(), "--listen", "127.0.0.1:0", "--clickhouse-listen", address)
	own, kills := s.gaps(address, "NOT")
	exporters, starts := s.gaps(address, "")
	s.checkStored(address, "NOT", tapped, own)
	s.checkStored(address, "", handed, exporters)
	if r := runBinary(t, s.env, "schema", "verify", "--store", s.store()); r.code != 0 {
		t.Errorf("schema verify: exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	if kills != s.kills || starts != s.starts-1 {
		t.Errorf("%d gaps of the collector for %d kills, %d of the exporter that was started %d times", kills, s.kills, starts, s.starts)
	}
	taps := mustRun(t, s.env, "query", "taps", "--store", s.store(), "-o", "csv")
	for _, name := range []string{livetest.TapEnd, "host1/" + s.hostTap} {
		if !strings.Contains(taps, "\n"+name+",") {
			t.Errorf("no tap %s:\n%s", name, taps)
		}
	}
}

// ofExporter selects the rows of the exporter's tap; with NOT before it, those of the
// collector's.
const ofExporter = " producer IN (SELECT producer FROM csigscope.runs WHERE name LIKE 'host1/%')"

// gaps returns the gaps of seconds and of all windows, and how many of them are between two
// processes.
func (s *soak) gaps(address, not string) (gaps []span, restarts int) {
	for line := range strings.Lines(ask(s.t, address, "SELECT toUnixTimestamp64Milli(window_from), toUnixTimestamp64Milli(window_to), reason FROM csigscope.gaps FINAL "+
		"WHERE resolution_ns IN (0, 1000000000) AND "+not+ofExporter+" ORDER BY 1")) {
		var g span
		var reason string
		if _, err := fmt.Sscan(line, &g.from, &g.to, &reason); err != nil {
			s.t.Fatalf("gaps: %q: %v", line, err)
		}
		s.t.Logf("gap of %d ms: %s", g.to-g.from, reason)
		gaps = append(gaps, g)
		if reason == "restart" {
			restarts++
		}
	}
	return gaps, restarts
}

func (s *soak) checkStored(address, not string, sent map[int64]int, gaps []span) {
	t := s.t
	outside, inside := split(sent, gaps)
	var got int
	for _, table := range []string{"partials_1s", "partials_1m"} {
		row := ask(t, address, "SELECT sum(observations) FROM csigscope."+table+" FINAL WHERE "+not+ofExporter)
		if _, err := fmt.Sscan(row, &got); err != nil {
			t.Fatalf("%s: %q: %v", table, row, err)
		}
		t.Logf("%s: %d packets sent outside of gaps, %d in gaps, %d stored", table, outside, inside, got)
		if got < outside || got > outside+inside {
			t.Errorf("%s: %d packets are stored, of %d that were sent outside of gaps and %d in gaps", table, got, outside, inside)
		}
	}
}

// checkFlat compares the last third of each long life of the collector with the second.
func (s *soak) checkFlat() {
	const few, slackKiB, slackFDs = 12, 24 << 10, 8
	for i, life := range s.lives {
		if len(life) < few {
			continue
		}
		third := len(life) / 3
		rss := func(x soakSample) int64 { return x.rss }
		fds := func(x soakSample) int64 { return int64(x.fds) }
		middle, last := life[third:2*third], life[2*third:]
		s.t.Logf("life %d: %d MiB and %d descriptors in the second third, %d MiB and %d in the last", i+1,
			medianOf(middle, rss)>>10, medianOf(middle, fds), medianOf(last, rss)>>10, medianOf(last, fds))
		if a, b := medianOf(middle, rss), medianOf(last, rss); b > a+a/5+slackKiB {
			s.t.Errorf("life %d: memory grew from %d to %d KiB", i+1, a, b)
		}
		if a, b := medianOf(middle, fds), medianOf(last, fds); b > a+slackFDs {
			s.t.Errorf("life %d: descriptors grew from %d to %d", i+1, a, b)
		}
	}
}

func medianOf(list []soakSample, of func(soakSample) int64) int64 {
	var values []int64
	for _, x := range list {
		values = append(values, of(x))
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// proxy forwards connections until a test cuts them.
type proxy struct {
	t        *testing.T
	listener net.Listener
	to       string

	mu    sync.Mutex
	conns []net.Conn
	until time.Time // no connection is forwarded before
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{t: t, listener: l, to: to}
	t.Cleanup(func() { l.Close(); p.cut(time.Hour) })
	go p.run()
	return p
}

func (p *proxy) address() string { return p.listener.Addr().String() }

// cut closes all connections, and forwards none for a while.
func (p *proxy) cut(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.until = time.Now().Add(d)
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}

func (p *proxy) run() {
	for {
		from, err := p.listener.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", p.to)
		p.mu.Lock()
		if err != nil || time.Now().Before(p.until) {
			from.Close()
			if err == nil {
				to.Close()
			}
		} else {
			p.conns = append(p.conns, from, to)
			go pass(from, to)
			go pass(to, from)
		}
		p.mu.Unlock()
	}
}

// pass copies until one end is closed, and closes the other.
func pass(from, to net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err == nil {
			_, err = to.Write(buf[:n])
		}
		if err != nil {
			from.Close()
			to.Close()
			return
		}
	}
}
