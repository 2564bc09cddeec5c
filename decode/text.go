package decode

import (
	"net/netip"
	"strconv"
	"time"

	"github.com/csigscope/csigscope/decode/csig"
)

// AppendText appends the observation as one line for people, without a newline: the time as RFC
// 3339 in UTC and in Unix ns, the packet, its endpoints, the tag with its value, and its flags. It
// leaves out the same fields as AppendJSON. encap may be nil.
func (o *Observation) AppendText(dst []byte, domain *csig.Domain, encap *Stack) []byte {
	if o.Flags&NoTime == 0 {
		dst = time.Unix(0, o.TimeNS).UTC().AppendFormat(dst, "2006-01-02T15:04:05.000000000Z07:00 ")
		dst = append(strconv.AppendInt(dst, o.TimeNS, 10), ' ')
	}
	dst = strconv.AppendUint(append(dst, "packet "...), o.Packet, 10)
	if o.Flags&HasAddrs != 0 {
		src, to := o.Addrs()
		dst = o.appendEnd(append(dst, ' '), src, o.SrcPort)
		dst = o.appendEnd(append(dst, " > "...), to, o.DstPort)
	}
	dst = append(append(append(dst, ' '), o.Kind.String()...), ' ')
	dst = o.appendValue(dst, domain)
	if o.Kind == Reflection {
		dst = append(dst, " of the reverse path"...)
	}
	if o.Flags&Orphan != 0 {
		dst = append(dst, " orphan"...)
	}
	if encap != nil {
		for _, l := range encap.Layers() {
			dst = l.Append(append(dst, ' '))
		}
	}
	return dst
}

func (o *Observation) appendEnd(dst []byte, a netip.Addr, port uint16) []byte {
	if o.Flags&HasPorts != 0 {
		return netip.AddrPortFrom(a, port).AppendTo(dst)
	}
	return a.AppendTo(dst)
}

// appendValue appends the signal with its value, and the fields of the tag.
func (o *Observation) appendValue(dst []byte, domain *csig.Domain) []byte {
	t := &o.Tag
	table := domain.Table(t.Layout, t.T)
	dst = append(append(dst, t.Signal().String()...), ' ')
	if table != nil {
		low, high, open := table.Range(table.Code(t.S))
		dst = append(dst, csig.FormatQuantity(table.Unit(), float64(low))...)
		if open {
			dst = append(dst, " or more"...)
		} else {
			dst = append(append(dst, " to "...), csig.FormatQuantity(table.Unit(), float64(high))...)
		}
		dst = append(dst, ' ')
	}
	dst = strconv.AppendUint(append(dst, "code "...), uint64(t.S), 10)
	dst = strconv.AppendUint(append(dst, " lm "...), uint64(t.LM), 10)
	if table != nil && table.Untouched(t.S) {
		dst = append(dst, " untouched"...)
	}
	if t.D {
		dst = append(dst, " trimmed"...)
	}
	return dst
}
