package finding

import (
	"cmp"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode"
)

// maxPackets is how many packets a finding names.
const maxPackets = 64

// Packet is a packet of a capture.
type Packet struct {
	File   string `json:"file,omitempty"`
	Number uint64 `json:"packet"` // in its file, from 1
}

// Finding is one thing that is wrong, with its evidence.
type Finding struct {
	Kind     Kind
	ID       uint64 // of what it is about: equal for equal kinds and subjects
	Subject  string // who: an address, a location, a tap or a layout
	Location aggregate.LocationID
	Device   string // that is at fault, empty when it is none or one of several
	Port     string // likewise, with its device
	// Candidates are the ports and devices, ascending, that may be at fault where the
	// evidence does not choose among them.
	Candidates []string
	From, To   int64  // of the first and the last packet, Unix ns
	Count      uint64 // observations, or packets
	Of         uint64 // those that might have been
	Evidence   string
	Packets    []Packet // the first ones
}

// idOf returns a number for a kind and a subject.
func idOf(k Kind, subject string) uint64 {
	return xxhash.Sum64String(kinds[k].name + "\x00" + subject)
}

// seen adds an observation, whose packet has no number where it is in no file.
func (f *Finding) seen(file string, o *decode.Observation) {
	f.during(o.TimeNS, o.TimeNS)
	f.Count++
	if file != "" && len(f.Packets) < maxPackets {
		f.Packets = append(f.Packets, Packet{file, o.Packet})
	}
}

// during makes the time of the finding reach over another one. Whoever calls it counts
// afterwards: what counts nothing yet has no time.
func (f *Finding) during(from, to int64) {
	if f.Count == 0 {
		f.From, f.To = from, to
	}
	f.From, f.To = min(f.From, from), max(f.To, to)
}

// add adds what was counted elsewhere of the same kind and subject. Both may share their
// packets with others, which stay as they are.
func (f *Finding) add(o *Finding) {
	f.during(o.From, o.To)
	f.Count += o.Count
	f.Packets = slices.Concat(f.Packets, o.Packets[:min(len(o.Packets), maxPackets-len(f.Packets))])
}

// place says where a finding is.
func (f *Finding) place(at *fabric.Location) {
	f.Location, f.Device = at.ID, at.Device
	if at.Kind == fabric.KindPort {
		f.Port = at.Name
	}
}

// merge makes one of findings of the same kind and subject, which taps of different
// layouts or places gave.
func merge(list []Finding) []Finding {
	type key struct {
		k  Kind
		id uint64
	}
	at := make(map[key]int, len(list))
	out := list[:0]
	for i := range list {
		f := &list[i]
		k := key{f.Kind, f.ID}
		n, known := at[k]
		if !known {
			at[k] = len(out)
			out = append(out, *f)
			continue
		}
		one := &out[n]
		one.add(f)
		if one.Of = max(one.Of, f.Of); one.Of > 0 { // Watchers count no others
			one.Of = max(one.Of, one.Count)
		}
	}
	return out
}

// order sorts findings: errors first, then the kinds, then those with most observations. Of
// those that say the same of two layouts, what else they say decides: merge keeps the first.
func order(list []Finding) {
	rank := map[Severity]int{Error: 0, Warning: 1, Info: 2}
	slices.SortFunc(list, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(rank[a.Kind.Severity()], rank[b.Kind.Severity()]), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(b.Count, a.Count), cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), cmp.Compare(a.Device, b.Device),
			cmp.Compare(a.Port, b.Port), slices.Compare(a.Candidates, b.Candidates), cmp.Compare(b.Of, a.Of), cmp.Compare(a.Evidence, b.Evidence))
	})
}
