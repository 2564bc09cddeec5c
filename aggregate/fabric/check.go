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

// builder makes a topology of a Spec and collects what is wrong with it.
type builder struct {
	problems

	spec  *Spec
	topo  *topology
	words []vocabulary
	nodes map[string]string // names that peers can have, to the path that defines them
}

// check builds the topology under the domain that the specification itself
// describes, for its errors.
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
		addresses: map[netip.Addr]int32{}, taps: map[string]TapSpec{},
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
	b.taps()
	if len(b.errs) > 0 {
		return nil, b.err()
	}
	b.checkWords()
	b.topo.index()
	b.checkLinks()
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
		{"hosts", addresses, "addresses"},
		{"groups", prefixes, "prefixes"},
	} {
		if list.n > maxNodes {
			b.errorf(list.path, "%d %s: expected at most %d", list.n, list.what, maxNodes)
		}
	}
}

// Characters that names must not have, since they would make canonical names
// ambiguous: "device:port", lists with commas, "leaf3 up". A port's name may have
// colons, as in "et-0/0/1:2".
const (
	notInNames     = " ,:()"
	notInPortNames = " ,()"
	notInLabels    = `"`
)

// checkName demands a printable name without the forbidden characters.
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

// define enters a name that ports can face.
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
			name: PortName(d.Name, s.Name), device: n, orientation: s.Orientation,
			peer: s.Peer, speed: speed, id: s.ID,
		})
	}
}

func (b *builder) taps() {
	b.checkTaps(b.spec.Taps)
	for _, t := range b.spec.Taps {
		t.Weight = max(t.Weight, 1)
		b.topo.taps[t.Name] = t
	}
}

// CheckTaps says what is wrong with taps, as SpecErrors whose paths begin with "taps[0]".
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
		if err := aggregate.CheckWeight(uint64(t.Weight)); err != nil {
			p.errorf(path+".weight", "%v", err)
		}
	}
}

// oneOf is "receiver, sender or mid".
func oneOf(list []string) string {
	last := len(list) - 1
	return strings.Join(list[:last], ", ") + " or " + list[last]
}

// TapPlaces are what a TapSpec's place may be.
var TapPlaces = []string{"receiver", "sender", "mid"}
