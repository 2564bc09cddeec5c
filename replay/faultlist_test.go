package replay_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/replay/emitter"
)

// injected is a fault, or what only looks like one, and by what it is found.
type injected struct {
	name   string
	change func(*emitter.Scenario)
	config func(*faulty)
	// at are the devices, hosts and taps that findings may name, and also kinds that are
	// true of the fault besides those by which it is looked for.
	at, also []string
	// reported is the finding at receivers' taps, watched that with taps at senders as
	// well, judged the rule by which conform finds it around spine1: empty where they
	// cannot, which blind gives the reason for.
	reported, watched, judged string
	blind                     string
	// missed is why it is not found where some of its values arrive.
	missed string
	// hidden, unless nil, is what the captures lack for it to be found, empty if nothing.
	hidden func(*faulty, *testing.T) string
	// hideable faults write values, which later hops may replace before any receiver sees
	// one.
	hideable bool
	// honest is no fault: whatever receivers' taps find is a false alarm. knownBySenders is
	// what those at senders find all the same.
	honest         bool
	knownBySenders string
	// elsewhere is a fault, or none, that captures around spine1 are not asked about.
	elsewhere bool
}

func faults(list ...emitter.Behavior) func(*emitter.Scenario) {
	return func(s *emitter.Scenario) { s.Faults = list }
}

func devices(list ...emitter.Behavior) func(*emitter.Scenario) {
	return func(s *emitter.Scenario) { s.Devices = list }
}

// both makes changes one after the other.
func both(list ...func(*emitter.Scenario)) func(*emitter.Scenario) {
	return func(s *emitter.Scenario) {
		for _, change := range list {
			change(s)
		}
	}
}

var forgery = emitter.Behavior{Match: "host1-1", Kind: emitter.Forge, Values: map[string]string{"max_delay": "100ms", "min_abw": "0Mbps"}}

var constant = emitter.Behavior{Match: "spine1:down*", Kind: emitter.Stuck, Values: map[string]string{"min_abw": "1Mbps", "min_abw_ratio": "1%", "max_delay": "5ms"}}

// likely forges what an uplink of the host's own rack may write.
func likely(s *emitter.Scenario) {
	spec, err := emitter.Fabric(*s)
	if err != nil {
		panic(err) // a scenario of the library has no fabric: a fault of this file
	}
	for _, d := range spec.Devices {
		for _, p := range d.Ports {
			if d.Name == "leaf1" && p.Name == "up1" {
				lm := uint16(p.ID)
				s.Faults = []emitter.Behavior{{Match: "host1-1", Kind: emitter.Forge, LM: &lm, Values: map[string]string{"min_abw": "1Mbps", "max_delay": "50ms"}}}
			}
		}
	}
}

func shallow(s *emitter.Scenario) { s.BufferBytes, s.TrimBuffer = 24<<10, 64<<10 }

// mixed adds traffic from each host to each other one.
func mixed(s *emitter.Scenario) {
	s.Workloads = append(s.Workloads, emitter.Workload{Kind: emitter.AllToAll, Rate: 100 * emitter.Mbps, TagEvery: 1})
}

func idle(s *emitter.Scenario) {
	s.Workloads = []emitter.Workload{{Kind: emitter.Background, Rate: 2 * emitter.Mbps, TagEvery: 1}}
}

// outside places the tap of rack 4 outside of the domain.
func outside(f *faulty) { f.places["rack4"] = finding.Outside }

// senders are all hosts of four racks of four, but for some.
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

