package conform

// Rule is one demand on a device.
type Rule uint8

// The rules, in the order of reports.
const (
	Direction Rule = iota
	WrittenValue
	MissedUpdate
	FailOpen
	LocatorAlone
	LocatorKept
	LocatorOther
	TypeChanged
	ReservedChanged
	FormatChanged
	TrimFrozen
	TrimCleared
	TrimInvented
	Inserted
	Stripped
	NotStripped
	StrippedPartly
	NotScrubbed
	Transparent
	Malformed
	TaggedLost
	PathSelection

	// NumRules bounds Rule.
	NumRules = iota
)

// Severity is the weight of a violation.
type Severity string

// Violating a draft's requirement (MUST) is an error; violating a recommendation, or a change that
// may be intended, is a warning. A note is no violation.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
	Note    Severity = "note"
)

// RuleInfo describes a rule.
type RuleInfo struct {
	Name      string // in output, such as direction
	Severity  Severity
	Source    string // the section that demands it
	Demand    string // one sentence
	Otherwise string // another explanation, for an honest device
}

// needsMetrics reports whether the rule compares values with local metrics.
func (r Rule) needsMetrics() bool { return r == WrittenValue || r == MissedUpdate || r == FailOpen }

// needsTag reports whether the rule is about packets that have a tag before the device.
func (r Rule) needsTag() bool { return r != Inserted && r != Malformed }

// Info returns the rule's description. The rule must be below NumRules.
func (r Rule) Info() RuleInfo { return rules[r] }

var rules = [NumRules]RuleInfo{
	Direction: {
		"direction", Error, "draft-ravi-ippm-csig-01 5.3.3, 5.4.2; IBCS 6.1",
		"only a tighter signal replaces a signal: a lower one of a min signal, a higher one of a max signal",
		"the device has other buckets or another initial value than the tables here, or scrubs untrusted tags (--role ingress)",
	},
	WrittenValue: {
		"written-value", Error, "draft-ravi-ippm-csig-01 5.3.3; IBCS 6.1",
		"a port writes its own metric, quantized",
		"the counters have another interval or unit than the values that the device compares, or the clocks are further apart than --slack",
	},
	MissedUpdate: {
		"missed-update", Error, "draft-ravi-ippm-csig-01 4.4.2; IBCS 6.1",
		"a signal that is looser than the port's own metric is replaced",
		"the device does not support this signal (--signals), or the clocks are further apart than --slack",
	},
	FailOpen: {
		"fail-open", Error, "IBCS 7.2",
		"without a metric of its own a device forwards the tag unchanged",
		"the counters were not read although the device had them",
	},
	LocatorAlone: {
		"locator-alone", Error, "draft-ravi-ippm-csig-01 4.1.3",
		"locator metadata is not altered where the signal is not",
		"the first hop may write the initial value itself (--uninitialized, IBCS 6.1)",
	},
	LocatorKept: {
		"locator-kept", Error, "draft-ravi-ippm-csig-01 4.1.3",
		"locator metadata is replaced where the signal is",
		"the port has the same locator metadata as the hop before it",
	},
	LocatorOther: {
		"locator-other", Error, "draft-ravi-ippm-csig-01 5.5.1",
		"packets that leave by one port and carry one signal get that port's locator metadata",
		"the capture after the device holds several ports, or locator metadata has a field that changes by packet (ttl)",
	},
	TypeChanged: {
		"type-changed", Error, "draft-ravi-ippm-csig-01 4.4.2; IBCS 6.1",
		"the signal type is kept", "the fields have another layout than the configured one (profile)",
	},
	ReservedChanged: {
		"reserved-changed", Error, "draft-ravi-ippm-csig-01 4.1; IBCS 6.1",
		"reserved bits, and fixed bits of the signal, are kept", "the fields have another layout than the configured one (profile)",
	},
	FormatChanged: {
		"format-changed", Error, "draft-ravi-ippm-csig-01 4.1; IBCS 6.1",
		"a tag keeps its TPID and format", "two TPIDs stand for the same tag on the two sides of the device",
	},
	TrimFrozen: {
		"trim-frozen", Error, "IEEE 802.1 slides, January 2026, \"Do not update\"",
		"a tag whose D bit is set is not updated", "hardware that does not know the D bit yet",
	},
	TrimCleared: {
		"trim-cleared", Error, "IEEE 802.1 slides, January 2026, \"Do not update\"",
		"a D bit that is set stays set", "locator metadata in the ietf01 layout has one bit more, where uec050 has D",
	},
	TrimInvented: {
		"trim-invented", Error, "IEEE 802.1 slides, January 2026, \"Do not update\"",
		"D is set only if the packet was trimmed", "locator metadata in the ietf01 layout has one bit more, where uec050 has D",
	},
	Inserted: {
		"inserted", Error, "draft-ravi-ippm-csig-01 4.4.2",
		"no tag is added in transit", "the device initiates CSIG for its hosts, as a network card does",
	},
	Stripped: {
		"stripped", Note, "draft-ravi-ippm-csig-01 4.4.2, 6.1",
		"a tag is removed only where the port is configured to strip (--strip always)", "the next device discards tags, or is outside of the domain",
	},
	NotStripped: {
		"not-stripped", Error, "draft-ravi-ippm-csig-01 6.1, 6.3.2",
		"no tag leaves by a port that is configured to strip", "--strip always was meant for another port",
	},
	StrippedPartly: {
		"stripped-partly", Error, "draft-ravi-ippm-csig-01 6.1",
		"a port strips all tags or none, and none with --strip never", "the capture after the device holds several ports, the port is configured to strip, or the device was reconfigured meanwhile",
	},
	NotScrubbed: {
		"not-scrubbed", Error, "IBCS 4.1",
		"neither the value nor the D bit of an untrusted sender enters the domain", "the port that packets come in by is trusted (--role transit)",
	},
	Transparent: {
		"transparent", Error, "draft-ravi-ippm-csig-01 6.2.2, 6.2.3",
		"a device, or a signal type, that does not support updates forwards the tag unchanged", "the device supports more than --role and --signals say",
	},
	Malformed: {
		"malformed", Error, "draft-ravi-ippm-csig-01 4.1; IBCS 6.1, atomicity",
		"a tag comes out whole, once, and as the last tag of L2", "a TPID of the domain is not configured here",
	},
	TaggedLost: {
		"tagged-lost", Error, "draft-ravi-ippm-csig-01 6.3.1; IBCS 7.2",
		"a tag does not make the device lose a packet", "tagged and other packets of a flow are of different classes, of which one overflowed",
	},
	PathSelection: {
		"path-selection", Error, "IBCS 5.2",
		"the tag does not change which way a flow takes", "the tagged part of the flow ran while other ports were up",
	},
}
