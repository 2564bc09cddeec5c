package emitter

import (
	"fmt"

	"github.com/csigscope/csigscope/decode/csig"
)

// signal is what senders and switches are configured with for one signal.
type signal struct {
	kind      csig.Signal
	table     *csig.Table
	direction csig.Direction
	initial   uint32          // code of the table's initial value
	metadata  []uint16        // by port
	ttl       [maxPath]uint16 // added by the number of the switch on the path
	lmMask    uint16          // bits of locator metadata other than those
	heavy     []codes         // by port
	// Who writes a locator metadata: a port, or several. Of watchful runs only.
	byLM     map[uint16]int32
	anywhere codes // heavy at a location of unknown capacity
}

// lmBase and below are locations that are no single port: lmBase minus the locator
// metadata.
const lmBase = -16

func lmOf(location int32) uint16 { return uint16(lmBase - location) }

// named is the location that a tag names: the port that wrote it, if it wrote what it
// is configured with, otherwise the only port that is configured with the LM.
func (s *signal) named(m *mark) int32 {
	lm := m.lm & s.lmMask
	if m.writer >= 0 && s.metadata[m.writer]&s.lmMask == lm {
		return m.writer
	}
	if p, ok := s.byLM[lm]; ok && p != several {
		return p
	}
	return lmBase - int32(lm)
}

// several ports are configured with an LM.
const several = -1

// index finds ports by their LM.
func (s *signal) index() {
	s.byLM = make(map[uint16]int32, len(s.metadata))
	for p, lm := range s.metadata {
		lm &= s.lmMask
		if _, taken := s.byLM[lm]; taken {
			s.byLM[lm] = several
		} else {
			s.byLM[lm] = int32(p)
		}
	}
	low, high, ok := s.table.HeavyCodes(0)
	s.anywhere = codes{low, high, ok}
}

// heavyAt is what is heavy at a location.
func (s *signal) heavyAt(location int32) *codes {
	if location < 0 {
		return &s.anywhere
	}
	return &s.heavy[location]
}

// codes is an inclusive range, empty unless some.
type codes struct {
	low, high uint32
	some      bool
}

func (c *codes) has(code uint32) bool { return c.some && code >= c.low && code <= c.high }

func newSignals(s *Scenario, t *topology, d *csig.Domain) ([]signal, error) {
	metadata, err := portMetadata(s, t, d)
	if err != nil {
		return nil, err
	}
	out := make([]signal, len(s.Signals))
	for i, kind := range s.Signals {
		table := d.Table(s.Layout, kind.Type())
		if table == nil {
			return nil, fmt.Errorf("signal %s: has no table in %s", kind, s.Layout)
		}
		out[i] = signal{
			kind: kind, table: table, direction: kind.Direction(),
			initial: table.Code(table.Initial()), metadata: metadata[i], heavy: make([]codes, len(t.ports)),
		}
		if out[i].ttl, err = ttlBits(d.Locator(s.Layout, kind.Type()), &t.ports[0]); err != nil {
			return nil, fmt.Errorf("signal %s: locator: %w", kind, err)
		}
		out[i].lmMask = ^uint16(0)
		for _, bits := range out[i].ttl {
			out[i].lmMask &^= bits
		}
		for p := range t.ports {
			low, high, ok := table.HeavyCodes(uint64(t.ports[p].speed))
			out[i].heavy[p] = codes{low, high, ok}
		}
		if s.watchful() {
			out[i].index()
		}
	}
	return out, nil
}

// start is the tag that a sender writes.
func (s *signal) start(index uint8) mark {
	return mark{
		code: s.initial, writer: none, faith: s.initial, faithWriter: none, signal: index, set: true,
	}
}

// tag is the mark as it is on the wire.
func (s *signal) tag(l csig.Layout, m *mark) csig.Tag {
	raw := s.table.Initial()
	if m.writer != none {
		raw = s.table.Raw(m.code)
	}
	tag := csig.Tag{Layout: l, T: s.kind.Type(), S: raw, LM: m.lm, D: m.is(flagTrimmed)}
	if m.is(flagReserved) {
		tag.R = 1
	}
	return tag
}
