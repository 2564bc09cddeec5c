package finding

import (
	"fmt"
	"net/netip"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

const (
	// maxSamples is how many tags of a layout are looked at under the other profile.
	maxSamples = 1024
	// minSamples is how many of them it takes.
	minSamples = 100
	// maxDefaults bounds the locator metadata beside initial values that are told apart.
	maxDefaults = 1024
)

// layoutState is what the tags of one layout have in common.
type layoutState struct {
	n, reserved      uint64
	touched, unknown uint64
	samples          []tagSample
	initial          uint64
	besides          map[uint16]*beside // locator metadata beside initial values
}

// tagSample is a tag that some hop replaced, and the path that it measured.
type tagSample struct {
	tag      csig.Tag
	src, dst netip.Addr
}

// beside is one value of locator metadata beside initial values.
type beside struct {
	first    tagSample
	n        uint64
	from, to int64
	packets  []Packet
}

func (l *layoutState) sample(tag *csig.Tag, src, dst netip.Addr) {
	if len(l.samples) < maxSamples {
		l.samples = append(l.samples, tagSample{*tag, src, dst})
	}
}

// alone counts locator metadata beside an initial value. Hosts write a default there
// (section 4.1.3), which is not known: it is what most of them have.
func (l *layoutState) alone(tap *Tap, o *decode.Observation, src, dst netip.Addr) {
	l.initial++
	b := l.besides[o.Tag.LM]
	if b == nil {
		if len(l.besides) >= maxDefaults {
			return
		}
		if l.besides == nil {
			l.besides = make(map[uint16]*beside)
		}
		b = &beside{first: tagSample{o.Tag, src, dst}, from: o.TimeNS, to: o.TimeNS}
		l.besides[o.Tag.LM] = b
	}
	b.n++
	b.from, b.to = min(b.from, o.TimeNS), max(b.to, o.TimeNS)
	if len(b.packets) < maxPackets {
		b.packets = append(b.packets, Packet{tap.File, o.Packet})
	}
}

// locatorsAlone are the findings of locator metadata that some port wrote beside an
// initial value.
func (d *Detector) locatorsAlone() (list []Finding) {
	if d.cfg.Uninitialized {
		return nil
	}
	for i := range d.layouts {
		l := &d.layouts[i]
		usual, most := uint16(0), uint64(0)
		for lm, b := range l.besides {
			if b.n > most || b.n == most && lm < usual {
				usual, most = lm, b.n
			}
		}
		for lm, b := range l.besides {
			at, named := d.named(&b.first)
			if lm == usual || !named {
				continue
			}
			f := Finding{
				Kind: LocatorAlone, ID: idOf(LocatorAlone, at.Name), Subject: at.Name, From: b.from, To: b.to, Count: b.n, Of: l.initial, Packets: b.packets,
				Evidence: fmt.Sprintf("LM %d beside initial values, where most tags have %d", lm, usual),
			}
			f.place(&at)
			list = append(list, f)
		}
	}
	return list
}

// named is the location that a tag names, if it is one.
func (d *Detector) named(s *tagSample) (at fabric.Location, ok bool) {
	id, _ := d.cfg.Locator.Locate(s.tag.Layout, s.tag.T, s.tag.LM, s.src, s.dst)
	at, ok = d.cfg.Locator.Location(id)
	return at, ok && (at.Kind == fabric.KindPort || at.Kind == fabric.KindSet)
}

// wrongProfiles are suggestions to read a layout's tags by the other profile: where they
// make no sense as configured, and do under that one.
func (d *Detector) wrongProfiles() (list []Finding) {
	for i := range d.layouts {
		l := &d.layouts[i]
		if len(l.samples) < minSamples || l.unknown < l.touched/2 {
			continue
		}
		is := csig.LayoutAt(i)
		other := is
		if other.Profile = csig.UEC050; is.Profile == csig.UEC050 {
			other.Profile = csig.IETF01
		}
		now, then := d.sense(l.samples, is), d.sense(l.samples, other)
		if then < len(l.samples)*9/10 {
			continue
		}
		list = append(list, Finding{
			Kind: WrongProfile, ID: idOf(WrongProfile, is.String()), Subject: is.String(), Count: l.unknown, Of: l.touched,
			Evidence: fmt.Sprintf("of %d tags, %d name a port of their path as %s, %d would as %s", len(l.samples), now, is, then, other),
		})
	}
	return list
}

// sense is how many tags name a port of their path when their bits are read by a layout.
func (d *Detector) sense(samples []tagSample, l csig.Layout) (n int) {
	var buf [8]byte
	for _, s := range samples {
		s.tag = csig.Parse(l, s.tag.Append(buf[:0]))
		if _, ok := d.named(&s); ok {
			n++
		}
	}
	return n
}
