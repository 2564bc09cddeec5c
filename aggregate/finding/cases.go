package finding

import (
	"fmt"
	"net/netip"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// A single is a kind of finding whose cases are counted by subject, with its evidence. A Detector and a Watcher apply
// the same rules over one observation; each of them decides by its own knowledge which observations break one.
type single struct {
	of    subjectKind
	shows string // evidence, with the subject
}

// subjectKind is the kind of subject of a single.
type subjectKind uint8

const (
	subjectSource subjectKind = iota + 1
	subjectLayout
	subjectLocation
	subjectTap
)

// singles are the kinds that are counted by subject.
var singles = [NumKinds]single{
	UnauthorisedSender: {subjectSource, "%s sends tags and is not among the senders"},
	ForgedValue:        {subjectSource, "%s sends tags whose value is not the initial one"},
	Leak:               {subjectTap, "tags arrive at %s, outside of the domain"},
	UnknownLocator:     {subjectLocation, "values name no port of their path: %s"},
	AboveCapacity:      {subjectLocation, "values of %s are more than it can carry"},
	ReservedBits:       {subjectLayout, "reserved bits of %s are set"},
	TrimInvented:       {subjectLayout, "packets with the trim bit of %s are as long as the longest ones without"},
	DuplicateFrames:    {subjectTap, "%s captured frames with the same bytes twice within 1 ms"},
	ClockSet:           {subjectTap, "the clock of %s jumps back"},
	OrphanTag:          {subjectLayout, "packets have tags of %s before other tags, inside tunnels or in mirror sessions"},
}

// caseKey is a kind and its subject: one of the fields, or all subjects beyond the bound.
type caseKey struct {
	kind   Kind
	layout uint8
	addr   netip.Addr
	at     aggregate.LocationID
	signal csig.Signal // of StuckPort
	name   string      // of the tap, or of both ports
	beyond bool
}

// keyOf returns the key of the case for an observation that breaks a single rule.
func keyOf(k Kind, o *decode.Observation, at aggregate.LocationID, tap string) caseKey {
	key := caseKey{kind: k}
	switch singles[k].of {
	case subjectSource:
		key.addr, _ = ends(o)
	case subjectLayout:
		key.layout = uint8(o.Tag.Layout.Index())
	case subjectLocation:
		key.at = at
	case subjectTap:
		key.name = tap
	}
	return key
}

// cases are findings by subject, a bounded number for each kind.
type cases struct {
	of      map[caseKey]*Finding
	sizes   *[NumKinds]int // that several may share
	most    int
	locator Locator
}

func newCases(cfg *Config, sizes *[NumKinds]int) cases {
	return cases{of: make(map[caseKey]*Finding), sizes: sizes, most: cfg.MaxSubjects, locator: cfg.Locator}
}

// get returns the finding of a subject. Past the bound, all other subjects of a kind share one.
func (c *cases) get(k caseKey) *Finding {
	f := c.of[k]
	if f == nil && c.sizes[k.kind] >= c.most {
		k = caseKey{kind: k.kind, beyond: true}
		f = c.of[k]
	}
	if f == nil {
		f = c.begin(k)
		c.of[k] = f
		c.sizes[k.kind]++
	}
	return f
}

// begin returns a finding without observations.
func (c *cases) begin(k caseKey) *Finding {
	if k.beyond {
		f := OverflowFinding(k.kind)
		return &f
	}
	f := &Finding{Kind: k.kind}
	switch {
	case k.at != aggregate.NoLocation:
		at, _ := c.locator.Location(k.at)
		f.Subject = at.Name
		f.setLocation(&at)
		if k.kind == StuckPort {
			f.Subject += " " + k.signal.String()
		}
	case singles[k.kind].of == subjectSource:
		f.Subject = k.addr.String()
	case singles[k.kind].of == subjectLayout:
		f.Subject = csig.LayoutAt(int(k.layout)).String()
	default:
		f.Subject = k.name
	}
	f.ID = idOf(f.Kind, f.Subject)
	if shows := singles[f.Kind].shows; shows != "" {
		f.Evidence = fmt.Sprintf(shows, f.Subject)
	}
	return f
}

// beyond is the subject of findings beyond MaxSubjects.
const beyond = "others"

// OverflowFinding returns the finding, still without observations, that sums all subjects of a kind
// beyond the bound.
func OverflowFinding(k Kind) Finding {
	return Finding{Kind: k, ID: idOf(k, beyond), Subject: beyond, Evidence: fmt.Sprintf("%s of %s, which are counted together", k, beyond)}
}
