package decode

// Link is the link type of a capture: how its frames start. The numbers are those
// of pcap files.
type Link uint16

// The link types that decoders know. The cooked captures of Linux, which taps
// on "any" interface write, have a header of their own in place of the MAC
// addresses, whose last or first field is the first EtherType.
const (
	Ethernet Link = 1
	LinuxSLL Link = 113
	// LinuxSLL2 is its second version, with the number of the interface.
	LinuxSLL2 Link = 276
)

// Known tells whether decoders read the link type.
func (l Link) Known() bool { return l == Ethernet || l == LinuxSLL || l == LinuxSLL2 }

// Framing says how the frames of a tap or a file are to be read.
type Framing struct {
	Link Link
	// Mirrors are the sessions that mirrored frames are taken out of, on Ethernet links
	// alone.
	Mirrors Mirrors
}

// Frame is one captured frame.
type Frame struct {
	Data    []byte
	WireLen uint32 // original length on the wire, bytes, with a tag that was stripped
	// TPID and TCI are the outermost tag that the network card or the kernel has taken
	// out of Data; TPID 0 is none.
	TPID, TCI uint16
}

// walkLink walks a frame of the link type.
func (d *Decoder) walkLink(link Link, frame []byte, r *Result) Reason {
	const (
		sllEtherType = 14
		sll2Len      = 20
	)
	switch {
	case link == Ethernet:
		return d.ethernet(frame, r)
	case link == LinuxSLL:
		return d.walkL2(frame, sllEtherType, r)
	case link != LinuxSLL2:
		return UnknownLink
	case len(frame) < sll2Len:
		return CutEthernet
	}
	return d.walk(be16(frame), frame[sll2Len:], r)
}
