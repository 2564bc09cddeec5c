package truth

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// File is the file name of the truth.
const File = "truth.ndjson"

// Kinds of lines in truth.ndjson.
const (
	HeaderKind = "header"
	CellKind   = "cell"
	PortKind   = "port"
	FlowKind   = "flow"
	DeviceKind = "device" // a Behavior of Scenario.Devices
	FaultKind  = "fault"  // a Behavior of Scenario.Faults
)

// Header is the first line of truth.ndjson.
type Header struct {
	Kind          string            `json:"kind"`
	Version       int               `json:"version"` // 1
	Scenario      string            `json:"scenario"`
	Seed          uint64            `json:"seed"`
	Start         time.Time         `json:"start"`
	DurationNS    int64             `json:"duration_ns"`
	WindowNS      int64             `json:"window_ns"`
	ABWIntervalNS int64             `json:"abw_interval_ns"`
	Layout        string            `json:"layout"`
	Locator       string            `json:"locator"`
	Units         map[string]string `json:"units"` // stored unit of each signal
	Definitions   map[string]string `json:"definitions"`
	Taps          []Tap             `json:"taps"`
}

// Tap describes a tap's clock errors and its counts. Cells and ports describe the fabric itself, so
// they include frames that the tap lost.
type Tap struct {
	Name     string `json:"name"`
	Place    string `json:"place"`
	OffsetNS int64  `json:"offset_ns"`
	DriftPPB int64  `json:"drift_ppb"`
	JitterNS int64  `json:"jitter_ns"`

	Frames     uint64 `json:"frames"`   // frames on its links that were to be captured
	Captured   uint64 `json:"captured"` // frames - lost + duplicated
	Lost       uint64 `json:"lost"`
	Duplicated uint64 `json:"duplicated"`
	Reordered  uint64 `json:"reordered"`
}

// Cell sums up one window between two groups for one signal and source. Values are in the signal's
// stored unit.
type Cell struct {
	Kind         string    `json:"kind"`
	WindowStart  time.Time `json:"window_start"`
	WindowNS     int64     `json:"window_ns"`
	Source       string    `json:"source"` // tag or reflection
	Signal       string    `json:"signal"`
	SrcGroup     string    `json:"src_group"`
	DstGroup     string    `json:"dst_group"`
	Observations uint64    `json:"observations"`
	Trimmed      uint64    `json:"trimmed,omitempty"`  // with the D bit; also in observations, agree and inserted
	Inserted     uint64    `json:"inserted,omitempty"` // tags that no sender made

	// Mode counts the tags as they were written.
	Mode
	// Agree counts the tags that equal a faithful fabric's, Faithful the tags of a faithful fabric.
	// Both are absent if all devices are complete.
	Agree    *uint64   `json:"agree,omitempty"`
	Faithful *Faithful `json:"faithful,omitempty"`
}

// Faithful counts the senders' tags as a fabric of complete devices with the same queues would
// write them: the true bottlenecks. It leaves out inserted tags.
type Faithful struct {
	Observations uint64 `json:"observations"`
	Mode
}

// Mode sums up tags or reflections.
type Mode struct {
	Untouched uint64 `json:"untouched"`
	Heavy     uint64 `json:"heavy"`
	Sum       uint64 `json:"sum"`
	HeavySum  uint64 `json:"heavy_sum"`

	// The mode of the bottleneck, absent if nothing was heavy.
	Bottleneck      string            `json:"bottleneck,omitempty"`
	BottleneckCount uint64            `json:"bottleneck_count,omitempty"`
	BottleneckValue *float64          `json:"bottleneck_value,omitempty"`
	Stage           string            `json:"stage,omitempty"`
	Ties            []string          `json:"ties,omitempty"`
	Ports           map[string]uint64 `json:"ports,omitempty"` // heavy observations by port
}

// Port sums up one switch port in one window.
type Port struct {
	Kind          string    `json:"kind"`
	WindowStart   time.Time `json:"window_start"`
	Port          string    `json:"port"`
	Bytes         uint64    `json:"bytes"`
	CapacityKbps  uint64    `json:"capacity_kbps"`
	Load          float64   `json:"load"` // share of the window in which the link was busy
	Drops         uint64    `json:"drops"`
	MaxQueueBytes uint64    `json:"max_queue_bytes"`

	Trimmed  uint64 `json:"trimmed,omitempty"`  // packets cut to their headers
	Discards uint64 `json:"discards,omitempty"` // tagged packets dropped by the device
	Stripped uint64 `json:"stripped,omitempty"` // tags
	Inserted uint64 `json:"inserted,omitempty"` // tags
}

