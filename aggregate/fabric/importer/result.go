package importer

import (
	"cmp"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"strings"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode/csig"
)

// Result is a fabric, with the list of missing facts.
type Result struct {
	Spec *fabric.Spec
	// Missing lists data that no file states and a person has to add.
	Missing []string
	// Warnings are contradictions between files, with the chosen one, and skipped data.
	Warnings []string
	// Incomplete is the error of a command that reads the fabric as it is; nil: it is complete.
	Incomplete error

	files    int
	comments map[string]string // by the path in the file, such as devices[3].ports[1]
}

// Write writes the fabric file, with comments where a person has to add something.
func (r *Result) Write(w io.Writer) error {
	head := []string{fmt.Sprintf("Written by csigscope fabric import of %d files.", r.files)}
	for _, line := range r.Missing {
		head = append(head, "Missing: "+line)
	}
	head = append(head, "", "The locator layout is a setting of the switches. With codes and bits as they use them, it is like this:", "")
	return r.Spec.WriteCommented(w, strings.Join(append(head, r.locators()...), "\n"), r.comments)
}

// locators returns a locator layout with the words of this fabric, for a person to correct.
func (r *Result) locators() []string {
	var stages, orientations, speeds []string
	add := func(list *[]string, s string) {
		if s != "" && !slices.Contains(*list, s) {
			*list = append(*list, s)
		}
	}
	for i := range r.Spec.Devices {
		add(&stages, r.Spec.Devices[i].Stage)
		for k := range r.Spec.Devices[i].Ports {
			p := &r.Spec.Devices[i].Ports[k]
			add(&orientations, p.Orientation)
			add(&speeds, p.Speed)
		}
	}
	slices.SortFunc(speeds, fabric.CompareNames)
	lines := []string{"csig:", "  locators:", "  - format: compact", "    profile: ietf01", "    fields:"}
	for _, f := range []struct {
		name   string
		values []string
	}{{"stage", stages}, {"orientation", orientations}, {"capacity", speeds}} {
		var codes []string
		for n, v := range f.values {
			codes = append(codes, fmt.Sprintf("%d: %s", n, v))
		}
		lines = append(lines, fmt.Sprintf("    - {field: %s, bits: %d, values: {%s}}", f.name, max(bits.Len(uint(max(len(codes)-1, 0))), 1), strings.Join(codes, ", ")))
	}
	return lines
}

// speedText returns a speed in kbit/s in the notation of fabric files.
func speedText(kbps uint64) string { return fabric.SpeedLabel(kbps) + "bps" }

// assembly makes the fabric from the merged network.
type assembly struct {
	*merger
	options  Options
	switches []*device
	racks    *racks
	out      *Result

	standIns map[*rack]string
	rackAt   map[*iface]*rack // of ports whose hosts a stand-in represents
	noSpeed, noNeighbour, noAddress,
	noFarPort, noStage, noPrefix []string
}

// result assembles the fabric.
func (m *merger) result(files int, o Options) (*Result, error) {
	a := &assembly{merger: m, options: o, out: &Result{Spec: &fabric.Spec{Version: fabric.SpecVersion}, files: files, comments: map[string]string{}}, standIns: map[*rack]string{}, rackAt: map[*iface]*rack{}}
	var apart []string
	linked := m.neighbours()
	for _, d := range m.devices {
		switch {
		case d.kind != switchKind:
		case len(linked[d]) > 0 || d.sonic != nil:
			a.switches = append(a.switches, d)
		default:
			apart = append(apart, d.name)
		}
	}
	if len(a.switches) == 0 {
		return nil, fmt.Errorf("the files state no link of a switch: add config_db.json, LLDP, cables or a topology of switches")
	}
	if len(apart) > 0 {
		m.warnf("%s: no link in the fabric: left out", some(apart))
	}
	slices.SortStableFunc(a.switches, func(x, y *device) int {
		return cmp.Or(cmp.Compare(x.height, y.height), fabric.CompareNames(x.name, y.name))
	})
	a.addFarPorts()
	a.racks = m.findRacks(a.switches)
	a.standIn()
	for _, d := range a.switches {
		a.addDevice(d)
	}
	a.addHosts()
	a.addGroups()
	a.report()
	return a.out, nil
}

