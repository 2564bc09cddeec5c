package conform

const (
	// maxFlows bounds the number of flows examined.
	maxFlows = 1 << 18
	// maxClasses bounds the number of distinct tags in a flow.
	maxClasses = 8
	// minClass is the number of packets of a class that have to take one port before that is not
	// chance: with two ports, the chance is 1 in 2^11.
	minClass = 12
)

// class is the packets of a flow with one kind of tag, and their port.
type class struct {
	key   uint64
	n     uint64
	port  uint8
	mixed bool    // they took several
	first Example // the one with the lowest number, in any part
}

// flowPaths are the classes of a flow: by signal type or without tag, and by the whole tag before
// the device.
type flowPaths struct {
	byType, byTag [maxClasses]class
}

// paths records the ports that flows took, by tag (IBCS 5.2). A device that spreads packets over
// ports, or whose ports go down, mixes ports within each class. A device whose hash includes the
// tag sends each class to one port, and different classes to different ports.
type paths struct {
	flows   map[uint64]*flowPaths
	ignored uint64 // packets of flows beyond maxFlows
	several bool   // packets took more than one port
	port    uint8
	any     bool
}

func (p *paths) add(before *sighting, port uint8) {
	p.several = p.several || p.any && p.port != port
	p.port, p.any = port, true
	if before.flow == 0 {
		return
	}
	f := p.flows[before.flow]
	if f == nil {
		if len(p.flows) >= maxFlows {
			p.ignored++
			return
		}
		f = new(flowPaths)
		p.flows[before.flow] = f
	}
	var byType, byTag uint64 // 0 without a tag
	if before.tagged {
		byType = 1 + uint64(before.T)
		byTag = 1 + (uint64(before.S)<<32 | uint64(before.T)<<16 | uint64(before.LM))
	}
	count(&f.byType, byType, before, port)
	count(&f.byTag, byTag, before, port)
}

func count(list *[maxClasses]class, key uint64, before *sighting, port uint8) {
	for i := range list {
		c := &list[i]
		if c.n == 0 {
			c.key, c.port = key, port
		} else if c.key != key {
			continue
		}
		if c.n == 0 || before.number < c.first.Before {
			c.first = Example{Before: before.number, portNum: port, WasTag: before.seen()}
		}
		c.n++
		c.mixed = c.mixed || c.port != port
		return
	}
}

// judgePaths finds flows whose tags determine the port.
func (j *Judge) judgePaths() {
	j.counts.PathsIgnored = j.paths.ignored
	if !j.paths.several {
		return
	}
	for _, f := range j.paths.flows {
		if e, n := split(&f.byType); n > 0 {
			j.brokeOften(PathSelection, n, e)
		} else if e, n := split(&f.byTag); n > 0 {
			j.brokeOften(PathSelection, n, e)
		}
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
		case first == nil || c.first.Before < first.first.Before:
			first = c
		}
	}
	for i := range list {
		c := &list[i]
		if c.n < minClass || c.port == first.port {
			continue
		}
		if n == 0 || c.first.Before < e.Before {
			e = c.first
		}
		n += c.n
	}
	return e, n
}
