package decode_test

import (
	"net/netip"
	"testing"

	"github.com/csigscope/csigscope/decode"
)

// TestSessionKeys: keys survive a round trip, and nothing else is accepted as one.
func TestSessionKeys(t *testing.T) {
	for text, want := range map[string]decode.SessionKey{
		"erspan/192.0.2.1/1023":              {decode.MirrorERSPAN, switchV4, 1023},
		"gretap/2001:db8::1/4294967295":      {decode.MirrorGRETAP, netip.MustParseAddr("2001:db8::1"), 1<<32 - 1},
		"vxlan/192.0.2.1/16777215":           {decode.MirrorVXLAN, switchV4, 1<<24 - 1},
		"tzsp/192.0.2.1/0":                   {decode.MirrorTZSP, switchV4, 0},
		"tzsp/192.0.2.1/02:00:00:00:00:01":   {decode.MirrorTZSP, switchV4, 0x020000000001},
		"tzsp/2001:db8::1/ff:ff:ff:ff:ff:ff": {decode.MirrorTZSP, netip.MustParseAddr("2001:db8::1"), 1<<48 - 1},
		"erspan/fe80::1%eth0/0":              {decode.MirrorERSPAN, netip.MustParseAddr("fe80::1%eth0"), 0},
		"gretap/::ffff:192.0.2.1/7":          {decode.MirrorGRETAP, netip.MustParseAddr("::ffff:192.0.2.1"), 7},
	} {
		got, err := decode.ParseSessionKey(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%s: %+v (%s), %v", text, got, got, err)
		}
	}
	for _, text := range []string{
		"", "others", "erspan/192.0.2.1", "erspan/192.0.2.1/1024", "vxlan/192.0.2.1/16777216", "gretap/192.0.2.1/-1", "gretap/switch/1",
		"sflow/192.0.2.1/1", "tzsp/192.0.2.1/7", "tzsp/192.0.2.1/02:00:00:00:00:01:02:03", "erspan/192.0.2.1/02:00:00:00:00:01", "erspan/192.0.2.1/1/1",
	} {
		if k, err := decode.ParseSessionKey(text); err == nil {
			t.Errorf("%q is taken for %+v", text, k)
		}
	}
}