// injections are all faults and their look-alikes. What a port writes in place of its
// metric is plausible where its locator metadata is its own.
var injections = []injected{
	{
		name: "stuck", at: []string{"spine1"}, reported: "stuck-port", hideable: true,
		missed: "fewer than 50 in a row of a port and a signal",
		change: faults(constant),
	},
	{
		name: "wrong-lm", at: []string{"spine1"}, reported: "unknown-locator", judged: "locator-other", hideable: true,
		change: faults(emitter.Behavior{Match: "spine1:*", Kind: emitter.WrongLM}),
	},
	{
		name: "wrong-lm of uplinks", at: []string{"leaf2"}, reported: "unknown-locator", hideable: true, elsewhere: true,
		change: faults(emitter.Behavior{Match: "leaf2:up*", Kind: emitter.WrongLM}),
	},
	{
		name: "lm-only", at: []string{"spine1"}, reported: "locator-alone", also: []string{"lost-value"}, judged: "locator-alone", hideable: true,
		change: faults(emitter.Behavior{Match: "spine1:*", Kind: emitter.LMOnly}),
	},
	{
		name: "value-only", at: []string{"spine1"}, reported: "unknown-locator", judged: "locator-kept", hideable: true,
		hidden: (*faulty).portsExplain,
		change: faults(emitter.Behavior{Match: "spine1:*", Kind: emitter.ValueOnly}),
	},
	{
		name: "above capacity", at: []string{"leaf4"}, reported: "above-capacity", also: []string{"locator-alone", "lost-value"}, elsewhere: true, hideable: true,
		change: faults(emitter.Behavior{Match: "leaf4:down*", Kind: emitter.Overwrite, Values: map[string]string{"min_abw": "50Gbps"}}),
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
		change: faults(emitter.Behavior{Match: "spine1:*", Kind: emitter.Overwrite}),
	},
	{
		name: "reset", at: []string{"spine1"}, reported: "lost-value", judged: "direction", hideable: true,
		missed: "too few flows tell by which way they lose values",
		change: faults(emitter.Behavior{Match: "spine1:*", Kind: emitter.Reset}),
	},
	{
		name: "misbucketed", at: []string{"spine1"}, also: []string{"stuck-port"}, hideable: true,
		change: faults(emitter.Behavior{Match: "spine1:*", Kind: emitter.Misbucketed, Shift: 300}), blind: "the port may be so loaded; its counters tell (conform --metrics)",
	},
	{
		name: "insert", at: []string{"spine1"}, watched: "rogue-insertion", judged: "inserted",
		change: faults(emitter.Behavior{Match: "spine1:*", Kind: emitter.Insert, OneIn: 4}), blind: "senders may tag what they like",
	},
	{
		name: "reserved bits", at: []string{"spine1"}, reported: "reserved-bits", judged: "reserved-changed",
		change: faults(emitter.Behavior{Match: "spine1:*", Kind: emitter.ReservedBits}),
	},
	{
		name: "double tag", at: []string{"spine1"}, reported: "orphan-tag", judged: "malformed",
		change: faults(emitter.Behavior{Match: "spine1:*", Kind: emitter.DoubleTag}),
	},
	{
		name: "strip", at: []string{"spine1"}, reported: "stripped-flows", elsewhere: true,
		missed: "fewer than 20 tags are missing of a flow", hidden: (*faulty).edgesExplain,
		change: devices(emitter.Behavior{Match: "spine1", Kind: emitter.Strip}),
	},
	{
		name: "strip of uplinks", at: []string{"leaf2"}, watched: "stripped-flows", elsewhere: true,
		change: both(mixed, devices(emitter.Behavior{Match: "leaf2:up*", Kind: emitter.Strip})), blind: "its hosts may send no tags",
	},
	{
		name: "no strip at the edge", at: []string{"rack4", "leaf4"}, reported: "leak", config: outside, elsewhere: true,
	},
	{
		name: "a stranger sends", at: []string{"10.0.1.1"}, reported: "unauthorised-sender", config: senders("10.0.1.1"), elsewhere: true,
	},
	{
		name: "trimmed and updated", at: []string{"spine1"}, also: []string{"stuck-port"}, judged: "trim-frozen", hideable: true,
		change: both(shallow, faults(emitter.Behavior{Match: "spine1:*", Kind: emitter.IgnoreTrim}, constant)), blind: "what the value was when D was set is gone",
	},

	{name: "none", honest: true},
	{name: "fails open", honest: true, change: faults(emitter.Behavior{Match: "spine1:*", Kind: emitter.NoMetric})},
	{name: "first hops pass through", honest: true, change: devices(emitter.Behavior{Match: "leaf[12]:up*", Kind: emitter.PassThrough})},
	{name: "passes through", honest: true, change: devices(emitter.Behavior{Match: "spine1", Kind: emitter.PassThrough})},
	{name: "signal-limited", honest: true, change: devices(emitter.Behavior{Match: "spine1", Kind: emitter.Limited, Signals: []string{"min_abw"}})},
	{name: "in software", honest: true, change: devices(emitter.Behavior{Match: "spine1", Kind: emitter.Software, Every: 50 * time.Millisecond})},
	{name: "meters otherwise", honest: true, change: devices(emitter.Behavior{Match: "spine1", Kind: emitter.Metering, ABW: emitter.DRE, Every: time.Millisecond})},
	{name: "idle fabric", honest: true, change: idle},
	{name: "trimmed", honest: true, change: shallow},
	{name: "strips at the edge", honest: true, config: outside, change: devices(emitter.Behavior{Match: "leaf4", Kind: emitter.EgressEdge}), elsewhere: true},
	{name: "strips for a rack", honest: true, change: devices(emitter.Behavior{Match: "spine*", Peer: "leaf4", Kind: emitter.Strip}), elsewhere: true},
	{name: "a list of all senders", honest: true, config: senders(), elsewhere: true},
	{
		name: "forged and scrubbed", honest: true, knownBySenders: "forged-value", at: []string{"10.0.1.1"}, elsewhere: true,
		change: both(faults(forgery), devices(emitter.Behavior{Match: "leaf1", Kind: emitter.IngressEdge})),
	},
	{
		name: "some flows without tags", honest: true, elsewhere: true,
		change: func(s *emitter.Scenario) {
			s.Workloads = append(s.Workloads, emitter.Workload{Kind: emitter.Permutation, Rate: 20 * emitter.Mbps, Connections: 4, TagEvery: -1})
		},
	},
}
