package importer

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/csigscope/csigscope/aggregate/fabric"
)

var update = flag.Bool("update", false, "write the golden files again")

// imports are folders of testdata that are read together.
var imports = []struct {
	name    string
	paths   []string
	options Options
}{
	{"sonic", []string{"sonic"}, Options{}},
	{"sonic-lldp", []string{"sonic", "lldp"}, Options{}},
	{"lldp", []string{"lldp"}, Options{}},
	{"netbox", []string{"netbox"}, Options{}},
	{"clab", []string{"clab"}, Options{Speed: 10e6}},
	{"clab-without-speeds", []string{"clab"}, Options{}},
}

// TestImport compares the fabric files, and the messages about them, with golden ones.
func TestImport(t *testing.T) {
	for _, c := range imports {
		t.Run(c.name, func(t *testing.T) {
			var paths []string
			for _, p := range c.paths {
				paths = append(paths, filepath.Join("testdata", p))
			}
			files, err := Read(paths)
			if err != nil {
				t.Fatal(err)
			}
			r, err := Import(files, c.options)
			if err != nil {
				t.Fatal(err)
			}
			got := written(t, r)
			if _, err := fabric.Parse(bytes.NewReader(got), "written"); (err != nil) != (r.Incomplete != nil) {
				t.Errorf("reading the fabric file: %v, but it was said to be: %v", err, r.Incomplete)
			}
			for _, w := range r.Warnings {
				got = fmt.Appendf(got, "# warning: %s\n", w)
			}
			golden := filepath.Join("testdata", c.name+".golden")
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("differs from %s (go test -update writes it):\n%s", golden, got)
			}
		})
	}
}

func written(t testing.TB, r *Result) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := r.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// sonicFile returns config_db.json of a switch with ports that face others.
func sonicFile(hostname string, neighbours map[string]string, more string) File {
	ports, links := map[string]any{}, map[string]any{}
	for name, peer := range neighbours {
		ports[name] = map[string]string{"speed": "100000", "admin_status": "up", "lanes": "1"}
		if peer != "" {
			device, port, _ := strings.Cut(peer, "|")
			links[name] = map[string]string{"name": device, "port": port}
		}
	}
	body, _ := json.Marshal(map[string]any{
		"DEVICE_METADATA": map[string]any{"localhost": map[string]string{"hostname": hostname}}, "PORT": ports, "DEVICE_NEIGHBOR": links,
	})
	if more != "" {
		body = append(body[:len(body)-1], ","+more+"}"...)
	}
	return File{Name: hostname + ".json", Data: body}
}

// lldpFile returns the neighbors that a device hears, as port to "device|port", or to
// "device|alias|description" if the neighbor sends a port ID of its own choice, as SONiC does.
func lldpFile(device string, heard map[string]string) File {
	var list []string
	for port, peer := range heard {
		name, far, _ := strings.Cut(peer, "|")
		subtype := "ifname"
		far, description, local := strings.Cut(far, "|")
		if local {
			subtype = "local"
		}
		list = append(list, fmt.Sprintf(`{%q: {"via": "LLDP", "chassis": {%q: {"id": {"type": "local", "value": "x"}}}, "port": {"id": {"type": %q, "value": %q}, "descr": %q}}}`, port, name, subtype, far, description))
	}
	slices.Sort(list)
	return File{Name: "lldp/" + device + ".json", Data: []byte(`{"lldp": {"interface": [` + strings.Join(list, ",") + `]}}`)}
}

