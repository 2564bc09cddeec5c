package conform

import (
	"cmp"
	"slices"
)

// maxExamples is the number of packets that each rule names.
const maxExamples = 8

// Example is a packet that breaks a rule.
type Example struct {
	Before     uint64 `json:"before_packet,omitempty"` // number in the file before the device, from 1
	BeforeFile string `json:"before_file,omitempty"`
	After      uint64 `json:"after_packet,omitempty"`
	AfterFile  string `json:"after_file,omitempty"`
	Port       string `json:"port,omitempty"`
	TimeNS     int64  `json:"time_ns,omitempty"` // after the device, Unix ns
	WasTag     *Seen  `json:"was,omitempty"`
	IsTag      *Seen  `json:"is,omitempty"`
	portNum    uint8

	beforeFile, afterFile int // indexes into Config.Files
}

// Seen is a captured tag.
type Seen struct {
	Layout   string `json:"layout"`
	Type     uint8  `json:"signal_type"`
	S        uint32 `json:"s"`
	LM       uint16 `json:"lm"`
	Trimmed  bool   `json:"trimmed,omitempty"`
	Reserved uint8  `json:"reserved,omitempty"`
}

// breach counts the violations of a rule. The examples are the first packets after the device, in
// whichever part of the captures they were judged.
type breach struct {
	count    uint64
	examples []Example
}

func (j *Judge) broke(r Rule, before, after *sighting) {
	b := &j.breaches[r]
	b.count++
	if n := len(b.examples); n < maxExamples || after.number() <= b.examples[n-1].After {
		b.name(exampleOf(before, after))
	}
}

// brokeOften records n violations, of which one has an example.
func (j *Judge) brokeOften(r Rule, n uint64, example Example) {
	if n == 0 {
		return
	}
	b := &j.breaches[r]
	b.count += n
	b.name(example)
}

// name adds an example if it is one of the first.
func (b *breach) name(e Example) {
	at, _ := slices.BinarySearchFunc(b.examples, e, compareExamples)
	b.examples = slices.Insert(b.examples, at, e)
	b.examples = b.examples[:min(len(b.examples), maxExamples)]
}

func compareExamples(a, b Example) int {
	return cmp.Or(cmp.Compare(a.After, b.After), cmp.Compare(a.portNum, b.portNum), cmp.Compare(a.afterFile, b.afterFile),
		cmp.Compare(a.beforeFile, b.beforeFile), cmp.Compare(a.Before, b.Before))
}

// first returns the earlier one of two examples: is, and the packet just counted, which is the first
// of the rule if n is 1.
func first(n uint64, is Example, before, after *sighting) Example {
	e := exampleOf(before, after)
	if n == 1 || compareExamples(e, is) < 0 {
		return e
	}
	return is
}

// exampleOf returns the example of a packet; after is nil for a packet that did not come out.
func exampleOf(before, after *sighting) Example {
	e := Example{Before: before.number(), beforeFile: before.file(), WasTag: before.seen()}
	if after != nil {
		e.After, e.afterFile, e.TimeNS, e.IsTag, e.portNum = after.number(), after.file(), after.time, after.seen(), after.port
	}
	return e
}

func (s *tagState) seen() *Seen {
	if !s.tagged {
		return nil
	}
	t := s.Tag
	return &Seen{Layout: t.Layout.String(), Type: t.T, S: t.S, LM: t.LM, Trimmed: t.D, Reserved: t.R}
}
