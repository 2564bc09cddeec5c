package scenario

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay/emitter/exact"
)

// Bounds of a scenario. They keep port and flow numbers small and the memory of a run in the
// hundreds of megabytes.
const (
	maxSwitches     = 4096
	maxHostsPerLeaf = 250 // hosts of a rack share a /24
	maxPorts        = 1 << 18
	MaxFlows        = 1 << 18
	maxMTU          = 65000
	minMTU          = 128
	maxAround       = 192 // bytes; more than the headers around the hosts' packet
	minPacket       = 88  // headers with the longest options, and some data
	minSnapLen      = 64
	maxSnapLen      = 256 << 10
	maxBuffer       = 1 << 30
	maxWeight       = 10
	maxRun          = 24 * time.Hour // times in picoseconds fit 63 bits
)

// Check validates a scenario whose defaults are filled in.
func (s *Scenario) Check() error {
	if err := s.checkAll(); err != nil {
		return fmt.Errorf("check scenario %q: %w", s.Name, err)
	}
	return nil
}

func (s *Scenario) checkAll() error {
	if err := s.checkFabric(); err != nil {
		return err
	}
	t, err := NewTopology(s)
	if err != nil {
		return err
	}
	if err := s.checkRacks(t); err != nil {
		return err
	}
	if err := s.checkTimes(t); err != nil {
		return err
	}
	for _, check := range []func() error{s.checkTags, s.checkBehaviors, s.checkOutput} {
		if err := check(); err != nil {
			return err
		}
	}
	if err := s.checkMatches(t); err != nil {
		return err
	}
	if s.RandomFlows > 0 {
		return nil
	}
	if len(s.Workloads) == 0 {
		return errors.New("no workloads: nothing would be sent")
	}
	for i := range s.Workloads {
		if err := s.checkWorkload(t, &s.Workloads[i]); err != nil {
			return fmt.Errorf("workloads[%d] (%s): %w", i, s.Workloads[i].Kind, err)
		}
	}
	if len(s.Idle()) == len(s.Workloads) {
		return fmt.Errorf("workloads: all start at or after the end of the run at %s: nothing would be sent", s.Duration)
	}
	return nil
}

// Idle returns the indexes of workloads that start at or after the end of the run and so send
// nothing, for example because Duration was shortened.
func (s *Scenario) Idle() (list []int) {
	for i := range s.Workloads {
		if s.Workloads[i].Start >= s.Duration {
			list = append(list, i)
		}
	}
	return list
}

func (s *Scenario) checkTimes(t *Topology) error {
	switch {
	case s.Duration < time.Millisecond || s.Duration > maxRun:
		return fmt.Errorf("duration %s: expected 1ms to %s", s.Duration, maxRun)
	case s.Window < time.Millisecond || s.Window > time.Hour:
		return fmt.Errorf("window %s: expected 1ms to 1h", s.Window)
	case s.FlowTrace != 0 && (s.FlowTrace < time.Microsecond || s.FlowTrace > s.Duration):
		return fmt.Errorf("flow_trace %s: expected 1us to the duration, %s", s.FlowTrace, s.Duration)
	case s.ABW.check() != nil:
		return s.ABW.check()
	case s.ABWInterval < time.Microsecond || s.ABWInterval > time.Second:
		return fmt.Errorf("abw_interval %s: expected 1us to 1s", s.ABWInterval)
	case s.ABWWeight > maxWeight:
		return fmt.Errorf("abw_weight %d: expected 1 to %d", s.ABWWeight, maxWeight)
	case s.Propagation < 0 || s.Propagation > time.Millisecond:
		return fmt.Errorf("propagation %s: expected 0 to 1ms", s.Propagation)
	case s.Pipeline < 0 || s.Pipeline > time.Millisecond:
		return fmt.Errorf("pipeline %s: expected 0 to 1ms", s.Pipeline)
	case s.Start.Before(time.Unix(0, 0)):
		return fmt.Errorf("start %s: expected a time from 1970 on", s.Start.Format(time.RFC3339))
	}
	if grace := s.Grace(t); grace > s.Window {
		return fmt.Errorf("window %s: is shorter than the %s that one packet may take over the slowest link", s.Window, grace)
	}
	return nil
}

// Grace returns the longest time from a packet's first bit on a link to its arrival in the next
// queue.
func (s *Scenario) Grace(t *Topology) time.Duration {
	ps := exact.Serialization(uint32(s.MTU+maxAround), uint64(t.slowest()))
	return s.Propagation + s.Pipeline + time.Duration(ps/1000+1)
}

