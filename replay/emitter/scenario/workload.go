package scenario

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/csigscope/csigscope/decode/csig"
)

// Workload kinds.
const (
	Ring        = "ring"        // every host sends to the next host of the ring
	Tree        = "tree"        // all-reduce over a binary tree: to the root, then back
	AllToAll    = "alltoall"    // every host sends to every other host
	Pipeline    = "pipeline"    // racks are the stages of a model, the i-th hosts of neighbors talk: activations forward, then gradients back
	Incast      = "incast"      // sources send to one target
	Background  = "background"  // random pairs in different racks, at irregular intervals
	Storage     = "storage"     // random pairs in different racks, transfers of heavy-tailed sizes
	Permutation = "permutation" // every host sends to one other host; none receives from two
	Probes      = "probes"      // small tagged packets between all hosts, at an interval
	Flows       = "flows"       // the pairs in Workload.Flows
)

// Workload is a set of flows.
type Workload struct {
	Kind string `yaml:"kind"`

	// Racks lists the participating racks, from 1; empty: all. HostsPerRack takes the first n hosts
	// of each; 0: all (probes: one of each).
	Racks        []int `yaml:"racks,omitempty,flow"`
	HostsPerRack int   `yaml:"hosts_per_rack,omitempty"`
	// RackOrder makes a ring or tree visit all hosts of a rack before the next rack. By default
	// neighbors are in different racks.
	RackOrder bool `yaml:"rack_order,omitempty"`

	Target       Host   `yaml:"target,omitempty"`        // incast
	Sources      int    `yaml:"sources,omitempty"`       // incast: sending hosts, evenly spread; 0: all
	Pairs        int    `yaml:"pairs,omitempty"`         // background, storage: pairs of hosts; 0: one per ordered pair of racks
	Flows        []Pair `yaml:"flows,omitempty"`         // flows
	MicroBatches int    `yaml:"micro_batches,omitempty"` // pipeline: micro-batches per step; default 4

	// Rate is a host's sending rate while active (ring, tree, alltoall, pipeline, permutation,
	// incast), the mean rate of a pair (background), or the rate of a transfer (storage) or a flow
	// (flows). With a Control it is an upper limit; 0: none.
	Rate Rate `yaml:"rate,omitempty"`
	// Interval is the time between two probes of a pair.
	Interval time.Duration `yaml:"interval,omitempty"`
	// Connections share the rate of a pair of hosts; default 1.
	Connections int `yaml:"connections,omitempty"`
	// Control is the senders' reaction to delay; default none.
	Control Control `yaml:"control,omitempty"`
	// Transport carries the data: TCP (default) or pony, which runs over UDP.
	Transport Transport `yaml:"transport,omitempty"`
	// PacketBytes is the length of a full IP packet; default 96 for probes, else
	// Scenario.MTU.
	PacketBytes int `yaml:"packet_bytes,omitempty"`

	// Sizes makes a flow send Transfers transfers (0: without end) with pauses of Think on average.
	// Storage has sizes by default, from 4 KiB to 16 MiB in a bounded Pareto distribution.
	Sizes     *Sizes        `yaml:"sizes,omitempty"`
	Transfers int           `yaml:"transfers,omitempty"`
	Think     time.Duration `yaml:"think,omitempty"`

	// Period and Burst define training steps: senders are active in the first Burst of each Period
	// and idle for the rest. Period 0: always active.
	Period time.Duration `yaml:"period,omitempty"`
	Burst  time.Duration `yaml:"burst,omitempty"`
	Start  time.Duration `yaml:"start,omitempty"`
	End    time.Duration `yaml:"end,omitempty"` // 0: the end of the run
	// Jitter is the maximum delay of a step's start after its period, equal for all senders.
	// Stragglers start their part of a step later by Late, every StraggleEvery steps (default 1).
	// No sender waits for them.
	Jitter        time.Duration `yaml:"jitter,omitempty"`
	Stragglers    []Host        `yaml:"stragglers,omitempty,flow"`
	Late          time.Duration `yaml:"late,omitempty"`
	StraggleEvery int           `yaml:"straggle_every,omitempty"`

	TagEvery int `yaml:"tag_every,omitempty"` // overrides Scenario.TagEvery unless 0
	AckEvery int `yaml:"ack_every,omitempty"` // overrides Scenario.AckEvery unless 0; 1 for probes

	// Override the scenario's settings unless empty or 0.
	Encap    string `yaml:"encap,omitempty"`
	EncapAt  string `yaml:"encap_at,omitempty"`
	IP       int    `yaml:"ip,omitempty"`
	Underlay int    `yaml:"underlay,omitempty"`
}

