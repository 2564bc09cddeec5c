package capture_test

import (
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csigscope/csigscope/capture"
)

const namespaceEnv = "CSIGSCOPE_TEST_NAMESPACE"

// inNamespace runs the test in a child process that has a network of its own, for
// which no rights are needed, and is true there. In CI it has to be possible.
func inNamespace(t *testing.T) bool {
	t.Helper()
	if os.Getenv(namespaceEnv) != "" {
		return true
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.count=1", "-test.timeout=3m")
	cmd.Env = append(os.Environ(), namespaceEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil && strings.Contains(string(out), "--- SKIP"):
		t.Skipf("SKIPPED in a network namespace:\n%s", out)
	case err == nil:
		t.Logf("in a network namespace:\n%s", out)
	case errors.As(err, &exit):
		t.Fatalf("in a network namespace: %v\n%s", err, out)
	default:
		missing(t, "no network namespace: %v", err)
	}
	return false
}

// missing ends a test that lacks something of the system.
func missing(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, args...)
	}
	t.Skipf("SKIPPED: "+format, args...)
}

func ip(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// The ends of the tests' link: frames are sent into one and captured at the other.
const (
	sendEnd = "vsend"
	tapEnd  = "vtap"
)

func makeLink(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("ip"); err != nil {
		missing(t, "ip (package iproute2) is not installed")
	}
	ip(t, "link", "add", sendEnd, "mtu", "9000", "type", "veth", "peer", "name", tapEnd, "mtu", "9000")
	for _, end := range []string{sendEnd, tapEnd} {
		// The kernel's own packets would be in the way of exact counts.
		ip(t, "link", "set", end, "addrgenmode", "none")
		ip(t, "link", "set", end, "up")
	}
	// The carrier comes a moment later.
	for range 200 {
		if b, err := os.ReadFile("/sys/class/net/" + tapEnd + "/operstate"); err != nil || strings.TrimSpace(string(b)) == "up" {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// sender sends whole frames into the link.
type sender struct {
	t  *testing.T
	fd int
}

func newSender(t *testing.T, name string) *sender {
	t.Helper()
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	s := &sender{t, fd}
	s.bind(name)
	t.Cleanup(func() { unix.Close(fd) })
	return s
}

func (s *sender) bind(name string) {
	s.t.Helper()
	if err := unix.Bind(s.fd, &unix.SockaddrLinklayer{Ifindex: indexOf(s.t, name)}); err != nil {
		s.t.Fatal(err)
	}
}

func indexOf(t *testing.T, name string) int {
	t.Helper()
	r, err := unix.NewIfreq(name)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, r); err != nil {
		t.Fatalf("index of %s: %v", name, err)
	}
	return int(r.Uint32())
}

func (s *sender) send(frames ...[]byte) {
	s.t.Helper()
	for _, f := range frames {
		for {
			_, err := unix.Write(s.fd, f)
			if err == nil {
				break
			}
			if !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.EINTR) {
				s.t.Fatalf("send %x: %v", f, err)
			}
		}
	}
}

func openTap(t *testing.T, cfg capture.TapConfig) *capture.Tap {
	t.Helper()
	if cfg.Interface == "" {
		cfg.Interface = tapEnd
	}
	tap, err := capture.NewTap(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := tap.Open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tap.Close(); err != nil {
			t.Error(err)
		}
	})
	return tap
}

// collect reads frames as they were on the wire until want are there, or nothing has
// come for a while.
func collect(t *testing.T, r *capture.Ring, want int) [][]byte {
	t.Helper()
	var b capture.Batch
	var got [][]byte
	for quiet := 0; quiet < 10 && len(got) < want; {
		if err := r.ReadBatch(&b); err != nil {
			t.Fatal(err)
		}
		if quiet++; b.N > 0 {
			quiet = 0
		}
		for i := range b.N {
			got = append(got, b.Frames[i].Append(nil))
		}
	}
	return got
}

// until reads, and drops what comes, until the condition holds.
func until(t *testing.T, r *capture.Ring, what string, ok func() bool) {
	t.Helper()
	var b capture.Batch
	for end := time.Now().Add(5 * time.Second); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("%s: it did not happen; state %s, %+v", what, r.State(), r.Counters())
		}
		if err := r.ReadBatch(&b); err != nil {
			t.Fatal(err)
		}
	}
}

// plain is an untagged IPv4 and UDP frame between hosts of those numbers.
func plain(from, to, length int) []byte {
	f := make([]byte, max(length, 60))
	copy(f, []byte{2, 0, 0, 0, 0, byte(to), 2, 0, 0, 0, 0, byte(from)})
	binary.BigEndian.PutUint16(f[12:], 0x0800)
	copy(f[14:], []byte{0x45, 0, 0, byte((len(f) - 14) & 0xff), 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, byte(from), 10, 0, 0, byte(to)})
	binary.BigEndian.PutUint16(f[16:], uint16(len(f)-14))
	binary.BigEndian.PutUint16(f[38:], uint16(len(f)-34))
	return f
}

// tagged is the frame with tags of four bytes before its EtherType.
func tagged(frame []byte, tags ...uint32) []byte {
	f := append([]byte{}, frame[:12]...)
	for _, tag := range tags {
		f = binary.BigEndian.AppendUint32(f, tag)
	}
	return append(f, frame[12:]...)
}
