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
	section   string
	means     string // its meaning
	from      string // the threshold, and the requirements to see it
	names     string // the named culprit
	otherwise string // explanations without a fault
	live      string // the data in which collect and export find it, or why they cannot
}

var kinds = [NumKinds]kindInfo{
	UnauthorisedSender: {
		"unauthorised-sender", Error, "section 9",
		"a tag from a source that is not among the senders", "one tag; the senders are given (`--senders`, or `findings: senders`)", "the source",
		"the list of senders is out of date",
		"tags",
	},
	ForgedValue: {
		"forged-value", Error, "section 9; IBCS 4.1",
		"a value that no port wrote", "at a sender, one value that is not initial; elsewhere, 20 whose locator no port of their path writes, in a share 10 times that of all other sources, where nothing that its packets pass explains them as well; or 20 delays in a row, of 200 ms, that are one heavily loaded value of a port, to the bit, which says otherwise to others 20 times meanwhile", "the source",
		"the source's network card writes values of its own, or locators of its rack are not in the fabric file",
		"tags, at senders",
	},
	ScrubFailure: {
		"scrub-failure", Error, "IBCS 4.1",
		"a value that a sender wrote passes the edge, which is to set it back to the initial one", "20 such values behind the edge: of a source with forged values there, or with value and locator that a tap at the sender saw before", "the edge",
		"the edge is configured to trust its hosts",
		"no: what was sent is captured elsewhere",
	},
	Leak: {
		"leak", Error, "section 6.3.2; IBCS 4.3",
		"a tag outside of the domain", "one tag at a tap whose place is outside", "the tap, and the edge that tags leave by",
		"the tap stands inside of the domain",
		"no: rows come from taps inside of the domain",
	},
	RogueInsertion: {
		"rogue-insertion", Error, "section 4.4.2",
		"a tag in a flow whose sender makes none", "10 tags more at receivers than a tap at the sender, which sees the flow, allows for", "the devices or ports that flows with such tags have in common; where that is not sure, up to 12 that it may be",
		"the tap at the sender captures tagged packets by another filter than those of receivers",
		"no: what was sent is captured elsewhere",
	},
	UnknownLocator: {
		"unknown-locator", Warning, "section 5.5.1",
		"locator metadata that no port of the path writes, of sources that do not stand out", "one value that some hop replaced", "the locator, and the ports or devices that flows with it have in common and that wrote little else meanwhile; where that is not sure, up to 12 that it may be, senders among them",
		"the fabric file or the locator layout is out of date, or a switch replaces values without locator metadata",
		"tags",
	},
	LocatorAlone: {
		"locator-alone", Error, "section 4.1.3",
		"locator metadata of a port beside a value that no hop replaced", "one tag whose locator is not what most tags without a value have", "the location",
		"first hops may write the initial value themselves (`windows: locate_untouched`)",
		"no: values that no hop replaced are counted alone",
	},
	AboveCapacity: {
		"above-capacity", Warning, "section 5.1",
		"more available bandwidth than the port has, or a ratio above 1", "one value whose whole bucket is beyond", "the location",
		"the port's speed in the fabric file, or the table's unit, is wrong",
		"tags",
	},
	ReservedBits: {
		"reserved-bits", Warning, "section 4.1",
		"reserved bits that are not 0", "one tag", "the devices or ports that flows with such tags have in common, else the layout",
		"the TPID stands for another layout than configured",
		"tags",
	},
	OrphanTag: {
		"orphan-tag", Warning, "section 4.1",
		"a tag before another tag of L2, inside of a tunnel or in a mirror session, or a reflection in one", "one of them", "the devices or ports that flows with such tags have in common, else the layout",
		"tags inside of tunnels are meant (`decode: inner_tags`), or the tap holds mirror sessions (`taps: mirrors`)",
		"tags",
	},
	StuckPort: {
		"stuck-port", Warning, "section 5.1.1",
		"a port that writes one heavily loaded value, to the bit, and not the tightest one", "a value of a signal with 256 codes or more, or a delay or queue depth of fewer that says that more than 4 packets of 9 KiB always wait, where the port says that bandwidth is left all the time; 200 times in 3 windows of 1 s with pauses of up to 10 s, in one ring of a tap or one capture, which is 3 s long or more; flows that name the port are known (`flows: top`), and none of them has a value that is not as tight", "the port; or, where all flows that are known are of one source, that or the source",
		"the load of the port is constant, and its buckets are wide; or the port is shaped or paused",
		"windows",
	},
	StrippedFlows: {
		"stripped-flows", Warning, "section 6.1",
		"flows that arrive without the tags that their senders give them, at hosts that get tags on other paths", "of each flow 20 tags that are not there, and 100 times likelier by what they pass than by chance, for each of what that may be, but for what 3 flows with tags of the same VLAN and DSCP surely pass; or a tap at the sender that sees them", "the devices or ports that such flows have in common and others not",
		"the devices strip for hosts behind them that do not know tags",
		"no: packets without tags are not followed",
	},
	WrongProfile: {
		"wrong-profile", Info, "section 4.1",
		"fields that make sense in the other profile", "100 values that some hop replaced, of which at least 95 % name a port of their path as the other profile has it, and at most 85 % as this one; it explains what else would be found of the layout", "the layout",
		"the fabric file describes other locators than the switches write",
		"no: it takes a look back at other findings",
	},
	WrongFormat: {
		"wrong-format", Info, "section 4.1",
		"tags that no packet follows", "100 tags, of which at least 90 % have no IP packet behind them", "the layout",
		"what is tagged is no IP",
		"no: it takes a look back at other findings",
	},
	LostValue: {
		"lost-value", Warning, "section 4.1.3; IBCS 4.2",
		"what the first port of a path wrote, value or locator, is set back or written over by a later one that adds no more delay", "20 delays, of at least 256 codes, that are the least of all, and name a port behind the first device, in flows from 2 devices which name themselves with as much in other flows; 100 times likelier by what these flows pass than by chance, for each of what that may be", "the devices or ports that such flows have in common and others not",
		"neither it nor the ports before it on these paths support the signal",
		"no: it takes a look at all flows",
	},
	ContestedName: {
		"contested-name", Warning, "none: collectors find it",
		"an exporter describes a group or a location otherwise than a fabric file of the collector's, or than the exporter that came first; that holds, and rows are stored under it", "one description", "the name, the exporter and whose description holds",
		"the fabric file of the exporters has changed: `csigscope schema unpin` takes the next description",
		"collectors",
	},
	ClockAhead: {
		"clock-ahead", Warning, "none: collectors and exporters find it",
		"the times of a tap's packets, or of an exporter's windows, are more than 2 s ahead of the host's clock; observations with such times are rejected", "one observation or one window", "the tap or the exporter",
		"the host's own clock is behind",
		"collectors, exporters",
	},
	SwappedLocators: {
		"swapped-locators", Error, "section 5.5.1",
		"two ports of a device that write each other's locator metadata", "3 flows whose values name ports that lie on no path together, as 9 of 10 do once the two are exchanged; which contradicts less than a tenth as many others", "both ports",
		"the fabric file, or the cabling, has the two exchanged",
		"windows: flows of 20 s (`flows: top`)",
	},
	TypeChanged: {
		"type-changed", Error, "section 4.4.2",
		"tags whose signal type changed on the way", "of 3 flows each 20 tags of types that a tap at the sender sees fewer of; or that lack a type which their source's other flows have, and 100 times likelier by what they pass than by chance", "the devices or ports that such flows have in common and others not",
		"the tap at the sender captures by another filter, or senders choose types by destination",
		"no: what was sent is captured elsewhere",
	},
	TrimInvented: {
		"trim-invented", Error, "UEC slides, CSIG Entity Functions",
		"packets with the trim bit D that were not trimmed, whose values leave the mode", "20 packets that are at least 300 bytes and nine tenths of the longest packet without D", "the devices or ports that such flows have in common and others not, senders among them",
		"switches trim to more than the headers",
		"tags; names the layout",
	},
	DuplicateFrames: {
		"duplicate-frames", Warning, "none: the tap's own",
		"frames that a tap captures twice, which count twice", "20 frames, and 1 of 1,000, that are the same to the bit as one within 1 ms before them at the same tap, and as none for 1 s after that, which probes that are all the same have (`--dedup` drops them)", "the tap",
		"applications send the same packets again",
		"frames of 2 ms in each 537 ms",
	},
	ClockSet: {
		"clock-set", Warning, "none: the tap's own",
		"a tap's clock that is set during the capture", "50 frames in a row that are more than 100 ms before the latest one; or a jump of at least 1 s ahead, in which each other tap has frames and after which it is ahead of all of them by half as much", "the tap",
		"captures were joined in another order than by time, or the network paused at this tap alone",
		"frames; back alone",
	},
	TapLoss: {
		"tap-loss", Warning, "none: the tap's own",
		"packets that reached their receiver and that the tap there did not capture", "20 TCP segments, and 1 of 1,000, that receivers acknowledge, between others of the connection that the tap has; a tap that captures data without tags as well", "the tap",
		"packets take another link around the tap",
		"no: acknowledgements are not followed",
	},
}

