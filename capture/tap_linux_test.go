package capture_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/capture/livetest"
	"github.com/csigscope/csigscope/replay/emitter/emittertest"
)

// TestTapRestoresTags sends every sequence of up to three tags, some of which the kernel strips:
// all must arrive as sent.
func TestTapRestoresTags(t *testing.T) {
	if !livetest.InNamespace(t) {
		return
	}
	defer goleak.VerifyNone(t)
	livetest.MakeLink(t)
	frames := [][]byte{livetest.Plain(1, 2, 60)}
	for first := 0; len(frames) < 1+4+16+64; first++ {
		for _, tpid := range []uint32{0x8100, 0x88a8, 0x9100, 0x9900} {
			// A TCI of 0 is a valid tag.
			tci := []uint32{0, 0x2b85, 0xffff, 0x1fff, 0xe000}[len(frames)%5]
			frames = append(frames, livetest.Tagged(frames[first], tpid<<16|tci))
		}
	}
	tap := openTap(t, capture.TapConfig{})
	s := livetest.NewSender(t, livetest.SendEnd)
	began := time.Now().UnixNano()
	s.Send(frames...)
	got := collect(t, tap.Rings()[0], len(frames))
	if len(got) != len(frames) {
		t.Fatalf("%d frames arrived of %d", len(got), len(frames))
	}
	stripped := 0
	for i := range frames {
		if !bytes.Equal(got[i], frames[i]) {
			t.Errorf("frame %d:\n%x\nwant\n%x", i, got[i], frames[i])
		}
		if tpid := binary.BigEndian.Uint16(frames[i][12:]); tpid == 0x8100 || tpid == 0x88a8 {
			stripped++
		}
	}
	c := tap.Counters()
	if c.Frames != uint64(len(frames)) || c.Stripped != uint64(stripped) || c.Dropped != 0 || c.SuperFrames != 0 {
		t.Errorf("%+v, want %d frames, %d stripped", c, len(frames), stripped)
	}
	r := tap.Rings()[0]
	if r.Timestamps() != capture.TimestampSoftware || r.State() != capture.LinkUp {
		t.Errorf("timestamps %s, link %s", r.Timestamps(), r.State())
	}
	s.Send(livetest.Tagged(livetest.Plain(1, 2, 60), 0x8100<<16))
	var b capture.Batch
	for late := time.Now().Add(30 * time.Second); b.N == 0 && time.Now().Before(late); {
		if err := r.ReadBatch(&b); err != nil {
			t.Fatal(err)
		}
	}
	f := &b.Frames[0]
	if f.TPID != 0x8100 || f.TCI != 0 || f.WireLen != 64 || len(f.Data) != 60 || f.Packet != uint64(len(frames)+1) || f.TimeNS < began || f.TimeNS > time.Now().UnixNano() {
		t.Errorf("%+v", f)
	}
}

// TestTapRestoresEveryEncapsulation sends whole frames of the emitter whose first tag has each TPID
// in turn.
func TestTapRestoresEveryEncapsulation(t *testing.T) {
	if !livetest.InNamespace(t) {
		return
	}
	defer goleak.VerifyNone(t)
	livetest.MakeLink(t)
	var frames [][]byte
	for _, f := range emittertest.EveryEncapsulation(t) {
		frames = append(frames, f)
		switch binary.BigEndian.Uint16(f[12:]) {
		case 0x8100, 0x88a8, 0x88b6:
			for _, tpid := range []uint16{0x8100, 0x88a8, 0x9100, 0x9900} {
				changed := append([]byte{}, f...)
				binary.BigEndian.PutUint16(changed[12:], tpid)
				frames = append(frames, changed)
			}
		}
	}
	tap := openTap(t, capture.TapConfig{})
	livetest.NewSender(t, livetest.SendEnd).Send(frames...)
	got := collect(t, tap.Rings()[0], len(frames))
	if len(got) != len(frames) || len(frames) < 2000 {
		t.Fatalf("%d frames arrived of %d: %+v", len(got), len(frames), tap.Counters())
	}
	for i := range frames {
		if !bytes.Equal(got[i], frames[i]) {
			t.Fatalf("frame %d:\n%x\nwant\n%x", i, got[i], frames[i])
		}
	}
}

