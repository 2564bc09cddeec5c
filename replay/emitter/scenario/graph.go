package scenario

import (
	"errors"
	"fmt"
)

// None marks a missing port, device or host.
const None = -1

// maxPath is the maximum number of queues on a path: the sender's interface and the nine switches
// of the longest path in the draft (section 8.3).
const maxPath = 10

// distance is a number of hops to an attachment, or unreachable.
type distance = int16

const unreachable distance = -1

// attachment is the set of devices that a host is linked to.
type attachment struct{ devices []int32 }

// Route lists the queues that a packet passes, starting with its sender's interface.
type Route struct {
	Ports [maxPath]int32
	N     int8
}

// Hops lists the switch ports on the route.
func (r *Route) Hops() []int32 { return r.Ports[1:r.N] }

// index resolves the ports' peers and gives hosts their interfaces.
func (t *Topology) index() error {
	nodes := make(map[string]int32, len(t.devices))
	for i := range t.devices {
		nodes[t.devices[i].name] = int32(i)
	}
	ends := make(map[string]int32, len(t.ends))
	for i := range t.ends {
		ends[t.ends[i].name] = int32(i)
	}
	t.into = make([][]int32, len(t.devices))
	for i := range t.Ports {
		p := &t.Ports[i]
		p.PeerNode, p.peerHost = None, None
		d := &t.devices[p.owner]
		d.ports = append(d.ports, int32(i))
		if node, ok := nodes[p.Peer]; ok {
			p.PeerNode = node
			d.links = append(d.links, int32(i))
			t.into[node] = append(t.into[node], p.owner)
		} else if end, ok := ends[p.Peer]; ok {
			p.peerHost = end
			t.ends[end].links = append(t.ends[end].links, int32(i))
		}
	}
	return t.indexHosts()
}

func (t *Topology) indexHosts() error {
	if len(t.ends) < 2 {
		return errors.New("build fabric: fewer than two hosts: nobody would send")
	}
	for i := range t.ends {
		h := &t.ends[i]
		if len(h.links) == 0 {
			return fmt.Errorf("build fabric: no port faces host %s", h.name)
		}
		h.nic = int32(len(t.NICs))
		t.NICs = append(t.NICs, h.links...)
		t.Racks[h.rack].hosts = append(t.Racks[h.rack].hosts, int32(i))
		var devices []int32
		for _, p := range h.links {
			devices = append(devices, t.Ports[p].owner)
		}
		key := fmt.Sprint(devices)
		set, known := t.sets[key]
		if !known {
			set = int32(len(t.attach))
			t.sets[key] = set
			t.attach = append(t.attach, attachment{devices: devices})
		}
		h.attachment = set
	}
	return nil
}

// distancesTo returns each device's distance in links to the nearest device of an attachment.
func (t *Topology) distancesTo(set int32) []distance {
	if d, ok := t.toward[set]; ok {
		return d
	}
	d := make([]distance, len(t.devices))
	for i := range d {
		d[i] = unreachable
	}
	var queue []int32
	for _, target := range t.attach[set].devices {
		if d[target] == unreachable {
			d[target] = 0
			queue = append(queue, target)
		}
	}
	for ; len(queue) > 0; queue = queue[1:] {
		for _, from := range t.into[queue[0]] {
			if d[from] == unreachable {
				d[from] = d[queue[0]] + 1
				queue = append(queue, from)
			}
		}
	}
	t.toward[set] = d
	return d
}

// Route returns the path of a 5-tuple. Among the ports that lead one link nearer to the receiver,
// each device takes the one that its hash of the 5-tuple selects. These are equal-cost shortest
// paths; in a Clos fabric they lead up, then down. Tags do not affect the hash
// (draft-tian-ccwg-ibcs-datapath-processing-00, section 5.2).
func (t *Topology) Route(seed uint64, f FiveTuple, src, dst int) (Route, error) {
	return t.RouteTagged(seed, f, src, dst, 0)
}

// RouteTagged returns the path of packets if faulty devices include the tag in their hash. tag is
// above 0 and below 1 << 16; with 0 it does the same as Route.
func (t *Topology) RouteTagged(seed uint64, f FiveTuple, src, dst, tag int) (Route, error) {
	from, to := &t.ends[src], &t.ends[dst]
	// Hosts with several interfaces hash as well, with a salt that no device uses.
	nic := pick(f, seed, 1<<32|uint64(src), len(from.links))
	r := Route{N: 1}
	r.Ports[0] = int32(len(t.Ports)) + from.nic + int32(nic)
	at := t.Ports[from.links[nic]].owner
	toward := t.distancesTo(to.attachment)
	if toward[at] == unreachable {
		return r, fmt.Errorf("route: no path from %s to %s", from.name, to.name)
	}
	if int(toward[at])+2 > maxPath {
		return r, fmt.Errorf("route: path from %s to %s passes %d switches, more than %d", from.name, to.name, toward[at]+1, maxPath-1)
	}
	for {
		next := t.choose(seed, f, at, dst, toward, tag)
		r.Ports[r.N] = next
		r.N++
		if toward[at] == 0 {
			return r, nil
		}
		at = t.Ports[next].PeerNode
	}
}

// tagSalt is the bit position of the tag in the salt of devices that hash it, above the numbers of
// devices and hosts.
const tagSalt = 40

// choose returns the port that a device chooses for a 5-tuple.
func (t *Topology) choose(seed uint64, f FiveTuple, at int32, dst int, toward []distance, tag int) int32 {
	salt := uint64(at)
	if tag > 0 && t.devices[at].hashesTag {
		salt |= uint64(tag) << tagSalt
	}
	candidates := t.devices[at].links
	leads := func(p *Port) bool { return toward[p.PeerNode] == toward[at]-1 }
	if toward[at] == 0 {
		candidates = t.ends[dst].links
		leads = func(p *Port) bool { return p.owner == at }
	}
	n := 0
	for _, c := range candidates {
		if leads(&t.Ports[c]) {
			n++
		}
	}
	i := pick(f, seed, salt, n)
	if t.ecmp != nil && salt == uint64(at) {
		i = int(t.ecmp(f, ecmpSeed(int(at))) % uint32(n))
	}
	for _, c := range candidates {
		if leads(&t.Ports[c]) {
			if i == 0 {
				return c
			}
			i--
		}
	}
	return None // not reached: a device at a finite distance has a port that leads nearer
}

func pick(f FiveTuple, seed, salt uint64, n int) int {
	if n < 2 {
		return 0
	}
	return int(f.hash(seed, salt) % uint64(n))
}