// String returns the kind's name.
func (k Kind) String() string { return kinds[k].name }

// Severity returns the severity of all findings of the kind.
func (k Kind) Severity() Severity { return kinds[k].severity }

// Otherwise returns explanations for such a finding without a fault.
func (k Kind) Otherwise() string { return kinds[k].otherwise }

// TapAhead returns the finding that a tap counted packets with times ahead of the host's clock,
// between two times of that clock (Unix ns).
func TapAhead(tap string, from, to int64, count uint64) Finding {
	return Finding{
		Kind: ClockAhead, ID: idOf(ClockAhead, tap), Subject: tap, From: from, To: to, Count: count, Of: count,
		Evidence: fmt.Sprintf("tap %.64q has packets with times more than %s ahead of the host's clock, which are rejected: set the clock of its network card by the host's", tap, aggregate.MaxAhead),
	}
}

// WriteReference writes the kinds as a table in Markdown, and the faults that receivers do not
// show.
func WriteReference(w io.Writer) error {
	if _, err := fmt.Fprint(w, "| finding | severity | what it is | from when on | what it names | what would explain it otherwise | collect and export find it by | source |\n|---|---|---|---|---|---|---|---|\n"); err != nil {
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
	{"a port's table of codes is off", "the port may be as loaded, or as slow", "its counters (`conform --metrics`)"},
	{"a device tags packets of others", "senders may tag what they like", "captures at senders, or around it (`conform`)"},
	{"a rack's first device strips tags", "its hosts may send none", "captures at senders"},
	{"a port writes a value beside the locator that it finds, where that is a port's before it", "that port may have written it: values that follow each other at one port differ as much without the fault", "captures around it (`conform`)"},
	{"a sender writes values in the name of a port that hardly any other tag names", "the port may be so loaded; after 3 s it is stuck, or the sender writes them", "captures at senders"},
	{"a device sets values back or writes over them, in a dozen flows, or of delays of few codes", "by chance those may be the flows that pass it; few codes say the same of different delays", "more flows, or captures around it (`conform`)"},
	{"a port writes one value of 32 codes, as compact tags have, and no bandwidth that contradicts it", "a port whose load is steady, or whose queue is full, writes one as well: with flows of constant rate sound ports write one in 8,100 of 8,100 packets of 3 s", "its counters (`conform --metrics`)"},
	{"two ports write each other's locators, and no flow that passes them names another port", "the locators contradict nothing", "captures around the device (`conform`)"},
	{"a device exchanges all signal types in turn", "each arrives as often as it was sent", "captures around it (`conform`)"},
	{"a port writes into trimmed packets", "what the value was when they were trimmed is gone", "captures around it (`conform`)"},
}

// writeUnseen writes unseen as a table in Markdown.
func writeUnseen(w io.Writer) error {
	text := "\nWhat receivers do not show, however much they see:\n\n| fault | why not | what shows it |\n|---|---|---|\n"
	for _, row := range unseen {
		text += fmt.Sprintf("| %s | %s | %s |\n", row[0], row[1], row[2])
	}
	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("write reference of findings: %w", err)
	}
	return nil
}
