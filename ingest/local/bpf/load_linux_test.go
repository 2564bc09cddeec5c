package bpf_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture/livetest"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/ingest/local/taps"
	"github.com/csigscope/csigscope/replay/emitter/emittertest"
)

// loadEnv is how long TestLoad sends in each of its runs, such as 5s; make bench-tap sets it.
const loadEnv = "CSIGSCOPE_TEST_TAP_LOAD"

// TestLoad lets tcpreplay send as fast as it can to nobody, to an empty program, to a ring and to the program in the kernel,
// and prints the processor time of a packet: of tcpreplay, in whose context the kernel receives the packets, of this
// process, and of the kernel's threads for deferred work. Nothing is dropped. A small file stays in the processor's cache;
// the headers of a large one come from memory, which only the program waits for.
func TestLoad(t *testing.T) {
	if _, err := exec.LookPath("tcpreplay"); err != nil {
		livetest.Missing(t, "tcpreplay is not installed")
	}
	if testing.Short() || raceDetector() {
		t.Skip("SKIPPED: counts of a load are for the tests without the race detector")
	}
	if !livetest.InNamespaceOfRoot(t) {
		return
	}
	livetest.MakeLink(t)
	duration, rounds, formats, sizes, grouping := time.Second, 1, []csig.Format{csig.Compact}, []uint64{4_000}, []bool{true}
	if text := os.Getenv(loadEnv); text != "" {
		var err error
		if duration, err = time.ParseDuration(text); err != nil {
			t.Fatalf("%s: %v", loadEnv, err)
		}
		rounds, formats, sizes, grouping = 5, []csig.Format{csig.Compact, csig.Wide}, []uint64{4_000, 100_000}, []bool{true, false}
	}
	for _, format := range formats {
		for _, size := range sizes {
			file, s := loadOf(t, format, size)
			for _, grouped := range grouping {
				names := "classes"
				if !grouped {
					s.Resolver, names = fabric.None(s.Decode.Domain), "prefixes"
				}
				var none, empty, ring, kernel, program []float64
				for range rounds {
					none = append(none, costOf(t, file, duration, nil, nil))
					detach := attachEmpty(t)
					empty = append(empty, costOf(t, file, duration, nil, nil))
					detach()
					ring = append(ring, costOf(t, file, duration, &s, nil))
					kernel = append(kernel, costOf(t, file, duration, &s, &program))
				}
				idle := median(none)
				t.Logf("%s, %s, %d packets: a packet takes %.0f ns without a tap; more with an empty program %.0f ns, a ring %.0f ns, counting in the kernel %.0f ns; the program runs %.0f ns",
					format, names, size, idle, median(empty)-idle, median(ring)-idle, median(kernel)-idle, median(program))
			}
		}
	}
}

// raceDetector tells whether this test has the race detector, with which the ring drops packets at this rate.
func raceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

func median(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}

// attachEmpty attaches a program that does nothing to the tap's end, as the least that counting can cost.
func attachEmpty(t *testing.T) (detach func()) {
	t.Helper()
	const next = -1 // TCX_NEXT
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "Apache-2.0", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, next), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	at, err := net.InterfaceByName(livetest.TapEnd)
	if err != nil {
		t.Fatal(err)
	}
	l, err := link.AttachTCX(link.TCXOptions{Interface: at.Index, Program: p, Attach: ebpf.AttachTCXIngress})
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := errors.Join(l.Close(), p.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// loadOf returns a capture to send, and settings for it.
func loadOf(t *testing.T, format csig.Format, packets uint64) (file string, s window.Settings) {
	t.Helper()
	sc := emittertest.Named(t, "fabric-like")
	sc.Packets = packets
	sc = sc.WithLayout(csig.Layout{Format: format, Profile: csig.UEC050})
	report := emittertest.Run(t, sc, t.TempDir())
	f, domain := emittertest.Network(t, report.Fabric)
	return report.Captures[0], window.Settings{
		Decode: decode.Config{Domain: domain}, Resolver: f, Epoch: 1, Resolutions: []time.Duration{time.Second, time.Minute},
	}
}

// costOf sends for a time and returns the processor time that a packet takes, in ns. With settings, a ring reads the packets, or
// the kernel where program takes how long its program runs, which is measured in a run of its own.
func costOf(t *testing.T, file string, d time.Duration, s *window.Settings, program *[]float64) float64 {
	t.Helper()
	var r *reading
	if s != nil {
		by := taps.ByRing
		if program != nil {
			by = taps.ByKernel
		}
		r = read(t, *s, by, false)
	}
	runtime.GC() // now and not while it is measured
	began := processorTime(t)
	sent := replayLoad(t, file, d)
	used := processorTime(t) - began
	if r == nil {
		return float64(used) / float64(sent)
	}
	if program != nil {
		*program = append(*program, runTime(t, file))
	}
	r.end()
	n := r.set["tap"].Counters()
	if program == nil && n.Received != sent || program != nil && n.Received < sent || n.Odd > 0 {
		t.Errorf("%d packets were sent, %d received: %+v", sent, n.Received, n)
	}
	return float64(used) / float64(sent)
}

// runTime returns how long the attached program runs for a packet, in ns, by the kernel's statistics, which add about 25 ns.
func runTime(t *testing.T, file string) float64 {
	t.Helper()
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		t.Fatal(err)
	}
	defer stats.Close()
	p, err := ebpf.NewProgramFromID(attachedAt(t)[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	replayLoad(t, file, time.Second)
	ran, err := p.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return float64(ran.Runtime) / float64(max(ran.RunCount, 1))
}

// processorTime returns the time that this process, its children that have ended and the kernel's threads for interrupts used.
func processorTime(t *testing.T) (sum time.Duration) {
	t.Helper()
	for _, who := range [...]int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if err := unix.Getrusage(who, &u); err != nil {
			t.Fatal(err)
		}
		sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	list, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range list {
		name, err := os.ReadFile(path)
		if err != nil || !bytes.HasPrefix(name, []byte("ksoftirqd/")) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(filepath.Dir(path), "schedstat"))
		if err != nil {
			continue
		}
		ran, _, _ := strings.Cut(string(text), " ")
		n, _ := strconv.ParseInt(ran, 10, 64)
		sum += time.Duration(n)
	}
	return sum
}

// replayLoad sends the file again and again and returns how many frames went out.
func replayLoad(t *testing.T, file string, d time.Duration) uint64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d+time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "tcpreplay", "--topspeed", "--preload-pcap", "--loop=0",
		"--duration="+strconv.Itoa(cmp.Or(int(d.Seconds()), 1)), "--intf1="+livetest.SendEnd, file).CombinedOutput()
	m := regexp.MustCompile(`Successful packets:\s+(\d+)`).FindSubmatch(out)
	if err != nil || m == nil {
		t.Fatalf("tcpreplay: %v\n%s", err, out)
	}
	n, _ := strconv.ParseUint(string(m[1]), 10, 64)
	return n
}
