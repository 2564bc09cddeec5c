package emitter

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Kinds of lines in truth.ndjson.
const (
	TruthHeaderKind = "header"
	TruthCellKind   = "cell"
	TruthPortKind   = "port"
	TruthFlowKind   = "flow"
	TruthDeviceKind = "device" // a Behavior of Scenario.Devices
	TruthFaultKind  = "fault"  // a Behavior of Scenario.Faults
)

// TruthHeader is the first line of truth.ndjson.
type TruthHeader struct {
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
	Taps          []TruthTap        `json:"taps"`
}

// TruthTap is a tap: how badly it captured, and what came of it. Cells and ports tell
// what happened; of that, a tap has captured all but what it lost.
type TruthTap struct {
	Name     string `json:"name"`
	Place    string `json:"place"`
	OffsetNS int64  `json:"offset_ns"`
	DriftPPB int64  `json:"drift_ppb"`
	JitterNS int64  `json:"jitter_ns"`

	Frames     uint64 `json:"frames"`   // that crossed its links and were to be captured
	Captured   uint64 `json:"captured"` // frames - lost + duplicated
	Lost       uint64 `json:"lost"`
	Duplicated uint64 `json:"duplicated"`
	Reordered  uint64 `json:"reordered"`
}

// TruthCell is what happened in one window between two groups, for one signal and
// source. Values are in the signal's stored unit.
type TruthCell struct {
	Kind         string    `json:"kind"`
	WindowStart  time.Time `json:"window_start"`
	WindowNS     int64     `json:"window_ns"`
	Source       string    `json:"source"` // tag or reflection
	Signal       string    `json:"signal"`
	SrcGroup     string    `json:"src_group"`
	DstGroup     string    `json:"dst_group"`
	Observations uint64    `json:"observations"`
	Trimmed      uint64    `json:"trimmed,omitempty"`  // with the D bit; they count in nothing else
	Inserted     uint64    `json:"inserted,omitempty"` // of tags that no sender made

	// TruthMode is what the tags say, as they were written.
	TruthMode
	// Agree is how many tags say what a faithful fabric would have written, and Faithful
	// what all of them would say then. Absent where all devices are complete.
	Agree    *uint64        `json:"agree,omitempty"`
	Faithful *TruthFaithful `json:"faithful,omitempty"`
}

// TruthFaithful is what the tags of senders would say in a fabric of complete devices
// with the same queues: the true bottlenecks. Inserted tags are not among them.
type TruthFaithful struct {
	Observations uint64 `json:"observations"`
	TruthMode
}

// TruthMode is what tags or reflections say together.
type TruthMode struct {
	Untouched uint64 `json:"untouched"`
	Heavy     uint64 `json:"heavy"`
	Sum       uint64 `json:"sum"`
	HeavySum  uint64 `json:"heavy_sum"`

	// The mode of the bottleneck; absent when nothing was heavy.
	Bottleneck      string            `json:"bottleneck,omitempty"`
	BottleneckCount uint64            `json:"bottleneck_count,omitempty"`
	BottleneckValue float64           `json:"bottleneck_value,omitempty"`
	Stage           string            `json:"stage,omitempty"`
	Ties            []string          `json:"ties,omitempty"`
	Ports           map[string]uint64 `json:"ports,omitempty"` // heavy observations by port
}

// TruthPort is what one switch port did in one window.
type TruthPort struct {
	Kind          string    `json:"kind"`
	WindowStart   time.Time `json:"window_start"`
	Port          string    `json:"port"`
	Bytes         uint64    `json:"bytes"`
	CapacityKbps  uint64    `json:"capacity_kbps"`
	Load          float64   `json:"load"` // share of the window in which the link was busy
	Drops         uint64    `json:"drops"`
	MaxQueueBytes uint64    `json:"max_queue_bytes"`

	Trimmed  uint64 `json:"trimmed,omitempty"`  // packets that were cut to their headers
	Discards uint64 `json:"discards,omitempty"` // tagged packets that the device dropped
	Stripped uint64 `json:"stripped,omitempty"` // tags
	Inserted uint64 `json:"inserted,omitempty"` // tags
}

