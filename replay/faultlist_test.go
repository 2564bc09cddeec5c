package replay_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/replay/emitter/emittertest"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// injected is a fault, or legal behavior that looks like one, and the finding that reveals it.
type injected struct {
	name   string
	change func(*scenario.Scenario)
	config func(*faulty)
	// at lists the devices, hosts and taps that findings may name. also lists kinds that are true
	// of the fault in addition to the expected one.
	at, also []string
	// reported is the finding at receivers' taps, watched the one with taps at senders as well,
	// judged the rule that conform finds broken around spine1. They are empty if the fault is
	// invisible there; blind gives the reason.
	reported, watched, judged string
	blind                     string
	// missed explains why it is not found although some of its values arrive.
	missed string
	// hidden, unless nil, returns what the captures lack to reveal the fault, or "".
	hidden func(*faulty, *testing.T) string
	// hideable faults write values that later hops may replace before they reach a receiver.
	hideable bool
	// lasts is the minimum duration of the capture, for faults that only 1 s windows reveal.
	lasts time.Duration
	// fine faults need values with many codes, which compact tags do not have.
	fine bool
	// honest means no fault: any finding at receivers' taps is a false alarm. knownBySenders is the
	// finding that taps at senders still make.
	honest         bool
	knownBySenders string
	// elsewhere excludes captures around spine1.
	elsewhere bool
}

func faults(list ...scenario.Behavior) func(*scenario.Scenario) {
	return func(s *scenario.Scenario) { s.Faults = list }
}

func devices(list ...scenario.Behavior) func(*scenario.Scenario) {
	return func(s *scenario.Scenario) { s.Devices = list }
}

// both applies changes in order.
func both(list ...func(*scenario.Scenario)) func(*scenario.Scenario) {
	return func(s *scenario.Scenario) {
		for _, change := range list {
			change(s)
		}
	}
}

var forgery = scenario.Behavior{Match: "host1-1", Kind: scenario.Forge, Values: map[string]string{"max_delay": "100ms", "min_abw": "0Mbps"}}

var constant = scenario.Behavior{Match: "spine1:down*", Kind: scenario.Stuck, Values: map[string]string{"min_abw": "1Mbps", "min_abw_ratio": "1%", "max_delay": "5ms"}}

// likely forges values that an uplink of the host's own rack could write.
func likely(s *scenario.Scenario) {
	spec, err := scenario.Fabric(*s)
	if err != nil {
		panic(err) // a built-in scenario without a fabric: a bug in this file
	}
	for _, d := range spec.Devices {
		for _, p := range d.Ports {
			if d.Name == "leaf1" && p.Name == "up1" {
				lm := uint16(p.ID)
				s.Faults = []scenario.Behavior{{Match: "host1-1", Kind: scenario.Forge, LM: &lm, Values: map[string]string{"min_abw": "1Mbps", "max_delay": "50ms"}}}
			}
		}
	}
}

// swapped makes each of leaf2's uplinks write the other's locator metadata.
func swapped(s *scenario.Scenario) {
	spec, err := scenario.Fabric(*s)
	if err != nil {
		panic(err) // a built-in scenario always has a fabric
	}
	ids := map[string]uint16{}
	for _, d := range spec.Devices {
		for _, p := range d.Ports {
			ids[d.Name+":"+p.Name] = uint16(p.ID)
		}
	}
	one, other := ids["leaf2:up1"], ids["leaf2:up2"]
	s.Faults = []scenario.Behavior{
		{Match: "leaf2:up1", Kind: scenario.WrongLM, LM: &other},
		{Match: "leaf2:up2", Kind: scenario.WrongLM, LM: &one},
	}
}

func shallow(s *scenario.Scenario) { s.BufferBytes, s.TrimBuffer = 24<<10, 64<<10 }

// mixed adds traffic between all hosts.
func mixed(s *scenario.Scenario) {
	s.Workloads = append(s.Workloads, scenario.Workload{Kind: scenario.AllToAll, Rate: 100 * scenario.Mbps, TagEvery: 1})
}

func idle(s *scenario.Scenario) {
	s.Workloads = []scenario.Workload{{Kind: scenario.Background, Rate: 2 * scenario.Mbps, TagEvery: 1}}
}

// outside places the tap of rack 4 outside the domain.
func outside(f *faulty) { f.places["rack4"] = finding.Outside }

// senders allows all hosts of four racks of four, with exceptions.
func senders(but ...string) func(*faulty) {
	return func(f *faulty) {
		for rack := range 4 {
			for host := range 4 {
				a := fmt.Sprintf("10.0.%d.%d", rack+1, host+1)
				if len(but) == 0 || a != but[0] {
					f.Finding.Senders = append(f.Finding.Senders, netip.MustParsePrefix(a+"/32"))
				}
			}
		}
	}
}

