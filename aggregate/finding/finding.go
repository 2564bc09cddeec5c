package finding

import (
	"cmp"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode"
)

// maxPackets is the number of packets that a finding names.
const maxPackets = 64

// Packet is a packet of a capture.
type Packet struct {
	File   string `json:"file,omitempty"`
	Number uint64 `json:"packet"` // in its file, from 1
}

// Finding is one fault, with its evidence.
type Finding struct {
	Kind     Kind
	ID       uint64 // of the subject: equal for equal kinds and subjects
	Subject  string // an address, a location, a tap or a layout
	Location aggregate.LocationID
	Device   string // the culprit, empty if it is none or one of several
	Port     string // likewise, with its device
	// Candidates are the possible culprits among ports, devices and senders, ascending, if the evidence
	// does not decide between them.
	Candidates []string
	From, To   int64  // of the earliest and the latest packet with a time, Unix ns; both 0 if none has one
	Count      uint64 // in Kind.Unit
	Of         uint64 // number of those that could have been affected
	Evidence   string
	Packets    []Packet // the first ones
}

// idOf returns a number for a kind and a subject.
func idOf(k Kind, subject string) uint64 {
	return xxhash.Sum64String(kinds[k].name + "\x00" + subject)
}

// seen adds an observation; without a file its packet has no number.
func (f *Finding) seen(file string, o *decode.Observation) {
	f.during(o.TimeNS, o.TimeNS)
	f.Count++
	if file != "" && len(f.Packets) < maxPackets {
		f.Packets = append(f.Packets, Packet{file, o.Packet})
	}
}

// during extends the time of the finding to cover another one.
func (f *Finding) during(from, to int64) {
	s := span{f.From, f.To}
	s.cover(from, to)
	f.From, f.To = s.from, s.to
}

// span is the time from the earliest to the latest packet with a time, Unix ns; both ends are 0 if
// none has one.
type span struct{ from, to int64 }

// cover extends the span to cover another one, or, between equal ends, a packet.
func (s *span) cover(from, to int64) {
	switch other := (span{from, to}); {
	case other == span{}:
	case *s == span{}:
		*s = other
	default:
		s.from, s.to = min(s.from, from), max(s.to, to)
	}
}

// add adds the counts of another finding of the same kind and subject. It does not modify their
// packets, which others may share.
func (f *Finding) add(o *Finding) {
	f.during(o.From, o.To)
	f.Count += o.Count
	f.Packets = slices.Concat(f.Packets, o.Packets[:min(len(o.Packets), maxPackets-len(f.Packets))])
}

// setLocation sets the location of a finding.
func (f *Finding) setLocation(at *fabric.Location) {
	f.Location, f.Device = at.ID, at.Device
	if at.Kind == fabric.KindPort {
		f.Port = at.Name
	}
}

// merge combines findings of the same kind and subject, which taps of different layouts or places
// gave.
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
		if one.Of = max(one.Of, f.Of); one.Of > 0 { // Watchers do not count Of
			one.Of = max(one.Of, one.Count)
		}
	}
	return out
}

// order sorts findings: errors first, then by kind, then those with the highest counts. The further
// fields decide between findings of two layouts: merge keeps the first.
func order(list []Finding) {
	rank := map[Severity]int{Error: 0, Warning: 1, Info: 2}
	slices.SortFunc(list, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(rank[a.Kind.Severity()], rank[b.Kind.Severity()]), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(b.Count, a.Count), cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), cmp.Compare(a.Device, b.Device),
			cmp.Compare(a.Port, b.Port), slices.Compare(a.Candidates, b.Candidates), cmp.Compare(b.Of, a.Of), cmp.Compare(a.Evidence, b.Evidence))
	})
}
