package emitter

import (
	"context"
	"time"

	"github.com/csigscope/csigscope/decode/csig"
)

// sim is the state of one run.
type sim struct {
	scenario Scenario
	topology *topology
	signals  []signal
	pipeline int64 // ps
	end      int64 // ps
	startNS  int64
	now      int64 // ps, of the event being handled; in the end that of the run

	ports    []port
	arriving *agenda // by port
	flows    []flow
	sending  *agenda // by flow

	framer      framer
	segment     segment // of the packet that is being captured
	points      []point // by port
	propagation int64   // ps
	taps        *taps
	truth       *truth
	trace       *trace    // nil: no flow trace
	counters    *counters // nil: none are written
	timeline    *timeline
	watchful    bool // some port may be unfaithful, or tags may be frozen
	freezes     bool // trimmed packets have a D bit

	marking random // of ECN

	sent, delivered, dropped, captured, capturedBytes uint64
}

// progressEvery is the number of events between looks at the context.
const progressEvery = 1 << 16

// run moves time forward until the end, the packet limit, or the context's end.
func (s *sim) run(ctx context.Context, progress func(done float64, packets uint64)) error {
	if err := s.truth.behaviors(s.timeline); err != nil {
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

// step handles the next event; packets move before new ones are sent. It returns
// false when the run is over.
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
	for s.truth.due(s.now) {
		if err := s.truth.closeWindow(s.ports); err != nil {
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

// finish books the part of packets on links that left before the end, and writes
// what is left of the truth.
func (s *sim) finish() error {
	end := s.now
	for i := range s.ports {
		p := &s.ports[i]
		for n := p.head; n != p.tail; n++ {
			k := p.at(n)
			if k.started >= end {
				break
			}
			to := min(k.started+serialization(uint32(k.length), p.kbps), end)
			s.truth.sent(p, k.started, to, mulDiv(uint64(to-k.started), p.kbps, 8e9))
		}
	}
	for last := false; !last; {
		last = s.truth.end >= end
		if err := s.truth.closeWindow(s.ports); err != nil {
			return err
		}
	}
	return s.truth.flows(s)
}

// arrive takes the head of a port to its next queue or to its receiver. The port's
// part in its journey is accounted for here, when all that entered the port before
// the packet left it is known.
func (s *sim) arrive(number int32, now int64) error {
	p := &s.ports[number]
	k := *p.at(p.head)
	behind := p.dequeue(&k)
	finished := k.arrives - p.latency
	if p.transit {
		if k.ecn == ecnCapable && !k.ack && s.scenario.ECNMax > 0 {
			s.mark(&k, behind)
		}
		p.meter.advance(k.started)
		if k.tag.set {
			s.transit(number, p, &k, behind)
		}
		p.meter.add(k.started, finished)
		s.truth.sent(p, k.started, finished, uint64(k.length))
	}
	s.arriving.set(number, p.nextArrival())
	f := &s.flows[k.flow]
	r := f.route(&k)
	if at := s.taps.at[number]; len(at) > 0 {
		if err := s.tapped(at, number, f, r, &k, finished); err != nil {
			return err
		}
	}
	k.length -= s.around(f, k.hop, r.n)
	k.hop++
	if k.hop < r.n {
		k.length += s.around(f, k.hop, r.n)
		s.enter(r.ports[k.hop], now, &k)
		return nil
	}
	return s.deliver(f, now, &k)
}

// stamp is the TCP timestamp clock of a host, in milliseconds.
func (s *sim) stamp(now int64) uint32 {
	return uint32((s.startNS + now/1000) / int64(time.Millisecond))
}

// newSim builds the network and its flows; nothing is written before run.
func newSim(s Scenario, t *topology, flows []flow, signals []signal, d *csig.Domain) (*sim, error) {
	styles, _, err := s.styles()
	if err != nil {
		return nil, err
	}
	frames, err := newFramer(s.Layout, tpidOf(s.Layout), d.Reflections()[0], styles)
	if err != nil {
		return nil, err
	}
	m := &sim{
		marking:  stream(s.Seed, 6),
		scenario: s, topology: t, signals: signals, flows: flows,
		pipeline: ps(s.Pipeline), propagation: ps(s.Propagation), end: ps(s.Duration), startNS: s.Start.UnixNano(),
		arriving: newAgenda(len(t.ports) + len(t.nics)), sending: newAgenda(len(flows)),
		framer: frames, points: t.points(),
	}
	if m.timeline, err = newTimeline(&m.scenario, t, signals); err != nil {
		return nil, err
	}
	m.freezes = s.freezes()
	m.watchful = s.watchful()
	for i := range t.ports {
		latency := ps(s.Propagation)
		if t.ports[i].peerNode != none {
			latency += m.pipeline
		}
		buffer := s.BufferBytes
		if own := t.ports[i].buffer; own > 0 {
			buffer = own
		}
		m.ports = append(m.ports, port{
			kbps: uint64(t.ports[i].speed), latency: latency, buffer: buffer,
			transit: true,
		})
	}
	for _, facing := range t.nics {
		m.ports = append(m.ports, port{
			kbps: uint64(t.ports[facing].speed), latency: ps(s.Propagation) + m.pipeline, buffer: s.NICBufferBytes,
		})
	}
	m.timeline.meters(m.ports[:len(t.ports)])
	for i := range flows {
		flows[i].overhead = uint16(frames.overhead(flows[i].style))
		m.open(int32(i), &flows[i])
	}
	return m, nil
}
