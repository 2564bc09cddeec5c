// Package simulation moves packets through the fabric of a scenario. It passes captured packets to
// package frames and the true state to package truth. It knows queues, senders and receivers, and
// how switches update tags (draft-ravi-ippm-csig-01, sections 4.3 and 5). It must never know how
// observations are aggregated or stored: it is the oracle of those packages' tests.
//
// It simulates discrete events in picoseconds. Every port is a first-in first-out queue with a
// speed and a tail-drop buffer; packets are stored and forwarded. The head of a queue is on the
// link and delays between ports are constant, so its arrival time is known and a hop costs one
// event. All packets in the network stay in the rings of their ports: memory depends on the
// fabric's buffers, not on the duration of the run. A packet that finds a buffer full is dropped
// or, with Scenario.TrimBuffer, trimmed to its headers; every port sends trimmed packets before
// whole ones, as in Ultra Ethernet.
//
// Senders follow a rate or a congestion window. They never retransmit, so lost packets stay lost. A
// receiver acknowledges the data that it has. Devices have complete native support unless
// Scenario.Devices or Scenario.Faults say otherwise.
//
// Run writes captures, scenario.FabricFile and truth.File. With Scenario.Counters it also writes
// the ports' measurements to CountersFile, in the form that package decode/conform reads; with
// Scenario.FlowTrace it also writes each flow's progress to truth.TraceFile.
package simulation

import (
	"context"
	"iter"
	"math"
	"time"

	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay/emitter/exact"
	"github.com/csigscope/csigscope/replay/emitter/frames"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
	"github.com/csigscope/csigscope/replay/emitter/truth"
)

// sim holds the state of one run.
type sim struct {
	scenario scenario.Scenario
	topology *scenario.Topology
	signals  []scenario.Signal
	pipeline int64 // ps
	end      int64 // ps
	startNS  int64
	now      int64 // ps, of the present event; at the end, of the run

	ports    []port
	arriving *eventQueue // by port
	flows    []flow
	sending  *eventQueue // by flow

	framer      frames.Framer
	segment     frames.Segment   // the packet being captured
	points      []scenario.Point // by port
	propagation int64            // ps
	taps        *frames.Taps
	truth       *truth.Recorder
	carried     bool      // queues were carried into the next window of the truth
	trace       *trace    // nil: no flow trace
	counters    *counters // nil: no counters
	timeline    *timeline
	watchful    bool // some port may be unfaithful, or tags may be frozen
	freezes     bool // trimmed packets have a D bit

	marking exact.Random // of ECN

	sent, delivered, dropped, captured, capturedBytes uint64
}

// progressEvery is the number of events between checks of the context.
const progressEvery = 1 << 16

// run handles events until the end of the run, the packet limit, or the end of ctx.
func (s *sim) run(ctx context.Context, progress func(done float64, packets uint64)) error {
	if err := s.truth.Behaviors(s.timeline.items, s.timeline.ports); err != nil {
		return err
	}
	for events := 1; ; events++ {
		more, err := s.step()
		if err != nil {
			return err
		}
		if !more {
			return s.finish()
		}
		if events%progressEvery == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
			progress(s.done(), s.captured)
		}
	}
}

// step handles the next event; packets move before new ones are sent. It returns false when the run
// is over.
func (s *sim) step() (more bool, err error) {
	port, arrival := s.arriving.next()
	flow, sending := s.sending.next()
	s.now = min(arrival, sending)
	if s.now >= s.end {
		s.now = s.end
		return false, nil
	}
	if s.now >= s.timeline.next {
		if err := s.timeline.change(s.now, s.ports); err != nil {
			return false, err
		}
	}
	for s.now >= s.truth.End {
		s.carryQueues()
		if !s.truth.Due(s.now) {
			break
		}
		if err := s.closeWindow(); err != nil {
			return false, err
		}
	}
	if arrival > sending {
		s.send(flow, s.now)
		return true, nil
	}
	err = s.arrive(port, s.now)
	return s.captured < s.scenario.Packets || s.scenario.Packets == 0, err
}

func (s *sim) done() float64 {
	done := float64(s.now) / float64(s.end)
	if s.scenario.Packets > 0 {
		done = max(done, float64(s.captured)/float64(s.scenario.Packets))
	}
	return done
}

// finish accounts for packets that are on links at the end, and writes the rest of the truth.
func (s *sim) finish() error {
	end := s.now
	for i := range s.ports {
		p := &s.ports[i]
		for n := p.head; n != p.tail; n++ {
			k := p.at(n)
			if k.started >= end {
				break
			}
			to := min(k.started+exact.Serialization(uint32(k.length), p.kbps), end)
			s.truth.Sent(&p.stats, k.started, to, exact.MulDiv(uint64(to-k.started), p.kbps, 8e9))
		}
	}
	for last := false; !last; {
		if last = s.truth.End >= end; !last {
			s.carryQueues()
		}
		if err := s.closeWindow(); err != nil {
			return err
		}
	}
	for i := range s.flows {
		if err := s.truth.Flow(s.flowTruth(&s.flows[i])); err != nil {
			return err
		}
	}
	return nil
}

