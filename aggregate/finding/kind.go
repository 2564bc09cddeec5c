package finding

import (
	"fmt"
	"io"

	"github.com/csigscope/csigscope/aggregate"
)

// Kind is what was found.
type Kind uint8

// The kinds; WriteReference says what each means.
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

	// NumKinds is how many there are.
	NumKinds = iota
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

// about is what is known of a kind. Sections are those of draft-ravi-ippm-csig-01 unless
// they name another document.
type about struct {
	name      string
	severity  Severity
	section   string
	means     string // what it is
	from      string // from when on, and what it takes to see it
	names     string // whom
	otherwise string // what would explain it without a fault
}

var kinds = [NumKinds]about{
	UnauthorisedSender: {
		"unauthorised-sender", Error, "section 9",
		"a tag from a source that is not among the senders", "one tag; the senders are given (`--senders`, or `findings: senders`)", "the source",
		"the list of senders is out of date",
	},
	ForgedValue: {
		"forged-value", Error, "section 9; IBCS 4.1",
		"a value that no port wrote", "at a sender, one value that is not initial; elsewhere, 20 whose locator no port of their path writes, in a share 10 times that of all other sources, where nothing that its packets pass explains them as well; or 20 delays in a row, of 200 ms, that are one heavily loaded value of a port, to the bit, which says otherwise to others 20 times meanwhile", "the source",
		"the source's network card writes values of its own, or locators of its rack are not in the fabric file",
	},
	ScrubFailure: {
		"scrub-failure", Error, "IBCS 4.1",
		"a value that a sender wrote passes the edge, which is to set it back to the initial one", "20 such values behind the edge: of a source with forged values there, or with value and locator that a tap at the sender saw before", "the edge",
		"the edge is configured to trust its hosts",
	},
	Leak: {
		"leak", Error, "section 6.3.2; IBCS 4.3",
		"a tag outside of the domain", "one tag at a tap whose place is outside", "the tap, and the edge that tags leave by",
		"the tap stands inside of the domain",
	},
	RogueInsertion: {
		"rogue-insertion", Error, "section 4.4.2",
		"a tag in a flow whose sender makes none", "10 tags more at receivers than a tap at the sender, which sees the flow, allows for", "the devices or ports that flows with such tags have in common; where that is not sure, up to 12 that it may be",
		"the tap at the sender captures tagged packets by another filter than those of receivers",
	},
	UnknownLocator: {
		"unknown-locator", Warning, "section 5.5.1",
		"locator metadata that no port of the path writes, of sources that do not stand out", "one value that some hop replaced", "the locator, and the ports or devices that flows with it have in common and that wrote little else meanwhile; where that is not sure, up to 12 that it may be, senders among them",
		"the fabric file or the locator layout is out of date, or a switch replaces values without locator metadata",
	},
	LocatorAlone: {
		"locator-alone", Error, "section 4.1.3",
		"locator metadata of a port beside a value that no hop replaced", "one tag whose locator is not what most tags without a value have", "the location",
		"first hops may write the initial value themselves (`windows: locate_untouched`)",
	},
	AboveCapacity: {
		"above-capacity", Warning, "section 5.1",
		"more available bandwidth than the port has, or a ratio above 1", "one value whose whole bucket is beyond", "the location",
		"the port's speed in the fabric file, or the table's unit, is wrong",
	},
	ReservedBits: {
		"reserved-bits", Warning, "section 4.1",
		"reserved bits that are not 0", "one tag", "the devices or ports that flows with such tags have in common, else the layout",
		"the TPID stands for another layout than configured",
	},
	OrphanTag: {
		"orphan-tag", Warning, "section 4.1",
		"a tag before another tag of L2, inside of a tunnel or in a mirror session, or a reflection in one", "one of them", "the devices or ports that flows with such tags have in common, else the layout",
		"tags inside of tunnels are meant (`decode: inner_tags`), or the tap holds mirror sessions (`taps: mirrors`)",
	},
	StuckPort: {
		"stuck-port", Warning, "section 5.1.1",
		"a port that writes one heavily loaded value, to the bit, and not the tightest one", "50 in a row that take 200 ms, or 600 ms where all are of one source; none of a flow that passes the port and is not as tight; while windows are made, 200 in 3 windows of 1 s with pauses of up to 10 s, in one ring of a tap or one capture, of values with 256 codes or more, where flows that name the port are known (`flows: top`)", "the port; or, where all are of one source, that or the source",
		"the load of the port is constant, and its buckets are wide",
	},
	StrippedFlows: {
		"stripped-flows", Warning, "section 6.1",
		"flows that arrive without the tags that their senders give them, at hosts that get tags on other paths", "of each flow 20 tags that are not there, and 100 times likelier by what they pass than by chance, for each of what that may be; or a tap at the sender that sees them", "the devices or ports that such flows have in common and others not",
		"the devices strip for hosts behind them that do not know tags",
	},
	WrongProfile: {
		"wrong-profile", Info, "section 4.1",
		"fields that make sense in the other profile", "100 values that some hop replaced, of which at least 95 % name a port of their path as the other profile has it, and at most 85 % as this one; it explains what else would be found of the layout", "the layout",
		"the fabric file describes other locators than the switches write",
	},
	WrongFormat: {
		"wrong-format", Info, "section 4.1",
		"tags that no packet follows", "100 tags, of which at least 90 % have no IP packet behind them", "the layout",
		"what is tagged is no IP",
	},
	LostValue: {
		"lost-value", Warning, "section 4.1.3; IBCS 4.2",
		"what the first port of a path wrote, value or locator, is set back or written over by a later one that adds no more delay", "20 delays, of at least 256 codes, that are the least of all, and name a port behind the first device, in flows from 2 devices which name themselves with as much in other flows; 100 times likelier by what these flows pass than by chance, for each of what that may be", "the devices or ports that such flows have in common and others not",
		"neither it nor the ports before it on these paths support the signal",
	},
	ContestedName: {
		"contested-name", Warning, "none: collectors find it",
		"an exporter describes a group or a location otherwise than a fabric file of the collector's, or than the exporter that came first; that holds, and rows are stored under it", "one description", "the name, the exporter and whose description holds",
		"the fabric file of the exporters has changed: `csigscope schema unpin` takes the next description",
	},
	ClockAhead: {
		"clock-ahead", Warning, "none: collectors and exporters find it",
		"a clock that is more than 2 s ahead of the host's: that of a tap's packets, or of an exporter's windows; what has such a time is rejected", "one observation or one window", "the tap or the exporter",
		"the host's own clock is behind",
	},
}

