package conform

import (
	"bytes"
	"encoding/binary"
	"encoding/xml"
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

var uecWide = csig.Layout{Format: csig.Wide, Profile: csig.UEC050}

// A trimmed packet is matched by its headers, and its D bit then counts as justified.
func TestTrimmed(t *testing.T) {
	t.Parallel()
	l := newLab(t, uecWide, 5)
	before := l.send(1000)
	after := l.forward(before)
	trimmed := uint64(0)
	for i := range after {
		f := &after[i]
		if !f.tagged || f.tag.D || len(f.ip) < ipv6Len+25 || l.IntN(4) > 0 {
			continue
		}
		f.tag.D = true
		f.ip = f.ip[:len(f.ip)-6]
		if f.ip[0]>>4 == 4 {
			binary.BigEndian.PutUint16(f.ip[2:], uint16(len(f.ip)))
		} else {
			binary.BigEndian.PutUint16(f.ip[4:], uint16(len(f.ip)-ipv6Len))
		}
		trimmed++
	}
	r := l.judge(before, after)
	if broken(r) != "" || r.Counts.Trimmed < trimmed*9/10 || r.Counts.Extra > 2 {
		t.Errorf("%d trimmed: breaks %q: %+v", trimmed, broken(r), r.Counts)
	}
}

// A switch may trim packets and leave the lengths in their headers. Captures that are truncated before the
// end of a trimmed packet show it by its length on the wire alone.
func TestTrimmedBeyondCut(t *testing.T) {
	t.Parallel()
	for _, snap := range []int{1 << 16, 78, 70, 64} {
		for _, match := range []Match{MatchPacket, MatchPayload} {
			l := newLab(t, layouts[1], 5)
			l.cfg.Match = match
			j := l.sized(snap)
			for i := range uint64(40) {
				f := flight{ip: make([]byte, 1000), tagged: true, tag: csig.Tag{Layout: layouts[1], S: 9, LM: 3}}
				f.ip[0], f.ip[2], f.ip[3], f.ip[9] = 0x45, 1000>>8, 1000&255, protoUDP
				binary.BigEndian.PutUint64(f.ip[ipv4Len+udpLen:], i)
				frame, end := l.frame(&f, 1), 1000
				j.add(t, frame, true)
				if f.tag.D = i%4 > 0; i%4 == 1 { // the others are whole
					f.tag.S, f.tag.LM, end = 4, 5, 60
				}
				j.add(t, l.frame(&f, 2)[:18+end], false)
			}
			r := j.report(t)
			if broken(r) != "trim-invented" || r.Findings[0].Count != 20 || r.Counts.Trimmed != 10 || r.Counts.Matched != 40 {
				t.Errorf("truncated to %d bytes, match %d: breaks %q: %+v", snap, match, broken(r), r.Counts)
			}
		}
	}
}

// TestLossBySize: a device that drops or fragments large packets has no fault, although those are the
// tagged ones.
func TestLossBySize(t *testing.T) {
	t.Parallel()
	const large, small = 1400, 200
	for name, test := range map[string]struct {
		tagged, other, limit int // bytes of UDP payload, of the frame with its tag
		fragments, flows     bool
		broken               string
		unknown              uint64
	}{
		"large packets are dropped":                   {large, small, 1000, false, false, "", 60},
		"slightly larger packets are dropped":         {large, large - 100, large - 50, false, false, "", 60},
		"large packets of another flow are dropped":   {large, small, 1000, false, true, "", 60},
		"large packets are fragmented":                {large, small, 1000, true, false, "", 60},
		"packets with tags are fragmented":            {large, large, large + 42, true, false, "", 60},
		"packets with tags are dropped":               {large, large, large + 42, false, false, "tagged-lost", 0},
		"packets with tags of a flow are dropped":     {large, large, large + 42, false, true, "tagged-lost", 0},
		"nothing is dropped":                          {large, small, 2000, false, false, "", 0},
		"large packets without tags are fragmented":   {small, large, 1000, true, false, "", 0},
		"packets with tags are dropped and are small": {small, large, 0, false, false, "", 60},
	} {
		l := newLab(t, layouts[1], 5)
		c := l.sized(1 << 16)
		for i := range 120 {
			f := flight{tagged: i%2 > 0, tag: csig.Tag{Layout: layouts[1], S: 9, LM: 3}}
			n := test.other
			if f.tagged {
				n = test.tagged
			}
			f.ip = make([]byte, ipv4Len+udpLen+n)
			f.ip[0], f.ip[9], f.ip[19] = 0x45, protoUDP, 1
			if test.flows {
				f.ip[15] = byte(i % 2)
			}
			binary.BigEndian.PutUint16(f.ip[2:], uint16(len(f.ip)))
			binary.BigEndian.PutUint16(f.ip[4:], uint16(i))
			frame := l.frame(&f, 1)
			c.add(t, frame, true)
			switch {
			case test.limit > 0 && len(frame) <= test.limit || test.limit == 0 && !f.tagged:
				c.add(t, frame, false)
			case test.fragments:
				const half = 400
				rest := append(slices.Clone(f.ip[:ipv4Len]), f.ip[ipv4Len+half:]...)
				f.ip = f.ip[:ipv4Len+half]
				binary.BigEndian.PutUint16(f.ip[2:], ipv4Len+half)
				f.ip[6] = moreFragments >> 8
				c.add(t, l.frame(&f, 2), false)
				f.ip = rest
				binary.BigEndian.PutUint16(f.ip[2:], uint16(len(rest)))
				f.ip[7] = half / 8
				c.add(t, l.frame(&f, 2), false)
			}
		}
		if r := c.report(t); broken(r) != test.broken || r.Counts.LossUnknown != test.unknown {
			t.Errorf("%s: breaks %q, want %q: %+v", name, broken(r), test.broken, r.Counts)
		}
	}
}

// TestMatchTunnels: the payload of the innermost TCP or UDP header identifies a packet in any tunnel.
func TestMatchTunnels(t *testing.T) {
	t.Parallel()
	const vxlan = 4789
	ipv4 := func(proto byte, rest ...byte) []byte {
		b := append([]byte{0x45, 0, 0, 0, 0, 0, 0, 0, 64, proto, 1, 1, 1, 1, 2, 2, 2, 2}, 0, 0)
		binary.BigEndian.PutUint16(b[2:], uint16(ipv4Len+len(rest)))
		return append(b, rest...)
	}
	over := func(id byte, inner []byte) []byte {
		b := []byte{0, 9, vxlan >> 8, vxlan & 255, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, id, 0}
		b = append(append(b, make([]byte, 12)...), 8, 0)
		binary.BigEndian.PutUint16(b[4:], uint16(len(b)+len(inner)))
		return ipv4(protoUDP, append(b, inner...)...)
	}
	tunnels := map[string]func(inner []byte) []byte{
		"none":        func(inner []byte) []byte { return inner },
		"VXLAN":       func(inner []byte) []byte { return over(1, inner) },
		"other VXLAN": func(inner []byte) []byte { return over(2, inner) },
		"IP in IP":    func(inner []byte) []byte { return ipv4(4, inner...) },
		"GRE":         func(inner []byte) []byte { return ipv4(47, append([]byte{0, 0, 8, 0}, inner...)...) },
	}
	for from, before := range tunnels {
		for to, after := range tunnels {
			l := newLab(t, layouts[1], 5)
			l.cfg.Match = MatchPayload
			c := l.sized(200)
			for i := range 20 {
				payload := append(bytes.Repeat([]byte{byte(i)}, 300), byte(i))
				segment := append(append(make([]byte, 12), 5<<4), make([]byte, 7)...)
				inner := ipv4(protoTCP, append(segment, payload...)...)
				if i%2 > 0 {
					inner = ipv4(protoUDP, append([]byte{0, 1, 0, 2, 1, 53, 0, 0}, payload...)...)
				}
				f := flight{ip: before(inner), tagged: true, tag: csig.Tag{Layout: layouts[1], S: 9, LM: 3}}
				c.add(t, l.frame(&f, 1), true)
				f.ip, f.tag.S, f.tag.LM = after(inner), 4, 5
				c.add(t, l.frame(&f, 2), false)
			}
			if r := c.report(t); broken(r) != "" || r.Counts.Judged != 20 || r.Counts.Trimmed+r.Counts.Unknown > 0 {
				t.Errorf("%s, then %s: breaks %q: %+v", from, to, broken(r), r.Counts)
			}
		}
	}
}

// capturer gives a Judge captures that are truncated to snap bytes.
type capturer struct {
	scan          *Scan
	cfg           Config
	snap          int
	before, after []Packet
}

func (l *lab) sized(snap int) *capturer {
	s, err := NewScan(&l.cfg)
	if err != nil {
		l.Fatal(err)
	}
	return &capturer{scan: s, cfg: l.cfg, snap: snap}
}

func (c *capturer) add(t *testing.T, frame []byte, before bool) {
	t.Helper()
	list := &c.after
	if before {
		list = &c.before
	}
	p := Packet{Data: frame[:min(len(frame), c.snap)], WireLen: uint32(len(frame)), Number: uint64(len(*list) + 1)}
	c.scan.Add(&p)
	*list = append(*list, p)
}

func (c *capturer) report(t *testing.T) *Report {
	t.Helper()
	_, c.cfg.Prefix = c.scan.Cut()
	j, err := New(c.cfg)
	if err != nil {
		t.Fatal(err)
	}
	const parts = 3
	for part := range parts {
		j.StartPart(part, parts)
		for i := range c.before {
			if err := j.Before(&c.before[i]); err != nil {
				t.Fatal(err)
			}
		}
		for i := range c.after {
			j.After(0, &c.after[i])
		}
		j.EndPart()
	}
	return j.Report()
}

// A TPID that breaks on the way is not taken for an unrelated packet.
func TestBrokenTPID(t *testing.T) {
	t.Parallel()
	for _, layout := range layouts {
		l := newLab(t, layout, 11)
		before := l.send(300)
		after := l.forward(before)
		var in, out [][]byte
		for i := range before {
			in = append(in, l.frame(&before[i], 1))
		}
		spoiled := uint64(0)
		for i := range after {
			b := l.frame(&after[i], 7)
			if after[i].tagged && i%10 == 0 {
				b[12] ^= 0x40
				spoiled++
			}
			out = append(out, b)
		}
		r := l.judgeFrames(before, after, in, out)
		if broken(r) != "malformed" || r.Findings[len(r.Findings)-1].Count != spoiled {
			t.Errorf("%s: breaks %q, want %d malformed: %+v", layout, broken(r), spoiled, r)
		}
	}
}

// Without a tag before the device, most rules are not judged. A tag that the device adds still breaks one.
func TestUntagged(t *testing.T) {
	t.Parallel()
	l := newLab(t, uecWide, 5)
	l.untag = 1
	before := l.send(300)
	after := l.forward(before)
	r := l.judge(before, after)
	names, why := r.Unjudged()
	if broken(r) != "" || r.Counts.Judged == 0 || len(names) != NumRules-2 || slices.Contains(names, "inserted") || slices.Contains(names, "malformed") || why != "no packet before the device has a tag" {
		t.Errorf("breaks %q, not judged, since %s: %s", broken(r), why, names)
	}
	after[0].tagged, after[0].tag = true, l.tag()
	if r := l.judge(before, after); broken(r) != "inserted" {
		t.Errorf("breaks %q, want inserted", broken(r))
	}
}

// Equal packets prove nothing if one of them is missing.
func TestAlike(t *testing.T) {
	t.Parallel()
	l := newLab(t, uecWide, 1)
	l.untag = 0
	f := l.send(1)[0]
	other := f
	other.tag.LM++
	if r := l.judge([]flight{f, other}, []flight{other}); r.Counts.Ambiguous != 1 || broken(r) != "" {
		t.Errorf("one of two is missing: %+v, breaks %q", r.Counts, broken(r))
	}
	if r := l.judge([]flight{f, other}, []flight{f, other}); r.Counts.Matched != 2 || broken(r) != "" {
		t.Errorf("both come out: %+v, breaks %q", r.Counts, broken(r))
	}
	if r := l.judge([]flight{f}, []flight{f, f}); r.Counts.Matched != 1 || r.Counts.Copies != 1 || broken(r) != "" {
		t.Errorf("a copy: %+v, breaks %q", r.Counts, broken(r))
	}
}

func TestTooMany(t *testing.T) {
	t.Parallel()
	l := newLab(t, uecWide, 1)
	l.cfg.MaxPackets = 10
	j, err := New(l.cfg)
	if err != nil {
		t.Fatal(err)
	}
	j.StartPart(0, 1)
	for i, f := range l.send(11) {
		err := j.Before(&Packet{Data: l.frame(&f, 1)})
		if errors.Is(err, ErrTooMany) != (i == 10) {
			t.Errorf("packet %d: %v", i, err)
		}
	}
	for _, ports := range []int{0, MaxPorts + 1} {
		l.cfg.Ports = make([]string, ports)
		if _, err := New(l.cfg); err == nil {
			t.Errorf("%d ports are taken", ports)
		}
	}
}

// Reports are the same for any truncation, and packets truncated on both sides are matched by the
// rest.
func TestCut(t *testing.T) {
	t.Parallel()
	l := newLab(t, uecWide, 2)
	f := l.send(1)[0]
	f.tagged, f.tag = true, csig.Tag{Layout: uecWide, S: 5, LM: 3}
	whole := l.frame(&f, 1)
	for n := range whole {
		s, err := NewScan(&l.cfg)
		if err != nil {
			t.Fatal(err)
		}
		s.Add(&Packet{Data: whole[:n], WireLen: uint32(len(whole))})
		cut, prefix := s.Cut()
		cfg := l.cfg
		cfg.Prefix = prefix
		j, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		j.StartPart(0, 1)
		if err := j.Before(&Packet{Data: whole[:n]}); err != nil {
			t.Fatal(err)
		}
		j.After(0, &Packet{Data: whole})
		j.EndPart()
		c := j.Report().Counts
		if cut > 0 && prefix > 0 && c.Matched != 1 || c.Before+c.After+c.Unknown != 2 {
			t.Errorf("cut to %d bytes: prefix %d: %+v", n, prefix, c)
		}
	}
}

// TestUpdates judges single values.
func TestUpdates(t *testing.T) {
	t.Parallel()
	const ratio = 1
	layout := csig.Layout{Format: csig.Compact, Profile: csig.IETF01}
	masked, err := csig.Shipped("appendix-a")
	if err != nil {
		t.Fatal(err)
	}
	located := func(fields ...csig.FieldSpec) csig.Spec {
		return csig.Spec{Locators: []csig.LocatorSpec{{Format: "compact", Profile: "ietf01", Fields: fields}}}
	}
	ttl, numbered := located(csig.FieldSpec{Field: "ttl", Bits: 7}), located(csig.FieldSpec{Field: "port_id", Bits: 3}, csig.FieldSpec{Field: "ttl", Bits: 4})
	few := csig.Spec{Tables: []csig.TableSpec{{Format: "compact", Profile: "ietf01", Signal: "min_abw_ratio", Buckets: []string{"0%-10%", "10%-20%", "20%-50%", "50%"}}}}
	type tag struct {
		s  uint32
		lm uint16
	}
	for name, test := range map[string]struct {
		spec          csig.Spec
		uninitialized bool
		before, after tag
		broken        string
	}{
		"the TTL alone":              {ttl, false, tag{31, 0}, tag{10, 63}, ""},
		"port 0 and the TTL":         {numbered, false, tag{31, 0}, tag{10, 15}, ""},
		"port 1 and the TTL":         {numbered, false, tag{31, 0}, tag{10, 31}, ""},
		"no location":                {numbered, false, tag{31, 5}, tag{10, 0}, "locator-other"},
		"the first hop, own code":    {masked, true, tag{31, 0}, tag{7, 5}, ""},
		"the first hop, all of S":    {masked, true, tag{31, 0}, tag{31, 5}, ""},
		"the first hop, other bits":  {masked, true, tag{31, 0}, tag{15, 5}, "reserved-changed"},
		"the first hop, lower":       {masked, true, tag{31, 0}, tag{3, 5}, ""},
		"another hop, own code":      {masked, true, tag{7, 4}, tag{31, 5}, "reserved-changed"},
		"another hop, same value":    {masked, true, tag{7, 4}, tag{7, 5}, "locator-alone"},
		"no first hop, own code":     {masked, false, tag{31, 0}, tag{7, 5}, "reserved-changed"},
		"no first hop, locator only": {masked, false, tag{31, 0}, tag{31, 5}, "locator-alone"},
		"few codes, the last one":    {few, false, tag{31, 0}, tag{3, 5}, ""},
		"few codes, another one":     {few, false, tag{31, 0}, tag{1, 5}, ""},
		"few codes, beyond them":     {few, false, tag{31, 0}, tag{30, 5}, "reserved-changed"},
		"few codes, locator only":    {few, false, tag{31, 0}, tag{31, 5}, "locator-alone"},
		"few codes, the last again":  {few, false, tag{3, 4}, tag{31, 5}, "reserved-changed"},
	} {
		l := newLab(t, layout, 1)
		l.domain = networkWith(t, csig.DefaultSpec().Overlay(test.spec))
		l.cfg.Decode.Domain, l.cfg.Uninitialized, l.loss = l.domain, test.uninitialized, 0
		before := l.send(20)
		for i := range before {
			before[i].tagged, before[i].tag = true, csig.Tag{Layout: layout, T: ratio, S: test.before.s, LM: test.before.lm}
		}
		after := slices.Clone(before)
		for i := range after {
			after[i].tag.S, after[i].tag.LM = test.after.s, test.after.lm
		}
		if r := l.judge(before, after); broken(r) != test.broken {
			t.Errorf("%s: breaks %q, want %q: %+v", name, broken(r), test.broken, r.Counts)
		}
	}
}

// TestIngress: an ingress edge resets every field of an untrusted sender, also of tags with D, and may
// then write its own value.
func TestIngress(t *testing.T) {
	t.Parallel()
	layout := csig.Layout{Format: csig.Compact, Profile: csig.UEC050}
	for name, test := range map[string]struct {
		signals       uint16
		before, after csig.Tag
		broken        string
		noTable       uint64
	}{
		"D and a value pass":            {0, csig.Tag{S: 3, LM: 9, D: true}, csig.Tag{S: 3, LM: 9, D: true}, "not-scrubbed", 0},
		"D passes":                      {0, csig.Tag{S: 31, D: true}, csig.Tag{S: 31, D: true}, "not-scrubbed", 0},
		"D passes, the value is reset":  {0, csig.Tag{S: 3, LM: 9, D: true}, csig.Tag{S: 31, D: true}, "not-scrubbed", 0},
		"the value passes, D is reset":  {0, csig.Tag{S: 3, LM: 9, D: true}, csig.Tag{S: 3, LM: 9}, "not-scrubbed", 0},
		"all is reset":                  {0, csig.Tag{S: 3, LM: 9, D: true, R: 1}, csig.Tag{S: 31}, "", 0},
		"own value":                     {0, csig.Tag{S: 3, LM: 9, D: true}, csig.Tag{S: 7, LM: 11}, "", 0},
		"own value, initial before":     {0, csig.Tag{S: 31, LM: 9, D: true}, csig.Tag{S: 7, LM: 11}, "", 0},
		"D is invented":                 {0, csig.Tag{S: 3, LM: 9}, csig.Tag{S: 31, D: true}, "trim-invented", 0},
		"R is invented":                 {0, csig.Tag{S: 31}, csig.Tag{S: 31, R: 1}, "reserved-changed", 0},
		"no table, reset":               {0, csig.Tag{T: 5, S: 3, LM: 9}, csig.Tag{T: 5}, "", 1},
		"no table, reset LM":            {0, csig.Tag{T: 5, LM: 9}, csig.Tag{T: 5}, "", 1},
		"no table, own value":           {0, csig.Tag{T: 5, S: 3, LM: 9}, csig.Tag{T: 5, S: 7, LM: 11}, "", 1},
		"another type, D passes":        {2, csig.Tag{S: 3, LM: 9, D: true}, csig.Tag{S: 3, LM: 9, D: true}, "", 0},
		"another type, reset":           {2, csig.Tag{S: 3, LM: 9, D: true}, csig.Tag{S: 31}, "", 0},
		"another type, updated":         {2, csig.Tag{S: 3, LM: 9}, csig.Tag{S: 2, LM: 11}, "transparent", 0},
		"another type, no table, reset": {2, csig.Tag{T: 5, S: 3, LM: 9}, csig.Tag{T: 5}, "", 1},
	} {
		l := newLab(t, layout, 1)
		l.cfg.Role, l.cfg.Signals, l.loss = Ingress, test.signals, 0
		before := l.send(20)
		after := slices.Clone(before)
		for i := range before {
			before[i].tagged, before[i].tag, before[i].tag.Layout = true, test.before, layout
			after[i].tagged, after[i].tag, after[i].tag.Layout = true, test.after, layout
		}
		r := l.judge(before, after)
		if broken(r) != test.broken || r.Counts.NoTable != 20*test.noTable || test.broken != "" && r.Findings[0].Count != 20 {
			t.Errorf("%s: breaks %q, want %q: %+v", name, broken(r), test.broken, r.Counts)
		}
	}
}

// TestParts: whatever the headers of packets are, parts have about equal sizes. Only trimmed packets
// need their headers, and those of RoCEv2 have a sequence number in them.
func TestParts(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		number  int // where the UDP payload has one
		trimmed bool
		even    bool
	}{
		"RoCEv2":              {8, false, true},
		"RoCEv2, trimmed":     {8, true, true},
		"in a tunnel":         {40, false, true},
		"in a tunnel, all to": {40, true, false},
	} {
		l := newLab(t, uecWide, 1)
		frames := make([][]byte, 4000)
		s, err := NewScan(&l.cfg)
		if err != nil {
			t.Fatal(err)
		}
		for i := range frames {
			f := flight{ip: make([]byte, 100)}
			f.ip[0], f.ip[3], f.ip[9], f.ip[15], f.ip[19] = 0x45, 100, protoUDP, 1, 2
			binary.BigEndian.PutUint32(f.ip[ipv4Len+udpLen+test.number:], uint32(i))
			f.tagged, f.tag = true, csig.Tag{Layout: uecWide, D: test.trimmed && i == 7}
			frames[i] = l.frame(&f, 1)
			s.Add(&Packet{Data: frames[i]})
		}
		if s.Untrimmed() == test.trimmed {
			t.Errorf("%s: untrimmed %t", name, s.Untrimmed())
		}
		l.cfg.Untrimmed = s.Untrimmed()
		j, err := New(l.cfg)
		if err != nil {
			t.Fatal(err)
		}
		most := 0
		for part := range 4 {
			j.StartPart(part, 4)
			for _, b := range frames {
				if err := j.Before(&Packet{Data: b}); err != nil {
					t.Fatal(err)
				}
			}
			most = max(most, len(j.wait.list))
			j.EndPart()
		}
		if even := most < 1000*5/4; even != test.even {
			t.Errorf("%s: up to %d of 4000 packets in one of 4 parts", name, most)
		}
	}
}

