// Package scenario defines the simulated networks: scenario files with their defaults and checks,
// the built-in scenarios, and the fabric of a scenario with its paths, taps and locator metadata.
// It knows devices, links, workloads and kinds of faults. It must never know how packets move or
// look.
//
// A scenario file holds the fields of Scenario in YAML, in the form that Dump writes. The folder
// builtin has the built-in scenarios in the same form. The folders devices and faults have one file
// for each kind of Behavior, with a one-line description and an example entry.
//
// A fabric is leaves and spines, pods below a core, or a fabric file as the other commands read it;
// side links join neighbors. Flows take equal-cost shortest paths, as aggregate/fabric assumes: of
// the ports that lead one link nearer to the receiver, the device's hash of the 5-tuple selects
// one. Host n of rack r is 10.0.r.n and fd00:c516:a:r::n; inside host-to-host tunnels it is
// 10.128.r.n and fd00:c516:a:8000+r::n.
package scenario

import (
	"cmp"
	"slices"
	"time"

	"github.com/csigscope/csigscope/decode/csig"
)

// Scenario holds all inputs of a run: equal scenarios give equal bytes. Zero fields take the
// defaults named here; Run checks the rest.
type Scenario struct {
	Name     string        `yaml:"name,omitempty"`
	Summary  string        `yaml:"summary,omitempty"` // one line; default the file's first line if it is a comment
	Seed     uint64        `yaml:"seed,omitempty"`
	Duration time.Duration `yaml:"duration,omitempty"` // simulated time
	Start    time.Time     `yaml:"start,omitempty"`    // of the simulated clock, from 1970 to 2105; default 2026-01-05T00:00:00Z

	// The fabric has one of three forms. Leaves and spines: every leaf is a rack and has one uplink
	// to every spine. Pods and cores: three stages; HostSpeed and UplinkSpeed are then the pods'
	// defaults. A fabric file in the form of the other commands: it gives the speeds too.
	Leaves       int  `yaml:"leaves,omitempty"`
	Spines       int  `yaml:"spines,omitempty"`
	HostsPerLeaf int  `yaml:"hosts_per_leaf,omitempty"`
	HostSpeed    Rate `yaml:"host_speed,omitempty"`
	UplinkSpeed  Rate `yaml:"uplink_speed,omitempty"`
	// RackUplinkSpeed overrides the speed of all links between a rack, counted from 1, and the
	// spines, in both directions.
	RackUplinkSpeed map[int]Rate `yaml:"rack_uplink_speed,omitempty"`
	// Oversubscription, if set, determines UplinkSpeed: the ratio of a rack's host speed to its
	// uplink speed.
	Oversubscription Ratio      `yaml:"oversubscription,omitempty"`
	Pods             []Pod      `yaml:"pods,omitempty"`
	Cores            int        `yaml:"cores,omitempty"`      // switches that join the pods
	CoreSpeed        Rate       `yaml:"core_speed,omitempty"` // links to the core; default: the speed of the pod's uplinks
	SideLinks        []SideLink `yaml:"side_links,omitempty"`
	FabricFile       string     `yaml:"fabric_file,omitempty"`

	// ECMPHash is the function by which switches choose among equal-cost paths: crc32 or xor16 over
	// IPv4 addresses and ports before any encapsulation. The fabric file then names it. The default
	// function has no name in fabric files.
	ECMPHash string `yaml:"ecmp_hash,omitempty"`

	BufferBytes    uint64        `yaml:"buffer_bytes,omitempty"`     // each switch port; default 256 KiB
	NICBufferBytes uint64        `yaml:"nic_buffer_bytes,omitempty"` // each sending host; default 4 MiB
	Propagation    time.Duration `yaml:"propagation,omitempty"`      // each link; default 500 ns
	Pipeline       time.Duration `yaml:"pipeline,omitempty"`         // each switch, before the queue; default 600 ns
	// TrimBuffer, unless 0, makes switches trim packets to their headers if the buffer is full. It
	// is the size of the extra buffer for trimmed packets, which leave first.
	TrimBuffer uint64 `yaml:"trim_buffer_bytes,omitempty"`

	// Devices lists switches with less than complete support, Faults those that break the rules.
	// See Behavior.
	Devices []Behavior `yaml:"devices,omitempty"`
	Faults  []Behavior `yaml:"faults,omitempty"`
	// ReplaceInitial makes the first hop replace the initial value even by an equal one (rule 1 of
	// the Signal Update Function of IBCS).
	ReplaceInitial bool `yaml:"replace_initial,omitempty"`
	MTU            int  `yaml:"mtu,omitempty"` // bytes of a full IP packet; default 1500

	// Signals and tags. ABW is the switches' estimator of available bandwidth over ABWInterval (1
	// us to 1 s, default 10 ms); default raw. ABWWeight n (1 to 10, default 4) gives weights of
	// 1/2^n in the estimators that have weights.
	ABW         Estimator        `yaml:"abw,omitempty"`
	ABWInterval time.Duration    `yaml:"abw_interval,omitempty"`
	ABWWeight   uint8            `yaml:"abw_weight,omitempty"`
	HeavyDelay  time.Duration    `yaml:"heavy_delay,omitempty"` // threshold of max_delay; default 20 us
	Layout      csig.Layout      `yaml:"-"`                     // default wide/uec050
	Signals     []csig.Signal    `yaml:"-"`                     // default: all signals of the layout
	Locator     string           `yaml:"locator,omitempty"`     // port (default), class, custom or file
	Fields      []csig.FieldSpec `yaml:"locator_fields,omitempty"`
	// LocatorValues override the LM that ports write.
	LocatorValues []LocatorValue `yaml:"locator_values,omitempty"`

	// Packet format. Encap is one of Encapsulations, between hosts (default) or between leaves;
	// between leaves, the tag moves to the outermost L2 where the tunnel begins and back where it
	// ends. IP is the version of the hosts' packets, 4 (default) or 6, Underlay the version of the
	// outer header.
	Encap    string `yaml:"encap,omitempty"`
	EncapAt  string `yaml:"encap_at,omitempty"`
	IP       int    `yaml:"ip,omitempty"`
	Underlay int    `yaml:"underlay,omitempty"`

	TagEvery       int  `yaml:"tag_every,omitempty"`        // senders tag one of this many data packets; default 1; negative: none
	AckEvery       int  `yaml:"ack_every,omitempty"`        // receivers acknowledge every n data packets; default 2; negative: never
	RepeatAckEvery int  `yaml:"repeat_ack_every,omitempty"` // every n-th acknowledgement is sent twice; 0: none
	TagAcks        bool `yaml:"tag_acks,omitempty"`         // acknowledgements carry tags too
	// Reflect selects the reflection of an acknowledgement of several packets: their latest tag
	// (default), or the worst tag of a signal (section 4.2).
	Reflect Reflect `yaml:"reflect,omitempty"`
	// Swift and NSCC hold the parameters of workloads with congestion control.
	Swift Swift `yaml:"swift,omitempty"`
	NSCC  NSCC  `yaml:"nscc,omitempty"`
	// Switches mark ECN-capable packets at random if a packet leaves more than ECNMin bytes behind
	// in the queue, and always from ECNMax bytes; 0: none.
	ECNMin uint64 `yaml:"ecn_min_bytes,omitempty"`
	ECNMax uint64 `yaml:"ecn_max_bytes,omitempty"`

	Workloads []Workload `yaml:"workloads,omitempty"`

	// Output. By default, taps sit where leaves deliver to their hosts.
	Taps            []Tap         `yaml:"taps,omitempty"`
	Window          time.Duration `yaml:"window,omitempty"`           // window of the truth; default 1 s
	SnapLen         int           `yaml:"snap_len,omitempty"`         // default 128
	CaptureUntagged bool          `yaml:"capture_untagged,omitempty"` // include packets without tag and reflection
	Classic         bool          `yaml:"classic,omitempty"`          // pcap with nanoseconds instead of pcapng
	SingleFile      bool          `yaml:"single_file,omitempty"`      // one file for all taps, named after the scenario
	Compress        string        `yaml:"compress,omitempty"`         // gzip or zstd; default none
	// FlowTrace is the sampling interval of flows.ndjson; 0: no such file.
	FlowTrace time.Duration `yaml:"flow_trace,omitempty"`
	// Counters lists patterns of devices "leaf3" or ports "leaf3:up*" whose own metrics go to
	// CountersFile, in the form that conform --metrics reads.
	Counters []string `yaml:"counters,omitempty,flow"`
	Packets  uint64   `yaml:"packets,omitempty"` // stop after this many captured packets; 0: run for Duration

	// RandomFlows replaces the simulation by this many flows with random tags in every packet: the
	// worst input for an aggregator. It has no truth.
	RandomFlows int `yaml:"random_flows,omitempty"`
}

