package finding

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// Locator tells which port locator metadata means; fabric.Fabric does.
type Locator interface {
	Locate(l csig.Layout, t uint8, lm uint16, src, dst netip.Addr) (id aggregate.LocationID, capacity uint64)
	Location(id aggregate.LocationID) (fabric.Location, bool)
}

// Place is where a tap stands.
type Place uint8

// A receiver tap sees whole paths, a mid one a part of them, a sender one what senders
// wrote, and one outside of the domain ought to see no tag.
const (
	Receiver Place = iota
	Mid
	Sender
	Outside
)

// ParsePlace reads receiver, mid, sender or outside.
func ParsePlace(s string) (Place, error) {
	switch s {
	case "", "receiver":
		return Receiver, nil
	case "mid":
		return Mid, nil
	case "sender":
		return Sender, nil
	case "outside":
		return Outside, nil
	}
	return 0, fmt.Errorf("place %q: expected receiver, mid, sender or outside", s)
}

// Tap is where an observation was made.
type Tap struct {
	Name  string
	File  string // that packets are numbered in
	Place Place
}

// Config is what a Detector needs to know. All but Domain and Locator has a use as it is.
type Config struct {
	Domain  *csig.Domain
	Locator Locator
	// Senders are the sources that may send tags; empty if all may.
	Senders []netip.Prefix
	// Uninitialized says that a first hop may write its locator metadata beside the
	// initial value (IBCS 6.1, rule 1).
	Uninitialized bool

	StuckCount uint64        // observations of one value from which a port is stuck, 0: 200
	StuckTime  time.Duration // that they last at least, 0: 200 ms
	// MaxSubjects bounds the subjects of each kind, 0: 4096. What goes beyond is counted
	// as one.
	MaxSubjects int
}

// Detector finds. It is not safe for concurrent use. Its memory is bounded by its
// configuration, whatever the traffic.
type Detector struct {
	cfg     Config
	cases   [numKinds]map[string]*Finding
	layouts [csig.NumLayouts]layoutState
	ports   map[portKey]*portState
	strays  strays
}

// New makes a Detector.
func New(cfg Config) (*Detector, error) {
	if cfg.Domain == nil || cfg.Locator == nil {
		return nil, errors.New("make detector: expected a domain and a locator")
	}
	cfg.StuckCount, cfg.StuckTime = cmp.Or(cfg.StuckCount, 200), cmp.Or(cfg.StuckTime, 200*time.Millisecond)
	cfg.MaxSubjects = cmp.Or(cfg.MaxSubjects, 4096)
	d := &Detector{cfg: cfg, ports: make(map[portKey]*portState)}
	for k := range d.cases {
		d.cases[k] = make(map[string]*Finding)
	}
	d.strays = strays{sources: make(map[netip.Addr]*sourceState), at: make(map[string]map[netip.Addr]uint64)}
	return d, nil
}

// Observe takes an observation with its time, packet number and addresses. It keeps no
// reference to it.
func (d *Detector) Observe(tap *Tap, o *decode.Observation) {
	if o.Flags&decode.HasAddrs == 0 {
		return
	}
	from, to := o.Measured()
	src, dst := netip.AddrFrom16(*from).Unmap(), netip.AddrFrom16(*to).Unmap()
	if o.Flags&decode.Orphan != 0 {
		d.found(OrphanTag, src.String(), tap, o)
		return
	}
	layout := &d.layouts[o.Tag.Layout.Index()]
	layout.n++
	if tap.Place == Outside && o.Kind == decode.Tag {
		d.found(Leak, tap.Name, tap, o)
	}
	if !d.authorised(src) {
		d.found(UnauthorisedSender, src.String(), tap, o)
	}
	if o.Tag.R != 0 {
		layout.reserved++
		d.found(ReservedBits, o.Tag.Layout.String(), tap, o)
	}
	table := d.cfg.Domain.Table(o.Tag.Layout, o.Tag.T)
	if table == nil || o.Tag.D {
		return // which value is initial is not known, or it is that of a part of the path
	}
	switch untouched := table.Untouched(o.Tag.S); {
	case tap.Place == Sender && o.Kind == decode.Tag:
		if !untouched {
			d.found(ForgedValue, src.String(), tap, o)
		}
	case untouched:
		layout.alone(tap, o, src, dst)
	case table.Aggregation().Locates():
		d.located(table, tap, o, src, dst)
	}
}

func (d *Detector) authorised(src netip.Addr) bool {
	for _, p := range d.cfg.Senders {
		if p.Contains(src) {
			return true
		}
	}
	return len(d.cfg.Senders) == 0
}

// located judges a value that some port wrote.
func (d *Detector) located(table *csig.Table, tap *Tap, o *decode.Observation, src, dst netip.Addr) {
	layout := &d.layouts[o.Tag.Layout.Index()]
	layout.touched++
	layout.sample(&o.Tag, src, dst)
	id, capacity := d.cfg.Locator.Locate(o.Tag.Layout, o.Tag.T, o.Tag.LM, src, dst)
	at, known := d.cfg.Locator.Location(id)
	of := d.strays.source(src, d.cfg.MaxSubjects)
	if !known {
		return
	}
	if at.Kind == fabric.KindUnknown {
		layout.unknown++
		f := d.found(UnknownLocator, at.Name, tap, o)
		d.strays.add(f.Subject, src, of, tap, o)
		return
	}
	code := table.Code(o.Tag.S)
	if low, _, _ := table.Range(code); above(table.Signal(), low, capacity) {
		d.foundAt(AboveCapacity, &at, tap, o)
	}
	if at.Kind == fabric.KindPort {
		d.port(table, &at, capacity, code, tap, o)
	}
}

// above tells whether a value, in stored units, is more than a port of the capacity can
// have, 0 if that is not known.
func above(s csig.Signal, low, capacity uint64) bool {
	const whole = 1_000_000 // ppm
	switch s {
	case csig.MinABW:
		return capacity > 0 && low > capacity
	case csig.MinABWRatio, csig.MaxNQD:
		return low > whole
	}
	return false
}

// beyond is the subject of what goes beyond MaxSubjects.
const beyond = "others"

// found counts an observation for a finding.
func (d *Detector) found(k Kind, subject string, tap *Tap, o *decode.Observation) *Finding {
	f := d.cases[k][subject]
	if f == nil && len(d.cases[k]) >= d.cfg.MaxSubjects {
		subject = beyond
		f = d.cases[k][subject]
	}
	if f == nil {
		f = &Finding{Kind: k, ID: idOf(k, subject), Subject: subject, From: o.TimeNS, To: o.TimeNS}
		d.cases[k][subject] = f
	}
	f.add(tap, o)
	return f
}

func (d *Detector) foundAt(k Kind, at *fabric.Location, tap *Tap, o *decode.Observation) {
	f := d.found(k, at.Name, tap, o)
	f.place(at)
}

// place says where a finding is.
func (f *Finding) place(at *fabric.Location) {
	f.Location, f.Device = at.ID, at.Device
	if at.Kind == fabric.KindPort {
		f.Port = at.Name
	}
}

func (f *Finding) add(tap *Tap, o *decode.Observation) {
	f.Count++
	f.From, f.To = min(f.From, o.TimeNS), max(f.To, o.TimeNS)
	if len(f.Packets) < maxPackets {
		f.Packets = append(f.Packets, Packet{tap.File, o.Packet})
	}
}
