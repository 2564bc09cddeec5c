package finding

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
)

// Router tells which ways packets may take; fabric.Fabric does.
type Router interface {
	// Routes lists the paths from src to dst as the ports that packets leave devices by;
	// ok is false where they are not known or more than most.
	Routes(src, dst netip.Addr, most int) (routes [][]aggregate.LocationID, ok bool)
	// Edges are the names of the devices that an address may be attached to.
	Edges(netip.Addr) []string
}

const (
	// maxRoutes bounds the paths between two hosts that are held against each other, and
	// maxWeighed the flows, of each sort.
	maxRoutes  = 256
	maxWeighed = 4096
	// minAffected is how many flows it takes to be sure of what they have in common.
	minAffected = 3
	// certainty is how many times likelier one explanation is than chance, for each of
	// those that were tried and that flows tell apart. Explanations within doubt times of the best are named as well.
	certainty, doubt = 100, 20
	// wider is how many times likelier an explanation by several ports must be than one by a
	// single port, since more flows pass them anyway.
	wider = 10
	// maxCandidates is how many a finding names that may be at fault.
	maxCandidates = 12
)

// court finds what flows have in common that something happened to. Which of the equal
// paths a flow takes is the hash's secret; its tags name ports of it now and then.
type court struct {
	cfg    *Config
	routes map[[2]netip.Addr][][]aggregate.LocationID
	places map[aggregate.LocationID]fabric.Location
	most   int // paths between two hosts that are compared
	skip   int // ports at the beginning of each path that are no suspects
}

// newCourt makes a court; it keeps the configuration.
func newCourt(cfg *Config) *court {
	return &court{cfg: cfg, most: maxRoutes, routes: map[[2]netip.Addr][][]aggregate.LocationID{}, places: map[aggregate.LocationID]fabric.Location{}}
}

// place returns a location by its identity.
func (c *court) place(id aggregate.LocationID) fabric.Location {
	at, known := c.places[id]
	if !known {
		at, _ = c.cfg.Locator.Location(id)
		c.places[id] = at
	}
	return at
}

// routesOf returns the ways that packets of a flow's ends may take.
func (c *court) routesOf(f *flow) [][]aggregate.LocationID {
	src, dst := f.key.addrs()
	key := [2]netip.Addr{src, dst}
	all, known := c.routes[key]
	if !known {
		if routes, ok := c.cfg.Routes.Routes(src, dst, c.most); ok {
			all = routes
		}
		c.routes[key] = all
	}
	return all
}

// paths returns the ways that a flow may take, given the ports that its tags name.
func (c *court) paths(f *flow) [][]aggregate.LocationID {
	all := c.routesOf(f)
	var fit [][]aggregate.LocationID
	for _, r := range all {
		passes := true
		for _, at := range f.named {
			passes = passes && (at == 0 || slices.Contains(r, at))
		}
		if passes {
			fit = append(fit, r)
		}
	}
	if len(fit) == 0 {
		return all // a port that the flow does not pass was named all the same
	}
	return fit
}

// who is a suspect: a port, the ports of a device with an orientation, or a device; or a
// host that sends.
type who struct {
	at   aggregate.LocationID
	host netip.Addr
}

// suspect is how likely flows pass one: those that something happened to, and the others.
type suspect struct {
	affected, kept []float64
	flows          uint64 // a hash of which flows pass it, how likely
}

// testable returns how many of the suspects can be told apart at all: those that enough flows
// pass, and not the same ones. Which flows are affected is nothing to it, so that as many
// explanations were tried.
func testable(of map[who]*suspect) int {
	apart := make(map[uint64]struct{}, len(of))
	for _, s := range of {
		if len(s.affected)+len(s.kept) >= minAffected {
			apart[s.flows] = struct{}{}
		}
	}
	return max(len(apart), 1)
}

// suspects returns all that flows may pass, and their senders.
func (c *court) suspects(affected, kept []*flow) (of map[who]*suspect, nAffected, nKept int) {
	of = map[who]*suspect{}
	share := map[who]float64{}
	number := 0
	add := func(f *flow, isAffected bool) bool {
		number++
		paths := c.paths(f)
		if len(paths) == 0 {
			return false
		}
		clear(share)
		src, _ := f.key.addrs()
		share[who{host: src}] = 1
		for _, path := range paths {
			for _, port := range path[min(c.skip, len(path)):] {
				at := c.place(port)
				for i, id := range [...]aggregate.LocationID{port, at.Set, at.DeviceLoc} {
					if i == 0 || id != port {
						share[who{at: id}] += 1 / float64(len(paths))
					}
				}
			}
		}
		if len(share) == 1 {
			return false // nothing but its sender
		}
		for id, p := range share {
			s := of[id]
			if s == nil {
				s = new(suspect)
				of[id] = s
			}
			s.flows = (s.flows ^ uint64(number)<<52 ^ math.Float64bits(p)) * 0x9e3779b97f4a7c15 // flows have one order
			s.flows ^= s.flows >> 29
			if isAffected {
				s.affected = append(s.affected, min(p, 1))
			} else {
				s.kept = append(s.kept, min(p, 1))
			}
		}
		return true
	}
	for _, f := range affected {
		if add(f, true) {
			nAffected++
		}
	}
	for _, f := range kept {
		if add(f, false) {
			nKept++
		}
	}
	return of, nAffected, nKept
}

