package fabric

import (
	"slices"
	"sync"
	"sync/atomic"
)

// Bounds on what is remembered about distances.
const (
	// maxHops is the length of the longest path between devices: the hop limit of IP
	// lets no packet further.
	maxHops = 254
	// maxDistances bounds all distance tables together, in bytes. It is every device
	// of a fabric of 11,000.
	maxDistances = 128 << 20
)

// far is the distance of devices without a path between them.
const far = maxHops + 1

// distances are hops from and to devices, made when they are asked for and kept.
// Safe for concurrent use.
type distances struct {
	topo     *topology
	out, in  [][]int32 // of a device: ports to devices, ports that face it
	mutual   bool      // every link has two directions, so that distances are symmetric
	to, from []atomic.Pointer[[]uint8]

	mu      sync.Mutex // of what follows
	limit   int        // of bytes
	bytes   int
	refused int // devices whose distances are past the bound
	queue   []int32
}

// unreachable is the table of devices past the bound.
var unreachable = new([]uint8)

func newDistances(t *topology) *distances {
	n := len(t.devices)
	d := &distances{topo: t, out: make([][]int32, n), in: make([][]int32, n), to: make([]atomic.Pointer[[]uint8], n), limit: maxDistances}
	for i := range t.ports {
		if p := &t.ports[i]; p.peerDevice != none {
			d.out[p.device] = append(d.out[p.device], int32(i))
			d.in[p.peerDevice] = append(d.in[p.peerDevice], int32(i))
		}
	}
	if d.mutual = d.symmetric(); !d.mutual {
		d.from = make([]atomic.Pointer[[]uint8], n)
	}
	return d
}

// symmetric reports whether the devices that face a device are those that it faces.
func (d *distances) symmetric() bool {
	var faced, facing []int32
	for i := range d.out {
		faced, facing = faced[:0], facing[:0]
		for _, p := range d.out[i] {
			faced = append(faced, d.topo.ports[p].peerDevice)
		}
		for _, p := range d.in[i] {
			facing = append(facing, d.topo.ports[p].device)
		}
		slices.Sort(faced)
		slices.Sort(facing)
		if !slices.Equal(slices.Compact(faced), slices.Compact(facing)) {
			return false
		}
	}
	return true
}

// toward is the distance from each device to device t, nil past the bound.
func (d *distances) toward(t int32) []uint8 {
	if known := d.to[t].Load(); known != nil {
		return *known
	}
	return d.measure(&d.to[t], t, d.in, func(p *port) int32 { return p.device })
}

// awayFrom is the distance from device s to each device, nil past the bound.
func (d *distances) awayFrom(s int32) []uint8 {
	if d.mutual {
		return d.toward(s)
	}
	if known := d.from[s].Load(); known != nil {
		return *known
	}
	return d.measure(&d.from[s], s, d.out, func(p *port) int32 { return p.peerDevice })
}

// measure searches breadth first from a device and keeps the result.
func (d *distances) measure(into *atomic.Pointer[[]uint8], start int32, ports [][]int32, next func(*port) int32) []uint8 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if known := into.Load(); known != nil {
		return *known
	}
	if d.bytes+len(d.out) > d.limit {
		d.refused++
		into.Store(unreachable)
		return nil
	}
	d.bytes += len(d.out)
	table := slices.Repeat([]uint8{far}, len(d.out))
	table[start] = 0
	queue := d.queue[:0]
	queue = append(queue, start)
	for i := 0; i < len(queue); i++ {
		at := queue[i]
		if table[at] == maxHops {
			break
		}
		for _, p := range ports[at] {
			if n := next(&d.topo.ports[p]); table[n] == far {
				table[n] = table[at] + 1
				queue = append(queue, n)
			}
		}
	}
	d.queue = queue
	into.Store(&table)
	return table
}

// refusals is how many devices' distances are past the bound.
func (d *distances) refusals() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return uint64(d.refused)
}
