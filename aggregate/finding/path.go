package finding

import (
	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode"
)

// maxNamed is how many ports that a flow's tags name are remembered.
const maxNamed = 4

// path is what is known of the ports that a flow passes.
type path struct {
	named [maxNamed]aggregate.LocationID // by its tags and reflections
}

// passed remembers a port that a value of the flow names.
func (p *path) passed(at aggregate.LocationID) {
	for i, one := range p.named {
		switch one {
		case at:
			return
		case 0:
			p.named[i] = at
			return
		}
	}
}

// paths are those of flows of which reflections alone were seen so far: where captures are
// read one after the other, a flow's may come before its tags. They are apart from flows,
// and have a bound of their own, since whoever sends reflections chooses what flows they are
// of.
type paths struct {
	of     map[flowKey]*path
	most   int
	beyond uint64
}

func (p *paths) get(key *flowKey) *path {
	if p.most < 0 {
		return nil
	}
	one := p.of[*key]
	if one == nil {
		if len(p.of) >= p.most {
			p.beyond++
			return nil
		}
		one = new(path)
		p.of[*key] = one
	}
	return one
}

// take is the path of a flow that is told apart from now on, and keeps it.
func (p *paths) take(key *flowKey) (known path) {
	if one := p.of[*key]; one != nil {
		known = *one
		delete(p.of, *key)
	}
	return known
}

// reflected is the path that a reflection is of; nil beyond the bound.
func (f *flows) reflected(o *decode.Observation) *path {
	key := flowKey{o.Dst, o.Src, uint32(o.DstPort)<<16 | uint32(o.SrcPort), o.Proto}
	if one := f.of[key]; one != nil {
		return &one.path
	}
	return f.alone.get(&key)
}
