package emitter

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/csigscope/csigscope/decode/csig"
)

// FlowsFile is the name of the file that Scenario.FlowTrace asks for.
const FlowsFile = "flows.ndjson"

// maxSamples bounds the lines of a flow trace.
const maxSamples = 4_000_000

// Kinds of lines in flows.ndjson.
const (
	FlowKind   = "flow"
	SampleKind = "sample"
)

// FlowLine describes a flow; those of all flows come first in flows.ndjson.
type FlowLine struct {
	Kind    string `json:"kind"`
	Flow    int    `json:"flow"` // from 1
	Src     string `json:"src"`  // names of hosts
	Dst     string `json:"dst"`
	SrcIP   string `json:"src_ip"`
	DstIP   string `json:"dst_ip"`
	SrcPort uint16 `json:"src_port"`
	DstPort uint16 `json:"dst_port"`
	// Transport is pony for flows over UDP, whose acknowledgements keep the ports.
	Transport Transport `json:"transport,omitempty"`
	Control   Control   `json:"control,omitempty"`
	// Path is the switch ports that data passes, in order.
	Path []string `json:"path"`
	// IdleRoundTripNS is what a packet and its acknowledgement take without queues.
	IdleRoundTripNS int64 `json:"idle_round_trip_ns"`
	// TargetNS is the sender's target delay without flow scaling: of the round trip,
	// or of the worst hop.
	TargetNS int64 `json:"target_ns,omitempty"`
}

// SampleLine is what a flow did in one interval. Delays are means, absent without
// packets to measure them.
type SampleLine struct {
	Kind       string    `json:"kind"`
	Start      time.Time `json:"start"`
	IntervalNS int64     `json:"interval_ns"`
	Flow       int       `json:"flow"`
	// Bytes is the data that arrived at the receiver, headers not included.
	Bytes   uint64 `json:"bytes"`
	Packets uint64 `json:"packets"`
	// OneWayNS is from the sender's link to the receiver, RoundTripNS from there to
	// the acknowledgement's arrival.
	OneWayNS    int64 `json:"one_way_ns,omitempty"`
	RoundTripNS int64 `json:"round_trip_ns,omitempty"`
	// WorstHopNS is max(PD) as reflections told the sender.
	WorstHopNS int64 `json:"worst_hop_ns,omitempty"`
	// WindowMilli is the congestion window in thousandths of packets.
	WindowMilli int64 `json:"window_milli,omitempty"`
}

// trace writes what each flow did, interval by interval.
type trace struct {
	file     *os.File
	out      *bufio.Writer
	json     *json.Encoder
	err      error // the first one
	interval int64 // ps
	end      int64 // of the present interval, ps
	startNS  int64
	flows    []flowTally
}

// flowTally adds up one flow in one interval. Delays are nanoseconds.
type flowTally struct {
	bytes, packets, acks, hops  uint64
	oneWay, roundTrip, worstHop int64
}

// openTrace begins the flow trace, if the scenario asks for one.
func (s *sim) openTrace(r *Report, dir string) error {
	if s.scenario.FlowTrace == 0 {
		return nil
	}
	r.FlowTrace = filepath.Join(dir, FlowsFile)
	file, err := os.Create(r.FlowTrace)
	if err != nil {
		return fmt.Errorf("create flow trace: %w", err)
	}
	t := &trace{
		file: file, out: bufio.NewWriterSize(file, captureBuffer), interval: ps(s.scenario.FlowTrace),
		end: ps(s.scenario.FlowTrace), startNS: s.startNS, flows: make([]flowTally, len(s.flows)),
	}
	t.json = json.NewEncoder(t.out)
	for i := range s.flows {
		t.write(s.flowLine(i))
	}
	s.trace = t
	return nil
}

