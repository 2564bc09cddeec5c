package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/csigscope/csigscope/aggregate/fabric"
)

// TestImportedFabric writes the fabric of a simulation in the formats of SONiC and
// containerlab, imports it, and finds the same ports, links and hosts. With the locator layout
// and the taps, which such files lack, replay gives the same locations as with the simulator's
// own file.
func TestImportedFabric(t *testing.T) {
	t.Parallel()
	for _, scenario := range []string{"quickstart", "three-tier"} {
		e := emit(t, "--scenario", scenario, "--set", "format=compact", "--set", "profile=ietf01", "--set", "duration=3s")
		want, err := fabric.Load(e.fabric())
		if err != nil {
			t.Fatal(err)
		}
		for kind, write := range map[string]func(t *testing.T, s *fabric.Spec, dir string){"sonic": writeSONiC, "containerlab": writeContainerlab} {
			t.Run(scenario+" "+kind, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				write(t, want, dir)
				imported := filepath.Join(t.TempDir(), "fabric.yaml")
				r := runBinary(t, nil, "fabric", "import", dir, "--out", imported, "--speed", "1Gbps")
				if r.code != exitDone || strings.Contains(r.stderr, "warning") || strings.Count(r.stderr, "missing: ") != 1 || !strings.Contains(r.stderr, "locator layout") {
					t.Fatalf("exit code %d: %s", r.code, r.stderr)
				}
				got, err := fabric.Load(imported)
				if err != nil {
					t.Fatal(err)
				}
				sameFabric(t, got, want, kind == "sonic")
				if kind == "sonic" { // containerlab has no speeds, which the locator needs
					sameLocations(t, e, got, want)
				}
			})
		}
	}
}

// sameFabric compares the devices, ports and hosts of two files.
func sameFabric(t *testing.T, got, want *fabric.Spec, speeds bool) {
	t.Helper()
	ports := func(s *fabric.Spec) map[string]string {
		list := map[string]string{}
		for _, d := range s.Devices {
			for _, p := range d.Ports {
				speed := p.Speed
				if !speeds {
					speed = ""
				}
				list[d.Name+":"+p.Name] = fmt.Sprintf("%s %s %s %s", d.Stage, p.Orientation, p.Peer, speed)
			}
		}
		return list
	}
	hosts := func(s *fabric.Spec) map[string][]string {
		list := map[string][]string{}
		for _, h := range s.Hosts {
			list[h.Name] = h.Addresses
		}
		return list
	}
	prefixes := func(s *fabric.Spec) map[string]string { // to the name of the pod
		list := map[string]string{}
		for _, g := range s.Groups {
			for _, p := range g.Prefixes {
				list[p] = g.Parent
				if !slices.ContainsFunc(s.Groups, func(o fabric.GroupSpec) bool { return o.Level == "pod" && o.Name != g.Parent }) {
					list[p] = "" // the only pod is the fabric
				}
			}
		}
		return list
	}
	if a, b := ports(got), ports(want); len(b) == 0 || !reflect.DeepEqual(a, b) {
		t.Errorf("ports are\n%v, expected\n%v", a, b)
	}
	if a, b := hosts(got), hosts(want); len(b) == 0 || !reflect.DeepEqual(a, b) {
		t.Errorf("hosts are\n%v, expected\n%v", a, b)
	}
	if a, b := prefixes(got), prefixes(want); len(b) == 0 || !reflect.DeepEqual(a, b) {
		t.Errorf("prefixes are\n%v, expected\n%v", a, b)
	}
}

