package fabric

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/gaissmai/bart"

	"github.com/csigscope/csigscope/aggregate"
)

// PathSpec is the known path of some flows, for example from traceroute, a controller or a segment
// routing policy. The most specific one counts: the longest prefix of the source, then of the
// destination, then the one that names more of protocol and ports, then the one that becomes valid
// later.
type PathSpec struct {
	// Src and Dst are an address, a prefix, a host or a group.
	Src string `yaml:"src"`
	Dst string `yaml:"dst"`
	// Proto is a protocol number; 0: any, as for the ports.
	Proto   uint8  `yaml:"proto,omitempty"`
	SrcPort uint16 `yaml:"src_port,omitempty"`
	DstPort uint16 `yaml:"dst_port,omitempty"`
	// Via are devices ("spine1") and ports ("leaf1:up2") that the flows pass, in order. Between
	// them they take shortest paths.
	Via []string `yaml:"via,flow"`
	// From and Until bound its validity, Until exclusively; without them it is always valid.
	From  time.Time `yaml:"from,omitempty"`
	Until time.Time `yaml:"until,omitempty"`
}

// Bounds of the path table.
const (
	maxPathRules      = 1 << 16 // rules, each with one prefix at either end
	maxPathsPerSource = 1 << 12 // rules of one source prefix: each lookup scans them
	maxVia            = 64      // waypoints of a path
)

// rule is a PathSpec for one prefix at either end.
type rule struct {
	dst              netip.Prefix
	proto            uint8
	srcPort, dstPort uint16
	from, until      int64 // Unix ns
	via              []waypoint
	names            []string // of via
}

// named returns the number of fields that the rule names besides addresses.
func (r *rule) named() (n int) {
	for _, is := range []bool{r.proto != 0, r.srcPort != 0, r.dstPort != 0} {
		if is {
			n++
		}
	}
	return n
}

func (r *rule) matches(dst netip.Addr, f *aggregate.Flow) bool {
	return r.dst.Contains(dst) && (r.proto == 0 || r.proto == f.Proto) &&
		(r.srcPort == 0 || r.srcPort == f.SrcPort) && (r.dstPort == 0 || r.dstPort == f.DstPort)
}

// rules are the path table. It is immutable.
type rules struct {
	list  []rule
	bySrc bart.Table[[]int32] // most specific first
}

// find returns the rule for a flow at a time, none if there is none, and the time range in which
// the result is the same.
func (r *rules) find(src, dst netip.Addr, f *aggregate.Flow, ns int64) (found int32, from, until int64) {
	found, from, until = none, math.MinInt64, math.MaxInt64
	if len(r.list) == 0 {
		return found, from, until
	}
	for _, list := range r.bySrc.Supernets(netip.PrefixFrom(src, src.BitLen())) {
		for _, i := range list {
			one := &r.list[i]
			if !one.matches(dst, f) {
				continue
			}
			switch {
			case ns < one.from:
				until = min(until, one.from)
			case ns >= one.until:
				from = max(from, one.until)
			default:
				return i, max(from, one.from), min(until, one.until)
			}
		}
	}
	return found, from, until
}

// unixNano returns a time in Unix ns, or the nearest one that fits: a path may be valid until the
// year 9999.
func unixNano(t time.Time, unset int64) int64 {
	first, last := time.Unix(0, math.MinInt64), time.Unix(0, math.MaxInt64)
	switch {
	case t.IsZero():
		return unset
	case t.Before(first):
		t = first
	case t.After(last):
		t = last
	}
	return t.UnixNano()
}

