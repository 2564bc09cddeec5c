package finding

import (
	"fmt"
	"io"

	"github.com/csigscope/csigscope/aggregate"
)

// Kind is the kind of a finding.
type Kind uint8

// The kinds; WriteReference explains each.
const (
	UnauthorisedSender Kind = iota
	ForgedValue
	ScrubFailure
	Leak
	RogueInsertion
	UnknownLocator
	LocatorAlone
	AboveCapacity
	ReservedBits
	OrphanTag
	StuckPort
	StrippedFlows
	WrongProfile
	WrongFormat
	LostValue
	ContestedName
	ClockAhead
	SwappedLocators
	TypeChanged
	TrimInvented
	DuplicateFrames
	ClockSet
	TapLoss

	// NumKinds is the number of kinds.
	NumKinds = iota
)

// Severity is the severity of a finding, as stored.
type Severity string

// The severities. An error violates a document's requirement, a warning may be intended, an info is
// advice.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
	Info    Severity = "info"
)

// kindInfo describes a kind. Sections are those of draft-ravi-ippm-csig-01 unless they name another
// document.
type kindInfo struct {
	name      string
	severity  Severity
	unit      string // of Count and Of
	section   string
	means     string // its meaning
	from      string // the threshold, and the requirements to see it
	names     string // the named culprit
	otherwise string // explanations without a fault
	live      string // the data in which collect and export find it, or why they cannot
}