func (s *sim) flowLine(i int) FlowLine {
	f := &s.flows[i]
	version := s.framer.styles[f.style].ip
	line := FlowLine{
		Kind: FlowKind, Flow: i + 1,
		Src: s.topology.hostName(int(f.src)), Dst: s.topology.hostName(int(f.dst)),
		SrcIP: addressOf(version, f.tuple.src).String(), DstIP: addressOf(version, f.tuple.dst).String(), SrcPort: f.tuple.srcPort, DstPort: f.tuple.dstPort,
		IdleRoundTripNS: s.idleRoundTrip(f),
	}
	if s.framer.styles[f.style].pony {
		line.Transport = Pony
	}
	for _, p := range f.forward.ports[1:f.forward.n] {
		line.Path = append(line.Path, s.topology.ports[p].name())
	}
	if w := f.window; w != nil {
		line.TargetNS, line.Control = w.base+w.target, f.control
	}
	return line
}

// arrived counts a data packet that reached its receiver.
func (t *trace) arrived(s *sim, now int64, k *packet, bytes uint32) {
	t.advance(s, now)
	a := &t.flows[k.flow]
	a.bytes += uint64(bytes)
	a.packets++
	a.oneWay += k.age(now)
}

// heard counts an acknowledgement that reached the sender.
func (t *trace) heard(s *sim, now int64, k *packet) {
	t.advance(s, now)
	a := &t.flows[k.flow]
	a.acks++
	a.roundTrip += k.age(now)
	if k.reflects.set && s.signals[k.reflects.signal].kind == csig.MaxDelay {
		a.hops++
		a.worstHop += int64(s.signals[k.reflects.signal].table.Value(k.reflects.code))
	}
}

// advance writes the intervals that end at or before now.
func (t *trace) advance(s *sim, now int64) {
	for now >= t.end {
		start := time.Unix(0, t.startNS+(t.end-t.interval)/1000).UTC()
		for i := range t.flows {
			a := &t.flows[i]
			line := SampleLine{
				Kind: SampleKind, Start: start, IntervalNS: t.interval / 1000, Flow: i + 1, Bytes: a.bytes, Packets: a.packets,
				OneWayNS: mean(a.oneWay, a.packets), RoundTripNS: mean(a.roundTrip, a.acks), WorstHopNS: mean(a.worstHop, a.hops),
			}
			if w := s.flows[i].window; w != nil {
				line.WindowMilli = w.size * 1000 / packetOne
			}
			t.write(line)
			*a = flowTally{}
		}
		t.end += t.interval
	}
}

func mean(sum int64, n uint64) int64 {
	if n == 0 {
		return 0
	}
	return sum / int64(n)
}

func (t *trace) write(line any) {
	if t.err == nil {
		t.err = t.json.Encode(line)
	}
}

// closeTrace writes the intervals up to the end of the run and reports the first
// error. Without a trace it does nothing.
func (s *sim) closeTrace() error {
	t := s.trace
	if t == nil {
		return nil
	}
	t.advance(s, s.now)
	if err := errors.Join(t.err, t.out.Flush(), t.file.Close()); err != nil {
		return fmt.Errorf("write flow trace: %w", err)
	}
	return nil
}

// FlowVisitor takes the lines of flows.ndjson; nil members are skipped.
type FlowVisitor struct {
	Flow   func(FlowLine) error
	Sample func(SampleLine) error
}

// ReadFlows reads flows.ndjson in order. Errors name the line.
func ReadFlows(r io.Reader, v FlowVisitor) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		if err := v.line(lines.Bytes()); err != nil {
			return fmt.Errorf("read flows line %d: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read flows: %w", err)
	}
	return nil
}

func (v *FlowVisitor) line(b []byte) error {
	var line struct {
		Kind string `json:"kind"`
	}
	if err := json.Unmarshal(b, &line); err != nil {
		return err
	}
	switch line.Kind {
	case FlowKind:
		return visit(b, v.Flow)
	case SampleKind:
		return visit(b, v.Sample)
	}
	return errors.New("kind: expected flow or sample")
}
