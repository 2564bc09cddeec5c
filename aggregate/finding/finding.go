package finding

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/csigscope/csigscope/aggregate"
)

// Kind is what was found.
type Kind uint8

// The kinds; the package's documentation defines them.
const (
	UnauthorisedSender Kind = iota
	ForgedValue
	Leak
	UnknownLocator
	LocatorAlone
	AboveCapacity
	ReservedBits
	OrphanTag
	StuckPort
	WrongProfile

	numKinds
)

// Severity is how bad a finding is, in the words that findings are stored with.
type Severity string

// The severities. An error breaks what a document demands, a warning may well be meant,
// an info is advice.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
	Info    Severity = "info"
)

// about is what is known of a kind.
type about struct {
	name      string
	severity  Severity
	otherwise string // what would explain it without a fault
}

var kinds = [numKinds]about{
	UnauthorisedSender: {"unauthorised-sender", Error, "the list of senders is out of date"},
	ForgedValue:        {"forged-value", Error, "the source's network card writes values of its own, or locators of its rack are not in the fabric file"},
	Leak:               {"leak", Error, "the tap stands inside of the domain"},
	UnknownLocator:     {"unknown-locator", Warning, "the fabric file or the locator layout is out of date, or a switch replaces values without locator metadata"},
	LocatorAlone:       {"locator-alone", Error, "first hops may write the initial value themselves (windows: locate_untouched)"},
	AboveCapacity:      {"above-capacity", Warning, "the port's speed in the fabric file, or the table's unit, is wrong"},
	ReservedBits:       {"reserved-bits", Warning, "the TPID stands for another layout than configured"},
	OrphanTag:          {"orphan-tag", Warning, "tags inside of tunnels are meant (decode: inner_tags)"},
	StuckPort:          {"stuck-port", Warning, "the load of the port is constant, and its buckets are wide"},
	WrongProfile:       {"wrong-profile", Info, "the fabric file describes other locators than the switches write"},
}

// String is the kind's name.
func (k Kind) String() string { return kinds[k].name }

// Severity is that of all findings of the kind.
func (k Kind) Severity() Severity { return kinds[k].severity }

// Otherwise says what would explain such a finding without a fault.
func (k Kind) Otherwise() string { return kinds[k].otherwise }

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
	Device   string // of the location, empty when it is none or several
	Port     string
	From, To int64  // of the first and the last packet, Unix ns
	Count    uint64 // observations
	Of       uint64 // observations that might have been
	Evidence string
	Packets  []Packet // the first ones
}

// idOf is a number for a kind and a subject.
func idOf(k Kind, subject string) uint64 {
	return xxhash.Sum64(append(binary.AppendUvarint(nil, uint64(k)), subject...))
}

// order sorts findings: errors first, then the kinds, then those with most observations.
func order(list []Finding) {
	rank := map[Severity]int{Error: 0, Warning: 1, Info: 2}
	slices.SortFunc(list, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(rank[a.Kind.Severity()], rank[b.Kind.Severity()]), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(b.Count, a.Count), cmp.Compare(a.Subject, b.Subject))
	})
}
