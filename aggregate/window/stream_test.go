package window_test

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// nothing is a sink.
type nothing struct{}

func (nothing) WriteBlock(context.Context, *aggregate.Block) error { return nil }

func stream(t *testing.T, link decode.Link, holds decode.Mirrors) *window.Stream {
	t.Helper()
	domain, err := csig.DefaultSpec().Compile()
	if err != nil {
		t.Fatal(err)
	}
	settings := window.Settings{Decode: decode.Config{Domain: domain}, Resolver: fabric.None(domain)}
	tap := window.TapAt("", 1)
	tap.Mirrors = holds
	s, err := window.NewStream(&settings, tap, window.Origin{Link: link}, nothing{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ipv4 is a packet between two hosts.
var ipv4 = []byte{0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 1, 1, 10, 0, 2, 1, 0, 1, 0, 2, 0, 8, 0, 0}

func frame(head ...byte) *capture.Frame {
	data := append(append(make([]byte, 12), head...), ipv4...)
	return &capture.Frame{Data: data, TimeNS: time.Now().UnixNano(), WireLen: uint32(len(data))}
}

// TestStripped: a tag beside its frame counts like the sent one, and so does a VLAN tag before it.
func TestStripped(t *testing.T) {
	l := stream(t, decode.Ethernet, decode.Mirrors{})
	sent := frame(0x99, 0x00, 0x2b, 0x85, 0x08, 0x00)
	beside := frame(0x08, 0x00)
	beside.TPID, beside.TCI = 0x9900, 0x2b85
	vlan := frame(0x99, 0x00, 0x2b, 0x85, 0x08, 0x00)
	vlan.TPID, vlan.TCI = 0x8100, 7
	for _, frame := range []*capture.Frame{sent, beside, vlan, frame(0x08, 0x00)} {
		if err := l.Add(t.Context(), []capture.Frame{*frame}); err != nil {
			t.Fatal(err)
		}
	}
	if found := l.Tally().Found.List(); l.Counts().In != 0 || len(found) != 1 || found[0].Count != 3 {
		t.Errorf("%d observations in the shard, found %+v; want 3 compact tags that wait", l.Counts().In, found)
	}
	if err := l.Pass(t.Context()); err != nil || l.Counts().In != 3 {
		t.Errorf("%d of 3 observations are in the shard, %v", l.Counts().In, err)
	}
	if l.Decoded().Frames != 4 || l.Tally().Frames[decode.NoCSIG] != 1 {
		t.Errorf("counted %+v", l.Tally())
	}
}

// carrying returns a packet between two other hosts with a frame behind the head of a tunnel.
func carrying(protocol byte, head []byte, f *capture.Frame) *capture.Frame {
	n := 20 + len(head) + len(f.Data)
	ip := []byte{0x45, 0, byte(n >> 8), byte(n), 0, 0, 0, 0, 64, protocol, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2}
	data := slices.Concat(make([]byte, 12), []byte{0x08, 0x00}, ip, head, f.Data)
	return &capture.Frame{Data: data, TimeNS: f.TimeNS, WireLen: uint32(len(data))}
}

// reflecting returns a frame with a reflection over TCP.
func reflecting() *capture.Frame {
	f := frame(0x08, 0x00)
	tcp := []byte{0, 80, 0, 90, 0, 0, 0, 1, 0, 0, 0, 1, 0x70, 0x10, 0xff, 0xff, 0, 0, 0, 0, 253, 6, 0xc5, 0x16, 0x2b, 0x85, 1, 1}
	f.Data = append(f.Data[:34], tcp...)
	f.Data[14+3], f.Data[14+9] = byte(20+len(tcp)), 6
	f.WireLen = uint32(len(f.Data))
	return f
}

// TestMirrors: tags and reflections in a mirror session count if the tap holds such sessions.
// Elsewhere anybody can have sent them: they are orphans of the packet around them, whatever its
// encapsulation, and enter no window.
// TestTallyTimes: times that no store holds are none of the tap's.
func TestTallyTimes(t *testing.T) {
	l := stream(t, decode.Ethernet, decode.Mirrors{})
	frames := []capture.Frame{{TimeNS: aggregate.EndOfTime}, {TimeNS: 5}, {TimeNS: -1}, {TimeNS: aggregate.EndOfTime - 1}, {TimeNS: 1, NoTime: true}}
	if err := l.Add(t.Context(), frames); err != nil {
		t.Fatal(err)
	}
	if tally := l.Tally(); tally.Packets != 5 || tally.Timed != 2 || tally.First != 5 || tally.Last != aggregate.EndOfTime-1 {
		t.Errorf("%+v", tally)
	}
}

func TestMirrors(t *testing.T) {
	const gre, udp = 47, 17
	every := decode.Mirrors{ERSPAN: true, GRETAP: true, VXLAN: decode.DefaultVXLANPort, TZSP: decode.TZSPPort}
	inUDP := func(port uint16, head ...byte) []byte {
		return append([]byte{0xc0, 0, byte(port >> 8), byte(port), 0, 0, 0, 0}, head...)
	}
	erspan := []byte{0x10, 0, 0x88, 0xbe, 0, 0, 0, 1, 0x10, 0, 0, 7, 0, 0, 0, 0}
	for name, kind := range map[string]struct {
		protocol byte
		head     []byte
		holds    decode.Mirrors
		tunnel   bool // else: reflections inside belong to its endpoints
	}{
		"erspan I":   {gre, []byte{0, 0, 0x88, 0xbe}, decode.Mirrors{ERSPAN: true}, false},
		"erspan II":  {gre, erspan, decode.Mirrors{ERSPAN: true}, false},
		"erspan III": {gre, []byte{0x10, 0, 0x22, 0xeb, 0, 0, 0, 1, 0x20, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 1, 20, 0, 0, 0, 0, 0, 0, 0}, decode.Mirrors{ERSPAN: true}, false},
		"gretap":     {gre, []byte{0, 0, 0x65, 0x58}, decode.Mirrors{GRETAP: true}, true},
		"vxlan":      {udp, inUDP(4789, 8, 0, 0, 0, 0, 0, 7, 0), decode.Mirrors{VXLAN: decode.DefaultVXLANPort}, true},
		"tzsp":       {udp, inUDP(37008, 1, 0, 0, 1, 40, 4, 0, 0, 0, 1, 1), decode.Mirrors{TZSP: decode.TZSPPort}, false},
	} {
		others := every
		if kind.holds.ERSPAN {
			others.ERSPAN = false
		}
		if kind.holds.GRETAP {
			others.GRETAP = false
		}
		if kind.holds.VXLAN != 0 {
			others.VXLAN = 0
		}
		if kind.holds.TZSP != 0 {
			others.TZSP = 0
		}
		tag, reflection := frame(0x99, 0x00, 0x2b, 0x85, 0x08, 0x00), reflecting()
		wrap := func(f *capture.Frame) *capture.Frame { return carrying(kind.protocol, kind.head, f) }
		vlan, stripped := wrap(tag), wrap(tag)
		vlan.Data = slices.Insert(vlan.Data, 12, 0x81, 0x00, 0, 7)
		stripped.TPID, stripped.TCI = 0x8100, 7
		own := wrap(tag)
		own.Data = slices.Insert(own.Data, 12, 0x99, 0x00, 0x2b, 0x86)
		beside := wrap(tag)
		beside.TPID, beside.TCI = 0x9900, 0x2b86
		fragment := wrap(tag)
		fragment.Data[14+6] = 0x20
		for what, test := range map[string]struct {
			link       decode.Link
			holds      decode.Mirrors
			frame      *capture.Frame
			in, orphan uint64
		}{
			"a tag":                        {decode.Ethernet, decode.Mirrors{}, wrap(tag), 0, 1},
			"a tag, others held":           {decode.Ethernet, others, wrap(tag), 0, 1},
			"a tag, held":                  {decode.Ethernet, kind.holds, wrap(tag), 1, 0},
			"a tag, all held":              {decode.Ethernet, every, wrap(tag), 1, 0},
			"behind a VLAN tag":            {decode.Ethernet, decode.Mirrors{}, vlan, 0, 1},
			"behind a VLAN tag, held":      {decode.Ethernet, kind.holds, vlan, 1, 0},
			"behind a stripped tag":        {decode.Ethernet, decode.Mirrors{}, stripped, 0, 1},
			"behind a stripped tag, held":  {decode.Ethernet, kind.holds, stripped, 1, 0},
			"the path's own tag":           {decode.Ethernet, decode.Mirrors{}, own, 1, 1},
			"the path's own tag, held":     {decode.Ethernet, every, own, 2, 0},
			"the path's stripped tag":      {decode.Ethernet, decode.Mirrors{}, beside, 1, 1},
			"the path's stripped tag,held": {decode.Ethernet, every, beside, 2, 0},
			"a mirror of a mirror":         {decode.Ethernet, decode.Mirrors{}, wrap(wrap(tag)), 0, 1},
			"a mirror of a mirror, held":   {decode.Ethernet, every, wrap(wrap(tag)), 0, 1},
			"a mirror in ERSPAN, held":     {decode.Ethernet, every, carrying(gre, erspan, wrap(tag)), 0, 1},
			"a fragment":                   {decode.Ethernet, decode.Mirrors{}, fragment, 0, 1},
			"a fragment, held":             {decode.Ethernet, every, fragment, 1, 0},
			"a reflection, held":           {decode.Ethernet, kind.holds, wrap(reflection), 1, 0},
			"in a cooked capture":          {decode.LinuxSLL, decode.Mirrors{}, cooked(wrap(tag)), 0, 1},
			"in a cooked capture, held":    {decode.LinuxSLL, every, cooked(wrap(tag)), 1, 0},
		} {
			l := stream(t, test.link, test.holds)
			if err := errors.Join(l.Add(t.Context(), []capture.Frame{*test.frame}), l.Pass(t.Context())); err != nil {
				t.Fatal(err)
			}
			c := l.Counts()
			if orphans := c.Rejected[aggregate.RejectOrphan]; c.In != test.in+test.orphan || orphans != test.orphan || l.Decoded().Orphans != test.orphan {
				t.Errorf("%s, %s: %d observations, %d of them orphans; want %d that count and %d orphans", name, what, c.In, orphans, test.in, test.orphan)
			}
		}
		l := stream(t, decode.Ethernet, others)
		if err := errors.Join(l.Add(t.Context(), []capture.Frame{*wrap(reflection)}), l.Pass(t.Context())); err != nil {
			t.Fatal(err)
		}
		if orphans := l.Counts().Rejected[aggregate.RejectOrphan]; (orphans == 0) != kind.tunnel {
			t.Errorf("%s, a reflection: %d orphans", name, orphans)
		}
		checkEnds(t, name, kind.holds, wrap(tag), tag)
		checkEnds(t, name, kind.holds, wrap(reflection), reflection)
	}
}

// TestCarrierElsewhere: the place of a tap is that of mirrored frames. At a sender, a tag around one is no tag that
// a sender forged.
func TestCarrierElsewhere(t *testing.T) {
	domain, err := csig.DefaultSpec().Compile()
	if err != nil {
		t.Fatal(err)
	}
	f := carrying(47, []byte{0, 0, 0x88, 0xbe}, frame(0x99, 0x00, 0x2f, 0x80, 0x08, 0x00)) // an initial value
	f.Data = slices.Insert(f.Data, 12, 0x99, 0x00, 0x2b, 0x86)
	for place, refused := range map[string]uint64{"receiver": 0, "sender": 2, "mid": 2} {
		settings := window.Settings{Decode: decode.Config{Domain: domain}, Resolver: fabric.None(domain)}
		settings.Finding = &finding.Config{Domain: domain, Locator: fabric.None(domain)}
		tap := window.TapAt(place, 3)
		tap.Mirrors = decode.Mirrors{ERSPAN: true}
		s, err := window.NewStream(&settings, tap, window.Origin{File: "mirrored", Link: decode.Ethernet}, nothing{})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(s.Add(t.Context(), []capture.Frame{*f, *f}), s.Flush(t.Context())); err != nil {
			t.Fatal(err)
		}
		if c := s.Counts(); c.In != 4*3 || c.Rejected[aggregate.RejectPlace] != 2*refused*3 {
			t.Errorf("%s: %+v", place, c)
		}
		if found := s.Findings(); len(found) > 0 {
			t.Errorf("%s: found %+v", place, found)
		}
	}
}

// cooked returns the frame in a capture on all interfaces.
func cooked(f *capture.Frame) *capture.Frame {
	f.Data = slices.Insert(f.Data[12:], 0, make([]byte, 14)...)
	return f
}

// checkEnds: an observation has the addresses and the length of the mirrored frame if the tap holds
// such sessions, else those of the packet.
func checkEnds(t *testing.T, name string, holds decode.Mirrors, f, inner *capture.Frame) {
	t.Helper()
	domain, err := csig.DefaultSpec().Compile()
	if err != nil {
		t.Fatal(err)
	}
	d, err := decode.New(decode.Config{Domain: domain})
	if err != nil {
		t.Fatal(err)
	}
	var r decode.Result
	var bare decode.Observation
	for _, test := range []struct {
		holds  decode.Mirrors
		length uint32
		src    string
	}{{decode.Mirrors{}, f.WireLen, "192.0.2.1"}, {holds, inner.WireLen, "10.0.1.1"}} {
		in, whole := window.FrameOf(f), f.Data
		d.DecodeFrame(decode.Framing{Link: decode.Ethernet, Mirrors: test.holds}, &in, &r)
		length := r.Obs[0].Bytes
		src, _ := r.Obs[0].Addrs()
		if inner, _, ok := d.Mirrored(); ok {
			whole = inner.Data
		}
		d.DecodeUntagged(decode.Ethernet, whole, &bare)
		if from, _ := bare.Addrs(); length != test.length || r.N != 1 || src.String() != test.src || from != src {
			t.Errorf("%s, %q held: %d bytes, %d observations from %s, without a tag from %s; want %d bytes from %s", name, test.holds, length, r.N, src, from, test.length, test.src)
		}
	}
}

// TestNoAllocations: the path of a packet does not allocate.
func TestNoAllocations(t *testing.T) {
	for _, holds := range []decode.Mirrors{{}, {ERSPAN: true, VXLAN: decode.DefaultVXLANPort}} {
		l := stream(t, decode.Ethernet, holds)
		frames := make([]capture.Frame, 1000)
		start := time.Now().UnixNano()
		for i := range frames {
			f := frame(0x99, 0x00, 0x2b, byte(i&15), 0x08, 0x00)
			if i&1 != 0 {
				f = carrying(47, []byte{0, 0, 0x88, 0xbe}, f)
			}
			f.TimeNS = start
			frames[i] = *f
		}
		run := func() {
			if err := l.Add(t.Context(), frames); err != nil {
				t.Fatal(err)
			}
		}
		run()
		if n := testing.AllocsPerRun(10, run); n > 0 {
			t.Errorf("%q held: %v allocations for %d packets", holds, n, len(frames))
		}
	}
}

// TestLiveTap: a stream of live frames finds the faults of its tap, and one of a file leaves them
// to a report.
func TestLiveTap(t *testing.T) {
	for file, want := range map[string][]finding.Kind{"": {finding.DuplicateFrames, finding.ClockSet}, "a.pcap": nil} {
		domain, err := csig.DefaultSpec().Compile()
		if err != nil {
			t.Fatal(err)
		}
		settings := window.Settings{Decode: decode.Config{Domain: domain}, Resolver: fabric.None(domain)}
		settings.Finding = &finding.Config{Domain: domain, Locator: fabric.None(domain)}
		s, err := window.NewStream(&settings, window.TapAt("", 1), window.Origin{Name: "eth1", File: file, Link: decode.Ethernet}, nothing{})
		if err != nil {
			t.Fatal(err)
		}
		f := frame(0x99, 0x00, 0x2b, 0x85, 0x08, 0x00)
		plain, start := f.Data, int64(1)<<60 // in an interval in which frames are compared
		for i := range int64(200) {
			f.Data, f.TimeNS = binary.BigEndian.AppendUint16(plain[:len(plain):len(plain)], uint16(i/2)), start+i // each comes twice
			if i >= 100 {
				f.TimeNS -= int64(time.Second)
			}
			if err := s.Add(t.Context(), []capture.Frame{*f}); err != nil {
				t.Fatal(err)
			}
		}
		f.Data, f.TimeNS = plain, start+3<<29 // no sender has repeated them by then
		if err := s.Add(t.Context(), []capture.Frame{*f}); err != nil {
			t.Fatal(err)
		}
		var got []finding.Kind
		for _, one := range s.Findings() {
			if got = append(got, one.Kind); one.Subject != "eth1" {
				t.Errorf("file %q: %+v", file, one)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("file %q: found %v, want %v", file, got, want)
		}
	}
}

// elsewhere names another location for each locator.
type elsewhere struct{ fakeResolver }

func (elsewhere) Locate(csig.Layout, uint8, uint16, netip.Addr, netip.Addr) (aggregate.LocationID, uint64) {
	return 77, 0
}

// TestOtherResolver: a stream follows another resolver of the same epoch, such as one that knows of taps at other places in
// the fabric.
func TestOtherResolver(t *testing.T) {
	settings := window.Settings{Decode: decode.Config{Domain: defaultDomain(t)}, Resolver: fakeResolver{}, Resolutions: []time.Duration{time.Minute}}
	var sink collector
	l, err := window.NewStream(&settings, window.TapAt("", 1), window.Origin{Link: decode.Ethernet}, &sink)
	if err != nil {
		t.Fatal(err)
	}
	var want []uint64
	for _, r := range []aggregate.Resolver{fakeResolver{}, elsewhere{}, fakeResolver{}} {
		settings.Resolver = r
		if err := l.Reconfigure(t.Context(), &settings, l.Tap()); err != nil {
			t.Fatal(err)
		}
		if err := l.Add(t.Context(), []capture.Frame{*frame(0x99, 0x00, 0x20, 0x05, 0x08, 0x00)}); err != nil {
			t.Fatal(err)
		}
		at, _ := r.Locate(csig.Layout{}, 0, 5, netip.Addr{}, netip.Addr{})
		want = append(want, uint64(at))
	}
	if err := l.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	var got []uint64
	for _, b := range sink.blocks {
		got = append(got, b.Location...)
	}
	if !slices.Equal(got, want) {
		t.Errorf("locations %d, want %d", got, want)
	}
}
