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
	initial   uint32 // code of the table's initial value
	metadata  []uint16
	heavy     []codes // by port
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
		for p := range t.ports {
			low, high, ok := table.HeavyCodes(uint64(t.ports[p].speed))
			out[i].heavy[p] = codes{low, high, ok}
		}
	}
	return out, nil
}

// start is the tag that a sender writes.
func (s *signal) start(index uint8) mark {
	return mark{code: s.initial, writer: none, signal: index, set: true}
}

// tag is the mark as it is on the wire.
func (s *signal) tag(l csig.Layout, m *mark) csig.Tag {
	raw := s.table.Initial()
	if m.writer != none {
		raw = s.table.Raw(m.code)
	}
	return csig.Tag{Layout: l, T: s.kind.Type(), S: raw, LM: m.lm}
}
