package fabric

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode/csig"
)

// Bounds of a fabric.
const (
	maxPorts = 1 << 20
	maxNodes = 1 << 20 // devices, hosts, groups, addresses, prefixes: each
	maxName  = 128     // bytes
)

// builder makes a topology from a Spec and collects the errors in it.
type builder struct {
	problems

	spec  *Spec
	topo  *topology
	words []vocabulary
	nodes map[string]string // names that peers can have, to the path that defines them
}

// check builds the topology under the domain of the specification itself, for its errors.
func (s *Spec) check() error {
	if _, err := s.CSIG.Compile(); err != nil {
		// The compiler's errors begin with the section and index at fault.
		text := strings.TrimPrefix(err.Error(), "compile ")
		path, _, _ := strings.Cut(text, ":")
		path, _, _ = strings.Cut(path, " ")
		p := problems{}
		p.errorf("csig."+path, "%s", text)
		return p.err()
	}
	d, err := csig.DefaultSpec().Overlay(s.CSIG).Compile()
	if err != nil {
		return fmt.Errorf("check csig section: %w", err)
	}
	_, err = build(s, d)
	return err
}

// build checks the specification and compiles it.
func build(s *Spec, d *csig.Domain) (*topology, error) {
	b := &builder{spec: s, nodes: map[string]string{}, words: vocabularies(d)}
	b.topo = &topology{
		deviceIndex: map[string]int32{}, hostIndex: map[string]int32{}, groupIndex: map[string]int32{},
		addresses: map[netip.Addr]int32{},
	}
	if s.Version != SpecVersion {
		b.errorf("version", "is %d: expected %d", s.Version, SpecVersion)
	}
	if b.bounds(); len(b.errs) > 0 {
		return nil, b.err()
	}
	b.hosts()
	b.devices()
	b.peers()
	b.groups()
	b.ecmp()
	b.taps()
	if len(b.errs) > 0 {
		return nil, b.err()
	}
	b.checkWords()
	b.topo.index()
	b.paths()
	b.checkLinks()
	b.topo.ecmp = newECMP(s, b.topo)
	b.topo.warnings = b.warningList()
	return b.topo, b.err()
}

func (b *builder) bounds() {
	ports := 0
	for i := range b.spec.Devices {
		ports += len(b.spec.Devices[i].Ports)
	}
	if ports > maxPorts {
		b.errorf("devices", "%d ports: expected at most %d", ports, maxPorts)
	}
	addresses, prefixes := 0, 0
	for i := range b.spec.Hosts {
		addresses += len(b.spec.Hosts[i].Addresses)
	}
	for i := range b.spec.Groups {
		prefixes += len(b.spec.Groups[i].Prefixes)
	}
	for _, list := range []struct {
		path string
		n    int
		what string
	}{
		{"devices", len(b.spec.Devices), "of them"},
		{"hosts", len(b.spec.Hosts), "of them"},
		{"groups", len(b.spec.Groups), "of them"},
		{"taps", len(b.spec.Taps), "of them"},
		{"paths", len(b.spec.Paths), "of them"},
		{"hosts", addresses, "addresses"},
		{"groups", prefixes, "prefixes"},
	} {
		if list.n > maxNodes {
			b.errorf(list.path, "%d %s: expected at most %d", list.n, list.what, maxNodes)
		}
	}
}

// Characters that names must not have, because they would make canonical names ambiguous:
// "device:port", lists with commas, "leaf3 up". A port's name may have colons, as in "et-0/0/1:2".
const (
	notInNames     = " ,:()"
	notInPortNames = " ,()"
	notInLabels    = `"`
)

