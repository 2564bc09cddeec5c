package importer

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// TestPortKey: names that one port has in several systems, and names of two different ports.
func TestPortKey(t *testing.T) {
	for _, same := range [][]string{
		{"Ethernet1/1", "Eth1/1", "et-1/1", "e1-1", "ethernet-1/1", "eth1_1", "Ethernet1/1"},
		{"HundredGigE0/0/0/1", "Hu0/0/0/1"},
		{"TenGigabitEthernet1/0/3", "Te1/0/3"},
		{"GigabitEthernet0/1", "Gi0/1", "ge-0/1"},
		{"100GE1/0/1", "HundredGigE1/0/1"},
		{"et-0/0/0:1", "et-0/0/0/1"},
	} {
		for _, name := range same {
			if got := portKey(name); got != portKey(same[0]) || got == "" {
				t.Errorf("%s: key %q, that of %s is %q", name, got, same[0], portKey(same[0]))
			}
		}
	}
	for _, two := range [][2]string{{"Ethernet0", "Ethernet0/1"}, {"swp1s0", "swp1s1"}, {"swp1", "Ethernet1"}, {"Ethernet1/11", "Ethernet11/1"}, {"PortChannel1", "Ethernet1"}} {
		if portKey(two[0]) == portKey(two[1]) {
			t.Errorf("%s and %s have the key %q", two[0], two[1], portKey(two[0]))
		}
	}
	if portKey("uplink") != "" {
		t.Error("a name without a number has a key")
	}
}

func TestSpeedOfName(t *testing.T) {
	for name, want := range map[string]uint64{
		"HundredGigE0/0/0/1": 100e6, "TenGigE0/1": 10e6, "FourHundredGigE0/1": 400e6, "100GE1/0/1": 100e6, "Ethernet1/1": 0, "et-0/0/0": 0, "swp1": 0,
	} {
		if got := speedOfName(name); got != want {
			t.Errorf("%s: %d kbit/s, expected %d", name, got, want)
		}
	}
	for name, want := range map[string]uint64{
		"100gbase-x-qsfp28": 100e6, "2.5gbase-t": 2500e3, "1000base-t": 1e6, "10GbaseSR": 10e6, "800gbase-x-osfp": 800e6,
		"100GbaseCR4 - 100G": 100e6, "virtual": 0, "lag": 0, "999999999999gbase-x": 0,
	} {
		if got := speedOfMedium(name); got != want {
			t.Errorf("%s: %d kbit/s, expected %d", name, got, want)
		}
	}
}

func TestRoleOfText(t *testing.T) {
	for _, c := range []struct {
		text, stage string
		kind        nodeKind
	}{
		{"dc1-leaf03a", "leaf", switchKind},
		{"borderleaf2", "leaf", switchKind},
		{"Spine Switch", "spine", switchKind},
		{"super-spine", "superspine", switchKind},
		{"superspine4", "superspine", switchKind},
		{"tor12", "tor", switchKind},
		{"p1-agg2", "agg", switchKind},
		{"ARISTA01T1", "agg", switchKind},
		{"str2-t0-3", "tor", switchKind},
		{"core-1", "core", switchKind},
		{"rsw001.p002", "tor", switchKind},
		{"storage7", "", hostKind},
		{"gpu-node-3", "", hostKind},
		{"Server", "", hostKind},
		{"leaf1-host2", "", hostKind},
		{"Server Leaf", "leaf", switchKind},
		{"host1-1", "", hostKind},
		{"mgmt-leaf1", "", otherKind},
		{"Patch Panel", "", otherKind},
		{"oob-sw", "", otherKind},
		{"sw17", "", unknownKind},
		{"motor", "", unknownKind},
		{"", "", unknownKind},
	} {
		if stage, _, kind := roleOfText(c.text); stage != c.stage || kind != c.kind {
			t.Errorf("%q: stage %q, kind %d, expected %q, %d", c.text, stage, kind, c.stage, c.kind)
		}
	}
}

func TestDeviceOfFile(t *testing.T) {
	for path, want := range map[string]string{
		"leaf1.json": "leaf1", "x/leaf1-lldp.json": "leaf1", "config_db_leaf1.json": "leaf1", "leaf1/config_db.json": "leaf1", "leaf1.example.net/lldp.json": "leaf1.example.net",
		"leaf1.dc1.json": "leaf1.dc1", "lldp.json": "", "/config_db.json": "", "lldp/config_db.json": "", "leaf1_config_db.json": "leaf1", "./leaf 1.json": "leaf-1",
	} {
		if got := deviceOfFile(path); got != want {
			t.Errorf("%s: %q, expected %q", path, got, want)
		}
	}
}

func TestOtherEnd(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.0/31": "10.0.0.1", "10.0.0.1/31": "10.0.0.0", "10.0.0.5/30": "10.0.0.6", "10.0.0.6/30": "10.0.0.5", "10.0.0.4/30": "", "10.0.0.7/30": "",
		"fc00::1/126": "fc00::2", "fc00::1/127": "fc00::", "10.0.0.1/29": "", "10.0.0.1/32": "",
	} {
		got, ok := otherEnd(netip.MustParsePrefix(text))
		if ok != (want != "") || ok && got.String() != want {
			t.Errorf("%s: %v, expected %q", text, got, want)
		}
	}
}

func TestAggregatePrefixes(t *testing.T) {
	for _, c := range []struct{ list, want string }{
		{"10.0.0.0/31 10.0.0.2/31 10.0.0.4/31 10.0.0.6/31", "[10.0.0.0/29]"},
		{"10.0.0.2/31 10.0.0.4/31", "[10.0.0.2/31 10.0.0.4/31]"},
		{"10.0.1.0/24 10.0.0.0/16 fc00::/64", "[10.0.0.0/16 fc00::/64]"},
		{"0.0.0.0/1 128.0.0.0/1", "[0.0.0.0/0]"},
		{"fc00::/64 fc00:0:0:1::/64", "[fc00::/63]"},
	} {
		var list []netip.Prefix
		for _, text := range strings.Fields(c.list) {
			list = append(list, netip.MustParsePrefix(text))
		}
		if got := fmt.Sprint(aggregatePrefixes(list)); got != c.want {
			t.Errorf("%s: %s, expected %s", c.list, got, c.want)
		}
	}
}
