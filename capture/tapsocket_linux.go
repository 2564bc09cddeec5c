package capture

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// link describes an interface as the kernel reports it.
type link struct {
	index int
	flags uint16
	mtu   int
}

// lookUp queries the interface with a name. The error is ENODEV if there is none.
func lookUp(control int, name string) (link, error) {
	var l link
	for _, ask := range [...]struct {
		request uint
		take    func(*unix.Ifreq)
	}{
		{unix.SIOCGIFINDEX, func(r *unix.Ifreq) { l.index = int(r.Uint32()) }},
		{unix.SIOCGIFFLAGS, func(r *unix.Ifreq) { l.flags = r.Uint16() }},
		{unix.SIOCGIFMTU, func(r *unix.Ifreq) { l.mtu = int(r.Uint32()) }},
	} {
		r, err := unix.NewIfreq(name)
		if err != nil {
			return link{}, fmt.Errorf("find interface %q: %w", name, err)
		}
		if err := unix.IoctlIfreq(control, ask.request, r); err != nil {
			return link{}, fmt.Errorf("find interface %q: %w", name, err)
		}
		ask.take(r)
	}
	return l, nil
}

// checkEthernet refuses interfaces whose frames do not start with Ethernet addresses.
func checkEthernet(control int, name string) error {
	r, err := unix.NewIfreq(name)
	if err != nil {
		return fmt.Errorf("find interface %q: %w", name, err)
	}
	if err := unix.IoctlIfreq(control, unix.SIOCGIFHWADDR, r); err != nil {
		return fmt.Errorf("find interface %q: %w", name, err)
	}
	if family := r.Uint16(); family != unix.ARPHRD_ETHER && family != unix.ARPHRD_LOOPBACK {
		return fmt.Errorf("interface %q: its link type is %s (%d), expected Ethernet (%d)", name, hardwareName(family), family, unix.ARPHRD_ETHER)
	}
	return nil
}

// hardwareName returns the names of Linux link types that hosts' interfaces have.
func hardwareName(family uint16) string {
	switch family {
	case unix.ARPHRD_INFINIBAND:
		return "InfiniBand"
	case unix.ARPHRD_CAN:
		return "CAN"
	case unix.ARPHRD_PPP:
		return "PPP"
	case unix.ARPHRD_TUNNEL, unix.ARPHRD_TUNNEL6, unix.ARPHRD_SIT:
		return "IP in IP"
	case unix.ARPHRD_IPGRE, unix.ARPHRD_IP6GRE:
		return "GRE"
	case unix.ARPHRD_IEEE80211, unix.ARPHRD_IEEE80211_PRISM, unix.ARPHRD_IEEE80211_RADIOTAP:
		return "IEEE 802.11"
	case unix.ARPHRD_NETLINK:
		return "netlink"
	case unix.ARPHRD_RAWIP, unix.ARPHRD_NONE:
		return "raw IP"
	}
	return "unknown"
}

// socket is an AF_PACKET socket with its ring.
type socket struct {
	fd     int
	memory []byte
	link   link
	stamp  TimestampSource // TimestampAuto if the card's times are checked one by one
	poll   [1]unix.PollFd
	group  int // interface index of its fanout group; 0: none
}

// resolved returns the actual source of times.
func (s TimestampSource) resolved() TimestampSource {
	if s == TimestampAuto {
		return TimestampHardware
	}
	return s
}

// longest returns the maximum frame length on the link: the MTU plus Ethernet addresses, EtherType
// and tags.
func (s *socket) longest() uint32 {
	const ethernet, tags = 14, 32
	return uint32(max(s.link.mtu, 0) + ethernet + tags)
}

func openSocket(t *Tap, l link) (*socket, error) {
	// A socket with protocol 0 receives nothing until it is bound.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return nil, fmt.Errorf("open packet socket: %w: %s", err, Remedy("cap_net_raw"))
	}
	if err != nil {
		return nil, fmt.Errorf("open packet socket: %w", err)
	}
	s := &socket{fd: fd, link: l}
	if err := s.setUp(t); err != nil {
		return nil, errors.Join(err, s.close(t))
	}
	return s, nil
}