// TruthFlow is one connection of the run, with both directions' packets.
type TruthFlow struct {
	Kind    string `json:"kind"`
	Src     string `json:"src"` // host that sends data
	Dst     string `json:"dst"`
	SrcIP   string `json:"src_ip"`
	DstIP   string `json:"dst_ip"`
	SrcPort uint16 `json:"src_port"`
	DstPort uint16 `json:"dst_port"`

	Forward []string `json:"forward"` // ports of switches that data passes
	Reverse []string `json:"reverse"` // and acknowledgements

	// Sent = Delivered + Dropped + InFlight.
	Sent      uint64 `json:"sent"`
	Delivered uint64 `json:"delivered"`
	Dropped   uint64 `json:"dropped"`
	InFlight  uint64 `json:"in_flight"`
	Trimmed   uint64 `json:"trimmed,omitempty"`
}

// TruthBehavior is one port that behaves otherwise than a complete device, or a host
// that forges tags.
type TruthBehavior struct {
	Kind    string    `json:"kind"`
	Device  string    `json:"device"`
	Port    string    `json:"port,omitempty"`
	What    string    `json:"what"` // kind of Behavior
	Signals []string  `json:"signals,omitempty"`
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
}

func newTruthHeader(s *Scenario, of *taps) TruthHeader {
	h := TruthHeader{
		Kind: TruthHeaderKind, Version: 1, Scenario: s.Name, Seed: s.Seed,
		Start: s.Start.UTC(), DurationNS: s.Duration.Nanoseconds(), WindowNS: s.Window.Nanoseconds(),
		ABWIntervalNS: s.ABWInterval.Nanoseconds(), Layout: s.Layout.String(), Locator: s.Locator,
		Units: map[string]string{},
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
			"load":             "share of the window in which the port's link was busy",
			"max_queue_bytes":  "most bytes that waited or were on their way out, the arriving packet included",
			"trimmed":          "observations with the D bit: they count in observations and nowhere else; of ports: packets cut to their headers",
			"inserted":         "observations of tags that no sender made",
			"agree":            "observations whose value and locator metadata are those of a faithful fabric",
			"faithful":         "the same for what devices with complete support would have written into the senders' tags, with the same queues",
			"lm:N":             "in place of a port: locator metadata that is configured on none or on several, and not by the writer",
		},
	}
	for i := range of.list {
		t := &of.list[i]
		h.Taps = append(h.Taps, TruthTap{
			Name: t.Name, Place: t.place,
			OffsetNS: t.Offset.Nanoseconds(), DriftPPB: t.Drift, JitterNS: t.Jitter.Nanoseconds(),
			Frames: t.stats.Frames, Captured: t.stats.Captured, Lost: t.stats.Lost,
			Duplicated: t.stats.Duplicated, Reordered: t.stats.Reordered,
		})
	}
	for _, signal := range s.Signals {
		h.Units[signal.String()] = storedUnits[signal.Unit()]
	}
	return h
}

// TruthVisitor takes the lines of a truth file; nil members are skipped. Each call
// owns its argument.
type TruthVisitor struct {
	Header func(TruthHeader) error
	Cell   func(TruthCell) error
	Port   func(TruthPort) error
	Flow   func(TruthFlow) error
	// Behavior takes lines of the kinds device and fault.
	Behavior func(TruthBehavior) error
}

// ReadTruth reads truth.ndjson in order. Errors name the line.
func ReadTruth(r io.Reader, v TruthVisitor) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 16<<20)
	for n := 1; lines.Scan(); n++ {
		if err := v.line(lines.Bytes()); err != nil {
			return fmt.Errorf("read truth line %d: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read truth: %w", err)
	}
	return nil
}

func (v *TruthVisitor) line(b []byte) error {
	var line struct {
		Kind string `json:"kind"`
	}
	if err := json.Unmarshal(b, &line); err != nil {
		return err
	}
	switch line.Kind {
	case TruthHeaderKind:
		return visit(b, v.Header)
	case TruthCellKind:
		return visit(b, v.Cell)
	case TruthPortKind:
		return visit(b, v.Port)
	case TruthFlowKind:
		return visit(b, v.Flow)
	case TruthDeviceKind, TruthFaultKind:
		return visit(b, v.Behavior)
	}
	return errors.New("kind: expected header, device, fault, cell, port or flow")
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
