package emitter

import (
	"cmp"
	"slices"
)

// WithSize returns the scenario on a fabric of another size; 0 keeps a number. Racks
// that workloads and speeds name move in proportion: what happened in the last of 16
// racks happens in the last of 8. Rates stay, so that fewer spines or more hosts
// congest more.
//
// Pods share the leaves, which are their racks, and have so many aggregation switches
// each as there are spines. The size of a fabric file stays what it is. What devices
// and faults say of switches that are gone goes with them.
func (s Scenario) WithSize(leaves, spines, hostsPerLeaf int) Scenario {
	if s.FabricFile != "" || leaves == 0 && spines == 0 && hostsPerLeaf == 0 {
		return s
	}
	from, _ := s.size()
	s.resize(leaves, spines, hostsPerLeaf)
	to, most := s.size()
	move := func(rack int) int { return max((rack*to+from-1)/max(from, 1), 1) }
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
		w.HostsPerRack = min(w.HostsPerRack, most)
		place := func(h Host) Host { return Host{Rack: move(h.Rack), Host: min(h.Host, most)} }
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
	s.keepBehaviors()
	return s
}

// size is the number of racks and the most hosts that every rack has.
func (s *Scenario) size() (racks, hosts int) {
	if len(s.Pods) == 0 {
		return s.Leaves, s.HostsPerLeaf
	}
	hosts = maxHostsPerLeaf
	for _, p := range s.Pods {
		racks += p.Racks * max(p.Count, 1)
		hosts = min(hosts, p.HostsPerRack)
	}
	return racks, hosts
}

// resize changes the numbers that are not 0.
func (s *Scenario) resize(leaves, spines, hosts int) {
	if len(s.Pods) == 0 {
		s.Leaves, s.Spines, s.HostsPerLeaf = cmp.Or(leaves, s.Leaves), cmp.Or(spines, s.Spines), cmp.Or(hosts, s.HostsPerLeaf)
		return
	}
	pods := s.eachPod()
	if leaves > 0 && leaves < len(pods) {
		pods = pods[:leaves]
	}
	for i := range pods {
		p := &pods[i]
		p.Count = 1
		if leaves > 0 {
			p.Racks = leaves*(i+1)/len(pods) - leaves*i/len(pods)
		}
		p.Aggs, p.HostsPerRack = cmp.Or(spines, p.Aggs), cmp.Or(hosts, p.HostsPerRack)
		s.Cores = max(s.Cores, p.Aggs)
	}
	s.Pods = pods
}

// keepBehaviors drops those that match nothing. A fabric that cannot be built is left
// to the check of the scenario.
func (s *Scenario) keepBehaviors() {
	full := s.withDefaults()
	if full.checkFabric() != nil || full.checkBehaviors() != nil {
		return
	}
	t, err := newTopology(&full)
	if err != nil {
		return
	}
	gone := func(b Behavior) bool { return len(b.matches(t)) == 0 }
	s.Devices = slices.DeleteFunc(slices.Clone(s.Devices), gone)
	s.Faults = slices.DeleteFunc(slices.Clone(s.Faults), gone)
}
