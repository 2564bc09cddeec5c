package finding

import (
	"fmt"
	"net/netip"

	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// minTurns is how often a port must say something else, in the time in which one source has
// one value of it.
const minTurns = 20

// feigned is one delay, heavily loaded and not the tightest, that the tags of a source have
// in a row, with the locator of a port. What the port wrote it would write into others'
// tags as well.
type feigned struct {
	value
	table   *csig.Table
	port    *place
	before  uint64 // changes of what the port says, when it began
	turns   uint64 // those since then
	packets []Packet
}

// feign follows what a source says in the name of a port: its delay, which differs from
// packet to packet, while a sender of constant rate may make a port as loaded as before.
func (one *sourceState) feign(table *csig.Table, capacity uint64, code uint32, at *place, s *seen) {
	if one == nil || s.o.Kind != decode.Tag || table.Signal() != csig.MaxDelay || table.Codes() < minCodes {
		return
	}
	tag := &s.o.Tag
	key := valueOf(tag)
	run := &one.feigned[tag.T%uint8(len(one.feigned))]
	if run.key != key || run.port != at {
		one.keep(run)
		*run = feigned{packets: run.packets[:0]}
		if !suspicious(table, capacity, code) {
			return
		}
		run.key, run.from, run.to = key, s.o.TimeNS, s.o.TimeNS
		run.table, run.port, run.before = table, at, at.signal(table, tag.Layout, tag.T).changes
	}
	run.n++
	run.from, run.to = min(run.from, s.o.TimeNS), max(run.to, s.o.TimeNS)
	run.turns = at.signal(table, tag.Layout, tag.T).changes - run.before
	if len(run.packets) < strayPackets {
		run.packets = append(run.packets, Packet{s.tap.File, s.o.Packet})
	}
}

// keep remembers the longest run that tells of a source.
func (one *sourceState) keep(run *feigned) {
	if run.n >= minStrays && run.turns >= minTurns && run.n > one.kept.n {
		one.kept, run.packets = *run, nil
	}
}

// feigners are the sources that write values in the name of ports, with the longest run of one.
func (d *Detector) feigners(s *strays) map[netip.Addr]*feigned {
	out := map[netip.Addr]*feigned{}
	for src, one := range s.sources {
		longest := one.kept
		for i := range one.feigned {
			probe := sourceState{kept: longest}
			run := one.feigned[i]
			probe.keep(&run)
			longest = probe.kept
		}
		if longest.n > 0 && longest.to-longest.from >= int64(d.cfg.StuckTime) && s.alone(src, longest.key) {
			out[src] = &longest
		}
	}
	return out
}

// alone tells whether hardly any other source has a value.
func (s *strays) alone(src netip.Addr, key uint64) bool {
	var here, elsewhere uint64
	for other, state := range s.sources {
		switch there := state.arrived.find(key); {
		case there == nil:
		case other == src:
			here = there.n
		default:
			elsewhere += there.n - there.inherited
		}
	}
	return strayFactor*elsewhere <= here
}

// forged is the finding of it.
func (run *feigned) forged(src netip.Addr, of *sourceState) Finding {
	low, _, _ := run.table.Range(run.table.Code(run.s()))
	return Finding{
		Kind: ForgedValue, ID: idOf(ForgedValue, src.String()), Subject: src.String(), From: run.from, To: run.to,
		Count: run.n, Of: of.touched, Packets: run.packets,
		Evidence: fmt.Sprintf("%d values in a row of %s say %s of %s, to the bit, which says something else to others meanwhile, and changes it %d times",
			run.n, src, csig.FormatQuantity(run.table.Signal().Unit(), float64(low)), run.port.at.Name, run.turns),
	}
}
