package emitter

import (
	"context"
	"time"
)

// randomFlows writes tagged packets of random flows with random codes and locator
// metadata, evenly over the duration. Nothing is simulated and nothing is true: it
// is the input that aggregates worst.
func (s *sim) randomFlows(ctx context.Context, progress func(done float64, packets uint64)) error {
	rng := stream(s.scenario.Seed, 3)
	hosts := uint64(s.topology.hosts())
	tuples := make([]fiveTuple, s.scenario.RandomFlows)
	destination := make([]int, len(tuples))
	for i := range tuples {
		src, dst := int(rng.below(hosts)), int(rng.below(hosts))
		destination[i] = dst
		tuples[i] = fiveTuple{
			src: s.topology.address(src), dst: s.topology.address(dst),
			srcPort: uint16(firstSourcePort + rng.below(60000)), dstPort: firstTargetPort,
		}
	}
	total := s.scenario.Packets
	step := max(s.scenario.Duration.Nanoseconds()/int64(total), 1)
	for n := range total {
		flow := rng.below(uint64(len(tuples)))
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

func (s *sim) randomPacket(rng *random, tuple fiveTuple, dst int, ns int64) error {
	index := uint8(rng.below(uint64(len(s.signals))))
	sig := &s.signals[index]
	m := mark{
		code: uint32(rng.below(uint64(sig.table.Codes()))), signal: index, set: true,
		lm: uint16(rng.below(1 << s.scenario.Layout.LMBits())),
	}
	port := s.topology.downlink(dst)
	g := &s.segment
	*g = segment{
		link: s.points[port].macs, tuple: tuple, id: uint32(s.sent), hops: 3, tagged: true,
		sequence: uint32(rng.next()), ack: 1, stamp: uint32(ns / int64(time.Millisecond)),
		length: ethernetLen + s.scenario.MTU + s.framer.tagLen(),
		tag:    sig.tag(s.scenario.Layout, &m),
	}
	s.sent++
	s.delivered++
	return s.capture(s.taps.at[port], s.startNS+ns)
}
