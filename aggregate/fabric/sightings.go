package fabric

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/csigscope/csigscope/aggregate"
)

// Bounds of the sightings of taps in the fabric.
const (
	maxObservationPoints = 1 << 10 // different observation points of such taps
	maxPassages          = 1 << 12 // devices and ports of one of them
	maxSightings         = 1 << 20 // flows at observation points, each for a time without long pauses
)

// sightingStep is the unit of time of sightings. A flow that was seen in a step also takes that
// path in the previous and the next step.
const sightingStep = int64(time.Second)

// sighting is the time during which a flow was seen at an observation point, in steps, without a
// pause longer than a step.
type sighting struct {
	point       uint32
	first, last int64
}

// sightings are the flows that taps in the middle of the fabric saw. Their order does not matter,
// up to the bound. Safe for concurrent use.
type sightings struct {
	points  []waypoint // from number 1
	byNames map[string]uint32
	used    atomic.Bool // sightings count
	live    bool        // while more of them come

	mu       sync.RWMutex
	flows    map[aggregate.Flow][]sighting
	n        int
	refused  uint64
	byPoints map[string]uint32 // way by points and ends
}

func newSightings() *sightings {
	return &sightings{byNames: map[string]uint32{}, flows: map[aggregate.Flow][]sighting{}, byPoints: map[string]uint32{}}
}

// ObservationPoint numbers a point in the middle of the fabric where each captured frame passes one
// of some devices and ports, by name. Call it before the fabric is used.
func (f *Fabric) ObservationPoint(names []string) (uint32, error) {
	s := f.seen
	key := strings.Join(names, " ")
	if n, ok := s.byNames[key]; ok {
		return n, nil
	}
	if len(s.points) >= maxObservationPoints || len(names) > maxPassages {
		return 0, fmt.Errorf("place %d, with %d devices and ports: expected at most %d places of at most %d devices and ports", len(s.points)+1, len(names), maxObservationPoints, maxPassages)
	}
	var at waypoint
	for _, name := range names {
		passages := f.topo.passages(name)
		if passages == nil {
			return 0, fmt.Errorf(noPassage, name)
		}
		at = append(at, passages...)
	}
	s.points = append(s.points, at)
	s.byNames[key] = uint32(len(s.points))
	return uint32(len(s.points)), nil
}

// RecordSighting records that packets of a flow passed an observation point at ns, Unix ns. It
// implements aggregate.PathResolver and may be called from several goroutines.
func (f *Fabric) RecordSighting(point uint32, fl *aggregate.Flow, ns int64) {
	s, step := f.seen, ns/sightingStep
	if int(point) > len(s.points) || point == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(fl, sighting{point, step, step})
}

// add merges a sighting with adjacent ones of the same point.
func (s *sightings) add(fl *aggregate.Flow, one sighting) {
	list := s.flows[*fl]
	kept := list[:0]
	before := len(list)
	for _, o := range list {
		if o.point == one.point && o.first <= one.last+2 && one.first <= o.last+2 {
			one.first, one.last = min(one.first, o.first), max(one.last, o.last)
			continue
		}
		kept = append(kept, o)
	}
	if len(kept) == before && s.n >= maxSightings {
		s.refused++
		return
	}
	at, _ := slices.BinarySearchFunc(kept, one, func(a, b sighting) int {
		return cmp.Or(cmp.Compare(a.point, b.point), cmp.Compare(a.first, b.first))
	})
	kept = slices.Insert(kept, at, one)
	s.n += len(kept) - before
	s.flows[*fl] = kept
}

// UseSightingsLive makes sightings count at once, while packets come. Call it before the fabric is
// used.
func (f *Fabric) UseSightingsLive() {
	f.seen.live = true
	f.seen.used.Store(true)
}

// UseSightings makes sightings count from now on. Before that, results of Way do not depend on
// them: so a replay that first reads the captures of such taps gives the same rows on any number of
// cores. It returns whether there are any.
func (f *Fabric) UseSightings() bool {
	f.seen.used.Store(true)
	f.seen.mu.RLock()
	defer f.seen.mu.RUnlock()
	return f.seen.n > 0
}

