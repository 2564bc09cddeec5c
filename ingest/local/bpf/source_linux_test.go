package bpf

import (
	"net"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture/livetest"
	"github.com/csigscope/csigscope/ingest/local"
)

// opened is a source at the tap's end of a new link, with windows of 1 s.
func opened(t *testing.T) (s *Source, settings *window.Settings) {
	t.Helper()
	settings = settingsOf(t, nil)
	settings.Resolutions = []time.Duration{time.Second, time.Minute}
	s, err := New(Config{Interface: livetest.TapEnd, Odd: true})
	if err == nil {
		err = s.Open(settings, window.TapAt("receiver", 1))
	}
	if err != nil {
		livetest.Missing(t, "%v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, settings
}

// counts sends tagged packets and expects that the source counts them.
func counts(t *testing.T, s *Source) {
	t.Helper()
	sender := livetest.NewSender(t, livetest.SendEnd)
	for range 10 {
		sender.Send(tagged)
	}
	n, err := s.drain(s.counter, false)
	if err != nil || n.Frames.Packets != 10 {
		t.Errorf("%d of 10 packets were counted, %v", n.Frames.Packets, err)
	}
}

// TestOtherProgram: a program that was attached before, and ends the chain, hides no packet.
func TestOtherProgram(t *testing.T) {
	if !livetest.InNamespaceOfRoot(t) {
		return
	}
	livetest.MakeLink(t)
	const pass = 0 // TCX_PASS: to the stack, without the programs behind
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "Apache-2.0", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, pass), asm.Return()},
	})
	if err != nil {
		livetest.Missing(t, "%v", err)
	}
	defer p.Close()
	at, err := net.InterfaceByName(livetest.TapEnd)
	if err != nil {
		t.Fatal(err)
	}
	l, err := link.AttachTCX(link.TCXOptions{Interface: at.Index, Program: p, Attach: ebpf.AttachTCXIngress})
	if err != nil {
		livetest.Missing(t, "%v", err)
	}
	defer l.Close()
	s, _ := opened(t)
	counts(t, s)
}

// TestCountAfterInterfaceMadeAgain: other settings attach the program to an interface that was made again, before look finds it.
func TestCountAfterInterfaceMadeAgain(t *testing.T) {
	if !livetest.InNamespaceOfRoot(t) {
		return
	}
	livetest.MakeLink(t)
	s, settings := opened(t)
	livetest.IP(t, "link", "del", livetest.SendEnd)
	livetest.MakeLink(t)
	settings.Epoch++
	if _, err := s.Count(settings, window.TapAt("receiver", 1)); err != nil {
		t.Fatal(err)
	}
	counts(t, s)
	if n := s.reopens.Load(); n != 1 {
		t.Errorf("%d reopens, want 1", n)
	}
}

// vanishing is a link whose interface disappears before its program is exchanged.
type vanishing struct {
	link.Link
	t *testing.T
}

func (v *vanishing) Update(p *ebpf.Program) error {
	livetest.IP(v.t, "link", "del", livetest.SendEnd)
	return v.Link.Update(p)
}

// TestSucceedWithoutInterface: a source replaces another one whose interface disappears meanwhile, and counts once it is back.
func TestSucceedWithoutInterface(t *testing.T) {
	if !livetest.InNamespaceOfRoot(t) {
		return
	}
	livetest.MakeLink(t)
	old, _ := opened(t)
	s, _ := opened(t)
	livetest.NewSender(t, livetest.SendEnd).Send(tagged)
	old.link = &vanishing{old.link, t}
	last, ok, err := s.Succeed(old)
	if !ok || err != nil || last.Frames.Packets != 1 || s.index() != 0 || old.index() != 0 {
		t.Fatalf("replaced %t with %d packets, %v; attached to %d, the old one to %d", ok, last.Frames.Packets, err, s.index(), old.index())
	}
	livetest.MakeLink(t)
	s.look(time.Now())
	counts(t, s)
}

