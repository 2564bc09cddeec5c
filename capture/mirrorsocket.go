package capture

import (
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

// MirrorSocketConfig says which packets a MirrorSocket receives.
type MirrorSocketConfig struct {
	// Listen is the address that switches send to. With a port, the socket is one of
	// UDP, for VXLAN and TZSP; with port 0, it receives GRE (IP protocol 47), for ERSPAN
	// and GRE-TAP, which needs CAP_NET_RAW. Each of several sockets of GRE gets all
	// packets, of several on one port only one does: what switches send to one port in
	// several sessions comes to one socket.
	Listen netip.AddrPort
	// Buffer is how many bytes may wait in the kernel. Default 64 MiB, of which the
	// kernel gives less without CAP_NET_ADMIN (net.core.rmem_max).
	Buffer int
	// MaxFrame is how many bytes of a packet are kept. Default 9600, at most 65535.
	MaxFrame int
	// Wait is how long ReadBatch waits for a packet. Default 20 ms, 1 ms to 1 s.
	Wait time.Duration
}

func (c *MirrorSocketConfig) setDefaults() {
	if c.Buffer == 0 {
		c.Buffer = DefaultMirrorBuffer
	}
	if c.MaxFrame == 0 {
		c.MaxFrame = DefaultMirrorMaxFrame
	}
	if c.Wait == 0 {
		c.Wait = DefaultTapWait
	}
}

func (c *MirrorSocketConfig) check() error {
	switch {
	case !c.Listen.Addr().IsValid():
		return fmt.Errorf("listen %s: expected an IP address", c.Listen)
	case c.Buffer < 0 || c.Buffer > 1<<30:
		return fmt.Errorf("buffer %d: expected at most 1 GiB", c.Buffer)
	case c.MaxFrame < 128 || c.MaxFrame > largestMirrorFrame:
		return fmt.Errorf("max frame %d: expected 128 to %d bytes", c.MaxFrame, largestMirrorFrame)
	case c.Wait < time.Millisecond || c.Wait > maxTapWait:
		return fmt.Errorf("wait %s: expected 1 ms to %s", c.Wait, maxTapWait)
	}
	return nil
}

// MirrorSocketCounters are the totals of a MirrorSocket.
type MirrorSocketCounters struct {
	Packets uint64 // delivered by ReadBatch
	Dropped uint64 // for which the kernel's buffer had no room
	Cut     uint64 // longer than MaxFrame
}

// NewMirrorSocket checks the configuration. Nothing is opened before Open.
func NewMirrorSocket(cfg MirrorSocketConfig) (*MirrorSocket, error) {
	cfg.setDefaults()
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("configure mirror socket: %w", err)
	}
	return &MirrorSocket{cfg: cfg}, nil
}
