package livetest

import (
	"errors"
	"flag"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const namespaceEnv = "CSIGSCOPE_TEST_NAMESPACE"

// InNamespace runs the test or subtest again in a child process with a network of its own, which needs no privileges.
// It returns true there and false in the parent. If that is impossible, the test fails in CI and is skipped elsewhere.
// Parallel tests do not see each other's links and ports.
func InNamespace(t *testing.T) bool {
	t.Helper()
	return inNamespace(t, &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	})
}

// InNamespaceOfRoot is InNamespace for tests that need the rights of root beside a network, such as to load programs
// into the kernel. In CI they have to be there.
func InNamespaceOfRoot(t *testing.T) bool {
	t.Helper()
	if os.Geteuid() != 0 {
		Missing(t, "the test takes the rights of root")
	}
	return inNamespace(t, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET})
}

// inNamespace runs the test in a child process with attributes.
func inNamespace(t *testing.T, attributes *syscall.SysProcAttr) bool {
	t.Helper()
	if os.Getenv(namespaceEnv) != "" {
		// Some systems create namespaces without any privileges inside.
		if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
			Missing(t, "no rights in the network namespace, or ip (package iproute2) is not installed: %v: %s", err, out)
		}
		return true
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run="+selection(t), "-test.v", "-test.count=1", "-test.timeout=10m")
	cmd.Env = append(os.Environ(), namespaceEnv+"=1")
	attributes.Pdeathsig = syscall.SIGKILL
	cmd.SysProcAttr = attributes
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
		Missing(t, "no network namespace: %v", err)
	}
	return false
}

// selection returns a -run pattern for the present test or subtest, including the subtests that
// -run selected. If that has alternatives, each with its own levels, all subtests are selected.
func selection(t *testing.T) string {
	levels := strings.Split(t.Name(), "/")
	for i, name := range levels {
		levels[i] = "^" + regexp.QuoteMeta(name) + "$"
	}
	if run := flag.Lookup("test.run"); run != nil {
		if chosen := strings.Split(run.Value.String(), "/"); len(chosen) > len(levels) && !strings.Contains(run.Value.String(), "|") {
			levels = append(levels, chosen[len(levels):]...)
		}
	}
	return strings.Join(levels, "/")
}

// Missing ends a test whose system lacks something: it fails in CI and skips elsewhere.
func Missing(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, args...)
	}
	t.Skipf("SKIPPED: "+format, args...)
}

// IP runs the ip command.
func IP(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// Ends of the tests' link: frames are sent into one and captured at the other.
const (
	SendEnd = "vsend"
	TapEnd  = "vtap"
)

// MakeLink creates the link and waits until it is up.
func MakeLink(t *testing.T) {
	t.Helper()
	MakeLinkOf(t, SendEnd, TapEnd)
}

// MakeLinkOf creates a link with two ends and waits until it is up.
func MakeLinkOf(t *testing.T, a, b string) {
	t.Helper()
	add := exec.Command("ip", "link", "add", a, "mtu", "9000", "type", "veth", "peer", "name", b, "mtu", "9000")
	if out, err := add.CombinedOutput(); err != nil {
		Missing(t, "no veth link can be made: %v: %s", err, out)
	}
	for _, end := range []string{a, b} {
		// The kernel's own packets would disturb exact counts.
		IP(t, "link", "set", end, "addrgenmode", "none")
	}
	Up(t, a, b)
}

// Up sets both ends of a link up and waits until frames pass. Each end gets its carrier a moment
// later, independently of the other, and until an end has its queue the kernel silently drops the
// frames sent there.
func Up(t *testing.T, ends ...string) {
	t.Helper()
	for _, end := range ends {
		IP(t, "link", "set", end, "up")
	}
	for _, end := range ends {
		for n := 0; ; n++ {
			out, err := exec.Command("ip", "-oneline", "link", "show", "dev", end).CombinedOutput()
			if err == nil && strings.Contains(string(out), " state UP ") && !strings.Contains(string(out), " qdisc noop ") {
				break
			}
			if n == 6000 {
				t.Fatalf("%s does not come up within 30 s: %v: %s", end, err, out)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// Sender sends whole frames into an interface.
type Sender struct {
	t  *testing.T
	fd int
}

// NewSender returns a sender for an interface. It is closed when the test ends.
func NewSender(t *testing.T, name string) *Sender {
	t.Helper()
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	s := &Sender{t, fd}
	s.Bind(name)
	t.Cleanup(func() { unix.Close(fd) })
	return s
}

// Bind redirects the sender to another interface, or to one that was created again.
func (s *Sender) Bind(name string) {
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

// Send sends frames. It retries each one until the kernel accepts it.
func (s *Sender) Send(frames ...[]byte) {
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

// SendTo sends a packet over UDP, or over GRE if the port is 0.
func SendTo(t *testing.T, d net.Dialer, to string, packet []byte) {
	t.Helper()
	at := netip.MustParseAddrPort(to)
	network, address := "udp", at.String()
	if at.Addr().IsUnspecified() {
		address = netip.AddrPortFrom(netip.IPv6Loopback(), at.Port()).String()
	}
	if at.Port() == 0 {
		network, address = "ip:47", at.Addr().String()
	}
	c, err := d.DialContext(t.Context(), network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(packet); err != nil {
		t.Fatal(err)
	}
}