// at returns the observation points that a flow passes at a time, ascending, and the time range in
// which the result is the same, as far as known.
func (s *sightings) at(fl *aggregate.Flow, ns int64) (stands []uint32, from, until int64) {
	from, until = math.MinInt64, math.MaxInt64
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, o := range s.flows[*fl] {
		first, end := (o.first-1)*sightingStep, (o.last+2)*sightingStep
		switch {
		case ns < first:
			until = min(until, first)
		case ns >= end:
			from = max(from, end)
		default:
			from, until = max(from, first), min(until, end)
			stands = append(stands, o.point)
		}
	}
	return stands, from, until
}

// seenWay returns the way of a flow between attachments that was seen at these points, 0 if no
// shortest path passes all of them: then the path changed meanwhile.
func (f *Fabric) seenWay(stands []uint32, a, b int32) uint32 {
	key := fmt.Sprint(stands, a, b)
	f.seen.mu.RLock()
	id, known := f.seen.byPoints[key]
	f.seen.mu.RUnlock()
	if known {
		return id
	}
	src, dst := &f.topo.attachments[a], &f.topo.attachments[b]
	points := make([]waypoint, 0, len(stands))
	for _, n := range stands {
		points = append(points, f.seen.points[n-1])
	}
	f.resolve.paths.sortAlong(src, points)
	w, ok := f.resolve.paths.via(aggregate.ByTap, src, dst, points)
	direct, _ := f.resolve.paths.via(aggregate.ByTap, src, dst, nil)
	id = f.ways.enter(w, ok && w.hops == direct.hops)
	f.seen.mu.Lock()
	defer f.seen.mu.Unlock()
	if len(f.seen.byPoints) < maxWays {
		f.seen.byPoints[key] = id
	}
	return id
}

// sortAlong orders waypoints by their distance from a source.
func (p *paths) sortAlong(src *attachment, points []waypoint) {
	away := func(w waypoint) int {
		n := unreached
		for _, s := range src.devices {
			table := p.hops.awayFrom(s)
			for _, at := range w {
				if table != nil && table[at.in] != far {
					n = min(n, 2*int(table[at.in])+at.hops())
				}
			}
		}
		return n
	}
	slices.SortStableFunc(points, func(x, y waypoint) int { return cmp.Compare(away(x), away(y)) })
}

// Prediction compares evidence with the sightings of taps in the fabric.
type Prediction struct {
	By          string // of aggregate.EvidenceNames: path or ecmp
	Right, Seen int    // flows at observation points, among those with one predicted path
}

// Predictions compares the path table and the hashes with the sightings of taps in the fabric. A
// flow that was seen at two points counts twice.
func (f *Fabric) Predictions() []Prediction {
	list := []Prediction{{By: aggregate.EvidenceNames[0]}, {By: aggregate.EvidenceNames[1]}}
	f.seen.mu.RLock()
	defer f.seen.mu.RUnlock()
	for fl, seen := range f.seen.flows {
		src, dst := netip.AddrFrom16(fl.Src).Unmap(), netip.AddrFrom16(fl.Dst).Unmap()
		a, e := f.topo.attachmentOf(src), f.topo.endpointOf(dst)
		if a == none || e == none {
			continue
		}
		b := f.topo.attached[e]
		from, to := &f.topo.attachments[a], &f.topo.attachments[b]
		for _, s := range seen {
			if rule, _, _ := f.rules.find(src, dst, &fl, s.first*sightingStep); rule != none {
				w, ok := f.resolve.paths.via(aggregate.ByPathTable, from, to, f.rules.list[rule].via)
				list[0].judge(f.topo, &w, ok, f.seen.points[s.point-1])
			}
			if len(f.ecmp.devices) > 0 {
				w, ok := f.ecmp.predict(f.resolve.paths, &fl, from, to)
				list[1].judge(f.topo, &w, ok, f.seen.points[s.point-1])
			}
		}
	}
	return list
}

// judge counts a flow that was seen at an observation point, if its way is a single path.
func (p *Prediction) judge(t *topology, w *way, known bool, at waypoint) {
	leaves := map[int32]int{}
	for _, s := range w.ports {
		leaves[t.ports[s.at].device]++
		if leaves[t.ports[s.at].device] > 1 {
			return
		}
	}
	if !known {
		return
	}
	p.Seen++
	if slices.ContainsFunc(at, func(at passage) bool {
		if at.port != none {
			return slices.ContainsFunc(w.ports, func(s stop) bool { return s.at == at.port })
		}
		return leaves[at.in] > 0 || slices.ContainsFunc(w.ends, func(s stop) bool { return s.at == at.in })
	}) {
		p.Right++
	}
}
