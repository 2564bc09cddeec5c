package emitter

import (
	"fmt"
	"time"
)

// behaviors writes which ports are not those of complete devices, and when.
func (t *truth) behaviors(l *timeline) error {
	at := func(d time.Duration) time.Time { return time.Unix(0, t.startNS).UTC().Add(d) }
	for i := range l.items {
		b := &l.items[i]
		line := TruthBehavior{Kind: TruthDeviceKind, What: b.Kind, Signals: b.Signals, From: at(b.Start), To: at(b.End)}
		if i >= len(t.scenario.Devices) {
			line.Kind = TruthFaultKind
		}
		if b.End == 0 || b.End > t.scenario.Duration {
			line.To = at(t.scenario.Duration)
		}
		for _, n := range l.ports[i] {
			if host := int(n) - len(t.topology.ports); host >= 0 {
				line.Device, line.Port = t.topology.ports[t.topology.nics[host]].peer, ""
			} else {
				line.Device, line.Port = t.topology.ports[n].device, t.topology.ports[n].name()
			}
			if err := t.json.Encode(line); err != nil {
				return fmt.Errorf("write truth: %w", err)
			}
		}
	}
	return nil
}

// flows writes where every flow went, in the order of the scenario.
func (t *truth) flows(s *sim) error {
	names := func(r *route) (list []string) {
		for _, p := range r.hops() {
			list = append(list, t.topology.ports[p].name())
		}
		return list
	}
	for i := range s.flows {
		f := &s.flows[i]
		version := s.framer.styles[f.style].ip
		line := TruthFlow{
			Kind: TruthFlowKind, Src: t.topology.hostName(int(f.src)), Dst: t.topology.hostName(int(f.dst)),
			SrcIP: addressOf(version, f.tuple.src).String(), DstIP: addressOf(version, f.tuple.dst).String(),
			SrcPort: f.tuple.srcPort, DstPort: f.tuple.dstPort,
			Forward: names(&f.forward), Reverse: names(&f.reverse),
			Sent: f.sent, Delivered: f.delivered, Dropped: f.dropped, Trimmed: f.trimmed,
			InFlight: f.sent - f.delivered - f.dropped,
		}
		if err := t.json.Encode(line); err != nil {
			return fmt.Errorf("write truth: %w", err)
		}
	}
	return nil
}
