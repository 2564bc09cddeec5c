package emitter

import (
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// encapRow is what the decoder says of an encapsulation.
type encapRow struct {
	encap string
	stack string // as the decoder names it
	// What is left of a frame with a tag and a reflection.
	hidden  bool          // nothing: the frame is counted as hidden
	outer   bool          // no reflection: it is encrypted
	udp     layer4        // of the header that names the endpoints unless the inner one does
	counted decode.Reason // of frames that carry both
}

// layer4 is the protocol and the destination port that the outer header shows.
type layer4 struct {
	proto uint8
	port  uint16
}

var encapRows = []encapRow{
	{encap: "none"},
	{encap: "vlan", stack: "vlan:100"},
	{encap: "qinq", stack: "vlan:200 vlan:100"},
	{encap: "vlan-tunnel", stack: "vlan:400 vlan:300 vlan:200 vlan:100"},
	{encap: "macsec", stack: "macsec"},
	{encap: "macsec-no-sci", stack: "macsec"},
	{encap: "macsec-no-icv", stack: "macsec"},
	{encap: "macsec-vlan", stack: "macsec vlan:100"},
	{encap: "macsec-encrypted", stack: "macsec", hidden: true, counted: decode.Hidden},
	{encap: "mpls", stack: "mpls mpls mpls"},
	{encap: "pw", stack: "mpls mpls pw"},
	{encap: "ipip", stack: "ipip", udp: layer4{proto: 4}},
	{encap: "gre", stack: "gre", udp: layer4{proto: 47}},
	{encap: "gre-flags", stack: "gre", udp: layer4{proto: 47}},
	{encap: "nvgre", stack: "nvgre", udp: layer4{proto: 47}},
	{encap: "vxlan", stack: "vxlan", udp: layer4{17, 4789}},
	{encap: "vxlan-gpe", stack: "vxlan-gpe", udp: layer4{17, 4790}},
	{encap: "geneve", stack: "geneve", udp: layer4{17, 6081}},
	{encap: "gtpu", stack: "gtpu", udp: layer4{17, 2152}},
	{encap: "srv6", stack: "srv6", udp: layer4{proto: 4}},
	{encap: "esp", stack: "esp", outer: true, udp: layer4{proto: 50}},
	{encap: "psp", stack: "psp", outer: true, udp: layer4{17, 1000}},
}

// TestEveryEncapsulationIsDecoded emits frames of every encapsulation, between hosts
// and between leaves, in both IP versions inside and outside, and decodes exactly
// what was sent: the tag, the reflection, and the endpoints as configured.
func TestEveryEncapsulationIsDecoded(t *testing.T) {
	if len(encapRows) != numEncapsulations {
		t.Fatalf("%d rows for %d encapsulations", len(encapRows), numEncapsulations)
	}
	domain, err := csig.DefaultSpec().Compile()
	if err != nil {
		t.Fatal(err)
	}
	r := domain.Reflections()[0]
	for _, l := range []csig.Layout{compactIETF, wideUEC} {
		r.Profiles = [2]csig.Profile{csig.IETF01, csig.UEC050}
		f, err := newFramer(l, tpidOf(l), r, everyStyle())
		if err != nil {
			t.Fatal(err)
		}
		rng := stream(7, uint64(l.Format))
		for n := range f.styles {
			row := encapRows[f.styles[n].encap]
			for _, ends := range []decode.Endpoints{decode.Outer, decode.Inner} {
				d, err := decode.New(decode.Config{Domain: domain, Endpoints: ends})
				if err != nil {
					t.Fatal(err)
				}
				for range 8 {
					row.check(t, d, ends, &rng, &f, uint8(n))
				}
				if c := d.Counters(); (c.Encrypted == c.Frames) != row.outer || (c.Reasons[decode.Hidden] == c.Frames) != row.hidden {
					t.Fatalf("%s: %d of %d frames are encrypted, %d hidden", row.encap, c.Encrypted, c.Frames, c.Reasons[decode.Hidden])
				}
			}
		}
	}
}

func (row *encapRow) check(t *testing.T, d *decode.Decoder, ends decode.Endpoints, rng *random, f *framer, n uint8) {
	t.Helper()
	st := f.styles[n].style
	s := randomSegment(rng, f, n)
	if s.wrapped != (st.encap != encapNone) { // what is not wrapped is of the first row
		s.wrapped = true
		s.length += f.overhead(n)
	}
	var got decode.Result
	d.Decode(f.append(nil, &s, 1<<14), &got)
	want := row.observations(&s, st, ends)
	reason := decode.NoCSIG
	switch {
	case row.hidden:
		reason = row.counted
	case len(want) > 0:
		reason = decode.OK
	}
	if got.Reason != reason || got.N != len(want) || names(&got.Encap) != row.stack {
		t.Fatalf("%+v: %d observations, %s, %q; want %d, %s, %q", st, got.N, got.Reason, names(&got.Encap), len(want), reason, row.stack)
	}
	for i, w := range want {
		if g := got.Obs[i]; g != w {
			t.Fatalf("%+v: decoded\n%+v, sent\n%+v", st, g, w)
		}
	}
}

// observations are those that the decoder is to find in the frame of a segment.
func (row *encapRow) observations(s *segment, st style, ends decode.Endpoints) (list []decode.Observation) {
	if row.hidden {
		return nil
	}
	o := decode.Observation{Flags: decode.HasAddrs | decode.HasPorts, Proto: 6, SrcPort: s.tuple.srcPort, DstPort: s.tuple.dstPort}
	header, version := 0, st.ip
	plain := st.encap.outerIP() && ends == decode.Inner || !st.encap.outerIP() && !row.outer
	if !plain {
		o.Proto, o.SrcPort, o.DstPort = row.udp.proto, 0, 0
		o.Flags &^= decode.HasPorts
		if row.udp.port != 0 {
			o.SrcPort, o.DstPort = s.entropy(), row.udp.port
			o.Flags |= decode.HasPorts
		}
		if st.encap.outerIP() {
			header, version = outerHeader, st.underlay
		}
		if (st.encap == encapIPIP || st.encap == encapSRv6) && st.ip == 6 {
			o.Proto = 41
		}
		if st.encap == encapSRv6 {
			version = 6
		}
	}
	src, dst := s.ends(st, header)
	o.Src, o.Dst = as16(version, src), as16(version, dst)
	if !row.outer {
		tag := o
		tag.Kind, tag.Tag = decode.Tag, s.tag
		if plain {
			tag.Flags |= decode.HasAck
			tag.Ack = s.ack
		}
		reflection := o
		reflection.Kind, reflection.Tag, reflection.Ack = decode.Reflection, s.reflection, s.ack
		reflection.Flags |= decode.HasAck
		if s.tagged {
			list = append(list, tag)
		}
		if s.reflects {
			list = append(list, reflection)
		}
		return list
	}
	if s.tagged {
		o.Kind, o.Tag = decode.Tag, s.tag
		list = append(list, o)
	}
	return list
}

func as16(version uint8, a uint32) [16]byte {
	return netip.AddrFrom16(addressOf(version, a).As16()).As16()
}

func names(s *decode.Stack) string {
	var list []string
	for _, l := range s.Layers() {
		list = append(list, string(l.Append(nil)))
	}
	return strings.Join(list, " ")
}

// TestEncapsulatedRunsTellTheTruth runs a scenario in every encapsulation between
// hosts and holds what its receivers' taps captured against its truth: all
// observations are there, or counted as hidden.
func TestEncapsulatedRunsTellTheTruth(t *testing.T) {
	for _, row := range encapRows {
		t.Run(row.encap, func(t *testing.T) {
			s := tiny()
			s.Encap, s.SingleFile, s.SnapLen = row.encap, true, 256
			s.Duration, s.BufferBytes = 300*1e6, 1<<20
			s.IP = 4 + 2*(len(row.encap)%2)
			r, dir := run(t, s)
			got := decodeFile(t, filepath.Join(dir, "tiny.pcapng"))
			var tags, reflections uint64
			for _, c := range readTruth(t, r.Truth).cells {
				if c.Source == "tag" {
					tags += c.Observations
				} else {
					reflections += c.Observations
				}
			}
			if tags == 0 || reflections == 0 {
				t.Fatal("the truth has no observations")
			}
			if row.hidden {
				if got.reasons[decode.Hidden] != r.Captured || got.kinds != [3]uint64{} {
					t.Errorf("%d of %d frames are hidden, %v observations", got.reasons[decode.Hidden], r.Captured, got.kinds)
				}
				return
			}
			if row.outer {
				reflections = 0
			}
			// Some acknowledgements are sent twice: the truth counts their reflections once.
			if got.kinds[decode.Tag] != tags || got.kinds[decode.Reflection] < reflections || (reflections == 0) != (got.kinds[decode.Reflection] == 0) {
				t.Errorf("%d tags and %d reflections, want %d and at least %d", got.kinds[decode.Tag], got.kinds[decode.Reflection], tags, reflections)
			}
			if got.orphans > 0 || got.reasons[decode.OK]+got.reasons[decode.NoCSIG] != r.Captured {
				t.Errorf("%d orphans, reasons %v", got.orphans, got.reasons)
			}
		})
	}
}

// decodedFile is what a capture says.
type decodedFile struct {
	kinds   [3]uint64 // observations by decode.Kind
	orphans uint64
	reasons [decode.NumReasons]uint64
	stacks  map[string]uint64 // frames by encapsulation
}

func decodeFile(t *testing.T, path string) decodedFile {
	t.Helper()
	domain, err := csig.DefaultSpec().Compile()
	if err != nil {
		t.Fatal(err)
	}
	d, err := decode.New(decode.Config{Domain: domain})
	if err != nil {
		t.Fatal(err)
	}
	r, err := capture.Open(path, capture.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	out := decodedFile{stacks: map[string]uint64{}}
	var batch capture.Batch
	var result decode.Result
	for {
		if err := r.ReadBatch(&batch); err != nil {
			if !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			return out
		}
		for i := range batch.N {
			d.Decode(batch.Frames[i].Data, &result)
			out.reasons[result.Reason]++
			out.stacks[names(&result.Encap)]++
			for _, o := range result.Obs[:result.N] {
				out.kinds[o.Kind]++
				if o.Flags&decode.Orphan != 0 {
					out.orphans++
				}
			}
		}
	}
}

// TestScenariosTakeEncapsulations: whatever happens to packets, trimmed and stripped
// ones included, their frames stay whole in every encapsulation.
func TestScenariosTakeEncapsulations(t *testing.T) {
	long(t)
	next := 0
	for _, name := range Names() {
		for range 2 {
			s, err := Named(name)
			if err != nil {
				t.Fatal(err)
			}
			row := encapRows[next%len(encapRows)]
			s.Encap, s.IP, s.Underlay = row.encap, 4+2*(next%2), 4+2*(next/2%2)
			if !row.outer && next%3 == 0 {
				s.EncapAt = atLeaves
			}
			for i := range s.Workloads {
				s.Workloads[i].Encap, s.Workloads[i].EncapAt = "", ""
			}
			next++
			s.Taps = []Tap{{Racks: true}, {Name: "all", Ports: []string{"*"}}}
			if s.Packets = 4_000; name == "trimming" {
				s.Packets, s.Duration = 0, 1200*time.Millisecond
			}
			s.SnapLen, s.SingleFile, s.Classic, s.CaptureUntagged = 512, true, false, true
			r, _ := run(t, s)
			got := decodeFile(t, r.Captures[0])
			good := got.reasons[decode.OK] + got.reasons[decode.NoCSIG] + got.reasons[decode.Hidden]
			if good != r.Captured || got.orphans > 0 && name != "rogue" {
				t.Errorf("%s in %s: %d of %d frames are whole: %v; %d orphans", name, row.encap, good, r.Captured, got.reasons, got.orphans)
			}
		}
	}
}

// TestTagsMoveThroughTunnels: between leaves the tunnel's own L2 carries the tag, and
// the receiver finds it where it was before; what switches write does not depend on
// the tunnel, and a route that turns around in its leaf meets none.
func TestTagsMoveThroughTunnels(t *testing.T) {
	s := tiny()
	s.Encap, s.EncapAt = "vxlan", atLeaves
	s.Duration, s.BufferBytes = 300*1e6, 1<<20
	s.Workloads = append(s.Workloads, Workload{Kind: AllToAll, Racks: []int{1}, Rate: Mbps})
	s.Taps = []Tap{
		{Racks: true},
		{Name: "sent", After: []string{"host*"}},
		{Name: "spines", Before: []string{"spine*"}},
		{Name: "down", Ports: []string{"spine*:down*"}},
	}
	_, dir := run(t, s)
	for name, want := range map[string]string{"rack1": "", "sent": "", "spines": "vxlan", "down": "vxlan"} {
		got := decodeFile(t, filepath.Join(dir, name+".pcapng"))
		if got.orphans > 0 || got.kinds[decode.Tag] == 0 || len(got.stacks) != 1 || got.stacks[want] == 0 {
			t.Errorf("%s: %d tags, %d orphans, encapsulations %v, want %q", name, got.kinds[decode.Tag], got.orphans, got.stacks, want)
		}
	}
	// The tunnel is between the leaves' own addresses, and one hop to what is inside; a
	// route of one switch is one hop without it.
	const wide = 2 + 6 // TPID and data fields
	frames, _ := framesOf(t, filepath.Join(dir, "down.pcapng"))
	for i := range frames {
		ip := frames[i].Data[ethernetLen:]
		if binary.BigEndian.Uint16(frames[i].Data[12:]) != 0x0800 {
			ip = ip[wide:]
		}
		inner := ip[ipv4Len+8+8+ethernetLen:]
		if ip[15] != vtepHost || ip[19] != vtepHost || ip[8] != 63 || inner[8] != 63 {
			t.Fatalf("behind a spine: outer %x, inner %x", ip[:ipv4Len], inner[:ipv4Len])
		}
	}
	frames, _ = framesOf(t, filepath.Join(dir, "rack1.pcapng"))
	hops := map[bool]map[byte]bool{true: {}, false: {}}
	for i := range frames {
		ip := frames[i].Data[ethernetLen:]
		if binary.BigEndian.Uint16(frames[i].Data[12:]) != 0x0800 {
			ip = ip[wide:]
		}
		hops[ip[14] == ip[18]][64-ip[8]] = true
	}
	if len(hops[true]) != 1 || !hops[true][1] || len(hops[false]) != 1 || !hops[false][2] {
		t.Errorf("hops to the receiver: %v inside of the rack, %v from others; want 1 and 2", hops[true], hops[false])
	}
}
