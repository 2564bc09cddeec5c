package edge

import (
	"net/netip"
	"testing"
)

// TestNetworks: an IPv6 /64 is one address, and an IPv4-mapped IPv6 address equals its IPv4
// address.
func TestNetworks(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1": "192.0.2.1/32", "::ffff:192.0.2.1": "192.0.2.1/32", "2001:db8::1": "2001:db8::/64", "2001:db8:0:0:ffff::1": "2001:db8::/64",
		"2001:db8:0:1::1": "2001:db8:0:1::/64", "fe80::1%eth0": "fe80::/64",
	} {
		if got := networkOf(netip.MustParseAddr(address)); got.String() != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
	if got := networkOf(netip.Addr{}); got.IsValid() {
		t.Errorf("no address: %s", got)
	}
}
