package conform

import (
	"encoding/binary"
	"testing"

	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// TestTagOfPath: tags of different values, and no tag, are different classes of a flow.
func TestTagOfPath(t *testing.T) {
	t.Parallel()
	for name, tags := range map[string][2]*csig.Tag{
		"LM 1 and no tag":    {{LM: 1}, nil},
		"no tag and LM 1":    {nil, {LM: 1}},
		"LM 0x100 and T 1":   {{LM: 0x101}, {T: 1, LM: 1}},
		"LM 0x1000 and S 1":  {{LM: 0x1001}, {S: 1, LM: 1}},
		"the highest values": {{S: 1<<20 - 1, T: 15, LM: 0xffff}, nil},
	} {
		j := Judge{paths: paths{flows: make(map[uint64]*flowPaths)}}
		for i := range uint64(2 * minClass) {
			s := waiter{sighting: sighting{identity: identity{flow: 1}, place: i + 1}}
			if tag := tags[i%2]; tag != nil {
				s.tagged, s.Tag = true, *tag
			}
			j.paths.add(&s, uint8(i%2))
		}
		if _, n := split(&j.paths.flows[1].byTag); n != minClass {
			t.Errorf("%s: %d packets took another port because of the tag, want %d", name, n, minClass)
		}
	}
}

// TestPathChanges: only tags that a flow changes its port with again and again determine the port. Packets
// need not come in their order.
func TestPathChanges(t *testing.T) {
	t.Parallel()
	every := func(n uint64) func(uint64) int { return func(i uint64) int { return int(i / n % 2) } }
	for name, test := range map[string]struct {
		port   func(i uint64) int
		order  func(i uint64) uint32
		broken bool
	}{
		"alternating":               {every(1), func(i uint64) uint32 { return uint32(i) }, true},
		"alternating, seldom":       {every(1), func(i uint64) uint32 { return 1<<20 + uint32(i)*3001 }, true},
		"alternating, descending":   {every(1), func(i uint64) uint32 { return 1<<20 - uint32(i)*3001 }, true},
		"bursts":                    {every(4), func(i uint64) uint32 { return uint32(i) }, true},
		"one change":                {every(60), func(i uint64) uint32 { return uint32(i) }, false},
		"one change, seldom":        {every(60), func(i uint64) uint32 { return 1<<20 - uint32(i)*3001 }, false},
		"there and back and again":  {every(30), func(i uint64) uint32 { return uint32(i) * 7 }, false},
		"one port first, then both": {func(i uint64) int { return min(int(i/119), 1) }, func(i uint64) uint32 { return uint32(i) }, false},
	} {
		j, err := New(Config{Decode: decode.Config{Domain: network(t)}, Ports: []string{"a", "b"}})
		if err != nil {
			t.Fatal(err)
		}
		for port := range 2 { // as captures are read
			for i := range uint64(120) {
				if at := test.port(i); at == port {
					s := sighting{identity: identity{flow: 1}, tagState: tagState{tagged: true, Tag: csig.Tag{T: uint8(at)}}}
					j.paths.add(&waiter{sighting: s, order: test.order(i)}, uint8(port))
				}
			}
		}
		if r := j.Report(); (broken(r) == "path-selection") != test.broken || (r.Counts.PathsIgnored > 0) == (test.broken || name == "one port first, then both") {
			t.Errorf("%s: breaks %q: %+v", name, broken(r), r.Counts)
		}
	}
}

// TestPathsOfFiles: packets are numbered in each file before the device, so a change of route between
// two files is still one change.
func TestPathsOfFiles(t *testing.T) {
	t.Parallel()
	const files, packets = 2, 60 // in each file
	for name, test := range map[string]struct {
		port   func(i int) int
		broken string
	}{
		"a change with the file": {func(i int) int { return i / packets }, ""},
		"alternating":            {func(i int) int { return i % 2 }, "path-selection"},
	} {
		l := newLab(t, layouts[1], 1)
		l.cfg.Ports = []string{"a", "b"}
		j, err := New(l.cfg)
		if err != nil {
			t.Fatal(err)
		}
		const parts = 3
		for part := range parts {
			j.StartPart(part, parts)
			var after [2][]Packet
			for i := range files * packets {
				at := test.port(i)
				f := flight{ip: make([]byte, ipv4Len+udpLen+12), tagged: true, tag: csig.Tag{Layout: layouts[1], T: uint8(at), S: 9, LM: 3}}
				f.ip[0], f.ip[3], f.ip[9], f.ip[len(f.ip)-1] = 0x45, byte(len(f.ip)), protoUDP, byte(i)
				p := Packet{Data: l.frame(&f, 1), Number: uint64(i%packets + 1)}
				if err := j.Before(&p); err != nil {
					t.Fatal(err)
				}
				after[at] = append(after[at], p)
			}
			for port := range after {
				for i := range after[port] {
					j.After(port, &after[port][i])
				}
			}
			j.EndPart()
		}
		if r := j.Report(); broken(r) != test.broken || r.Counts.Judged != files*packets {
			t.Errorf("%s: breaks %q, want %q: %+v", name, broken(r), test.broken, r.Counts)
		}
	}
}

// TestFlow: packets between which a device may distinguish belong to different flows.
func TestFlow(t *testing.T) {
	t.Parallel()
	j, err := New(Config{Decode: decode.Config{Domain: network(t)}, Ports: []string{"a"}})
	if err != nil {
		t.Fatal(err)
	}
	flow := func(etherType uint16, packet []byte) uint64 {
		s, ok := j.see(&Packet{Data: append(binary.BigEndian.AppendUint16(make([]byte, 12), etherType), packet...)})
		if !ok {
			t.Fatalf("%x has no identity", packet)
		}
		return s.flow
	}
	ipv4 := func(proto byte, rest ...byte) []byte {
		return append([]byte{0x45, 0, 0, byte(ipv4Len + len(rest)), 0, 0, 0, 0, 64, proto, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2}, rest...)
	}
	ipv6 := func(label byte) []byte {
		b := append([]byte{0x60, 0, 0, label, 0, 20, protoTCP, 64}, make([]byte, 32+20)...)
		b[ipv6Len+12] = 5 << 4
		return b
	}
	roce := func(pair, number byte) []byte {
		return ipv4(protoUDP, 0, 1, 0x12, 0xb7, 0, 20, 0, 0, 4, 0, 0, 0, 0, 0, 0, pair, 0, 0, 0, number)
	}
	udp := func(port byte) []byte { return ipv4(protoUDP, 0, port, 0, 9, 0, 8, 0, 0) }
	fragment := udp(1)
	fragment[6] = moreFragments >> 8
	for name, test := range map[string]struct {
		etherType    uint16
		one, other   []byte
		known, equal bool
	}{
		"flow labels":     {etherIPv6, ipv6(1), ipv6(2), true, false},
		"a flow label":    {etherIPv6, ipv6(1), ipv6(1), true, true},
		"SCTP":            {etherIPv4, ipv4(protoSCTP, 0, 1, 0, 2), ipv4(protoSCTP, 0, 2, 0, 2), true, false},
		"DCCP":            {etherIPv4, ipv4(protoDCCP, 0, 1, 0, 2), ipv4(protoDCCP, 0, 1, 0, 3), true, false},
		"UDP-Lite":        {etherIPv4, ipv4(protoUDPLite, 0, 1, 0, 2), ipv4(protoUDPLite, 0, 1, 0, 2, 1), true, true},
		"IP in IP":        {etherIPv4, ipv4(4, udp(1)...), ipv4(4, udp(2)...), true, false},
		"a flow in IP":    {etherIPv4, ipv4(4, udp(1)...), ipv4(4, udp(1)...), true, true},
		"GRE":             {etherIPv4, ipv4(47, append([]byte{0, 0, 8, 0}, udp(1)...)...), ipv4(47, append([]byte{0, 0, 8, 0}, udp(2)...)...), true, false},
		"ICMP in IP":      {etherIPv4, ipv4(4, ipv4(1, 8, 0, 0, 0)...), ipv4(4, ipv4(1, 8, 0, 0, 0)...), false, true},
		"PSP":             {etherIPv4, ipv4(protoUDP, 0, 1, 3, 232, 0, 16, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1), udp(1), false, false},
		"ESP":             {etherIPv4, ipv4(50, 0, 0, 0, 1, 0, 0, 0, 1), ipv4(50, 0, 0, 0, 2, 0, 0, 0, 1), false, true},
		"ICMP":            {etherIPv4, ipv4(1, 8, 0, 0, 0), ipv4(1, 8, 0, 0, 0), false, true},
		"queue pairs":     {etherIPv4, roce(1, 1), roce(2, 1), true, false},
		"a queue pair":    {etherIPv4, roce(1, 1), roce(1, 2), true, true},
		"first fragments": {etherIPv4, fragment, fragment, false, true},
	} {
		one, other := flow(test.etherType, test.one), flow(test.etherType, test.other)
		if (one != 0) != test.known || (one == other) != test.equal {
			t.Errorf("%s: %x and %x", name, one, other)
		}
	}
}
