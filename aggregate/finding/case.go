package finding

import (
	"net/netip"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// subject is who a finding is about, as it is known while packets pass: one of the
// members.
type subject struct {
	addr     netip.Addr
	at       aggregate.LocationID
	name     string
	layout   csig.Layout
	isLayout bool
}

// caseKey is a finding by subject and layout. Layouts are apart so that a wrong one takes
// back its findings alone.
type caseKey struct {
	kind   Kind
	layout uint8
	of     subject
}

// beyond is the subject of what goes beyond MaxSubjects.
const beyond = "others"

// found counts an observation for a finding.
func (d *Detector) found(k Kind, of subject, tap *Tap, o *decode.Observation) {
	d.caseOf(k, of, o).seen(tap.File, o)
}

// caseOf is the finding of a subject, or that of all others past the bound.
func (d *Detector) caseOf(k Kind, of subject, o *decode.Observation) *Finding {
	key := caseKey{k, uint8(o.Tag.Layout.Index()), of}
	if f := d.cases[key]; f != nil {
		return f
	}
	if d.sizes[k] >= d.cfg.MaxSubjects {
		key.of = subject{name: beyond}
		if f := d.cases[key]; f != nil {
			return f
		}
	} else {
		d.sizes[k]++
	}
	f := &Finding{Kind: k}
	switch of = key.of; {
	case of.addr.IsValid():
		f.Subject = of.addr.String()
	case of.at != 0:
		at, _ := d.cfg.Locator.Location(of.at)
		f.Subject = at.Name
		f.place(&at)
	case of.isLayout:
		f.Subject = of.layout.String()
	default:
		f.Subject = of.name
	}
	f.ID = idOf(k, f.Subject)
	d.cases[key] = f
	return f
}
