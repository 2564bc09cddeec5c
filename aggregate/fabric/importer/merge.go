package importer

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/csigscope/csigscope/aggregate/fabric"
)

// device is a node with the statements of all files.
type device struct {
	name      string
	kind      nodeKind
	described bool   // a file lists all of its ports
	stated    []node // without ports
	sonic     *document

	stage      string
	height     int
	ranked     bool // height is known
	positional bool
	physical   []*iface // of a positional device, in order

	ports  []*iface
	byName map[string]*iface
	byKey  map[string][]*iface
	hears  map[*device]bool // peers in the device's own LLDP
}

// iface is a port with the statements of all files.
type iface struct {
	device    *device
	name      string
	speed     uint64
	speedFrom string // file
	lag       string
	logical   bool
	hidden    bool // of the management network
	up        bool
	addresses []netip.Prefix
	servers   []netip.Addr
	doc       *document // last document that added to it

	claims []claim
	peer   *device
	far    *iface // nil if no file states the peer's port
	by     rank
	file   string // that states the peer
	noted  uint64 // speed of the link
}

// claim is one file's statement about a link, at one of its ends.
type claim struct {
	peer *device
	far  *iface
	file string
	by   rank
}

// messages are lines for people; the first ones are kept.
type messages struct {
	lines []string
	more  int
}

// maxMessages bounds the lines of one kind.
const maxMessages = 20

func (m *messages) add(format string, args ...any) {
	if len(m.lines) == maxMessages {
		m.more++
		return
	}
	m.lines = append(m.lines, fmt.Sprintf(format, args...))
}

func (m *messages) list(what string) []string {
	if m.more > 0 {
		return append(slices.Clone(m.lines), fmt.Sprintf("and %d more %s", m.more, what))
	}
	return m.lines
}

// merger makes one network from the statements of all files.
type merger struct {
	errors, warnings messages

	devices []*device
	byName  map[string]*device // by each name, in lower case
	byMAC   map[string]*device
	ports   int
}

func (m *merger) errorf(format string, args ...any) { m.errors.add(format, args...) }
func (m *merger) warnf(format string, args ...any)  { m.warnings.add(format, args...) }

func (m *merger) failed() error {
	var list []error
	for _, line := range m.errors.list("errors") {
		list = append(list, errors.New(line))
	}
	return errors.Join(list...)
}

// mergeOrder is the order of kinds in which ports get their names: a switch knows its own names
// best.
var mergeOrder = []string{kindSONiC, kindNetBox, kindContainerlab, kindLLDP}

func (m *merger) merge(docs []*document) {
	docs = slices.Clone(docs)
	slices.SortStableFunc(docs, func(x, y *document) int {
		return cmp.Compare(slices.Index(mergeOrder, x.kind), slices.Index(mergeOrder, y.kind))
	})
	interfaces := map[int64]end{}
	for _, d := range docs {
		for _, note := range d.notes {
			m.warnf("%s: %s", d.file, note)
		}
		maps.Copy(interfaces, d.interfaces)
	}
	m.nameDevices(docs, interfaces)
	for _, d := range docs {
		m.addNodes(d)
	}
	var heard []*document
	for _, d := range docs {
		if d.kind == kindLLDP {
			heard = append(heard, d)
			continue
		}
		m.addLinks(d, interfaces)
	}
	for _, d := range heard {
		m.addHearing(d)
	}
	for _, d := range heard {
		m.addLinks(d, interfaces)
	}
	if len(m.devices) > maxFabricNodes || m.ports > maxFabricPorts {
		m.errorf("%d devices with %d ports: expected at most %d with %d", len(m.devices), m.ports, maxFabricNodes, maxFabricPorts)
		return
	}
	m.classify()
	if m.identify(docs); len(m.errors.lines) > 0 {
		return // two devices in one contradict each other
	}
	m.linkSubnets()
	for _, d := range m.devices {
		d.inheritFromLAGs()
		for _, i := range d.ports {
			m.choosePeer(i)
		}
	}
	m.dropOverruled()
	for _, d := range slices.Clone(m.devices) {
		m.divideHost(d)
	}
	m.rankByLinks()
}

