package simulation

import (
	"slices"
	"time"

	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay/emitter/exact"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// action is a bit set of a port's deviations.
type action uint32

const (
	actSoftware action = 1 << iota
	actStrip
	actDiscard
	actScrub
	actOverwrite
	actWrongLM
	actLMOnly
	actValueOnly
	actInsert
	actReset
	actIgnoreTrim
	actMisbucketed
	actReserved
	actSetTrim
	actDouble
	actForge
)

// actions maps each kind that has an action; apply adds the parameters of some.
var actions = map[string]action{
	scenario.Software: actSoftware, scenario.Strip: actStrip, scenario.Discard: actDiscard, scenario.IngressEdge: actScrub, scenario.EgressEdge: actStrip,
	scenario.Overwrite: actOverwrite, scenario.WrongLM: actWrongLM, scenario.LMOnly: actLMOnly, scenario.ValueOnly: actValueOnly,
	scenario.Insert: actInsert, scenario.Reset: actReset, scenario.IgnoreTrim: actIgnoreTrim, scenario.Misbucketed: actMisbucketed,
	scenario.ReservedBits: actReserved, scenario.SetTrim: actSetTrim, scenario.DoubleTag: actDouble, scenario.Forge: actForge,
}

// policy describes how a port deviates from complete support. Per-signal bits and arrays use the
// index in Scenario.Signals.
type policy struct {
	act     action
	ignore  uint16 // signals whose tags it forwards unchanged
	missing uint16 // signals without a metric
	retypes uint16 // signals whose tags it turns into tags of the next signal

	metrics constants // true metrics, by configuration
	stuck   constants // metrics that it compares with instead
	written constants // values that it overwrites with or forges
	lm      *uint16
	shift   int64
	every   int64 // ps

	oneIn, untilInsert, inserted uint32
	latched                      [csig.NumKnown]latch
}

// constants holds codes per signal.
type constants struct {
	has   uint16
	codes [csig.NumKnown]uint32
}

func (c *constants) get(i uint8) (uint32, bool) { return c.codes[i], c.has>>i&1 != 0 }

// latch is a value programmed by software.
type latch struct {
	until int64 // ps
	code  uint32
}

const defaultCadence = 100 * time.Millisecond

// timeline says when each behavior holds. Policies change only at its times, before any packet of
// that time.
type timeline struct {
	scenario *scenario.Scenario
	signals  []scenario.Signal
	items    []scenario.Behavior
	ports    [][]int32 // of each item
	active   []bool    // items in effect now
	times    []int64   // ps, ascending; something begins or ends at each
	next     int64     // first time not handled yet, or never
}

// newTimeline resolves the ports of the scenario's behaviors.
func newTimeline(s *scenario.Scenario, t *scenario.Topology, signals []scenario.Signal) *timeline {
	l := &timeline{scenario: s, signals: signals, items: s.Behaviors(), next: never}
	for i := range l.items {
		b := &l.items[i]
		l.ports, l.active = append(l.ports, b.Matches(t)), append(l.active, false)
		l.times = append(l.times, exact.Picoseconds(b.Start))
		if b.End > 0 {
			l.times = append(l.times, exact.Picoseconds(b.End))
		}
	}
	slices.Sort(l.times)
	l.times = slices.Compact(l.times)
	if len(l.times) > 0 {
		l.next = l.times[0]
	}
	return l
}

// change sets the ports' policies as of now.
func (l *timeline) change(now int64, ports []port) error {
	for len(l.times) > 0 && l.times[0] <= now {
		l.times = l.times[1:]
	}
	l.next = never
	if len(l.times) > 0 {
		l.next = l.times[0]
	}
	changed := l.changed(now)
	for n := range changed {
		ports[n].policy = nil
	}
	for i := range l.items {
		if !l.active[i] {
			continue
		}
		for _, n := range l.ports[i] {
			if !changed[n] {
				continue
			}
			if err := l.apply(&l.items[i], &ports[n]); err != nil {
				return err
			}
		}
	}
	return nil
}

// changed returns the ports for which a behavior begins or ends. All other ports keep their
// policies, including values programmed by their software.
func (l *timeline) changed(now int64) map[int32]bool {
	ports := map[int32]bool{}
	for i := range l.items {
		holds := l.items[i].Holds(now)
		if holds == l.active[i] {
			continue
		}
		l.active[i] = holds
		for _, n := range l.ports[i] {
			ports[n] = true
		}
	}
	return ports
}

// apply adds a behavior to a port's policy.
func (l *timeline) apply(b *scenario.Behavior, p *port) error {
	if b.Kind == scenario.Complete {
		p.policy = nil
		return nil
	}
	if p.policy == nil {
		p.policy = &policy{}
	}
	to := p.policy
	mask, err := b.Mask(l.scenario)
	if err != nil {
		return err
	}
	to.act |= actions[b.Kind]
	switch b.Kind {
	case scenario.PassThrough:
		to.ignore |= mask
	case scenario.MissingMetric:
		to.missing |= mask
	case scenario.Limited:
		to.ignore |= ^mask
	case scenario.Retype:
		to.retypes |= mask
	case scenario.Software:
		to.every = exact.Picoseconds(max(b.Every, 0))
		if to.every == 0 {
			to.every = exact.Picoseconds(defaultCadence)
		}
	case scenario.FixedMetric:
		return l.encode(b, &to.metrics)
	case scenario.Stuck:
		return l.encode(b, &to.stuck)
	case scenario.Overwrite:
		return l.encode(b, &to.written)
	case scenario.Forge:
		to.lm = b.LM
		return l.encode(b, &to.written)
	case scenario.WrongLM:
		to.lm = b.LM
	case scenario.Misbucketed:
		to.shift = int64(b.Shift)
	case scenario.Insert:
		to.oneIn = uint32(max(b.OneIn, 1))
	}
	return nil
}

func (l *timeline) encode(b *scenario.Behavior, c *constants) error {
	for name, text := range b.Values {
		i, v, err := b.Value(l.scenario, name, text)
		if err != nil {
			return err
		}
		c.has |= 1 << i
		c.codes[i] = l.signals[i].Table.Quantize(v)
	}
	return nil
}
