package decode

// TCPSegment is a TCP header with the IP header that it is in, as parts of a frame.
type TCPSegment struct {
	IP   []byte // 20 bytes of IPv4 or 40 of IPv6, without options and extensions
	TCP  []byte // from the header on, as far as it was captured: 20 bytes at least
	Left int    // length of the header and what it carries, as IP has it
}

// Segment is the innermost TCP segment of the frame that was decoded last, in whatever
// tunnel, where Config.Segments asks for it. ok is false where there is none, or it is
// mirrored, a fragment, encrypted, cut, or of no stated length, and for a frame without a tag where no
// reflections over TCP are configured. It is a part of that frame.
func (d *Decoder) Segment() (s TCPSegment, ok bool) {
	return d.segment, d.segment.TCP != nil
}

// keep notes the segment that the walk has come to.
func (d *Decoder) keep(b []byte, left int, e endpoints) {
	if d.nest.mirror || e.fragmented() || left > largestPacket {
		return
	}
	d.segment = TCPSegment{IP: e.ip, TCP: b, Left: left}
}