// Pair is a sender and a receiver.
type Pair struct {
	From Host `yaml:"from"`
	To   Host `yaml:"to"`
}

const probeBytes = 96

// WithDefaults returns the workload with defaults in place of zero fields, which differ by kind.
func (w Workload) WithDefaults(s *Scenario) Workload {
	orDefault(&w.TagEvery, s.TagEvery)
	if w.Kind == Probes {
		orDefault(&w.HostsPerRack, 1)
		orDefault(&w.PacketBytes, probeBytes)
		orDefault(&w.AckEvery, 1)
	}
	if w.Kind == Storage && w.Sizes == nil {
		w.Sizes = &Sizes{Distribution: Pareto, MinBytes: storageMin, MaxBytes: storageMax}
	}
	orDefault(&w.AckEvery, s.AckEvery)
	orDefault(&w.PacketBytes, s.MTU)
	orDefault(&w.MicroBatches, 4)
	orDefault(&w.StraggleEvery, 1)
	return w
}

func (s *Scenario) checkWorkload(t *Topology, w *Workload) error {
	for i, r := range w.Racks {
		if r < 1 || r > len(t.Racks) {
			return fmt.Errorf("racks: %d: expected 1 to %d", r, len(t.Racks))
		}
		if slices.Contains(w.Racks[:i], r) {
			return fmt.Errorf("racks: %d: expected each rack once", r)
		}
	}
	switch {
	case w.HostsPerRack < 0 || w.HostsPerRack > t.LargestRack():
		return fmt.Errorf("hosts_per_rack %d: expected 0 to %d", w.HostsPerRack, t.LargestRack())
	case w.Connections < 0 || w.Connections > 1024:
		return fmt.Errorf("connections %d: expected 0 to 1024", w.Connections)
	case w.Pairs < 0 || w.Pairs > MaxFlows:
		return fmt.Errorf("pairs %d: expected 0 to %d", w.Pairs, MaxFlows)
	case w.Sources < 0:
		return fmt.Errorf("sources %d: expected 0 or more", w.Sources)
	case w.MicroBatches < 0 || w.MicroBatches > 1<<16:
		return fmt.Errorf("micro_batches %d: expected 0 to %d", w.MicroBatches, 1<<16)
	case w.Kind == Incast && !t.has(w.Target):
		return fmt.Errorf("target rack %d, host %d: no such host", w.Target.Rack, w.Target.Host)
	case (w.Kind == Flows) != (len(w.Flows) > 0):
		return errors.New("flows: expected pairs of hosts in a workload of kind flows, and only there")
	}
	for i, p := range w.Flows {
		if !t.has(p.From) || !t.has(p.To) || p.From == p.To {
			return fmt.Errorf("flows[%d]: expected two hosts of %d racks of at most %d", i, len(t.Racks), t.LargestRack())
		}
	}
	if err := s.checkSending(w); err != nil {
		return err
	}
	return s.checkSteps(t, w)
}

func (t *Topology) has(h Host) bool {
	return h.Rack >= 1 && h.Rack <= len(t.Racks) && h.Host >= 1 && h.Host <= len(t.RackHosts(h.Rack-1))
}

