package emitter

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/csigscope/csigscope/decode/csig"
)

// Bounds of a scenario: they keep port and flow numbers small and the memory of a
// run in the hundreds of megabytes.
const (
	maxSwitches     = 4096
	maxHostsPerLeaf = 250 // hosts of a rack share a /24
	maxPorts        = 1 << 18
	maxFlows        = 1 << 18
	maxMTU          = 65000
	minMTU          = 128
	minPacket       = 88 // headers with the longest options, and some data
	minSnapLen      = 64
	maxSnapLen      = 256 << 10
)

// check tells what is wrong with a scenario that has its defaults.
func (s *Scenario) check() error {
	checks := []func() error{s.checkFabric, s.checkTimes, s.checkTags, s.checkOutput}
	for _, check := range checks {
		if err := check(); err != nil {
			return fmt.Errorf("check scenario %q: %w", s.Name, err)
		}
	}
	if s.RandomFlows > 0 {
		return nil
	}
	if len(s.Workloads) == 0 {
		return fmt.Errorf("check scenario %q: no workloads: nothing would be sent", s.Name)
	}
	for i := range s.Workloads {
		if err := s.checkWorkload(&s.Workloads[i]); err != nil {
			return fmt.Errorf("check scenario %q: workloads[%d] (%s): %w", s.Name, i, s.Workloads[i].Kind, err)
		}
	}
	return nil
}

func (s *Scenario) checkFabric() error {
	switch {
	case s.Leaves < 1 || s.Leaves > maxSwitches:
		return fmt.Errorf("leaves %d: expected 1 to %d", s.Leaves, maxSwitches)
	case s.Spines < 1 || s.Spines > maxSwitches:
		return fmt.Errorf("spines %d: expected 1 to %d", s.Spines, maxSwitches)
	case s.HostsPerLeaf < 1 || s.HostsPerLeaf > maxHostsPerLeaf:
		return fmt.Errorf("hosts_per_leaf %d: expected 1 to %d", s.HostsPerLeaf, maxHostsPerLeaf)
	case s.Leaves*(2*s.Spines+s.HostsPerLeaf) > maxPorts:
		return fmt.Errorf("%d leaves, %d spines, %d hosts_per_leaf: need more than %d ports", s.Leaves, s.Spines, s.HostsPerLeaf, maxPorts)
	case s.HostSpeed < Mbps || s.HostSpeed > 10_000*Gbps:
		return fmt.Errorf("host_speed %s: expected 1Mbps to 10Tbps", s.HostSpeed)
	case s.UplinkSpeed < Mbps || s.UplinkSpeed > 10_000*Gbps:
		return fmt.Errorf("uplink_speed %s: expected 1Mbps to 10Tbps", s.UplinkSpeed)
	case s.MTU < minMTU || s.MTU > maxMTU:
		return fmt.Errorf("mtu %d: expected %d to %d", s.MTU, minMTU, maxMTU)
	case s.BufferBytes < uint64(s.MTU)+maxAround || s.BufferBytes > 1<<30:
		return fmt.Errorf("buffer_bytes %d: expected room for one packet, and at most 1 GiB", s.BufferBytes)
	case s.NICBufferBytes < uint64(s.MTU)+maxAround || s.NICBufferBytes > 1<<30:
		return fmt.Errorf("nic_buffer_bytes %d: expected room for one packet, and at most 1 GiB", s.NICBufferBytes)
	}
	for rack, speed := range s.RackUplinkSpeed {
		if rack < 1 || rack > s.Leaves {
			return fmt.Errorf("rack_uplink_speed: rack %d: expected 1 to %d", rack, s.Leaves)
		}
		if speed < Mbps || speed > 10_000*Gbps {
			return fmt.Errorf("rack_uplink_speed: rack %d: %s: expected 1Mbps to 10Tbps", rack, speed)
		}
	}
	return nil
}

func (s *Scenario) checkTimes() error {
	switch {
	case s.Duration < time.Millisecond || s.Duration > 24*time.Hour:
		return fmt.Errorf("duration %s: expected 1ms to 24h", s.Duration)
	case s.Window < time.Millisecond || s.Window > time.Hour:
		return fmt.Errorf("window %s: expected 1ms to 1h", s.Window)
	case s.ABWInterval < time.Microsecond || s.ABWInterval > s.Window:
		return fmt.Errorf("abw_interval %s: expected 1us to the window, %s", s.ABWInterval, s.Window)
	case s.Propagation < 0 || s.Propagation > time.Millisecond:
		return fmt.Errorf("propagation %s: expected 0 to 1ms", s.Propagation)
	case s.Pipeline < 0 || s.Pipeline > time.Millisecond:
		return fmt.Errorf("pipeline %s: expected 0 to 1ms", s.Pipeline)
	case s.Start.Before(time.Unix(0, 0)) || s.Start.Year() > 2200:
		return fmt.Errorf("start %s: expected a time from 1970 to 2200", s.Start)
	}
	if grace := s.grace(); grace > s.Window {
		return fmt.Errorf("window %s: is shorter than the %s that one packet may take over the slowest link", s.Window, grace)
	}
	return nil
}

// grace is the longest time from a packet's first bit on a link to its arrival in
// the next queue.
func (s *Scenario) grace() time.Duration {
	slowest := min(s.HostSpeed, s.UplinkSpeed)
	for _, speed := range s.RackUplinkSpeed {
		slowest = min(slowest, speed)
	}
	ps := serialization(uint32(s.MTU+maxAround), uint64(slowest))
	return s.Propagation + s.Pipeline + time.Duration(ps/1000+1)
}

func (s *Scenario) checkTags() error {
	switch {
	case s.SnapLen < minSnapLen || s.SnapLen > maxSnapLen:
		return fmt.Errorf("snap_len %d: expected %d to %d", s.SnapLen, minSnapLen, maxSnapLen)
	case s.RandomFlows < 0 || s.RandomFlows > maxFlows:
		return fmt.Errorf("random_flows %d: expected 0 to %d", s.RandomFlows, maxFlows)
	case s.RandomFlows > 0 && s.Packets == 0:
		return errors.New("packets: random flows need a number of packets")
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

func (s *Scenario) measuresDelay() bool { return slices.Contains(s.Signals, csig.MaxDelay) }