var kinds = [NumKinds]kindInfo{
	UnauthorisedSender: {
		"unauthorised-sender", Error, "observations", "section 9",
		"a tag from a source that is not among the senders", "one tag; the senders are given (`--senders`, or `findings: senders`)", "the source",
		"the list of senders is out of date",
		"tags",
	},
	ForgedValue: {
		"forged-value", Error, "observations", "section 9; IBCS 4.1",
		"a value that no port wrote", "at a sender, one value that is not the initial one. Elsewhere, 20 values whose locator no port of their path writes, in a share 10 times that of all other sources, if no device or port on the way explains them as well, and no earlier tap sees the same flows without such values. Or 20 delays in a row, over at least 200 ms, with the same heavy value of a port, bit for bit, while other tags show 20 changes of that port's value", "the source",
		"the tap is not at a sender (--place, or the taps of the fabric file), the source's network card writes values of its own, or locators of its rack are not in the fabric file; without a tap in front of the first device, also a device or port on the way that writes a wrong locator, a wrong value or another signal type",
		"tags, at senders",
	},
	ScrubFailure: {
		"scrub-failure", Error, "observations", "IBCS 4.1",
		"a value that a sender wrote passes the edge, which should reset it to the initial one", "20 such values behind the edge: of a source with forged values there, or with a value and a locator that a tap at the sender saw before", "the edge",
		"the edge is configured to trust its hosts; without a tap in front of it, also a device or port on the way that writes a wrong locator, a wrong value or another signal type",
		"no: taps elsewhere capture the sent tags",
	},
	Leak: {
		"leak", Error, "observations", "section 6.3.2; IBCS 4.3",
		"a tag outside of the domain", "one tag at a tap whose place is outside", "the tap, and the edge that tags leave by",
		"the tap is inside the domain",
		"no: rows come from taps inside the domain",
	},
	RogueInsertion: {
		"rogue-insertion", Error, "packets", "section 4.4.2",
		"a tag in a flow whose sender makes none", "10 more tags at receivers than a tap at the sender, which sees the flow, can explain", "the devices or ports that all flows with such tags cross; if that is not certain, up to 12 candidates",
		"the tap at the sender captures tagged packets by another filter than those of receivers",
		"no: taps elsewhere capture the sent tags",
	},
	UnknownLocator: {
		"unknown-locator", Warning, "observations", "section 5.5.1",
		"locator metadata that no port of the path writes, from sources that do not stand out", "one value that is not the initial one", "the locator, and the ports or devices that all flows with it cross and that wrote little else meanwhile; if that is not certain, up to 12 candidates, senders among them",
		"the fabric file or the locator layout is out of date, or a switch replaces values without locator metadata",
		"tags",
	},
	LocatorAlone: {
		"locator-alone", Error, "observations", "section 4.1.3",
		"locator metadata of a port beside the initial value", "one tag whose locator differs from that of most tags with the initial value", "the location",
		"first hops may write the initial value themselves (`windows: locate_untouched`)",
		"no: they only count initial values",
	},
	AboveCapacity: {
		"above-capacity", Warning, "observations", "section 5.1",
		"more available bandwidth than the port has, or a ratio above 1", "one value whose whole bucket is beyond that", "the location",
		"the port's speed in the fabric file, or the table's unit, is wrong",
		"tags",
	},
	ReservedBits: {
		"reserved-bits", Warning, "observations", "section 4.1",
		"reserved bits that are not 0", "one tag", "the devices or ports that all flows with such tags cross, else the layout",
		"the TPID has another layout than the configured one",
		"tags",
	},
	OrphanTag: {
		"orphan-tag", Warning, "observations", "section 4.1",
		"a tag before another tag of L2, inside a tunnel or in a mirror session, or a reflection in a session of ERSPAN or TZSP", "one of them", "the devices or ports that all flows with such tags cross, else the layout",
		"tags inside tunnels are intended (`decode: inner_tags`), or the tap holds mirror sessions (`taps: mirrors`)",
		"tags",
	},
	StuckPort: {
		"stuck-port", Warning, "observations", "section 5.1.1",
		"a port that always writes the same heavy value, bit for bit, and not the tightest one", "the value comes 200 times in 3 windows of 1 s, with pauses of up to 10 s, in one ring of a tap or in one capture of at least 3 s (for `report` also a rotated one). Flows that name the port are known (`flows: top`), and none of them has a looser value. The signal has 256 codes or more; or, with fewer codes, the value is a delay or queue depth of more than 4 packets of 9 KiB, while other tags of the port always show free bandwidth", "the port; or the port or the source, if all known flows are of one source",
		"the load of the port is constant, and its buckets are wide; or the port is shaped or paused",
		"windows",
	},
	StrippedFlows: {
		"stripped-flows", Warning, "packets", "section 6.1",
		"flows that arrive without the tags that their senders give them, at hosts that get tags on other paths", "20 missing tags of each flow, and a certain culprit or a tap at the sender that sees the tags. A device or port that 3 tagged flows of the same VLAN and DSCP surely pass is no culprit", "the devices or ports that these flows cross and other flows do not",
		"the devices strip for hosts behind them that do not know tags",
		"no: packets without tags are not followed",
	},
	WrongProfile: {
		"wrong-profile", Info, "observations", "section 4.1",
		"fields that make sense in the other profile", "100 values that are not the initial one, of which at least 95 % name a port of their path if read in the other profile, and at most 85 % in this one; this finding replaces the others of the layout", "the layout",
		"the fabric file describes other locators than the switches write",
		"no: that needs a look back at other findings",
	},
	WrongFormat: {
		"wrong-format", Info, "observations", "section 4.1",
		"tags that no packet follows", "100 tags, of which at least 90 % have no IP packet behind them", "the layout",
		"the tagged packets are not IP",
		"no: that needs a look back at other findings",
	},
	LostValue: {
		"lost-value", Warning, "observations", "section 4.1.3; IBCS 4.2",
		"a later hop resets or overwrites the value or the locator of the first hop, although its own delay is not higher", "20 delays with the least code of all, of a table of at least 256 codes, name a port behind the first device of their path; at least 2 of these first devices name themselves with this code in other flows; and the culprit is certain", "the devices or ports that these flows cross and other flows do not",
		"neither that hop nor the ports before it on these paths support the signal",
		"no: that needs a look at all flows",
	},
	ContestedName: {
		"contested-name", Warning, "descriptions", "none: collectors find it",
		"an exporter describes a group or a location differently than the collector's fabric file, or than the exporter that came first; the earlier description stays in force, and rows are stored under it", "one description", "the name, the exporter, and the owner of the description in force",
		"the fabric file of the exporters has changed: `csigscope schema unpin` lets the next description replace it",
		"collectors",
	},
	ClockAhead: {
		"clock-ahead", Warning, "observations or windows", "none: collectors and exporters find it",
		"the times of a tap's packets, or of an exporter's windows, are more than 2 s ahead of the host's clock; observations with such times are rejected", "one observation or one window", "the tap or the exporter",
		"the host's own clock is behind",
		"collectors, exporters",
	},
	SwappedLocators: {
		"swapped-locators", Error, "observations", "section 5.5.1",
		"two ports of a device that write each other's locator metadata", "3 flows whose values name ports that lie on no common path; once the two ports are exchanged, 9 of 10 do, and at most a tenth as many other flows contradict it", "both ports",
		"the fabric file, or the cabling, has the two exchanged",
		"windows: the flows of 10 s (`flows: top`), twice in a row",
	},
	TypeChanged: {
		"type-changed", Error, "observations", "section 4.4.2",
		"tags whose signal type changed on the way", "in each of 3 flows, 20 tags more of a type than a tap at the sender sees. Or, without such a tap, 20 tags fewer of a type that the source's other flows have, and a certain culprit", "the devices or ports that these flows cross and other flows do not",
		"the tap at the sender captures by another filter, or senders choose types by destination",
		"no: taps elsewhere capture the sent tags",
	},
	TrimInvented: {
		"trim-invented", Error, "observations", "IEEE 802.1 slides, January 2026, \"CSIG Entity Functions\"",
		"packets with the trim bit D that were not trimmed; their values are missing in the mode", "20 packets that are at least 300 bytes and nine tenths of the longest packet without D", "the devices or ports that these flows cross and other flows do not, senders among them",
		"switches trim to more than the headers, or the tags have another profile than configured for their TPID",
		"tags; the finding names the layout",
	},
	DuplicateFrames: {
		"duplicate-frames", Warning, "frames", "none: the tap's own",
		"frames that a tap captures twice, which count twice", "20 frames, and 1 of 1,000, with the same bytes as a frame at the same tap within 1 ms before; frames that come again within the next 1 s, as identical probes do, do not count (`--dedup` drops duplicates)", "the tap",
		"applications send the same packets again",
		"frames, in 2 ms of each 537 ms",
	},
	ClockSet: {
		"clock-set", Warning, "frames", "none: the tap's own",
		"a tap's clock that is set during the capture", "50 frames in a row with times more than 100 ms before the latest one; or a jump ahead of at least 1 s, if each other tap has frames in that time and this tap is then ahead of all of them by half as much", "the tap",
		"captures were joined in another order than by time, or only the network at this tap paused",
		"frames; only jumps back",
	},
	TapLoss: {
		"tap-loss", Warning, "TCP segments", "none: the tap's own",
		"packets that reached their receiver, but that the tap there did not capture", "20 TCP segments, and 1 of 1,000, that receivers acknowledge and the tap lacks, between segments of the same connection that it has; the tap also captures data without tags", "the tap",
		"packets take another link around the tap",
		"no: acknowledgements are not followed",
	},
}

