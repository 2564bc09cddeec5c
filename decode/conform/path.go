package conform

const (
	// maxFlows bounds the flows that are looked at.
	maxFlows = 1 << 18
	// maxClasses bounds the tags of a flow that are told apart.
	maxClasses = 8
	// minClass is how many packets of a class have to take one port before that is no
	// chance: of two ports, 1 in 2^11 is.
	minClass = 12
)

// class is the packets of a flow with one kind of tag, and the port they took.
type class struct {
	key   uint32
	n     uint64
	port  uint8
	mixed bool    // they took several
	first Example // the one with the lowest number, whichever part it was judged in
}

// flowPaths are the classes of a flow: without tag or by signal type, and by the whole
// tag as it came in.
type flowPaths struct {
	byType, byTag [maxClasses]class
}

// paths are which way flows took, by tag (IBCS 5.2). A device that spreads packets over
// ports, or whose ports go down, mixes ports within each class; one whose hash takes in
// the tag sends one class this way and another that way.
type paths struct {
	flows   map[uint64]*flowPaths
	ignored uint64 // packets of flows beyond maxFlows
	several bool   // more than one port was taken
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
	var byType, byTag uint32 // 0 without a tag
	if before.tagged {
		byType = 1 + uint32(before.T)
		byTag = 1 + (before.S<<4|uint32(before.T))<<8 ^ uint32(before.LM)
	}
	count(&f.byType, byType, before, port)
	count(&f.byTag, byTag, before, port)
}

func count(list *[maxClasses]class, key uint32, before *sighting, port uint8) {
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

// judgePaths finds flows whose tags decide about the port.
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

// split is an example and the number of packets that took another way than the class of the
// flow's first packet, where every class took one way.
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