// setUp creates the ring and then admits frames. From the first one on, frames pass the filter and
// each goes to one ring of the group, since the socket passes nothing until it is a member.
func (s *socket) setUp(t *Tap) error {
	c := &t.cfg
	if err := checkEthernet(s.fd, c.Interface); err != nil {
		return err
	}
	if c.Rings > 1 && s.link.flags&unix.IFF_UP == 0 {
		return fmt.Errorf("join the rings' group: %w", unix.ENETDOWN) // most kernels refuse it
	}
	if err := s.attach(nothing); err != nil {
		return err
	}
	if err := s.makeRing(c); err != nil {
		return err
	}
	if err := s.chooseStamp(c); err != nil {
		return err
	}
	if !c.Outgoing {
		if err := unix.SetsockoptInt(s.fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1); err != nil {
			return fmt.Errorf("leave outgoing frames out: %w", err)
		}
	}
	if err := s.bind(t); err != nil {
		return err
	}
	// Binding to a link that is down leaves an error in the socket.
	_, _ = unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if c.Promiscuous {
		m := unix.PacketMreq{Ifindex: int32(s.link.index), Type: unix.PACKET_MR_PROMISC}
		if err := unix.SetsockoptPacketMreq(s.fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &m); err != nil {
			return fmt.Errorf("set interface %q promiscuous: %w", c.Interface, err)
		}
	}
	if c.Rings > 1 {
		if err := t.groups.join(s, c); err != nil {
			return err
		}
	}
	return s.admit(t)
}

// nothing is a filter that passes no frame.
var nothing = []bpf.RawInstruction{{Op: returnConstant}}

// admit has the socket take the frames that the tap's filter passes.
func (s *socket) admit(t *Tap) error {
	if !t.cfg.Extended {
		return s.attach(t.filter)
	}
	if err := s.extend(t.program); err != nil {
		return err
	}
	return s.bind(t)
}

// bind has the socket take the interface's frames. An extended one without its filter is bound to no
// protocol: it takes no frames, and costs the interface nothing.
func (s *socket) bind(t *Tap) error {
	protocol := networkOrder(unix.ETH_P_ALL)
	if t.cfg.Extended && t.program == 0 {
		protocol = 0
	}
	if err := unix.Bind(s.fd, &unix.SockaddrLinklayer{Ifindex: s.link.index, Protocol: protocol}); err != nil {
		return fmt.Errorf("bind to interface %q: %w", t.cfg.Interface, err)
	}
	return nil
}

// extend makes the socket's filter an extended one; 0 leaves it.
func (s *socket) extend(program int) error {
	if program == 0 {
		return nil
	}
	if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_ATTACH_BPF, program); err != nil {
		return fmt.Errorf("attach an extended filter: %w", err)
	}
	return nil
}

func (s *socket) makeRing(c *TapConfig) error {
	if err := unix.SetsockoptInt(s.fd, unix.SOL_PACKET, unix.PACKET_VERSION, unix.TPACKET_V3); err != nil {
		return fmt.Errorf("set packet ring version 3: %w", err)
	}
	// Version 3 does not use the frame size, but it must divide the block size.
	const frameSize = 2048
	req := unix.TpacketReq3{
		Block_size: uint32(c.BlockSize), Block_nr: uint32(c.Blocks),
		Frame_size: frameSize, Frame_nr: uint32(c.BlockSize / frameSize * c.Blocks),
		Retire_blk_tov: uint32(c.Retire.Milliseconds()),
	}
	if err := unix.SetsockoptTpacketReq3(s.fd, unix.SOL_PACKET, unix.PACKET_RX_RING, &req); err != nil {
		return fmt.Errorf("make a packet ring of %d blocks of %d bytes: %w", c.Blocks, c.BlockSize, err)
	}
	memory, err := unix.Mmap(s.fd, 0, c.BlockSize*c.Blocks, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return fmt.Errorf("map the packet ring: %w", err)
	}
	s.memory = memory
	return nil
}