// String returns the kind's name.
func (k Kind) String() string { return kinds[k].name }

// Severity returns the severity of all findings of the kind.
func (k Kind) Severity() Severity { return kinds[k].severity }

// Unit returns the unit of Count and Of of all findings of the kind, in the plural.
func (k Kind) Unit() string { return kinds[k].unit }

// Otherwise returns explanations for such a finding without a fault.
func (k Kind) Otherwise() string { return kinds[k].otherwise }

// TapAhead returns the finding that a tap counted packets with times ahead of the host's clock,
// between two times of that clock (Unix ns).
func TapAhead(tap string, from, to int64, count uint64) Finding {
	return Finding{
		Kind: ClockAhead, ID: idOf(ClockAhead, tap), Subject: tap, From: from, To: to, Count: count, Of: count,
		Evidence: fmt.Sprintf("tap %.64q has packets with times more than %s ahead of the host's clock, which are rejected: set the clock of its network card from the host's", tap, aggregate.MaxAhead),
	}
}

// WriteReference writes the kinds as a table in Markdown, and the faults that receivers do not
// show.
func WriteReference(w io.Writer) error {
	if _, err := fmt.Fprint(w, "| finding | severity | meaning | threshold | named culprit | other explanations | collect and export find it in | source |\n|---|---|---|---|---|---|---|---|\n"); err != nil {
		return fmt.Errorf("write reference of findings: %w", err)
	}
	for i := range kinds {
		k := &kinds[i]
		if _, err := fmt.Fprintf(w, "| `%s` | %s | %s | %s | %s | %s | %s | %s |\n", k.name, k.severity, k.means, k.from, k.names, k.otherwise, k.live, k.section); err != nil {
			return fmt.Errorf("write reference of findings: %w", err)
		}
	}
	return writeUnseen(w)
}

// unseen are faults that receivers do not show, the reason, and the way to see them.
var unseen = [...][3]string{
	{"a port's table of codes is wrong", "the port may really be that loaded, or that slow", "its counters (`conform --metrics`)"},
	{"a device adds tags to packets of senders", "senders may tag any packet", "captures at senders, or around it (`conform`)"},
	{"a rack's first device strips tags", "its hosts may send none", "captures at senders"},
	{"a port writes a value and keeps the locator of a port before it", "that port may have written the value: consecutive values of one port differ as much without the fault", "captures around it (`conform`)"},
	{"a sender writes values with the locator of a port that hardly any other tag names", "the port may be that loaded; after 3 s stuck-port names it or the sender", "captures at senders"},
	{"a device resets or overwrites values in only a dozen flows, or delays of few codes", "these may be the flows that pass it by chance; with few codes different delays have the same code", "more flows, or captures around it (`conform`)"},
	{"a port always writes the same one of the 32 codes of compact tags, and no bandwidth in its tags contradicts it", "a sound port with a steady load or a full queue does so as well: with flows of constant rate, in 8,100 of 8,100 packets of 3 s", "its counters (`conform --metrics`)"},
	{"two ports write each other's locators, and no flow that passes them names another port", "nothing contradicts the locators", "captures around the device (`conform`)"},
	{"a device exchanges all signal types in turn", "each type arrives as often as it was sent", "captures around it (`conform`)"},
	{"a port writes into trimmed packets", "the value at the time of trimming is lost", "captures around it (`conform`)"},
}

// writeUnseen writes unseen as a table in Markdown.
func writeUnseen(w io.Writer) error {
	text := "\nFaults that taps at receivers cannot show:\n\n| fault | reason | shown by |\n|---|---|---|\n"
	for _, row := range unseen {
		text += fmt.Sprintf("| %s | %s | %s |\n", row[0], row[1], row[2])
	}
	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("write reference of findings: %w", err)
	}
	return nil
}
