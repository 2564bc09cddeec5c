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

// maxSplits is MAX_SPLITS: the codes of a wide table at which buckets can be split.
const maxSplits = 12

// heavy is struct heavy: a bit for each raw S of compact tags, or the first and the last code of wide ones.
type heavy struct{ First, Last uint32 }

// heaviesOf returns the values that are heavy at any of the fabric's port speeds, by layout and T.
func heaviesOf(s *window.Settings) (list [csig.NumLayouts * 16]heavy) {
	capacities := capacitiesOf(s)
	for i := range list {
		l := csig.LayoutAt(i >> 4)
		t := s.Decode.Domain.Table(l, uint8(i&15))
		if l.Format == csig.Wide {
			list[i].First = math.MaxUint32
		}
		if t == nil {
			continue
		}
		for _, capacity := range capacities {
			lo, hi, ok := t.HeavyCodes(capacity)
			switch {
			case !ok:
			case l.Format == csig.Wide:
				list[i] = heavy{min(list[i].First, lo), max(list[i].Last, hi)}
			default:
				for raw := range l.MaxS() + 1 {
					if code := t.Code(raw); lo <= code && code <= hi {
						list[i].First |= 1 << raw
					}
				}
			}
		}
	}
	return list
}

// capacitiesOf returns the speeds of ports in the fabric, kbit/s, on which heavy codes may depend, and 0 for an unknown one.
func capacitiesOf(s *window.Settings) []uint64 {
	capacities := []uint64{0}
	if p, ok := s.Resolver.(aggregate.Partitioner); ok {
		capacities = append(capacities, p.Capacities()...)
	}
	return capacities
}

// signalsOf returns the signal types by layout and T. Its error wraps window.ErrSplits if a table has too many codes at which
// buckets have to be split.
func signalsOf(s *window.Settings) (list [csig.NumLayouts * 16]signal, err error) {
	capacities := capacitiesOf(s)
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
