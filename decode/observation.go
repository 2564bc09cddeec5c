package decode

import (
	"net/netip"

	"github.com/csigscope/csigscope/decode/csig"
)

// Kind says where in a packet an observation was found.
type Kind uint8

// A tag measures the packet's own path, a reflection the reverse one.
const (
	Tag        Kind = 1
	Reflection Kind = 2
)

// String returns "tag" or "reflection".
func (k Kind) String() string {
	if k == Reflection {
		return "reflection"
	}
	return "tag"
}

// Flags say which fields an observation has, and its faults.
type Flags uint8

// HasAddrs, HasPorts and HasProto say that Src and Dst, SrcPort and DstPort, Proto are set: zeros
// are values. IPv6 says that the addresses come from an IPv6 header, where ::ffff:10.0.0.1 is not
// 10.0.0.1. NoTime says that the capture has no time for the packet. An Orphan is a tag in a place
// where no tag belongs, or a reflection in an ERSPAN or TZSP session that the tap does not unwrap:
// it is reported and never aggregated. Cut says that the capture ends before the addresses.
const (
	HasAddrs Flags = 1 << iota
	HasPorts
	HasAck
	Orphan
	HasProto
	IPv6
	NoTime
	Cut
)

// Observation is one tag or one reflection of one frame. It is plain data: it
// holds no reference to the frame.
type Observation struct {
	TimeNS int64  // Unix ns, as captured; 0 with NoTime
	Packet uint64 // number of the packet in its file, from 1
	Bytes  uint32 // length of the frame on the wire

	// Src and Dst are the packet's own addresses; IPv4 is stored as IPv4-mapped IPv6. In a frame
	// with tunnels Config.Endpoints chooses the IP header from which they come, with the protocol
	// and the ports.
	Src, Dst         [16]byte
	SrcPort, DstPort uint16
	Proto            uint8 // IP protocol of the header that Src and Dst come from
	Kind             Kind
	Flags            Flags
	// Ack is the TCP acknowledgement number, with HasAck. A reflection's comes from its own TCP
	// header, even where a tunnel around it names the endpoints.
	Ack uint32
	Tag csig.Tag
	// Flow tells apart the flows in a tunnel that names Src and Dst. It is a hash of the reflection's own
	// addresses and ports, the same in every run. 0 means that Src, Dst and the ports are the flow's.
	Flow uint32
}

// Addrs returns the packet's own addresses, those of an IPv4 header unmapped; both are invalid
// without HasAddrs.
func (o *Observation) Addrs() (src, dst netip.Addr) {
	if o.Flags&HasAddrs == 0 {
		return netip.Addr{}, netip.Addr{}
	}
	if o.Flags&IPv6 != 0 {
		return netip.AddrFrom16(o.Src), netip.AddrFrom16(o.Dst)
	}
	return netip.AddrFrom16(o.Src).Unmap(), netip.AddrFrom16(o.Dst).Unmap()
}

// Measured returns the endpoints of the measured path, in its direction: the packet's for a tag,
// swapped for a reflection (section 4.3.2: a reflection from B to A measured the path from A to B).
// It is written so that the compiler selects without a branch, which the processor could not predict.
func (o *Observation) Measured() (src, dst *[16]byte) {
	src, dst = &o.Src, &o.Dst
	if o.Kind == Reflection {
		src = &o.Dst
	}
	if o.Kind == Reflection {
		dst = &o.Src
	}
	return src, dst
}

// copyEnds sets the endpoints and the acknowledgement number.
func (o *Observation) copyEnds(from *Observation) {
	o.Src, o.Dst, o.SrcPort, o.DstPort = from.Src, from.Dst, from.SrcPort, from.DstPort
	o.Proto, o.Ack = from.Proto, from.Ack
	o.Flags |= from.Flags
}