// TestMerge: the statements of several files about one device, port or link.
func TestMerge(t *testing.T) {
	spine := map[string]string{"Ethernet0": "leaf1|Ethernet0", "Ethernet4": "leaf2|Ethernet0"}
	leaf1, leaf2 := map[string]string{"Ethernet0": "spine1|Ethernet0"}, map[string]string{"Ethernet0": "spine1|Ethernet4"}
	for _, c := range []struct {
		name  string
		files []File
		ports []string // "device:port orientation peer", in order
		says  string   // in a warning
		fails string
	}{
		{
			name:  "both ends state a link",
			files: []File{sonicFile("leaf1", leaf1, ""), sonicFile("leaf2", leaf2, ""), sonicFile("spine1", spine, "")},
			ports: []string{"leaf1:Ethernet0 up spine1", "leaf2:Ethernet0 up spine1", "spine1:Ethernet0 down leaf1", "spine1:Ethernet4 down leaf2"},
		},
		{
			name:  "one end states it, with another name of the port and of the device",
			files: []File{sonicFile("leaf1", map[string]string{"Ethernet0": "SPINE1.example.net|Eth4"}, ""), sonicFile("spine1", map[string]string{"Ethernet4": ""}, "")},
			ports: []string{"leaf1:Ethernet0 up spine1", "spine1:Ethernet4 down leaf1"},
		},
		{
			name:  "no port is stated at the far end",
			files: []File{sonicFile("leaf1", map[string]string{"Ethernet0": "spine1"}, "")},
			ports: []string{"leaf1:Ethernet0 up spine1", "spine1:to-leaf1-Ethernet0 down leaf1"},
		},
		{
			name: "addresses state a link",
			files: []File{
				sonicFile("leaf1", map[string]string{"Ethernet0": ""}, `"INTERFACE": {"Ethernet0|10.0.0.0/31": {}}`),
				sonicFile("spine1", map[string]string{"Ethernet8": ""}, `"INTERFACE": {"Ethernet8|10.0.0.1/31": {}}`),
			},
			ports: []string{"leaf1:Ethernet0 up spine1", "spine1:Ethernet8 down leaf1"},
		},
		{
			name: "LLDP overrules a neighbour that was configured once",
			files: []File{
				sonicFile("leaf1", leaf1, ""), sonicFile("leaf2", leaf2, ""), sonicFile("spine1", spine, ""),
				lldpFile("spine1", map[string]string{"Ethernet0": "leaf2|Ethernet0", "Ethernet4": "leaf1|Ethernet0"}),
			},
			ports: []string{"leaf1:Ethernet0 up spine1", "leaf2:Ethernet0 up spine1", "spine1:Ethernet0 down leaf2", "spine1:Ethernet4 down leaf1"},
			says:  "spine1:Ethernet0 faces leaf2:Ethernet0, says lldp/spine1.json, and leaf1:Ethernet0, says ",
		},
		{
			name:  "two switches contradict each other",
			files: []File{sonicFile("leaf1", map[string]string{"Ethernet0": "spine1|Ethernet4"}, ""), sonicFile("leaf2", leaf2, ""), sonicFile("spine1", spine, "")},
			fails: "spine1:Ethernet4 faces leaf1:Ethernet0, says leaf1.json, and leaf2:Ethernet0, says leaf2.json: correct one of them",
		},
		{
			name:  "two LLDP files contradict each other",
			files: []File{lldpFile("leaf1", map[string]string{"Ethernet1": "spine1|Ethernet1"}), lldpFile("leaf2", map[string]string{"Ethernet1": "spine1|Ethernet1"})},
			fails: "spine1:Ethernet1 faces leaf1:Ethernet1, says lldp/leaf1.json, and leaf2:Ethernet1, says lldp/leaf2.json: print the neighbours",
		},
		{
			name: "two SONiC switches send the aliases of their ports by LLDP",
			files: []File{
				lldpFile("leaf1", map[string]string{"Ethernet0": "spine1|etp17|Ethernet64", "Ethernet4": "spine1|etp18|Ethernet68"}),
				lldpFile("spine1", map[string]string{"Ethernet64": "leaf1|etp1|Ethernet0", "Ethernet68": "leaf1|etp2|Ethernet4"}),
			},
			ports: []string{"leaf1:Ethernet0 up spine1", "leaf1:Ethernet4 up spine1", "spine1:Ethernet64 down leaf1", "spine1:Ethernet68 down leaf1"},
		},
		{
			name: "the alias of a port looks like the name of the next one",
			files: []File{
				lldpFile("leaf1", map[string]string{"Ethernet0": "spine1|Eth1|Ethernet0", "Ethernet1": "spine1|Eth2|Ethernet1"}),
				lldpFile("spine1", map[string]string{"Ethernet0": "leaf1|Eth1|Ethernet0", "Ethernet1": "leaf1|Eth2|Ethernet1"}),
			},
			ports: []string{"leaf1:Ethernet0 up spine1", "leaf1:Ethernet1 up spine1", "spine1:Ethernet0 down leaf1", "spine1:Ethernet1 down leaf1"},
		},
		{
			name: "a port ID is the index of the interface, and the far end sends no LLDP",
			files: []File{
				lldpFile("leaf1", map[string]string{"swp1": "spine1|633|swp1", "swp10": "spine1|634|swp2"}),
			},
			ports: []string{"leaf1:swp1 up spine1", "leaf1:swp10 up spine1", "spine1:swp1 down leaf1", "spine1:swp2 down leaf1"},
		},
		{
			name: "descriptions of ports are texts of the operator",
			files: []File{
				lldpFile("leaf1", map[string]string{"Ethernet0": "spine1|Eth1|to leaf1", "Ethernet1": "spine1|Eth2|second to leaf1"}),
				lldpFile("spine1", map[string]string{"Ethernet0": "leaf1|Eth1|uplink", "Ethernet1": "leaf1|Eth2|uplink"}),
			},
			ports: []string{"leaf1:Ethernet0 up spine1", "leaf1:Ethernet1 up spine1", "spine1:Ethernet0 down leaf1", "spine1:Ethernet1 down leaf1"},
		},
		{
			name: "the far end does not hear one of two links",
			files: []File{
				lldpFile("leaf1", map[string]string{"Ethernet0": "spine1|etp17|to leaf1", "Ethernet4": "spine1|etp18|to leaf1"}),
				lldpFile("spine1", map[string]string{"Ethernet64": "leaf1|etp1|Ethernet0"}),
			},
			ports: []string{"leaf1:Ethernet0 up spine1", "leaf1:Ethernet4 up spine1", "spine1:Ethernet64 down leaf1", "spine1:to-leaf1-Ethernet4 down leaf1"},
		},
		{
			name:  "one hostname in two files",
			files: []File{sonicFile("leaf1", leaf1, ""), {Name: "copy.json", Data: sonicFile("leaf1", leaf1, "").Data}},
			fails: "copy.json: device leaf1 is in leaf1.json too",
		},
		{
			name: "two devices of NetBox have one name",
			files: []File{
				{Name: "cables.json", Data: []byte(`[{"id": 9, "a_terminations": [{"object": {"id": 1, "name": "e1", "device": {"id": 1, "name": "leaf1"}}}],
				 "b_terminations": [{"object": {"id": 2, "name": "e1", "device": {"id": 2, "name": "spine1"}}}]}]`)},
				{Name: "devices.json", Data: []byte(`[
				 {"id": 1, "name": "leaf1", "device_type": {"id": 1}, "site": {"id": 1, "name": "AMS", "slug": "ams"}},
				 {"id": 101, "name": "LEAF1.example.net", "device_type": {"id": 1}, "site": {"id": 2, "name": "FRA", "slug": "fra"}}]`)},
			},
			fails: "NetBox has two devices of one name: leaf1 with id 1 at site AMS, says devices.json, and LEAF1.example.net with id 101 at site FRA, says devices.json: export one site",
		},
		{
			name: "two power units of NetBox have one name",
			files: []File{
				lldpFile("leaf1", map[string]string{"Ethernet1": "spine1|Ethernet1"}),
				{Name: "devices.json", Data: []byte(`[
				 {"id": 3, "name": "rack1", "device_type": {"id": 1}, "role": {"name": "PDU", "slug": "pdu"}, "site": {"id": 1, "name": "AMS", "slug": "ams"}},
				 {"id": 103, "name": "rack1", "device_type": {"id": 1}, "role": {"name": "PDU", "slug": "pdu"}, "site": {"id": 2, "name": "FRA", "slug": "fra"}}]`)},
			},
			ports: []string{"leaf1:Ethernet1 up spine1", "spine1:Ethernet1 down leaf1"},
		},
		{
			name: "two spare servers of NetBox have one name",
			files: []File{
				lldpFile("leaf1", map[string]string{"Ethernet1": "spine1|Ethernet1"}),
				{Name: "devices.json", Data: []byte(`[
				 {"id": 4, "name": "spare", "device_type": {"id": 1}, "site": {"id": 1, "name": "AMS", "slug": "ams"}},
				 {"id": 104, "name": "spare", "device_type": {"id": 1}, "site": {"id": 2, "name": "FRA", "slug": "fra"}}]`)},
				{Name: "interfaces.json", Data: []byte(`[{"id": 1, "name": "eth0", "mgmt_only": false, "device": {"id": 4, "name": "spare"}}]`)},
			},
			ports: []string{"leaf1:Ethernet1 up spine1", "spine1:Ethernet1 down leaf1"},
		},
		{
			name: "two devices of NetBox have one name, and no file lists devices",
			files: []File{
				{Name: "one.json", Data: []byte(`[{"id": 1, "name": "e1", "enabled": true, "type": {"value": "lag"}, "device": {"id": 1, "name": "leaf1"}}]`)},
				{Name: "two.json", Data: []byte(`[{"id": 5, "address": "10.0.0.1/24", "assigned_object": {"id": 7, "name": "e2", "device": {"id": 101, "name": "leaf1"}}}]`)},
			},
			fails: "leaf1 with id 1, says one.json, and leaf1 with id 101, says two.json: export one site",
		},
		{
			name: "two speeds of one port",
			files: []File{
				sonicFile("leaf1", leaf1, ""), sonicFile("spine1", map[string]string{"Ethernet0": ""}, ""),
				{Name: "nb.json", Data: []byte(`{"results": [{"id": 1, "name": "Ethernet0", "type": {"value": "400gbase-x-osfp"}, "enabled": true, "device": {"id": 1, "name": "leaf1"}}]}`)},
			},
			ports: []string{"leaf1:Ethernet0 up spine1", "spine1:Ethernet0 down leaf1"},
			says:  "leaf1:Ethernet0: leaf1.json says 100Gbps, nb.json says 400Gbps: 100Gbps is taken",
		},
		{
			name: "a breakout cable",
			files: []File{{Name: "nb.json", Data: []byte(`[
				{"id": 1, "name": "spine1", "device_type": {"id": 1}, "role": {"name": "Spine", "slug": "spine"}},
				{"id": 2, "name": "leaf1", "device_type": {"id": 1}, "role": {"name": "Leaf", "slug": "leaf"}},
				{"id": 3, "name": "leaf2", "device_type": {"id": 1}, "role": {"name": "Leaf", "slug": "leaf"}},
				{"id": 9, "a_terminations": [{"object_type": "dcim.interface", "object_id": 1, "object": {"id": 1, "name": "et-0/0/0", "device": {"name": "spine1"}}}],
				 "b_terminations": [
				  {"object_type": "dcim.interface", "object_id": 2, "object": {"id": 2, "name": "xe-0/0/1", "device": {"name": "leaf1"}}},
				  {"object_type": "dcim.interface", "object_id": 3, "object": {"id": 3, "name": "xe-0/0/1", "device": {"name": "leaf2"}}}]}]`)}},
			ports: []string{"leaf1:xe-0/0/1 up spine1", "leaf2:xe-0/0/1 up spine1", "spine1:et-0/0/0:0 down leaf1", "spine1:et-0/0/0:1 down leaf2"},
		},
		{
			name: "power ports, front ports and modules of NetBox are no interfaces",
			files: []File{{Name: "nb.json", Data: []byte(`[
				{"id": 1, "name": "spine1", "device_type": {"id": 1}, "role": {"name": "Spine", "slug": "spine"}},
				{"id": 2, "name": "leaf1", "device_type": {"id": 1}, "role": {"name": "Leaf", "slug": "leaf"}},
				{"id": 1, "device": {"id": 2, "name": "leaf1"}, "name": "e1", "type": {"value": "100gbase-x-qsfp28"}, "mgmt_only": false, "enabled": true,
				 "link_peers": [{"id": 2, "device": {"id": 1, "name": "spine1"}, "name": "e1"}], "link_peers_type": "dcim.interface"},
				{"id": 2, "device": {"id": 1, "name": "spine1"}, "name": "e1", "type": {"value": "100gbase-x-qsfp28"}, "mgmt_only": false, "enabled": true},
				{"id": 3, "device": {"id": 2, "name": "leaf1"}, "name": "e2", "type": {"value": "100gbase-x-qsfp28"}, "mgmt_only": false, "enabled": true,
				 "connected_endpoints": null, "link_peers": [{"id": 7, "device": {"id": 4, "name": "A1"}, "name": "Front 1"}], "link_peers_type": "dcim.frontport"},
				{"id": 4, "device": {"id": 2, "name": "leaf1"}, "name": "e3", "type": {"value": "100gbase-x-qsfp28"}, "mgmt_only": false, "enabled": true,
				 "connected_endpoint": {"id": 7, "device": {"id": 4, "name": "A1"}, "name": "Front 1"}, "connected_endpoint_type": "dcim.frontport"},
				{"id": 2, "device": {"id": 2, "name": "leaf1"}, "name": "PSU1", "type": {"value": "iec-60320-c14"},
				 "connected_endpoints": [{"id": 1, "device": {"id": 5, "name": "rackpdu1"}, "name": "Outlet 1"}], "connected_endpoints_type": "dcim.poweroutlet"},
				{"id": 1, "device": {"id": 4, "name": "A1"}, "name": "Front 1", "type": {"value": "lc"}, "rear_port": {"id": 1},
				 "link_peers": [{"id": 3, "device": {"id": 2, "name": "leaf1"}, "name": "e2"}], "link_peers_type": "dcim.interface"},
				{"id": 5, "termination_a_type": "dcim.powerport", "termination_a": {"id": 2, "device": {"id": 2, "name": "leaf1"}, "name": "PSU1"},
				 "termination_b_type": "dcim.poweroutlet", "termination_b": {"id": 1, "device": {"id": 5, "name": "rackpdu1"}, "name": "Outlet 1"}}]`)}},
			ports: []string{"leaf1:e1 up spine1", "spine1:e1 down leaf1"},
			says:  "nb.json: 2 results are neither devices, interfaces, cables nor IP addresses: left out",
		},
		{
			name: "hosts are named after their switch, and a switch numbers its ports",
			files: []File{
				lldpFile("leaf1", map[string]string{"1/1/1": "leaf1-n1|ens1f0", "1/1/2": "leaf1-n2|eth2", "1/1/49": "spine1|1/1/c1"}),
			},
			ports: []string{"leaf1:1/1/1 down ", "leaf1:1/1/2 down ", "leaf1:1/1/49 up spine1", "spine1:1/1/c1 down leaf1"},
		},
		{
			name: "no role or name says the stages",
			files: []File{{Name: "x.yml", Data: []byte(`
topology:
  nodes: {a: {kind: nokia_srlinux}, b: {kind: nokia_srlinux}, c: {kind: nokia_srlinux}, x: {kind: linux, exec: [ip addr add 10.0.0.1/24 dev eth1]}, y: {kind: linux}}
  links: [{endpoints: ["x:eth1", "a:e1-1"]}, {endpoints: ["y:eth1", "b:e1-1"]}, {endpoints: ["a:e1-2", "c:e1-1"]}, {endpoints: ["b:e1-2", "c:e1-2"]}, {endpoints: ["a:e1-3", "b:e1-3"]}]`)}},
			ports: []string{"a:e1-1 down x", "a:e1-2 up c", "a:e1-3 side b", "b:e1-1 down ", "b:e1-2 up c", "b:e1-3 side a", "c:e1-1 down a", "c:e1-2 down b"},
		},
		{
			name: "only prefixes are known of a rack",
			files: []File{
				sonicFile("leaf1", map[string]string{"Ethernet0": "spine1|Ethernet0", "Ethernet4": "", "Ethernet8": ""},
					`"VLAN_INTERFACE": {"Vlan10|10.0.1.1/24": {}}, "VLAN_MEMBER": {"Vlan10|Ethernet4": {}, "Vlan10|Ethernet8": {}}`),
				sonicFile("spine1", map[string]string{"Ethernet0": ""}, ""),
			},
			ports: []string{"leaf1:Ethernet0 up spine1", "leaf1:Ethernet4 down leaf1-hosts", "leaf1:Ethernet8 down leaf1-hosts", "spine1:Ethernet0 down leaf1"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := Import(c.files, Options{})
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) {
					t.Fatalf("error %v, expected %q", err, c.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, d := range r.Spec.Devices {
				for _, p := range d.Ports {
					got = append(got, d.Name+":"+p.Name+" "+p.Orientation+" "+p.Peer)
				}
			}
			if !slices.Equal(got, c.ports) {
				t.Errorf("ports %q, expected %q", got, c.ports)
			}
			if !strings.Contains(strings.Join(r.Warnings, "\n"), c.says) || c.says == "" && len(r.Warnings) > 0 {
				t.Errorf("warnings %q, expected %q", r.Warnings, c.says)
			}
		})
	}
}

// TestRefused: the errors for unreadable files have the fault and its place.
func TestRefused(t *testing.T) {
	for _, c := range []struct{ name, data, want string }{
		{"x.json", ``, "x.json: is empty"},
		{"x.json", `{"a": 1}`, "expected SONiC config_db.json"},
		{"x.txt", `hello`, "expected SONiC config_db.json"},
		{"x.json", `{"PORT": {"Ethernet0": `, "the file is cut off"},
		{"x.json", `{"PORT": 5, "a": 1}`, "table PORT: unexpected number"},
		{"x.json", `{"PORT": {}} more`, "byte 12: expected the end of the file"},
		{"config_db.json", `{"PORT": {}}`, "has no hostname"},
		{"lldp.json", `{"lldp": {}}`, "name the file as the device"},
		{"x.json", `{"lldp": {"interface": 5}}`, "unexpected number"},
		{"x.json", `{"results": [{"id": "x"}]}`, "results[0]: id: unexpected string"},
		{"x.json", `{"results": ` + strings.Repeat("[", 20000), "exceeded max depth"},
		{"x.yml", "topology:\n  nodes: {a: {}}\n  links: [{endpoints: [a:e1, b:e1]}]\n", `topology.links[0]: "b": no node has that name`},
		{"x.yml", "topology:\n  nodes: {a: {}}\n  links: [{endpoints: [a, a]}]\n", "line 3: expected an endpoint such as leaf1:e1-1"},
		{"x.yml", "topology: {nodes: {}}\n", "topology: has no nodes"},
		{"x.yml", "topology:\n  nodes: [\n", "did not find expected node"},
		{"x.json", `{"lldp": [], "x": "` + strings.Repeat("a", maxDevice) + `"}`, "is larger than 8 MiB"},
		{"x.json", `{"lldp": []}`, "no link of a switch"},
	} {
		_, err := Import([]File{{Name: c.name, Data: []byte(c.data)}}, Options{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60s: error %v, expected %q", c.data, err, c.want)
		}
	}
	if _, err := Read([]string{t.TempDir()}); err == nil || !strings.Contains(err.Error(), "no file there ends in") {
		t.Errorf("an empty folder: %v", err)
	}
}

// TestFolder: unrelated files in a folder are skipped, and hidden folders are not read.
func TestFolder(t *testing.T) {
	dir := t.TempDir()
	for name, data := range map[string]string{
		"leaf1.json": string(sonicFile("leaf1", map[string]string{"Ethernet0": "spine1|Ethernet0"}, "").Data),
		"notes.txt":  "x", "other.json": `{"a": 1}`, ".git/leaf2.json": "{",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	files, err := Read([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	r, err := Import(files, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Spec.Devices) != 2 || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "other.json: expected SONiC") {
		t.Errorf("%d devices, warnings %q", len(r.Spec.Devices), r.Warnings)
	}
}

// TestManyStatements: thousands of statements about one port, device or LAG are accepted, or
// refused in a few lines.
func TestManyStatements(t *testing.T) {
	const many = 8000
	list := func(format string) string {
		var b strings.Builder
		for n := range many {
			if n > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, strings.ReplaceAll(format, "#", "%[1]d"), n)
		}
		return b.String()
	}
	link := `"DEVICE_METADATA": {"localhost": {"hostname": "leaf1"}}, "PORT": {"Ethernet0": {"speed": "100000"}}, "DEVICE_NEIGHBOR": {"Ethernet0": {"name": "spine1"}}`
	for name, data := range map[string]string{
		"neighbours of one port":      `{"lldp": {"interface": [` + list(`{"Ethernet1": {"chassis": {"spine#": {"id": {}}}, "port": {"id": {"type": "ifname", "value": "Ethernet1"}}}}`) + `]}}`,
		"neighbours without a port":   `{"lldp": {"interface": [` + list(`{"Ethernet#": {"chassis": {"spine1": {"id": {}}}, "port": {}}}`) + `]}}`,
		"ports that are called alike": `{"lldp": {"interface": [` + list(`{"Ethernet1/1": {"chassis": {"spine1": {"id": {}}}, "port": {"id": {"type": "ifname", "value": "eth1.1-x#"}}}}`) + `]}}`,
		"addresses of one port":       "{" + link + `, "INTERFACE": {` + list(`"Ethernet0|fc00::#/127": {}`) + `}}`,
		"members of one LAG":          "{" + link + `, "PORTCHANNEL": {"PortChannel1": {"members": [` + list(`"Ethernet#"`) + `]}}}`,
		"VLANs without members":       "{" + link + `, "VLAN": {` + list(`"Vlan#": {}`) + `}, "VLAN_INTERFACE": {` + list(`"Vlan#|10.0.0.1/24": {}`) + `}}`,
		"cables between two ports":    `{"results": [` + list(`{"a_terminations": [{"object": {"name": "e1", "device": {"name": "leaf1"}}}], "b_terminations": [{"object": {"name": "e#", "device": {"name": "spine1"}}}]}`) + `]}`,
	} {
		r, err := Import([]File{{Name: "leaf1.json", Data: []byte(data)}}, Options{})
		switch {
		case err == nil && len(r.Spec.Devices) < 2:
			t.Errorf("%s: %d devices", name, len(r.Spec.Devices))
		case err == nil:
			written(t, r)
		case strings.Count(err.Error(), "\n") > maxMessages:
			t.Errorf("%s: %d lines of errors", name, strings.Count(err.Error(), "\n"))
		}
	}
}

// samples returns the files of testdata.
func samples(t testing.TB) (files []File) {
	t.Helper()
	err := fs.WalkDir(os.DirFS("testdata"), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && d.Name() == "fuzz" {
			return fs.SkipDir
		}
		if ext := filepath.Ext(path); !d.IsDir() && (ext == ".json" || ext == ".yml") {
			data, err := os.ReadFile(filepath.Join("testdata", path))
			files = append(files, File{Name: path, Data: data})
			return err
		}
		return nil
	})
	if err != nil || len(files) == 0 {
		t.Fatalf("read testdata: %v", err)
	}
	return files
}

// TestCut truncates files at every byte: truncated JSON is refused, and nothing panics.
func TestCut(t *testing.T) {
	for _, f := range samples(t) {
		data := bytes.TrimSpace(f.Data)
		if len(data) > 12<<10 { // truncating takes quadratic time: the first devices, cables and ports are enough
			var page struct{ Results []json.RawMessage }
			if err := json.Unmarshal(data, &page); err != nil {
				t.Fatal(err)
			}
			data, _ = json.Marshal(map[string]any{"results": page.Results[:3]})
		}
		for n := range len(data) {
			_, err := parse(&File{Name: f.Name, Data: data[:n]})
			if err == nil && filepath.Ext(f.Name) == ".json" {
				t.Errorf("%s: cut at byte %d of %d: no error", f.Name, n, len(data))
			}
		}
	}
}

// FuzzImport: whatever two files hold, importing ends, gives the same twice, and its fabric file
// can be read unless it says that it cannot.
func FuzzImport(f *testing.F) {
	all := samples(f)
	for i := range all {
		f.Add(all[i].Data, all[(i+1)%len(all)].Data)
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		files := []File{{Name: "leaf1.json", Data: a}, {Name: "leaf2.json", Data: b, Found: true}}
		r, err := Import(files, Options{})
		if err != nil {
			return
		}
		text := written(t, r)
		if _, err := fabric.Parse(bytes.NewReader(text), "written"); err != nil && r.Incomplete == nil {
			t.Errorf("the fabric file cannot be read: %v\n%s", err, text)
		}
		again, err := Import(files, Options{})
		if err != nil || !bytes.Equal(written(t, again), text) || !slices.Equal(r.Warnings, again.Warnings) {
			t.Errorf("the second time it is another: %v", err)
		}
	})
}
