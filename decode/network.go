package decode

import "github.com/csigscope/csigscope/decode/csig"

// mplsLabel is the length of a label stack entry.
const mplsLabel = 4

// Network is what a frame carries behind all headers of its L2: VLAN tags, SecTAGs in
// clear, CSIG tags and MPLS labels, all of which devices change on the way. The EtherType
// tells what the packet is; behind MPLS labels it is that of IP, as the packet's first
// four bits have it, or else that of MPLS. ok is false when the frame is cut before the
// packet, or hides it. The packet is a part of the frame.
//
// It neither counts nor changes anything, so that it may be called beside Decode.
func (d *Decoder) Network(frame []byte) (etherType uint16, packet []byte, ok bool) {
	if len(frame) < etherTypeOffset+2 {
		return 0, nil, false
	}
	etherType, packet = be16(frame[etherTypeOffset:]), frame[etherTypeOffset+2:]
	for {
		var n int
		switch c := d.classes[etherType]; {
		case c == vlanTag:
			n = 2
		case c == secTAG:
			if n = clearSecTAG(packet); n == 0 {
				return etherType, nil, false
			}
			packet = userData(packet, n)
		case c == mpls:
			return belowLabels(etherType, packet)
		case c >= firstTag:
			n = csig.LayoutAt(int(c - firstTag)).Format.DataLen()
		default:
			return etherType, packet, true
		}
		if len(packet) < n+2 {
			return etherType, nil, false
		}
		etherType, packet = be16(packet[n:]), packet[n+2:]
	}
}

// clearSecTAG is the length of a SecTAG whose user data can be read, else 0.
func clearSecTAG(b []byte) int {
	const hasSCI, unreadable = 0x20, 0x8c // version, encrypted, changed text
	switch {
	case len(b) < 2 || b[0]&unreadable != 0:
		return 0
	case b[0]&hasSCI != 0:
		return 14
	}
	return 6
}

// belowLabels is the packet below the last label.
func belowLabels(etherType uint16, b []byte) (uint16, []byte, bool) {
	const bottom = 1
	for len(b) > mplsLabel {
		last := b[2]&bottom != 0
		if b = b[mplsLabel:]; !last {
			continue
		}
		switch b[0] >> 4 {
		case 4:
			return 0x0800, b, true
		case 6:
			return 0x86dd, b, true
		}
		return etherType, b, true
	}
	return etherType, nil, false
}