// divideHost makes a host of each card with an address of its own, if they face several switches: the
// address is behind one of these alone. A loopback address is behind all.
func (m *merger) divideHost(h *device) {
	faced := map[*device]bool{}
	var cards []*iface
	for _, i := range h.ports {
		p := i.faces()
		if p == nil || p.kind != switchKind || i.far == nil || i.far.peer != h {
			continue
		}
		if len(i.addresses) > 0 || slices.ContainsFunc(i.far.addresses, isPointToPoint) {
			faced[p] = true
			cards = append(cards, i)
		}
	}
	if h.kind != hostKind || len(faced) < 2 || slices.ContainsFunc(h.stated, func(n node) bool { return len(n.addresses) > 0 }) {
		return
	}
	for _, i := range cards {
		d := m.newDevice(cleanNode(h.name + "-" + i.name))
		d.kind, d.ports = hostKind, []*iface{i}
		i.device, i.far.peer = d, d
	}
	h.ports = slices.DeleteFunc(h.ports, func(i *iface) bool { return i.device != h })
}

// nameDevices finds the names that mean one device: equal ones except for case, and a name without
// the domain of another, unless several names match.
func (m *merger) nameDevices(docs []*document, interfaces map[int64]end) {
	m.byName, m.byMAC = map[string]*device{}, map[string]*device{}
	var names []string
	seen := map[string]bool{}
	note := func(name string) {
		if name = cleanNode(name); name != "" && !seen[strings.ToLower(name)] {
			seen[strings.ToLower(name)] = true
			names = append(names, name)
		}
	}
	for _, d := range docs {
		for i := range d.nodes {
			note(d.nodes[i].name)
		}
	}
	for _, d := range docs {
		for _, l := range d.links {
			for _, e := range []end{l.a, l.b} {
				e.node = cmp.Or(e.node, interfaces[e.id].node)
				if !l.known {
					note(e.node)
				}
			}
		}
	}
	long := map[string][]string{} // names with a domain, by the name without
	for _, name := range names {
		if short := shortName(name); short != name {
			long[strings.ToLower(short)] = append(long[strings.ToLower(short)], name)
		}
	}
	for _, name := range names {
		lower := strings.ToLower(name)
		short := strings.ToLower(shortName(name))
		if len(long[short]) == 1 {
			if d := m.byName[short]; d != nil {
				m.byName[lower] = d
				continue
			}
			d := m.newDevice(shortName(name))
			m.byName[lower], m.byName[short] = d, d
			continue
		}
		if short == lower && len(long[short]) > 1 {
			m.warnf("%s may be %s: it is taken for another device: use one name", name, strings.Join(long[short][:2], " or "))
		}
		if m.byName[lower] == nil {
			m.byName[lower] = m.newDevice(name)
		}
	}
}

// identify refuses a name that several devices of NetBox have, unless they are no part of the fabric:
// power units, or hosts without links, such as spare servers.
func (m *merger) identify(docs []*document) {
	linked := map[*device]bool{} // or maybe, by an address
	for _, d := range m.devices {
		for _, i := range d.ports {
			linked[d] = linked[d] || len(i.claims) > 0 || len(i.addresses) > 0
			for _, c := range i.claims {
				linked[c.peer] = true
			}
		}
	}
	seen := map[*device][]identity{} // the first two
	for _, doc := range docs {
		for _, x := range doc.identities {
			d := m.device(x.name, "")
			if d == nil || d.kind == otherKind || d.kind == hostKind && !linked[d] {
				continue
			}
			x.file = doc.file
			list := seen[d]
			n := slices.IndexFunc(list, func(y identity) bool { return y.id == x.id })
			switch {
			case n >= 0 && list[n].site == "":
				list[n] = x
			case n < 0 && len(list) < 2:
				seen[d] = append(list, x)
			}
		}
	}
	for _, d := range m.devices {
		if list := seen[d]; len(list) == 2 {
			m.errorf("NetBox has two devices of one name: %s, and %s: export one site or tenant, or rename one", list[0], list[1])
		}
	}
}

