package capture_test

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/capture/livetest"
)

// TestMirrorSocketWithoutChecksum: the UDP checksum of a tunnel over IPv6 may be 0 (RFC 6935).
func TestMirrorSocketWithoutChecksum(t *testing.T) {
	if !livetest.InNamespace(t) {
		return
	}
	for _, listen := range []string{"[::1]:4789", "[::]:37008"} {
		socket, err := capture.NewMirrorSocket(capture.MirrorSocketConfig{Listen: netip.MustParseAddrPort(listen)})
		if err != nil {
			t.Fatal(err)
		}
		if err := socket.Open(); err != nil {
			t.Fatal(err)
		}
		defer socket.Close()
		leaveOut := func(_, _ string, c syscall.RawConn) error {
			var err error
			failed := c.Control(func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_NO_CHECK6_TX, 1)
			})
			return errors.Join(failed, err)
		}
		livetest.SendTo(t, net.Dialer{Control: leaveOut}, listen, []byte("without"))
		livetest.SendTo(t, net.Dialer{}, listen, []byte("with"))
		var b capture.Batch
		for idle := 0; idle < 3; idle++ {
			if err := socket.ReadBatch(&b); err != nil {
				t.Fatal(err)
			}
		}
		if n := socket.Counters().Packets; n != 2 {
			t.Errorf("%s: %d packets, want 2", listen, n)
		}
	}
}

// TestMirrorSocketCountsDrops does not read while packets arrive.
func TestMirrorSocketCountsDrops(t *testing.T) {
	if !livetest.InNamespace(t) {
		return
	}
	const listen, sent = "127.0.0.1:4789", 2000
	socket, err := capture.NewMirrorSocket(capture.MirrorSocketConfig{Listen: netip.MustParseAddrPort(listen), Buffer: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	if err := socket.Open(); err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	for range sent {
		livetest.SendTo(t, net.Dialer{}, listen, make([]byte, 200))
	}
	var b capture.Batch
	read := func() {
		for idle := 0; idle < 3; {
			if err := socket.ReadBatch(&b); err != nil {
				t.Fatal(err)
			}
			if idle++; b.N > 0 {
				idle = 0
			}
		}
	}
	read()
	livetest.SendTo(t, net.Dialer{}, listen, make([]byte, 200)) // carries the drop count
	read()
	if c := socket.Counters(); c.Dropped == 0 || c.Packets+c.Dropped != sent+1 {
		t.Errorf("%+v, want %d in all", c, sent+1)
	}
}

func TestMirrorSocketTellsWhatIsWrong(t *testing.T) {
	for _, cfg := range []capture.MirrorSocketConfig{
		{},
		{Listen: netip.MustParseAddrPort("127.0.0.1:1"), MaxFrame: 1 << 20},
		{Listen: netip.MustParseAddrPort("127.0.0.1:1"), MaxFrame: 1},
		{Listen: netip.MustParseAddrPort("127.0.0.1:1"), Wait: time.Hour},
		{Listen: netip.MustParseAddrPort("127.0.0.1:1"), Buffer: -1},
	} {
		if _, err := capture.NewMirrorSocket(cfg); err == nil {
			t.Errorf("%+v: no error", cfg)
		}
	}
	s, err := capture.NewMirrorSocket(capture.MirrorSocketConfig{Listen: netip.MustParseAddrPort("192.0.2.77:4789")})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Open(); err == nil {
		t.Error("no error for an address of another host")
	}
	if err := s.ReadBatch(new(capture.Batch)); err == nil {
		t.Error("no error for reading before opening")
	}
}

func TestMirrorSocketAllocatesNothing(t *testing.T) {
	if !livetest.InNamespace(t) {
		return
	}
	at := netip.MustParseAddrPort("127.0.0.1:4789")
	socket, err := capture.NewMirrorSocket(capture.MirrorSocketConfig{Listen: at})
	if err != nil {
		t.Fatal(err)
	}
	if err := socket.Open(); err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	c, err := net.Dial("udp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 40 * capture.BatchSize {
		if _, err := c.Write(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
	}
	var b capture.Batch
	if allocs := testing.AllocsPerRun(30, func() {
		if err := socket.ReadBatch(&b); err != nil || b.N == 0 {
			t.Fatalf("%d packets, %v", b.N, err)
		}
	}); allocs != 0 {
		t.Errorf("%v allocations a batch, want none", allocs)
	}
}