// checkName requires a printable name without the forbidden characters.
func (p *problems) checkName(path, name, forbidden string) {
	switch {
	case name == "":
		p.errorf(path, "is missing: give it a name")
	case len(name) > maxName:
		p.errorf(path, "is %d bytes long: expected at most %d", len(name), maxName)
	case !utf8.ValidString(name):
		p.errorf(path, "%q: is not valid UTF-8", name)
	case strings.ContainsAny(name, forbidden) || strings.ContainsFunc(name, unprintable):
		p.errorf(path, "%q: expected printable characters and none of %q", name, forbidden)
	}
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

// define adds a name that ports can face.
func (b *builder) define(path, name string) {
	b.checkName(path+".name", name, notInNames)
	if at, taken := b.nodes[name]; taken && name != "" {
		b.errorf(path+".name", "%q: is already the name of %s: rename one", name, at)
		return
	}
	b.nodes[name] = path
}

func (b *builder) hosts() {
	t := b.topo
	owner := map[netip.Addr]string{}
	for i, h := range b.spec.Hosts {
		path := fmt.Sprintf("hosts[%d]", i)
		b.define(path, h.Name)
		t.hostIndex[h.Name] = int32(i)
		t.hosts = append(t.hosts, host{name: h.Name})
		if len(h.Addresses) == 0 {
			b.errorf(path+".addresses", "host %q has none: expected at least one IP address", h.Name)
		}
		for j, text := range h.Addresses {
			at := fmt.Sprintf("%s.addresses[%d]", path, j)
			a, err := netip.ParseAddr(text)
			if err != nil || a.Zone() != "" {
				b.errorf(at, "%q: expected an IP address such as 10.0.3.1 or 2001:db8::1", text)
				continue
			}
			a = canonicalAddr(a)
			if other, taken := owner[a]; taken {
				b.errorf(at, "%s: is already an address of host %q: remove one", text, other)
				continue
			}
			owner[a] = h.Name
			t.addresses[a] = int32(i)
		}
	}
}

func (b *builder) devices() {
	t := b.topo
	ids := map[uint32]string{}
	for i := range b.spec.Devices {
		d, path := &b.spec.Devices[i], fmt.Sprintf("devices[%d]", i)
		b.define(path, d.Name)
		b.checkName(path+".stage", d.Stage, notInNames)
		if d.Name == rawName || d.Name == overflowName || d.Stage == overflowName {
			b.errorf(path+".name", "device %q of stage %q: %q and %q are reserved: choose another name",
				d.Name, d.Stage, rawName, overflowName)
		}
		if other, taken := ids[d.ID]; taken && d.ID != 0 {
			b.errorf(path+".id", "%d: is already the id of device %q: ids are unique", d.ID, other)
		}
		ids[d.ID] = d.Name
		t.deviceIndex[d.Name] = int32(i)
		t.devices = append(t.devices, device{name: d.Name, stage: d.Stage, id: d.ID})
		b.devicePorts(path, int32(i), d)
	}
	slices.SortFunc(t.ports, func(x, y port) int { return cmp.Compare(x.name, y.name) })
}

func (b *builder) devicePorts(path string, n int32, d *DeviceSpec) {
	seen := make(map[string]bool, len(d.Ports))
	for j := range d.Ports {
		s, at := &d.Ports[j], fmt.Sprintf("%s.ports[%d]", path, j)
		b.checkName(at+".name", s.Name, notInPortNames)
		if seen[s.Name] {
			b.errorf(at+".name", "%q: device %q has two ports of that name: rename one", s.Name, d.Name)
		}
		seen[s.Name] = true
		if s.Orientation != "up" && s.Orientation != "down" && s.Orientation != "side" {
			b.errorf(at+".orientation", "%q: expected up, down or side", s.Orientation)
		}
		speed, err := csig.ParseQuantity(csig.BitPerSecond, s.Speed)
		switch {
		case s.Speed == "":
			b.errorf(at+".speed", "is missing: expected a rate such as 100Gbps")
		case err != nil:
			b.errorf(at+".speed", "%v", err)
		case speed == 0:
			b.errorf(at+".speed", "%q: expected at least 1 kbit/s", s.Speed)
		}
		b.topo.ports = append(b.topo.ports, port{
			name: portName(d.Name, s.Name), device: n, orientation: s.Orientation,
			peer: s.Peer, speed: speed, id: s.ID, number: int32(j),
		})
	}
}

func (b *builder) taps() {
	b.checkTaps(b.spec.Taps)
	for i, t := range b.spec.Taps {
		for j, name := range t.At {
			if b.topo.passages(name) == nil {
				b.errorf(fmt.Sprintf("taps[%d].at[%d]", i, j), noPassage, name)
			}
		}
	}
}

// CheckTaps checks taps. It returns SpecErrors whose paths begin with "taps[0]".
func CheckTaps(list []TapSpec) error {
	var p problems
	p.checkTaps(list)
	return p.err()
}

func (p *problems) checkTaps(list []TapSpec) {
	names := make(map[string]bool, len(list))
	for i, t := range list {
		path := fmt.Sprintf("taps[%d]", i)
		p.checkName(path+".name", t.Name, notInLabels)
		if names[t.Name] && t.Name != "" {
			p.errorf(path+".name", "%q: two taps have that name: rename one", t.Name)
		}
		names[t.Name] = true
		if !slices.Contains(TapPlaces, t.Place) {
			p.errorf(path+".place", "%q: expected %s", t.Place, oneOf(TapPlaces))
		}
		if len(t.At) > 0 && t.Place != "mid" {
			p.errorf(path+".at", "is for a tap at place mid, not %q", t.Place)
		}
		if err := aggregate.CheckWeight(uint64(t.Weight)); err != nil {
			p.errorf(path+".weight", "%v", err)
		}
	}
}

// oneOf joins a list as in "receiver, sender or mid".
func oneOf(list []string) string {
	last := len(list) - 1
	return strings.Join(list[:last], ", ") + " or " + list[last]
}

// TapPlaces are the valid places of a TapSpec.
var TapPlaces = []string{"receiver", "sender", "mid"}

// groupLevels are the levels of groups from the lowest, with their rank.
var groupLevels = map[string]int{"host": 1, "rack": 2, "pod": 3, "cluster": 4}

// Names of the groups that every fabric has.
const (
	unknownName  = "unknown"
	overflowName = "overflow"
)

func (b *builder) groups() {
	t := b.topo
	for i, g := range b.spec.Groups {
		path := fmt.Sprintf("groups[%d]", i)
		b.checkName(path+".name", g.Name, notInLabels)
		switch _, taken := t.groupIndex[g.Name]; {
		case taken:
			b.errorf(path+".name", "%q: two groups have that name: rename one", g.Name)
		case g.Name == unknownName || g.Name == overflowName:
			b.errorf(path+".name", "%q: is reserved: choose another name", g.Name)
		}
		if groupLevels[g.Level] == 0 {
			b.errorf(path+".level", "%q: expected host, rack, pod or cluster", g.Level)
		}
		t.groupIndex[g.Name] = int32(i)
		t.groups = append(t.groups, group{name: g.Name, level: g.Level, parent: g.Parent, id: GroupIDOf(g.Name)})
	}
	for i, g := range b.spec.Groups {
		b.groupParent(fmt.Sprintf("groups[%d].parent", i), g)
		for j, text := range g.Prefixes {
			b.groupPrefix(fmt.Sprintf("groups[%d].prefixes[%d]", i, j), text, int32(i))
		}
	}
}

// groupParent requires a higher level, which also excludes cycles.
func (b *builder) groupParent(path string, g GroupSpec) {
	if g.Parent == "" {
		return
	}
	parent := b.topo.groupNamed(g.Parent)
	if parent == none {
		b.errorf(path, "%q: no group has that name: add it, or leave parent out", g.Parent)
		return
	}
	if level := b.topo.groups[parent].level; groupLevels[level] <= groupLevels[g.Level] {
		b.errorf(path, "%q is a %s, not above a %s: expected a group of a higher level", g.Parent, level, g.Level)
	}
}

func (b *builder) groupPrefix(path, text string, n int32) {
	t := b.topo
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		b.errorf(path, "%q: expected a prefix such as 10.0.3.0/24 or 2001:db8:3::/64", text)
		return
	case p.Addr().Is4In6():
		b.errorf(path, "%s: write it as an IPv4 prefix", text)
		return
	case p != p.Masked():
		b.errorf(path, "%s: has bits beyond its length: did you mean %s?", text, p.Masked())
		return
	}
	if other, taken := t.prefixes.Get(p); taken {
		b.errorf(path, "%s: is already a prefix of group %q: remove one", text, t.groups[other].name)
		return
	}
	t.prefixes.Insert(p, n)
}