// checkSending checks the rates and sizes of a workload's senders.
func (s *Scenario) checkSending(w *Workload) error {
	d := w.WithDefaults(s)
	switch {
	case w.Kind == Probes && (w.Interval < time.Microsecond || w.Interval > time.Hour || w.Rate != 0):
		return fmt.Errorf("interval %s: probes expect 1us to 1h, and no rate", w.Interval)
	case w.Kind != Probes && w.Interval != 0:
		return errors.New("interval: is for probes only")
	case w.Kind != Probes && (w.Control == OpenLoop || w.Rate != 0) && (w.Rate < 1 || w.Rate > 10_000*Gbps):
		return fmt.Errorf("rate %s: expected 1kbps to 10Tbps", w.Rate)
	case w.Transport != TCP && w.Transport != Pony:
		return fmt.Errorf("transport %q: expected %s, or nothing for TCP", w.Transport, Pony)
	case d.PacketBytes < minPacket || d.PacketBytes > s.MTU:
		return fmt.Errorf("packet_bytes %d: expected %d to the MTU, %d", d.PacketBytes, minPacket, s.MTU)
	case w.Transfers < 0 || w.Think < 0 || w.Think > time.Hour:
		return fmt.Errorf("transfers %d, think %s: expected 0 or more, and at most 1h", w.Transfers, w.Think)
	case d.Sizes == nil && (w.Transfers != 0 || w.Think != 0):
		return errors.New("transfers and think: have no effect without sizes")
	}
	if d.Sizes != nil {
		if err := d.Sizes.check(); err != nil {
			return err
		}
	}
	return s.checkControl(&d)
}

// checkControl checks a workload's congestion control after its defaults: the signals that senders
// react to must reach them.
func (s *Scenario) checkControl(w *Workload) error {
	switch w.Control {
	case OpenLoop:
		return nil
	case SwiftE2E, SwiftMaxPD, NSCCE2E, NSCCMaxPD:
	default:
		return fmt.Errorf("control %q: expected %s, %s, %s, %s or none", w.Control, SwiftE2E, SwiftMaxPD, NSCCE2E, NSCCMaxPD)
	}
	if w.AckEvery < 0 {
		return fmt.Errorf("control %s: needs acknowledgements, and ack_every is %d", w.Control, w.AckEvery)
	}
	if w.Control.PerHop() && (w.TagEvery < 0 || !slices.Contains(s.Signals, csig.MaxDelay)) {
		return fmt.Errorf("control %s: needs tags and the signal max_delay", w.Control)
	}
	if w.Control.Marks() {
		if s.ECNMax == 0 {
			return fmt.Errorf("control %s: needs switches that mark, and ecn_max_bytes is 0", w.Control)
		}
		return s.NSCC.check()
	}
	p := s.Swift.WithDefaults()
	if err := p.check(); err != nil {
		return fmt.Errorf("swift: %w", err)
	}
	return nil
}

// checkSteps checks the times at which a workload's senders are active.
func (s *Scenario) checkSteps(t *Topology, w *Workload) error {
	switch {
	case w.Start > maxRun || w.End > maxRun || w.Period > maxRun:
		return fmt.Errorf("start %s, end %s, period %s: expected at most %s", w.Start, w.End, w.Period, maxRun)
	case w.Start < 0 || w.End < 0 || (w.End > 0 && w.End <= w.Start):
		return fmt.Errorf("start %s, end %s: expected an end after the start", w.Start, w.End)
	case w.Period < 0 || w.Burst < 0 || w.Burst > w.Period || (w.Period > 0) != (w.Burst > 0):
		return fmt.Errorf("period %s, burst %s: expected both, and a burst within the period", w.Period, w.Burst)
	case w.Jitter < 0 || w.Late < 0 || w.StraggleEvery < 0:
		return fmt.Errorf("jitter %s, late %s, straggle_every %d: expected 0 or more", w.Jitter, w.Late, w.StraggleEvery)
	case w.Period == 0 && (w.Jitter > 0 || w.Late > 0):
		return errors.New("jitter and late: have no effect without period and burst")
	case w.Burst+w.Jitter+w.Late > w.Period:
		return fmt.Errorf("burst %s, jitter %s, late %s: do not fit the period, %s", w.Burst, w.Jitter, w.Late, w.Period)
	case (len(w.Stragglers) > 0) != (w.Late > 0):
		return errors.New("stragglers and late: expected both or none")
	}
	for _, h := range w.Stragglers {
		if !t.has(h) {
			return fmt.Errorf("stragglers: rack %d, host %d: no such host", h.Rack, h.Host)
		}
	}
	return nil
}

