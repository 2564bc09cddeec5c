package replay

import (
	"fmt"
	"io"
	"maps"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode/csig"
)

// Result sums up a replay.
type Result struct {
	window.Tally                  // of all packets; bytes, frames and observations of those of link types that are read
	SkippedLink  window.Links     // packets of link types that are not read
	refused      window.Links     // of these, those of files without any other packet
	Counts       aggregate.Counts // observations by what became of them
	Excess       uint64           // reflections beyond decode.MaxObservations of their packets, which are no observations
	Cuts         []error          // what ended a file early, or is left out of it, or files that are left out
	Repeated     uint64           // packets that taps captured twice and that are left out (Config.Dedup)
	Damaged      Damage           // what is left out of files that are damaged in the middle
	Findings     Findings         // what Settings.Finding looks for
	Elapsed      time.Duration
}

// skip counts n packets of a link type that is not read.
func (r *Result) skip(u window.Unread, n uint64) {
	r.Packets += n
	r.SkippedLink.Add(u, n)
}

// take adds what a tap of a file came to, whose link type may be one that is not read.
func (r *Result) take(file string, t *TapCounts, read bool) {
	if !read {
		r.skip(window.Unread{File: file, Link: t.Interface.Link}, t.Tally.Packets)
		return
	}
	r.Merge(&t.Tally)
	r.Packets += t.Repeated
	r.Repeated += t.Repeated
	r.Counts.Merge(&t.Counts)
	r.Findings.Note(t.Findings)
}

// add adds what a worker came to in a chunk. All packets of a file in several chunks have
// one link type.
func (r *Result) add(o *Result) {
	r.Merge(&o.Tally)
	r.SkippedLink.Merge(o.SkippedLink)
	if o.SkippedLink.Total() == o.Packets {
		r.refused.Merge(o.SkippedLink)
	}
	r.Counts.Merge(&o.Counts)
	r.Excess += o.Excess
	r.Cuts = append(r.Cuts, o.Cuts...)
	r.Damaged.merge(o.Damaged)
	r.Repeated += o.Repeated
	r.Findings.merge(o.Findings)
}

// Damage counts what is left out of captures that are damaged in the middle.
type Damage struct {
	Places uint64 `json:"places"` // where records could not be read
	Bytes  uint64 `json:"bytes"`
}

// add counts what a reader that has ended left out and returns it as an error, nil
// for nothing.
func (d *Damage) add(r *capture.Reader) error {
	found := r.Damage()
	if found == nil {
		return nil
	}
	d.Places += uint64(found.Places)
	d.Bytes += uint64(found.Bytes)
	return found
}

// damage adds what a reader that has ended left out.
func (r *Result) damage(of *capture.Reader) {
	if left := r.Damaged.add(of); left != nil {
		r.Cuts = append(r.Cuts, left)
	}
}

func (d *Damage) merge(other Damage) {
	d.Places += other.Places
	d.Bytes += other.Bytes
}

// Findings are the severities of what was found, by finding.Finding's ID: each finding once,
// however many taps and chunks tell of it. Nil where nothing was looked for.
type Findings map[uint64]finding.Severity

var severities = [...]finding.Severity{finding.Error, finding.Warning, finding.Info}

// Note adds findings. It makes the map with the first one.
func (f *Findings) Note(list []finding.Finding) {
	for i := range list {
		if *f == nil {
			*f = make(Findings)
		}
		(*f)[list[i].ID] = list[i].Kind.Severity()
	}
}

// merge adds those of a worker, where any were looked for.
func (f Findings) merge(of Findings) {
	if f != nil {
		maps.Copy(f, of)
	}
}

// Count is how many findings have each severity, none of them left out; nil where nothing
// was looked for.
func (f Findings) Count() map[finding.Severity]int {
	if f == nil {
		return nil
	}
	count := make(map[finding.Severity]int, len(severities))
	for _, s := range severities {
		count[s] = 0
	}
	for _, s := range f {
		count[s]++
	}
	return count
}

func (f Findings) write(w io.Writer) {
	if f == nil {
		fmt.Fprintf(w, "findings\t-\tnot looked for\n")
		return
	}
	n := f.Count()
	fmt.Fprintf(w, "findings\t%d\t= %d errors + %d warnings + %d infos\n", len(f), n[finding.Error], n[finding.Warning], n[finding.Info])
}

// NoteNoCSIG writes what to look at where packets were decoded and none of them carried CSIG:
// nothing on the wire tells a tag of another TPID from any other protocol.
func NoteNoCSIG(w io.Writer, packets, observations uint64, d *csig.Domain) {
	if packets == 0 || observations > 0 {
		return
	}
	fmt.Fprintf(w, "note: none of the packets has a CSIG tag or reflection. Tags are known by their TPID, here %s: others go\n"+
		"into csig: tpids of a file for --config (csigscope config dump prints one). A capture at senders, or behind a\n"+
		"switch or a network card that strips tags, has none.\n", d.TPIDNames())
}
