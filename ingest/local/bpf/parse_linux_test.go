package bpf

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/capture/livetest"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay/emitter/emittertest"
)

// settingsOf are settings with reflections of every kind over TCP.
func settingsOf(t *testing.T, spec *fabric.Spec) *window.Settings {
	t.Helper()
	s := csig.DefaultSpec()
	s.Reflections = append(s.Reflections,
		csig.ReflectionSpec{Kind: 200},
		csig.ReflectionSpec{Kind: 200, Length: "payload"},
		csig.ReflectionSpec{Kind: 254, ExID: 0xc5160001, ExIDBits: 32},
	)
	s.UDPReflections = []csig.UDPReflectionSpec{
		{Ports: []uint16{4791, 4793}, Offset: 2, Format: "compact", Profile: "ietf01"},
		{Ports: []uint16{7000}, Offset: 4, Format: "wide", Profile: "uec050", ValidOffset: 1, ValidMask: 3, MatchMask: 0xf0, MatchValue: 0x40},
		{Ports: []uint16{7000, 7001}, Offset: 12, Format: "compact", Profile: "uec050", ValidMask: 1},
		{Ports: []uint16{7001}, Offset: 300, Format: "compact", Profile: "uec050", MatchOffset: 3, MatchMask: 1},
	}
	domain, err := s.Compile()
	if err != nil {
		t.Fatal(err)
	}
	f := fabric.None(domain)
	if spec != nil {
		if f, err = fabric.New(spec, domain); err != nil {
			t.Fatal(err)
		}
	}
	return &window.Settings{Decode: decode.Config{Domain: domain}, Resolver: f, Resolutions: []time.Duration{24 * time.Hour}, Flows: window.FlowLimits{Top: window.MaxTopFlows, Budget: 1 << 17}}
}

