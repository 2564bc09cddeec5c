package filter

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/bpf"

	"github.com/csigscope/csigscope/capture/livetest"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

func TestNewNeedsADomain(t *testing.T) {
	for _, f := range []func(Config) ([]bpf.RawInstruction, error){New, Fanout} {
		if _, err := f(Config{}); err == nil || !strings.Contains(err.Error(), "no domain") {
			t.Errorf("error %v, want one that says that there is no domain", err)
		}
	}
}

// TestFitsTheKernel configures the maximum that csig accepts: then the filter follows fewer
// tunnels, and passes the rest.
func TestFitsTheKernel(t *testing.T) {
	dom := domain(t, func(s *csig.Spec) {
		s.TPIDs, s.Reflections, s.UDPReflections = nil, nil, nil
		for i := range 16 {
			s.TPIDs = append(s.TPIDs, csig.TPIDSpec{TPID: uint16(0xa000 + i), Format: "compact", Profile: "ietf01"})
		}
		for i := range 12 {
			u := csig.UDPReflectionSpec{Offset: 20, Format: "compact", Profile: "ietf01"}
			for port := range 16 {
				u.Ports = append(u.Ports, uint16(20000+i*16+port))
			}
			s.UDPReflections = append(s.UDPReflections, u)
		}
	})
	cfg := Config{Decode: decode.Config{Domain: dom}}
	raw, err := New(cfg)
	if err != nil || len(raw) > maxInstructions {
		t.Fatalf("%d instructions, %v", len(raw), err)
	}
	m := newMachine(t, cfg)
	if n := m.run(livetest.Tagged(livetest.Plain(1, 2, 60), 0xa00f<<16), 0); n != int(SnapLen(cfg)) {
		t.Errorf("%d bytes of the last TPID's frame pass", n)
	}
	if n := m.run(livetest.Plain(1, 2, 60), 0); n != 0 {
		t.Errorf("%d bytes of a plain frame pass", n)
	}
}

// TestStrippedTPID passes frames whose stripped tag is itself a CSIG tag.
func TestStrippedTPID(t *testing.T) {
	m := newMachine(t, Config{Decode: decode.Config{Domain: domain(t, nil)}, SnapLen: 99})
	for tpid, want := range map[uint16]int{0: 0, 0x8100: 0, 0x9900: 99} {
		if n := m.run(livetest.Plain(1, 2, 60), tpid); n != want {
			t.Errorf("stripped %#x: %d bytes, want %d", tpid, n, want)
		}
	}
}

func TestSnapLen(t *testing.T) {
	deep := domain(t, func(s *csig.Spec) {
		s.UDPReflections = []csig.UDPReflectionSpec{{Ports: []uint16{4000}, Offset: 1000, Format: "wide", Profile: "uec050"}}
	})
	for _, tc := range []struct {
		cfg  Config
		want uint32
	}{
		{Config{}, 480},
		{Config{Decode: decode.Config{Domain: deep}}, 480 + 8 + 1000 + 6 - 60},
	} {
		if got := SnapLen(tc.cfg); got != tc.want {
			t.Errorf("%d bytes, want %d", got, tc.want)
		}
	}
}

// inERSPAN returns the frame in a mirror session of a type (draft-foschiano-erspan-03).
func inERSPAN(kind int, frame []byte) []byte {
	b := livetest.Plain(3, 4, 60)[:34]
	b[23] = 47
	switch kind {
	case 1:
		b = append(b, 0, 0, 0x88, 0xbe)
	case 2:
		b = append(b, 0x10, 0, 0x88, 0xbe, 0, 0, 0, 1, 0x10, 0, 0, 7, 0, 0, 0, 0)
	case 3:
		b = append(append(b, 0x10, 0, 0x22, 0xeb, 0, 0, 0, 1), 0x20, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0)
	case 4: // with a subheader
		b = append(append(b, 0x10, 0, 0x22, 0xeb, 0, 0, 0, 1), 0x20, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0)
	}
	binary.BigEndian.PutUint16(b[16:], uint16(len(b)-14+len(frame)))
	return append(b, frame...)
}

// TestMirrors passes mirrored frames by their content, whether the tap holds mirrors or not: in
// sessions that it does not hold, decode counts orphans.
func TestMirrors(t *testing.T) {
	dec := decode.Config{Domain: domain(t, nil)}
	m := newMachine(t, Config{Decode: dec})
	plain := livetest.Plain(1, 2, 60)
	for _, tags := range [][]uint32{nil, {0x8100<<16 | 5}, {0x9900 << 16}, {0x8100<<16 | 5, 0x9900 << 16}} {
		frame, want := livetest.Tagged(plain, tags...), slices.Contains(tags, 0x9900<<16)
		for kind := 1; kind <= 4; kind++ {
			if mirrored := inERSPAN(kind, frame); check(t, m, mirrored) != want || finds(t, dec, mirrored) != want {
				t.Errorf("ERSPAN, type %d of a frame with tags %x: want %t", kind, tags, want)
			}
		}
		for _, fields := range [][]byte{{1}, {0, 0, 40, 4, 0, 0, 0, 7, 1}, {13, 4, 0, 0, 0, 0, 41, 2, 0, 60, 60, 6, 2, 0, 0, 0, 0, 1, 1}} {
			if mirrored := inUDP(decode.TZSPPort, append([]byte{1, 0, 0, 1}, fields...), frame); check(t, m, mirrored) != want || finds(t, dec, mirrored) != want {
				t.Errorf("TZSP with fields %x of a frame with tags %x: want %t", fields, tags, want)
			}
		}
	}
	for name, head := range map[string][]byte{"keepalive": {1, 4, 0, 1, 1}, "other version": {2, 0, 0, 1, 1}, "other link": {1, 0, 0, 18, 1}, "short": {1, 0}} {
		if m.run(inUDP(decode.TZSPPort, head, livetest.Tagged(plain, 0x9900<<16)), 0) != 0 {
			t.Errorf("TZSP, %s: passes", name)
		}
	}
	const vxlan, tzsp = 14789, 13008
	own := newMachine(t, Config{Decode: dec, VXLANPort: vxlan, TZSPPort: tzsp})
	for port, head := range map[uint16][]byte{vxlan: {8, 0, 0, 0, 0, 0, 7, 0}, tzsp: {1, 0, 0, 1, 1}} {
		for tag, want := range map[uint32]bool{0x9900 << 16: true, 0x8100 << 16: false} {
			frame := inUDP(port, head, livetest.Tagged(plain, tag))
			if (own.run(frame, 0) > 0) != want || m.run(frame, 0) > 0 {
				t.Errorf("mirrored to port %d with tag %#x: want %t where the port is configured, and nothing elsewhere", port, tag, want)
			}
		}
	}
}

// inUDP returns the frame behind the header of a mirror session over UDP.
func inUDP(port uint16, head, frame []byte) []byte {
	b := livetest.Plain(1, 2, 60)[:42]
	binary.BigEndian.PutUint16(b[36:], port)
	n := 8 + len(head) + len(frame)
	binary.BigEndian.PutUint16(b[16:], uint16(20+n))
	binary.BigEndian.PutUint16(b[38:], uint16(n))
	return append(append(b, head...), frame...)
}
