package bpf_test

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"go.uber.org/goleak"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/capture/livetest"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/ingest/local"
	"github.com/csigscope/csigscope/ingest/local/bpf"
	"github.com/csigscope/csigscope/ingest/local/taps"
	"github.com/csigscope/csigscope/replay/emitter/emittertest"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// journal keeps blocks in memory.
type journal struct {
	mu     sync.Mutex
	blocks []*aggregate.Block
}

func (j *journal) WriteBlock(_ context.Context, b *aggregate.Block) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.blocks = append(j.blocks, b.Clone())
	return nil
}

func (j *journal) Commit(context.Context, []local.Mark) error { return nil }

// row names a row; of whole runs it has no start.
type row struct {
	resolution, start      int64
	signal, kind, encoding uint8
	src, dst, at           uint64
}

type sums struct{ observations, samples, unjudged, bytes, sum, heavy, heavySum, untouched, trimmed uint64 }

// rows adds blocks up, by the starts of windows or without them. Coarse windows have all that fine ones have, of which
// rows of cells without heavy observations are left out.
func (j *journal) rows(starts bool) map[row]sums {
	list := make(map[row]sums)
	for _, b := range j.blocks {
		for i := range b.Len() {
			k := row{
				b.Resolution, 0, b.Signal[i], b.Kind[i], b.Encoding[i], b.SrcGroup[i], b.DstGroup[i], b.Location[i],
			}
			if starts {
				k.start = b.WindowStart
			}
			v := list[k]
			v.observations += b.Observations[i]
			v.samples += b.Samples[i]
			v.unjudged += b.Unjudged[i]
			v.bytes += b.Bytes[i]
			v.sum += b.Sum[i]
			v.heavy += b.Heavy[i]
			v.heavySum += b.HeavySum[i]
			v.untouched += b.Untouched[i]
			v.trimmed += b.Trimmed[i]
			list[k] = v
		}
	}
	return list
}

// reading is a pipeline behind the tap's end of the link.
type reading struct {
	t        *testing.T
	by       taps.ReaderKind
	set      taps.Set
	journal  journal
	pipeline *local.Pipeline
	stop     context.CancelFunc
	done     chan error
}

func interfaceOf(by taps.ReaderKind, odd bool) taps.Interface {
	return taps.Interface{
		Name: "tap", At: window.TapAt("receiver", 1), By: by, Odd: odd,
		Capture: capture.TapConfig{Interface: livetest.TapEnd, Timestamps: capture.TimestampSoftware},
	}
}

