package importer

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// sonicTables are the tables of config_db.json about the fabric. Keys of several parts are joined
// by "|".
type sonicTables struct {
	metadata    map[string]sonicMetadata
	ports       map[string]sonicPort
	lags        map[string]sonicMembers
	lagMembers  map[string]json.RawMessage
	vlans       map[string]sonicMembers
	vlanMembers map[string]json.RawMessage
	interfaces  map[string]json.RawMessage // of all tables of interfaces
	loopbacks   map[string]json.RawMessage
	neighbours  map[string]sonicNeighbour
	described   map[string]sonicMetadata // neighbours
	sessions    map[string]sonicSession
	muxes       map[string]sonicMux
}

type sonicMetadata struct {
	Hostname text `json:"hostname"`
	Type     text `json:"type"`
	MAC      text `json:"mac"`
	Loopback text `json:"lo_addr"`
	Cluster  text `json:"cluster"`
}

type sonicPort struct {
	Alias  text `json:"alias"`
	Speed  text `json:"speed"` // Mbit/s
	Role   text `json:"role"`  // Ext, or a port inside the chassis
	Status text `json:"admin_status"`
}

type sonicMembers struct {
	Members many[text] `json:"members"` // in older versions
}

type sonicNeighbour struct {
	Name      text `json:"name"`
	Port      text `json:"port"`
	LocalPort text `json:"local_port"` // in older versions, where the key is the name
}

type sonicSession struct {
	Name  text `json:"name"`
	Local text `json:"local_addr"`
}

type sonicMux struct {
	IPv4 text `json:"server_ipv4"`
	IPv6 text `json:"server_ipv6"`
}

// sonicInterfaceTables hold addresses, by "interface|prefix".
var sonicInterfaceTables = []string{"INTERFACE", "PORTCHANNEL_INTERFACE", "VLAN_INTERFACE", "VLAN_SUB_INTERFACE"}

func newSonicTables(doc map[string]json.RawMessage) (*sonicTables, error) {
	t := &sonicTables{interfaces: map[string]json.RawMessage{}}
	for name, into := range map[string]any{
		"DEVICE_METADATA": &t.metadata, "PORT": &t.ports, "PORTCHANNEL": &t.lags, "PORTCHANNEL_MEMBER": &t.lagMembers,
		"VLAN": &t.vlans, "VLAN_MEMBER": &t.vlanMembers, "LOOPBACK_INTERFACE": &t.loopbacks, "DEVICE_NEIGHBOR": &t.neighbours,
		"DEVICE_NEIGHBOR_METADATA": &t.described, "BGP_NEIGHBOR": &t.sessions, "MUX_CABLE": &t.muxes,
	} {
		if err := decodeTable(doc, name, into); err != nil {
			return nil, err
		}
	}
	for _, name := range sonicInterfaceTables {
		table := map[string]json.RawMessage{}
		if err := decodeTable(doc, name, &table); err != nil {
			return nil, err
		}
		maps.Copy(t.interfaces, table)
	}
	return t, nil
}

func decodeTable(doc map[string]json.RawMessage, name string, into any) error {
	raw, ok := doc[name]
	if !ok {
		return nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("table %s: %w", name, plainJSON(err))
	}
	return nil
}

// defaultHostname is SONiC's name for a switch without a configured one.
const defaultHostname = "sonic"

// parseSONiC reads config_db.json of one switch. fallback is its name if the file has none.
func parseSONiC(doc map[string]json.RawMessage, fallback string) (*document, error) {
	t, err := newSonicTables(doc)
	if err != nil {
		return nil, err
	}
	out := &document{kind: kindSONiC}
	about := t.metadata["localhost"]
	self := node{name: string(about.Hostname), own: true, kind: switchKind, sonicType: string(about.Type), mac: strings.ToLower(string(about.MAC)), pod: string(about.Cluster)}
	if self.name == "" || self.name == defaultHostname {
		if fallback == "" {
			return nil, fmt.Errorf("DEVICE_METADATA has no hostname of its own: name the file as the switch")
		}
		out.notes = append(out.notes, fmt.Sprintf("has no hostname: it is called %s, as the file is", fallback))
		self.name = fallback
	}
	p := sonicParser{tables: t, self: &self, out: out, lagOf: map[string]string{}, ports: map[string]int{}}
	p.members()
	p.addPorts()
	p.addAddresses()
	p.addNeighbours()
	out.nodes = append([]node{self}, out.nodes...)
	return out, nil
}

type sonicParser struct {
	tables *sonicTables
	self   *node
	out    *document
	lagOf  map[string]string
	ports  map[string]int // in self.ports
	vlans  map[string]int // in self.vlans
}

