package capture

import (
	"cmp"
	"fmt"
	"net/netip"
	"time"
)

// Defaults of a MirrorSocketConfig.
const (
	DefaultMirrorBuffer   = 64 << 20
	DefaultMirrorMaxFrame = 9600

	largestMirrorFrame = 65535
)

// MirrorSocketConfig configures the packets that a MirrorSocket receives.
type MirrorSocketConfig struct {
	// Listen is the address to which switches send. With a port, it is a UDP socket for VXLAN and
	// TZSP. With port 0, it receives GRE (IP protocol 47) for ERSPAN and GRE-TAP, which needs
	// CAP_NET_RAW. Every GRE socket gets all packets, but only one of several UDP sockets on a port
	// does: sessions on one port must share a socket.
	Listen netip.AddrPort
	// Buffer is the kernel's receive buffer in bytes. Default 64 MiB; without CAP_NET_ADMIN the
	// kernel gives less (net.core.rmem_max).
	Buffer int
	// MaxFrame is the maximum number of bytes kept per packet. Default 9600, at most 65535.
	MaxFrame int
	// Wait is the maximum time that ReadBatch waits for a packet. Default 20 ms, 1 ms to 1 s.
	Wait time.Duration
}

func (c *MirrorSocketConfig) setDefaults() {
	c.Buffer = cmp.Or(c.Buffer, DefaultMirrorBuffer)
	c.MaxFrame = cmp.Or(c.MaxFrame, DefaultMirrorMaxFrame)
	c.Wait = cmp.Or(c.Wait, DefaultTapWait)
}

func (c *MirrorSocketConfig) check() error {
	switch {
	case !c.Listen.Addr().IsValid():
		return fmt.Errorf("listen %s: expected an IP address", c.Listen)
	case c.Buffer < 0 || c.Buffer > 1<<30:
		return fmt.Errorf("buffer %d: expected 0 (default) to 1 GiB", c.Buffer)
	case c.MaxFrame < 128 || c.MaxFrame > largestMirrorFrame:
		return fmt.Errorf("max frame %d: expected 128 to %d bytes", c.MaxFrame, largestMirrorFrame)
	case c.Wait < time.Millisecond || c.Wait > maxTapWait:
		return fmt.Errorf("wait %s: expected 1 ms to %s", c.Wait, maxTapWait)
	}
	return nil
}

// MirrorSocketCounters holds the totals of a MirrorSocket.
type MirrorSocketCounters struct {
	Packets uint64 // delivered by ReadBatch
	Dropped uint64 // dropped because the kernel's buffer was full
	Cut     uint64 // longer than MaxFrame
}

// NewMirrorSocket checks the configuration. Open opens the socket.
func NewMirrorSocket(cfg MirrorSocketConfig) (*MirrorSocket, error) {
	cfg.setDefaults()
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("configure mirror socket: %w", err)
	}
	return &MirrorSocket{cfg: cfg}, nil
}
