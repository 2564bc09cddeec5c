package emitter

import (
	"fmt"
	"slices"

	"github.com/csigscope/csigscope/aggregate/fabric"
)

// Pod is one or more equal pods of a fabric of three stages: top-of-rack switches,
// aggregation switches, and the core that joins the pods (the 5-stage Clos of
// Figure 5). Pods may be of different generations. Zero speeds are those of the
// scenario.
type Pod struct {
	Count        int  `yaml:"count,omitempty"` // of pods like this; default 1
	Racks        int  `yaml:"racks"`
	Aggs         int  `yaml:"aggs"` // aggregation switches; every rack has a link to each
	HostsPerRack int  `yaml:"hosts_per_rack"`
	HostSpeed    Rate `yaml:"host_speed,omitempty"`
	UplinkSpeed  Rate `yaml:"uplink_speed,omitempty"` // between racks and aggregation
	CoreSpeed    Rate `yaml:"core_speed,omitempty"`   // between aggregation and core
	// Oversubscription, unless empty, sets UplinkSpeed.
	Oversubscription Ratio `yaml:"oversubscription,omitempty"`
	// BufferBytes is that of each port of the pod's switches; 0: the scenario's.
	BufferBytes uint64 `yaml:"buffer_bytes,omitempty"`
}

// SideLink joins neighbours of one stage: in a ring, or each with every other one.
// Neighbours are in one pod, but for the stages that have no pods.
type SideLink struct {
	Stage string `yaml:"stage"`
	Speed Rate   `yaml:"speed"`
	Mesh  bool   `yaml:"mesh,omitempty"`
}

// uplinkOf is the speed between a rack and the stage above it.
func (s *Scenario) uplinkOf(rack int, speed Rate) Rate {
	if slow, ok := s.RackUplinkSpeed[rack+1]; ok {
		return slow
	}
	return speed
}

// leafSpine builds two stages: every leaf is a rack and has a link to every spine.
func (t *topology) leafSpine(s *Scenario) {
	t.addPodGroup(0)
	speed := s.Oversubscription.uplink(s.UplinkSpeed, s.HostSpeed, s.HostsPerLeaf, s.Spines)
	for l := range s.Leaves {
		t.addDevice(leafName(l), "leaf", "")
		for k := range s.Spines {
			t.link("up", k, spineName(k), s.uplinkOf(l, speed), 0)
		}
		t.addHosts(s, 0, l, s.HostsPerLeaf, s.HostSpeed, 0)
	}
	for k := range s.Spines {
		t.addDevice(spineName(k), "spine", "")
		for l := range s.Leaves {
			t.link("down", l, leafName(l), s.uplinkOf(l, speed), 0)
		}
	}
}

func leafName(l int) string     { return fmt.Sprintf("leaf%d", l+1) }
func spineName(k int) string    { return fmt.Sprintf("spine%d", k+1) }
func torName(rack int) string   { return fmt.Sprintf("tor%d", rack+1) }
func aggName(pod, k int) string { return fmt.Sprintf("agg%d-%d", pod+1, k+1) }
func coreName(c int) string     { return fmt.Sprintf("core%d", c+1) }
func podName(pod int) string    { return fmt.Sprintf("pod%d", pod+1) }

// link adds a port to the newest device.
func (t *topology) link(direction string, n int, peer string, speed Rate, buffer uint64) {
	t.addPort(portInfo{
		port: fmt.Sprintf("%s%d", direction, n+1), orientation: direction, peer: peer, speed: speed,
		id: uint32(len(t.ports) + 1), buffer: buffer,
	})
}

// threeStages builds pods and the core. Core switch c has one link to each pod, to
// its aggregation switch c modulo their number.
func (t *topology) threeStages(s *Scenario) {
	pods := s.eachPod()
	rack := 0
	for n := range pods {
		p := &pods[n]
		t.addPodGroup(n)
		for range p.Racks {
			t.addDevice(torName(rack), "tor", podName(n))
			for k := range p.Aggs {
				t.link("up", k, aggName(n, k), s.uplinkOf(rack, p.UplinkSpeed), p.BufferBytes)
			}
			t.addHosts(s, n, rack, p.HostsPerRack, p.HostSpeed, p.BufferBytes)
			rack++
		}
	}
	first := 0
	for n := range pods {
		p := &pods[n]
		for k := range p.Aggs {
			t.addDevice(aggName(n, k), "agg", podName(n))
			for c := k; c < s.Cores; c += p.Aggs {
				t.link("up", c/p.Aggs, coreName(c), p.CoreSpeed, p.BufferBytes)
			}
			for r := range p.Racks {
				t.link("down", r, torName(first+r), s.uplinkOf(first+r, p.UplinkSpeed), p.BufferBytes)
			}
		}
		first += p.Racks
	}
	for c := range s.Cores {
		t.addDevice(coreName(c), "core", "")
		for n := range pods {
			t.link("down", n, aggName(n, c%pods[n].Aggs), pods[n].CoreSpeed, 0)
		}
	}
}

