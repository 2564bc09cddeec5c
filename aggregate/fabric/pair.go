package fabric

import (
	"maps"
	"slices"
	"sync"

	"github.com/csigscope/csigscope/aggregate"
)

// Ports lists the ports of all devices, by name.
func (f *Fabric) Ports() []Location {
	list := make([]Location, len(f.topo.ports))
	for i := range list {
		list[i] = f.portLocation(int32(i))
	}
	return list
}

// Device is a switch of the fabric file.
type Device struct{ Name, Stage string }

// Devices lists all devices, by name.
func (f *Fabric) Devices() []Device {
	list := make([]Device, 0, len(f.topo.devices))
	for _, name := range slices.Sorted(maps.Keys(f.topo.deviceIndex)) {
		list = append(list, Device{name, f.topo.devices[f.topo.deviceIndex[name]].stage})
	}
	return list
}

// ends finds a pair of groups in the topology: the endpoint for hosts of dst, and the attachments
// of both. ok is false if the topology does not have one of them.
func (t *topology) ends(src, dst aggregate.GroupID) (e endpoint, from, to *attachment, ok bool) {
	a, e := t.groupAt(src), t.groupAt(dst)
	if a == none || e == none || t.attached[a] == none || t.attached[e] == none {
		return none, nil, nil, false
	}
	return e, &t.attachments[t.attached[a]], &t.attachments[t.attached[e]], true
}

// GroupRoutes lists the shortest paths from one group to another, at most most, each as the ports
// by which packets leave its devices. It omits the last hop if that has several ports, one for each
// host. more reports further paths. It may be called from several goroutines and allocates its
// result.
func (f *Fabric) GroupRoutes(src, dst aggregate.GroupID, most int) (routes [][]aggregate.LocationID, more bool) {
	e, from, to, ok := f.topo.ends(src, dst)
	if !ok {
		return nil, false
	}
	w := walker{fabric: f, to: e, most: most, coarse: true}
	f.resolve.paths.endpointPairs(from, to, func(s, end int32, _, left []uint8) bool {
		w.left = left
		return left[s] == far || w.from(s, end)
	})
	return w.routes, w.many
}

// maxPassed bounds the results that passedCache keeps.
const maxPassed = 1 << 16

// passedCache caches results of Passed; when it is full it starts over. Safe for concurrent use.
type passedCache struct {
	mu    sync.Mutex
	known map[passedKey][]aggregate.LocationID
}

type passedKey struct {
	src, dst aggregate.GroupID
	at       aggregate.LocationID
}

// Passed lists the ports on every shortest path from src to dst, or on every such path through one
// of the ports of a location: a tag from src to dst that names the location passed them all. It is
// empty for a location that lists no port of such a path, or not all of its ports. The list is
// shared and must not be modified. It may be called from several goroutines.
func (f *Fabric) Passed(src, dst aggregate.GroupID, at *Location) []aggregate.LocationID {
	key := passedKey{src, dst, at.ID}
	c := &f.passed
	c.mu.Lock()
	list, ok := c.known[key]
	c.mu.Unlock()
	if ok {
		return list
	}
	list = f.passedBy(src, dst, at)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil || len(c.known) >= maxPassed {
		c.known = make(map[passedKey][]aggregate.LocationID)
	}
	c.known[key] = list
	return list
}

func (f *Fabric) passedBy(src, dst aggregate.GroupID, at *Location) []aggregate.LocationID {
	e, from, to, ok := f.topo.ends(src, dst)
	if !ok || at.CandidateCount != len(at.Candidates) {
		return nil
	}
	via := []int32{none}
	if at.ID != aggregate.NoLocation {
		via = via[:0]
		for _, name := range at.Candidates {
			if i, ok := f.portAt[LocationIDOf(KindPort, name)]; ok {
				via = append(via, i)
			}
		}
	}
	var list []aggregate.LocationID
	for _, port := range slices.Sorted(maps.Keys(f.resolve.paths.shared(e, from, to, via))) {
		list = append(list, f.locationsOf[port].port)
	}
	return list
}

// shared returns the ports on all paths from src to endpoint e, attached at dst, that use one of
// the ports via; none stands for all paths.
func (p *paths) shared(e endpoint, src, dst *attachment, via []int32) (all map[int32]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.prepare(4 * len(src.devices) * len(dst.devices) * max(len(via), 1))
	p.endpointPairs(src, dst, func(s, t int32, from, to []uint8) bool {
		if from[t] == far {
			return true
		}
		for _, port := range via {
			certain, exists := p.certain(s, t, from, to, port, e)
			switch {
			case !exists:
			case all == nil:
				all = certain
			default:
				maps.DeleteFunc(all, func(port int32, _ bool) bool { return !certain[port] })
			}
			if all != nil && len(all) == 0 {
				return false
			}
		}
		return true
	})
	return all
}

// certain returns the ports on all paths from device s by device t to endpoint e that use a port,
// or on all paths if port is none. exists is false if no such path uses the port.
func (p *paths) certain(s, t int32, from, to []uint8, port int32, e endpoint) (ports map[int32]bool, exists bool) {
	ports = make(map[int32]bool)
	var last []int32
	p.topo.eachLast(t, e, func(i int32) { last = append(last, i) })
	if port == none {
		p.addSolePorts(s, t, from, to, ports)
	} else if at := &p.topo.ports[port]; at.peerDevice == none {
		if !slices.Contains(last, port) {
			return nil, false
		}
		last = []int32{port}
		p.addSolePorts(s, t, from, to, ports)
	} else {
		toward, away := p.hops.toward(at.device), p.hops.awayFrom(at.peerDevice)
		if toward == nil || away == nil || int(from[at.device])+1+int(to[at.peerDevice]) != int(from[t]) {
			return nil, false
		}
		ports[port] = true
		p.addSolePorts(s, at.device, from, toward, ports)
		p.addSolePorts(at.peerDevice, t, away, to, ports)
	}
	if len(last) == 1 {
		ports[last[0]] = true
	}
	return ports, true
}

// addSolePorts adds the ports that are the only one of their hop on the shortest paths from s to t.
func (p *paths) addSolePorts(s, t int32, from, to []uint8, into map[int32]bool) {
	hops := make([]struct {
		port int32
		n    int
	}, from[t])
	p.walk(s, t, from, to, func(port int32) {
		h := &hops[from[p.topo.ports[port].device]]
		h.port = port
		h.n++
	})
	for _, h := range hops {
		if h.n == 1 {
			into[h.port] = true
		}
	}
}