func (s *Scenario) checkTags() error {
	switch {
	case s.SnapLen < minSnapLen || s.SnapLen > maxSnapLen:
		return fmt.Errorf("snap_len %d: expected %d to %d", s.SnapLen, minSnapLen, maxSnapLen)
	case s.RandomFlows < 0 || s.RandomFlows > MaxFlows:
		return fmt.Errorf("random_flows %d: expected 0 to %d", s.RandomFlows, MaxFlows)
	case s.RandomFlows > 0 && s.Packets == 0:
		return errors.New("packets: random flows need a number of packets")
	}
	if s.ECNMax < s.ECNMin || s.ECNMax > 1<<30 || (s.ECNMax > 0 && s.ECNMax == s.ECNMin) {
		return fmt.Errorf("ecn_min_bytes %d, ecn_max_bytes %d: expected a larger maximum, of at most 1 GiB", s.ECNMin, s.ECNMax)
	}
	if s.Reflect != ReflectLatest && s.Reflect != ReflectWorst {
		return fmt.Errorf("reflect %q: expected %s, or nothing for the latest tag", s.Reflect, ReflectWorst)
	}
	seen := map[csig.Signal]bool{}
	for _, signal := range s.Signals {
		if !signal.Known() || csig.SignalOf(s.Layout.Profile, signal.Type()) != signal {
			return fmt.Errorf("signals: %s is not defined by %s", signal, s.Layout)
		}
		if seen[signal] {
			return fmt.Errorf("signals: %s is given twice", signal)
		}
		seen[signal] = true
	}
	return nil
}

// maxSpeed and minSpeed bound links, so that times in picoseconds fit 63 bits.
const (
	minSpeed = Mbps
	maxSpeed = 10_000 * Gbps
)

// checkFabric checks the inputs of the topology, so that building it is bounded.
func (s *Scenario) checkFabric() error {
	if s.ECMPHash != "" && ecmpHashes[s.ECMPHash] == nil {
		return fmt.Errorf("ecmp_hash %q: expected crc32 or xor16", s.ECMPHash)
	}
	if versions, tenants := s.versions(); s.ECMPHash != "" && (tenants || !slices.Equal(versions, []uint8{4})) {
		return errors.New("ecmp_hash: expected IPv4, and no tunnels between hosts: switches do not hash other addresses")
	}
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

// checkPorts checks the keys that all fabrics have.
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

// checkPods bounds the number of pods before it lists them.
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

// checkNoParameters refuses keys that the fabric file defines.
func (s *Scenario) checkNoParameters() error {
	switch {
	case s.HostsPerLeaf != 0:
		return errors.New("hosts_per_leaf: the fabric_file has it")
	case len(s.RackUplinkSpeed) > 0:
		return errors.New("rack_uplink_speed: the fabric_file has it")
	case len(s.SideLinks) > 0:
		return errors.New("side_links: the fabric_file has them")
	case !s.Oversubscription.IsZero():
		return errors.New("oversubscription: the fabric_file has it")
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

// checkRacks makes the checks that need the topology.
func (s *Scenario) checkRacks(t *Topology) error {
	for rack := range s.RackUplinkSpeed {
		if rack < 1 || rack > len(t.Racks) {
			return fmt.Errorf("rack_uplink_speed: rack %d: expected 1 to %d", rack, len(t.Racks))
		}
	}
	if len(t.Ports) > maxPorts {
		return fmt.Errorf("fabric: has %d ports: expected at most %d", len(t.Ports), maxPorts)
	}
	for i := range t.Ports {
		if err := checkSpeed("speed of port "+t.Ports[i].Name(), t.Ports[i].Speed); err != nil {
			return err
		}
	}
	return nil
}

// checkEnd returns an error if a time of the tap may reach aggregate.EndOfTime, from which on rows cannot be stored.
// Earlier times also fit the 32 bits of seconds of classic pcap and of ERSPAN type III (draft-foschiano-erspan-03).
func (s *Scenario) checkEnd(t *Tap) error {
	drift := time.Duration(max(t.Drift, 0) * int64(s.Duration/time.Microsecond) / 1e6)
	latest := s.Start.Add(s.Duration + max(t.Offset, 0) + max(t.Step, 0) + drift + t.Jitter)
	if end := time.Unix(0, aggregate.EndOfTime).UTC(); !latest.Before(end) {
		return fmt.Errorf("start %s: no time from %s on can be stored: expected a start that leaves time for the duration and clock errors", s.Start.Format(time.RFC3339), end.Format(time.RFC3339))
	}
	return nil
}

// checkOutput checks encapsulations and captures, as far as the scenario alone allows.
func (s *Scenario) checkOutput() error {
	if _, _, err := s.Styles(); err != nil {
		return err
	}
	if s.Compress != "" && s.Compress != Gzip && s.Compress != Zstd {
		return fmt.Errorf("compress %q: expected %s, %s or nothing", s.Compress, Gzip, Zstd)
	}
	if err := s.checkEnd(&Tap{}); err != nil {
		return err
	}
	patterns := len(s.Counters)
	if err := checkPatterns(s.Counters); err != nil {
		return fmt.Errorf("counters: %w", err)
	}
	for i := range s.Taps {
		t := &s.Taps[i]
		if err := cmp.Or(t.check(), s.checkEnd(t)); err != nil {
			return fmt.Errorf("taps[%d]: %w", i, err)
		}
		patterns += len(t.Ports) + len(t.Before) + len(t.After)
	}
	if patterns > maxPatterns {
		return fmt.Errorf("taps and counters: %d patterns: expected at most %d", patterns, maxPatterns)
	}
	return nil
}
