package finding

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// Locator resolves locator metadata to ports; fabric.Fabric implements it.
type Locator interface {
	Locate(l csig.Layout, t uint8, lm uint16, src, dst netip.Addr) (id aggregate.LocationID, capacity uint64)
	Location(id aggregate.LocationID) (fabric.Location, bool)
}

// Place is a tap's position in the network.
type Place uint8

// A receiver tap sees whole paths, a mid one a part of them, a sender one the tags as senders wrote
// them, and one outside of the domain should see no tag.
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

// Tap is the origin of an observation.
type Tap struct {
	Name  string
	File  string // in which packets are numbered
	Place Place
	// Capture distinguishes captures of the tap, each of one file or, if it was rotated, of several.
	Capture int
}

// Config is the configuration of a Detector. Only Domain and Locator have no useful default.
type Config struct {
	Domain  *csig.Domain
	Locator Locator
	// Routes returns possible paths, so that findings name devices. Nil: the Locator, if it is a
	// Router; otherwise affected paths identify no device.
	Routes Router
	// Senders are the sources that may send tags; empty if all may.
	Senders []netip.Prefix
	// Uninitialized allows a first hop to write its locator metadata beside the initial value (IBCS
	// 6.1, rule 1).
	Uninitialized bool

	// MaxSubjects bounds the subjects of each kind, 0: 4096. All further ones are counted as one.
	MaxSubjects int
	// MaxFlows bounds the tracked flows, 0: 16384, at up to 1 KB each; negative: none. Without
	// flows, stripped-flows, rogue-insertion, type-changed, swapped-locators, trim-invented, lost-value
	// and tap-loss stay unseen, and no culprit follows from paths.
	MaxFlows int
}

// Detector finds faults in observations. It is not safe for concurrent use. Its memory is bounded
// by its configuration, whatever the traffic.
type Detector struct {
	cfg       Config
	cases     [csig.NumLayouts]cases // separate, so that a wrong layout invalidates only its own findings
	layouts   [csig.NumLayouts]layoutState
	locations locationStates
	flows     flows
	leaks     map[string]*receivers // by tap
	windows   []*Watcher
	stuck     [NumKinds]int // sizes that they share

	taps     map[Tap]*tapState // by tap without File
	segments segments
	class    Class // of the current frame
	ttl      uint8 // likewise, 0 if unknown
}

// withDefaults fills in fields that are 0, and fails if a required one is missing.
func (c Config) withDefaults() (Config, error) {
	if c.Domain == nil || c.Locator == nil {
		return c, errors.New("expected a domain and a locator")
	}
	c.MaxSubjects, c.MaxFlows = cmp.Or(c.MaxSubjects, 4096), cmp.Or(c.MaxFlows, 1<<14)
	if router, ok := c.Locator.(Router); ok && c.Routes == nil {
		c.Routes = router
	}
	return c, nil
}

// New makes a Detector. It fails without a Domain or a Locator.
func New(cfg Config) (*Detector, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("make detector: %w", err)
	}
	d := &Detector{cfg: cfg}
	d.locations.of = make(map[aggregate.LocationID]*locationState)
	d.leaks, d.taps, d.segments = make(map[string]*receivers), make(map[Tap]*tapState), newSegments()
	d.flows = newFlows(cfg.MaxFlows)
	sizes := new([NumKinds]int)
	for i := range d.layouts {
		d.layouts[i].init(csig.LayoutAt(i))
		d.cases[i] = newCases(&d.cfg, sizes)
	}
	return d, nil
}

// Untracked returns the number of observations and packets of flows beyond MaxFlows. Findings
// that compare flows leave them out.
func (d *Detector) Untracked() uint64 { return d.flows.beyond }

// Windows returns a Watcher for the 1 s windows of a tap (window.Watch). Its findings, stuck ports,
// are among the Detector's Findings.
func (d *Detector) Windows(tap *Tap) *Watcher {
	w := &Watcher{cfg: d.cfg, windowsAlone: true}
	w.Begin(tap.File)
	w.cases.sizes = &d.stuck
	d.windows = append(d.windows, w)
	return w
}

