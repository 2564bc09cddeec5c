package decode

// Link is the link type of a capture: how its frames start. The numbers are those
// of pcap files.
type Link uint16

// The link types that DecodeLink knows. The cooked captures of Linux, which taps
// on "any" interface write, have a header of their own in place of the MAC
// addresses, whose last or first field is the first EtherType.
const (
	Ethernet Link = 1
	LinuxSLL Link = 113
	// LinuxSLL2 is its second version, with the number of the interface.
	LinuxSLL2 Link = 276
)

// Known tells whether DecodeLink reads the link type.
func (l Link) Known() bool { return l == Ethernet || l == LinuxSLL || l == LinuxSLL2 }

// DecodeLink is Decode for a frame of the link type. The reason is UnknownLink for
// one that is not Known, so callers refuse such a capture first.
func (d *Decoder) DecodeLink(link Link, frame []byte, r *Result) {
	const (
		sllEtherType = 14
		sll2Len      = 20
	)
	d.start(r)
	switch link {
	case Ethernet:
		r.Reason = d.ethernet(frame, r)
	case LinuxSLL:
		r.Reason = d.walkL2(frame, sllEtherType, r)
	case LinuxSLL2:
		if len(frame) < sll2Len {
			r.Reason = CutEthernet
			break
		}
		r.Reason = d.walk(be16(frame), frame[sll2Len:], r)
	default:
		r.Reason = UnknownLink
	}
	d.finish(r)
}