// loaded is a counter in the kernel, which has to be possible in CI.
func loaded(t *testing.T, s *window.Settings, tap window.Tap, keys int) *counter {
	t.Helper()
	if os.Geteuid() != 0 {
		livetest.Missing(t, "loading a program takes the rights of root")
	}
	c, err := newCounter(s, tap, keys, 1<<16, nil)
	if err != nil {
		livetest.Missing(t, "%v", err)
	}
	t.Cleanup(func() {
		if err := c.close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// seeds are frames of every encapsulation, those that tests of decode have, and some with options.
func seeds(t *testing.T) (frames [][]byte) {
	t.Helper()
	frames = emittertest.EveryEncapsulation(t)
	for _, f := range livetest.ReadHex(t, "../../../decode/testdata/frames") {
		frames = append(frames, f.Data)
	}
	return frames
}

// mutate returns a frame made of others, of 14 bytes at least. Half of them differ little from one that is sound, and
// in bytes that decide how it is read.
func mutate(r *rand.Rand, frames [][]byte) []byte {
	f := append([]byte(nil), frames[r.IntN(len(frames))]...)
	for range r.IntN(4) {
		if len(f) < 20 {
			break
		}
		at := 12 + r.IntN(min(len(f)-12, 100))
		switch r.IntN(9) {
		case 8: // to a port of reflections
			ports := [...]uint16{4791, 4793, 7000, 7001}
			addUDP(r, f, ports[r.IntN(len(ports))])
		case 0:
			f[at] ^= 1 << r.IntN(8)
		case 1:
			f[at] = byte(r.Uint32())
		case 2: // another EtherType
			types := [...]uint16{0x8100, 0x88a8, 0x9100, 0x9900, 0x88b5, 0x88b6, 0x0800, 0x86dd, 0x88e5, 0x8847, 0x0806}
			id := types[r.IntN(len(types))]
			f[12], f[13] = byte(id>>8), byte(id)
		case 3: // a tag more
			types := [...]uint16{0x8100, 0x88a8, 0x9900, 0x88b5}
			id := types[r.IntN(len(types))]
			tag := []byte{byte(id >> 8), byte(id), byte(r.Uint32()), byte(r.Uint32())}
			f = append(f[:12:12], append(tag, f[12:]...)...)
		case 4: // options of TCP
			addOptions(r, f)
		case 5:
			f = f[:max(14, r.IntN(len(f)+1))]
		case 6:
			f[at] = [...]byte{0, 1, 4, 6, 17, 41, 43, 44, 47, 50, 51, 60, 135, 200, 253, 254}[r.IntN(16)]
		case 7:
			f = append(f, make([]byte, r.IntN(200))...)
		}
	}
	return f[:min(len(f), 1500)]
}

// addUDP makes the transport header of a frame one of UDP to a port, where it looks like one with room.
func addUDP(r *rand.Rand, f []byte, port uint16) {
	for ip := 14; ip < min(len(f)-48, 60); ip += 2 {
		at := ip + 20
		switch {
		case f[ip] == 0x45 && f[ip+9] == 6 || f[ip+9] == 17:
			f[ip+9] = 17
		case f[ip]>>4 == 6 && f[ip+6] == 6 || f[ip+6] == 17:
			f[ip+6] = 17
			at = ip + 40
		default:
			continue
		}
		if at+8 > len(f) {
			return
		}
		n := [...]int{0, 4, len(f) - at, r.IntN(40), len(f)}[r.IntN(5)]
		f[at+2], f[at+3], f[at+4], f[at+5] = byte(port>>8), byte(port), byte(n>>8), byte(n)
		for i := at + 8; i < min(len(f), at+12); i++ {
			f[i] = [...]byte{0x40, 0x41, 0x43, 0, 1}[r.IntN(5)]
		}
		return
	}
}

// addOptions writes random options into the TCP header of a frame, where it looks like one with room.
func addOptions(r *rand.Rand, f []byte) {
	for at := 34; at < min(len(f)-60, 100); at += 2 {
		if f[at+12]>>4 < 5 || f[at+12]&15 > 1 {
			continue
		}
		f[at+12] = byte(5+r.IntN(11))<<4 | f[at+12]&15
		for i := at + 20; i < at+60; {
			option := [...][]byte{
				{1},
				{1, 1},
				{0},
				{2, 4, 5, 0xb4},
				{200, 4, 0x2b, 0x85},
				{200, 2, 0x2b, 0x85},
				{200, 8, 0, 5, 0x20, 1, 2, 0},
				{200, 6, 0, 7, 0x10, 1, 2, 0},
				{253, 6, 0xc5, 0x16, 0x28, 0x42},
				{254, 8, 0xc5, 0x16, 0, 1, 0x2b, 0x85},
				{200, 2},
				{200, 3, 0},
				{8, 10, 0, 0, 0, 1, 0, 0, 0, 2},
				{byte(r.Uint32()), byte(r.Uint32N(12))},
			}[r.IntN(14)]
			i += copy(f[i:at+60], option)
		}
		return
	}
}

// rows adds up the rows of a shard, and those of flows.
type rows struct {
	cells map[[7]uint64][8]uint64
	flows map[aggregate.FlowRow]int
}

func newRows() rows { return rows{map[[7]uint64][8]uint64{}, map[aggregate.FlowRow]int{}} }

func (r rows) WriteBlock(_ context.Context, b *aggregate.Block) error {
	for _, f := range b.Flows {
		f.Sampled = 0
		r.flows[f]++
	}
	for i := range b.Len() {
		k := [7]uint64{uint64(b.Signal[i]), uint64(b.Kind[i]), uint64(b.Encoding[i]), b.SrcGroup[i], b.DstGroup[i], b.Location[i], uint64(b.Resolution)}
		v := r.cells[k]
		for j, n := range [...]uint64{
			b.Observations[i], b.Samples[i], b.Bytes[i], b.Sum[i], b.Untouched[i], b.Trimmed[i], b.Heavy[i], b.HeavySum[i],
		} {
			v[j] += n
		}
		r.cells[k] = v
	}
	return nil
}

// comparison feeds frames to the program, and to a stream as a ring would.
type comparison struct {
	t        *testing.T
	c        *counter
	settings *window.Settings
	ring     *window.Stream
	kernel   *window.Stream
	ringRows rows
	rows     rows
	odd      [OddReasons]int
	counted  int
	refused  int
	n        uint64
}

func compare(t *testing.T, s *window.Settings, tap window.Tap, keys int) *comparison {
	t.Helper()
	m := &comparison{t: t, settings: s, c: loaded(t, s, tap, keys), ringRows: newRows(), rows: newRows()}
	for _, to := range []struct {
		stream **window.Stream
		sink   rows
	}{{&m.ring, m.ringRows}, {&m.kernel, m.rows}} {
		var err error
		if *to.stream, err = window.NewStream(s, tap, window.Origin{Link: decode.Ethernet}, to.sink); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// add runs the program on frames, and gives the stream of a ring those that it does not call odd. It compares what both
// found in them.
func (m *comparison) add(frames ...[]byte) {
	m.t.Helper()
	for _, f := range frames {
		if _, err := m.c.program.Run(&ebpf.RunOptions{Data: f}); errors.Is(err, unix.EINVAL) {
			m.refused++ // a test run takes no packet that is shorter than its IP header
			continue
		} else if err != nil {
			m.t.Fatalf("run program on % x: %v", f, err)
		}
		n, err := m.c.frames()
		if err != nil {
			m.t.Fatal(err)
		}
		odd := uint64(0)
		for i, k := range n.Odd {
			m.odd[i] += int(k)
			odd += k
		}
		m.counted += int(n.Packets)
		// A test run takes 14 bytes off what it hands to a socket filter.
		filtered, err := m.c.odd.Run(&ebpf.RunOptions{Data: append(make([]byte, 14), f...)})
		if err != nil || (filtered != 0) != (odd != 0) {
			m.t.Fatalf("the filter returns %d, odd is %d: %v: % x", filtered, odd, err, f)
		}
		if odd > 1 || odd > 0 && n.Packets > 0 {
			m.t.Fatalf("counted %d times, and odd %d times: % x", n.Packets, odd, f)
		}
		if odd > 0 {
			continue
		}
		m.n++
		err = m.ring.Add(m.t.Context(), []capture.Frame{{Data: f, WireLen: uint32(len(f)), TimeNS: time.Now().UnixNano(), Packet: m.n}})
		if err != nil {
			m.t.Fatal(err)
		}
		if o := m.ring.Decoded(); o.Orphans > 0 {
			m.t.Fatalf("an orphan in a packet that is not odd: % x", f)
		}
		err = m.kernel.AddCounted(m.t.Context(), &window.CountedFrames{
			Packets: n.Packets, WireBytes: n.Bytes, Empty: n.Empty, Invalid: n.Invalid,
		}, nil)
		if err != nil {
			m.t.Fatal(err)
		}
	}
	m.drain()
	if got, want := m.kernel.Tally().Found, m.ring.Tally().Found; got != want {
		if len(frames) == 1 {
			m.t.Fatalf("the program found %v, decode %v in % x", got.List(), want.List(), frames[0])
		}
		m.ring.Tally().Found, m.kernel.Tally().Found = window.EncodingCounts{}, window.EncodingCounts{}
		for _, f := range frames {
			m.add(f)
		}
		m.t.Fatal("the program found something else in frames together than one by one")
	}
}

func (m *comparison) drain() {
	m.t.Helper()
	b, _, err := m.c.swap(false)
	if err != nil {
		m.t.Fatal(err)
	}
	list, err := m.c.drain(b)
	if err != nil {
		m.t.Fatal(err)
	}
	if err := m.kernel.AddCounted(m.t.Context(), &window.CountedFrames{}, list); err != nil {
		m.t.Fatal(err)
	}
	samples, err := m.c.drainSamples(b)
	if err != nil {
		m.t.Fatal(err)
	}
	m.kernel.AddSampled(samples)
}

// end compares the rows of both.
func (m *comparison) end() {
	m.t.Helper()
	for _, s := range [...]*window.Stream{m.ring, m.kernel} {
		if err := s.Flush(m.t.Context()); err != nil {
			m.t.Fatal(err)
		}
	}
	want, got := m.ring.Counts(), m.kernel.Counts()
	want.CacheResets, got.CacheResets, want.ReflectionEvictions = 0, 0, 0
	if want != got {
		m.t.Errorf("counts of the program %+v, of decode %+v", got, want)
	}
	for k, v := range m.ringRows.cells {
		if m.rows.cells[k] != v {
			m.t.Errorf("row %v of the program is %v, of decode %v", k, m.rows.cells[k], v)
		}
	}
	if len(m.rows.cells) != len(m.ringRows.cells) {
		m.t.Errorf("%d rows of the program, %d of decode", len(m.rows.cells), len(m.ringRows.cells))
	}
	if !maps.Equal(m.rows.flows, m.ringRows.flows) {
		n := 0
		for f, times := range m.ringRows.flows {
			if m.rows.flows[f] != times && n < 5 {
				n++
				m.t.Errorf("flow %+v is not named by the program", f)
			}
		}
		m.t.Errorf("%d flows of the program differ from %d of decode", len(m.rows.flows), len(m.ringRows.flows))
	}
	a, b := m.ring.Decoded(), m.kernel.Decoded()
	if a.EmptyReflections != b.EmptyReflections || a.InvalidReflections != b.InvalidReflections {
		m.t.Errorf("program: %d empty and %d invalid reflections, decode: %d and %d",
			b.EmptyReflections, b.InvalidReflections, a.EmptyReflections, a.InvalidReflections)
	}
}

// TestParser holds the program against package decode on mutated frames: it comes to the same keys, or calls a packet
// odd.
func TestParser(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: one goroutine has nothing for the race detector")
	}
	const frames, batch = 75_000, 500
	for name, spec := range map[string]*fabric.Spec{"prefixes": nil, "classes": rack} {
		t.Run(name, func(t *testing.T) {
			m := compare(t, settingsOf(t, spec), window.TapAt("receiver", 1), 1<<16)
			bases, r := seeds(t), rand.New(rand.NewPCG(17, uint64(len(name))))
			for range frames / batch {
				list := make([][]byte, batch)
				for i := range list {
					list[i] = mutate(r, bases)
				}
				m.add(list...)
			}
			m.end()
			if m.refused > frames/20 {
				t.Errorf("%d of %d frames are too short for the kernel", m.refused, frames)
			}
			if m.counted < frames/20 {
				t.Errorf("only %d of %d frames were counted", m.counted, frames)
			}
			overUDP := 0
			for f := range m.ringRows.flows {
				if f.Proto == 17 && f.Kind == uint8(decode.Reflection) {
					overUDP++
				}
			}
			if len(m.ringRows.flows) < 150 || overUDP < 20 {
				t.Errorf("only %d flows, %d of them with reflections over UDP", len(m.ringRows.flows), overUDP)
			}
			t.Logf("%d of %d frames counted, odd by OddReason: %v; %d flows, %d with reflections over UDP", m.counted, frames, m.odd, len(m.ringRows.flows), overUDP)
		})
	}
}

// TestVLANTPID: a TPID of VLANs that the domain uses for CSIG is CSIG.
func TestVLANTPID(t *testing.T) {
	for _, id := range []uint16{0x8100, 0x88a8, 0x9100} {
		s := csig.DefaultSpec()
		s.TPIDs = append(s.TPIDs, csig.TPIDSpec{TPID: id, Format: "compact", Profile: "ietf01"})
		domain, err := s.Compile()
		if err != nil {
			t.Fatal(err)
		}
		set := &window.Settings{Decode: decode.Config{Domain: domain}, Resolver: fabric.None(domain), Resolutions: []time.Duration{24 * time.Hour}}
		m := compare(t, set, window.TapAt("receiver", 1), 1<<10)
		m.add(livetest.Tagged(livetest.Plain(1, 2, 100), uint32(id)<<16|0x2b85))
		m.end()
		if m.counted != 1 {
			t.Errorf("%#04x: %d packets were counted, want 1", id, m.counted)
		}
	}
}

// TestSuperFrames: packets that receive offload merged are counted as such.
func TestSuperFrames(t *testing.T) {
	c := loaded(t, settingsOf(t, nil), window.TapAt("receiver", 1), 1<<10)
	for _, segment := range []uint32{0, 1000, 1448} {
		in := struct { // the start of struct __sk_buff
			_       [44]uint32
			GSOSize uint32
		}{GSOSize: segment}
		if _, err := c.program.Run(&ebpf.RunOptions{Data: tagged, Context: in}); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := c.frames(); err != nil || n.Packets != 3 || n.Supers != 2 {
		t.Errorf("%+v, %v, want 2 super-frames of 3 packets", n, err)
	}
}

// TestVerified: the verifier needs a fraction of the million instructions after which it gives up, since those of other
// kernels may look at more of them.
func TestVerified(t *testing.T) {
	c := loaded(t, settingsOf(t, nil), window.TapAt("receiver", 1), 1<<10)
	for name, p := range map[string]*ebpf.Program{countProgram: c.program, oddProgram: c.odd} {
		info, err := p.Info()
		if err != nil {
			t.Fatal(err)
		}
		if n, ok := info.VerifiedInstructions(); !ok || n > 200_000 {
			t.Errorf("%s: %d instructions verified (known: %t), at most 200,000 expected", name, n, ok)
		}
	}
}

// TestGrowth: a buffer whose index was made for few keys takes all keys for which it has room, and more than half of it at
// once.
func TestGrowth(t *testing.T) {
	const keys, many = 1 << 12, 2100
	m := compare(t, settingsOf(t, nil), window.TapAt("receiver", 1), keys)
	for range 4 { // both buffers, twice
		m.add(networks(10)...)
	}
	m.add(networks(many)...)
	if err := m.kernel.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c := m.kernel.Counts(); c.Overflow != 0 || c.In != 40+many {
		t.Errorf("%d observations, %d overflow, expected %d and none", c.In, c.Overflow, 40+many)
	}
}

// networks returns frames with compact and wide tags between as many networks.
func networks(n int) (list [][]byte) {
	for i := range n {
		f := livetest.Tagged(livetest.Plain(1, 2, 100), 0x99002b85)
		if i%2 == 1 {
			wide := []byte{0x88, 0xb6, 0, 2, 0x20, 3, 0x38, 0}
			f = append(f[:12:12], append(wide, f[16:]...)...)
		}
		at := bytes.Index(f, []byte{10, 0, 0, 1, 10, 0, 0, 2})
		f[at+1], f[at+2] = byte(i/100), byte(i%100)
		list = append(list, f)
	}
	return list
}

// TestOverflow: past the room of a buffer observations are counted without ends, and none is lost.
func TestOverflow(t *testing.T) {
	const keys, frames = 16, 200
	m := compare(t, settingsOf(t, nil), window.TapAt("receiver", 1), keys)
	m.add(networks(frames)...)
	for _, s := range [...]*window.Stream{m.ring, m.kernel} {
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	c := m.kernel.Counts()
	if c.In != frames || c.Stored != keys || c.Overflow != frames-keys {
		t.Errorf("%d observations, %d stored, %d overflow, expected %d, %d and %d", c.In, c.Stored, c.Overflow, frames, keys, frames-keys)
	}
	want, got := uint64(0), uint64(0)
	for _, v := range m.ringRows.cells {
		want += v[2]
	}
	for _, v := range m.rows.cells {
		got += v[2]
	}
	if got != want {
		t.Errorf("%d bytes, expected %d", got, want)
	}
}

// TestSampling: samples stay within their budget however many heavy observations come, stand for all of them, and name
// the heavier flow. Where more come than ever before, samples get ever rarer; the next reading has few enough from the
// beginning.
func TestSampling(t *testing.T) {
	const all, share = 1 << 19, 4 // every fourth one is of the second flow
	onOneProcessor(t)
	m := compare(t, settingsOf(t, nil), window.TapAt("receiver", 1), 1<<12)
	budget := sampleBudget(m.settings)
	frames := [2][]byte{heavyFrame(1), heavyFrame(2)}
	for reading, most := range []int{budget, budget * 5 / 8} {
		for i, n := range []uint32{all / 2, all / share, all/2 - all/share} {
			m.runTimes(frames[i%2], n)
		}
		n, err := m.c.frames()
		if err != nil {
			t.Fatal(err)
		}
		left, _, err := m.c.swap(false)
		if err != nil {
			t.Fatal(err)
		}
		samples, err := m.c.drainSamples(left)
		if err != nil {
			t.Fatal(err)
		}
		stand := map[uint16]int{}
		for i := range samples {
			stand[samples[i].SrcPort] += int(samples[i].N)
		}
		sum := stand[1] + stand[2] + int(n.Unsampled)
		if len(samples) > most || len(samples) < most/8 || n.Packets != all || sum < all*3/4 || sum > all*5/4 {
			t.Errorf("reading %d: %d samples of %d packets stand for %v, %d were left out", reading, len(samples), n.Packets, stand, n.Unsampled)
		}
		if got := float64(stand[2]) / float64(stand[1]+stand[2]); got < 0.15 || got > 0.35 {
			t.Errorf("reading %d: the second flow has %.2f of the heavy observations, expected 0.25", reading, got)
		}
		t.Logf("reading %d: %d samples, at most %d, stand for %v of %d, %d were left out", reading, len(samples), budget, stand, all, n.Unsampled)
	}
}

// onOneProcessor keeps the test on the processor that it is on, since each has a budget of its own.
func onOneProcessor(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	var before, one unix.CPUSet
	err := unix.SchedGetaffinity(0, &before)
	for i := 0; err == nil && one.Count() == 0; i++ {
		if before.IsSet(i) {
			one.Set(i)
		}
	}
	if err == nil {
		err = unix.SchedSetaffinity(0, &one)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.SchedSetaffinity(0, &before); err != nil {
			t.Error(err)
		}
		runtime.UnlockOSThread()
	})
}

// runTimes runs the program on a frame exactly so many times, on a test that onOneProcessor keeps on a thread. It
// holds signals back: the kernel ends a run at a signal, and the library then repeats the whole run.
func (m *comparison) runTimes(frame []byte, times uint32) {
	m.t.Helper()
	var all, before unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &before); err != nil {
		m.t.Fatal(err)
	}
	_, err := m.c.program.Run(&ebpf.RunOptions{Data: frame, Repeat: times})
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil); err != nil {
		m.t.Fatal(err)
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

// heavyFrame returns a frame of TCP from a port with a tag of the highest delay.
func heavyFrame(port uint16) []byte {
	f := livetest.Tagged(livetest.Plain(1, 2, 100), 0x88b55f02)
	f[18+20], f[18+21] = byte(port>>8), byte(port)
	return f
}

// TestUnsampled: observations for whose samples there is no room are counted.
func TestUnsampled(t *testing.T) {
	onOneProcessor(t)
	m := compare(t, settingsOf(t, nil), window.TapAt("receiver", 1), 1<<12)
	room := m.c.ring.BufferSize() / sampleBytes
	for sent := 0; ; sent += 1000 {
		m.runTimes(heavyFrame(1), 1000)
		n, err := m.c.frames()
		if err != nil {
			t.Fatal(err)
		}
		if n.Unsampled > 0 {
			break
		}
		if sent > 1000*room { // each reading has a budget, but nobody empties the ring
			t.Fatalf("%d observations fill no ring of %d samples", sent, room)
		}
		if _, _, err := m.c.swap(false); err != nil {
			t.Fatal(err)
		}
	}
	_, err := m.c.drainSamples(0)
	if n := len(m.c.sampled) + len(m.c.ahead); err != nil || n > room || n < room/2 {
		t.Errorf("%d samples in a ring for %d: %v", n, room, err)
	}
}

// TestSamplesAhead: samples that are written between the swap of buffers and the reading come with their observations, at
// the next reading.
func TestSamplesAhead(t *testing.T) {
	onOneProcessor(t)
	m := compare(t, settingsOf(t, nil), window.TapAt("receiver", 1), 1<<12)
	m.runTimes(heavyFrame(1), 3)
	for reading, want := range []int{3, 2, 4} {
		left, _, err := m.c.swap(false)
		if err != nil {
			t.Fatal(err)
		}
		m.runTimes(heavyFrame(1), []uint32{2, 4, 1}[reading])
		list, err := m.c.drain(left)
		if err != nil {
			t.Fatal(err)
		}
		counted := uint64(0)
		for i := range list {
			counted += list[i].N
		}
		if samples, err := m.c.drainSamples(left); err != nil || len(samples) != want || counted != uint64(want) {
			t.Errorf("reading %d: %d samples of %d observations, expected %d: %v", reading, len(samples), counted, want, err)
		}
	}
}

// TestCountersWithoutRoom: a packet whose observations had no room is received once, and dropped.
func TestCountersWithoutRoom(t *testing.T) {
	for _, tc := range []struct {
		name string
		in   counters
		want capture.TapCounters
	}{
		{"all counted", counters{Packets: 10, Bytes: 1000}, capture.TapCounters{Frames: 10, Bytes: 1000, Received: 10}},
		{"some without room", counters{Packets: 10, Bytes: 1000, Overflow: 5, Lost: 4}, capture.TapCounters{Frames: 6, Bytes: 1000, Received: 10, Dropped: 4}},
		{"two observations each", counters{Packets: 10, Bytes: 1000, Overflow: 20, Lost: 20}, capture.TapCounters{Bytes: 1000, Received: 10, Dropped: 10}},
		{"merged", counters{Packets: 10, Bytes: 90_000, Supers: 9}, capture.TapCounters{Frames: 10, Bytes: 90_000, Received: 10, SuperFrames: 9}},
		{"beside odd ones", counters{Packets: 1, Lost: 1, Odd: [OddReasons]uint64{OddL2: 2, OddIP: 3}, Unsampled: 7}, capture.TapCounters{Received: 1, Dropped: 1, Odd: 5, Unsampled: 7}},
	} {
		ring := capture.TapCounters{Frames: 3, Bytes: 300, Received: 5, Dropped: 2}
		got := ring
		tc.in.addTo(&got)
		tc.want.Add(&ring)
		if got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
		if got.Received < got.Frames+got.Dropped {
			t.Errorf("%s: %d received, but %d delivered and %d dropped", tc.name, got.Received, got.Frames, got.Dropped)
		}
	}
}
