package importer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
)

// netboxItem is an element of a list of NetBox's API: a device, an interface, a cable or an
// address, of version 2.10 or later. Its keys decide which one.
type netboxItem struct {
	ID      int64 `json:"id"`
	Name    text  `json:"name"`
	Display text  `json:"display"`

	// Of devices.
	DeviceType *netboxRef     `json:"device_type"`
	Role       *netboxRef     `json:"role"`
	DeviceRole *netboxRef     `json:"device_role"` // before version 3.6
	Site       *netboxRef     `json:"site"`
	Location   *netboxRef     `json:"location"`
	Rack       *netboxRef     `json:"rack"`
	PrimaryIP4 *netboxAddress `json:"primary_ip4"`
	PrimaryIP6 *netboxAddress `json:"primary_ip6"`

	// Of interfaces.
	Device         *netboxRef      `json:"device"`
	Type           netboxChoice    `json:"type"`
	Speed          *float64        `json:"speed"` // kbit/s
	LAG            *netboxRef      `json:"lag"`
	Management     *bool           `json:"mgmt_only"`
	Enabled        *bool           `json:"enabled"`
	Cable          json.RawMessage `json:"cable"`
	Reached        []netboxRef     `json:"connected_endpoints"`
	ReachedType    text            `json:"connected_endpoints_type"`
	Peers          []netboxRef     `json:"link_peers"`
	PeersType      text            `json:"link_peers_type"`
	ReachedOne     *netboxRef      `json:"connected_endpoint"` // before version 3.3
	ReachedOneType text            `json:"connected_endpoint_type"`

	// Of cables.
	A        []netboxEnd `json:"a_terminations"`
	B        []netboxEnd `json:"b_terminations"`
	AOne     *netboxRef  `json:"termination_a"` // before version 3.3
	AOneType text        `json:"termination_a_type"`
	BOne     *netboxRef  `json:"termination_b"`
	BOneType text        `json:"termination_b_type"`

	// Of addresses.
	Address  json.RawMessage `json:"address"`
	Assigned *netboxRef      `json:"assigned_object"`
}

// netboxRef is a reference to another object.
type netboxRef struct {
	ID     int64      `json:"id"`
	Name   text       `json:"name"`
	Slug   text       `json:"slug"`
	Device *netboxRef `json:"device"`
}

// UnmarshalJSON implements json.Unmarshaler. A number is an id.
func (r *netboxRef) UnmarshalJSON(raw []byte) error {
	type plain netboxRef
	if raw[0] == '{' {
		return json.Unmarshal(raw, (*plain)(r))
	}
	return json.Unmarshal(raw, &r.ID)
}

type netboxEnd struct {
	Type   text       `json:"object_type"`
	ID     int64      `json:"object_id"`
	Object *netboxRef `json:"object"`
}

type netboxAddress struct {
	Address text `json:"address"`
}

// netboxChoice is the value of {"value": …, "label": …}.
type netboxChoice string

// UnmarshalJSON implements json.Unmarshaler.
func (c *netboxChoice) UnmarshalJSON(raw []byte) error {
	if raw[0] != '{' {
		return (*text)(c).UnmarshalJSON(raw)
	}
	var o struct {
		Value text `json:"value"`
	}
	err := json.Unmarshal(raw, &o)
	*c = netboxChoice(o.Value)
	return err
}

// maxItems bounds the elements of one file.
const maxItems = 1 << 20

// parseNetBox reads a list, one element at a time, because a small file can have many.
func parseNetBox(list json.RawMessage) (*document, error) {
	d := json.NewDecoder(bytes.NewReader(list))
	if _, err := d.Token(); err != nil {
		return nil, plainJSON(err)
	}
	p := netboxParser{out: &document{kind: kindNetBox, interfaces: map[int64]end{}}, nodes: map[string]int{}, identities: map[identity]int{}}
	for n := 0; d.More(); n++ {
		var item netboxItem
		if err := d.Decode(&item); err != nil {
			return nil, fmt.Errorf("results[%d]: %w", n, plainJSON(err))
		}
		if n == maxItems {
			return nil, fmt.Errorf("results: more than %d elements: divide the file into pages", maxItems)
		}
		p.add(&item)
	}
	if _, err := d.Token(); err != nil && !errors.Is(err, io.EOF) {
		return nil, plainJSON(err)
	}
	if p.unknown > 0 {
		p.out.notes = append(p.out.notes, fmt.Sprintf("%d results are neither devices, interfaces, cables nor IP addresses: left out", p.unknown))
	}
	return p.out, nil
}