// eachPod lists the pods one by one, with the scenario's speeds where theirs are 0.
func (s *Scenario) eachPod() []Pod {
	var pods []Pod
	for _, p := range s.Pods {
		orDefault(&p.HostSpeed, s.HostSpeed)
		orDefault(&p.UplinkSpeed, s.UplinkSpeed)
		orDefault(&p.CoreSpeed, s.CoreSpeed)
		over := p.Oversubscription
		if over == (Ratio{}) {
			over = s.Oversubscription
		}
		p.UplinkSpeed = over.uplink(p.UplinkSpeed, p.HostSpeed, p.HostsPerRack, p.Aggs)
		orDefault(&p.CoreSpeed, p.UplinkSpeed)
		pods = append(pods, slices.Repeat([]Pod{p}, max(p.Count, 1))...)
	}
	return pods
}

func (t *topology) addPodGroup(n int) {
	t.groups = append(t.groups, fabric.GroupSpec{Name: podName(n), Level: "pod"})
}

// addHosts makes a rack of the newest device's hosts.
func (t *topology) addHosts(s *Scenario, pod, rack, n int, speed Rate, buffer uint64) {
	t.racks = append(t.racks, rackInfo{name: rackName(rack)})
	t.groups = append(t.groups, fabric.GroupSpec{
		Name: rackName(rack), Level: "rack", Parent: podName(pod), Prefixes: s.prefixes(rackPrefix(rack)),
	})
	for h := range n {
		name := fmt.Sprintf("host%d-%d", rack+1, h+1)
		t.ends = append(t.ends, hostInfo{name: name, address: rackPrefix(rack) | uint32(h+1), rack: int32(rack)})
		t.link("down", h, name, speed, buffer)
	}
}

// addSideLinks adds ports after all others, so that the numbers of those do not
// depend on side links.
func (t *topology) addSideLinks(links []SideLink) error {
	named := map[int32]int{}
	for i, l := range links {
		pods := t.neighbours(l.Stage)
		if len(pods) == 0 {
			return fmt.Errorf("build fabric: side_links[%d]: no device has the stage %q", i, l.Stage)
		}
		for _, pod := range pods {
			if ports := len(t.ports) + sidePorts(len(pod), l.Mesh); ports > maxPorts {
				return fmt.Errorf("build fabric: side_links[%d]: need more than %d ports", i, maxPorts)
			}
			t.join(pod, l, named)
		}
	}
	return nil
}

// sidePorts is the number of ports that join n devices.
func sidePorts(n int, mesh bool) int {
	if mesh {
		return n * (n - 1)
	}
	return 2 * n
}

// join connects devices; named counts the side ports of each.
func (t *topology) join(devices []int32, l SideLink, named map[int32]int) {
	side := func(from, to int32) {
		named[from]++
		d := &t.devices[from]
		t.ports = append(t.ports, portInfo{
			device: d.name, stage: d.stage, deviceID: d.id, owner: from,
			port: fmt.Sprintf("side%d", named[from]), orientation: "side",
			peer: t.devices[to].name, speed: l.Speed, id: uint32(len(t.ports) + 1),
		})
	}
	for i := range devices {
		for j := i + 1; j < len(devices); j++ {
			if l.Mesh || j == i+1 || (i == 0 && j == len(devices)-1) {
				side(devices[i], devices[j])
				side(devices[j], devices[i])
			}
		}
	}
}

// neighbours lists the devices of a stage, those of a pod together.
func (t *topology) neighbours(stage string) [][]int32 {
	pods := map[string]int{}
	var list [][]int32
	for i := range t.devices {
		d := &t.devices[i]
		if d.stage != stage {
			continue
		}
		n, known := pods[d.pod]
		if !known {
			n = len(list)
			pods[d.pod] = n
			list = append(list, nil)
		}
		list[n] = append(list[n], int32(i))
	}
	return list
}