// injections lists all faults and their look-alikes. A wrong metric is plausible if the port writes
// its own locator metadata with it.
var injections = []injected{
	{
		name: "stuck", at: []string{"spine1"}, reported: "stuck-port", hideable: true, fine: true,
		missed: "fewer than 200 of a port and a signal, or a flow contradicts", lasts: 4 * time.Second,
		change: faults(constant),
	},
	{
		name: "stuck, with bandwidth left", at: []string{"spine1"}, reported: "stuck-port", hideable: true,
		missed: "fewer than 200 of a port and a signal, or a flow contradicts", lasts: 4 * time.Second,
		change: faults(scenario.Behavior{Match: "spine1:down*", Kind: scenario.Stuck, Values: map[string]string{"min_abw": "100Mbps", "min_abw_ratio": "10%", "max_delay": "5ms"}}),
	},
	{
		name: "wrong-lm", at: []string{"spine1"}, reported: "unknown-locator", judged: "locator-other", hideable: true,
		change: faults(scenario.Behavior{Match: "spine1:*", Kind: scenario.WrongLM}),
	},
	{
		name: "wrong-lm of uplinks", at: []string{"leaf2"}, reported: "unknown-locator", hideable: true, elsewhere: true,
		change: faults(scenario.Behavior{Match: "leaf2:up*", Kind: scenario.WrongLM}),
	},
	{
		name: "lm-only", at: []string{"spine1"}, reported: "locator-alone", also: []string{"lost-value"}, judged: "locator-alone", hideable: true,
		change: faults(scenario.Behavior{Match: "spine1:*", Kind: scenario.LMOnly}),
	},
	{
		name: "value-only", at: []string{"spine1"}, reported: "unknown-locator", judged: "locator-kept", hideable: true,
		hidden: (*faulty).portsExplain,
		change: faults(scenario.Behavior{Match: "spine1:*", Kind: scenario.ValueOnly}),
	},
	{
		name: "above capacity", fine: true, at: []string{"leaf4"}, reported: "above-capacity", also: []string{"locator-alone", "lost-value"}, elsewhere: true, hideable: true,
		change: faults(scenario.Behavior{Match: "leaf4:down*", Kind: scenario.Overwrite, Values: map[string]string{"min_abw": "50Gbps"}}),
	},
	{
		name: "forged, not scrubbed", at: []string{"10.0.1.1", "leaf1"}, reported: "forged-value", watched: "scrub-failure", also: []string{"unknown-locator"}, hideable: true, elsewhere: true,
		change: faults(forgery),
	},
	{
		name: "forged as a port's", at: []string{"10.0.1.1", "leaf1"}, reported: "forged-value", watched: "scrub-failure", also: []string{"stuck-port"}, hideable: true, elsewhere: true,
		change: likely, hidden: (*faulty).nobodyElse,
	},
	{
		name: "overwrite", at: []string{"spine1"}, reported: "locator-alone", also: []string{"lost-value"}, judged: "direction", hideable: true,
		change: faults(scenario.Behavior{Match: "spine1:*", Kind: scenario.Overwrite}),
	},
	{
		name: "reset", fine: true, at: []string{"spine1"}, reported: "lost-value", judged: "direction", hideable: true,
		missed: "too few flows tell by which way they lose values",
		change: faults(scenario.Behavior{Match: "spine1:*", Kind: scenario.Reset}),
	},
	{
		name: "misbucketed", at: []string{"spine1"}, also: []string{"stuck-port"}, hideable: true,
		change: faults(scenario.Behavior{Match: "spine1:*", Kind: scenario.Misbucketed, Shift: 300}), blind: "the port may be so loaded; its counters tell (conform --metrics)",
	},
	{
		name: "insert", at: []string{"spine1"}, watched: "rogue-insertion", judged: "inserted",
		change: faults(scenario.Behavior{Match: "spine1:*", Kind: scenario.Insert, OneIn: 4}), blind: "senders may tag what they like",
	},
	{
		name: "reserved bits", at: []string{"spine1"}, reported: "reserved-bits", judged: "reserved-changed",
		change: faults(scenario.Behavior{Match: "spine1:*", Kind: scenario.ReservedBits}),
	},
	{
		name: "double tag", at: []string{"spine1"}, reported: "orphan-tag", judged: "malformed",
		change: faults(scenario.Behavior{Match: "spine1:*", Kind: scenario.DoubleTag}),
	},
	{
		name: "strip", at: []string{"spine1"}, reported: "stripped-flows", elsewhere: true,
		missed: "fewer than 20 tags are missing of a flow", hidden: (*faulty).edgesExplain,
		change: devices(scenario.Behavior{Match: "spine1", Kind: scenario.Strip}),
	},
	{
		name: "strip of uplinks", at: []string{"leaf2"}, watched: "stripped-flows", elsewhere: true,
		change: both(mixed, devices(scenario.Behavior{Match: "leaf2:up*", Kind: scenario.Strip})), blind: "its hosts may send no tags",
	},
	{
		name: "swapped locators", at: []string{"leaf2"}, reported: "swapped-locators", also: []string{"lost-value"}, hideable: true, elsewhere: true,
		change: swapped, hidden: (*faulty).onePortEach,
	},
	{
		name: "another type", at: []string{"spine1"}, reported: "type-changed", also: []string{"unknown-locator", "above-capacity", "lost-value", "locator-alone", "stuck-port"}, judged: "type-changed",
		change: faults(scenario.Behavior{Match: "spine1:*", Kind: scenario.Retype, Signals: []string{"min_abw"}}),
		missed: "fewer than 20 tags of the type are missing of a flow", hidden: (*faulty).edgesExplain,
	},
	{
		name: "D of whole packets", at: []string{"spine1"}, reported: "trim-invented", judged: "trim-invented",
		change: faults(scenario.Behavior{Match: "spine1:*", Kind: scenario.SetTrim}),
	},
	{
		name: "no strip at the edge", at: []string{"rack4", "leaf4"}, reported: "leak", config: outside, elsewhere: true,
	},
	{
		name: "a stranger sends", at: []string{"10.0.1.1"}, reported: "unauthorised-sender", config: senders("10.0.1.1"), elsewhere: true,
	},
	{
		name: "trimmed and updated", at: []string{"spine1"}, also: []string{"stuck-port"}, judged: "trim-frozen", hideable: true,
		change: both(shallow, faults(scenario.Behavior{Match: "spine1:*", Kind: scenario.IgnoreTrim}, constant)), blind: "what the value was when D was set is gone",
	},

	{name: "none", honest: true},
	{name: "fails open", honest: true, change: faults(scenario.Behavior{Match: "spine1:*", Kind: scenario.MissingMetric})},
	{name: "first hops pass through", honest: true, change: devices(scenario.Behavior{Match: "leaf[12]:up*", Kind: scenario.PassThrough})},
	{name: "passes through", honest: true, change: devices(scenario.Behavior{Match: "spine1", Kind: scenario.PassThrough})},
	{name: "signal-limited", honest: true, change: devices(scenario.Behavior{Match: "spine1", Kind: scenario.Limited, Signals: []string{"min_abw"}})},
	{name: "in software", honest: true, change: devices(scenario.Behavior{Match: "spine1", Kind: scenario.Software, Every: 50 * time.Millisecond})},
	{name: "meters otherwise", honest: true, change: devices(scenario.Behavior{Match: "spine1", Kind: scenario.ABWEstimator, ABW: scenario.DRE, Every: time.Millisecond})},
	{name: "idle fabric", honest: true, change: idle},
	{name: "trimmed", honest: true, change: shallow},
	{name: "strips at the edge", honest: true, config: outside, change: devices(scenario.Behavior{Match: "leaf4", Kind: scenario.EgressEdge}), elsewhere: true},
	{name: "strips for a rack", honest: true, change: devices(scenario.Behavior{Match: "spine*", Peer: "leaf4", Kind: scenario.Strip}), elsewhere: true},
	{name: "a list of all senders", honest: true, config: senders(), elsewhere: true},
	{
		name: "forged and scrubbed", honest: true, knownBySenders: "forged-value", at: []string{"10.0.1.1"}, elsewhere: true,
		change: both(faults(forgery), devices(scenario.Behavior{Match: "leaf1", Kind: scenario.IngressEdge})),
	},
	{
		name: "some flows without tags", honest: true, elsewhere: true,
		change: func(s *scenario.Scenario) {
			s.Workloads = append(s.Workloads, scenario.Workload{Kind: scenario.Permutation, Rate: 20 * scenario.Mbps, Connections: 4, TagEvery: -1})
		},
	},
}

// TestFaultList: every kind of fault is in the list, but for one that changes no tag.
func TestFaultList(t *testing.T) {
	listed := map[string]bool{scenario.TagHash: true} // changes paths: TestTagHashPaths
	for i := range injections {
		s := emittertest.Named(t, "ring")
		if change := injections[i].change; change != nil {
			change(&s)
		}
		for _, f := range s.Faults {
			listed[f.Kind] = true
		}
	}
	for _, k := range scenario.FaultKinds() {
		if !listed[k.Example.Kind] {
			t.Errorf("injections has no fault of the kind %s", k.Example.Kind)
		}
	}
}