// String returns the device as messages name it.
func (x identity) String() string {
	if x.site == "" {
		return fmt.Sprintf("%s with id %d, says %s", x.name, x.id, x.file)
	}
	return fmt.Sprintf("%s with id %d at site %s, says %s", x.name, x.id, x.site, x.file)
}

func (m *merger) newDevice(name string) *device {
	d := &device{name: name, byName: map[string]*iface{}, byKey: map[string][]*iface{}}
	m.devices = append(m.devices, d)
	return d
}

func (m *merger) device(name, mac string) *device {
	if d := m.byName[strings.ToLower(cleanNode(name))]; d != nil {
		return d
	}
	return m.byMAC[strings.ToLower(mac)]
}

// addNodes adds a file's statements about nodes and their ports.
func (m *merger) addNodes(doc *document) {
	for i := range doc.nodes {
		n := &doc.nodes[i]
		d := m.device(n.name, n.mac)
		if d == nil && n.name == "" && n.mac != "" {
			d = m.newDevice(cleanNode(n.mac))
			m.byName[strings.ToLower(d.name)] = d
		}
		if d == nil {
			continue
		}
		if doc.kind == kindSONiC && n.own {
			if d.sonic != nil {
				m.errorf("%s: device %s is in %s too: give each switch a hostname of its own, or leave one file out", doc.file, d.name, d.sonic.file)
				continue
			}
			d.sonic = doc
		}
		if n.mac != "" && m.byMAC[n.mac] == nil {
			m.byMAC[n.mac] = d
		}
		d.described = d.described || n.own
		d.positional = d.positional || n.positional
		for k := range n.ports {
			m.addPort(d, doc, &n.ports[k])
		}
		short := *n
		short.ports = nil
		d.stated = append(d.stated, short)
	}
}

func (m *merger) addPort(d *device, doc *document, p *port) {
	name := cleanPort(p.name)
	if name == "" {
		m.warnf("%s: %s: port %q has no name that a fabric file can hold: left out", doc.file, d.name, p.name)
		return
	}
	i := d.find(name)
	if i == nil || i.doc == doc && !strings.EqualFold(i.name, name) {
		i = m.newPort(d, name)
	}
	i.doc = doc
	if alias := strings.ToLower(cleanPort(p.alias)); alias != "" && d.byName[alias] == nil {
		d.byName[alias] = i
		d.indexPort(alias, i)
	}
	switch {
	case i.speed == 0:
		i.speed, i.speedFrom = p.speed, doc.file
	case p.speed != 0 && p.speed != i.speed:
		m.warnf("%s:%s: %s says %s, %s says %s: %s is taken", d.name, i.name, i.speedFrom, speedText(i.speed), doc.file, speedText(p.speed), speedText(i.speed))
	}
	i.lag = cmp.Or(i.lag, p.lag)
	i.logical = i.logical || p.logical
	i.hidden = i.hidden || p.management
	i.up = i.up || p.up
	for _, a := range p.addresses[:min(len(p.addresses), maxAddresses)] {
		if len(i.addresses) < maxAddresses && !slices.Contains(i.addresses, a) {
			i.addresses = append(i.addresses, a)
		}
	}
	i.servers = append(i.servers, p.servers...)
}

// maxAddresses bounds the used addresses of a port, and maxInherited the links of a LAG.
const (
	maxAddresses = 256
	maxInherited = 16
)

func (m *merger) newPort(d *device, name string) *iface {
	i := &iface{device: d, name: name}
	m.ports++
	d.ports = append(d.ports, i)
	d.byName[strings.ToLower(name)] = i // a name goes before an alias of another port
	d.indexPort(name, i)
	return i
}