// Flow is one connection of the run, with the packets of both directions.
type Flow struct {
	Kind    string `json:"kind"`
	Src     string `json:"src"` // sending host
	Dst     string `json:"dst"`
	SrcIP   string `json:"src_ip"`
	DstIP   string `json:"dst_ip"`
	SrcPort uint16 `json:"src_port"`
	DstPort uint16 `json:"dst_port"`

	Forward []string `json:"forward"` // switch ports that the data passes
	Reverse []string `json:"reverse"` // switch ports that the acknowledgements pass

	// Sent = Delivered + Dropped + InFlight.
	Sent      uint64 `json:"sent"`
	Delivered uint64 `json:"delivered"`
	Dropped   uint64 `json:"dropped"`
	InFlight  uint64 `json:"in_flight"`
	Trimmed   uint64 `json:"trimmed,omitempty"`
}

// Behavior names a port that differs from a complete device's, or a host that forges tags.
type Behavior struct {
	Kind    string    `json:"kind"`
	Device  string    `json:"device"`
	Port    string    `json:"port,omitempty"`
	What    string    `json:"what"` // kind of scenario.Behavior
	Signals []string  `json:"signals,omitempty"`
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
}

func newHeader(s *scenario.Scenario, taps []Tap) Header {
	h := Header{
		Kind: HeaderKind, Version: 1, Scenario: s.Name, Seed: s.Seed,
		Start: s.Start.UTC(), DurationNS: s.Duration.Nanoseconds(), WindowNS: s.Window.Nanoseconds(),
		ABWIntervalNS: s.ABWInterval.Nanoseconds(), Layout: s.Layout.String(), Locator: s.Locator,
		Units: map[string]string{}, Taps: taps,
		Definitions: map[string]string{
			"window":           "by capture time: a tag when its packet arrives at the receiver, a reflection when the acknowledgement arrives at the original sender",
			"src_group":        "group of the sender of the measured path; dst_group is that of its receiver",
			"untouched":        "observations whose signal no port replaced",
			"heavy":            "observations whose whole bucket is at or beyond the threshold, given the true capacity of the port that they name",
			"sum":              "bucket midpoints of all observations, untouched ones included",
			"heavy_sum":        "bucket midpoints of the heavy observations",
			"bottleneck":       "port that most of the heavy observations name; among equals the more severe mean, then the lower location id",
			"bottleneck_value": "mean bucket midpoint of the bottleneck's heavy observations",
			"ties":             "ports with as many heavy observations as the bottleneck, itself included",
			"ports":            "heavy observations by the port that they name",
			"physical":         "of the ports that a cell's packets entered in the window, the tightest by port state alone: exact time average of the free bandwidth, and longest queue as time to drain and as share of the buffer",
			"load":             "share of the window in which the port's link was busy",
			"max_queue_bytes":  "most bytes that waited or were on their way out, the arriving packet included; at the begin of the window, what waits from the one before",
			"trimmed":          "observations with the D bit: they also count in observations, agree and inserted, and nowhere else; of ports: packets cut to their headers",
			"inserted":         "observations of tags that no sender made",
			"agree":            "observations whose value and locator metadata are those of a faithful fabric",
			"faithful":         "the same for what devices with complete support would have written into the senders' tags, with the same queues",
			"lm:N":             "in place of a port: locator metadata that is configured on none or on several, and not by the writer",
		},
	}
	for _, signal := range s.Signals {
		h.Units[signal.String()] = storedUnits[signal.Unit()]
	}
	return h
}

// Visitor receives the lines of a truth file; nil members are skipped. Each call owns its argument.
type Visitor struct {
	Header func(Header) error
	Cell   func(Cell) error
	// Physical receives the physical truth of cells.
	Physical func(Physical) error
	Port     func(Port) error
	Flow     func(Flow) error
	// Behavior receives lines of the kinds device and fault.
	Behavior func(Behavior) error
}