// peers resolves the peers of ports. Paths follow the file's order, so that errors name the line
// where the user wrote the port.
func (b *builder) peers() {
	t := b.topo
	facing := make([]int, len(t.hosts))
	for i := range b.spec.Devices {
		d := &b.spec.Devices[i]
		for j := range d.Ports {
			peer, at := d.Ports[j].Peer, fmt.Sprintf("devices[%d].ports[%d].peer", i, j)
			if h, ok := t.hostIndex[peer]; ok {
				facing[h]++
			} else if _, ok := t.deviceIndex[peer]; !ok && peer != "" {
				b.errorf(at, "%q: no device or host has that name: add it, or leave peer out", peer)
			}
			if peer == d.Name && peer != "" {
				b.errorf(at, "%q: is the port's own device", peer)
			}
		}
	}
	for i, n := range facing {
		if n == 0 {
			b.errorf(fmt.Sprintf("hosts[%d]", i), "no port faces host %q: name it as the peer of its switch port", t.hosts[i].name)
		}
	}
	for i := range t.ports {
		p := &t.ports[i]
		p.peerDevice, p.peerHost = none, none
		if h, ok := t.hostIndex[p.peer]; ok {
			p.peerHost = h
		} else if d, ok := t.deviceIndex[p.peer]; ok {
			p.peerDevice = d
		}
	}
}

