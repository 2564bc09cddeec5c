package emitter

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/csigscope/csigscope/decode/csig"
)

// CountersFile is the name of the file that Scenario.Counters asks for.
const CountersFile = "counters.csv"

// counters write what ports measured: the truth behind what they write into tags, as CSV
// with the header "time,port,signal,value". A value holds from its time, when the first
// packet left that it was compared for (Unix ns, on the clock of the simulation), until the
// next one of its port and signal, and is empty where the port had no metric. There is a
// line whenever the quantized value is another than before.
type counters struct {
	file    *os.File
	out     *bufio.Writer
	line    []byte
	startNS int64
	signals int
	ports   []int32  // by port: its place among those that are written, or none
	last    []uint64 // by place and signal: code and 2, noMetric, or 0 at first
	names   []string // by place
}

const noMetric = 1 // in place of a code

// openCounters begins the file of counters, if the scenario asks for one.
func (s *sim) openCounters(r *Report, dir string) error {
	if len(s.scenario.Counters) == 0 {
		return nil
	}
	c := &counters{startNS: s.startNS, signals: len(s.signals), ports: make([]int32, len(s.topology.ports))}
	for i := range s.topology.ports {
		p := &s.topology.ports[i]
		c.ports[i] = none
		if matches(s.scenario.Counters, p.device) || matches(s.scenario.Counters, p.name()) {
			c.ports[i] = int32(len(c.names))
			c.names = append(c.names, p.name())
		}
	}
	if len(c.names) == 0 {
		return fmt.Errorf("counters %q: match no port", s.scenario.Counters)
	}
	c.last = make([]uint64, len(c.names)*c.signals)
	r.Counters = filepath.Join(dir, CountersFile)
	var err error
	if c.file, err = os.Create(r.Counters); err != nil {
		return fmt.Errorf("create counters: %w", err)
	}
	c.out = bufio.NewWriterSize(c.file, captureBuffer)
	_, _ = c.out.WriteString("time,port,signal,value\n") // bufio keeps an error for Flush
	s.counters = c
	return nil
}

// note writes the metric of a port that a packet's tag is compared with, if it has changed.
// code is the port's own.
func (c *counters) note(s *sim, number int32, p *port, k *packet, code uint32, behind int64) {
	place := c.ports[number]
	if place == none {
		return
	}
	sig := &s.signals[k.tag.signal]
	now := uint64(code) + 2
	if p.policy != nil && p.policy.missing>>k.tag.signal&1 != 0 {
		now = noMetric
	}
	last := &c.last[int(place)*c.signals+int(k.tag.signal)]
	if *last == now {
		return
	}
	*last = now
	c.line = strconv.AppendInt(c.line[:0], c.startNS+k.started/1000, 10)
	c.line = append(append(c.line, ','), c.names[place]...)
	c.line = append(append(append(c.line, ','), sig.kind.String()...), ',')
	if now != noMetric {
		// What is configured, and what software has programmed, is known as a code alone.
		value := s.metric(p, sig, k, behind)
		if sig.table.Quantize(value) != code {
			value = sig.table.Value(code)
		}
		c.line = appendQuantity(c.line, sig.kind.Unit(), value)
	}
	_, _ = c.out.Write(append(c.line, '\n'))
}

// appendQuantity writes a stored integer as csig.ParseQuantity reads it.
func appendQuantity(b []byte, u csig.Unit, v uint64) []byte {
	switch u {
	case csig.BitPerSecond:
		return append(strconv.AppendUint(b, v, 10), "kbps"...)
	case csig.Ratio:
		return strconv.AppendFloat(b, float64(v)/1e6, 'f', -1, 64)
	}
	return append(strconv.AppendUint(b, v, 10), "ns"...)
}

// closeCounters reports the first error. Without counters it does nothing.
func (s *sim) closeCounters() error {
	if s.counters == nil {
		return nil
	}
	if err := errors.Join(s.counters.out.Flush(), s.counters.file.Close()); err != nil {
		return fmt.Errorf("write counters: %w", err)
	}
	return nil
}