// members reads the members of LAGs and VLANs.
func (p *sonicParser) members() {
	for _, key := range slices.Sorted(maps.Keys(p.tables.lagMembers)) {
		if lag, member, ok := strings.Cut(key, "|"); ok {
			p.lagOf[member] = lag
		}
	}
	for _, lag := range slices.Sorted(maps.Keys(p.tables.lags)) {
		for _, member := range p.tables.lags[lag].Members {
			p.lagOf[string(member)] = lag
		}
	}
	p.vlans = map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(p.tables.vlans)) {
		v := p.vlan(name)
		for _, member := range p.tables.vlans[name].Members {
			v.members = append(v.members, string(member))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(p.tables.vlanMembers)) {
		if name, member, ok := strings.Cut(key, "|"); ok {
			v := p.vlan(name)
			v.members = append(v.members, member)
		}
	}
}

// vlan returns the VLAN of that name. The next call makes the pointer invalid.
func (p *sonicParser) vlan(name string) *vlan {
	i, ok := p.vlans[name]
	if !ok {
		i = len(p.self.vlans)
		p.vlans[name] = i
		p.self.vlans = append(p.self.vlans, vlan{})
	}
	return &p.self.vlans[i]
}

func (p *sonicParser) addPorts() {
	for _, name := range slices.Sorted(maps.Keys(p.tables.ports)) {
		s := p.tables.ports[name]
		switch s.Role {
		case "Int", "Inb", "Rec", "Dpc": // inside the chassis
			continue
		}
		added := port{name: name, alias: string(s.Alias), lag: p.lagOf[name], up: s.Status == "up"}
		if s.Speed != "" {
			mbps, err := strconv.ParseUint(string(s.Speed), 10, 32)
			if err != nil {
				p.out.notes = append(p.out.notes, fmt.Sprintf("PORT %s: speed %q is no number of Mbit/s: left out", name, s.Speed))
			}
			added.speed = mbps * 1000
		}
		if mux, ok := p.tables.muxes[name]; ok {
			for _, server := range []text{mux.IPv4, mux.IPv6} {
				if a, ok := parseAddress(string(server)); ok {
					added.servers = append(added.servers, a)
				}
			}
		}
		p.add(added)
	}
	for _, name := range slices.Sorted(maps.Keys(p.tables.lags)) {
		p.add(port{name: name, logical: true})
	}
}

func (p *sonicParser) add(added port) {
	p.ports[added.name] = len(p.self.ports)
	p.self.ports = append(p.self.ports, added)
}

func (p *sonicParser) addAddresses() {
	for _, key := range slices.Sorted(maps.Keys(p.tables.interfaces)) {
		name, text, _ := strings.Cut(key, "|")
		prefix, ok := parsePrefix(text)
		if !ok {
			continue // an interface's own settings, or a link-local address
		}
		if strings.HasPrefix(name, "Vlan") {
			v := p.vlan(name)
			v.addresses = append(v.addresses, prefix)
			continue
		}
		name, _, _ = strings.Cut(name, ".") // a subinterface
		if i, ok := p.ports[name]; ok {
			p.self.ports[i].addresses = append(p.self.ports[i].addresses, prefix)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(p.tables.loopbacks)) {
		_, text, _ := strings.Cut(key, "|")
		if a, ok := parseAddress(text); ok {
			p.self.addresses = append(p.self.addresses, a)
		}
	}
}

// addNeighbours adds the links for which the switch was configured, and its data about the nodes at
// their ends.
func (p *sonicParser) addNeighbours() {
	for _, key := range slices.Sorted(maps.Keys(p.tables.neighbours)) {
		n := p.tables.neighbours[key]
		local, name := key, string(n.Name)
		if n.LocalPort != "" {
			local, name = string(n.LocalPort), key
		}
		if _, ok := p.ports[local]; ok && name != "" {
			p.out.links = append(p.out.links, link{a: end{node: p.self.name, port: local}, b: end{node: name, port: string(n.Port)}, by: byNeighbours})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.tables.described)) {
		about := p.tables.described[name]
		n := node{name: name, sonicType: string(about.Type), pod: string(about.Cluster)}
		if a, ok := parseAddress(string(about.Loopback)); ok {
			n.addresses = []netip.Addr{a}
		}
		p.out.nodes = append(p.out.nodes, n)
	}
	p.addSessions()
}

// addSessions turns BGP sessions over the addresses of a port into links, if a session has the name
// of a node.
func (p *sonicParser) addSessions() {
	owner := map[netip.Addr]string{}
	for i := range p.self.ports {
		for _, a := range p.self.ports[i].addresses {
			owner[a.Addr()] = p.self.ports[i].name
		}
	}
	for _, key := range slices.Sorted(maps.Keys(p.tables.sessions)) {
		s := p.tables.sessions[key]
		local, ok := parseAddress(string(s.Local))
		if name := owner[local]; ok && name != "" && s.Name != "" {
			p.out.links = append(p.out.links, link{a: end{node: p.self.name, port: name}, b: end{node: string(s.Name)}, by: byAddresses, known: true})
		}
	}
}