// addFarPorts gives switches a port for each link that only its other end states: without it, no
// path would lead back.
func (a *assembly) addFarPorts() {
	type pair struct{ from, to *device }
	stated := map[pair][]*iface{}
	var order []pair
	for _, d := range a.switches {
		for _, i := range d.ports {
			if p := i.faces(); p != nil && p.kind == switchKind {
				k := pair{d, p}
				if len(stated[k]) == 0 {
					order = append(order, k)
				}
				stated[k] = append(stated[k], i)
			}
		}
	}
	for _, k := range order {
		lacking := len(stated[k]) - len(stated[pair{k.to, k.from}])
		for _, near := range stated[k] {
			if near.far != nil || lacking <= 0 {
				continue
			}
			lacking--
			far := a.newPort(k.to, cleanPort("to-"+k.from.name+"-"+near.name))
			far.peer, far.far, far.speed, far.up = k.from, near, near.speed, true
			near.far = far
			a.noFarPort = append(a.noFarPort, far.device.name+":"+far.name)
		}
	}
}

// standIn adds a host for each rack with known prefixes and unknown hosts: it ties the prefix to
// the switches.
func (a *assembly) standIn() {
	known := map[*rack]bool{}
	for _, h := range a.racks.hosts {
		if len(a.racks.address[h]) > 0 {
			for _, d := range a.racks.leavesOf[h] {
				for _, k := range a.racks.of[d] {
					known[k] = true
				}
			}
		}
	}
	for _, k := range a.racks.list {
		if known[k] || len(k.prefixes) == 0 {
			continue
		}
		for _, d := range k.leaves {
			for _, i := range d.ports {
				if (a.racks.access[i] || a.nameless(i)) && a.rackAt[i] == nil {
					a.rackAt[i] = k
					a.standIns[k] = cleanNode(strings.ReplaceAll(k.name, "+", "-") + "-hosts")
				}
			}
		}
	}
}

// nameless reports whether a port faces a host without an address.
func (a *assembly) nameless(i *iface) bool {
	h := i.faces()
	return h != nil && h.kind == hostKind && len(a.racks.address[h]) == 0
}

func (a *assembly) addDevice(d *device) {
	out := fabric.DeviceSpec{Name: d.name, Stage: cmp.Or(d.stage, "switch")}
	at := fmt.Sprintf("devices[%d]", len(a.out.Spec.Devices))
	if d.stage == "" {
		a.noStage = append(a.noStage, d.name)
		a.out.comments[at] = "stage: neither a role, a name nor a link says it"
	}
	slices.SortStableFunc(d.ports, func(x, y *iface) int { return fabric.CompareNames(x.name, y.name) })
	for _, i := range d.ports {
		peer := i.faces()
		if i.hidden || i.logical || peer == nil && !a.racks.access[i] {
			if i.up && !i.hidden && !i.logical && i.peer == nil {
				a.noNeighbour = append(a.noNeighbour, d.name+":"+i.name)
			}
			continue
		}
		p := fabric.PortSpec{Name: i.name, Orientation: d.orientation(peer), Speed: a.speed(i)}
		var notes []string
		switch {
		case a.rackAt[i] != nil:
			p.Peer = a.standIns[a.rackAt[i]]
		case peer == nil:
		case a.nameless(i):
			a.noAddress = append(a.noAddress, peer.name)
		default:
			p.Peer = peer.name
		}
		if a.nameless(i) {
			notes = append(notes, "faces "+peer.name+", whose address no file states")
		}
		if p.Speed == "" {
			a.noSpeed = append(a.noSpeed, d.name+":"+i.name)
			notes = append(notes, "speed: no file states it")
		}
		if len(notes) > 0 {
			a.out.comments[fmt.Sprintf("%s.ports[%d]", at, len(out.Ports))] = strings.Join(notes, "; ")
		}
		out.Ports = append(out.Ports, p)
	}
	a.out.Spec.Devices = append(a.out.Spec.Devices, out)
}