// checkLinks warns about links that only one end states: paths would lack one of their directions.
func (b *builder) checkLinks() {
	t := b.topo
	type link struct{ from, to int32 }
	known := make(map[link]bool)
	for i := range t.ports {
		if p := &t.ports[i]; p.peerDevice != none {
			known[link{p.device, p.peerDevice}] = true
		}
	}
	for i := range t.ports {
		p := &t.ports[i]
		if p.peerDevice != none && !known[link{p.peerDevice, p.device}] {
			b.warnf("port %s faces %s, which has no port that faces %s: paths in that direction are missing",
				p.name, p.peer, t.devices[p.device].name)
		}
	}
	for i := range t.hosts {
		if n := len(t.attachedSwitches(int32(i))); n > maxHomes && t.attached[i] == none {
			b.warnf("host %s faces %d ports of more than %d devices: paths to and from it count as unknown",
				t.hosts[i].name, n, maxHomes)
		}
	}
	for _, h := range b.spec.Hosts {
		for _, text := range h.Addresses {
			a, err := netip.ParseAddr(text)
			if err == nil && len(t.groups) > 0 && t.groupOf(canonicalAddr(a)) == none {
				b.warnf("address %s of host %s is in no group: it counts as unknown", text, h.Name)
			}
		}
	}
}

// vocabulary is the set of values that one locator layout can express.
type vocabulary struct {
	name         string // "the locator of wide/uec050"
	locator      *csig.Locator
	has          [csig.FieldOpaque + 1]bool
	stages       map[string]bool
	orientations map[string]bool
	capacities   map[uint64]bool
	maxPort      uint32
	maxDevice    uint32
}

// vocabularies reads the locators of a domain by decoding every value of locator
// metadata, of which there are at most 65536 each.
func vocabularies(d *csig.Domain) []vocabulary {
	var list []vocabulary
	seen := map[*csig.Locator]bool{}
	for i := range csig.NumLayouts {
		l := csig.LayoutAt(i)
		for t := range l.Types() {
			loc := d.Locator(l, uint8(t))
			if loc == nil || seen[loc] {
				continue
			}
			seen[loc] = true
			list = append(list, newVocabulary(loc, l))
		}
	}
	return list
}

