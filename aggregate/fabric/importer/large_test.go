package importer

import (
	"encoding/json"
	"fmt"
	"io"
	"testing"
)

// A fabric of 500 switches: each leaf has a link to each spine, and hosts behind a VLAN.
const (
	largeSpines, largeLeaves, largeHosts = 20, 480, 16
)

func largeFabric(t testing.TB) (files []File) {
	t.Helper()
	config := func(name, kind string, links, hosts int, peer func(int) (string, string)) map[string]any {
		ports, neighbours, members, muxes := map[string]any{}, map[string]any{}, map[string]any{}, map[string]any{}
		for n := range links {
			port := fmt.Sprintf("Ethernet%d", 4*n)
			ports[port] = map[string]string{"alias": fmt.Sprintf("Eth1/%d", n+1), "lanes": fmt.Sprintf("%d,%d", 2*n, 2*n+1), "speed": "400000", "admin_status": "up", "mtu": "9100", "fec": "rs"}
			device, far := peer(n)
			neighbours[port] = map[string]string{"name": device, "port": far}
		}
		for h := range hosts {
			port := fmt.Sprintf("Ethernet%d", 4*(links+h))
			ports[port] = map[string]string{"alias": fmt.Sprintf("Eth1/%d", links+h+1), "lanes": "1", "speed": "100000", "admin_status": "up", "mtu": "9100"}
			neighbours[port] = map[string]string{"name": fmt.Sprintf("%s-n%d", name, h+1), "port": "eth2"}
			members["Vlan100|"+port] = map[string]string{"tagging_mode": "untagged"}
		}
		return map[string]any{
			"DEVICE_METADATA": map[string]any{"localhost": map[string]string{"hostname": name, "type": kind, "hwsku": "x"}},
			"PORT":            ports, "DEVICE_NEIGHBOR": neighbours, "VLAN_MEMBER": members, "MUX_CABLE": muxes,
		}
	}
	add := func(name string, c map[string]any) {
		data, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, File{Name: name + ".json", Data: data})
	}
	for s := range largeSpines {
		add(fmt.Sprintf("spine%d", s+1), config(fmt.Sprintf("spine%d", s+1), "SpineRouter", largeLeaves, 0, func(n int) (string, string) {
			return fmt.Sprintf("leaf%d", n+1), fmt.Sprintf("Ethernet%d", 4*s)
		}))
	}
	for l := range largeLeaves {
		name := fmt.Sprintf("leaf%d", l+1)
		c := config(name, "LeafRouter", largeSpines, largeHosts, func(n int) (string, string) {
			return fmt.Sprintf("spine%d", n+1), fmt.Sprintf("Ethernet%d", 4*l)
		})
		c["VLAN_INTERFACE"] = map[string]any{"Vlan100": map[string]any{}, fmt.Sprintf("Vlan100|10.%d.%d.1/24", l/250, l%250): map[string]any{}}
		for h := range largeHosts {
			c["MUX_CABLE"].(map[string]any)[fmt.Sprintf("Ethernet%d", 4*(largeSpines+h))] = map[string]string{"server_ipv4": fmt.Sprintf("10.%d.%d.%d/32", l/250, l%250, 11+h)}
		}
		add(name, c)
	}
	return files
}

// TestLarge: nothing of a large fabric is lost.
func TestLarge(t *testing.T) {
	r, err := Import(largeFabric(t), Options{})
	if err != nil {
		t.Fatal(err)
	}
	ports, facing := 0, 0
	for _, d := range r.Spec.Devices {
		for _, p := range d.Ports {
			ports++
			if p.Peer != "" {
				facing++
			}
		}
	}
	want := 2*largeSpines*largeLeaves + largeLeaves*largeHosts
	if len(r.Spec.Devices) != largeSpines+largeLeaves || ports != want || facing != want || len(r.Spec.Hosts) != largeLeaves*largeHosts || len(r.Spec.Groups) != largeLeaves {
		t.Errorf("%d devices, %d ports, %d with a peer, %d hosts, %d groups", len(r.Spec.Devices), ports, facing, len(r.Spec.Hosts), len(r.Spec.Groups))
	}
	if len(r.Warnings) > 0 || len(r.Missing) != 1 || r.Incomplete != nil {
		t.Errorf("warnings %q, missing %q, incomplete: %v", r.Warnings, r.Missing, r.Incomplete)
	}
}

// BenchmarkImport imports 500 switches and writes their fabric file.
func BenchmarkImport(b *testing.B) {
	files := largeFabric(b)
	size := 0
	for i := range files {
		size += len(files[i].Data)
	}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		r, err := Import(files, Options{})
		if err != nil {
			b.Fatal(err)
		}
		if err := r.Write(io.Discard); err != nil {
			b.Fatal(err)
		}
	}
}
