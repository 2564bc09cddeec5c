package truth

import (
	"fmt"
	"iter"
	"time"
)

// PhysicalKind is the kind of Physical lines.
const PhysicalKind = "physical"

// Physical names the physically tightest switch port in one window for the packets between two
// groups. It follows from the ports' state alone: busy time of links and length of queues. No
// meter, quantization table or tag takes part, so a wrong one becomes visible. The candidates are
// the ports that measurable packets entered in the window, including packets dropped there. On a
// tie the first port of the path wins.
type Physical struct {
	Kind        string    `json:"kind"`
	WindowStart time.Time `json:"window_start"`
	WindowNS    int64     `json:"window_ns"`
	SrcGroup    string    `json:"src_group"`
	DstGroup    string    `json:"dst_group"`

	MinABW      Tightest `json:"min_abw"`       // free kbit/s, averaged over the window
	MinABWRatio Tightest `json:"min_abw_ratio"` // the same in ppm of the capacity
	MaxDelay    Tightest `json:"max_delay"`     // ns that the longest queue takes to drain
	MaxNQD      Tightest `json:"max_nqd"`       // longest queue in ppm of the buffer
}

// Tightest is the tightest port by one measure, with its value.
type Tightest struct {
	Port  string  `json:"port"`
	Value float64 `json:"value"`
}

// measures of a port's state, in the order of Physical. Their signs make the largest the tightest.
type measures [4]float64

var tighterBy = measures{-1, -1, 1, 1}

// measure returns the state of a port in the present window.
func (t *Recorder) measure(port int32, s *PortStats) measures {
	p := &t.topology.Ports[port]
	window := t.windowNS * 1000
	free, whole := float64(window-s.busy), float64(window)
	return measures{
		free * float64(p.Speed) / whole, free * 1e6 / whole,
		float64(s.MaxQueue) * 8e6 / float64(p.Speed), float64(s.MaxQueue) * 1e6 / float64(t.scenario.Buffer(p)),
	}
}

// tightest holds the tightest ports of a cell in the present window.
type tightest struct {
	seen   bool
	ports  [4]int32
	values measures
}

func (c *tightest) add(port int32, now measures) {
	for i, v := range now {
		if !c.seen || v*tighterBy[i] > c.values[i]*tighterBy[i] {
			c.ports[i], c.values[i] = port, v
		}
	}
	c.seen = true
}

// closePhysical writes the physical truth of the present window. paths yields each cell with the
// switch ports that its packets entered, in path order.
func (t *Recorder) closePhysical(start time.Time, paths iter.Seq2[int32, []int32], counts func(port int) *[2]PortStats) error {
	for cell, ports := range paths {
		for _, p := range ports {
			t.tightest[cell].add(p, t.measure(p, &counts(int(p))[t.side]))
		}
	}
	for _, cell := range t.order {
		c := &t.tightest[cell]
		if !c.seen {
			continue
		}
		of := func(i int) Tightest { return Tightest{Port: t.topology.Ports[c.ports[i]].Name(), Value: c.values[i]} }
		racks := t.cells[cell]
		line := Physical{
			Kind: PhysicalKind, WindowStart: start, WindowNS: t.windowNS,
			SrcGroup: t.topology.RackName(int(racks[0])), DstGroup: t.topology.RackName(int(racks[1])),
			MinABW: of(0), MinABWRatio: of(1), MaxDelay: of(2), MaxNQD: of(3),
		}
		*c = tightest{}
		if err := t.json.Encode(line); err != nil {
			return fmt.Errorf("write truth: %w", err)
		}
	}
	return nil
}
