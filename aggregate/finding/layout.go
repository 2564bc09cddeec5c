package finding

import (
	"fmt"
	"net/netip"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode/csig"
)

const (
	// maxSamples is the number of a layout's tags that are tried under the other profile.
	maxSamples = 1024
	// minSamples is the least number of samples for a suggestion.
	minSamples = 100
	// maxDefaults bounds the distinct locator metadata beside initial values.
	maxDefaults = 1024
)

// layoutState is the state of one layout's tags.
type layoutState struct {
	n               uint64
	alien           Finding // tags without a packet behind them
	samples         []tagSample
	sampled         span   // of the values from which samples are taken
	stride, skipped uint64 // every stride-th value that a hop replaced is a sample
	initial         uint64
	besides         map[uint16]*beside // locator metadata beside initial values
	unknownLMs      unknownLMs
	leasts          [16]least // by type
	longest         uint32    // packet with a tag and without D, bytes
}

func (l *layoutState) init(of csig.Layout) {
	l.stride = 1
	l.unknownLMs = unknownLMs{layout: of, sources: make(map[netip.Addr]*sourceState), at: make(map[aggregate.LocationID]*unknownLM)}
}

// tagSample is a tag that some hop replaced, and its measured path.
type tagSample struct {
	tag      csig.Tag
	src, dst netip.Addr
}

// beside is one value of locator metadata beside initial values.
type beside struct {
	Finding
	first tagSample
}

// sample keeps a sample of tags, evenly over all of the time: if there are too many, it forgets
// every other one.
func (l *layoutState) sample(tag *csig.Tag, src, dst netip.Addr, ns int64) {
	l.sampled.cover(ns, ns)
	if l.skipped++; l.skipped < l.stride {
		return
	}
	l.skipped = 0
	if len(l.samples) == maxSamples {
		for i := range maxSamples / 2 {
			l.samples[i] = l.samples[2*i]
		}
		l.samples = l.samples[:maxSamples/2]
		l.stride *= 2
	}
	l.samples = append(l.samples, tagSample{*tag, src, dst})
}

// lmOnUntouched counts locator metadata beside an initial value. Hosts write a default there
// (section 4.1.3), which is not known: the most frequent value is taken for it.
func (l *layoutState) lmOnUntouched(s *seen) {
	l.initial++
	lm := s.o.Tag.LM
	b := l.besides[lm]
	if b == nil {
		if len(l.besides) >= maxDefaults {
			return
		}
		if l.besides == nil {
			l.besides = make(map[uint16]*beside)
		}
		b = &beside{first: tagSample{s.o.Tag, s.src, s.dst}}
		l.besides[lm] = b
	}
	b.seen(s.tap.File, s.o)
}

// locatorsAlone returns the findings of locator metadata that some port wrote beside an initial
// value.
func (d *Detector) locatorsAlone(l *layoutState) (list []Finding) {
	if d.cfg.Uninitialized {
		return nil
	}
	usual, most := uint16(0), uint64(0)
	for lm, b := range l.besides {
		if b.Count > most || b.Count == most && lm < usual {
			usual, most = lm, b.Count
		}
	}
	for lm, b := range l.besides {
		at, named := d.named(&b.first, b.first.tag.Layout)
		if lm == usual || !named {
			continue
		}
		f := b.Finding
		f.Kind, f.ID, f.Subject, f.Of = LocatorAlone, idOf(LocatorAlone, at.Name), at.Name, l.initial
		f.Evidence = fmt.Sprintf("LM %d beside initial values, where most tags have %d", lm, usual)
		f.setLocation(&at)
		list = append(list, f)
	}
	return list
}

// named returns the location that a tag names by the locator of a layout, if it is one.
func (d *Detector) named(s *tagSample, by csig.Layout) (at fabric.Location, ok bool) {
	id, _ := d.cfg.Locator.Locate(by, s.tag.T, s.tag.LM, s.src, s.dst)
	at, ok = d.cfg.Locator.Location(id)
	return at, ok && (at.Kind == fabric.KindPort || at.Kind == fabric.KindSet)
}

// wrongProfile suggests to read a layout's tags by the other profile, if they make more sense under
// that one.
func (d *Detector) wrongProfile(i int) (f Finding, ok bool) {
	l := &d.layouts[i]
	n := len(l.samples)
	if n < minSamples {
		return f, false
	}
	is := csig.LayoutAt(i)
	other := is
	if other.Profile = csig.UEC050; is.Profile == csig.UEC050 {
		other.Profile = csig.IETF01
	}
	now, then := d.sense(l.samples, is, is), max(d.sense(l.samples, other, other), d.sense(l.samples, other, is))
	if 100*then < 95*n || 100*now > 85*n {
		return f, false
	}
	return Finding{
		Kind: WrongProfile, ID: idOf(WrongProfile, is.String()), Subject: is.String(), From: l.sampled.from, To: l.sampled.to, Count: uint64(n - now), Of: uint64(n),
		Evidence: fmt.Sprintf("of %d tags, %d name a port of their path in the layout %s, %d would in %s", n, now, is, then, other),
	}, true
}

// sense returns the number of tags that name a port of their path when their bits are read by one
// layout and their metadata by the locator of another: the locator may be configured for the other
// profile.
func (d *Detector) sense(samples []tagSample, l, locator csig.Layout) (n int) {
	var buf [8]byte
	for _, s := range samples {
		s.tag = csig.Parse(l, s.tag.Append(buf[:0]))
		if _, ok := d.named(&s, locator); ok {
			n++
		}
	}
	return n
}

// wrongFormat suggests that tags of a layout are longer or shorter than configured, if no packet
// follows where they would end.
func (d *Detector) wrongFormat(i int) (f Finding, ok bool) {
	l, is := &d.layouts[i], csig.LayoutAt(i)
	f = l.alien
	if f.Count < minSamples || f.Count < 9*l.n {
		return f, false
	}
	other := csig.Wide
	if is.Format == csig.Wide {
		other = csig.Compact
	}
	f.Kind, f.ID, f.Subject, f.Of = WrongFormat, idOf(WrongFormat, is.String()), is.String(), f.Count+l.n
	f.Evidence = fmt.Sprintf("no IP packet follows %d of %d tags of %s: they may be %s", f.Count, f.Of, is, other)
	return f, true
}
