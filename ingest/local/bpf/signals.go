package bpf

import (
	"math"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/decode/csig"
)

// signal is struct signal of kernel/csig.c.
type signal struct {
	Initial           uint32
	Mask, Shift, Last uint32
	Splits            [maxSplits]uint32
}

// maxSplits is MAX_SPLITS.
const maxSplits = 12

// signalsOf returns the signal types by layout and T. It fails if the program cannot add up the values of one.
func signalsOf(s *window.Settings) (list [csig.NumLayouts * 16]signal, err error) {
	var capacities []uint64
	if p, ok := s.Resolver.(aggregate.Partitioner); ok {
		capacities = p.Capacities()
	}
	for i := range list {
		l := csig.LayoutAt(i >> 4)
		to := &list[i]
		*to = signal{Initial: 1 << 31, Mask: l.MaxS(), Last: l.MaxS()} // no tag has this initial value
		for j := range to.Splits {
			to.Splits[j] = math.MaxUint32
		}
		t := s.Decode.Domain.Table(l, uint8(i&15))
		if t == nil {
			continue
		}
		mask, shift := t.Field()
		to.Initial, to.Mask, to.Shift, to.Last = t.Initial(), mask, uint32(shift), t.Codes()-1
		if l.Format != csig.Wide {
			continue
		}
		splits, err := window.CodeSplits(t, capacities, maxSplits)
		if err != nil {
			return list, err
		}
		copy(to.Splits[:], splits)
	}
	return list, nil
}
