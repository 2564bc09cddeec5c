package layers_test

import (
	"math/big"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"github.com/csigscope/csigscope/decode/csig"
	csiglayers "github.com/csigscope/csigscope/decode/layers"
)

// layouts are the fields of tags from the first bit to the last, as the draft's
// figures 1 and 2 and the IEEE slides ("Two L2 Tags") draw them.
var layouts = map[csig.Layout]string{
	compactIETF: "T:3 R:1 S:5 LM:7",
	compactUEC:  "T:3 R:1 S:5 LM:6 D:1",
	wideIETF:    "LM:16 T:4 S:20 R:8",
	wideUEC:     "LM:15 D:1 T:4 S:20 R:8",
}

// readBits reads a tag's data fields by its drawing, with no code of package csig.
func readBits(l csig.Layout, data []byte) csig.Tag {
	digits := new(big.Int).SetBytes(data).Text(2)
	digits = strings.Repeat("0", 8*len(data)-len(digits)) + digits
	t := csig.Tag{Layout: l}
	for field := range strings.FieldsSeq(layouts[l]) {
		name, width, _ := strings.Cut(field, ":")
		n, _ := strconv.Atoi(width)
		v, _ := strconv.ParseUint(digits[:n], 2, 32)
		digits = digits[n:]
		switch name {
		case "T":
			t.T = uint8(v)
		case "S":
			t.S = uint32(v)
		case "LM":
			t.LM = uint16(v)
		case "D":
			t.D = v == 1
		case "R":
			t.R = uint8(v)
		}
	}
	return t
}

// foundTag is a tag that gopacket found. It is an orphan when another tag of L2 follows it, and
// behind a fifth VLAN tag.
type foundTag struct {
	tag    csig.Tag
	orphan bool
}

// heard is gopacket's result for a frame. The reasons say why it could not read a part, empty if it
// could.
type heard struct {
	l2     []foundTag // of the outermost L2
	noL2   string
	inside []csig.Tag // of L2 further inside

	noTCP            string
	src, dst         netip.Addr
	srcPort, dstPort uint16
	reflected        []csig.Tag
}

// listen decodes a frame with gopacket.
func listen(t testing.TB, domain *csig.Domain, frame []byte) heard {
	t.Helper()
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.DecodeOptions{NoCopy: true})
	var h heard
	rest := p.Layers()
	next := layers.EthernetType(0)
	vlans := 0
	for ; len(rest) > 0; rest = rest[1:] {
		switch l := rest[0].(type) {
		case *layers.Ethernet:
			if len(h.l2) > 0 || next != 0 {
				h.listenInside(t, domain, rest)
				return h
			}
			next = l.EthernetType
			continue
		case *layers.Dot1Q:
			next = l.Type
			vlans++
			continue
		case *csiglayers.Tag:
			next = l.Next
			h.l2 = append(h.l2, foundTag{readTag(t, l), vlans > 4 || isL2(domain, next)})
			continue
		}
		break
	}
	switch next {
	case 0x88e5:
		h.noL2 = "MACsec"
	case 0x9100:
		h.noL2 = "VLAN tag of type 0x9100"
	}
	h.listenInside(t, domain, rest)
	return h
}

// isL2 reports whether an EtherType is that of a VLAN tag, a SecTAG or a CSIG tag.
func isL2(domain *csig.Domain, e layers.EthernetType) bool {
	switch e {
	case 0x8100, 0x88a8, 0x9100, 0x88e5:
		return true
	}
	_, ok := domain.LayoutOf(uint16(e))
	return ok
}

func readTag(t testing.TB, l *csiglayers.Tag) csig.Tag {
	t.Helper()
	tag := readBits(l.Layout, l.Contents[:l.Layout.Format.DataLen()])
	if tag != l.Tag {
		t.Fatalf("layer %v of %x, its bits say %+v", l, l.Contents, tag)
	}
	return tag
}

// listenInside reads the layers behind the outermost L2.
func (h *heard) listenInside(t testing.TB, domain *csig.Domain, rest []gopacket.Layer) {
	t.Helper()
	for _, l := range rest {
		switch l := l.(type) {
		case *csiglayers.Tag:
			h.inside = append(h.inside, readTag(t, l))
		case *layers.GRE:
			switch {
			case l.AckPresent:
				h.noL2 = "GRE with an acknowledgement number, which RFC 2784 does not have"
			case l.Protocol == layers.EthernetTypeERSPAN && !l.SeqPresent:
				h.noL2 = "ERSPAN of type I, which gopacket reads as type II"
			}
		}
	}
	if len(rest) == 0 {
		h.noTCP = "nothing after L2"
		return
	}
	switch ip := rest[0].(type) {
	case *layers.IPv4:
		h.src, _ = netip.AddrFromSlice(ip.SrcIP)
		h.dst, _ = netip.AddrFromSlice(ip.DstIP)
		if ip.Version != 4 {
			h.noTCP = "IPv4 of another version"
			return
		}
	case *layers.IPv6:
		h.src, _ = netip.AddrFromSlice(ip.SrcIP)
		h.dst, _ = netip.AddrFromSlice(ip.DstIP)
		if ip.Version != 6 {
			h.noTCP = "IPv6 of another version"
			return
		}
		if ip.HopByHop != nil && ip.Length != 0 && int(ip.Length) < ip.HopByHop.ActualLength+len(ip.Payload) {
			h.noTCP = "bytes behind a packet with hop-by-hop options, which gopacket does not cut off"
			return
		}
	default:
		h.noTCP = "no IP after L2"
		return
	}
	h.listenTCP(domain, rest[1:])
}

// listenTCP reads the segment behind an IP header and its extensions.
func (h *heard) listenTCP(domain *csig.Domain, rest []gopacket.Layer) {
	for ; len(rest) > 0; rest = rest[1:] {
		switch l := rest[0].(type) {
		case *layers.IPv6HopByHop, *layers.IPv6Routing, *layers.IPv6Destination:
			continue
		case *layers.TCP:
			if len(l.Contents) != int(l.DataOffset)*4 || l.DataOffset < 5 {
				h.noTCP = "TCP header cut or impossible"
				return
			}
			h.srcPort, h.dstPort = uint16(l.SrcPort), uint16(l.DstPort)
			h.reflected = csiglayers.Reflections(l, domain)
			return
		case *gopacket.Fragment:
			h.noTCP = "fragment"
			return
		case *gopacket.DecodeFailure:
			h.noTCP = "gopacket gives up in IP or behind it"
			return
		}
		h.noTCP = "another transport"
		return
	}
	h.noTCP = "nothing after IP"
}
