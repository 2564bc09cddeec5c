package decode_test

import (
	"encoding/binary"
	"testing"

	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// tcpFrame returns one byte of data over IPv4, with a fragment's flags and a stated length.
func tcpFrame(flags uint16, total uint16) []byte {
	b := make([]byte, 14+20+20+1)
	binary.BigEndian.PutUint16(b[12:], 0x0800)
	ip := b[14:]
	ip[0], ip[8], ip[9], ip[15], ip[19] = 0x45, 64, 6, 1, 2
	binary.BigEndian.PutUint16(ip[2:], total)
	binary.BigEndian.PutUint16(ip[6:], flags)
	ip[20+12] = 5 << 4
	return b
}

// TestSegment: a whole segment of a stated length is kept until the next frame, if requested.
func TestSegment(t *testing.T) {
	t.Parallel()
	domain := func(reflections ...csig.ReflectionSpec) *csig.Domain {
		spec := csig.DefaultSpec()
		spec.Reflections = reflections
		domain, err := spec.Compile()
		if err != nil {
			t.Fatal(err)
		}
		return domain
	}
	reflects, none := domain(csig.DefaultSpec().Reflections...), domain()
	for name, test := range map[string]struct {
		frame []byte
		asked bool
		left  int
	}{
		"whole":             {tcpFrame(0, 41), true, 21},
		"no reflections":    {tcpFrame(0, 41), true, 21},
		"do not fragment":   {tcpFrame(0x4000, 41), true, 21},
		"first fragment":    {tcpFrame(0x2000, 41), true, 0},
		"second fragment":   {tcpFrame(5, 41), true, 0},
		"no length":         {tcpFrame(0, 0), true, 0},
		"not asked for":     {tcpFrame(0, 41), false, 0},
		"cut in the header": {tcpFrame(0, 41)[:50], true, 0},
	} {
		cfg := decode.Config{Domain: reflects, Segments: test.asked}
		if name == "no reflections" {
			cfg.Domain = none
		}
		d, err := decode.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		var r decode.Result
		d.Decode(test.frame, &r)
		s, ok := d.Segment()
		if ok != (test.left > 0) || ok && (s.Left != test.left || len(s.TCP) != 21 || s.IP[19] != 2) {
			t.Errorf("%s: %+v, %t", name, s, ok)
		}
		if h, is := d.Transport(); is != ok || is && (h.Proto != 6 || len(h.Header) != 21 || h.Left != test.left) {
			t.Errorf("%s: the header is %+v, %t", name, h, is)
		}
		d.Decode(test.frame[:20], &r)
		if _, ok := d.Segment(); ok {
			t.Errorf("%s: the segment of the frame before is kept", name)
		}
	}
}
