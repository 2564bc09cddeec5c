package finding

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode/csig"
)

// Bounds on the locations that are remembered. Those that are no ports are fewer than
// maxOthers in any fabric: each locator metadata of each layout, and contradictions.
const (
	maxPorts  = 1 << 16
	maxOthers = 1 << 17
)

// placeKind is what matters of a location for each packet.
type placeKind uint8

const (
	placeNone    placeKind = iota // not known, or no place in the fabric
	placeUnknown                  // metadata that no port of the path writes
	placeSet                      // one of several ports
	placePort
)

// place is a location, and what it wrote.
type place struct {
	kind placeKind
	at   fabric.Location // of a port
	runs []signalRuns    // of a port, few
	when slots           // it wrote
	// early is the least delay that a port wrote last as the first one of a path, as least has it.
	early uint32
}

// places are the locations that were met.
type places struct {
	of    map[aggregate.LocationID]*place
	ports int // of them
	clock slotClock
}

// noPlaces stand for locations of which nothing is remembered.
var noPlaces = [...]place{{kind: placeNone}, {kind: placeUnknown}, {kind: placeSet}}

// get is the place of a location. It asks the locator, which may allocate, once.
func (p *places) get(id aggregate.LocationID, from Locator) *place {
	if known := p.of[id]; known != nil {
		return known
	}
	at, ok := from.Location(id)
	found := &noPlaces[placeNone]
	switch {
	case !ok:
	case at.Kind == fabric.KindUnknown:
		found = &noPlaces[placeUnknown]
	case at.Kind == fabric.KindSet:
		found = &noPlaces[placeSet]
	case at.Kind == fabric.KindPort && p.ports < maxPorts:
		p.ports++
		found = &place{kind: placePort, at: at}
	}
	if found.kind == placePort || len(p.of)-p.ports < maxOthers {
		p.of[id] = found
	}
	return found
}

// signalRuns are the run of equal values that a port is writing of a signal, and the
// longest one.
type signalRuns struct {
	layout    csig.Layout
	t         uint8
	run, best run
	table     *csig.Table
	total     uint64
	changes   uint64 // from one code to another
}

// constantRate is how many times as long one source has to see one value: it may itself send
// at one rate, as no several do.
const constantRate = 3

// run is observations of one code, one after the other.
type run struct {
	code     uint32
	n        uint64
	from, to int64
	packets  []Packet
	src      netip.Addr // of all of them, invalid of several
}

// port follows what a port writes. An idle port writes one value as well, and a saturated
// one: only values that are heavily loaded and not the tightest one make a port stuck.
func (p *place) port(table *csig.Table, capacity uint64, code uint32, s *seen) {
	r := p.signal(table, s.o.Tag.Layout, s.o.Tag.T)
	r.total++
	if r.total > 1 && r.run.code != code {
		r.changes++
	}
	if r.run.n == 0 || r.run.code != code {
		r.end()
		r.run = run{code: code, from: s.o.TimeNS, to: s.o.TimeNS, packets: r.run.packets[:0], src: s.src}
	}
	if r.run.src != s.src {
		r.run.src = netip.Addr{}
	}
	if r.run.n++; len(r.run.packets) < maxPackets && suspicious(table, capacity, code) {
		r.run.packets = append(r.run.packets, Packet{s.tap.File, s.o.Packet})
	}
	r.run.from, r.run.to = min(r.run.from, s.o.TimeNS), max(r.run.to, s.o.TimeNS)
}

// slack ends the runs of ports that a flow passes, where a value of it is not as tight as
// theirs: they would have replaced it, so that the run is of what they measured. Flows of
// constant rate make runs at each port of their path, in turns.
func (d *Detector) slack(table *csig.Table, code uint32, s *seen) {
	if s.path == nil {
		return
	}
	for _, id := range s.path.named {
		p := d.places.of[id]
		if p == nil {
			continue
		}
		for i := range p.runs {
			r := &p.runs[i]
			if r.t == s.o.Tag.T && r.layout == s.o.Tag.Layout && r.run.n > 0 && table.Aggregation().Direction().Tighter(r.run.code, code) {
				r.end()
				r.run.n = 0
			}
		}
	}
}

// signal is what a port writes of one signal.
func (p *place) signal(table *csig.Table, l csig.Layout, t uint8) *signalRuns {
	for i := range p.runs {
		if r := &p.runs[i]; r.t == t && r.layout == l {
			return r
		}
	}
	p.runs = append(p.runs, signalRuns{layout: l, t: t, table: table})
	return &p.runs[len(p.runs)-1]
}

// end keeps a run that is the longest so far of those with packets. The packets of the one
// before it make room for the next run's.
func (r *signalRuns) end() {
	if len(r.run.packets) > 0 && r.run.n > r.best.n {
		r.best, r.run = r.run, run{packets: r.best.packets[:0]}
	}
}

func suspicious(table *csig.Table, capacity uint64, code uint32) bool {
	lo, hi, ok := table.HeavyCodes(capacity)
	if !ok || code < lo || code > hi {
		return false
	}
	if table.Aggregation().Direction() == csig.Min {
		return code > 0
	}
	return code < table.Codes()-1
}

// longest is the longest run so far, of which one that goes on may be.
func (r *signalRuns) longest() *run {
	if len(r.run.packets) > 0 && r.run.n > r.best.n {
		return &r.run
	}
	return &r.best
}

// stuck are the findings of ports whose longest run is too long.
func (d *Detector) stuck(misread [csig.NumLayouts]bool) (list []Finding) {
	for _, p := range d.places.of {
		for i := range p.runs {
			s := &p.runs[i]
			r := s.longest()
			least := d.cfg.StuckTime
			if r.src.IsValid() {
				least *= constantRate
			}
			if r.n < d.cfg.StuckCount || r.to-r.from < int64(least) || misread[s.layout.Index()] {
				continue
			}
			signal := s.table.Signal()
			subject := p.at.Name + " " + signal.String()
			low, _, _ := s.table.Range(r.code)
			f := Finding{
				Kind: StuckPort, ID: idOf(StuckPort, subject), Subject: subject, From: r.from, To: r.to, Count: r.n, Of: s.total,
				Packets:  slices.Clone(r.packets), // whose memory later runs take
				Evidence: fmt.Sprintf("%d observations in a row say %s, to the bit", r.n, csig.FormatQuantity(signal.Unit(), float64(low))),
			}
			f.place(&p.at)
			if r.src.IsValid() { // which may write them itself
				f.Candidates, f.Device, f.Port = []string{p.at.Name, r.src.String()}, "", ""
				f.Evidence += fmt.Sprintf(", all of %s", r.src)
			}
			list = append(list, f)
		}
	}
	return list
}
