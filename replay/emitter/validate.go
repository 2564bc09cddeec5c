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
	maxBuffer       = 1 << 30
	maxWeight       = 10
)

// check tells what is wrong with a scenario that has its defaults.
func (s *Scenario) check() error {
	if err := s.checkAll(); err != nil {
		return fmt.Errorf("check scenario %q: %w", s.Name, err)
	}
	return nil
}

func (s *Scenario) checkAll() error {
	if err := s.checkFabric(); err != nil {
		return err
	}
	t, err := newTopology(s)
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
	return nil
}

func (s *Scenario) checkTimes(t *topology) error {
	switch {
	case s.Duration < time.Millisecond || s.Duration > 24*time.Hour:
		return fmt.Errorf("duration %s: expected 1ms to 24h", s.Duration)
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
	case s.Start.Before(time.Unix(0, 0)) || s.Start.Year() > 2200:
		return fmt.Errorf("start %s: expected a time from 1970 to 2200", s.Start)
	}
	if grace := s.grace(t); grace > s.Window {
		return fmt.Errorf("window %s: is shorter than the %s that one packet may take over the slowest link", s.Window, grace)
	}
	return nil
}

// grace is the longest time from a packet's first bit on a link to its arrival in
// the next queue.
func (s *Scenario) grace(t *topology) time.Duration {
	ps := serialization(uint32(s.MTU+maxAround), uint64(t.slowest()))
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

func (s *Scenario) measuresDelay() bool { return slices.Contains(s.Signals, csig.MaxDelay) }