// A packet that claims more bytes than were sent is malformed: the captures are not cut. A truncated
// one without a payload says nothing about payloads.
func TestScanCut(t *testing.T) {
	t.Parallel()
	l := newLab(t, uecWide, 2)
	f := l.send(1)[0]
	whole := l.frame(&f, 1)
	icmp := f
	icmp.ip = append([]byte{0x45, 0, 0, 84, 0, 0, 0, 0, 64, 1}, make([]byte, 74)...)
	for name, test := range map[string]struct {
		packet Packet
		match  Match
		cut    uint64
	}{
		"whole":           {Packet{Data: whole, WireLen: uint32(len(whole))}, MatchPacket, 0},
		"cut":             {Packet{Data: whole[:len(whole)-4], WireLen: uint32(len(whole))}, MatchPacket, 1},
		"malformed":       {Packet{Data: whole[:len(whole)-4], WireLen: uint32(len(whole) - 4)}, MatchPacket, 0},
		"malformed in L3": {Packet{Data: whole[:len(whole)-len(f.ip)+4], WireLen: uint32(len(whole) - len(f.ip) + 4)}, MatchPacket, 0},
		"cut ICMP":        {Packet{Data: l.frame(&icmp, 1)[:60], WireLen: 106}, MatchPacket, 1},
		"and its payload": {Packet{Data: l.frame(&icmp, 1)[:60], WireLen: 106}, MatchPayload, 0},
	} {
		l.cfg.Match = test.match
		s, err := NewScan(&l.cfg)
		if err != nil {
			t.Fatal(err)
		}
		s.Add(&test.packet)
		if cut, _ := s.Cut(); cut != test.cut {
			t.Errorf("%s: %d cut, want %d", name, cut, test.cut)
		}
	}
}

