package emitter

import "slices"

// WithSize returns the scenario on a fabric of another size; 0 keeps a number. Racks
// that workloads and speeds name move in proportion: what happened in the last of 16
// racks happens in the last of 8. Rates stay, so that fewer spines or more hosts
// congest more.
func (s Scenario) WithSize(leaves, spines, hostsPerLeaf int) Scenario {
	from := s.Leaves
	for _, n := range []struct {
		size int
		to   *int
	}{{leaves, &s.Leaves}, {spines, &s.Spines}, {hostsPerLeaf, &s.HostsPerLeaf}} {
		if n.size != 0 {
			*n.to = n.size
		}
	}
	move := func(rack int) int { return max((rack*s.Leaves+from-1)/max(from, 1), 1) }
	speeds := make(map[int]Rate, len(s.RackUplinkSpeed))
	for rack, speed := range s.RackUplinkSpeed {
		if old, ok := speeds[move(rack)]; !ok || speed < old {
			speeds[move(rack)] = speed
		}
	}
	s.RackUplinkSpeed = speeds
	s.Workloads = slices.Clone(s.Workloads)
	for i := range s.Workloads {
		w := &s.Workloads[i]
		var racks []int
		for _, rack := range w.Racks {
			racks = append(racks, move(rack))
		}
		slices.Sort(racks)
		w.Racks = slices.Compact(racks)
		w.HostsPerRack = min(w.HostsPerRack, s.HostsPerLeaf)
		if w.Kind == Incast {
			w.Target = Host{Rack: move(w.Target.Rack), Host: min(w.Target.Host, s.HostsPerLeaf)}
		}
	}
	return s
}
