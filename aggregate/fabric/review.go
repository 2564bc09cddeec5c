package fabric

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/csigscope/csigscope/decode/csig"
)

// Review returns the data that is missing in the fabric file for full results, and valid data that
// looks like a mistake, including Warnings. Both are sentences for people; without a fabric file
// there are none.
func (f *Fabric) Review() (missing, suspicious []string) {
	if len(f.topo.devices) == 0 {
		return nil, f.Warnings()
	}
	r := review{t: f.topo}
	words := vocabularies(f.domain)
	if len(words) == 0 {
		r.missing = append(r.missing, "csig: locators: without a locator layout, locations are raw values of locator metadata")
	}
	r.ids(words)
	r.zero(words)
	r.ends()
	r.warnings = slices.Clone(f.topo.warnings)
	r.links()
	r.islands()
	return r.missing, r.warningList()
}

type review struct {
	problems
	t       *topology
	missing []string
}

// ids finds the ports and devices without the id by which locators name them.
func (r *review) ids(words []vocabulary) {
	var ports, devices []string
	for i := range r.t.ports {
		if p := &r.t.ports[i]; p.id == 0 {
			ports = append(ports, p.name)
		}
	}
	for i := range r.t.devices {
		if d := &r.t.devices[i]; d.id == 0 && len(d.ports) > 0 {
			devices = append(devices, d.name)
		}
	}
	note := func(f csig.Field, names []string, which string) {
		i := slices.IndexFunc(words, func(v vocabulary) bool { return v.has[f] })
		if i >= 0 && len(names) > 0 {
			r.missing = append(r.missing, fmt.Sprintf("id of %s: %s has %s, so the locations of tags that name %s are unknown", some(names), words[i].name, f, which))
		}
	}
	note(csig.FieldPort, ports, "these ports")
	note(csig.FieldDevice, devices, "ports of these devices")
}

// zero finds the ports that write locator 0, if the layout does not say that it names a port.
func (r *review) zero(words []vocabulary) {
	for i := range words {
		v := &words[i]
		if _, named := v.locator.Decode(0); named || v.has[csig.FieldTTL] {
			continue
		}
		fields := fieldsOf(func(f csig.Field) bool { return v.has[f] })
		var ports []string
		for i := range r.t.ports {
			k, ok := r.t.expressible(fields, int32(i))
			lm, err := v.locator.Encode(csig.Attributes{Stage: k.stage, Orientation: k.orientation, Capacity: k.capacity, Port: k.port, Device: k.device})
			if ok && err == nil && lm == 0 {
				ports = append(ports, r.t.ports[i].name)
			}
		}
		if len(ports) > 0 {
			r.missing = append(r.missing, fmt.Sprintf("zero_is_location of %s, which is 0 for %s: without it, 0 is the value that hosts send, so the locations of tags that name these ports are unknown", v.name, some(ports)))
			return
		}
	}
}

// ends finds a lack of groups or hosts, racks without hosts, and ports without a peer.
func (r *review) ends() {
	if len(r.t.groups) == 0 {
		r.missing = append(r.missing, "groups: without any, each /24 and /64 is a group of its own")
	}
	if len(r.t.hosts) == 0 {
		r.missing = append(r.missing, "hosts: without any, no path is known")
	}
	var homeless, open []string
	for i := range r.t.groups {
		if g := &r.t.groups[i]; g.level == "rack" && len(g.homes) == 0 {
			homeless = append(homeless, g.name)
		}
	}
	for i := range r.t.ports {
		if p := &r.t.ports[i]; p.peer == "" && p.orientation != "down" {
			open = append(open, p.name)
		}
	}
	if len(homeless) > 0 && len(r.t.hosts) > 0 {
		r.missing = append(r.missing, "hosts of "+some(homeless)+": paths to and from these groups are not known")
	}
	if len(open) > 0 {
		r.missing = append(r.missing, "peer of "+some(open)+": no path to another device passes these ports; those that leave the fabric need no peer")
	}
}

// some returns the first names of a list, and the number of others.
func some(names []string) string {
	const most = 5
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// bundle is the ports of one device that face another.
type bundle struct {
	ports  []int32
	speeds []uint64 // ascending
}

// links compares the ports at the two ends of links.
func (r *review) links() {
	type pair struct{ from, to int32 }
	bundles := map[pair]*bundle{}
	var order []pair
	for i := range r.t.ports {
		p := &r.t.ports[i]
		if p.peerDevice == none {
			continue
		}
		k := pair{p.device, p.peerDevice}
		if bundles[k] == nil {
			bundles[k] = new(bundle)
			order = append(order, k)
		}
		b := bundles[k]
		b.ports, b.speeds = append(b.ports, int32(i)), append(b.speeds, p.speed)
	}
	for _, k := range order {
		here, there := bundles[k], bundles[pair{k.to, k.from}]
		if there == nil || k.from > k.to {
			continue // warnings already list links that only one end states
		}
		r.compare(r.t.devices[k.from].name, r.t.devices[k.to].name, here, there)
	}
}

// opposite is the orientation of the port at the other end.
var opposite = map[string]string{"up": "down", "down": "up", "side": "side"}

func (r *review) compare(a, b string, here, there *bundle) {
	slices.Sort(here.speeds)
	slices.Sort(there.speeds)
	switch {
	case len(here.ports) != len(there.ports):
		r.warnf("%s has %d ports that face %s, which has %d that face it", a, len(here.ports), b, len(there.ports))
	case !slices.Equal(here.speeds, there.speeds):
		r.warnf("the ports of %s and %s that face each other have different speeds", a, b)
	}
	x, y := &r.t.ports[here.ports[0]], &r.t.ports[there.ports[0]]
	if y.orientation != opposite[x.orientation] {
		r.warnf("port %s is %s, and %s at the other end is %s: expected %s", x.name, x.orientation, y.name, y.orientation, opposite[x.orientation])
	}
}

// islands finds devices that no link connects with the others.
func (r *review) islands() {
	root := make([]int32, len(r.t.devices))
	for i := range root {
		root[i] = int32(i)
	}
	find := func(i int32) int32 {
		for root[i] != i {
			root[i] = root[root[i]]
			i = root[i]
		}
		return i
	}
	for i := range r.t.ports {
		if p := &r.t.ports[i]; p.peerDevice != none {
			root[find(p.device)] = find(p.peerDevice)
		}
	}
	sizes := map[int32]int{}
	for i := range root {
		sizes[find(int32(i))]++
	}
	if len(sizes) < 2 {
		return
	}
	var largest int32
	for i := range root {
		if at := find(int32(i)); cmp.Compare(sizes[at], sizes[find(largest)]) > 0 {
			largest = int32(i)
		}
	}
	var apart []string
	for i := range root {
		if find(int32(i)) != find(largest) {
			apart = append(apart, r.t.devices[i].name)
		}
	}
	r.warnf("no link connects %s with the other devices", some(apart))
}