// chooseStamp requests the network card's times if it has them.
func (s *socket) chooseStamp(c *TapConfig) error {
	if s.stamp = c.Timestamps; c.Timestamps == TimestampSoftware {
		return nil
	}
	card, err := unix.IoctlGetHwTstamp(s.fd, c.Interface)
	if err != nil || card.Rx_filter != unix.HWTSTAMP_FILTER_ALL {
		if c.Timestamps == TimestampHardware {
			return fmt.Errorf("interface %q does not stamp every frame: switch it on with: hwstamp_ctl -i %s -r 1, or ask for software timestamps", c.Interface, c.Interface)
		}
		s.stamp = TimestampSoftware
		return nil
	}
	if err := unix.SetsockoptInt(s.fd, unix.SOL_PACKET, unix.PACKET_TIMESTAMP, unix.SOF_TIMESTAMPING_RAW_HARDWARE); err != nil {
		return fmt.Errorf("ask interface %q for its timestamps: %w", c.Interface, err)
	}
	return nil
}

// attach replaces the socket's filter atomically.
func (s *socket) attach(program []bpf.RawInstruction) error {
	if err := setProgram(s.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, program); err != nil {
		return fmt.Errorf("attach a filter of %d instructions: %w", len(program), err)
	}
	return nil
}

func setProgram(fd, level, option int, program []bpf.RawInstruction) error {
	list := make([]unix.SockFilter, len(program))
	for i, in := range program {
		list[i] = unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K}
	}
	return unix.SetsockoptSockFprog(fd, level, option, &unix.SockFprog{Len: uint16(len(list)), Filter: unsafe.SliceData(list)})
}

func (s *socket) close(t *Tap) error {
	var errs []error
	if s.memory != nil {
		errs = append(errs, unix.Munmap(s.memory))
		s.memory = nil
	}
	errs = append(errs, unix.Close(s.fd))
	t.groups.leave(s)
	return errors.Join(errs...)
}

func networkOrder(v uint16) uint16 {
	b := [2]byte{byte(v >> 8), byte(v)}
	return *(*uint16)(unsafe.Pointer(&b))
}

// groups are a tap's fanout groups by interface index. While an interface is created again, some
// rings are still in the group of the old one.
type groups struct {
	mu sync.Mutex
	of map[int]*fanoutGroup
}

type fanoutGroup struct {
	id      int
	members int
}

// join adds the socket to the group of its interface. The kernel chooses the group's number, so
// that different programs do not share one.
func (g *groups) join(s *socket, c *TapConfig) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	kind := unix.PACKET_FANOUT_HASH
	if c.Fanout != nil {
		kind = unix.PACKET_FANOUT_CBPF
	}
	if !c.Outgoing {
		kind |= unix.PACKET_FANOUT_FLAG_IGNORE_OUTGOING
	}
	group, arg := g.of[s.link.index], 0
	if group == nil {
		arg = (kind | unix.PACKET_FANOUT_FLAG_UNIQUEID) << 16
	} else {
		arg = kind<<16 | group.id
	}
	if err := unix.SetsockoptInt(s.fd, unix.SOL_PACKET, unix.PACKET_FANOUT, arg); err != nil {
		return fmt.Errorf("join the rings' group: %w", err)
	}
	if group == nil {
		id, err := unix.GetsockoptInt(s.fd, unix.SOL_PACKET, unix.PACKET_FANOUT)
		if err != nil {
			return fmt.Errorf("join the rings' group: %w", err)
		}
		group = &fanoutGroup{id: id & 0xffff}
		if c.Fanout != nil {
			if err := setProgram(s.fd, unix.SOL_PACKET, unix.PACKET_FANOUT_DATA, c.Fanout); err != nil {
				return fmt.Errorf("attach a fanout program of %d instructions: %w", len(c.Fanout), err)
			}
		}
		if g.of == nil {
			g.of = make(map[int]*fanoutGroup)
		}
		g.of[s.link.index] = group
	}
	group.members++
	s.group = s.link.index
	return nil
}

func (g *groups) leave(s *socket) {
	g.mu.Lock()
	defer g.mu.Unlock()
	group := g.of[s.group]
	if s.group == 0 || group == nil {
		return
	}
	if group.members--; group.members == 0 {
		delete(g.of, s.group)
	}
	s.group = 0
}