// TestTapEndsAtIdle waits on an idle tap: each call advances the clock, also if a signal interrupts it.
func TestTapEndsAtIdle(t *testing.T) {
	if !livetest.InNamespace(t) {
		return
	}
	defer goleak.VerifyNone(t)
	livetest.MakeLink(t)
	const retire = 8 * time.Millisecond
	r := openTap(t, capture.TapConfig{Retire: retire}).Rings()[0]
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var b capture.Batch
	for call, thread := 0, unix.Gettid(); call < 20; call++ {
		began := time.Now()
		if call >= 5 {
			time.AfterFunc(time.Millisecond, func() { _ = unix.Tgkill(unix.Getpid(), thread, unix.SIGURG) })
		}
		if err := r.ReadBatch(&b); err != nil || b.N != 0 {
			t.Fatalf("%d frames, error %v", b.N, err)
		}
		if q := r.LowWatermark(); q < began.Add(-2*retire).UnixNano() || q > time.Now().UnixNano() {
			t.Errorf("quiet until %d, of a call from %d to %d", q, began.UnixNano(), time.Now().UnixNano())
		}
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.ReadBatch(&b); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("error %v, want one that says closed", err)
	}
}

func assemble(t *testing.T, program ...bpf.Instruction) []bpf.RawInstruction {
	t.Helper()
	raw, err := bpf.Assemble(program)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestTapFilters checks that the kernel drops the frames that a filter rejects, and truncates the
// others.
func TestTapFilters(t *testing.T) {
	if !livetest.InNamespace(t) {
		return
	}
	defer goleak.VerifyNone(t)
	livetest.MakeLink(t)
	tap := openTap(t, capture.TapConfig{SnapLen: 100, Filter: assemble(t,
		bpf.LoadAbsolute{Off: 12, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0x9900, SkipTrue: 1},
		bpf.RetConstant{Val: 200},
		bpf.RetConstant{Val: 0})})
	s := livetest.NewSender(t, livetest.SendEnd)
	for range 500 {
		s.Send(livetest.Plain(1, 2, 300), livetest.Tagged(livetest.Plain(1, 2, 300), 0x9900<<16|7), livetest.Tagged(livetest.Plain(1, 2, 60), 0x9900<<16|7))
	}
	got := collect(t, tap.Rings()[0], 1000)
	c := tap.Counters()
	if len(got) != 1000 || c.Frames != 1000 || c.Bytes != 500*(304+64) {
		t.Errorf("%d frames, %+v", len(got), c)
	}
	for i, f := range got {
		if want := []int{100, 64}[i%2]; len(f) != want || binary.BigEndian.Uint16(f[12:]) != 0x9900 {
			t.Fatalf("frame %d: %x, want %d bytes", i, f, want)
		}
	}
	until(t, tap.Rings()[0], "counting", func() bool { return tap.Counters().Received == 1000 })
}

// TestTapCountsDrops does not read from a small ring while frames arrive: frames that do not fit
// must be counted.
func TestTapCountsDrops(t *testing.T) {
	if !livetest.InNamespace(t) {
		return
	}
	defer goleak.VerifyNone(t)
	livetest.MakeLink(t)
	const sent = 5000
	tap := openTap(t, capture.TapConfig{Blocks: 4, BlockSize: 64 << 10})
	s := livetest.NewSender(t, livetest.SendEnd)
	for range sent {
		s.Send(livetest.Plain(1, 2, 200))
	}
	r := tap.Rings()[0]
	got := collect(t, r, sent)
	until(t, r, "counting", func() bool { c := r.Counters(); return c.Received == sent })
	c := r.Counters()
	if c.Dropped == 0 || c.Freezes == 0 || c.Dropped+uint64(len(got)) != sent {
		t.Errorf("%d frames, %+v", len(got), c)
	}
	s.Send(livetest.Plain(1, 2, 200))
	if got := collect(t, r, 1); len(got) != 1 {
		t.Error("the ring did not recover")
	}
}

// TestTapSurvivesLinks sets the link down and up, deletes it and creates it again: frames must
// arrive again each time.
func TestTapSurvivesLinks(t *testing.T) {
	if !livetest.InNamespace(t) {
		return
	}
	for _, rings := range []int{1, 2} {
		t.Run(fmt.Sprint(rings, " rings"), func(t *testing.T) { surviveLinks(t, rings) })
	}
}

func surviveLinks(t *testing.T, rings int) {
	defer goleak.VerifyNone(t)
	livetest.MakeLink(t)
	defer livetest.IP(t, "link", "del", livetest.SendEnd)
	tap := openTap(t, capture.TapConfig{Rings: rings, Fanout: byLastAddress(t), Retire: 5 * time.Millisecond})
	s := livetest.NewSender(t, livetest.SendEnd)
	all := func(what string, state capture.LinkState) {
		t.Helper()
		for _, r := range tap.Rings() {
			until(t, r, what, func() bool { return r.State() == state })
		}
	}
	arrive := func(what string) {
		t.Helper()
		for i, r := range tap.Rings() {
			s.Send(livetest.Plain(1, i, 60))
			if got := collect(t, r, 1); len(got) != 1 {
				t.Errorf("%s: %d frames arrived at ring %d, want 1: %+v", what, len(got), i, r.Counters())
			}
		}
	}
	all("open", capture.LinkUp)
	arrive("at first")
	for range 2 {
		livetest.IP(t, "link", "set", livetest.TapEnd, "down")
		all("down", capture.LinkDown)
		livetest.Up(t, livetest.TapEnd, livetest.SendEnd)
		all("up again", capture.LinkUp)
		arrive("up again")
	}
	livetest.IP(t, "link", "set", livetest.SendEnd, "down") // the peer loses its carrier
	all("without carrier", capture.LinkDown)
	livetest.Up(t, livetest.SendEnd, livetest.TapEnd)
	all("with carrier", capture.LinkUp)
	arrive("with carrier")
	for range 2 {
		livetest.IP(t, "link", "del", livetest.SendEnd)
		all("deleted", capture.LinkGone)
		livetest.MakeLink(t)
		s.Bind(livetest.SendEnd)
		all("made again", capture.LinkUp)
		arrive("made again")
	}
	for _, r := range tap.Rings() {
		if c := r.Counters(); c.Downs != 5 || c.Ups != 5 || c.Reopens != 2 || c.Frames != 6 || c.Dropped != 0 {
			t.Errorf("%+v", c)
		}
	}
}

// TestTapFollowsName: a busy interface is renamed and another one gets its name. The ring captures from the other one, and no
// longer from the first. An interface that gets its name back is captured from again.
func TestTapFollowsName(t *testing.T) {
	if !livetest.InNamespace(t) {
		return
	}
	livetest.MakeLink(t)
	r := openTap(t, capture.TapConfig{BlockSize: 64 << 10, Retire: 20 * time.Millisecond}).Rings()[0]
	senders := []*livetest.Sender{livetest.NewSender(t, livetest.SendEnd)}
	// busy sends a block of frames from each sender before each read, until a read has frames of the last sender only.
	busy := func(what string) {
		t.Helper()
		var b capture.Batch
		last := byte(len(senders))
		for end := time.Now().Add(2 * time.Minute); ; {
			for i, s := range senders {
				for range 80 {
					s.Send(livetest.Plain(1, i+1, 1000))
				}
			}
			if err := r.ReadBatch(&b); err != nil {
				t.Fatal(err)
			}
			others := slices.ContainsFunc(b.Frames[:b.N], func(f capture.Frame) bool { return f.Data[5] != last })
			if b.N > 0 && !others && r.State() == capture.LinkUp {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%s: the ring does not capture from the interface; state %s, %+v", what, r.State(), r.Counters())
			}
		}
	}
	busy("at first")
	rename := func(from, to string) {
		t.Helper()
		// An interface that is up can be renamed since Linux 6.2.
		if out, err := exec.Command("ip", "link", "set", from, "name", to).CombinedOutput(); err != nil {
			livetest.Missing(t, "an interface that is up cannot be renamed: %v: %s", err, out)
		}
	}
	rename(livetest.TapEnd, "other")
	until(t, r, "gone", func() bool { senders[0].Send(livetest.Plain(1, 1, 1000)); return r.State() == capture.LinkGone })
	rename("other", livetest.TapEnd)
	busy("named again")
	rename(livetest.TapEnd, "other")
	livetest.MakeLinkOf(t, "vsend2", livetest.TapEnd)
	senders = append(senders, livetest.NewSender(t, "vsend2"))
	busy("replaced")
	if n := r.Counters(); n.Reopens == 0 {
		t.Errorf("%+v", n)
	}
}

// TestTapRefusesReplacement: the interface comes back as one without Ethernet, which no ring can capture from. The link is down
// until it comes back as it was.
func TestTapRefusesReplacement(t *testing.T) {
	if !livetest.InNamespaceOfRoot(t) {
		return
	}
	livetest.MakeLink(t)
	var log bytes.Buffer
	r := openTap(t, capture.TapConfig{Retire: 20 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(&log, nil))}).Rings()[0]
	livetest.IP(t, "link", "del", livetest.TapEnd)
	until(t, r, "gone", func() bool { return r.State() == capture.LinkGone })
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR, 0)
	if err != nil {
		livetest.Missing(t, "no TUN device: %v", err)
	}
	request, err := unix.NewIfreq(livetest.TapEnd)
	if err != nil {
		t.Fatal(err)
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		t.Fatal(err)
	}
	livetest.IP(t, "link", "set", livetest.TapEnd, "up")
	until(t, r, "refused", func() bool { return strings.Contains(log.String(), "cannot open the tap's ring") })
	until(t, r, "down", func() bool { return r.State() == capture.LinkDown })
	if n := r.Counters(); n.Ups > 0 || n.Reopens > 0 {
		t.Errorf("without a ring: %+v", n)
	}
	if err := unix.Close(fd); err != nil {
		t.Fatal(err)
	}
	until(t, r, "gone again", func() bool { return r.State() == capture.LinkGone })
	livetest.MakeLink(t)
	until(t, r, "up again", func() bool { return r.State() == capture.LinkUp && r.Counters().Reopens == 1 })
}