// Host identifies a host by its rack and its number in the rack, both from 1.
type Host struct {
	Rack int `yaml:"rack"`
	Host int `yaml:"host"`
}

// WithLayout returns the scenario with another tag layout. It removes signals that the layout does
// not define. Compact layouts get the class locator, since their bits are meant for it (section
// 5.5.2) and few fabrics have so few ports that these bits can number them.
func (s Scenario) WithLayout(l csig.Layout) Scenario {
	s.Layout = l
	var kept []csig.Signal
	for _, signal := range s.Signals {
		if csig.SignalOf(l.Profile, signal.Type()) == signal {
			kept = append(kept, signal)
		}
	}
	s.Signals = kept
	if l.Format == csig.Compact {
		s.Locator = "class"
	}
	return s
}

// WithDefaults returns the scenario with defaults in place of zero fields.
func (s Scenario) WithDefaults() Scenario {
	orDefault(&s.Name, "scenario")
	orDefault(&s.Duration, 10*time.Second)
	if s.Start.IsZero() {
		s.Start = time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)
	}
	orDefault(&s.BufferBytes, 256<<10)
	orDefault(&s.NICBufferBytes, 4<<20)
	orDefault(&s.Propagation, 500*time.Nanosecond)
	orDefault(&s.Pipeline, 600*time.Nanosecond)
	orDefault(&s.MTU, 1500)
	orDefault(&s.ABW, Raw)
	orDefault(&s.ABWInterval, 10*time.Millisecond)
	orDefault(&s.ABWWeight, 4)
	orDefault(&s.HeavyDelay, 20*time.Microsecond)
	orDefault(&s.Layout, csig.Layout{Format: csig.Wide, Profile: csig.UEC050})
	if len(s.Signals) == 0 {
		s.Signals = []csig.Signal{csig.MinABWRatio, csig.MinABW, csig.MaxDelay}
		if s.Layout.Profile == csig.UEC050 {
			s.Signals = append(s.Signals, csig.MaxNQD)
		}
	}
	orDefault(&s.Locator, "port")
	orDefault(&s.Encap, encapNames[EncapNone])
	orDefault(&s.EncapAt, atHosts)
	orDefault(&s.IP, 4)
	orDefault(&s.Underlay, 4)
	orDefault(&s.TagEvery, 1)
	orDefault(&s.AckEvery, 2)
	orDefault(&s.Window, time.Second)
	orDefault(&s.SnapLen, 128)
	return s
}