// counts returns the truth's counts of a port.
func (s *sim) counts(port int) *[2]truth.PortStats { return &s.ports[port].stats }

// carryQueues starts the next window of the truth with the queues at the end of the present one. It
// must be called when no more packets enter a queue in the present window.
func (s *sim) carryQueues() {
	if s.carried {
		return
	}
	s.carried = true
	next := s.truth.Side(s.truth.End)
	for i := range s.ports {
		p := &s.ports[i]
		p.stats[next].MaxQueue = max(p.stats[next].MaxQueue, p.backlog(s.truth.End))
	}
}

// closeWindow writes the present window of the truth.
func (s *sim) closeWindow() error {
	side := s.truth.Side(s.truth.End - 1)
	err := s.truth.CloseWindow(s.counts, s.paths(side))
	for i := range s.flows {
		s.flows[i].entered[side], s.flows[i].enteredBack[side] = false, false
	}
	s.carried = false
	return err
}

// paths yields the cells and paths of flows whose packets entered switches in a window and can be
// measured by tags: data, and acknowledgements if these carry tags.
func (s *sim) paths(side int) iter.Seq2[int32, []int32] {
	return func(yield func(cell int32, ports []int32) bool) {
		for i := range s.flows {
			f := &s.flows[i]
			if f.entered[side] {
				if !yield(f.cell, f.forward.Hops()) {
					return
				}
				for j := range f.tagged {
					if !yield(f.cell, f.tagged[j].Hops()) {
						return
					}
				}
			}
			if f.enteredBack[side] && s.scenario.TagAcks && !yield(f.cellBack, f.reverse.Hops()) {
				return
			}
		}
	}
}

// arrive moves the head of a port to its next queue or to its receiver. It accounts for the port's
// part of the journey only now, when all packets that entered the port before this one left are
// known.
func (s *sim) arrive(number int32, now int64) error {
	p := &s.ports[number]
	k := p.dequeue(now)
	behind := int64(k.behind)
	finished := k.arrives - p.latency
	if p.transit {
		if k.ecn == ecnCapable && !k.ack && s.scenario.ECNMax > 0 {
			s.markECN(&k, behind)
		}
		p.meter.advance(k.started)
		if k.tag.Set {
			s.transit(number, p, &k, behind)
		}
		p.meter.add(k.started, finished)
		s.truth.Sent(&p.stats, k.started, finished, uint64(k.length))
	}
	s.arriving.set(number, p.nextArrival())
	f := &s.flows[k.flow]
	r := f.route(&k)
	if at := s.taps.At[number]; len(at) > 0 {
		if err := s.tapped(at, number, f, r, &k, finished); err != nil {
			return err
		}
	}
	k.length -= s.encapOverhead(f, k.hop, r.N)
	k.hop++
	if k.hop < r.N {
		k.length += s.encapOverhead(f, k.hop, r.N)
		s.enter(r.Ports[k.hop], now, &k)
		return nil
	}
	return s.deliver(f, now, &k)
}

// stamp returns a host's TCP timestamp, in milliseconds.
func (s *sim) stamp(now int64) uint32 {
	return uint32((s.startNS + now/1000) / int64(time.Millisecond))
}

// newSim builds the network and its flows. It writes nothing; run does.
func newSim(s scenario.Scenario, t *scenario.Topology, flows []flow, signals []scenario.Signal, d *csig.Domain) (*sim, error) {
	styles, _, err := s.Styles()
	if err != nil {
		return nil, err
	}
	framer, err := frames.NewFramer(s.Layout, scenario.TPIDOf(s.Layout), d.Reflections()[0], styles)
	if err != nil {
		return nil, err
	}
	m := &sim{
		marking:  exact.Derive(s.Seed, 6),
		scenario: s, topology: t, signals: signals, flows: flows,
		pipeline: exact.Picoseconds(s.Pipeline), propagation: exact.Picoseconds(s.Propagation), end: exact.Picoseconds(s.Duration), startNS: s.Start.UnixNano(),
		arriving: newEventQueue(len(t.Ports) + len(t.NICs)), sending: newEventQueue(len(flows)),
		framer: framer, points: t.Points(),
	}
	m.timeline = newTimeline(&m.scenario, t, signals)
	m.freezes = s.Freezes()
	m.watchful = s.Watchful()
	for i := range t.Ports {
		latency := exact.Picoseconds(s.Propagation)
		if t.Ports[i].PeerNode != scenario.None {
			latency += m.pipeline
		}
		m.ports = append(m.ports, port{
			kbps: uint64(t.Ports[i].Speed), latency: latency, buffer: s.Buffer(&t.Ports[i]), reserve: s.TrimBuffer,
			transit: true,
		})
	}
	for _, facing := range t.NICs {
		m.ports = append(m.ports, port{
			kbps: uint64(t.Ports[facing].Speed), latency: exact.Picoseconds(s.Propagation) + m.pipeline, buffer: s.NICBufferBytes,
		})
	}
	m.timeline.meters(m.ports[:len(t.Ports)])
	for i := range flows {
		flows[i].overhead = uint16(framer.Overhead(flows[i].style))
		m.open(int32(i), &flows[i])
	}
	return m, nil
}