// stuckPorts returns the stuck ports of layouts that are not misread.
func (d *Detector) stuckPorts(misread [csig.NumLayouts]bool) (list []Finding) {
	for _, w := range d.windows {
		for k, f := range w.cases.of {
			if k.beyond || !misread[k.layout] {
				one := *f
				one.Of = d.layouts[k.layout].n
				list = append(list, one)
			}
		}
	}
	return list
}

// seen is an observation with the detector's context.
type seen struct {
	tap      *Tap
	o        *decode.Observation
	src, dst netip.Addr // of the measured path
	layout   *layoutState
	flow     *flow   // nil: beyond the bound, or no tag at an end of its path
	path     *path   // of the value, nil if no flow is known
	tags     *tagsAt // likewise
	ttl      uint16  // less than at taps in front: senderTTL at a sender, 0 for a reflection or if unknown
}

// Observe takes an observation with its time, packet number and addresses. It keeps no
// reference to it.
func (d *Detector) Observe(tap *Tap, o *decode.Observation) {
	layout := &d.layouts[o.Tag.Layout.Index()]
	if o.Flags&decode.HasAddrs == 0 {
		if o.Flags&decode.Orphan != 0 {
			d.orphan(tap, o)
			return
		}
		if o.Flags&decode.Cut == 0 {
			layout.alien.seen(tap.File, o)
		}
		return
	}
	s := seen{tap: tap, o: o, layout: layout}
	s.src, s.dst = ends(o)
	if o.Flags&decode.Orphan != 0 {
		if tap.Place == Receiver {
			if f := d.flows.get(o); f != nil {
				f.orphans++
			}
		}
		d.orphan(tap, o)
		return
	}
	layout.n++
	d.follow(&s)
	if tap.Place == Outside && o.Kind == decode.Tag {
		d.leak(&s)
	}
	if !d.cfg.authorised(s.src) {
		d.found(UnauthorisedSender, tap, o, 0)
	}
	if o.Tag.R != 0 {
		d.reserved(&s)
	}
	d.value(&s)
}

// follow finds the flow of an observation, and counts it there.
func (d *Detector) follow(s *seen) {
	var measured *flow
	s.ttl = uint16(d.ttl)
	switch at := s.tap.Place; {
	case s.o.Kind != decode.Tag:
		s.ttl = 0
		if measured = d.flows.reflected(s.o); measured != nil {
			s.path = &measured.path
		}
	case at == Mid:
		measured = d.flows.get(s.o)
	default:
		if at == Sender {
			s.ttl = senderTTL
		}
		if measured = d.flows.tagged(at, s.o); measured != nil {
			s.flow, s.path = measured, &measured.path
			if at == Receiver {
				measured.class = d.class
			}
		}
	}
	if measured != nil {
		s.tags = measured.tagsAt(s, &d.flows.clock)
	}
}

// wrong counts a value that no port wrote at its tap.
func (d *Detector) wrong(s *seen) {
	t := s.tags
	if t == nil {
		return
	}
	t.wrong++
	if t.wrongTTL = max(t.wrongTTL, s.ttl); s.ttl == 0 && s.o.Kind == decode.Tag {
		t.wrongTTL = senderTTL // may be anywhere
	}
	t.wrongWhen.set(&d.flows.clock, s.o.TimeNS)
}

// found counts an observation for the subject of a broken rule.
func (d *Detector) found(k Kind, tap *Tap, o *decode.Observation, at aggregate.LocationID) {
	d.cases[o.Tag.Layout.Index()].get(keyOf(k, o, at, tap.Name)).seen(tap.File, o)
}