// speed returns the speed of a port, of the other end of its link, of the medium or the name at one
// of the ends, or of the options; "" if none states it.
func (a *assembly) speed(i *iface) string {
	kbps, noted := i.speed, cmp.Or(i.noted, speedOfName(i.name))
	if i.far != nil {
		if kbps != 0 && i.far.speed != 0 && kbps != i.far.speed && i.device.name < i.far.device.name {
			a.warnf("%s:%s has %s, says %s, and %s at the other end of its link %s, says %s", i.device.name, i.name, speedText(kbps),
				i.speedFrom, nameOf(i.far.device, i.far), speedText(i.far.speed), i.far.speedFrom)
		}
		kbps, noted = cmp.Or(kbps, i.far.speed), cmp.Or(noted, i.far.noted, speedOfName(i.far.name))
	}
	if kbps = cmp.Or(kbps, noted, a.options.Speed); kbps == 0 {
		return ""
	}
	return speedText(kbps)
}

func (a *assembly) addHosts() {
	for _, h := range a.racks.hosts {
		addresses := a.racks.address[h]
		if len(addresses) == 0 {
			continue
		}
		out := fabric.HostSpec{Name: h.name}
		for _, x := range addresses {
			out.Addresses = append(out.Addresses, x.String())
		}
		a.out.Spec.Hosts = append(a.out.Spec.Hosts, out)
	}
	for _, k := range a.racks.list {
		if name := a.standIns[k]; name != "" {
			a.out.comments[fmt.Sprintf("hosts[%d]", len(a.out.Spec.Hosts))] = "stands for the hosts of " + k.name + ", which no file names"
			a.out.Spec.Hosts = append(a.out.Spec.Hosts, fabric.HostSpec{Name: name, Addresses: []string{k.prefixes[0].Addr().String()}})
		}
	}
}

// addGroups makes a group of each rack, and of each pod.
func (a *assembly) addGroups() {
	podOf, pods := a.findPods(a.switches)
	taken := map[string]bool{"unknown": true, "overflow": true}
	for _, name := range pods {
		taken[name] = true
	}
	list := slices.Clone(a.racks.list)
	slices.SortStableFunc(list, func(x, y *rack) int { return fabric.CompareNames(x.name, y.name) })
	byPod := map[string][]fabric.GroupSpec{}
	covered := map[*device]bool{}
	for _, k := range list {
		g := fabric.GroupSpec{Name: k.groupName(taken), Level: "rack", Parent: podOf[k.leaves[0]]}
		for _, p := range k.prefixes {
			g.Prefixes = append(g.Prefixes, p.String())
		}
		for _, d := range k.leaves {
			covered[d] = true
		}
		byPod[g.Parent] = append(byPod[g.Parent], g)
	}
	for _, name := range pods {
		a.out.Spec.Groups = append(a.out.Spec.Groups, fabric.GroupSpec{Name: name, Level: "pod"})
		a.out.Spec.Groups = append(a.out.Spec.Groups, byPod[name]...)
	}
	a.out.Spec.Groups = append(a.out.Spec.Groups, byPod[""]...)
	lowest := a.switches[0].height
	for _, d := range a.switches {
		if d.height == lowest && !covered[d] {
			a.noPrefix = append(a.noPrefix, d.name)
		}
	}
}

// report lists missing data, with the first names of each kind.
func (a *assembly) report() {
	a.out.Missing = []string{"the locator layout, under csig: without it, locations are raw values of locator metadata"}
	for _, m := range []struct {
		names []string
		text  string
	}{
		{a.noStage, "the stages of %s: neither a role, a name nor a link says them"},
		{a.noSpeed, "the speeds of %s"},
		{a.noAddress, "the addresses of hosts: %s. Add them under hosts, and their names as peer of their ports"},
		{a.noPrefix, "the addresses behind %s: neither a prefix nor a host of theirs is known. Add a group and hosts"},
		{a.noNeighbour, "the neighbours of ports that are up: %s. They are left out"},
		{a.noFarPort, "the names of ports that only the other end of their link states: %s"},
	} {
		if len(m.names) > 0 {
			a.out.Missing = append(a.out.Missing, fmt.Sprintf(m.text, some(m.names)))
		}
	}
	a.out.Warnings = a.warnings.list("warnings")
	domain, err := csig.DefaultSpec().Compile()
	if err == nil {
		_, err = fabric.New(a.out.Spec, domain)
	}
	a.out.Incomplete = err
}

// some returns the first names of a list, and the number of others.
func some(names []string) string {
	const most = 5
	names = slices.Compact(slices.Clone(names))
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}
