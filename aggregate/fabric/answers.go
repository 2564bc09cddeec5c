package fabric

import (
	"encoding/binary"
	"slices"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/csigscope/csigscope/aggregate"
)

// maxCoarser bounds the answers that stand for sets past maxSets.
const maxCoarser = 1 << 10

// answer numbers what Locate can say: one of the fixed ones below, then the ports in
// their order, then sets. They are fewer than 1<<24: at most maxPorts ports, three
// sets of the topology for each of them, maxSets and maxCoarser.
type answer uint32

const (
	unset      answer = iota
	nothing           // no port of the path fits
	nowhere           // the topology has no path, or does not know it
	firstPort         // the answer of port 0
	answerBits = 24
)

// placed is a place, and how fast it is.
type placed struct {
	id       aggregate.LocationID
	capacity uint64 // kbit/s that all candidates share, or 0
}

// answers interns sets of ports. Reading an answer takes no lock: who has its number
// got it after it was entered.
type answers struct {
	fabric *Fabric
	sets   []placed // of its final length once the fabric is made

	mu      sync.Mutex        // of what follows
	entered int               // sets
	byPorts map[uint64]answer // by a digest of the ports
	coarser map[placed]answer
	key     []byte
}

func newAnswers(f *Fabric) *answers {
	return &answers{fabric: f, byPorts: map[uint64]answer{}, coarser: map[placed]answer{}}
}

// name enters a set of the topology, two or more ports, unless the same ports have
// another name already. Only while the fabric is made.
func (a *answers) name(ports []int32, l *Location) {
	digest := a.digest(ports)
	if _, named := a.byPorts[digest]; named {
		return
	}
	a.sets = append(a.sets, placed{})
	a.byPorts[digest] = a.push(placed{l.ID, l.Capacity})
}

// seal makes room for what traffic can call for, when all of the topology is named.
func (a *answers) seal() {
	a.sets = slices.Concat(a.sets, make([]placed, maxSets+maxCoarser))
}

// get is what an answer from firstPort on stands for.
func (a *answers) get(n answer) placed {
	f := a.fabric
	i := int(n - firstPort)
	if i < len(f.places) {
		return placed{f.places[i].port, f.topo.ports[i].speed}
	}
	return a.sets[i-len(f.places)]
}

func (a *answers) push(p placed) answer {
	a.sets[a.entered] = p
	a.entered++
	return firstPort + answer(len(a.fabric.places)+a.entered-1)
}

// of is the answer for one or more ports, ascending.
func (a *answers) of(ports []int32) answer {
	if len(ports) == 1 {
		return firstPort + answer(ports[0])
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	digest := a.digest(ports)
	if n, ok := a.byPorts[digest]; ok {
		return n
	}
	f := a.fabric
	if f.known.setsLeft() {
		l := f.setOf(ports)
		if id, ok := f.known.addSet(l); ok {
			n := a.push(placed{id, l.Capacity})
			a.byPorts[digest] = n
			return n
		}
	}
	return a.coarse(ports)
}

// coarse is the answer for a set past the bound: the ports' stage, or the overflow
// location. It is not remembered by the ports, so that memory stays bounded.
func (a *answers) coarse(ports []int32) answer {
	f := a.fabric
	f.known.fallBack()
	c := f.topo.traitOf(ports)
	p := placed{aggregate.OverflowLocation, c.speed}
	if c.stage != "" {
		p.id = f.places[ports[0]].stage
	}
	n, ok := a.coarser[p]
	if !ok && len(a.coarser) >= maxCoarser-1 {
		p = placed{id: aggregate.OverflowLocation}
		n, ok = a.coarser[p]
	}
	if !ok {
		n = a.push(p)
		a.coarser[p] = n
	}
	return n
}

// digest tells sets of ports apart as surely as identities do.
func (a *answers) digest(ports []int32) uint64 {
	a.key = a.key[:0]
	for _, i := range ports {
		a.key = binary.LittleEndian.AppendUint32(a.key, uint32(i))
	}
	return xxhash.Sum64(a.key)
}
