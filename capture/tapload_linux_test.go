package capture_test

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/capture/livetest"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/filter"
	"github.com/csigscope/csigscope/replay/emitter/emittertest"
)

// loadEnv is the duration of TestTapLoad's traffic, such as 30s; make bench-tap sets it.
const loadEnv = "CSIGSCOPE_TEST_TAP_LOAD"

// TestTapLoad sends with tcpreplay at full speed and receives, decodes and aggregates on one core:
// every frame must be received, and every observation in it aggregated.
func TestTapLoad(t *testing.T) {
	if _, err := exec.LookPath("tcpreplay"); err != nil {
		livetest.Missing(t, "tcpreplay is not installed")
	}
	if testing.Short() {
		t.Skip("SKIPPED: counts of a load are for the tests without the race detector")
	}
	if !livetest.InNamespace(t) {
		return
	}
	livetest.MakeLink(t)
	// Other tests may occupy this test's core for longer than usual.
	duration, packets, blocks := 2*time.Second, uint64(50_000), 2*capture.DefaultTapBlocks
	if text := os.Getenv(loadEnv); text != "" {
		var err error
		if duration, err = time.ParseDuration(text); err != nil {
			t.Fatalf("%s: %v", loadEnv, err)
		}
		packets, blocks = 200_000, 0
	}
	p := newPipeline(t, packets, blocks)
	sent := make(chan uint64)
	go func() { sent <- replayLoad(t, p.file, duration) }()
	p.run(t, sent)
}

// pipeline processes the frames of one ring like a collector.
type pipeline struct {
	file    string
	decoder *decode.Decoder
	shard   *window.Shard
	ring    *capture.Ring
	prefix  []uint64 // observations in the file's frames before each one

	result decode.Result
	obs    []decode.Observation
	n      int
	batch  capture.Batch

	frames, observations uint64
}

const mostPending = 256 - decode.MaxObservations

func newPipeline(t *testing.T, packets uint64, blocks int) *pipeline {
	t.Helper()
	s := emittertest.Named(t, "fabric-like")
	s.Packets = packets
	report := emittertest.Run(t, s, t.TempDir())
	resolver, domain := emittertest.Network(t, report.Fabric)
	cfg := decode.Config{Domain: domain}
	p := &pipeline{file: report.Captures[0], obs: make([]decode.Observation, mostPending+decode.MaxObservations)}
	var err error
	if p.decoder, err = decode.New(cfg); err != nil {
		t.Fatal(err)
	}
	p.prefix = []uint64{0}
	for _, f := range livetest.Read(t, p.file) {
		p.decoder.Decode(f, &p.result)
		p.prefix = append(p.prefix, p.prefix[len(p.prefix)-1]+uint64(p.result.N))
	}
	if p.shard, err = window.NewShard(window.Config{
		Domain: domain, Resolver: resolver, Tap: window.Tap{Tags: true, Reflections: true},
	}, table.New(table.Bounds{Resolution: time.Minute, Rows: 1 << 20})); err != nil {
		t.Fatal(err)
	}
	program, err := filter.New(filter.Config{Decode: cfg})
	if err != nil {
		t.Fatal(err)
	}
	p.ring = openTap(t, capture.TapConfig{
		Filter: program, Blocks: blocks, BlockSize: capture.DefaultTapBlockSize, Retire: capture.DefaultTapRetire,
	}).Rings()[0]
	return p
}

// replayLoad sends the file repeatedly and returns the number of frames sent.
func replayLoad(t *testing.T, file string, d time.Duration) uint64 {
	out, err := exec.CommandContext(t.Context(), "tcpreplay", "--topspeed", "--preload-pcap", "--loop=0",
		"--duration="+strconv.Itoa(int(d.Seconds())), "--intf1="+livetest.SendEnd, file).CombinedOutput()
	m := regexp.MustCompile(`Successful packets:\s+(\d+)`).FindSubmatch(out)
	if err != nil || m == nil {
		t.Errorf("tcpreplay: %v\n%s", err, out)
		return 0
	}
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "Rated:") {
			t.Log("tcpreplay: ", strings.TrimSpace(line))
		}
	}
	n, _ := strconv.ParseUint(string(m[1]), 10, 64)
	return n
}

// run reads until all frames sent have arrived or been lost.
func (p *pipeline) run(t *testing.T, done <-chan uint64) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began, sent, ended := threadTime(t), uint64(0), false
	for idle := 0; idle < 25; {
		if err := p.step(t.Context()); err != nil {
			t.Fatal(err)
		}
		if p.batch.N > 0 {
			idle = 0
			continue
		}
		if idle++; ended {
			continue
		}
		select {
		case sent = <-done:
			ended = true
		default:
			idle = 0
		}
	}
	used := threadTime(t) - began
	runtime.ReadMemStats(&after)
	if err := p.shard.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.report(t, sent, used, after.Mallocs-before.Mallocs)
}

// step receives, decodes and aggregates one batch.
func (p *pipeline) step(ctx context.Context) error {
	if err := p.ring.ReadBatch(&p.batch); err != nil {
		return err
	}
	if p.batch.N == 0 {
		if err := p.pass(ctx); err != nil {
			return err
		}
		return p.shard.AdvanceTo(ctx, p.ring.LowWatermark())
	}
	p.frames += uint64(p.batch.N)
	r := &p.result
	for i := range p.batch.N {
		f := &p.batch.Frames[i]
		r.Obs = p.obs[p.n : p.n+decode.MaxObservations]
		p.decoder.DecodeFrame(decode.Framing{Link: decode.Ethernet}, &decode.Frame{Data: f.Data, WireLen: f.WireLen, TPID: f.TPID, TCI: f.TCI}, r)
		for j := range r.Obs[:r.N] {
			o := &r.Obs[j]
			o.TimeNS, o.Packet, o.Bytes = f.TimeNS, f.Packet, f.WireLen
		}
		if p.n += r.N; p.n >= mostPending {
			if err := p.pass(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *pipeline) pass(ctx context.Context) error {
	n := p.n
	p.n = 0
	p.observations += uint64(n)
	return p.shard.Add(ctx, p.obs[:n])
}

func (p *pipeline) report(t *testing.T, sent uint64, used time.Duration, allocs uint64) {
	t.Helper()
	c, counts := p.ring.Counters(), p.shard.Counts()
	t.Logf("sent %d, received %d, dropped %d by the ring (%d freezes), %d observations; %.1f ns CPU a packet to receive, decode and aggregate, %.6f allocations",
		sent, p.frames, c.Dropped, c.Freezes, p.observations, float64(used)/float64(max(p.frames, 1)), float64(allocs)/float64(max(p.frames, 1)))
	if sent == 0 || p.frames != sent || c.Dropped != 0 || c.Received != sent {
		t.Errorf("%d frames of %d arrived: %+v", p.frames, sent, c)
	}
	inFile := uint64(len(p.prefix) - 1)
	want := sent/inFile*p.prefix[inFile] + p.prefix[sent%inFile]
	if p.observations != want || counts.In != want || counts.Late != 0 {
		t.Errorf("%d observations, %d aggregated, %d late; want %d", p.observations, counts.In, counts.Late, want)
	}
}

// threadTime returns the thread's CPU time, including kernel time.
func threadTime(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
