package decode

import (
	"strconv"

	"github.com/csigscope/csigscope/decode/csig"
)

// AppendJSON appends the observation as one JSON object, without a newline, and
// does not allocate when dst has room for 512 bytes.
//
//	time_ns             Unix ns; left out in a capture without times
//	packet              number in the file, from 1
//	kind                tag or reflection
//	format, profile     compact or wide; ietf01 or uec050
//	signal              min_abw, min_abw_ratio, max_delay, max_nqd or type_N
//	signal_type         the T field, 0 to 15
//	code                the raw S field, 0 to 31 or 0 to 1048575
//	low, high           range of the value, [low, high), in unit; left out without a
//	                    table for the signal, high in an open-ended range
//	unit                bit/s (integers), ratio (up to six decimals), ns or count
//	                    (integers); left out without a table for the signal
//	lm                  the LM field, 0 to 127, 63, 65535 or 32767
//	untouched           code is the initial value: no hop replaced the tag
//	trimmed             the D bit
//	orphan              the tag is where none belongs
//	src, dst            the packet's own addresses; left out without IP
//	proto               IP protocol, 0 to 255; left out where the capture ends before it, or
//	                    behind more than eight extension headers
//	src_port, dst_port  left out without them
//	path                the measured path: forward, the packet's own path, or reverse
//	encap               names of the headers around it, in wire order; left out
//	                    without any
//
// encap may be nil.
func (o *Observation) AppendJSON(dst []byte, domain *csig.Domain, encap *Stack) []byte {
	dst = append(dst, '{')
	if o.Flags&NoTime == 0 {
		dst = append(strconv.AppendInt(append(dst, `"time_ns":`...), o.TimeNS, 10), ',')
	}
	dst = strconv.AppendUint(append(dst, `"packet":`...), o.Packet, 10)
	dst = appendText(dst, "kind", o.Kind.String())
	dst = o.appendTag(dst, domain)
	dst = appendBool(dst, "orphan", o.Flags&Orphan != 0)
	dst = o.appendEndpoints(dst)
	if o.Kind == Reflection {
		dst = appendText(dst, "path", "reverse")
	} else {
		dst = appendText(dst, "path", "forward")
	}
	if encap != nil {
		dst = encap.appendJSON(dst)
	}
	return append(dst, '}')
}

func (o *Observation) appendTag(dst []byte, domain *csig.Domain) []byte {
	t := &o.Tag
	table := domain.Table(t.Layout, t.T)
	dst = appendText(dst, "format", t.Layout.Format.String())
	dst = appendText(dst, "profile", t.Layout.Profile.String())
	dst = appendSignal(dst, t.Signal())
	dst = appendUint(dst, "signal_type", uint64(t.T))
	dst = appendUint(dst, "code", uint64(t.S))
	if table != nil {
		unit := table.Unit()
		low, high, open := table.Range(table.Code(t.S))
		dst = appendQuantity(dst, "low", unit, low)
		if !open {
			dst = appendQuantity(dst, "high", unit, high)
		}
		dst = appendText(dst, "unit", unit.String())
	}
	dst = appendUint(dst, "lm", uint64(t.LM))
	dst = appendBool(dst, "untouched", table != nil && table.Untouched(t.S))
	return appendBool(dst, "trimmed", t.D)
}

func (o *Observation) appendEndpoints(dst []byte) []byte {
	if o.Flags&HasAddrs == 0 {
		return dst
	}
	src, dstAddr := o.Addrs()
	dst = append(src.AppendTo(append(dst, `,"src":"`...)), '"')
	dst = append(dstAddr.AppendTo(append(dst, `,"dst":"`...)), '"')
	if o.Flags&HasProto != 0 {
		dst = appendUint(dst, "proto", uint64(o.Proto))
	}
	if o.Flags&HasPorts != 0 {
		dst = appendUint(dst, "src_port", uint64(o.SrcPort))
		dst = appendUint(dst, "dst_port", uint64(o.DstPort))
	}
	return dst
}

func (s *Stack) appendJSON(dst []byte) []byte {
	for i, l := range s.Layers() {
		if i == 0 {
			dst = append(dst, `,"encap":["`...)
		} else {
			dst = append(dst, `,"`...)
		}
		dst = append(l.Append(dst), '"')
	}
	if s.n > 0 {
		dst = append(dst, ']')
	}
	return dst
}

// appendSignal avoids the allocation of an unknown type's name.
func appendSignal(dst []byte, s csig.Signal) []byte {
	if s.Known() {
		return appendText(dst, "signal", s.String())
	}
	dst = strconv.AppendUint(append(dst, `,"signal":"type_`...), uint64(s.Type()), 10)
	return append(dst, '"')
}

func appendQuantity(dst []byte, name string, u csig.Unit, stored uint64) []byte {
	switch u {
	case csig.BitPerSecond:
		return appendUint(dst, name, stored*1000)
	case csig.Ratio:
		return strconv.AppendFloat(appendName(dst, name), float64(stored)/1e6, 'f', -1, 64)
	}
	return appendUint(dst, name, stored)
}

func appendName(dst []byte, name string) []byte {
	return append(append(append(dst, `,"`...), name...), `":`...)
}

// appendText is for the protocol's own words, which need no escaping.
func appendText(dst []byte, name, text string) []byte {
	return append(append(append(appendName(dst, name), '"'), text...), '"')
}

func appendUint(dst []byte, name string, v uint64) []byte {
	return strconv.AppendUint(appendName(dst, name), v, 10)
}

func appendBool(dst []byte, name string, v bool) []byte {
	return strconv.AppendBool(appendName(dst, name), v)
}