// byLastAddress returns a fanout program that uses the last byte of the destination address.
func byLastAddress(t *testing.T) []bpf.RawInstruction {
	const linkLayer = 0xffe00000 // SKF_LL_OFF
	return assemble(t, bpf.LoadAbsolute{Off: linkLayer + 5, Size: 1}, bpf.RetA{})
}

// TestTapFansOut distributes flows among rings: each flow must be complete in one of them.
func TestTapFansOut(t *testing.T) {
	if !livetest.InNamespace(t) {
		return
	}
	defer goleak.VerifyNone(t)
	livetest.MakeLink(t)
	const each = 400
	for _, program := range [][]bpf.RawInstruction{byLastAddress(t), nil} {
		tap := openTap(t, capture.TapConfig{Rings: 4, Fanout: program})
		s := livetest.NewSender(t, livetest.SendEnd)
		for range each {
			for host := range 16 {
				s.Send(livetest.Plain(100, host, 60))
			}
		}
		total := 0
		home := map[byte]int{}
		for i, r := range tap.Rings() {
			got := collect(t, r, 16*each)
			total += len(got)
			for _, f := range got {
				if at, known := home[f[5]]; known && at != i || program != nil && int(f[5])%4 != i {
					t.Fatalf("host %d is in ring %d and in %d", f[5], at, i)
				}
				home[f[5]] = i
			}
		}
		if total != 16*each || tap.Counters().Frames != 16*each {
			t.Errorf("%d frames of %d, %+v", total, 16*each, tap.Counters())
		}
		if err := tap.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTapLeavesOutgoingOut sends through the captured interface.
func TestTapLeavesOutgoingOut(t *testing.T) {
	if !livetest.InNamespace(t) {
		return
	}
	defer goleak.VerifyNone(t)
	livetest.MakeLink(t)
	there, back := livetest.NewSender(t, livetest.SendEnd), livetest.NewSender(t, livetest.TapEnd)
	for _, tc := range []struct {
		cfg  capture.TapConfig
		want int
	}{
		{capture.TapConfig{}, 1},
		{capture.TapConfig{Rings: 2, Fanout: byLastAddress(t)}, 1},
		{capture.TapConfig{Outgoing: true}, 2},
		{capture.TapConfig{Outgoing: true, Rings: 2, Fanout: byLastAddress(t)}, 2},
		{capture.TapConfig{Promiscuous: true}, 1},
	} {
		tap := openTap(t, tc.cfg)
		there.Send(livetest.Plain(1, 2, 60))
		back.Send(livetest.Plain(2, 4, 60))
		if got := collect(t, tap.Rings()[0], 3); len(got) != tc.want {
			t.Errorf("%+v: %d frames, want %d", tc.cfg, len(got), tc.want)
		}
		if err := tap.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTapCountsSuperFrames captures TCP over loopback, whose segments are never split into packets.
func TestTapCountsSuperFrames(t *testing.T) {
	if !livetest.InNamespace(t) {
		return
	}
	defer goleak.VerifyNone(t)
	// With the default MTU of 64 KiB, a segment could be as large as a super-frame.
	livetest.IP(t, "link", "set", "lo", "mtu", "1500")
	r := openTap(t, capture.TapConfig{Interface: "lo"}).Rings()[0]
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := make(chan int64)
	go func() {
		c, err := l.Accept()
		if err != nil {
			done <- 0
			return
		}
		defer c.Close()
		n, _ := io.Copy(io.Discard, c)
		done <- n
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Write(make([]byte, 4<<20))
	if c.Close(); err != nil || <-done != 4<<20 {
		t.Fatalf("transfer: %v", err)
	}
	collect(t, r, 1<<30)
	if n := r.Counters().SuperFrames; n == 0 || n > r.Counters().Frames {
		t.Errorf("%+v, want super-frames", r.Counters())
	}
}

func TestTapTellsWhatIsWrong(t *testing.T) {
	if !livetest.InNamespace(t) {
		return
	}
	livetest.MakeLink(t)
	for _, tc := range []struct {
		cfg  capture.TapConfig
		want string
	}{
		{capture.TapConfig{Interface: "nosuch0"}, `interface "nosuch0": no such device`},
		{capture.TapConfig{Interface: livetest.TapEnd, Timestamps: capture.TimestampHardware}, "ask for software timestamps"},
		{capture.TapConfig{Interface: livetest.TapEnd, Filter: []bpf.RawInstruction{{Op: 0xffff}}}, "attach a filter of 1 instructions"},
		{capture.TapConfig{Interface: livetest.TapEnd, Rings: 2, Fanout: []bpf.RawInstruction{{Op: 0xffff}}}, "attach a fanout program of 1 instructions"},
	} {
		tap, err := capture.NewTap(tc.cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := tap.Open(); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("error %v, want one with %q", err, tc.want)
		}
	}
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil || len(files) > 20 {
		t.Errorf("%d open files: sockets are left open, %v", len(files), err)
	}
}

// TestTapAllocatesNothing reads thousands of frames.
func TestTapAllocatesNothing(t *testing.T) {
	if !livetest.InNamespace(t) {
		return
	}
	livetest.MakeLink(t)
	tap := openTap(t, capture.TapConfig{Retire: time.Second}) // only full blocks are needed
	s := livetest.NewSender(t, livetest.SendEnd)
	const frames = 20000
	for range frames {
		s.Send(livetest.Tagged(livetest.Plain(1, 2, 60), 0x8100<<16|5))
	}
	r := tap.Rings()[0]
	var b capture.Batch
	allocs := testing.AllocsPerRun(frames/capture.BatchSize-20, func() {
		if err := r.ReadBatch(&b); err != nil || b.N == 0 {
			t.Fatalf("%d frames, error %v", b.N, err)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations a batch, want none", allocs)
	}
}

// TestWithoutCapability: sockets that need a capability name it, with a command that works from
// any folder.
func TestWithoutCapability(t *testing.T) {
	mirrors, err := capture.NewMirrorSocket(capture.MirrorSocketConfig{Listen: netip.MustParseAddrPort("127.0.0.1:0")}) // GRE
	if err != nil {
		t.Fatal(err)
	}
	tap, err := capture.NewTap(capture.TapConfig{Interface: "lo"})
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan [2]error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err := unix.Capset(&header, &none[0]); err != nil {
			failed <- [2]error{err, err}
			return
		}
		failed <- [2]error{tap.Open(), mirrors.Open()}
	}()
	for _, err := range <-failed {
		if !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), `run as root, or sudo setcap cap_net_raw+ep "$(command -v csigscope)"`) {
			t.Errorf("%v", err)
		}
	}
}