// value judges the value and locator metadata of a tag or a reflection.
func (d *Detector) value(s *seen) {
	tag := &s.o.Tag
	table := d.cfg.Domain.Table(tag.Layout, tag.T)
	if table == nil {
		return // the initial value is not known
	}
	untouched := table.Untouched(tag.S)
	if !tag.D && s.o.Kind == decode.Tag {
		s.layout.longest = max(s.layout.longest, s.o.Bytes)
	}
	if !untouched && table.Aggregation().Locates() {
		s.layout.sample(tag, s.src, s.dst, s.o.TimeNS)
	}
	switch {
	case tag.D: // the value covers only a part of the path
		if s.flow != nil && s.tap.Place == Receiver {
			if s.flow.wholes == nil {
				s.flow.wholes = new(wholes)
			}
			s.flow.wholes.trimmed(s.tap, s.o)
		}
	case s.tap.Place == Sender && s.o.Kind == decode.Tag:
		if !untouched {
			d.found(ForgedValue, s.tap, s.o, 0)
			s.layout.forged(s, d.cfg.MaxSubjects)
			d.wrong(s)
		}
	case untouched:
		s.layout.lmOnUntouched(s)
	case table.Aggregation().Locates():
		d.located(table, s)
	}
}

// ends returns the source and the destination of the measured path.
func ends(o *decode.Observation) (src, dst netip.Addr) {
	from, to := o.Measured()
	return netip.AddrFrom16(*from).Unmap(), netip.AddrFrom16(*to).Unmap()
}

// authorised reports whether a source may send tags.
func (c *Config) authorised(src netip.Addr) bool {
	return len(c.Senders) == 0 || slices.ContainsFunc(c.Senders, func(p netip.Prefix) bool { return p.Contains(src) })
}

// orphan takes a tag in a place where none belongs.
func (d *Detector) orphan(tap *Tap, o *decode.Observation) {
	d.found(OrphanTag, tap, o, 0)
}

// reserved takes an observation whose reserved bits are set.
func (d *Detector) reserved(s *seen) {
	if s.flow != nil {
		s.flow.reserved++
	}
	d.found(ReservedBits, s.tap, s.o, 0)
}

// receivers are the first few hosts at which leaked tags arrive.
type receivers [16]netip.Addr

// leak takes a tag that a tap outside of the domain sees.
func (d *Detector) leak(s *seen) {
	d.found(Leak, s.tap, s.o, 0)
	r := d.leaks[s.tap.Name]
	if r == nil {
		if len(d.leaks) >= d.cfg.MaxSubjects {
			return
		}
		r = new(receivers)
		d.leaks[s.tap.Name] = r
	}
	for i := range r {
		switch {
		case r[i] == s.dst:
			return
		case !r[i].IsValid():
			r[i] = s.dst
			return
		}
	}
}

// located judges a value that some port wrote.
func (d *Detector) located(table *csig.Table, s *seen) {
	tag, l := &s.o.Tag, s.layout
	id, capacity := d.cfg.Locator.Locate(tag.Layout, tag.T, tag.LM, s.src, s.dst)
	at := d.locations.get(id, d.cfg.Locator)
	of := l.unknownLMs.source(s, d.cfg.MaxSubjects)
	switch at.kind {
	case locationUnknown:
		d.wrong(s)
		l.unknownLMs.add(id, of, s, &d.locations.clock, d.cfg.MaxSubjects)
		return
	case locationNone:
		return
	case locationPort:
		if s.flow != nil {
			s.flow.touched++
		}
		if s.path != nil {
			s.path.passed(id)
		}
		at.when.set(&d.locations.clock, s.o.TimeNS)
	}
	code := table.Code(tag.S)
	if low, _, _ := table.Range(code); above(table.Signal(), low, capacity) {
		d.found(AboveCapacity, s.tap, s.o, id)
	}
	if at.kind == locationPort {
		of.followSpoofed(table, capacity, code, at, s)
		d.least(table, code, at, s)
	}
}

// above reports whether a value, in stored units, is more than a port of the capacity can have; 0
// is an unknown capacity.
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