type netboxParser struct {
	out        *document
	nodes      map[string]int   // in out.nodes
	identities map[identity]int // in out.identities, by name and id
	unknown    int
}

func (p *netboxParser) add(item *netboxItem) {
	switch {
	case item.DeviceType != nil:
		p.addDevice(item)
	case len(item.A) > 0 || len(item.B) > 0 || item.AOne != nil:
		p.addCable(item)
	case len(item.Address) > 0 && item.Address[0] == '"':
		p.addAddress(item)
	case item.isInterface():
		p.addInterface(item)
	default:
		p.unknown++
	}
}

// isInterface reports whether an element has the keys of interfaces: power, console, front and rear
// ports, bays and inventory items have a device and a name too.
func (item *netboxItem) isInterface() bool {
	return item.Device != nil && item.Name != "" && (item.Management != nil || item.Enabled != nil && item.Type != "")
}

// isInterfaceType reports whether the type of the object at the end of a cable is an interface's, or
// not stated.
func isInterfaceType(t text) bool { return t == "" || t == "dcim.interface" }

// node returns the node of that name. The next call makes the pointer invalid.
func (p *netboxParser) node(name string) *node {
	i, ok := p.nodes[name]
	if !ok {
		i = len(p.out.nodes)
		p.nodes[name] = i
		p.out.nodes = append(p.out.nodes, node{name: name, own: true})
	}
	return &p.out.nodes[i]
}

// identify notes the id of a device, and its site if it is known.
func (p *netboxParser) identify(name text, id int64, site *netboxRef) {
	x := identity{name: string(name), id: id}
	i, ok := p.identities[x]
	if !ok && id != 0 {
		i = len(p.out.identities)
		p.identities[x] = i
		p.out.identities = append(p.out.identities, x)
	}
	if id != 0 && site != nil {
		p.out.identities[i].site = string(site.Name)
	}
}

func (p *netboxParser) addDevice(item *netboxItem) {
	name := string(item.Name)
	if name == "" {
		p.out.notes = append(p.out.notes, fmt.Sprintf("device %d has no name: left out", item.ID))
		return
	}
	p.identify(item.Name, item.ID, item.Site)
	n := p.node(name)
	for _, role := range []*netboxRef{item.Role, item.DeviceRole} {
		if role != nil && n.role == "" {
			n.role = strings.TrimSpace(string(role.Slug) + " " + string(role.Name))
		}
	}
	if item.Rack != nil {
		n.rack = string(item.Rack.Name)
	}
	if item.Location != nil {
		n.pod = string(item.Location.Name)
	}
	for _, primary := range []*netboxAddress{item.PrimaryIP4, item.PrimaryIP6} {
		if primary != nil {
			if a, ok := parseAddress(string(primary.Address)); ok {
				n.primary = append(n.primary, a)
			}
		}
	}
}

func (p *netboxParser) addInterface(item *netboxItem) {
	name := string(item.Device.Name)
	if name == "" {
		p.unknown++
		return
	}
	p.identify(item.Device.Name, item.Device.ID, nil)
	self := end{node: name, port: string(item.Name), id: item.ID}
	p.out.interfaces[item.ID] = self
	added := port{name: self.port, management: item.Management != nil && *item.Management, up: item.Enabled != nil && *item.Enabled}
	switch item.Type {
	case "virtual", "lag", "bridge":
		added.logical = true
	}
	if added.speed = speedOfMedium(string(item.Type)); item.Speed != nil && *item.Speed > 0 && *item.Speed < 1e12 {
		added.speed = uint64(*item.Speed)
	}
	if item.LAG != nil {
		added.lag = string(item.LAG.Name)
	}
	n := p.node(name)
	n.ports = append(n.ports, added)
	// Endpoints are the ports at the far side of patch panels, peers are the other ends of the
	// port's cable.
	reached, kind := item.Reached, item.ReachedType
	if item.ReachedOne != nil {
		reached, kind = []netboxRef{*item.ReachedOne}, item.ReachedOneType
	}
	if len(reached) == 0 {
		reached, kind = item.Peers, item.PeersType
	}
	if !isInterfaceType(kind) {
		return // the port of a patch panel that leads nowhere, a circuit
	}
	for i := range reached {
		if far, ok := p.end(&reached[i]); ok {
			p.out.links = append(p.out.links, link{a: self, b: far, by: byPlan})
		}
	}
}

