package fabric

import (
	"net/netip"
	"slices"

	"github.com/csigscope/csigscope/aggregate"
)

// Routes lists the equal-cost shortest paths from src to dst, each as the ports by which
// packets leave its devices, in order; the last one faces dst. ok is false where the
// topology does not know one of the ends or a way between them, where dst is not a listed
// host, and where there are more than most paths. It may be called from several
// goroutines and allocates what it returns.
func (f *Fabric) Routes(src, dst netip.Addr, most int) (routes [][]aggregate.LocationID, ok bool) {
	t := f.topo
	from, to := t.attachmentOf(src), t.endpointOf(dst)
	if from == none || to == none || int(to) >= len(t.hosts) {
		return nil, false
	}
	w := walker{fabric: f, to: to, most: most}
	known := f.resolve.paths.legs(&t.attachments[from], &t.attachments[t.attached[to]], func(s, end int32, _, left []uint8) bool {
		w.left = left
		return left[s] == far || w.from(s, end)
	})
	return w.routes, known && !w.many && len(w.routes) > 0
}

// Edges are the names of the devices that an address may be attached to, ascending; none
// where the topology does not know it. The caller owns the list.
func (f *Fabric) Edges(a netip.Addr) []string {
	at := f.topo.attachmentOf(a)
	if at == none {
		return nil
	}
	var names []string
	for _, d := range f.topo.attachments[at].devices {
		names = append(names, f.topo.devices[d].name)
	}
	slices.Sort(names)
	return names
}

// walker lists the paths to an endpoint.
type walker struct {
	fabric *Fabric
	to     endpoint
	left   []uint8 // hops from each device to that of the endpoint
	most   int
	many   bool // than most
	route  []aggregate.LocationID
	routes [][]aggregate.LocationID
}

// from lists the paths that go on from a device to the one that the endpoint is attached
// to; it returns false when there are too many.
func (w *walker) from(device, end int32) bool {
	depth := len(w.route)
	defer func() { w.route = w.route[:depth] }()
	if device == end {
		w.fabric.topo.eachLast(device, w.to, func(port int32) {
			if w.many = w.many || len(w.routes) >= w.most; !w.many {
				w.routes = append(w.routes, append(slices.Clone(w.route), w.fabric.places[port].port))
			}
		})
		return !w.many
	}
	for _, i := range w.fabric.resolve.paths.hops.out[device] {
		next := w.fabric.topo.ports[i].peerDevice
		if int(w.left[next])+1 != int(w.left[device]) {
			continue
		}
		w.route = append(w.route[:depth], w.fabric.places[i].port)
		if !w.from(next, end) {
			return false
		}
	}
	return true
}