// Distributions of transfer sizes.
const (
	FixedSize  = "fixed"     // all of MinBytes
	Pareto     = "pareto"    // bounded Pareto of shape 1 from MinBytes to MaxBytes
	WebSearch  = "websearch" // the query and background mix of "Data Center TCP (DCTCP)", SIGCOMM 2010, figure 4
	TableSizes = "table"     // linear interpolation between Points
	maxSize    = 1 << 40     // bytes
	SizeScale  = 1_000_000   // scale of cumulative shares
	maxPoints  = 1024        // in a table
	storageMin = 4 << 10     // storage workloads: bytes of the smallest transfer
	storageMax = 16 << 20    // storage workloads: bytes of the largest transfer
)

// Sizes is a distribution of transfer sizes in bytes.
type Sizes struct {
	Distribution string      `yaml:"distribution,omitempty"`
	MinBytes     uint64      `yaml:"min_bytes,omitempty"`
	MaxBytes     uint64      `yaml:"max_bytes,omitempty"`
	Points       []SizePoint `yaml:"points,omitempty,flow"`
}

// SizePoint is a point of the cumulative distribution: Share, in parts per million, of all
// transfers have at most Bytes.
type SizePoint struct {
	Bytes uint64 `yaml:"bytes"`
	Share uint64 `yaml:"share_ppm"`
}

func (s *Sizes) check() error {
	switch s.Distribution {
	case FixedSize:
		if s.MinBytes < 1 || s.MinBytes > maxSize || len(s.Points) > 0 || (s.MaxBytes != 0 && s.MaxBytes != s.MinBytes) {
			return fmt.Errorf("sizes: fixed: expected min_bytes of 1 to %d and nothing else", uint64(maxSize))
		}
	case Pareto:
		if s.MinBytes < 1 || s.MaxBytes <= s.MinBytes || s.MaxBytes > maxSize || len(s.Points) > 0 {
			return fmt.Errorf("sizes: pareto: expected 1 <= min_bytes < max_bytes <= %d", uint64(maxSize))
		}
	case WebSearch:
		if s.MinBytes != 0 || s.MaxBytes != 0 || len(s.Points) > 0 {
			return errors.New("sizes: websearch: takes no parameters")
		}
	case TableSizes:
		return s.checkPoints()
	default:
		return fmt.Errorf("sizes: distribution %q: expected %s, %s, %s or %s", s.Distribution, FixedSize, Pareto, WebSearch, TableSizes)
	}
	return nil
}

func (s *Sizes) checkPoints() error {
	n := len(s.Points)
	if n < 2 || n > maxPoints || s.Points[0].Share != 0 || s.Points[n-1].Share != SizeScale || s.MinBytes != 0 || s.MaxBytes != 0 {
		return fmt.Errorf("sizes: table: expected 2 to %d points, the first with share_ppm 0, the last with %d", maxPoints, SizeScale)
	}
	for i, p := range s.Points {
		if p.Bytes < 1 || p.Bytes > maxSize || (i > 0 && (p.Bytes < s.Points[i-1].Bytes || p.Share <= s.Points[i-1].Share)) {
			return fmt.Errorf("sizes: table: points[%d]: expected 1 to %d bytes, in ascending order", i, uint64(maxSize))
		}
	}
	return nil
}