// String is the kind's name.
func (k Kind) String() string { return kinds[k].name }

// Severity is that of all findings of the kind.
func (k Kind) Severity() Severity { return kinds[k].severity }

// Otherwise says what would explain such a finding without a fault.
func (k Kind) Otherwise() string { return kinds[k].otherwise }

// TapAhead is the finding that a tap's packets had times ahead of the host's clock, which it
// counted from one time of that clock to another (Unix ns).
func TapAhead(tap string, from, to int64, count uint64) Finding {
	return Finding{
		Kind: ClockAhead, ID: idOf(ClockAhead, tap), Subject: tap, From: from, To: to, Count: count, Of: count,
		Evidence: fmt.Sprintf("tap %.64q has packets with times more than %s ahead of the host's clock, which are rejected: set the clock of its network card by the host's", tap, aggregate.MaxAhead),
	}
}

// WriteReference writes the kinds as a table in Markdown, and what receivers do not show.
func WriteReference(w io.Writer) error {
	if _, err := fmt.Fprint(w, "| finding | severity | what it is | from when on | what it names | what would explain it otherwise | source |\n|---|---|---|---|---|---|---|\n"); err != nil {
		return fmt.Errorf("write reference of findings: %w", err)
	}
	for i := range kinds {
		k := &kinds[i]
		if _, err := fmt.Fprintf(w, "| `%s` | %s | %s | %s | %s | %s | %s |\n", k.name, k.severity, k.means, k.from, k.names, k.otherwise, k.section); err != nil {
			return fmt.Errorf("write reference of findings: %w", err)
		}
	}
	return writeUnseen(w)
}

// directly is what single observations show of a subject.
var directly = [NumKinds]string{
	UnauthorisedSender: "%s sends tags and is not among the senders",
	ForgedValue:        "%s sends tags whose value is not the initial one",
	Leak:               "tags arrive at %s, outside of the domain",
	UnknownLocator:     "values name no port of their path: %s",
	AboveCapacity:      "values name %s and are more than it can carry",
	ReservedBits:       "reserved bits of %s are set",
	OrphanTag:          "packets have tags of %s before other tags, inside of tunnels or in mirror sessions",
}

// unseen are faults that receivers do not show, why not, and what does.
var unseen = [...][3]string{
	{"a port's table of codes is off", "the port may be as loaded, or as slow", "its counters (`conform --metrics`)"},
	{"a device tags packets of others", "senders may tag what they like", "captures at senders, or around it (`conform`)"},
	{"a rack's first device strips tags", "its hosts may send none", "captures at senders"},
	{"a port writes a value beside the locator that it finds, where that is a port's before it", "that port may have written it: values that follow each other at one port differ as much without the fault", "captures around it (`conform`)"},
	{"a sender writes values in the name of a port that hardly any other tag names", "the port may be so loaded; after 600 ms it is stuck, or the sender writes them", "captures at senders"},
	{"a device sets values back or writes over them, in a dozen flows, or of delays of few codes", "by chance those may be the flows that pass it; few codes say the same of different delays", "more flows, or captures around it (`conform`)"},
	{"a port writes into trimmed packets", "what the value was when they were trimmed is gone", "captures around it (`conform`)"},
}

// writeUnseen writes them as a table in Markdown.
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