func orDefault[T comparable](v *T, d T) {
	*v = cmp.Or(*v, d)
}

// WithSize returns the scenario on a fabric of another size; 0 keeps a number. Racks named by
// workloads and speeds move in proportion: a workload on the last of 16 racks moves to the last of
// 8. Rates stay the same, so fewer spines or more hosts mean more congestion.
//
// With pods, leaves are the racks and are shared among the pods, and each pod gets spines
// aggregation switches. The size of a fabric file does not change. Devices and faults that match no
// port are dropped.
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
		clamp := func(h Host) Host { return Host{Rack: move(h.Rack), Host: min(h.Host, most)} }
		if w.Kind == Incast {
			w.Target = clamp(w.Target)
		}
		w.Stragglers, w.Flows = slices.Clone(w.Stragglers), slices.Clone(w.Flows)
		for j, h := range w.Stragglers {
			w.Stragglers[j] = clamp(h)
		}
		for j, p := range w.Flows {
			w.Flows[j] = Pair{From: clamp(p.From), To: clamp(p.To)}
		}
	}
	s.keepBehaviors()
	return s
}

// size returns the number of racks, and the number of hosts that every rack has at least.
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

// resize sets the numbers that are not 0.
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

// keepBehaviors drops behaviors that match no port. If the fabric cannot be built, Check reports it
// later.
func (s *Scenario) keepBehaviors() {
	full := s.WithDefaults()
	if full.checkFabric() != nil || full.checkBehaviors() != nil {
		return
	}
	t, err := NewTopology(&full)
	if err != nil {
		return
	}
	gone := func(b Behavior) bool { return len(b.Matches(t)) == 0 }
	s.Devices = slices.DeleteFunc(slices.Clone(s.Devices), gone)
	s.Faults = slices.DeleteFunc(slices.Clone(s.Faults), gone)
}
