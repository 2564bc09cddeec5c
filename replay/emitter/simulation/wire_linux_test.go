package simulation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csigscope/csigscope/capture/livetest"
)

// veth creates a pair of interfaces. It skips the test if that is not permitted, except for root in
// CI.
func veth(t *testing.T, mtu int) (a, b string) {
	t.Helper()
	a, b = fmt.Sprintf("csa%d", os.Getpid()%100_000), fmt.Sprintf("csb%d", os.Getpid()%100_000)
	for _, args := range [][]string{
		{"link", "add", a, "type", "veth", "peer", "name", b},
		{"link", "set", a, "mtu", fmt.Sprint(mtu)},
		{"link", "set", b, "mtu", fmt.Sprint(mtu)},
	} {
		out, err := exec.Command("ip", args...).CombinedOutput()
		if err == nil {
			continue
		}
		if os.Getenv("CI") == "true" && os.Geteuid() == 0 {
			t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
		}
		t.Skipf("SKIPPED: no veth pair can be made: ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", a).Run() })
	livetest.Up(t, a, b)
	return a, b
}

// receiver collects the frames that reach an interface.
func receiver(t *testing.T, name string) (frames func() [][]byte) {
	t.Helper()
	const all = 0x0003 // ETH_P_ALL
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(htons(all)))
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20)
	link, err := os.ReadFile(filepath.Join("/sys/class/net", name, "ifindex"))
	if err != nil {
		t.Fatal(err)
	}
	var index int
	if _, err := fmt.Sscan(string(link), &index); err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: index, Protocol: htons(all)}); err != nil {
		t.Fatal(err)
	}
	wait := unix.NsecToTimeval((300 * time.Millisecond).Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		t.Fatal(err)
	}
	got := make(chan [][]byte, 1)
	go func() {
		defer unix.Close(fd)
		var list [][]byte
		b := make([]byte, 1<<16)
		for idle := 0; idle < 5; {
			n, err := unix.Read(fd, b)
			if err != nil {
				idle++
				continue
			}
			if n > 14 && b[0] == 2 { // skip the kernel's own packets
				list, idle = append(list, append([]byte{}, b[:n]...)), 0
			}
		}
		got <- list
	}()
	return func() [][]byte { return <-got }
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

// TestSendReachesTheInterface sends a short run over a veth pair. The other end must receive the
// captures' frames, whole and in order.
func TestSendReachesTheInterface(t *testing.T) {
	s := tiny()
	s.Duration, s.SnapLen, s.SingleFile = 250*time.Millisecond, 4096, true
	_, captured := run(t, s)
	want, _ := framesOf(t, filepath.Join(captured, "tiny.pcapng"))
	a, b := veth(t, 1600)
	frames := receiver(t, b)
	dir := t.TempDir()
	began := time.Now()
	r, err := Send(t.Context(), s, Wire{Interface: a, Pace: 1, Dir: dir}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 150*time.Millisecond {
		t.Errorf("250 ms of simulated time took %s at pace 1", took)
	}
	got := frames()
	if len(got) != len(want) || uint64(len(got)) != r.Captured {
		t.Fatalf("%d frames arrived of %d; %+v", len(got), len(want), r)
	}
	for i := range got {
		if string(got[i]) != string(want[i].Data) {
			t.Fatalf("frame %d:\n%x\nwant\n%x", i, got[i], want[i].Data)
		}
	}
	if n := len(readTruth(t, r.Truth).cells); n == 0 {
		t.Error("the truth is empty")
	}
}

func TestSendTellsWhatIsWrong(t *testing.T) {
	s := tiny()
	if _, err := Send(t.Context(), s, Wire{Interface: "nosuch0"}, nil); err == nil || !strings.Contains(err.Error(), `interface "nosuch0"`) {
		t.Errorf("error %v, want one that names the interface", err)
	}
	a, _ := veth(t, 1400)
	if _, err := Send(t.Context(), s, Wire{Interface: a}, nil); err == nil || !strings.Contains(err.Error(), "set an MTU of at least 1508") {
		t.Errorf("error %v, want one that names the MTU", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	s.MTU = 1300
	if _, err := Send(ctx, s, Wire{Interface: a, Pace: 0.001}, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want that of the context", err)
	}
}