// never is later than any event.
const never = math.MaxInt64

// eventQueue holds the next event time of each of a fixed number of sources and finds the earliest. On
// a tie the lowest source wins. It is a winner tree: an update takes logarithmic time in the number
// of sources and allocates nothing.
type eventQueue struct {
	at     []int64 // by source
	winner []int32 // nodes of the tree; the leaves are the second half
	size   int
}

func newEventQueue(sources int) *eventQueue {
	size := 1
	for size < sources {
		size *= 2
	}
	a := &eventQueue{at: make([]int64, size), winner: make([]int32, 2*size), size: size}
	for i := range a.at {
		a.at[i] = never
		a.winner[size+i] = int32(i)
	}
	for n := size - 1; n > 0; n-- {
		a.winner[n] = a.winner[2*n]
	}
	return a
}

// next returns the earliest source and its time.
func (a *eventQueue) next() (source int32, at int64) {
	source = a.winner[1]
	return source, a.at[source]
}

// set changes the time of a source's next event.
func (a *eventQueue) set(source int32, at int64) {
	a.at[source] = at
	for n := (int(source) + a.size) / 2; n > 0; n /= 2 {
		w, other := a.winner[2*n], a.winner[2*n+1]
		if a.at[other] < a.at[w] {
			w = other
		}
		if a.winner[n] == w && w != source {
			return
		}
		a.winner[n] = w
	}
}

// randomFlows writes tagged packets of random flows with random codes and locator metadata, evenly
// over the duration. It simulates nothing and has no truth: it is the worst input for an
// aggregator.
func (s *sim) randomFlows(ctx context.Context, progress func(done float64, packets uint64)) error {
	rng := exact.Derive(s.scenario.Seed, 3)
	hosts := uint64(s.topology.Hosts())
	tuples := make([]scenario.FiveTuple, s.scenario.RandomFlows)
	destination := make([]int, len(tuples))
	for i := range tuples {
		src, dst := int(rng.Below(hosts)), int(rng.Below(hosts))
		destination[i] = dst
		tuples[i] = scenario.FiveTuple{
			Src: s.topology.Address(src), Dst: s.topology.Address(dst),
			SrcPort: uint16(firstSourcePort + rng.Below(60000)), DstPort: firstTargetPort,
		}
	}
	total := s.scenario.Packets
	step := max(s.scenario.Duration.Nanoseconds()/int64(total), 1)
	for n := range total {
		flow := rng.Below(uint64(len(tuples)))
		if err := s.randomPacket(&rng, tuples[flow], destination[flow], int64(n)*step); err != nil {
			return err
		}
		if n%progressEvery == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
			progress(float64(n)/float64(total), n)
		}
	}
	s.now = int64(total) * step * 1000
	return nil
}

func (s *sim) randomPacket(rng *exact.Random, tuple scenario.FiveTuple, dst int, ns int64) error {
	index := uint8(rng.Below(uint64(len(s.signals))))
	sig := &s.signals[index]
	m := truth.Tag{
		Code: uint32(rng.Below(uint64(sig.Table.Codes()))), Signal: index, Set: true,
		LM: uint16(rng.Below(1 << s.scenario.Layout.LMBits())),
	}
	port := s.topology.Downlink(dst)
	g := &s.segment
	*g = frames.Segment{
		MACs: s.points[port].MACs, Tuple: tuple, ID: uint32(s.sent), Hops: 3, Tagged: true,
		Sequence: uint32(rng.Next()), Ack: 1, Stamp: uint32(ns / int64(time.Millisecond)),
		Length: frames.EthernetLen + s.scenario.MTU + s.framer.TagLen(),
		Tag:    wireTag(sig, s.scenario.Layout, &m),
	}
	s.sent++
	s.delivered++
	return s.capture(s.taps.At[port], s.startNS+ns)
}
