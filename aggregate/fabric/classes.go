package fabric

import (
	"github.com/csigscope/csigscope/decode/csig"
)

// maxClassed bounds the ports of all partitions together: the number of ports times the number of
// different combinations of fields in locators.
const maxClassed = 8 << 20

// fieldSet is the set of port attributes of a locator, by 1<<csig.Field. A TTL names the hop on a
// path, opaque bits name nothing.
type fieldSet uint8

// portFields are the attributes that distinguish ports.
var portFields = [...]csig.Field{
	csig.FieldStage, csig.FieldOrientation, csig.FieldCapacity, csig.FieldPort, csig.FieldDevice,
}

func fieldsOf(has func(csig.Field) bool) (s fieldSet) {
	for _, f := range portFields {
		if has(f) {
			s |= 1 << f
		}
	}
	return s
}

func (s fieldSet) has(f csig.Field) bool { return s>>f&1 != 0 }

// portAttributes is the part of a port's attributes that locator metadata can express; fields that
// its layout leaves out are zero.
type portAttributes struct {
	stage, orientation string
	capacity           uint64 // kbit/s
	port, device       uint32
}

// expressible returns the attributes of a port that locator metadata with these fields expresses.
// ok is false for a port without a required identifier.
func (t *topology) expressible(s fieldSet, i int32) (k portAttributes, ok bool) {
	p := &t.ports[i]
	d := &t.devices[p.device]
	if s.has(csig.FieldPort) && p.id == 0 || s.has(csig.FieldDevice) && d.id == 0 {
		return k, false
	}
	if s.has(csig.FieldStage) {
		k.stage = d.stage
	}
	if s.has(csig.FieldOrientation) {
		k.orientation = p.orientation
	}
	if s.has(csig.FieldCapacity) {
		k.capacity = p.speed
	}
	if s.has(csig.FieldPort) {
		k.port = p.id
	}
	if s.has(csig.FieldDevice) {
		k.device = d.id
	}
	return k, true
}

// partition divides the ports into classes: one value of locator metadata stands for each. Locators
// with the same fields share one.
type partition struct {
	classOf []int32 // of a port; none if no value stands for it
	classes map[portAttributes]int32
}

// edge says which ends of paths matter to a class.
type edge uint8

const (
	outside edge = 1 << iota // some port faces no device
	inside                   // some port faces a device
	mixed   = outside | inside
)

// classes are the classes of all partitions, numbered consecutively, with the values of locator
// metadata that stand for them. Immutable.
type classes struct {
	partitions []partition
	from       []int32 // of a class, its partition
	start      []int32 // of a class, its first member; one more at the end
	members    []int32 // ports, ascending in each class
	edge       []edge  // of a class

	// byLM are the classes by layout, signal type and locator metadata, with the encoded hop above
	// classBits; nil without a locator layout, none for a value that names nothing.
	byLM [csig.NumLayouts][16][]int32
}

// classBits is the number of bits of a class: there are at most maxClassed.
const classBits = 23

// at returns the key of a class at a hop of a path, 0 for any.
func at(class int32, hop uint8) int32 { return class | int32(hop)<<classBits }

// newClasses compiles the locators of a domain for a topology.
func newClasses(t *topology, d *csig.Domain) *classes {
	c := &classes{start: []int32{0}}
	if len(t.ports) == 0 {
		return c
	}
	partitions := map[fieldSet]int32{}
	tables := map[*csig.Locator][]int32{}
	for i := range csig.NumLayouts {
		l := csig.LayoutAt(i)
		for typ := range l.Types() {
			loc := d.Locator(l, uint8(typ))
			if loc == nil {
				continue
			}
			table, known := tables[loc]
			if !known {
				table = c.compile(t, loc, l.LMBits(), partitions)
				tables[loc] = table
			}
			c.byLM[i][typ] = table
		}
	}
	return c
}

// compile maps the values of one locator to classes.
func (c *classes) compile(t *topology, loc *csig.Locator, bits int, partitions map[fieldSet]int32) []int32 {
	table := make([]int32, 1<<bits)
	for lm := range table {
		table[lm] = none
		a, ok := loc.Decode(uint16(lm))
		if !ok {
			continue
		}
		fields := fieldsOf(a.Has)
		n, known := partitions[fields]
		if !known {
			n = int32(len(c.partitions))
			partitions[fields] = n
			c.divide(t, fields)
		}
		if class, ok := c.partitions[n].classes[portAttributes{a.Stage, a.Orientation, a.Capacity, a.Port, a.Device}]; ok {
			table[lm] = at(class, a.Hop())
		}
	}
	return table
}

// divide adds a partition.
func (c *classes) divide(t *topology, fields fieldSet) {
	p := partition{classOf: make([]int32, len(t.ports)), classes: map[portAttributes]int32{}}
	first := len(c.from)
	var sizes []int32
	for i := range t.ports {
		k, ok := t.expressible(fields, int32(i))
		if !ok {
			p.classOf[i] = none
			continue
		}
		n, known := p.classes[k]
		if !known {
			n = int32(first + len(sizes))
			p.classes[k] = n
			sizes = append(sizes, 0)
			c.from = append(c.from, int32(len(c.partitions)))
			c.edge = append(c.edge, 0)
		}
		if t.ports[i].peerDevice == none {
			c.edge[n] |= outside
		} else {
			c.edge[n] |= inside
		}
		p.classOf[i] = n
		sizes[n-int32(first)]++
	}
	next := make([]int32, len(sizes))
	for i, size := range sizes {
		next[i] = c.start[len(c.start)-1]
		c.start = append(c.start, next[i]+size)
	}
	c.members = append(c.members, make([]int32, int(c.start[len(c.start)-1])-len(c.members))...)
	for i, n := range p.classOf {
		if n != none {
			at := &next[n-int32(first)]
			c.members[*at] = int32(i)
			*at++
		}
	}
	c.partitions = append(c.partitions, p)
}

// class returns the class for a value of locator metadata, none if it names nothing; located is
// false if the layout has no locator for the signal type.
func (c *classes) class(l csig.Layout, typ uint8, lm uint16) (class int32, located bool) {
	table := c.byLM[l.Index()][typ&15]
	if int(lm) >= len(table) || table[lm] == none {
		return none, table != nil
	}
	return table[lm] & (1<<classBits - 1), true
}

// hop returns the hop number in a value of locator metadata that has a class, 0 for none.
func (c *classes) hop(l csig.Layout, typ uint8, lm uint16) uint8 {
	return uint8(c.byLM[l.Index()][typ&15][lm] >> classBits)
}

// ports returns the members of a class, at least one, ascending.
func (c *classes) ports(class int32) []int32 {
	return c.members[c.start[class]:c.start[class+1]]
}

// holds reports whether a port is in a class.
func (c *classes) holds(class, port int32) bool {
	return c.partitions[c.from[class]].classOf[port] == class
}