// end returns an interface to which another object refers; ok is false for objects that belong to no
// device, such as circuits.
func (p *netboxParser) end(r *netboxRef) (e end, ok bool) {
	if r.Device == nil || r.Device.Name == "" || r.Name == "" {
		return e, false
	}
	p.identify(r.Device.Name, r.Device.ID, nil)
	return end{node: string(r.Device.Name), port: string(r.Name), id: r.ID}, true
}

func (p *netboxParser) addCable(item *netboxItem) {
	as, bs := p.ends(item.A, item.AOne, item.AOneType), p.ends(item.B, item.BOne, item.BOneType)
	if len(as) == 0 || len(bs) == 0 || len(as) != len(bs) && len(as) > 1 && len(bs) > 1 {
		return // a cable of a patch panel or of power, or one whose strands NetBox does not pair
	}
	for _, only := range [][]end{as, bs} {
		if len(as) != len(bs) && len(only) == 1 && only[0].node == "" {
			p.out.notes = append(p.out.notes, fmt.Sprintf("cable %d: does not name its ends: left out", item.ID))
			return
		}
	}
	as, bs = p.breakOut(as, len(bs)), p.breakOut(bs, len(as))
	for i := range as {
		p.out.links = append(p.out.links, link{a: as[i], b: bs[i], by: byPlan})
	}
}

// breakOut makes n ports from the single end of a breakout cable, as the switch names them:
// et-0/0/0 becomes et-0/0/0:0 to et-0/0/0:3.
func (p *netboxParser) breakOut(ends []end, n int) []end {
	if len(ends) != 1 || n < 2 {
		return ends
	}
	whole := ends[0]
	d := p.node(whole.node)
	d.ports = append(d.ports, port{name: whole.port, logical: true})
	var list []end
	for i := range n {
		list = append(list, end{node: whole.node, port: fmt.Sprintf("%s:%d", whole.port, i)})
	}
	return list
}

func (p *netboxParser) ends(list []netboxEnd, one *netboxRef, kind text) (ends []end) {
	if one != nil && isInterfaceType(kind) {
		if e, ok := p.end(one); ok {
			ends = append(ends, e)
		}
	}
	for i := range list {
		t := &list[i]
		if !isInterfaceType(t.Type) {
			continue
		}
		e := end{id: t.ID}
		if t.Object != nil {
			if named, ok := p.end(t.Object); ok {
				e = named
			}
		}
		ends = append(ends, e)
	}
	return ends
}

func (p *netboxParser) addAddress(item *netboxItem) {
	var address text
	if err := json.Unmarshal(item.Address, &address); err != nil || item.Assigned == nil {
		return
	}
	at, ok := p.end(item.Assigned)
	prefix, sound := parsePrefix(string(address))
	if !ok || !sound {
		return
	}
	n := p.node(at.node)
	added := port{name: at.port, addresses: []netip.Prefix{prefix}, up: true}
	if word, _ := splitPort(at.port); strings.HasPrefix(word, "lo") || word == "system" {
		n.addresses = append(n.addresses, prefix.Addr())
		added.addresses = nil
	}
	if word, _ := splitPort(at.port); strings.HasPrefix(word, "vlan") || word == "irb" || word == "bvi" {
		n.vlans = append(n.vlans, vlan{addresses: added.addresses})
		return
	}
	n.ports = append(n.ports, added)
}