func newVocabulary(loc *csig.Locator, l csig.Layout) vocabulary {
	v := vocabulary{
		name:    fmt.Sprintf("the locator of %s", l),
		locator: loc,
		stages:  map[string]bool{}, orientations: map[string]bool{}, capacities: map[uint64]bool{},
	}
	for lm := range 1 << l.LMBits() {
		a, ok := loc.Decode(uint16(lm))
		if !ok {
			continue
		}
		for f := range csig.FieldOpaque + 1 {
			v.has[f] = a.Has(f)
		}
		v.stages[a.Stage] = true
		v.orientations[a.Orientation] = true
		v.capacities[a.Capacity] = true
		v.maxPort = max(v.maxPort, a.Port)
		v.maxDevice = max(v.maxDevice, a.Device)
	}
	return v
}

// checkWords checks the topology against the vocabularies of the locators. Identifiers that do not
// fit are errors, because a truncated one names another port; attributes without a code are
// warnings, because such ports may never write locator metadata.
func (b *builder) checkWords() {
	b.checkPortIDs()
	b.checkKinds()
	for i := range b.words {
		v := &b.words[i]
		b.checkFit(v)
		b.checkValues(v)
	}
}

// checkPortIDs requires port ids that are unique in the fabric (section 5.5.2) if a locator names a
// port without its device, else in their device. A file that is checked alone may have no locators.
func (b *builder) checkPortIDs() {
	perDevice := true
	for i := range b.words {
		v := &b.words[i]
		perDevice = perDevice && (v.has[csig.FieldDevice] || !v.has[csig.FieldPort])
	}
	type key struct {
		device int32
		id     uint32
	}
	owner := map[key]string{}
	for i := range b.spec.Devices {
		d := &b.spec.Devices[i]
		for j := range d.Ports {
			p, k := &d.Ports[j], key{none, d.Ports[j].ID}
			if perDevice {
				k.device = int32(i)
			}
			if other, taken := owner[k]; taken && p.ID != 0 {
				b.errorf(fmt.Sprintf("devices[%d].ports[%d].id", i, j),
					"%d: is already the id of port %s: port ids are unique", p.ID, other)
			}
			owner[k] = portName(d.Name, p.Name)
		}
	}
}

// checkKinds bounds the cost of compiling locators: each combination of fields divides all ports
// again.
func (b *builder) checkKinds() {
	kinds := map[fieldSet]bool{}
	for i := range b.words {
		v := &b.words[i]
		kinds[fieldsOf(func(f csig.Field) bool { return v.has[f] })] = true
	}
	if ports := len(b.topo.ports); len(kinds)*ports > maxClassed {
		b.errorf("csig.locators", "%d combinations of fields for %d ports: expected at most %d together",
			len(kinds), ports, maxClassed)
	}
}

func (b *builder) checkFit(v *vocabulary) {
	for i := range b.spec.Devices {
		d := &b.spec.Devices[i]
		if v.has[csig.FieldDevice] && d.ID > v.maxDevice {
			b.errorf(fmt.Sprintf("devices[%d].id", i), "%d: does not fit %s (at most %d)", d.ID, v.name, v.maxDevice)
		}
		for j := range d.Ports {
			if id := d.Ports[j].ID; v.has[csig.FieldPort] && id > v.maxPort {
				b.errorf(fmt.Sprintf("devices[%d].ports[%d].id", i, j), "%d: does not fit %s (at most %d)", id, v.name, v.maxPort)
			}
		}
	}
}

func (b *builder) checkValues(v *vocabulary) {
	warned := map[string]bool{}
	warn := func(f csig.Field, known bool, value string, p *port) {
		if v.has[f] && !known && !warned[f.String()+value] {
			warned[f.String()+value] = true
			b.warnf("%s %q, as of port %s, is not in the value table of %s: it cannot name such ports",
				f, value, p.name, v.name)
		}
	}
	for i := range b.topo.ports {
		p := &b.topo.ports[i]
		stage := b.topo.devices[p.device].stage
		warn(csig.FieldStage, v.stages[stage], stage, p)
		warn(csig.FieldOrientation, v.orientations[p.orientation], p.orientation, p)
		warn(csig.FieldCapacity, v.capacities[p.speed], SpeedLabel(p.speed)+"bps", p)
	}
}
