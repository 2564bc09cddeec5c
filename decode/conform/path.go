package conform

import (
	"math/bits"
	"slices"
)

const (
	// maxFlows bounds the number of flows examined.
	maxFlows = 1 << 18
	// maxClasses bounds the number of distinct tags in a flow.
	maxClasses = 8
	// minClass is the number of packets of a class that have to take one port before that is not
	// chance: with two ports, the chance is 1 in 2^11.
	minClass = 12
	// minChanges is the number of times that a flow has to change its port together with its tag: as
	// many as if minClass packets of each of two classes took turns. Routes and flowlets
	// change the port of a flow too, and may do so once or twice when its tag changes.
	minChanges = 2*minClass - 1
	// numSlots is the number of intervals in which the packets of a flow are distinguished.
	numSlots = 64
)

// class is the packets of a flow with one kind of tag, and their port.
type class struct {
	key   uint64
	n     uint64
	port  uint8
	mixed bool    // they took several
	slots uint64  // of the flow in which they came
	first Example // the first one, in any part
	order uint32  // its order
}

// flowPaths are the classes of a flow: by signal type or without tag, and by the whole tag before
// the device.
type flowPaths struct {
	byType, byTag [maxClasses]class
	low, high     uint32 // order of its first and its last packet
	shift         uint8  // each slot is 1<<shift packets of all flows
}

// paths records the ports that flows took, by tag (IBCS 5.2). A device that spreads packets over
// ports, or whose ports go down, mixes ports within each class. A device whose hash includes the
// tag sends each class to one port, and different classes to different ports.
type paths struct {
	flows   map[uint64]*flowPaths
	ignored uint64 // packets of flows beyond maxFlows, and tagged ones without a flow
	several bool   // packets took more than one port
	port    uint8
	any     bool
}

func (p *paths) add(before *waiter, port uint8) {
	p.several = p.several || p.any && p.port != port
	p.port, p.any = port, true
	if before.flow == 0 {
		if before.tagged {
			p.ignored++
		}
		return
	}
	f := p.flows[before.flow]
	if f == nil {
		if len(p.flows) >= maxFlows {
			p.ignored++
			return
		}
		f = &flowPaths{low: before.order, high: before.order}
		p.flows[before.flow] = f
	}
	var byType, byTag uint64 // 0 without a tag
	if before.tagged {
		byType = 1 + uint64(before.T)
		byTag = 1 + (uint64(before.S)<<32 | uint64(before.T)<<16 | uint64(before.LM))
	}
	slot := f.slot(before.order)
	count(&f.byType, byType, slot, before, port)
	count(&f.byTag, byTag, slot, before, port)
}

// slot returns the bit of a packet in class.slots. It first widens the slots until they hold it; in
// whatever order packets come, the slots are the same in the end.
func (f *flowPaths) slot(order uint32) uint64 {
	low, high := min(f.low, order), max(f.high, order)
	for high>>f.shift-low>>f.shift >= numSlots {
		odd := f.low >> f.shift & 1
		f.shift++
		f.eachSlots(func(slots uint64) (wide uint64) {
			for ; slots != 0; slots &= slots - 1 {
				wide |= 1 << ((uint32(bits.TrailingZeros64(slots)) + odd) / 2)
			}
			return wide
		})
	}
	if back := f.low>>f.shift - low>>f.shift; back > 0 {
		f.eachSlots(func(slots uint64) uint64 { return slots << back })
	}
	f.low, f.high = low, high
	return 1 << (order>>f.shift - low>>f.shift)
}

func (f *flowPaths) eachSlots(change func(uint64) uint64) {
	for i := range maxClasses {
		f.byType[i].slots, f.byTag[i].slots = change(f.byType[i].slots), change(f.byTag[i].slots)
	}
}

func count(list *[maxClasses]class, key, slot uint64, before *waiter, port uint8) {
	for i := range list {
		c := &list[i]
		if c.n == 0 {
			c.key, c.port = key, port
		} else if c.key != key {
			continue
		}
		if c.n == 0 || before.order < c.order {
			c.first, c.order = exampleOf(&before.sighting, nil), before.order
			c.first.portNum = port
		}
		c.n++
		c.slots |= slot
		c.mixed = c.mixed || c.port != port
		return
	}
}

// judgePaths finds flows whose tags determine the port.
func (j *Judge) judgePaths() {
	if !j.paths.several {
		return
	}
	j.counts.PathsIgnored = j.paths.ignored
	for _, f := range j.paths.flows {
		var unproven uint64
		for _, list := range [...]*[maxClasses]class{&f.byType, &f.byTag} {
			e, n := split(list)
			if n > 0 && changes(list) >= minChanges {
				j.brokeOften(PathSelection, n, e)
				unproven = 0
				break
			}
			unproven = max(unproven, n)
		}
		j.counts.PathsIgnored += unproven
	}
}

// split returns an example and the number of packets that took another port than the class of the
// flow's first packet. n is 0 unless every class took one port.
func split(list *[maxClasses]class) (e Example, n uint64) {
	var first *class
	for i := range list {
		c := &list[i]
		switch {
		case c.n < minClass:
		case c.mixed:
			return e, 0
		case first == nil || c.order < first.order:
			first = c
		}
	}
	var order uint32 // of e
	for i := range list {
		c := &list[i]
		if c.n < minClass || c.port == first.port {
			continue
		}
		if n == 0 || c.order < order {
			e, order = c.first, c.order
		}
		n += c.n
	}
	return e, n
}

// changes returns how often a flow changed its port at least, as far as slots distinguish packets. No
// class is mixed.
func changes(list *[maxClasses]class) (n int) {
	var ports []uint8
	var slots [maxClasses]uint64 // by port
	for i := range list {
		if c := &list[i]; c.n >= minClass {
			at := slices.Index(ports, c.port)
			if at < 0 {
				at, ports = len(ports), append(ports, c.port)
			}
			slots[at] |= c.slots
		}
	}
	var last uint // ports that the flow may have had at the end of the slot before, one bit each
	for slot := range numSlots {
		var now uint
		for at := range ports {
			now |= uint(slots[at]>>slot&1) << at
		}
		first := last & now // ports that it need not change to in this slot
		if now == 0 {
			continue
		}
		n += bits.OnesCount(now) - 1
		if last != 0 && first == 0 {
			n++
		}
		if last = now; bits.OnesCount(first) == 1 && now != first {
			last = now &^ first
		}
	}
	return n
}
