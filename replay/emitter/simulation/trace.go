package simulation

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay/emitter/exact"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
	"github.com/csigscope/csigscope/replay/emitter/truth"
)

// maxSamples bounds the lines of a flow trace.
const maxSamples = 4_000_000

// trace writes each flow's progress, interval by interval.
type trace struct {
	file     *os.File
	out      *bufio.Writer
	json     *json.Encoder
	err      error // the first one
	interval int64 // ps
	end      int64 // end of the present interval, ps
	startNS  int64
	flows    []flowTally
}

// flowTally sums up one flow in one interval. Delays are nanoseconds.
type flowTally struct {
	bytes, packets, acks, hops  uint64
	oneWay, roundTrip, worstHop int64
}

// openTrace creates the flow trace if the scenario requests one.
func (s *sim) openTrace(r *Report, dir string) error {
	if s.scenario.FlowTrace == 0 {
		return nil
	}
	r.FlowTrace = filepath.Join(dir, truth.TraceFile)
	file, err := os.Create(r.FlowTrace)
	if err != nil {
		return fmt.Errorf("create flow trace: %w", err)
	}
	t := &trace{
		file: file, out: bufio.NewWriterSize(file, truth.FileBuffer), interval: exact.Picoseconds(s.scenario.FlowTrace),
		end: exact.Picoseconds(s.scenario.FlowTrace), startNS: s.startNS, flows: make([]flowTally, len(s.flows)),
	}
	t.json = json.NewEncoder(t.out)
	for i := range s.flows {
		t.write(s.flowLine(i))
	}
	s.trace = t
	return nil
}

func (s *sim) flowLine(i int) truth.TraceFlow {
	f := &s.flows[i]
	version := s.framer.StyleOf(f.style).IP
	line := truth.TraceFlow{
		Kind: truth.TraceFlowKind, Flow: i + 1,
		Src: s.topology.HostName(int(f.src)), Dst: s.topology.HostName(int(f.dst)),
		SrcIP: scenario.AddressOf(version, f.tuple.Src).String(), DstIP: scenario.AddressOf(version, f.tuple.Dst).String(), SrcPort: f.tuple.SrcPort, DstPort: f.tuple.DstPort,
		IdleRoundTripNS: s.idleRoundTrip(f),
	}
	if s.framer.StyleOf(f.style).Pony {
		line.Transport = scenario.Pony
	}
	for _, p := range f.forward.Ports[1:f.forward.N] {
		line.Path = append(line.Path, s.topology.Ports[p].Name())
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
	if k.reflects.Set && s.signals[k.reflects.Signal].Kind == csig.MaxDelay {
		a.hops++
		a.worstHop += int64(s.signals[k.reflects.Signal].Table.Value(k.reflects.Code))
	}
}

// advance writes the intervals that end at or before now.
func (t *trace) advance(s *sim, now int64) {
	for now >= t.end {
		start := time.Unix(0, t.startNS+(t.end-t.interval)/1000).UTC()
		for i := range t.flows {
			a := &t.flows[i]
			line := truth.TraceSample{
				Kind: truth.TraceSampleKind, Start: start, IntervalNS: t.interval / 1000, Flow: i + 1, Bytes: a.bytes, Packets: a.packets,
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

// closeTrace writes the intervals up to the end of the run and returns the first error. Without a
// trace it does nothing.
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

// CountersFile is the file name of the port metrics that Scenario.Counters requests.
const CountersFile = "counters.csv"

// counters writes the ports' true metrics behind the tags, as CSV with the header
// "time,port,signal,value". A line is written whenever the quantized value changes. Its time is
// when the first packet compared with the new value left (Unix ns, simulated clock), and it holds
// until the next line of the same port and signal. The value is empty if the port had no metric.
type counters struct {
	file    *os.File
	out     *bufio.Writer
	line    []byte
	startNS int64
	signals int
	ports   []int32  // by port: index among the written ports, or None
	last    []uint64 // by index and signal: code+2, noMetric, or 0 at first
	names   []string // by index
}

const noMetric = 1 // in place of a code

// openCounters creates the counters file if the scenario requests one.
func (s *sim) openCounters(r *Report, dir string) error {
	if len(s.scenario.Counters) == 0 {
		return nil
	}
	c := &counters{startNS: s.startNS, signals: len(s.signals), ports: make([]int32, len(s.topology.Ports))}
	for i := range s.topology.Ports {
		p := &s.topology.Ports[i]
		c.ports[i] = scenario.None
		if s.scenario.Counted(p) {
			c.ports[i] = int32(len(c.names))
			c.names = append(c.names, p.Name())
		}
	}
	c.last = make([]uint64, len(c.names)*c.signals)
	r.Counters = filepath.Join(dir, CountersFile)
	var err error
	if c.file, err = os.Create(r.Counters); err != nil {
		return fmt.Errorf("create counters: %w", err)
	}
	c.out = bufio.NewWriterSize(c.file, truth.FileBuffer)
	_, _ = c.out.WriteString("time,port,signal,value\n") // bufio keeps the error for Flush
	s.counters = c
	return nil
}

// note writes the metric with which a port compares a packet's tag, if it changed. code is the
// port's own.
func (c *counters) note(s *sim, number int32, p *port, k *packet, code uint32, behind int64) {
	port := c.ports[number]
	if port == scenario.None {
		return
	}
	sig := &s.signals[k.tag.Signal]
	now := uint64(code) + 2
	if p.policy != nil && p.policy.missing>>k.tag.Signal&1 != 0 {
		now = noMetric
	}
	last := &c.last[int(port)*c.signals+int(k.tag.Signal)]
	if *last == now {
		return
	}
	*last = now
	c.line = strconv.AppendInt(c.line[:0], c.startNS+k.started/1000, 10)
	c.line = append(append(c.line, ','), c.names[port]...)
	c.line = append(append(append(c.line, ','), sig.Kind.String()...), ',')
	if now != noMetric {
		// Configured metrics and those programmed by software exist only as codes.
		value := s.metric(p, sig, k, behind)
		if sig.Table.Quantize(value) != code {
			value = sig.Table.Value(code)
		}
		c.line = appendQuantity(c.line, sig.Kind.Unit(), value)
	}
	_, _ = c.out.Write(append(c.line, '\n'))
}

// appendQuantity writes a stored integer in the form that csig.ParseQuantity reads.
func appendQuantity(b []byte, u csig.Unit, v uint64) []byte {
	switch u {
	case csig.BitPerSecond:
		return append(strconv.AppendUint(b, v, 10), "kbps"...)
	case csig.Ratio:
		return strconv.AppendFloat(b, float64(v)/1e6, 'f', -1, 64)
	}
	return append(strconv.AppendUint(b, v, 10), "ns"...)
}

// closeCounters returns the first error. Without counters it does nothing.
func (s *sim) closeCounters() error {
	if s.counters == nil {
		return nil
	}
	if err := errors.Join(s.counters.out.Flush(), s.counters.file.Close()); err != nil {
		return fmt.Errorf("write counters: %w", err)
	}
	return nil
}