// Read reads truth.ndjson in order. Errors name the line.
func Read(r io.Reader, v Visitor) error {
	return readLines(r, "truth", v.line)
}

func readLines(r io.Reader, what string, take func(kind string, line []byte) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 16<<20)
	for n := 1; lines.Scan(); n++ {
		var line struct {
			Kind string `json:"kind"`
		}
		err := json.Unmarshal(lines.Bytes(), &line)
		if err == nil {
			err = take(line.Kind, lines.Bytes())
		}
		if err != nil {
			return fmt.Errorf("read %s line %d: %w", what, n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read %s: %w", what, err)
	}
	return nil
}

func (v *Visitor) line(kind string, b []byte) error {
	switch kind {
	case HeaderKind:
		return visit(b, v.Header)
	case CellKind:
		return visit(b, v.Cell)
	case PhysicalKind:
		return visit(b, v.Physical)
	case PortKind:
		return visit(b, v.Port)
	case FlowKind:
		return visit(b, v.Flow)
	case DeviceKind, FaultKind:
		return visit(b, v.Behavior)
	}
	return errors.New("kind: expected header, device, fault, cell, physical, port or flow")
}

func visit[T any](b []byte, f func(T) error) error {
	if f == nil {
		return nil
	}
	var t T
	if err := json.Unmarshal(b, &t); err != nil {
		return err
	}
	return f(t)
}

// TraceFile is the file name of the trace that Scenario.FlowTrace requests.
const TraceFile = "flows.ndjson"

// Kinds of lines in flows.ndjson.
const (
	TraceFlowKind   = "flow"
	TraceSampleKind = "sample"
)

// TraceFlow describes a flow. All flows come first in flows.ndjson.
type TraceFlow struct {
	Kind    string `json:"kind"`
	Flow    int    `json:"flow"` // counted from 1
	Src     string `json:"src"`  // host name
	Dst     string `json:"dst"`
	SrcIP   string `json:"src_ip"`
	DstIP   string `json:"dst_ip"`
	SrcPort uint16 `json:"src_port"`
	DstPort uint16 `json:"dst_port"`
	// Transport is pony for flows over UDP. Their acknowledgements use the same port order as the
	// data.
	Transport scenario.Transport `json:"transport,omitempty"`
	Control   scenario.Control   `json:"control,omitempty"`
	// Path lists the switch ports that the data passes, in order.
	Path []string `json:"path"`
	// IdleRoundTripNS is the round-trip time of a packet without queues.
	IdleRoundTripNS int64 `json:"idle_round_trip_ns"`
	// TargetNS is the sender's target delay without flow scaling, for the round trip or for the
	// worst hop.
	TargetNS int64 `json:"target_ns,omitempty"`
}

// TraceSample sums up one flow in one interval. Delays are means; they are absent if no packet
// measured them.
type TraceSample struct {
	Kind       string    `json:"kind"`
	Start      time.Time `json:"start"`
	IntervalNS int64     `json:"interval_ns"`
	Flow       int       `json:"flow"`
	// Bytes counts the data that arrived at the receiver, without headers.
	Bytes   uint64 `json:"bytes"`
	Packets uint64 `json:"packets"`
	// OneWayNS is measured from the sender's link to the receiver, RoundTripNS from there to the
	// arrival of the acknowledgement.
	OneWayNS    int64 `json:"one_way_ns,omitempty"`
	RoundTripNS int64 `json:"round_trip_ns,omitempty"`
	// WorstHopNS is max(PD) as reflected to the sender.
	WorstHopNS int64 `json:"worst_hop_ns,omitempty"`
	// WindowMilli is the congestion window in thousandths of packets.
	WindowMilli int64 `json:"window_milli,omitempty"`
}

// TraceVisitor receives the lines of flows.ndjson; nil members are skipped.
type TraceVisitor struct {
	Flow   func(TraceFlow) error
	Sample func(TraceSample) error
}

// ReadTrace reads flows.ndjson in order. Errors name the line.
func ReadTrace(r io.Reader, v TraceVisitor) error {
	return readLines(r, "flows", v.line)
}

func (v *TraceVisitor) line(kind string, b []byte) error {
	switch kind {
	case TraceFlowKind:
		return visit(b, v.Flow)
	case TraceSampleKind:
		return visit(b, v.Sample)
	}
	return errors.New("kind: expected flow or sample")
}
