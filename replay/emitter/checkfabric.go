package emitter

import (
	"errors"
	"fmt"
)

// maxSpeed and minSpeed bound links: times in picoseconds fit 63 bits.
const (
	minSpeed = Mbps
	maxSpeed = 10_000 * Gbps
)

// checkFabric checks what the topology is built from, so that building it is bounded.
func (s *Scenario) checkFabric() error {
	forms := 0
	for _, given := range []bool{s.Leaves != 0 || s.Spines != 0, len(s.Pods) > 0 || s.Cores != 0, s.FabricFile != ""} {
		if given {
			forms++
		}
	}
	if forms > 1 {
		return errors.New("fabric: expected leaves and spines, or pods and cores, or a fabric_file: set the others to 0 or empty")
	}
	if err := s.checkPorts(); err != nil {
		return err
	}
	switch {
	case len(s.Pods) > 0:
		return s.checkPods()
	case s.FabricFile != "":
		return s.checkNoParameters()
	}
	switch {
	case s.Leaves < 1 || s.Leaves > maxSwitches:
		return fmt.Errorf("leaves %d: expected 1 to %d", s.Leaves, maxSwitches)
	case s.Spines < 1 || s.Spines > maxSwitches:
		return fmt.Errorf("spines %d: expected 1 to %d", s.Spines, maxSwitches)
	case s.HostsPerLeaf < 1 || s.HostsPerLeaf > maxHostsPerLeaf:
		return fmt.Errorf("hosts_per_leaf %d: expected 1 to %d", s.HostsPerLeaf, maxHostsPerLeaf)
	case s.Leaves*(2*s.Spines+s.HostsPerLeaf) > maxPorts:
		return fmt.Errorf("%d leaves, %d spines, %d hosts_per_leaf: need more than %d ports", s.Leaves, s.Spines, s.HostsPerLeaf, maxPorts)
	}
	if err := checkSpeed("host_speed", s.HostSpeed); err != nil {
		return err
	}
	if s.Oversubscription.IsZero() {
		return checkSpeed("uplink_speed", s.UplinkSpeed)
	}
	return nil
}

// checkPorts checks what all fabrics have.
func (s *Scenario) checkPorts() error {
	switch {
	case s.MTU < minMTU || s.MTU > maxMTU:
		return fmt.Errorf("mtu %d: expected %d to %d", s.MTU, minMTU, maxMTU)
	case s.BufferBytes < uint64(s.MTU)+maxAround || s.BufferBytes > maxBuffer:
		return fmt.Errorf("buffer_bytes %d: expected room for one packet, and at most 1 GiB", s.BufferBytes)
	case s.NICBufferBytes < uint64(s.MTU)+maxAround || s.NICBufferBytes > maxBuffer:
		return fmt.Errorf("nic_buffer_bytes %d: expected room for one packet, and at most 1 GiB", s.NICBufferBytes)
	}
	if s.TrimBuffer > maxBuffer {
		return fmt.Errorf("trim_buffer_bytes %d: expected at most 1 GiB", s.TrimBuffer)
	}
	for i, l := range s.SideLinks {
		if err := checkSpeed(fmt.Sprintf("side_links[%d]: speed", i), l.Speed); err != nil {
			return err
		}
	}
	for rack, speed := range s.RackUplinkSpeed {
		if err := checkSpeed(fmt.Sprintf("rack_uplink_speed: rack %d", rack), speed); err != nil {
			return err
		}
	}
	return nil
}

// checkPods bounds the numbers of pods before it lists them.
func (s *Scenario) checkPods() error {
	if s.HostsPerLeaf != 0 {
		return errors.New("hosts_per_leaf: pods have hosts_per_rack: set it to 0")
	}
	if s.Cores < 1 || s.Cores > maxSwitches {
		return fmt.Errorf("cores %d: expected 1 to %d", s.Cores, maxSwitches)
	}
	switches, ports := s.Cores, 0
	for i := range s.Pods {
		p := &s.Pods[i]
		count := max(p.Count, 1)
		switch {
		case p.Count < 0 || p.Count > maxSwitches:
			return fmt.Errorf("pods[%d]: count %d: expected 1 to %d", i, p.Count, maxSwitches)
		case p.Racks < 1 || p.Racks > maxSwitches:
			return fmt.Errorf("pods[%d]: racks %d: expected 1 to %d", i, p.Racks, maxSwitches)
		case p.Aggs < 1 || p.Aggs > s.Cores:
			return fmt.Errorf("pods[%d]: aggs %d: expected 1 to the number of cores, %d", i, p.Aggs, s.Cores)
		case p.HostsPerRack < 1 || p.HostsPerRack > maxHostsPerLeaf:
			return fmt.Errorf("pods[%d]: hosts_per_rack %d: expected 1 to %d", i, p.HostsPerRack, maxHostsPerLeaf)
		case p.BufferBytes != 0 && (p.BufferBytes < uint64(s.MTU)+maxAround || p.BufferBytes > maxBuffer):
			return fmt.Errorf("pods[%d]: buffer_bytes %d: expected room for one packet, and at most 1 GiB", i, p.BufferBytes)
		}
		switches += count * (p.Racks + p.Aggs)
		ports += count * (p.Racks*(p.HostsPerRack+2*p.Aggs) + 2*s.Cores)
		if switches > 2*maxSwitches || ports > maxPorts {
			return fmt.Errorf("pods: need more than %d switches or %d ports", 2*maxSwitches, maxPorts)
		}
	}
	for n, p := range s.eachPod() {
		for _, l := range []struct {
			name  string
			speed Rate
		}{{"host_speed", p.HostSpeed}, {"uplink_speed", p.UplinkSpeed}, {"core_speed", p.CoreSpeed}} {
			if err := checkSpeed(fmt.Sprintf("pod %d: %s", n+1, l.name), l.speed); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkNoParameters refuses what a fabric file says itself.
func (s *Scenario) checkNoParameters() error {
	switch {
	case s.HostsPerLeaf != 0:
		return errors.New("hosts_per_leaf: the fabric_file says it")
	case len(s.RackUplinkSpeed) > 0:
		return errors.New("rack_uplink_speed: the fabric_file says it")
	case len(s.SideLinks) > 0:
		return errors.New("side_links: the fabric_file says them")
	case !s.Oversubscription.IsZero():
		return errors.New("oversubscription: the fabric_file says it")
	}
	versions, tenants := s.versions()
	if tenants || len(versions) != 1 || versions[0] != 4 {
		return errors.New("fabric_file: expected IPv4, and no tunnels between hosts: it does not name other addresses")
	}
	return nil
}

func checkSpeed(what string, speed Rate) error {
	if speed < minSpeed || speed > maxSpeed {
		return fmt.Errorf("%s %s: expected 1Mbps to 10Tbps", what, speed)
	}
	return nil
}

// checkRacks checks what needs the topology.
func (s *Scenario) checkRacks(t *topology) error {
	for rack := range s.RackUplinkSpeed {
		if rack < 1 || rack > len(t.racks) {
			return fmt.Errorf("rack_uplink_speed: rack %d: expected 1 to %d", rack, len(t.racks))
		}
	}
	if len(t.ports) > maxPorts {
		return fmt.Errorf("fabric: has %d ports: expected at most %d", len(t.ports), maxPorts)
	}
	for i := range t.ports {
		if err := checkSpeed("speed of port "+t.ports[i].name(), t.ports[i].speed); err != nil {
			return err
		}
	}
	return nil
}