// read begins to read by a ring or in the kernel.
func read(t *testing.T, s window.Settings, by taps.ReaderKind, odd bool) *reading {
	t.Helper()
	r := &reading{t: t, by: by, done: make(chan error, 1)}
	cfg := taps.Config{Interfaces: []taps.Interface{interfaceOf(by, odd)}, Decode: s.Decode, Settings: &s}
	var err error
	if r.set, err = taps.Open(cfg, nil); err != nil {
		livetest.Missing(t, "%v", err)
	}
	r.pipeline, err = local.New(local.Config{Instance: "test", Interval: 50 * time.Millisecond, Journal: &r.journal}, local.Plan{Settings: s, Rings: r.set.Rings(nil)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	r.stop = stop
	go func() { r.done <- r.pipeline.Run(ctx) }()
	for r.pipeline.Stats().Barriers == 0 { // until it counts
		time.Sleep(time.Millisecond)
	}
	return r
}

// reload goes on under other settings.
func (r *reading) reload(s window.Settings, odd bool) {
	r.t.Helper()
	cfg := taps.Config{Interfaces: []taps.Interface{interfaceOf(r.by, odd)}, Decode: s.Decode, Settings: &s}
	set, err := taps.Open(cfg, r.set)
	if err == nil {
		err = r.pipeline.Reload(r.t.Context(), local.Plan{Settings: s, Rings: set.Rings(r.set)}, nil)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.set = set
}

// end ends the pipeline, with all that came before.
func (r *reading) end() {
	r.t.Helper()
	r.stop()
	if err := <-r.done; err != nil {
		r.t.Error(err)
	}
	c := r.pipeline.Stats().Counts()
	known := c.Stored + c.Overflow + c.Late
	for _, n := range c.Rejected {
		known += n
	}
	if c.In != known {
		r.t.Errorf("%s: %d of %d observations are accounted for: %+v", r.by, known, c.In, c)
	}
	if n := r.set["tap"].Counters(); n.Dropped > 0 {
		r.t.Errorf("%s: %d packets were dropped", r.by, n.Dropped)
	}
}

// same compares the rows of a ring and of the kernel.
func same(t *testing.T, ring, kernel *reading, starts bool) {
	t.Helper()
	want, got := ring.journal.rows(starts), kernel.journal.rows(starts)
	if !maps.Equal(want, got) {
		n := 0
		for k, v := range want {
			if got[k] != v && n < 5 {
				n++
				t.Errorf("row %+v: in the kernel %+v, by a ring %+v", k, got[k], v)
			}
		}
		t.Errorf("%d rows in the kernel differ from %d by a ring", len(got), len(want))
	}
	a, b := ring.pipeline.Stats().Rings[0], kernel.pipeline.Stats().Rings[0]
	a.Counts.CacheResets, b.Counts.CacheResets, a.Counts.ReflectionEvictions, b.Counts.ReflectionEvictions = 0, 0, 0, 0
	a.Counts.Blocks, b.Counts.Blocks, a.Counts.Rows, b.Counts.Rows, a.Counts.Deltas, b.Counts.Deltas = 0, 0, 0, 0, 0, 0
	if a.Counts != b.Counts {
		t.Errorf("counts in the kernel %+v, by a ring %+v", b.Counts, a.Counts)
	}
	if a.Found != b.Found {
		t.Errorf("found in the kernel %v, by a ring %v", b.Found.List(), a.Found.List())
	}
}

// emitted are frames of a built-in scenario, and the settings for them.
func emitted(t *testing.T, name string, format csig.Format, most int) (frames [][]byte, s window.Settings) {
	t.Helper()
	sc := emittertest.Named(t, name)
	sc = sc.WithLayout(csig.Layout{Format: format, Profile: csig.UEC050})
	sc.Duration, sc.Packets = min(sc.Duration, 200*time.Millisecond), min(sc.Packets, 20_000)
	report := emittertest.Run(t, sc, t.TempDir())
	for _, path := range report.Captures {
		list := livetest.Read(t, path)
		frames = append(frames, list[:min(len(list), most/len(report.Captures)+1)]...)
	}
	frames = slices.DeleteFunc(frames, func(f []byte) bool { return len(f) < 14 || len(f) > 9000 })
	f, domain := emittertest.Network(t, report.Fabric)
	s = window.Settings{
		Decode: decode.Config{Domain: domain}, Resolver: f, Epoch: 1,
		Resolutions: []time.Duration{10 * time.Millisecond, time.Second, time.Minute},
	}
	if err := bpf.Check(&s, window.TapAt("receiver", 1)); errors.Is(err, bpf.ErrUnsupported) {
		t.Logf("%s: without its fabric file: %v", name, err)
		s.Resolver = fabric.None(domain)
	}
	return frames, s
}

// TestScenarios sends frames of every scenario to a ring and to the program in the kernel at a time: both come to the same
// rows of the whole run.
func TestScenarios(t *testing.T) {
	if !livetest.InNamespaceOfRoot(t) {
		return
	}
	livetest.MakeLink(t)
	sender := livetest.NewSender(t, livetest.SendEnd)
	for i, name := range scenario.Names() {
		for _, format := range []csig.Format{csig.Compact, csig.Wide} {
			// In each run a scenario has one of the formats, in short ones few scenarios run.
			if !thorough() && i%2 == int(format)%2 || testing.Short() && i%8 != 0 {
				continue
			}
			if name == "mixed-generations" && format == csig.Compact {
				continue // its speeds do not fit a compact locator
			}
			t.Run(name+"/"+format.String(), func(t *testing.T) {
				frames, s := emitted(t, name, format, 2000)
				ring, kernel := read(t, s, taps.ByRing, false), read(t, s, taps.ByKernel, true)
				sender.Send(frames...)
				ring.end()
				kernel.end()
				same(t, ring, kernel, false)
				n := kernel.set["tap"].Counters()
				t.Logf("%d frames, %d counted in the kernel, %d odd", len(frames), n.Received-n.Odd, n.Odd)
			})
		}
	}
}

// heaviest returns the named flows of windows of a length, the most heavy observations first, and how many observations
// were sampled.
func (j *journal) heaviest(t *testing.T, resolution time.Duration) (list []aggregate.FlowRow, samples uint64) {
	t.Helper()
	totals := table.NewFlowTotals(resolution, 1<<16)
	signals := map[csig.Signal]bool{}
	for _, b := range j.blocks {
		if err := b.Check(); err != nil {
			t.Error(err)
		}
		if err := totals.WriteBlock(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		for i := range b.Flows {
			signals[csig.Signal(b.Flows[i].Signal)] = true
			samples += b.Flows[i].Sampled
		}
	}
	for _, s := range slices.Sorted(maps.Keys(signals)) {
		list = append(list, totals.Flows(s)...)
	}
	slices.SortStableFunc(list, func(a, b aggregate.FlowRow) int { return cmp.Compare(b.Heavy, a.Heavy) })
	return list, samples
}

// TestFlows: of scenarios sent over a link the kernel names the heaviest flow that a ring names, as a sample. While few
// enough are heavy all are sampled, so that all flows are the ring's.
func TestFlows(t *testing.T) {
	if !livetest.InNamespaceOfRoot(t) {
		return
	}
	livetest.MakeLink(t)
	sender := livetest.NewSender(t, livetest.SendEnd)
	for _, tt := range []struct {
		name   string
		frames int
		times  int // so often they are sent
	}{{"permutation", 3000, 1}, {"fairness", 20_000, 8}} {
		t.Run(fmt.Sprint(tt.name, " times ", tt.times), func(t *testing.T) {
			frames, s := emitted(t, tt.name, csig.Compact, tt.frames)
			s.Resolutions = []time.Duration{time.Second, time.Minute}
			s.Flows = window.FlowLimits{Top: 1000, Budget: 1 << 16}
			ring, kernel := read(t, s, taps.ByRing, false), read(t, s, taps.ByKernel, true)
			for range tt.times {
				sender.Send(frames...)
			}
			ring.end()
			kernel.end()
			same(t, ring, kernel, false)
			want, none := ring.journal.heaviest(t, time.Minute)
			got, samples := kernel.journal.heaviest(t, time.Minute)
			if len(want) == 0 || len(got) == 0 || none != 0 || samples == 0 {
				t.Fatalf("%d flows by a ring, %d sampled; %d in the kernel, %d sampled", len(want), none, len(got), samples)
			}
			if tt.times == 1 {
				for i := range got {
					if got[i].Sampled != got[i].Heavy {
						t.Errorf("%d of %d observations were sampled", got[i].Sampled, got[i].Heavy)
					}
					got[i].Sampled = 0
				}
				sameFlows(t, got, want)
				return
			}
			at := slices.IndexFunc(want, func(f aggregate.FlowRow) bool { return f.Flow == got[0].Flow && f.Signal == got[0].Signal })
			if at < 0 || want[at].Heavy < want[0].Heavy*3/4 {
				t.Errorf("the heaviest flow in the kernel is %+v, by a ring %+v", got[0], want[0])
			}
			t.Logf("%d flows in the kernel, %d by a ring; the heaviest has %d of %d heavy observations, of %d samples", len(got), len(want), got[0].Heavy, want[0].Heavy, got[0].Sampled)
		})
	}
}

// sameFlows compares flows in any order: windows that end at other packets name them in another one.
func sameFlows(t *testing.T, got, want []aggregate.FlowRow) {
	t.Helper()
	type key struct {
		aggregate.Flow
		aggregate.CellKey
	}
	left := make(map[key]aggregate.FlowRow)
	for _, f := range want {
		left[key{f.Flow, f.Cell()}] = f
	}
	for _, f := range got {
		k := key{f.Flow, f.Cell()}
		if left[k] != f {
			t.Errorf("flow in the kernel %+v, by a ring %+v", f, left[k])
		}
		delete(left, k)
	}
	for _, f := range left {
		t.Errorf("flow only by a ring %+v", f)
	}
}

// sameTags compares the rows of tags. Reflections may differ: if the kernel reads only those outside of a tunnel, those of the
// same flow inside do not repeat them.
func sameTags(t *testing.T, ring, kernel *reading) {
	t.Helper()
	want, got := ring.journal.rows(false), kernel.journal.rows(false)
	for _, rows := range [...]map[row]sums{want, got} {
		maps.DeleteFunc(rows, func(k row, _ sums) bool { return k.kind == uint8(decode.Reflection) })
	}
	if !maps.Equal(want, got) {
		t.Errorf("rows of tags in the kernel %v, by a ring %v", got, want)
	}
	a, b := ring.pipeline.Stats().Rings[0], kernel.pipeline.Stats().Rings[0]
	if a.Found != b.Found || a.Counts.In != b.Counts.In {
		t.Errorf("found in the kernel %v, by a ring %v", b.Found.List(), a.Found.List())
	}
}

// TestOddPackets: of frames of every encapsulation the ring takes those that the program calls odd, and no others.
func TestOddPackets(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: emits much, which takes long with the race detector")
	}
	if !livetest.InNamespaceOfRoot(t) {
		return
	}
	livetest.MakeLink(t)
	sender := livetest.NewSender(t, livetest.SendEnd)
	_, s := emitted(t, "quickstart", csig.Compact, 1)
	s.Resolver = fabric.None(s.Decode.Domain)
	frames := emittertest.EveryEncapsulation(t)
	for _, odd := range []bool{true, false} {
		t.Run(fmt.Sprint("ring takes them ", odd), func(t *testing.T) {
			ring, kernel := read(t, s, taps.ByRing, false), read(t, s, taps.ByKernel, odd)
			sender.Send(frames...)
			ring.end()
			kernel.end()
			n := kernel.set["tap"].Counters()
			if n.Odd == 0 || n.Odd == n.Received {
				t.Errorf("%+v: expected odd packets and others", n)
			}
			if odd {
				sameTags(t, ring, kernel)
			} else if a, b := ring.pipeline.Stats().Counts(), kernel.pipeline.Stats().Counts(); b.In == 0 || b.In >= a.In {
				t.Errorf("%d of %d observations without odd packets", b.In, a.In)
			}
		})
	}
}

// TestWindows: bursts with idle edges make the same windows as by a ring, of all resolutions: also of 1 s, for which the program
// does not read the clock for each packet. If a busy machine has sent a burst across the edge of a window, all are sent again.
func TestWindows(t *testing.T) {
	if !livetest.InNamespaceOfRoot(t) {
		return
	}
	livetest.MakeLink(t)
	sender := livetest.NewSender(t, livetest.SendEnd)
	frames, s := emitted(t, "quickstart", csig.Compact, 400)
	resolutions := [...][]time.Duration{{100 * time.Millisecond, time.Second, time.Minute}, {time.Second, time.Minute}}
	const runs, bursts = 2, 2
	for whole := 0; whole < runs; {
		s.Resolutions = resolutions[whole%len(resolutions)]
		ring, kernel := read(t, s, taps.ByRing, false), read(t, s, taps.ByKernel, true)
		across := false
		for range bursts {
			now := time.Now()
			time.Sleep(now.Truncate(time.Second).Add(time.Second + 20*time.Millisecond).Sub(now))
			began := time.Now()
			sender.Send(frames[:min(len(frames), 300)]...)
			ended := time.Now().Add(time.Millisecond)
			across = across || !began.Truncate(100*time.Millisecond).Equal(ended.Truncate(100*time.Millisecond))
		}
		ring.end()
		kernel.end()
		if across {
			continue
		}
		whole++
		same(t, ring, kernel, true)
	}
}

// sendDuring sends frames again and again until f returns, and returns how many it has sent.
func sendDuring(t *testing.T, frames [][]byte, f func()) (sent int) {
	t.Helper()
	var running sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	running.Go(func() {
		sender := livetest.NewSender(t, livetest.SendEnd)
		for ctx.Err() == nil {
			sender.Send(frames...)
			sent += len(frames)
		}
	})
	f()
	stop()
	running.Wait()
	return sent
}

// TestReload: while packets come, the program is exchanged for others that read and name them in another way. Each packet is
// counted once.
func TestReload(t *testing.T) {
	if !livetest.InNamespaceOfRoot(t) {
		return
	}
	livetest.MakeLink(t)
	frames, s := emitted(t, "quickstart", csig.Compact, 3000)
	grouped := s
	grouped.Resolver, grouped.Epoch = fabric.None(s.Decode.Domain), 2
	kernel := read(t, s, taps.ByKernel, false)
	sent := sendDuring(t, frames, func() {
		for i := range reloads() {
			kernel.reload([...]window.Settings{grouped, s}[i%2], false)
		}
	})
	kernel.end()
	if n := kernel.set["tap"].Counters(); n.Received != uint64(sent) || n.Odd != 0 {
		t.Errorf("%d packets were counted and %d were odd, %d sent", n.Received, n.Odd, sent)
	}
	want := uint64(sent / len(frames) * observations(t, &s, frames))
	if c := kernel.pipeline.Stats().Counts(); c.In != want {
		t.Errorf("%d observations were counted, %d sent", c.In, want)
	}
	t.Logf("%d packets, %d reloads", sent, reloads())
}

// TestReplace: while packets come, the source of a tap is replaced by one that captures in another way. Each packet is counted
// once.
func TestReplace(t *testing.T) {
	if !livetest.InNamespaceOfRoot(t) {
		return
	}
	livetest.MakeLink(t)
	frames, s := emitted(t, "quickstart", csig.Compact, 3000)
	kernel := read(t, s, taps.ByKernel, false)
	sent := sendDuring(t, frames, func() {
		for i := range reloads() {
			kernel.reload(s, i%2 == 0)
		}
	})
	kernel.end()
	if got, want := kernel.pipeline.Stats().Counts().In, uint64(sent/len(frames)*observations(t, &s, frames)); got != want {
		t.Errorf("%d observations were counted, %d sent", got, want)
	}
	if n := kernel.set["tap"].Counters(); n.Received != uint64(sent) || n.Frames != uint64(sent) {
		t.Errorf("%d packets were counted, %d of them delivered, %d sent", n.Received, n.Frames, sent)
	}
	t.Logf("%d packets, %d reloads", sent, reloads())
}

// TestReplacePackets: when the kernel replaces a ring, packets begin to count there at the same time as their observations,
// except at the moment of the exchange. One good exchange of several is enough, since the machine may be busy at the others.
func TestReplacePackets(t *testing.T) {
	if !livetest.InNamespaceOfRoot(t) {
		return
	}
	livetest.MakeLink(t)
	frames, s := emitted(t, "quickstart", csig.Wide, 3000)
	frames = slices.DeleteFunc(frames, func(f []byte) bool { return observations(t, &s, [][]byte{f}) != 1 })
	r := read(t, s, taps.ByRing, false)
	apart := func() (n int) {
		stats := r.pipeline.Stats()
		for i := range stats.Rings {
			n += int(stats.Rings[i].Packets)
		}
		return n - int(stats.Counts().In)
	}
	least := 1 << 30
	sendDuring(t, frames, func() {
		for range 4 {
			before := apart()
			r.by = taps.ByKernel
			r.reload(s, false)
			time.Sleep(100 * time.Millisecond)
			least = min(least, max(apart()-before, before-apart()))
			r.by = taps.ByRing
			r.reload(s, false)
		}
	})
	r.end()
	if least > 20 {
		t.Errorf("%d packets or more count without their observations, or these without them", least)
	}
}

// observations is how many tags and reflections are in frames.
func observations(t *testing.T, s *window.Settings, frames [][]byte) (n int) {
	t.Helper()
	d, err := decode.New(s.Decode)
	if err != nil {
		t.Fatal(err)
	}
	var r decode.Result
	for _, f := range frames {
		d.Decode(f, &r)
		n += r.N
	}
	return n
}

// thorough is that the test has hours to spare: make torture sets that.
func thorough() bool { return os.Getenv("CSIGSCOPE_TEST_KILLS") != "" }

// reloads is how often programs are exchanged.
func reloads() int {
	if thorough() {
		return 100
	}
	if testing.Short() {
		return 3
	}
	return 10
}

// TestInterfaceMadeAgain: the program is attached again where an interface goes away and comes back. Reloads meanwhile go on.
func TestInterfaceMadeAgain(t *testing.T) {
	if !livetest.InNamespaceOfRoot(t) {
		return
	}
	livetest.MakeLink(t)
	frames, s := emitted(t, "quickstart", csig.Compact, 300)
	kernel := read(t, s, taps.ByKernel, true)
	sender := livetest.NewSender(t, livetest.SendEnd)
	sender.Send(frames...)
	livetest.IP(t, "link", "del", livetest.SendEnd)
	kernel.reload(s, true)
	s.Flows.Top = 7
	kernel.reload(s, true)
	livetest.MakeLink(t)
	for n := 0; attached(t) == 0; n++ {
		if n == 6000 {
			t.Fatal("the program is not attached again")
		}
		time.Sleep(5 * time.Millisecond)
	}
	sender.Bind(livetest.SendEnd)
	sender.Send(frames...)
	kernel.end()
	if n := kernel.set["tap"].Counters(); n.Received != 2*uint64(len(frames)) || n.Reopens == 0 {
		t.Errorf("%+v, %d packets were sent", n, 2*len(frames))
	}
}

// killedEnv makes this test binary a process that counts until it is killed.
const killedEnv = "CSIGSCOPE_TEST_KILLED"

// TestKilled: a process that is killed leaves no program at the interface, and the next one counts each packet once.
func TestKilled(t *testing.T) {
	if os.Getenv(killedEnv) != "" {
		_, s := emitted(t, "quickstart", csig.Compact, 1)
		read(t, s, taps.ByKernel, true)
		fmt.Println("counting")
		select {} // until it is killed
	}
	if testing.Short() {
		t.Skip("SKIPPED: drives processes")
	}
	if !livetest.InNamespaceOfRoot(t) {
		return
	}
	livetest.MakeLink(t)
	sender := livetest.NewSender(t, livetest.SendEnd)
	frames, s := emitted(t, "quickstart", csig.Compact, 500)
	for range reloads() {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilled$")
		cmd.Env = append(os.Environ(), killedEnv+"=1", "TMPDIR="+t.TempDir())
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for lines.Scan() && lines.Text() != "counting" {
		}
		if n := attached(t); n != 1 {
			t.Fatalf("%d programs are attached by a process that counts", n)
		}
		sender.Send(frames...)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()                     // it was killed
		for n := 0; attached(t) > 0; n++ { // the kernel lets go of descriptors in its time
			if n == 6000 {
				t.Fatal("a program is left behind")
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	kernel := read(t, s, taps.ByKernel, false)
	sender.Send(frames...)
	kernel.end()
	if n := kernel.set["tap"].Counters(); n.Received != uint64(len(frames)) {
		t.Errorf("%d packets were counted, %d sent", n.Received, len(frames))
	}
	if n := attached(t); n != 0 {
		t.Errorf("%d programs are left behind", n)
	}
}

// attached is how many programs are attached to the tap's end.
func attached(t *testing.T) int { return len(attachedAt(t)) }

// attachedAt are the programs that are attached to the tap's end.
func attachedAt(t *testing.T) []link.AttachedProgram {
	t.Helper()
	at, err := net.InterfaceByName(livetest.TapEnd)
	if err != nil {
		t.Fatal(err)
	}
	q, err := link.QueryPrograms(link.QueryOptions{Target: at.Index, Attach: ebpf.AttachTCXIngress})
	if err != nil {
		t.Fatal(err)
	}
	return q.Programs
}