func TestJUnit(t *testing.T) {
	t.Parallel()
	l := newLab(t, uecWide, 7)
	before := l.send(200)
	after := l.forward(before)
	for i := range after {
		after[i].tag.T ^= 1
	}
	var b bytes.Buffer
	if err := l.judge(before, after).WriteJUnit(&b, "leaf3"); err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/junit.xml"
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(golden, b.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("%s differs:\n%s", golden, b.String())
	}
	var suites junitSuites
	if err := xml.Unmarshal(b.Bytes(), &suites); err != nil || len(suites.Suite.Cases) != NumRules || suites.Suite.Failures != 1 {
		t.Errorf("%+v, %v", suites.Suite, err)
	}
}

// TestIdentifyCut: wherever the capture of a packet ends, it has an identity if its IP header is whole.
func TestIdentifyCut(t *testing.T) {
	t.Parallel()
	l := newLab(t, uecWide, 1)
	d, err := decode.New(decode.Config{Domain: network(t)})
	if err != nil {
		t.Fatal(err)
	}
	k := NewPacketIdentifier(d, 0, 1)
	for _, p := range l.send(20) {
		frame, header := l.frame(&p, 1), ipv4Len
		if p.ip[0]>>4 == 6 {
			header = ipv6Len
		}
		for n := range frame {
			if id, hops, ok := k.Identify(frame[:n:n]); ok != (n >= len(frame)-len(p.ip)+header) || ok && (id == 0 || hops == 0) {
				t.Errorf("version %d cut at %d of %d: %d, %d hops, %t", p.ip[0]>>4, n, len(frame), id, hops, ok)
			}
		}
	}
}