// sameLocations replays captures with both files.
func sameLocations(t *testing.T, e emitted, got, want *fabric.Spec) {
	t.Helper()
	got.CSIG, got.Taps = want.CSIG, want.Taps
	file := filepath.Join(t.TempDir(), "fabric.yaml")
	out, err := os.Create(file)
	if err == nil {
		err = got.Write(out)
	}
	if err != nil {
		t.Fatal(err)
	}
	out.Close()
	located := func(fabricFile string) []string {
		args := append([]string{"replay", "--fabric", fabricFile, "--store", "none", "-o", "json"}, e.captures(t)...)
		var list []string
		for _, c := range answeredCells(t, mustRun(t, nil, args...)) {
			list = append(list, fmt.Sprintf("%s %d %d %q %d %q", c.Kind, c.Observations, c.Heavy, c.Mode.Location, c.Mode.Heavy, c.RunnerUp.Location))
		}
		slices.Sort(list)
		return list
	}
	a, b := located(file), located(e.fabric())
	if !slices.ContainsFunc(b, func(s string) bool { return strings.Contains(s, ":") }) {
		t.Error("no cell has a port as the mode of its bottleneck")
	}
	if !slices.Equal(a, b) {
		t.Errorf("with the imported file cells are\n%s\nexpected\n%s", strings.Join(a, "\n"), strings.Join(b, "\n"))
	}
}

// rackPrefix returns the prefix of the group that contains a host's address.
func rackPrefix(t *testing.T, s *fabric.Spec, address string) netip.Prefix {
	t.Helper()
	for _, g := range s.Groups {
		for _, text := range g.Prefixes {
			if p := netip.MustParsePrefix(text); p.Contains(netip.MustParseAddr(address)) {
				return p
			}
		}
	}
	t.Fatalf("no group holds %s", address)
	return netip.Prefix{}
}

func hostAddress(s *fabric.Spec, name string) string {
	for _, h := range s.Hosts {
		if h.Name == name {
			return h.Addresses[0]
		}
	}
	return ""
}

// writeSONiC writes config_db.json for each switch: one end of a link between switches omits
// the far end.
func writeSONiC(t *testing.T, s *fabric.Spec, dir string) {
	t.Helper()
	for i := range s.Devices {
		d := &s.Devices[i]
		ports, neighbours, vlans, members, muxes := map[string]any{}, map[string]any{}, map[string]any{}, map[string]any{}, map[string]any{}
		for n, p := range d.Ports {
			mbps := strings.NewReplacer("Gbps", "000", "Mbps", "").Replace(p.Speed)
			ports[p.Name] = map[string]string{"alias": fmt.Sprintf("Eth1/%d", n+1), "lanes": fmt.Sprint(n), "speed": mbps, "admin_status": "up"}
			neighbours[p.Name] = map[string]string{"name": p.Peer, "port": ""}
			if a := hostAddress(s, p.Peer); a != "" {
				prefix := rackPrefix(t, s, a)
				vlans[fmt.Sprintf("Vlan10|%s/%d", prefix.Addr().Next(), prefix.Bits())] = map[string]any{}
				members["Vlan10|"+p.Name] = map[string]string{"tagging_mode": "untagged"}
				muxes[p.Name] = map[string]string{"server_ipv4": a + "/32"}
			}
		}
		data, err := json.Marshal(map[string]any{
			"DEVICE_METADATA": map[string]any{"localhost": map[string]string{"hostname": d.Name}},
			"PORT":            ports, "DEVICE_NEIGHBOR": neighbours, "VLAN_INTERFACE": vlans, "VLAN_MEMBER": members, "MUX_CABLE": muxes,
		})
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(dir, d.Name+".json"), string(data))
	}
}

// writeContainerlab writes one topology, in which each link occurs once.
func writeContainerlab(t *testing.T, s *fabric.Spec, dir string) {
	t.Helper()
	var b strings.Builder
	b.WriteString("name: lab\ntopology:\n  nodes:\n")
	for _, d := range s.Devices {
		fmt.Fprintf(&b, "    %s: {kind: nokia_srlinux}\n", d.Name)
	}
	for _, h := range s.Hosts {
		fmt.Fprintf(&b, "    %s:\n      kind: linux\n      exec: [ip addr add %s/%d dev eth1]\n", h.Name, h.Addresses[0], rackPrefix(t, s, h.Addresses[0]).Bits())
	}
	b.WriteString("  links:\n")
	for _, d := range s.Devices {
		for _, p := range d.Ports {
			switch {
			case hostAddress(s, p.Peer) != "":
				fmt.Fprintf(&b, "    - endpoints: [\"%s:%s\", \"%s:eth1\"]\n", d.Name, p.Name, p.Peer)
			case p.Orientation == "up":
				fmt.Fprintf(&b, "    - endpoints: [\"%s:%s\", \"%s:%s\"]\n", d.Name, p.Name, p.Peer, portFacing(s, p.Peer, d.Name))
			}
		}
	}
	writeFile(t, filepath.Join(dir, "lab.clab.yml"), b.String())
}

