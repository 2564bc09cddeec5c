package csig

import (
	"fmt"
	"strings"
)

// Filter programs compare TPIDs one by one, and the decoder reflections, so there may be only a few.
const (
	maxTPIDs       = 16
	maxReflections = 16
)

// Reflection is one compiled encoding of the TCP reflection option; see ReflectionSpec.
type Reflection struct {
	Kind     uint8
	ExID     uint32     // in the lowest ExIDLen bytes
	ExIDLen  uint8      // bytes of the experiment identifier: 0, 2 or 4
	Payload  bool       // the length octet counts the data fields only
	Profiles [2]Profile // of compact and of wide data fields
}

// Layout returns the layout of n bytes of data fields; ok is false unless n is 2 or 6.
func (r *Reflection) Layout(n int) (l Layout, ok bool) {
	switch n {
	case 2:
		return Layout{Compact, r.Profiles[0]}, true
	case 6:
		return Layout{Wide, r.Profiles[1]}, true
	}
	return Layout{}, false
}

// Domain is a compiled configuration: the meaning of TPIDs, the quantization of values, the layout
// of locator metadata. A Domain is immutable and safe for concurrent use.
type Domain struct {
	tpids       []tpid
	tables      [NumLayouts][16]*Table
	locators    [NumLayouts][16]*Locator
	reflections []Reflection

	udpReflections []UDPReflection
}

type tpid struct {
	id     uint16
	layout Layout
}

// LayoutOf returns the layout of a TPID; ok is false for an EtherType that is not configured as a
// CSIG TPID.
func (d *Domain) LayoutOf(id uint16) (l Layout, ok bool) {
	for i := range d.tpids {
		if d.tpids[i].id == id {
			return d.tpids[i].layout, true
		}
	}
	return Layout{}, false
}

// TPIDs returns the configured TPIDs, in the order of the configuration.
func (d *Domain) TPIDs() []uint16 {
	ids := make([]uint16, len(d.tpids))
	for i := range d.tpids {
		ids[i] = d.tpids[i].id
	}
	return ids
}

// TPIDNames returns the configured TPIDs in one line: "0x9900, 0x88b5".
func (d *Domain) TPIDNames() string {
	var names []string
	for _, id := range d.TPIDs() {
		names = append(names, fmt.Sprintf("%#04x", id))
	}
	return strings.Join(names, ", ")
}

// TPID returns the first TPID configured for the layout.
func (d *Domain) TPID(l Layout) (id uint16, ok bool) {
	for i := range d.tpids {
		if d.tpids[i].layout == l {
			return d.tpids[i].id, true
		}
	}
	return 0, false
}

// Table returns the quantization of signal type t in the layout, or nil when none is configured:
// such observations are counted and have no value.
func (d *Domain) Table(l Layout, t uint8) *Table { return d.tables[l.Index()][t&15] }

// Locator returns the locator layout of signal type t in the layout, or nil when none is
// configured: then locator metadata stays a raw number.
func (d *Domain) Locator(l Layout, t uint8) *Locator { return d.locators[l.Index()][t&15] }

// Reflections returns the TCP option encodings. The slice is read-only.
func (d *Domain) Reflections() []Reflection { return d.reflections }

// Compile checks the specification and returns its Domain. Errors name the section, its index, and
// the bucket or field at fault.
func (s Spec) Compile() (*Domain, error) {
	d := &Domain{}
	for i, t := range s.TPIDs {
		if err := d.addTPID(t); err != nil {
			return nil, fmt.Errorf("compile tpids[%d]: %w", i, err)
		}
	}
	for i, name := range s.Shipped {
		if err := d.addShipped(name); err != nil {
			return nil, fmt.Errorf("compile shipped[%d]: %w", i, err)
		}
	}
	for i := range s.Tables {
		t := &s.Tables[i]
		if err := d.addTable(t); err != nil {
			return nil, fmt.Errorf("compile %s: %w", where("tables", i, t.Format, t.Profile, t.Signal), err)
		}
	}
	for i := range s.Locators {
		l := &s.Locators[i]
		if err := d.addLocator(l); err != nil {
			return nil, fmt.Errorf("compile %s: %w", where("locators", i, l.Format, l.Profile, l.Signal), err)
		}
	}
	for i, r := range s.Reflections {
		if err := d.addReflection(r); err != nil {
			return nil, fmt.Errorf("compile reflections[%d]: %w", i, err)
		}
	}
	for i := range s.UDPReflections {
		if err := d.addUDPReflection(&s.UDPReflections[i]); err != nil {
			return nil, fmt.Errorf("compile udp_reflections[%d]: %w", i, err)
		}
	}
	return d, nil
}

