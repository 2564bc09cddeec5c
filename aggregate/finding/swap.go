package finding

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/csigscope/csigscope/aggregate"
)

// swap is two ports of a device.
type swap struct{ a, b aggregate.LocationID }

// with exchanges its ports.
func (s swap) with(at aggregate.LocationID) aggregate.LocationID {
	switch at {
	case s.a:
		return s.b
	case s.b:
		return s.a
	}
	return at
}

// fits reports whether one of the paths has all ports that a flow names, after a swap.
func (s swap) fits(paths [][]aggregate.LocationID, f *flow) bool {
	return slices.ContainsFunc(paths, func(path []aggregate.LocationID) bool {
		return !slices.ContainsFunc(f.named[:], func(at aggregate.LocationID) bool { return at != 0 && !slices.Contains(path, s.with(at)) })
	})
}

// swapped returns the findings of two ports of a device that write each other's locator metadata:
// the ports that flows name are together on none of their paths, but are so once the two are
// exchanged, and hardly any other flow contradicts the exchange. Flows that are spread over paths, or moved
// from one to another, also name ports of several paths, but an exchange does not repair that.
func (c *localizer) swapped(flows []*flow) (list []Finding) {
	if c.cfg.Routes == nil {
		return nil
	}
	var wrong, right []*flow
	for _, f := range flows[:min(len(flows), maxWeighed)] {
		if f.named[1] == 0 {
			continue // a single port is always on some path
		}
		if paths := c.routesOf(f); len(paths) > 0 && !(swap{}).fits(paths, f) {
			wrong = append(wrong, f)
		} else if len(paths) > 1 {
			right = append(right, f)
		}
	}
	rest := namers(right)
	for len(wrong) >= minAffected && len(list) < maxBlamed {
		best, mended := c.bestSwap(wrong, namers(wrong), rest)
		if mended < minAffected {
			break
		}
		list = append(list, c.swapFinding(best, &wrong))
	}
	return list
}

// namers groups flows by the ports that they name.
func namers(flows []*flow) map[aggregate.LocationID][]*flow {
	by := map[aggregate.LocationID][]*flow{}
	for _, f := range flows {
		for _, at := range f.named {
			if at != 0 {
				by[at] = append(by[at], f)
			}
		}
	}
	return by
}

// bestSwap returns the exchange that repairs most flows, and their number. It repairs almost all of
// those that name one of its ports, and breaks almost none.
func (c *localizer) bestSwap(wrong []*flow, by, right map[aggregate.LocationID][]*flow) (best swap, most int) {
	tried := map[swap]bool{}
	for _, f := range wrong {
		for _, at := range f.named {
			for _, s := range c.swaps(f, at) {
				if tried[s] {
					continue
				}
				tried[s] = true
				mended, named := c.fitting(s, by)
				kept, known := c.fitting(s, right)
				if 10*mended >= 9*named && 10*(known-kept) <= mended && (mended > most || mended == most && cmp.Or(cmp.Compare(s.a, best.a), cmp.Compare(s.b, best.b)) < 0) {
					best, most = s, mended
				}
			}
		}
	}
	return best, most
}

// swaps returns the exchanges of a port with others of its device that the flow may pass.
func (c *localizer) swaps(f *flow, at aggregate.LocationID) (list []swap) {
	if at == 0 {
		return nil
	}
	device := c.location(at).Device
	for _, path := range c.routesOf(f) {
		for _, other := range path {
			if other != at && c.location(other).Device == device {
				list = append(list, swap{min(at, other), max(at, other)})
			}
		}
	}
	return list
}

// fitting counts the flows that name one of a swap's ports, and those of them that name ports of
// one path after the exchange.
func (c *localizer) fitting(s swap, by map[aggregate.LocationID][]*flow) (fit, named int) {
	count := func(f *flow) {
		if named++; s.fits(c.routesOf(f), f) {
			fit++
		}
	}
	for _, f := range by[s.a] {
		count(f)
	}
	for _, f := range by[s.b] {
		if !slices.Contains(f.named[:], s.a) {
			count(f)
		}
	}
	return fit, named
}

// swapFinding returns the finding of a swap, and removes its flows from the list.
func (c *localizer) swapFinding(s swap, wrong *[]*flow) Finding {
	a, b := c.location(s.a), c.location(s.b)
	names := []string{a.Name, b.Name}
	slices.Sort(names)
	f := Finding{Kind: SwappedLocators, Subject: names[0] + " and " + names[1], Device: a.Device, Candidates: names}
	f.ID = idOf(f.Kind, f.Subject)
	n := len(*wrong)
	*wrong = slices.DeleteFunc(*wrong, func(one *flow) bool {
		if !s.fits(c.routesOf(one), one) {
			return false
		}
		f.during(one.from, one.to)
		f.Count += one.touched
		return true
	})
	f.Of = f.Count
	f.Evidence = fmt.Sprintf("%d flows name ports that lie on no common path, but do if %s and %s are exchanged", n-len(*wrong), names[0], names[1])
	return f
}
