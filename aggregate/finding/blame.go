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

// Router returns the paths that packets may take; fabric.Fabric implements it.
type Router interface {
	// Routes lists the paths from src to dst as the ports by which packets leave devices; ok is
	// false if they are unknown or more than most.
	Routes(src, dst netip.Addr, most int) (routes [][]aggregate.LocationID, ok bool)
	// Edges returns the names of the devices to which an address may be attached.
	Edges(netip.Addr) []string
}

const (
	// maxRoutes bounds the paths between two hosts that are compared, and maxWeighed the compared
	// flows: so many affected and so many unaffected ones.
	maxRoutes  = 256
	maxWeighed = 4096
	// minAffected is the number of affected flows that a certain conclusion needs.
	minAffected = 3
	// certainty, times the number of explanations that were tried (testable), is how many times
	// likelier than chance the best explanation must be to be certain: of many explanations, some
	// fit by chance. Explanations that are at most doubt times less likely than the best one are
	// named as well.
	certainty, doubt = 100, 20
	// wider is how many times likelier an explanation by several ports must be than one by a single
	// port, because more flows pass several ports anyway.
	wider = 10
	// maxCandidates is the maximum number of possible culprits that a finding names.
	maxCandidates = 12
)

// localizer finds the common element of affected flows. The ECMP hash, which is not known here, chooses
// a flow's path among equal ones; the flow's tags name some of its ports.
type localizer struct {
	cfg       *Config
	routes    map[[2]netip.Addr][][]aggregate.LocationID
	locations map[aggregate.LocationID]fabric.Location
	most      int // maximum number of compared paths between two hosts
	skip      int // number of ports at the beginning of each path that are no suspects
}

// newLocalizer makes a localizer, which keeps the configuration.
func newLocalizer(cfg *Config) *localizer {
	return &localizer{cfg: cfg, most: maxRoutes, routes: map[[2]netip.Addr][][]aggregate.LocationID{}, locations: map[aggregate.LocationID]fabric.Location{}}
}

// location returns a location by its identity.
func (c *localizer) location(id aggregate.LocationID) fabric.Location {
	at, known := c.locations[id]
	if !known {
		at, _ = c.cfg.Locator.Location(id)
		c.locations[id] = at
	}
	return at
}

// routesOf returns the paths that packets between a flow's endpoints may take.
func (c *localizer) routesOf(f *flow) [][]aggregate.LocationID {
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

// paths returns the paths that a flow may take, given the ports that its tags name.
func (c *localizer) paths(f *flow) [][]aggregate.LocationID {
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
		return all // some tag named a port that the flow does not pass
	}
	return fit
}

// suspectID names a suspect: a port, the ports of a device with an orientation, a device, or a
// sending host.
type suspectID struct {
	at   aggregate.LocationID
	host netip.Addr
}

// suspect holds the probabilities that flows pass it: affected flows, and the others.
type suspect struct {
	affected, kept []float64
	flows          uint64 // a hash of the flows that pass it and their probabilities
}

// testable returns the number of suspects that can be distinguished at all: those that enough flows
// pass, and different flows. It does not depend on which flows are affected, so it is the number of
// explanations tried.
func testable(of map[suspectID]*suspect) int {
	apart := make(map[uint64]struct{}, len(of))
	for _, s := range of {
		if len(s.affected)+len(s.kept) >= minAffected {
			apart[s.flows] = struct{}{}
		}
	}
	return max(len(apart), 1)
}

// suspects returns everything that flows may pass, and their senders.
func (c *localizer) suspects(affected, kept []*flow) (of map[suspectID]*suspect, nAffected, nKept int) {
	of = map[suspectID]*suspect{}
	share := map[suspectID]float64{}
	number := 0
	add := func(f *flow, isAffected bool) bool {
		number++
		paths := c.paths(f)
		if len(paths) == 0 {
			return false
		}
		clear(share)
		src, _ := f.key.addrs()
		share[suspectID{host: src}] = 1
		for _, path := range paths {
			for _, port := range path[min(c.skip, len(path)):] {
				at := c.location(port)
				for i, id := range [...]aggregate.LocationID{port, at.Set, at.DeviceLoc} {
					if i == 0 || id != port {
						share[suspectID{at: id}] += 1 / float64(len(paths))
					}
				}
			}
		}
		if len(share) == 1 {
			return false // only its sender
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

// likelihood returns the log likelihood that the suspect caused the observed effect: it affects one
// of several fractions of the flows that pass it, and other causes affect some flows.
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

// verdict is the common element of flows.
type verdict struct {
	at   []fabric.Location // the likeliest, and those that are about as likely
	host bool              // one of them is a sender
	sure bool              // it is many times likelier than chance
}

// rank finds the best explanation for the difference between affected and unaffected flows, of each
// the first maxWeighed. It excludes cleared ports and devices.
func (c *localizer) rank(affected, kept []*flow, cleared func(aggregate.LocationID) bool) (v verdict) {
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
		suspectID
		l float64
	}
	var list []ranked
	best := math.Inf(-1)
	for one, s := range of {
		// Skip suspects that no affected flow crosses.
		if len(s.affected) > 0 && (cleared == nil || !cleared(one.at)) {
			l := s.likelihood(nAffected, nKept)
			best = max(best, l)
			if one.at != 0 && c.location(one.at).Kind != fabric.KindPort {
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
			v.at = append(v.at, c.location(r.at))
		}
	}
	if len(v.at) > maxCandidates {
		return verdict{} // too many to mean anything
	}
	v.sure = nAffected >= minAffected && best-chance >= math.Log(certainty*float64(testable(of)))
	return v
}

// name sets the certain or possible culprits in a finding.
func (v *verdict) name(f *Finding) {
	if len(v.at) == 0 {
		return
	}
	if v.sure {
		f.Location, f.Device, f.Port = v.at[0].ID, v.at[0].Device, ""
		if slices.ContainsFunc(v.at, func(at fabric.Location) bool { return at.Device != f.Device }) {
			f.Device = ""
		}
		if len(v.at) == 1 {
			f.setLocation(&v.at[0])
			return
		}
	}
	for i := range v.at {
		f.Candidates = append(f.Candidates, v.at[i].Name)
	}
	slices.Sort(f.Candidates)
}

// nameCulprits names the certain or possible culprits in a finding about flows, whose subject
// becomes the certain ones.
func (v *verdict) nameCulprits(f *Finding) {
	f.Subject = "paths of several senders"
	v.name(f)
	if v.sure {
		f.Subject = v.String()
		f.Evidence += fmt.Sprintf("; their paths have %s in common", f.Subject)
	}
	f.ID = idOf(f.Kind, f.Subject)
}

// String lists the suspects, the likeliest first.
func (v *verdict) String() string {
	const most = 5
	var names []string
	for i := range v.at[:min(len(v.at), most)] {
		names = append(names, v.at[i].Name)
	}
	if n := len(v.at) - most; n > 0 {
		names = append(names, fmt.Sprintf("%d more", n))
	}
	return strings.Join(names, " or ")
}
