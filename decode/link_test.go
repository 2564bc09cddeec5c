package decode_test

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// TestLinkTypes puts the header of each link type in place of the addresses of every frame, whole
// and truncated: the result stays the same.
func TestLinkTypes(t *testing.T) {
	t.Parallel()
	dom := domain(t, csig.DefaultSpec())
	for _, link := range []decode.Link{decode.Ethernet, decode.LinuxSLL, decode.LinuxSLL2} {
		if !link.Known() {
			t.Errorf("link type %d is not known", link)
		}
		d := decoder(t, dom)
		for _, g := range goldens(t) {
			for n := 14; n <= len(g.Data); n++ {
				etherType, packet, ok := d.Network(decode.Ethernet, g.Data[:n])
				if e, p, is := d.Network(link, asLink(link, g.Data[:n])); e != etherType || is != ok || !bytes.Equal(p, packet) {
					t.Fatalf("link type %d, %s cut at %d: packet %#x %x %t, want %#x %x %t", link, g.Name, n, e, p, is, etherType, packet, ok)
				}
				var want, got decode.Result
				d.Decode(g.Data[:n], &want)
				d.DecodeFrame(decode.Framing{Link: link}, &decode.Frame{Data: asLink(link, g.Data[:n])}, &got)
				want.Obs, got.Obs = want.Obs[:want.N], got.Obs[:got.N]
				if !reflect.DeepEqual(want, got) { // cmp would take ten times as long
					t.Fatalf("link type %d, %s cut at %d (-Ethernet +link):\n%s", link, g.Name, n, cmp.Diff(want, got, cmp.AllowUnexported(decode.Stack{})))
				}
			}
		}
		c := d.Counters()
		for reason, n := range c.Reasons {
			if n%2 != 0 {
				t.Errorf("link type %d: %s is counted %d times", link, decode.Reason(reason), n)
			}
		}
	}
}

// asLink returns a frame in a cooked capture of a host's receiving interface 2.
func asLink(link decode.Link, frame []byte) []byte {
	etherType, rest := frame[12:14], frame[14:]
	const arphrdEthernet = 1
	var b []byte
	switch link {
	case decode.LinuxSLL:
		b = binary.BigEndian.AppendUint16(b, 0)              // packet type: to us
		b = binary.BigEndian.AppendUint16(b, arphrdEthernet) // device type
		b = append(b, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0)          // length of the address, address
		b = append(b, etherType...)
	case decode.LinuxSLL2:
		b = append(b, etherType...)
		b = append(b, 0, 0, 0, 0, 0, 2, 0, arphrdEthernet, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0)
	default:
		return frame
	}
	return append(b, rest...)
}

func TestLinkOddities(t *testing.T) {
	t.Parallel()
	d := decoder(t, domain(t, csig.DefaultSpec()))
	frame := goldenFrame(t, "compact_ietf01_tcp")
	var r decode.Result
	for _, tc := range []struct {
		link decode.Link
		len  int
		want decode.Reason
	}{
		{decode.LinuxSLL, 15, decode.CutEthernet},
		{decode.LinuxSLL2, 19, decode.CutEthernet},
		{decode.LinuxSLL2, 0, decode.CutEthernet},
		{101, len(frame), decode.UnknownLink},
	} {
		d.DecodeFrame(decode.Framing{Link: tc.link}, &decode.Frame{Data: frame[:tc.len]}, &r)
		if r.Reason != tc.want || r.N != 0 {
			t.Errorf("link type %d, %d bytes: %s, want %s", tc.link, tc.len, r.Reason, tc.want)
		}
		if _, ok := d.DecodeUntagged(tc.link, frame[:tc.len], new(decode.Observation)); ok {
			t.Errorf("link type %d, %d bytes: endpoints are read", tc.link, tc.len)
		}
	}
	if decode.Link(101).Known() {
		t.Error("raw IP is a known link type")
	}
}
