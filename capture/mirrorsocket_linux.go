package capture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Headers that the kernel strips, and the protocols that they announce.
const (
	etherIPv4   = 0x0800
	etherIPv6   = 0x86dd
	protocolUDP = 17
	protocolGRE = 47

	etherHead = 14
	ipv4Head  = 20
	ipv6Head  = 40
	udpHeader = 8
	// headroom is the room for restoring the stripped headers.
	headroom = etherHead + ipv6Head + udpHeader

	nameLen    = unix.SizeofSockaddrInet6
	controlLen = 64 // room for a time and a drop count
)

// MirrorSocket receives the packets of mirror sessions sent to this host. The kernel strips the
// headers before the session's own; frames have them restored as far as they are known, with zero
// Ethernet addresses.
//
// Counters is safe for concurrent use; all other methods belong to one goroutine.
type MirrorSocket struct {
	cfg    MirrorSocketConfig
	fd     int
	opened bool
	gre    bool
	poll   [1]unix.PollFd
	quiet  int64

	headers  []messageHeader
	vectors  []unix.Iovec
	names    [][nameLen]byte
	controls [][controlLen]byte
	memory   []byte // one slot per packet
	packets  uint64

	delivered, dropped, cut atomic.Uint64
}

// messageHeader is struct mmsghdr.
type messageHeader struct {
	header unix.Msghdr
	length uint32
}

// Open opens the socket.
func (s *MirrorSocket) Open() error {
	if s.opened {
		return fmt.Errorf("open mirror socket %s: it is open already", s.cfg.Listen)
	}
	s.gre = s.cfg.Listen.Port() == 0
	kind, protocol := unix.SOCK_DGRAM, unix.IPPROTO_UDP
	if s.gre {
		kind, protocol = unix.SOCK_RAW, unix.IPPROTO_GRE
	}
	family := unix.AF_INET6
	if s.cfg.Listen.Addr().Unmap().Is4() {
		family = unix.AF_INET
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return fmt.Errorf("open mirror socket %s: %w: %s", s.cfg.Listen, err, Remedy("cap_net_raw"))
	}
	if err != nil {
		return fmt.Errorf("open mirror socket %s: %w", s.cfg.Listen, err)
	}
	s.fd = fd
	if err := s.setUp(family); err != nil {
		return errors.Join(fmt.Errorf("open mirror socket %s: %w", s.cfg.Listen, err), unix.Close(fd))
	}
	s.makeSlots()
	s.opened = true
	return nil
}

func (s *MirrorSocket) setUp(family int) error {
	if unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, s.cfg.Buffer) != nil {
		if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, s.cfg.Buffer); err != nil {
			return fmt.Errorf("set a buffer of %d bytes: %w", s.cfg.Buffer, err)
		}
	}
	for _, option := range [...]int{unix.SO_TIMESTAMPNS, unix.SO_RXQ_OVFL} {
		if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, option, 1); err != nil {
			return fmt.Errorf("ask for times and losses: %w", err)
		}
	}
	if family == unix.AF_INET6 && !s.gre {
		// Tunnels may leave out the checksum (RFC 6935), and the kernel would drop these packets uncounted.
		if err := unix.SetsockoptInt(s.fd, unix.IPPROTO_UDP, unix.UDP_NO_CHECK6_RX, 1); err != nil {
			return fmt.Errorf("accept packets without a UDP checksum: %w", err)
		}
	}
	var address unix.Sockaddr
	addr, port := s.cfg.Listen.Addr().Unmap(), int(s.cfg.Listen.Port())
	if family == unix.AF_INET {
		address = &unix.SockaddrInet4{Port: port, Addr: addr.As4()}
	} else {
		address = &unix.SockaddrInet6{Port: port, Addr: addr.As16()}
	}
	if err := unix.Bind(s.fd, address); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	return nil
}

func (s *MirrorSocket) makeSlots() {
	slot := headroom + s.cfg.MaxFrame
	s.memory = make([]byte, BatchSize*slot)
	s.headers = make([]messageHeader, BatchSize)
	s.vectors = make([]unix.Iovec, BatchSize)
	s.names = make([][nameLen]byte, BatchSize)
	s.controls = make([][controlLen]byte, BatchSize)
	for i := range s.headers {
		s.vectors[i].Base = &s.memory[i*slot+headroom]
		s.vectors[i].SetLen(s.cfg.MaxFrame)
		h := &s.headers[i].header
		h.Name, h.Iov, h.Control = &s.names[i][0], &s.vectors[i], &s.controls[i][0]
		h.SetIovlen(1)
	}
}

// ReadBatch fills b with the next packets and waits for them for at most Wait. If there are none,
// b.N is 0 and the error is nil. Data is valid until the next call.
func (s *MirrorSocket) ReadBatch(b *Batch) error {
	b.N = 0
	if !s.opened {
		return fmt.Errorf("read mirror socket %s: %w", s.cfg.Listen, os.ErrClosed)
	}
	n, err := s.receive()
	if n == 0 && err == nil {
		began := time.Now()
		s.poll[0] = unix.PollFd{Fd: int32(s.fd), Events: unix.POLLIN}
		if _, err := unix.Poll(s.poll[:], int(s.cfg.Wait.Milliseconds())); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("read mirror socket %s: wait for packets: %w", s.cfg.Listen, err)
		}
		s.quiet = began.UnixNano()
		n, err = s.receive()
	}
	if err != nil {
		return fmt.Errorf("read mirror socket %s: %w", s.cfg.Listen, err)
	}
	if n == 0 {
		return nil
	}
	now := time.Now().UnixNano()
	for i := range n {
		s.frame(i, &b.Frames[i], now)
	}
	b.N = n
	s.packets += uint64(n)
	s.delivered.Store(s.packets)
	return nil
}

