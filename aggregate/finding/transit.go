package finding

import (
	"fmt"

	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// types counts the tags of a flow by signal type.
type types [16]uint32

func (t *types) add(o *decode.Observation) { t[o.Tag.T&15]++ }

// retyped returns the finding of tags whose signal type changed on the way (section 4.4.2): of
// flows that arrive with more tags of a type than a tap at the sender sees, or without a type that
// their source gives to its other flows, if paths explain that.
func (d *Detector) retyped(c *localizer, all []*flow) (f Finding, ok bool) {
	usual := map[[16]byte]*types{}
	for _, one := range all {
		if usual[one.key.src] == nil {
			usual[one.key.src] = new(types)
		}
		for t, n := range one.gotTypes {
			usual[one.key.src][t] += n
		}
	}
	var affected, kept []*flow
	witnessed := 0
	for _, one := range all {
		changed, seen := one.retyped(usual[one.key.src])
		switch {
		case changed >= minMissing:
			affected = append(affected, one)
			if seen {
				witnessed++
			}
			f.during(one.from, one.to)
			f.Count += changed
			f.Of += one.got.tagged
		case one.got.tagged >= minMissing:
			kept = append(kept, one)
			f.Of += one.got.tagged
		}
	}
	if len(affected) == 0 {
		return f, false
	}
	v := c.rank(affected, kept, senders)
	if !v.sure && (witnessed < len(affected) || witnessed < minAffected) {
		return f, false
	}
	f.Kind = TypeChanged
	f.Evidence = fmt.Sprintf("%d flows arrive with other signal types than their senders sent, %d with the same", len(affected), len(kept))
	v.nameCulprits(&f)
	return f, true
}

// retyped returns the number of a flow's tags with another type than at the sender; seen reports
// that a tap at the sender measured it. Without such a tap, it is the number of missing tags of a
// type that the source's other flows have.
func (one *flow) retyped(usual *types) (changed uint64, seen bool) {
	sent, got := one.sent.tagged, one.got.tagged
	if sent >= minMissing && got >= minMissing {
		for t, n := range one.gotTypes {
			if had := uint64(one.sentTypes[t]) * max(got, sent) / sent; uint64(n) > had+had/4 {
				changed += uint64(n) - had
			}
		}
		return changed, true
	}
	var others, all uint64
	for t, n := range usual {
		others += uint64(n) - uint64(one.gotTypes[t])
	}
	for t, n := range usual {
		if one.gotTypes[t] == 0 && others > 0 {
			all += uint64(n) * got / others
		}
	}
	return all, false
}

const (
	// minWhole is the minimum length of an untrimmed packet, in bytes, and wholeShare its minimum
	// share of the longest packet of its layout: trimming leaves only the headers.
	minWhole   = 300
	wholeShare = 0.9
)

// wholes are the packets with D of a flow that are about as long as the longest one.
type wholes struct {
	bytes  uint32
	layout csig.Layout
	Finding
}

// whole reports whether they are untrimmed, given the length of the longest packet without D.
func (w *wholes) whole(longest uint32) bool {
	return w.bytes >= minWhole && longest > 0 && float64(w.bytes) >= wholeShare*float64(longest)
}

// trimmed takes a tag with D.
func (w *wholes) trimmed(tap *Tap, o *decode.Observation) {
	if o.Bytes > w.bytes+w.bytes/8 {
		*w = wholes{bytes: o.Bytes, layout: o.Tag.Layout}
	}
	if float64(o.Bytes) >= wholeShare*float64(w.bytes) {
		w.seen(tap.File, o)
	}
}

// frozen returns the finding of packets with D that are as long as those without: they were not
// trimmed, and their values are missing in the mode of the bottleneck. It ignores layouts that are
// misread, or whose locators often name no port: their D may be a bit of the locator.
func (d *Detector) frozen(c *localizer, all []*flow, misread [csig.NumLayouts]bool) (f Finding, ok bool) {
	longest := uint32(0)
	for i := range d.layouts {
		l := &d.layouts[i]
		longest = max(longest, l.longest)
		misread[i] = misread[i] || 10*l.unknownLMs.all.unknownLM > l.unknownLMs.all.touched
	}
	var affected, kept []*flow
	for _, one := range all {
		f.Of += one.got.tagged
		if w := one.wholes; w != nil && w.whole(longest) && !misread[w.layout.Index()] {
			affected = append(affected, one)
			f.add(&w.Finding)
		} else if one.got.tagged >= minUnknownLMs {
			kept = append(kept, one)
		}
	}
	if f.Count < minUnknownLMs {
		return f, false
	}
	f.Kind = TrimInvented
	f.Evidence = fmt.Sprintf("%d packets of %d flows have the trim bit and are as long as others (%d bytes)", f.Count, len(affected), longest)
	v := c.rank(affected, kept, nil)
	v.nameCulprits(&f)
	return f, true
}
