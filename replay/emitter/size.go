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
		place := func(h Host) Host { return Host{Rack: move(h.Rack), Host: min(h.Host, s.HostsPerLeaf)} }
		if w.Kind == Incast {
			w.Target = place(w.Target)
		}
		w.Stragglers, w.Flows = slices.Clone(w.Stragglers), slices.Clone(w.Flows)
		for j, h := range w.Stragglers {
			w.Stragglers[j] = place(h)
		}
		for j, p := range w.Flows {
			w.Flows[j] = Pair{From: place(p.From), To: place(p.To)}
		}
	}
	return s
}