// receive receives the waiting packets, up to a batch.
func (s *MirrorSocket) receive() (int, error) {
	for i := range s.headers {
		h := &s.headers[i].header
		h.Namelen = nameLen
		h.SetControllen(controlLen)
	}
	const flags = unix.MSG_DONTWAIT | unix.MSG_TRUNC // with MSG_TRUNC, lengths are those before truncation
	n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, uintptr(s.fd), uintptr(unsafe.Pointer(unsafe.SliceData(s.headers))), BatchSize, flags, 0, 0)
	switch errno {
	case 0:
		return int(n), nil
	case unix.EAGAIN, unix.EINTR:
		return 0, nil
	}
	return 0, errno
}

// frame turns packet i into a frame with restored headers.
func (s *MirrorSocket) frame(i int, f *Frame, now int64) {
	slot := s.memory[i*(headroom+s.cfg.MaxFrame):][:headroom+s.cfg.MaxFrame]
	length := int(s.headers[i].length)
	if length > s.cfg.MaxFrame {
		s.cut.Add(1)
	}
	kept := min(length, s.cfg.MaxFrame)
	at := s.restoreHeaders(slot[:headroom], s.source(i), length)
	*f = Frame{
		Data: slot[at : headroom+kept], TimeNS: s.stamp(i, now),
		WireLen: uint32(headroom - at + length), Packet: s.packets + uint64(i) + 1,
	}
}

// restoreHeaders writes the headers of a packet of the given length at the end of b and returns
// their start. The IP length field stays 0, as before segmentation offload.
func (s *MirrorSocket) restoreHeaders(b []byte, source netip.Addr, length int) (at int) {
	at = len(b)
	protocol := uint8(protocolGRE)
	if !s.gre {
		protocol = protocolUDP
		at -= udpHeader
		clear(b[at:])
		binary.BigEndian.PutUint16(b[at+2:], s.cfg.Listen.Port())
		binary.BigEndian.PutUint16(b[at+4:], uint16(udpHeader+length))
	}
	etherType := uint16(etherIPv6)
	switch {
	case source.Is4() && s.gre: // the kernel leaves the IPv4 header in place
		etherType = etherIPv4
	case source.Is4():
		etherType = etherIPv4
		at -= ipv4Head
		head := b[at:][:ipv4Head]
		clear(head)
		head[0], head[9] = 0x45, protocol
		from := source.As4()
		copy(head[12:], from[:])
	default:
		at -= ipv6Head
		head := b[at:][:ipv6Head]
		clear(head)
		head[0], head[6] = 0x60, protocol
		from := source.As16()
		copy(head[8:], from[:])
	}
	at -= etherHead
	clear(b[at:][:etherHead])
	binary.BigEndian.PutUint16(b[at+12:], etherType)
	return at
}

// source returns the source address of packet i.
func (s *MirrorSocket) source(i int) netip.Addr {
	name := &s.names[i]
	if s.headers[i].header.Namelen < unix.SizeofSockaddrInet4 {
		return netip.AddrFrom4([4]byte{})
	}
	if binary.NativeEndian.Uint16(name[:]) == unix.AF_INET {
		return netip.AddrFrom4([4]byte(name[4:8]))
	}
	return netip.AddrFrom16([16]byte(name[8:24])).Unmap()
}

// stamp returns the kernel's receive time of packet i, and records the kernel's drop count.
func (s *MirrorSocket) stamp(i int, now int64) int64 {
	control := s.controls[i][:min(controlLen, int(s.headers[i].header.Controllen))]
	for len(control) >= unix.SizeofCmsghdr {
		h := (*unix.Cmsghdr)(unsafe.Pointer(unsafe.SliceData(control)))
		n := int(h.Len)
		if n < unix.SizeofCmsghdr || n > len(control) {
			break
		}
		value := control[unix.SizeofCmsghdr:n]
		switch {
		case h.Level != unix.SOL_SOCKET:
		case h.Type == unix.SO_TIMESTAMPNS && len(value) == int(unsafe.Sizeof(unix.Timespec{})):
			ts := (*unix.Timespec)(unsafe.Pointer(unsafe.SliceData(value)))
			now = ts.Nano()
		case h.Type == unix.SO_RXQ_OVFL && len(value) == 4:
			s.dropped.Store(uint64(binary.NativeEndian.Uint32(value)))
		}
		control = control[min(unix.CmsgSpace(len(value)), len(control)):]
	}
	return now
}

// LowWatermark returns a time (Unix ns) as of the last empty batch: all packets received before it
// have been delivered.
func (s *MirrorSocket) LowWatermark() int64 { return s.quiet }

// Ahead returns 0, since packets have the system clock's times.
func (s *MirrorSocket) Ahead() int64 { return 0 }

// Counters returns the totals since Open. It is safe for concurrent use. Drops become known with
// the next packet.
func (s *MirrorSocket) Counters() MirrorSocketCounters {
	return MirrorSocketCounters{Packets: s.delivered.Load(), Dropped: s.dropped.Load(), Cut: s.cut.Load()}
}

// Close closes the socket. Further calls do nothing.
func (s *MirrorSocket) Close() error {
	if !s.opened {
		return nil
	}
	s.opened = false
	if err := unix.Close(s.fd); err != nil {
		return fmt.Errorf("close mirror socket %s: %w", s.cfg.Listen, err)
	}
	return nil
}