// indexPort indexes a port by the portKey of a name. Two ports for a key are enough to make it
// ambiguous.
func (d *device) indexPort(name string, i *iface) {
	if k := portKey(name); k != "" && len(d.byKey[k]) < 2 && !slices.Contains(d.byKey[k], i) {
		d.byKey[k] = append(d.byKey[k], i)
	}
}

var numbered = regexp.MustCompile(`^eth(\d+)$`)

// find returns the port by its name, an alias, or another vendor's name that is unambiguous.
func (d *device) find(name string) *iface { return cmp.Or(d.named(name), d.alike(name)) }

// named returns the port by its name, its position or an alias.
func (d *device) named(name string) *iface {
	if n := d.position(name); n != "" {
		return d.nth(n)
	}
	return d.byName[strings.ToLower(name)]
}

// alike returns the port by another vendor's name that is unambiguous.
func (d *device) alike(name string) *iface {
	// eth0 of the management network is not Ethernet0.
	if list := d.byKey[portKey(name)]; len(list) == 1 && d.position(name) == "" && isManagement(name) == isManagement(list[0].name) {
		return list[0]
	}
	return nil
}

// position returns N of the name ethN of a positional device; "" for other names.
func (d *device) position(name string) string {
	if n := numbered.FindStringSubmatch(name); n != nil && d.positional && d.described {
		return n[1]
	}
	return ""
}

// nth returns the port at a position, from 1.
func (d *device) nth(position string) *iface {
	if len(d.physical) == 0 {
		d.physical = slices.DeleteFunc(slices.Clone(d.ports), func(i *iface) bool { return i.logical })
		slices.SortFunc(d.physical, func(x, y *iface) int { return fabric.CompareNames(x.name, y.name) })
	}
	if n, err := strconv.Atoi(position); err == nil && n >= 1 && n <= len(d.physical) {
		return d.physical[n-1]
	}
	return nil
}

// addHearing adds the ports of a device that hear others, by the names that the device gives them:
// the far ends of the same links may state other names of theirs.
func (m *merger) addHearing(doc *document) {
	for _, l := range doc.links {
		a, b := m.resolve(l.a, nil), m.resolve(l.b, nil)
		if a == nil || b == nil || a == b {
			continue
		}
		m.portOf(a, b, l.a, nil)
		if a.hears == nil {
			a.hears = map[*device]bool{}
		}
		a.hears[b] = true
	}
}

// addLinks turns a file's links into claims of the ports at their ends.
func (m *merger) addLinks(doc *document, interfaces map[int64]end) {
	for _, l := range doc.links {
		a, b := m.resolve(l.a, interfaces), m.resolve(l.b, interfaces)
		if a == nil || b == nil || a == b {
			continue
		}
		near, far := m.portOf(a, b, l.a, interfaces), m.portOf(b, a, l.b, interfaces)
		if near != nil {
			near.claims = append(near.claims, claim{peer: b, far: far, file: doc.file, by: l.by})
			near.noted = cmp.Or(near.noted, l.a.speed)
		}
		if far != nil {
			far.claims = append(far.claims, claim{peer: a, far: near, file: doc.file, by: l.by})
			far.noted = cmp.Or(far.noted, l.a.speed)
		}
	}
}

func (m *merger) resolve(e end, interfaces map[int64]end) *device {
	if e.node == "" && e.id != 0 {
		e.node = interfaces[e.id].node
	}
	return m.device(e.node, e.mac)
}

// portOf returns the port at an end of a link to a peer. It adds a port that no file lists, unless
// files list all ports of the device, or its own LLDP lists those to the peer by other names.
func (m *merger) portOf(d, peer *device, e end, interfaces map[int64]end) *iface {
	if e.port == "" && e.id != 0 {
		e.port = interfaces[e.id].port
	}
	name, label := cleanPort(e.port), cleanPort(e.label)
	if i := cmp.Or(d.named(name), d.named(label)); i != nil {
		return i
	}
	if e.local && d.hears[peer] {
		return nil
	}
	if i := cmp.Or(d.alike(name), d.alike(label)); i != nil {
		return i
	}
	if e.local && looksLikeSwitchPort(label) && !looksLikeSwitchPort(name) {
		name = label
	}
	if name == "" || d.described && d.sonic != nil {
		return nil
	}
	return m.newPort(d, name)
}

