package emitter

import "fmt"

const (
	firstSourcePort = 1024
	firstTargetPort = 5001
)

// pairs adds the connections of n pairs of hosts, of which each sender has so many.
func (b *builder) pairs(w *Workload, index, perSender, n int, pair func(i int) edge) error {
	connections := max(w.Connections, 1)
	if n*connections > maxFlows-len(b.flows) {
		return fmt.Errorf("%d flows: a scenario has at most %d", n*connections+len(b.flows), maxFlows)
	}
	for i := range n {
		e := pair(i)
		for range connections {
			if err := b.flow(w, index, perSender*connections, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// edges adds the connections of a collective's edges. Edges of one sender that are
// active at the same time share its rate.
func (b *builder) edges(w *Workload, index int, edges []edge) error {
	connections := max(w.Connections, 1)
	if len(edges)*connections > maxFlows-len(b.flows) {
		return fmt.Errorf("%d flows: a scenario has at most %d", len(edges)*connections+len(b.flows), maxFlows)
	}
	for _, e := range edges {
		for range connections {
			if err := b.flow(w, index, max(e.share, 1)*connections, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// flow adds one connection, which has one part in share of its sender's rate.
func (b *builder) flow(w *Workload, index, share int, e edge) error {
	s, t := b.scenario, b.topology
	number := uint64(len(b.flows))
	rng := stream(s.Seed, 2, number)
	sourcePort := firstSourcePort + b.nextPort[e.src]
	b.nextPort[e.src]++
	if w.Rate > 0 && uint64(w.Rate)*1000 < uint64(share) {
		return fmt.Errorf("rate %s: is less than 1 bit/s for each of the %d flows of a sender", w.Rate, share)
	}
	if sourcePort > 0xffff {
		return fmt.Errorf("host %s: has no source port left for another flow", t.hostName(e.src))
	}
	f := flow{
		tuple: fiveTuple{
			src: t.address(e.src), dst: t.address(e.dst),
			srcPort: uint16(sourcePort), dstPort: uint16(firstTargetPort + index),
		},
		src: int32(e.src), dst: int32(e.dst),
		tagEvery:   int32(w.TagEvery),
		ackEvery:   int32(w.AckEvery),
		sequence:   uint32(rng.next()),
		ackSource:  uint32(rng.next()),
		tags:       uint32(rng.below(1 << 16)),
		ackTags:    uint32(rng.below(1 << 16)),
		acksToCopy: int32(s.RepeatAckEvery),
		dataLength: uint16(ethernetLen + w.PacketBytes),
		style:      b.styles[index],
	}
	if w.Transport == Pony {
		// Nothing says that a reflection over UDP is a copy: readers count it again.
		f.tuple.dstPort, f.acksToCopy = ponyPort, 0
	}
	f.back = style{pony: w.Transport == Pony}.opposite(f.tuple)
	f.untilTag = int32(rng.below(uint64(max(f.tagEvery, 1))))
	f.unacked = int32(rng.below(uint64(max(f.ackEvery, 1))))
	var err error
	if f.forward, err = t.route(s.Seed, f.tuple, e.src, e.dst); err != nil {
		return err
	}
	if f.reverse, err = t.route(s.Seed, f.back, e.dst, e.src); err != nil {
		return err
	}
	for i := range s.Signals {
		if !s.hashesTags() {
			break
		}
		r, err := t.routeTagged(s.Seed, f.tuple, e.src, e.dst, i+1)
		if err != nil {
			return err
		}
		f.tagged = append(f.tagged, r)
	}
	f.cell, f.cellBack = b.cell(e.src, e.dst), b.cell(e.dst, e.src)
	f.pace = b.pacing(w, index, share, &e, rng, uint64(f.dataLength))
	f.acknowledged, f.urgent = f.sequence, f.sequence
	if s.Reflect == ReflectWorst {
		f.summary = &summary{}
	}
	if err := b.transfers(w, &f, number); err != nil {
		return err
	}
	f.control, f.marks = w.Control, w.Control.marks()
	if n := int64(len(b.flows) + 1); s.FlowTrace > 0 && n*int64(s.Duration/s.FlowTrace) > maxSamples {
		return fmt.Errorf("flow_trace %s: gives more than %d samples", s.FlowTrace, maxSamples)
	}
	b.flows = append(b.flows, f)
	return nil
}

// pacing is when the flow's packets leave, as far as its workload says.
func (b *builder) pacing(w *Workload, index, share int, e *edge, rng random, length uint64) pacing {
	s := b.scenario
	p := pacing{
		irregular: w.Kind == Background,
		start:     ps(w.Start), end: ps(s.Duration),
		period: ps(w.Period), burst: ps(w.Burst),
		random: rng,
	}
	switch {
	case w.Interval > 0:
		p.gap = ps(w.Interval)
	case w.Rate > 0:
		p.gap = int64(mulDiv(length*8e9, uint64(share), uint64(w.Rate)))
	}
	if w.End > 0 {
		p.end = min(p.end, ps(w.End))
	}
	if e.burst > 0 {
		p.burst, p.steps.offset = e.burst, e.offset
	}
	p.steps.jitter = ps(w.Jitter)
	seed := stream(s.Seed, 4, uint64(index))
	p.steps.seed, p.steps.every = seed.next(), int64(w.StraggleEvery)
	for _, h := range w.Stragglers {
		if b.host(h) == e.src {
			p.steps.late = ps(w.Late)
		}
	}
	return p
}

func (b *builder) transfers(w *Workload, f *flow, number uint64) error {
	if w.Sizes == nil {
		return nil
	}
	sizes, err := w.Sizes.compile()
	if err != nil {
		return err
	}
	f.transfers = &transfers{sizes: sizes, think: ps(w.Think), count: -1, random: stream(b.scenario.Seed, 5, number)}
	if w.Transfers > 0 {
		f.transfers.count = int64(w.Transfers)
	}
	if first := f.transfers.begin(0); w.Period == 0 {
		f.pace.start += first
	}
	return nil
}
