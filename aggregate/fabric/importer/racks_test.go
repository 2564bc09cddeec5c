package importer

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestRacks: the prefixes and hosts behind each switch.
func TestRacks(t *testing.T) {
	vlan := func(prefix string, ports ...string) string {
		var members []string
		for _, p := range ports {
			members = append(members, fmt.Sprintf(`"Vlan10|%s": {}`, p))
		}
		return fmt.Sprintf(`"VLAN_INTERFACE": {"Vlan10|%s": {}}, "VLAN_MEMBER": {%s}`, prefix, strings.Join(members, ", "))
	}
	leaf := func(n int, hosts, more string) File {
		ports := map[string]string{"Ethernet0": fmt.Sprintf("spine1|Ethernet%d", 4*n)}
		for h := range strings.FieldsSeq(hosts) {
			ports[fmt.Sprintf("Ethernet%d", 4*len(ports))] = h
		}
		return sonicFile(fmt.Sprintf("leaf%d", n), ports, more)
	}
	for _, c := range []struct {
		name          string
		files         []File
		groups, hosts []string
		says          string
	}{
		{
			name:   "two switches share the prefix of their hosts",
			files:  []File{leaf(1, "n1|eth2", vlan("10.0.1.1/24", "Ethernet4")+`, "MUX_CABLE": {"Ethernet4": {"server_ipv4": "10.0.1.11/32"}}`), leaf(2, "n1|eth3", vlan("10.0.1.1/24", "Ethernet4"))},
			groups: []string{"leaf1+leaf2 [10.0.1.0/24]"},
			hosts:  []string{"n1 [10.0.1.11]"},
		},
		{
			name:   "each host has a link of its own",
			files:  []File{leaf(1, "n1|eth2 n2|eth2", `"INTERFACE": {"Ethernet4|10.1.1.0/31": {}, "Ethernet8|10.1.1.2/31": {}, "Ethernet8|fc00::1/126": {}}`)},
			groups: []string{"leaf1 [10.1.1.0/30 fc00::/126]"},
			hosts:  []string{"n1 [10.1.1.1]", "n2 [10.1.1.3 fc00::2]"},
		},
		{
			name:   "a host has a link of its own to each of two switches",
			files:  []File{leaf(1, "n1|eth2", `"INTERFACE": {"Ethernet4|10.1.1.0/31": {}}`), leaf(2, "n1|eth3", `"INTERFACE": {"Ethernet4|10.1.2.0/31": {}}`)},
			groups: []string{"leaf1 [10.1.1.0/31]", "leaf2 [10.1.2.0/31]"},
			hosts:  []string{"n1-eth2 [10.1.1.1]", "n1-eth3 [10.1.2.1]"},
		},
		{
			name: "a prefix is stretched over all switches",
			files: []File{
				leaf(1, "n1|eth2", vlan("10.0.0.1/16", "Ethernet4")+`, "MUX_CABLE": {"Ethernet4": {"server_ipv4": "10.0.0.11/32"}}`),
				leaf(2, "n2|eth2", vlan("10.0.0.1/16", "Ethernet4")+`, "MUX_CABLE": {"Ethernet4": {"server_ipv4": "10.0.0.12/32"}}`),
				leaf(3, "n3|eth2", vlan("10.0.0.1/16", "Ethernet4")+`, "MUX_CABLE": {"Ethernet4": {"server_ipv4": "10.0.0.13/32"}}`),
			},
			groups: []string{"leaf1 [10.0.0.11/32]", "leaf2 [10.0.0.12/32]", "leaf3 [10.0.0.13/32]"},
			hosts:  []string{"n1 [10.0.0.11]", "n2 [10.0.0.12]", "n3 [10.0.0.13]"},
			says:   "prefix 10.0.0.0/16 is behind more than two switches",
		},
		{
			name:   "an address of two hosts",
			files:  []File{leaf(1, "n1|eth2 n2|eth2", vlan("10.0.1.1/24", "Ethernet4", "Ethernet8")+`, "MUX_CABLE": {"Ethernet4": {"server_ipv4": "10.0.1.11/32"}, "Ethernet8": {"server_ipv4": "10.0.1.11/32"}}`)},
			groups: []string{"leaf1 [10.0.1.0/24]"},
			hosts:  []string{"n1 [10.0.1.11]"},
			says:   "address 10.0.1.11: files give it to n1 and to n2",
		},
		{
			name:   "only the prefix is known",
			files:  []File{leaf(1, "n1|eth2", vlan("10.0.1.1/24", "Ethernet4"))},
			groups: []string{"leaf1 [10.0.1.0/24]"},
			hosts:  []string{"leaf1-hosts [10.0.1.0]"},
		},
		{
			name: "the management address of LLDP counts in the rack's prefix alone",
			files: []File{
				leaf(1, "", vlan("10.0.1.1/24", "Ethernet4", "Ethernet8")+`, "PORT": {"Ethernet0": {"speed": "100000"}, "Ethernet4": {"speed": "25000"}, "Ethernet8": {"speed": "25000"}}`),
				{Name: "leaf1.json", Data: []byte(`{"lldp": {"interface": [
					{"Ethernet4": {"chassis": {"n1": {"id": {"type": "mac", "value": "b8:00:00:00:00:01"}, "mgmt-ip": ["10.0.1.11", "fe80::1"]}}, "port": {"id": {"type": "mac", "value": "b8:00:00:00:00:02"}, "descr": "ens1"}}},
					{"Ethernet8": {"chassis": {"n2": {"id": {"type": "mac", "value": "b8:00:00:00:00:03"}, "mgmt-ip": "192.168.1.12"}}, "port": {"id": {"type": "mac", "value": "b8:00:00:00:00:04"}}}}]}}`)},
			},
			groups: []string{"leaf1 [10.0.1.0/24]"},
			hosts:  []string{"n1 [10.0.1.11]"},
		},
		{
			name: "each card of a host has an address behind another switch",
			files: []File{{Name: "rails.clab.yml", Data: []byte(`
topology:
  nodes:
    rail1: {kind: nokia_srlinux}
    rail2: {kind: nokia_srlinux}
    rail3: {kind: nokia_srlinux}
    spine1: {kind: nokia_srlinux}
    gpu1: {kind: linux, exec: [ip addr add 10.1.0.11/24 dev eth1, ip addr add 10.2.0.11/24 dev eth2, ip addr add 10.3.0.11/24 dev eth3]}
    edge1: {kind: linux, group: server, exec: [ip addr add 10.9.0.1/32 dev lo, ip addr add 10.1.0.12/24 dev eth1, ip addr add 10.2.0.12/24 dev eth2]}
  links:
  - endpoints: ["gpu1:eth1", "rail1:e1-1"]
  - endpoints: ["gpu1:eth2", "rail2:e1-1"]
  - endpoints: ["gpu1:eth3", "rail3:e1-1"]
  - endpoints: ["edge1:eth1", "rail1:e1-2"]
  - endpoints: ["edge1:eth2", "rail2:e1-2"]
  - endpoints: ["rail1:e1-49", "spine1:e1-1"]
  - endpoints: ["rail2:e1-49", "spine1:e1-2"]
  - endpoints: ["rail3:e1-49", "spine1:e1-3"]
`)}},
			groups: []string{"rail1+rail2 [10.1.0.0/24 10.2.0.0/24 10.9.0.1/32]", "rail3 [10.3.0.0/24]"},
			hosts:  []string{"edge1 [10.1.0.12 10.2.0.12 10.9.0.1]", "gpu1-eth1 [10.1.0.11]", "gpu1-eth2 [10.2.0.11]", "gpu1-eth3 [10.3.0.11]"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := Import(c.files, Options{Speed: 100e6})
			if err != nil {
				t.Fatal(err)
			}
			var groups, hosts []string
			for _, g := range r.Spec.Groups {
				groups = append(groups, fmt.Sprint(g.Name, " ", g.Prefixes))
			}
			for _, h := range r.Spec.Hosts {
				hosts = append(hosts, fmt.Sprint(h.Name, " ", h.Addresses))
			}
			if !slices.Equal(groups, c.groups) {
				t.Errorf("groups %q, expected %q", groups, c.groups)
			}
			if !slices.Equal(hosts, c.hosts) {
				t.Errorf("hosts %q, expected %q", hosts, c.hosts)
			}
			if !strings.Contains(strings.Join(r.Warnings, "\n"), c.says) || c.says == "" && len(r.Warnings) > 0 {
				t.Errorf("warnings %q, expected %q", r.Warnings, c.says)
			}
			if r.Incomplete != nil {
				t.Errorf("incomplete: %v", r.Incomplete)
			}
		})
	}
}