// TestLook: the program is attached to an interface that was made again, even with its old number, and stays attached
// otherwise.
func TestLook(t *testing.T) {
	if !livetest.InNamespaceOfRoot(t) {
		return
	}
	livetest.MakeLink(t)
	s, _ := opened(t)
	s.look(time.Now())
	if n := s.reopens.Load(); n != 0 {
		t.Errorf("%d reopens of the same interface", n)
	}
	index := strconv.Itoa(s.index())
	livetest.IP(t, "link", "del", livetest.SendEnd)
	livetest.IP(t, "link", "add", livetest.SendEnd, "type", "veth", "peer", "name", livetest.TapEnd, "index", index)
	livetest.Up(t, livetest.SendEnd, livetest.TapEnd)
	if s.look(time.Now()); s.reopens.Load() != 1 {
		t.Errorf("%d reopens, want 1", s.reopens.Load())
	}
	counts(t, s)
}

// TestLosesName: the program stops counting an interface that is renamed or moved to another network namespace, before or
// with other settings, and counts once an interface has the name again. Packets from before count.
func TestLosesName(t *testing.T) {
	for _, tt := range []struct {
		name          string
		moved, reload bool
	}{{name: "renamed"}, {name: "renamed before a reload", reload: true}, {name: "moved", moved: true}} {
		t.Run(tt.name, func(t *testing.T) {
			if !livetest.InNamespaceOfRoot(t) {
				return
			}
			livetest.MakeLink(t)
			s, settings := opened(t)
			sender := livetest.NewSender(t, livetest.SendEnd)
			sender.Send(tagged)
			if tt.moved {
				livetest.IP(t, "link", "set", livetest.TapEnd, "netns", otherNamespace(t))
			} else {
				livetest.IP(t, "link", "set", livetest.TapEnd, "name", "other")
			}
			var last local.Counts
			var err error
			if tt.reload {
				settings.Epoch++
				last, err = s.Count(settings, s.at)
			} else {
				s.look(time.Now())
				last, err = s.drain(s.counter, false)
			}
			if err != nil || last.Frames.Packets != 1 || s.link != nil {
				t.Errorf("%d packets before, %v; attached to %d", last.Frames.Packets, err, s.index())
			}
			if !tt.moved {
				sender.Send(tagged)
				livetest.IP(t, "link", "set", "other", "name", livetest.TapEnd)
			} else {
				livetest.IP(t, "link", "del", livetest.SendEnd)
				livetest.MakeLink(t)
			}
			s.look(time.Now())
			counts(t, s)
			if n := s.reopens.Load(); n != 1 {
				t.Errorf("%d reopens, want 1", n)
			}
		})
	}
}

// otherNamespace returns the process id of a process in another network namespace, which ends with the test.
func otherNamespace(t *testing.T) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		livetest.Missing(t, "no network namespace: %v", err)
	}
	t.Cleanup(func() { _ = cmd.Wait() })
	return strconv.Itoa(cmd.Process.Pid)
}

// TestAfter: the next reading is due when a window ends, or closes because its lateness is over, by the monotonic clock: the
// system clock may be set.
func TestAfter(t *testing.T) {
	now := time.Now()
	for _, tc := range []struct{ resolution, lateness time.Duration }{
		{time.Second, 0},
		{time.Second, 300 * time.Millisecond},
		{100 * time.Millisecond, 50 * time.Millisecond},
		{time.Millisecond, time.Second},
		{time.Minute, 0},
	} {
		s := &Source{counter: &counter{resolution: int64(tc.resolution)}, lateness: tc.lateness}
		at, every := s.after(now), readEvery(tc.resolution)
		if wait := at.Sub(now); wait <= 0 || wait > every+margin || !strings.Contains(at.String(), " m=") {
			t.Errorf("%+v: reading at %s, now %s", tc, at, now)
		}
		edge := at.Add(-margin)
		if ends, closes := edge.Truncate(every), edge.Add(-tc.lateness); !edge.Equal(ends) && !closes.Equal(closes.Truncate(every)) {
			t.Errorf("%+v: no window ends or closes at %s", tc, edge)
		}
	}
}
