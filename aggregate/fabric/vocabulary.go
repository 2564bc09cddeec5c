package fabric

import (
	"fmt"

	"github.com/csigscope/csigscope/decode/csig"
)

// vocabulary is what one locator layout can say at all.
type vocabulary struct {
	name         string // "the locator of wide/uec050"
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
		name:   fmt.Sprintf("the locator of %s", l),
		stages: map[string]bool{}, orientations: map[string]bool{}, capacities: map[uint64]bool{},
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

// checkWords holds the topology against what locators can say. Identifiers that do
// not fit are errors, since a truncated one names another port; attributes without
// a code are warnings, since such ports may never write locator metadata.
func (b *builder) checkWords() {
	b.checkPortIDs()
	b.checkKinds()
	for i := range b.words {
		v := &b.words[i]
		b.checkFit(v)
		b.checkValues(v)
	}
}

// checkPortIDs demands port ids that are unique in the fabric (section 5.5.2), or
// in their device where locators name the device beside the port.
func (b *builder) checkPortIDs() {
	perDevice := false
	for i := range b.words {
		if v := &b.words[i]; v.has[csig.FieldPort] {
			perDevice = v.has[csig.FieldDevice]
			if !perDevice {
				break
			}
		}
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
			owner[k] = PortName(d.Name, p.Name)
		}
	}
}

// checkKinds bounds what compiling locators takes: each combination of fields
// divides all ports anew.
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
			b.warnf("%s %q, as of port %s, is not in the value table of %s: such ports cannot be told by it",
				f, value, p.name, v.name)
		}
	}
	for i := range b.topo.ports {
		p := &b.topo.ports[i]
		stage := b.topo.devices[p.device].stage
		warn(csig.FieldStage, v.stages[stage], stage, p)
		warn(csig.FieldOrientation, v.orientations[p.orientation], p.orientation, p)
		warn(csig.FieldCapacity, v.capacities[p.speed], speedLabel(p.speed), p)
	}
}
