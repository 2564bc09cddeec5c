package capture

import (
	"testing"
)

func TestLinkTypeString(t *testing.T) {
	for link, want := range map[LinkType]string{
		LinkEthernet: "Ethernet", LinkSLL: "Linux SLL", LinkSLL2: "Linux SLL2",
		105: "IEEE 802.11", 228: "raw IPv4", 147: "link type 147", 65535: "link type 65535",
	} {
		if got := link.String(); got != want {
			t.Errorf("%d: %q, want %q", uint16(link), got, want)
		}
	}
}
