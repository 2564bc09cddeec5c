package simulation

import (
	"errors"
	"math"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/csigscope/csigscope/replay/emitter/exact"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
	"github.com/csigscope/csigscope/replay/emitter/truth"
)

// observedPort is the test's own measurement of a port in one window.
type observedPort struct {
	busy    int64
	longest uint64
}

// portWatch measures ports from the packets themselves.
type portWatch struct {
	window int64
	ports  map[[2]int64]*observedPort  // by window and port
	paths  map[[3]int64]map[int32]bool // ports by window and cell
}

func (w *portWatch) at(window int64, port int32) *observedPort {
	key := [2]int64{window, int64(port)}
	if w.ports[key] == nil {
		w.ports[key] = &observedPort{}
	}
	return w.ports[key]
}

// look records the length of all queues at a time.
func (w *portWatch) look(m *sim, now int64, entered bool) {
	for n := range m.topology.Ports {
		p := &m.ports[n]
		o := w.at(now/w.window, int32(n))
		o.longest = max(o.longest, p.backlog(now))
		if p.empty() || !entered {
			continue
		}
		if k := p.at(p.tail - 1); k.entered == now && !k.ack {
			f := &m.flows[k.flow]
			key := [3]int64{now / w.window, int64(m.topology.Rack(int(f.src))), int64(m.topology.Rack(int(f.dst)))}
			if w.paths[key] == nil {
				w.paths[key] = map[int32]bool{}
			}
			for _, hop := range f.forward.Hops() {
				w.paths[key][hop] = true
			}
		}
	}
}

// sent records the time that a packet was on a link.
func (w *portWatch) sent(port int32, from, to int64) {
	for from < to {
		part := min(to, (from/w.window+1)*w.window)
		w.at(from/w.window, port).busy += part - from
		from = part
	}
}

// The physical truth must be the exact average of the free bandwidth and the longest queue of the
// ports that a cell's packets entered, measured here packet by packet.
func TestPhysicalTruth(t *testing.T) {
	s := tiny()
	// Buffers never drop, so all packets that enter can be watched.
	s.BufferBytes, s.Duration = 1<<22, 600*time.Millisecond
	m, err := build(s.WithDefaults())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, truth.File)
	if err := errors.Join(m.taps.CreateFiles(&m.scenario, dir), m.truth.Create(path, nil)); err != nil {
		t.Fatal(err)
	}
	w := &portWatch{window: exact.Picoseconds(s.Window), ports: map[[2]int64]*observedPort{}, paths: map[[3]int64]map[int32]bool{}}
	for more, boundary := true, w.window; more; {
		port, arrival := m.arriving.next()
		_, sending := m.sending.next()
		for ; min(arrival, sending) >= boundary; boundary += w.window {
			w.look(m, boundary, false)
		}
		if p := &m.ports[port]; arrival <= sending && arrival < m.end && p.transit {
			k := p.at(p.head)
			w.sent(port, k.started, k.arrives-p.latency)
		}
		if more, err = m.step(); err != nil {
			t.Fatal(err)
		}
		if more {
			w.look(m, m.now, true)
		}
	}
	for n := range m.topology.Ports {
		for p, i := &m.ports[n], m.ports[n].head; i != p.tail; i++ {
			if k := p.at(i); k.started < m.now {
				w.sent(int32(n), k.started, min(k.arrives-p.latency, m.now))
			}
		}
	}
	if err := errors.Join(m.finish(), m.taps.Close(), m.truth.Close(nil)); err != nil {
		t.Fatal(err)
	}
	w.check(t, m, readTruth(t, path).physical)
}

func (w *portWatch) check(t *testing.T, m *sim, lines []truth.Physical) {
	t.Helper()
	if len(lines) != len(w.paths) || len(lines) < 15 {
		t.Errorf("%d cells of windows have a physical truth, %d were seen", len(lines), len(w.paths))
	}
	racks := map[string]int64{"rack1": 0, "rack2": 1, "rack3": 2}
	for _, line := range lines {
		window := line.WindowStart.Sub(m.scenario.Start).Nanoseconds() * 1000 / w.window
		free, ratio, delay, depth := math.Inf(1), math.Inf(1), 0.0, 0.0
		for port := range w.paths[[3]int64{window, racks[line.SrcGroup], racks[line.DstGroup]}] {
			o, speed := w.at(window, port), float64(m.topology.Ports[port].Speed)
			ppm := 1e6 * float64(w.window-o.busy) / float64(w.window)
			free, ratio = min(free, ppm*speed/1e6), min(ratio, ppm)
			delay, depth = max(delay, float64(o.longest)*8e6/speed), max(depth, 1e6*float64(o.longest)/float64(1<<22))
		}
		for i, pair := range [][2]float64{
			{line.MinABW.Value, free}, {line.MinABWRatio.Value, ratio}, {line.MaxDelay.Value, delay}, {line.MaxNQD.Value, depth},
		} {
			if math.Abs(pair[0]-pair[1]) > 1e-6*(1+pair[1]) {
				t.Errorf("%+v: measure %d is %f, counted %f", line, i, pair[0], pair[1])
			}
		}
	}
}

// A stuck meter must change the tags but not the physical truth.
func TestPhysicalTruthShowsWrongMeters(t *testing.T) {
	bottlenecks := func(faults ...scenario.Behavior) (said, physical string, value float64) {
		s := named(t, "incast")
		s.Duration, s.Faults = 3*time.Second, faults
		r, _ := run(t, s)
		file := readTruth(t, r.Truth)
		start := file.header.Start.Add(2 * time.Second)
		for _, c := range file.cells {
			if c.WindowStart.Equal(start) && c.Source == "tag" && c.Signal == "min_abw_ratio" && c.SrcGroup == "rack1" && c.DstGroup == "rack4" {
				said = c.Bottleneck
			}
		}
		i := slices.IndexFunc(file.physical, func(p truth.Physical) bool {
			return p.WindowStart.Equal(start) && p.SrcGroup == "rack1" && p.DstGroup == "rack4"
		})
		if i < 0 {
			t.Fatal("the cell has no physical truth")
		}
		return said, file.physical[i].MinABWRatio.Port, file.physical[i].MinABWRatio.Value
	}
	said, physical, value := bottlenecks()
	if said != "leaf4:down1" || physical != said || value > 10_000 {
		t.Errorf("tags say %s, ports %s with %f ppm; want leaf4:down1 for both", said, physical, value)
	}
	stuck := scenario.Behavior{Match: "leaf1:up*", Kind: scenario.Stuck, Values: map[string]string{"min_abw_ratio": "0%"}}
	wrong, still, same := bottlenecks(stuck)
	if wrong == said || still != physical || same != value {
		t.Errorf("with stuck meters tags say %s, ports %s with %f ppm", wrong, still, same)
	}
}

// A bottleneck whose heavy observations are all 0 must have the value 0.
func TestBottleneckValueOfZeroIsWritten(t *testing.T) {
	s := tiny()
	s.Faults = []scenario.Behavior{{Match: "leaf1:up*", Kind: scenario.Stuck, Values: map[string]string{"min_abw_ratio": "0%"}}}
	r, _ := run(t, s)
	zeros := 0
	for _, c := range readTruth(t, r.Truth).cells {
		if (c.Bottleneck == "") != (c.BottleneckValue == nil) {
			t.Errorf("%+v: a bottleneck without a value, or a value without one", c)
		}
		if c.BottleneckValue != nil && *c.BottleneckValue == 0 {
			zeros++
		}
	}
	if zeros == 0 {
		t.Error("no bottleneck has the value 0")
	}
}