// paths checks the path table and compiles it.
func (b *builder) paths() {
	t := b.topo
	bySrc := map[netip.Prefix][]int32{}
	for i := range b.spec.Paths {
		s, path := &b.spec.Paths[i], fmt.Sprintf("paths[%d]", i)
		one := rule{proto: s.Proto, srcPort: s.SrcPort, dstPort: s.DstPort, from: unixNano(s.From, math.MinInt64), until: unixNano(s.Until, math.MaxInt64), names: s.Via}
		if !s.From.IsZero() && !s.Until.IsZero() && !s.From.Before(s.Until) {
			b.errorf(path+".until", "%s: is not after from", s.Until.Format(time.RFC3339))
		}
		sources, destinations := b.prefixesOf(path+".src", s.Src), b.prefixesOf(path+".dst", s.Dst)
		if len(sources)*len(destinations) == 0 {
			continue
		}
		one.via = b.via(path+".via", s.Via)
		if len(t.rules.list)+len(sources)*len(destinations) > maxPathRules {
			b.errorf(path, "more than %d pairs of prefixes in all paths", maxPathRules)
			return
		}
		for _, src := range sources {
			for _, dst := range destinations {
				one.dst = dst
				bySrc[src] = append(bySrc[src], int32(len(t.rules.list)))
				t.rules.list = append(t.rules.list, one)
			}
			if len(bySrc[src]) > maxPathsPerSource {
				b.errorf(path+".src", "%s: more than %d paths of one source", src, maxPathsPerSource)
				return
			}
		}
	}
	for src, list := range bySrc {
		slices.SortStableFunc(list, func(x, y int32) int {
			a, c := &t.rules.list[x], &t.rules.list[y]
			return cmp.Or(c.dst.Bits()-a.dst.Bits(), c.named()-a.named(), cmp.Compare(c.from, a.from))
		})
		t.rules.bySrc.Insert(src, list)
	}
}

// printEvidence prints the compiled path table and hashes.
func (t *topology) printEvidence(w io.Writer) {
	for src, list := range t.rules.bySrc.AllSorted() {
		for _, i := range list {
			r := &t.rules.list[i]
			fmt.Fprintf(w, "path %s %s %d %d %d %d %d %v\n", src, r.dst, r.proto, r.srcPort, r.dstPort, r.from, r.until, r.names)
		}
	}
	for i := range t.ecmp.devices {
		if h := &t.ecmp.devices[i]; h.hash != nil {
			fmt.Fprintf(w, "ecmp %s %s %v %d", t.devices[i].name, h.name, h.fields, h.seed)
			for _, p := range t.ecmp.out[i] {
				fmt.Fprintf(w, " %s", t.ports[p].name)
			}
			fmt.Fprintln(w)
		}
	}
}

func (b *builder) via(path string, names []string) (list []waypoint) {
	if len(names) == 0 || len(names) > maxVia {
		b.errorf(path, "%d devices and ports: expected 1 to %d", len(names), maxVia)
		return nil
	}
	for i, name := range names {
		at := b.topo.passages(name)
		if at == nil {
			b.errorf(fmt.Sprintf("%s[%d]", path, i), noPassage, name)
		}
		list = append(list, at)
	}
	return list
}

// prefixesOf returns the prefixes of an address, a prefix, a host or a group.
func (b *builder) prefixesOf(path, text string) (list []netip.Prefix) {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		a = canonicalAddr(a)
		return []netip.Prefix{netip.PrefixFrom(a, a.BitLen())}
	}
	if p, err := netip.ParsePrefix(text); err == nil {
		return []netip.Prefix{p.Masked()}
	}
	t := b.topo
	if h, ok := t.hostIndex[text]; ok {
		for _, a := range b.spec.Hosts[h].Addresses {
			list = append(list, b.prefixesOf(path, a)...)
		}
		return list
	}
	if g, ok := t.groupIndex[text]; ok && len(b.spec.Groups[g].Prefixes) > 0 {
		for _, p := range b.spec.Groups[g].Prefixes {
			list = append(list, b.prefixesOf(path, p)...)
		}
		return list
	}
	b.errorf(path, "%q: expected an address, a prefix, or the name of a host or of a group with prefixes", text)
	return nil
}