// portFacing returns the port of a device that faces another: fabrics of the simulator have
// one.
func portFacing(s *fabric.Spec, device, peer string) string {
	for _, d := range s.Devices {
		for _, p := range d.Ports {
			if d.Name == device && p.Peer == peer {
				return p.Name
			}
		}
	}
	return ""
}

// TestFabricCommands: exit codes and formats.
func TestFabricCommands(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	lab := writeFile(t, filepath.Join(dir, "lab.yml"), "topology:\n  nodes: {leaf1: {kind: arista_ceos}, spine1: {kind: arista_ceos}}\n  links: [{endpoints: [\"leaf1:eth1\", \"spine1:eth1\"]}]\n")
	complete := filepath.Join(dir, "fabric.yaml")
	for _, c := range []struct {
		args           []string
		code           int
		stdout, stderr string
	}{
		{[]string{"import"}, exitUsage, "", "no file or folder given"},
		{[]string{"import", filepath.Join(dir, "absent")}, exitUsage, "", "no such file"},
		{[]string{"import", lab, "--speed", "fast"}, exitUsage, "", "--speed"},
		{[]string{"import", lab}, exitFound, "{name: eth1, orientation: up, peer: spine1, speed: \"\"}", "the fabric file is not complete"},
		{[]string{"import", lab, "--speed", "10Gbps", "--out", complete}, exitDone, "", "missing: the locator layout"},
		{[]string{"check"}, exitUsage, "", "expected one fabric FILE, got 0"},
		{[]string{"check", lab}, exitUsage, "", "lab.yml:1: unknown key \"topology\""},
		{[]string{"check", complete}, exitDone, "fabric is valid", "missing: hosts"},
		{[]string{"show", complete}, exitDone, "1 links of 10G between leaf and spine\n", ""},
		{[]string{"show", complete, "-o", "csv"}, exitDone, "pod,stage,device,port,orientation,speed_bps,peer,peer_kind\n,leaf,leaf1,eth1,up,10000000000,spine1,device\n", ""},
		{[]string{"show", complete, "-o", "json"}, exitDone, `"between": [`, ""},
		{[]string{"show", complete, "-o", "xml"}, exitUsage, "", "--output"},
	} {
		r := runBinary(t, nil, append([]string{"fabric"}, c.args...)...)
		if r.code != c.code || !strings.Contains(r.stdout, c.stdout) || !strings.Contains(r.stderr, c.stderr) {
			t.Errorf("fabric %s: exit code %d\n%s%s", strings.Join(c.args, " "), r.code, r.stdout, r.stderr)
		}
	}
}

// TestOneCheck: config check and fabric check agree about a fabric file.
func TestOneCheck(t *testing.T) {
	t.Parallel()
	file := writeFile(t, filepath.Join(t.TempDir(), "fabric.yaml"), `version: 1
devices:
- {name: leaf1, stage: leaf, ports: [{name: up1, orientation: up, peer: spine1, speed: 100Gbps}]}
- {name: spine1, stage: spine, ports: [{name: down1, orientation: up, peer: leaf1, speed: 40Gbps}]}
- {name: spine2, stage: spine, ports: []}
`)
	one, other := runBinary(t, nil, "fabric", "check", file), runBinary(t, nil, "config", "check", "--fabric", file)
	if one.stderr != other.stderr || one.code != exitDone || other.code != exitDone {
		t.Errorf("fabric check: %q, config check: %q", one.stderr, other.stderr)
	}
	for _, want := range []string{"missing: csig: locators", "missing: groups", "missing: hosts", "different speeds", "port leaf1:up1 is up, and spine1:down1 at the other end is up: expected down", "no link connects spine2 with the other devices"} {
		if !strings.Contains(one.stderr, want) {
			t.Errorf("%q is not in %q", want, one.stderr)
		}
	}
}