// Whatever the frames, nothing panics, and every packet is accounted for.
func FuzzJudge(f *testing.F) {
	l := newLab(f, uecWide, 1)
	for _, p := range l.send(20) {
		f.Add(l.frame(&p, 1), l.frame(&p, 2))
	}
	domain := network(f)
	f.Fuzz(func(t *testing.T, in, out []byte) {
		j, err := New(Config{Decode: decode.Config{Domain: domain}, Ports: []string{"a"}})
		if err != nil {
			t.Fatal(err)
		}
		j.StartPart(0, 1)
		if err := j.Before(&Packet{Data: in}); err != nil {
			t.Fatal(err)
		}
		j.After(0, &Packet{Data: out})
		j.EndPart()
		c := j.Report().Counts
		if c.Before+c.After+c.Unknown != 2 || c.Before != c.Matched+c.Lost+c.Ambiguous || c.After != c.Matched+c.Extra+c.Copies+c.Ambiguous {
			t.Errorf("%+v", c)
		}
	})
}

func BenchmarkJudge(b *testing.B) {
	l := newLab(b, uecWide, 1)
	const n = 100_000
	before := l.send(n)
	after := l.forward(before)
	var in, out [][]byte
	for i := range before {
		in = append(in, l.frame(&before[i], 1))
	}
	for i := range after {
		out = append(out, l.frame(&after[i], 2))
	}
	b.ReportAllocs()
	for b.Loop() {
		l.judgeFrames(before, after, in, out)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/pair")
}