// likelihood returns the logarithm of how likely it is that what happened to flows happened
// because of the suspect, which does it to flows in one of several shares, and to some for
// other reasons.
func (s *suspect) likelihood(affected, kept int) float64 {
	restAffected, restKept := affected-len(s.affected), kept-len(s.kept)
	other := (float64(restAffected) + 0.01) / (float64(restAffected+restKept) + 1)
	best := math.Inf(-1)
	for _, does := range [...]float64{0.99, 0.5, 0.2, 0.05} {
		l := float64(restAffected)*math.Log(other) + float64(restKept)*math.Log(1-other)
		for _, p := range s.affected {
			l += math.Log(1 - (1-does*p)*(1-other))
		}
		for _, p := range s.kept {
			l += math.Log((1 - does*p) * (1 - other))
		}
		best = max(best, l)
	}
	return best
}

// verdict is what flows have in common.
type verdict struct {
	at   []fabric.Location // the likeliest, and those that are about as likely
	host bool              // a sender is among them
	sure bool              // it is many times likelier than chance
}

// judge finds what explains best that some flows are affected and others are not, of the
// first ones. Ports and devices that are cleared cannot.
func (c *court) judge(affected, kept []*flow, cleared func(aggregate.LocationID) bool) (v verdict) {
	affected, kept = affected[:min(len(affected), maxWeighed)], kept[:min(len(kept), maxWeighed)]
	if c.cfg.Routes == nil || len(affected) == 0 {
		return v
	}
	of, nAffected, nKept := c.suspects(affected, kept)
	if nAffected == 0 {
		return v
	}
	share := float64(nAffected) / float64(nAffected+nKept)
	chance := float64(nAffected) * math.Log(share)
	if nKept > 0 {
		chance += float64(nKept) * math.Log(1-share)
	}
	type ranked struct {
		who
		l float64
	}
	var list []ranked
	best := math.Inf(-1)
	for one, s := range of {
		// Whom nothing of it passes explains nothing.
		if len(s.affected) > 0 && (cleared == nil || !cleared(one.at)) {
			l := s.likelihood(nAffected, nKept)
			best = max(best, l)
			if one.at != 0 && c.place(one.at).Kind != fabric.KindPort {
				l -= math.Log(wider)
			}
			list = append(list, ranked{one, l})
		}
	}
	if len(list) == 0 {
		return v
	}
	slices.SortFunc(list, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(b.l, a.l), cmp.Compare(a.at, b.at), a.host.Compare(b.host))
	})
	for _, r := range list {
		switch {
		case r.l < list[0].l-math.Log(doubt):
		case r.at == 0:
			v.at, v.host = append(v.at, fabric.Location{Name: r.host.String()}), true
		default:
			v.at = append(v.at, c.place(r.at))
		}
	}
	if len(v.at) > maxCandidates {
		return verdict{} // that says nothing
	}
	v.sure = nAffected >= minAffected && best-chance >= math.Log(certainty*float64(testable(of)))
	return v
}

// name says in a finding who it is, or may be.
func (v *verdict) name(f *Finding) {
	if len(v.at) == 0 {
		return
	}
	if !v.sure {
		for i := range v.at {
			f.Candidates = append(f.Candidates, v.at[i].Name)
		}
		slices.Sort(f.Candidates)
		return
	}
	f.Location, f.Device, f.Port = v.at[0].ID, v.at[0].Device, ""
	for i := range v.at {
		if v.at[i].Device != f.Device {
			f.Device = ""
		}
	}
	if len(v.at) == 1 {
		f.place(&v.at[0])
		return
	}
	for i := range v.at {
		f.Candidates = append(f.Candidates, v.at[i].Name)
	}
	slices.Sort(f.Candidates)
}

// accuse names who it is, or may be, in a finding about flows, whose subject is who it surely
// is.
func (v *verdict) accuse(f *Finding) {
	f.Subject = "paths of several senders"
	v.name(f)
	if v.sure {
		f.Subject = v.String()
		f.Evidence += fmt.Sprintf("; what they have in common is %s", f.Subject)
	}
	f.ID = idOf(f.Kind, f.Subject)
}

// String lists them, the likeliest first.
func (v *verdict) String() string {
	const most = 5
	var names []string
	for i := range v.at[:min(len(v.at), most)] {
		names = append(names, v.at[i].Name)
	}
	if n := len(v.at) - most; n > 0 {
		names = append(names, fmt.Sprintf("%d others", n))
	}
	return strings.Join(names, " or ")
}