func (d *Domain) addTPID(s TPIDSpec) error {
	ls, err := layouts(s.Format, s.Profile)
	if err != nil {
		return err
	}
	if len(ls) != 1 {
		return fmt.Errorf("tpid 0x%04x: no profile: expected ietf01 or uec050", s.TPID)
	}
	if _, taken := d.LayoutOf(s.TPID); taken {
		return fmt.Errorf("tpid 0x%04x: configured twice", s.TPID)
	}
	if s.TPID < 0x0600 || reservedEtherType(s.TPID) {
		return fmt.Errorf("tpid 0x%04x: is a length or the EtherType of another protocol", s.TPID)
	}
	if len(d.tpids) == maxTPIDs {
		return fmt.Errorf("tpid 0x%04x: more than %d TPIDs", s.TPID, maxTPIDs)
	}
	d.tpids = append(d.tpids, tpid{s.TPID, ls[0]})
	return nil
}

// reservedEtherType lists the EtherTypes of protocols that may follow a tag. One of them as a CSIG TPID
// would hide its protocol. VLAN TPIDs are not listed: a network without VLAN tags may use one for
// CSIG, so that devices which know only VLAN TPIDs forward the tag.
func reservedEtherType(id uint16) bool {
	switch id {
	case 0x0800, 0x0806, 0x86dd, 0x88e5, 0x8847, 0x8848, 0x88cc, 0x8808:
		return true
	}
	return false
}

func (d *Domain) addReflection(s ReflectionSpec) error {
	r := Reflection{Kind: s.Kind, ExID: s.ExID, ExIDLen: s.ExIDBits / 8, Profiles: [2]Profile{IETF01, UEC050}}
	switch s.Length {
	case "", "total":
	case "payload":
		r.Payload = true
	default:
		return fmt.Errorf("length %q: expected total or payload", s.Length)
	}
	if assignedOption(s.Kind) {
		return fmt.Errorf("kind %d: is the TCP option of another protocol", s.Kind)
	}
	experimental := s.Kind == 253 || s.Kind == 254
	switch {
	case s.ExIDBits != 0 && s.ExIDBits != 16 && s.ExIDBits != 32:
		return fmt.Errorf("exid_bits %d: expected 0, 16 or 32", s.ExIDBits)
	case experimental && s.ExIDBits == 0:
		return fmt.Errorf("kind %d: needs exid and exid_bits (RFC 6994)", s.Kind)
	case !experimental && s.ExIDBits != 0:
		return fmt.Errorf("kind %d: only kinds 253 and 254 have an experiment identifier", s.Kind)
	case s.ExIDBits == 0 && s.ExID != 0:
		return fmt.Errorf("exid 0x%x: exid_bits is missing", s.ExID)
	case s.ExIDBits == 16 && s.ExID > 0xffff:
		return fmt.Errorf("exid 0x%x: does not fit 16 bits", s.ExID)
	}
	for i, name := range []string{s.Compact, s.Wide} {
		if name == "" {
			continue
		}
		p, err := ParseProfile(name)
		if err != nil {
			return err
		}
		r.Profiles[i] = p
	}
	for _, o := range d.reflections {
		if o.Kind == r.Kind && o.ExID == r.ExID && o.ExIDLen == r.ExIDLen && o.Payload == r.Payload {
			return fmt.Errorf("kind %d, exid 0x%x: configured twice", r.Kind, r.ExID)
		}
	}
	if len(d.reflections) == maxReflections {
		return fmt.Errorf("kind %d: more than %d reflections", r.Kind, maxReflections)
	}
	d.reflections = append(d.reflections, r)
	return nil
}

// assignedOption lists the TCP options that real traffic carries. One of them configured as a
// reflection would turn every handshake into measurements. They are end of list, no operation, MSS,
// window scale, SACK (4, 5), timestamps, MD5, TCP-AO, MPTCP and fast open.
func assignedOption(kind uint8) bool {
	switch kind {
	case 0, 1, 2, 3, 4, 5, 8, 19, 29, 30, 34:
		return true
	}
	return false
}
