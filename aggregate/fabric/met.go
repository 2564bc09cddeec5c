package fabric

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/csigscope/csigscope/decode/csig"
)

// ErrMet is wrapped by the error for bytes that AppendMet did not make.
var ErrMet = errors.New("not what a fabric has met")

// metState is what a fabric has met of traffic, beyond what its file says.
type metState struct {
	Version  int            `json:"version"`
	Numbers  []metNumber    `json:"numbers"`
	Sets     []Location     `json:"sets"`
	OffPath  []Location     `json:"off_path"`
	Prefixes []netip.Prefix `json:"prefixes"`
}

type metNumber struct {
	Layout uint8  `json:"layout"`
	Raw    bool   `json:"raw"`
	LM     uint16 `json:"lm"`
}

const metVersion = 1

// AppendMet appends the locations and groups that traffic has called for, so that
// RestoreMet makes a fabric of the same file know them: their identities alone do not
// say what they stand for. Counts are not part of it.
func (f *Fabric) AppendMet(b []byte) ([]byte, error) {
	m := metState{Version: metVersion}
	r := f.known
	r.mu.RLock()
	for _, n := range r.numbers {
		m.Numbers = append(m.Numbers, metNumber{n.layout, n.raw, n.lm})
	}
	for _, l := range r.met {
		if l.Kind == KindSet {
			m.Sets = append(m.Sets, *l)
		} else {
			m.OffPath = append(m.OffPath, *l)
		}
	}
	r.mu.RUnlock()
	slices.SortFunc(m.Numbers, func(x, y metNumber) int {
		return cmp.Or(cmp.Compare(x.Layout, y.Layout), cmp.Compare(x.LM, y.LM))
	})
	f.derived.mu.RLock()
	for p := range f.derived.groups {
		m.Prefixes = append(m.Prefixes, p)
	}
	f.derived.mu.RUnlock()
	slices.SortFunc(m.Prefixes, func(x, y netip.Prefix) int { return x.Addr().Compare(y.Addr()) })
	text, err := json.Marshal(&m)
	if err != nil {
		return b, fmt.Errorf("encode locations: %w", err)
	}
	return append(b, text...), nil
}

// RestoreMet makes the fabric know what AppendMet was called on, of the same file and
// domain. What it knows already stays. Anything else is an ErrMet. A set past the bound
// on their number that was met before may be resolved to its stage after that.
func (f *Fabric) RestoreMet(b []byte) error {
	var m metState
	if err := json.Unmarshal(b, &m); err != nil {
		return fmt.Errorf("restore locations: %w: %w", ErrMet, err)
	}
	if m.Version != metVersion || len(m.Sets) > maxSets || len(m.OffPath) > maxOffPath || len(m.Prefixes) > maxDerived {
		return fmt.Errorf("restore locations: version %d: %w", m.Version, ErrMet)
	}
	for _, n := range m.Numbers {
		if n.Layout >= csig.NumLayouts {
			return fmt.Errorf("restore locations: layout %d: %w", n.Layout, ErrMet)
		}
	}
	for _, n := range m.Numbers {
		if l := csig.LayoutAt(int(n.Layout)); n.Raw {
			f.known.raw(l, n.LM)
		} else {
			f.known.unknown(l, n.LM)
		}
	}
	for i := range m.Sets {
		f.known.addSet(&m.Sets[i])
	}
	for i := range m.OffPath {
		f.known.addOffPath(&m.OffPath[i])
	}
	f.derived.restore(m.Prefixes)
	return nil
}