// linkSubnets links two ports if they alone share a subnet of two addresses.
func (m *merger) linkSubnets() {
	subnets := map[netip.Prefix][]*iface{}
	var order []netip.Prefix
	for _, d := range m.devices {
		for _, i := range d.ports {
			for _, a := range i.addresses {
				if p := a.Masked(); isPointToPoint(a) {
					if len(subnets[p]) == 0 {
						order = append(order, p)
					}
					subnets[p] = append(subnets[p], i)
				}
			}
		}
	}
	for _, p := range order {
		if ends := subnets[p]; len(ends) == 2 && ends[0].device != ends[1].device {
			for n, i := range ends {
				o := ends[1-n]
				c := claim{peer: o.device, far: o, file: "the addresses of " + o.device.name, by: byAddresses}
				if i.logical || o.logical {
					c.far = nil // a LAG: it is unknown which members face each other
				}
				i.claims = append(i.claims, c)
			}
		}
	}
}

func isPointToPoint(p netip.Prefix) bool {
	return p.Addr().BitLen()-p.Bits() <= 2 && p.Bits() < p.Addr().BitLen()
}

// inheritFromLAGs gives the members of a LAG its peer.
func (d *device) inheritFromLAGs() {
	for _, i := range d.ports {
		lag := d.byName[strings.ToLower(cleanPort(i.lag))]
		if i.lag == "" || lag == nil || lag == i {
			continue
		}
		for _, c := range lag.claims[:min(len(lag.claims), maxInherited)] {
			c.far = nil
			i.claims = append(i.claims, c)
		}
	}
}

// choosePeer chooses among the statements about the peer of a port.
func (m *merger) choosePeer(i *iface) {
	if len(i.claims) == 0 {
		return
	}
	best := &i.claims[0]
	for n := range i.claims {
		if i.claims[n].by > best.by {
			best = &i.claims[n]
		}
	}
	i.peer, i.far, i.by, i.file = best.peer, best.far, best.by, best.file
	for _, c := range i.claims {
		if i.far == nil && c.peer == i.peer {
			i.far = c.far
		}
	}
	reported := map[*device]bool{}
	for _, c := range i.claims {
		if c.peer == i.peer && (c.far == nil || i.far == nil || c.far == i.far) || reported[c.peer] {
			continue
		}
		reported[c.peer] = true
		if i.hidden || c.peer.kind == otherKind {
			continue // the management network is no part of the fabric
		}
		text := fmt.Sprintf("%s:%s faces %s, says %s, and %s, says %s", i.device.name, i.name, nameOf(i.peer, i.far), i.file, nameOf(c.peer, c.far), c.file)
		switch {
		case c.by < i.by:
			m.warnf("%s: the first is taken", text)
		case c.file == i.file && c.by == byLLDP:
			m.warnf("%s: one port hears both: the first is taken", text)
		case c.by == byLLDP:
			m.errorf("%s: print the neighbours of both again", text)
		default:
			m.errorf("%s: correct one of them, or add LLDP of %s", text, i.device.name)
		}
	}
}

func nameOf(d *device, i *iface) string {
	if i == nil {
		return d.name
	}
	return d.name + ":" + i.name
}

// dropOverruled removes links whose far end faces another port by better evidence: the warning at
// that end has named both files.
func (m *merger) dropOverruled() {
	for _, d := range m.devices {
		for _, i := range d.ports {
			if i.far != nil && i.far.peer != nil && i.far.peer != d && i.far.by > i.by {
				i.peer, i.far = nil, nil
			}
		}
	}
}
