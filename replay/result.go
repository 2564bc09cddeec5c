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
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// Result sums up a replay.
type Result struct {
	window.Tally                        // of all packets; bytes, frames and observations only of link types that can be decoded
	SkippedLink  window.UnreadableLinks // packets of other link types
	packets      map[string]uint64      // by file
	Counts       aggregate.Counts       // observations by outcome
	Excess       uint64                 // reflections beyond decode.MaxObservations of their packets, which are no observations
	Cuts         []error                // errors: files that end early, damage in files, and files that are left out
	Repeated     uint64                 // packets that taps captured twice and that are left out (Config.Dedup)
	Damaged      Damage                 // skipped parts of damaged files
	Findings     Findings               // by Settings.Finding
	Elapsed      time.Duration
}

// skip counts n packets of an unreadable link type.
func (r *Result) skip(u window.UnreadableLink, n uint64) {
	r.Packets += n
	r.SkippedLink.Add(u, n)
}

// take adds the counts of a file's tap. read says whether its link type is readable.
func (r *Result) take(file string, t *TapCounts, read bool) {
	if !read {
		r.skip(window.UnreadableLink{File: file, Link: t.Interface.Link}, t.Tally.Packets)
		return
	}
	r.Merge(&t.Tally)
	r.Packets += t.Repeated
	r.Repeated += t.Repeated
	r.Counts.Merge(&t.Counts)
	r.Findings.Note(t.Findings)
}

// add adds a worker's result of a chunk.
func (r *Result) add(src *source, o *Result) {
	r.Merge(&o.Tally)
	r.SkippedLink.Merge(o.SkippedLink)
	if r.packets == nil {
		r.packets = make(map[string]uint64)
	}
	r.packets[src.path] += o.Packets
	r.Counts.Merge(&o.Counts)
	r.Excess += o.Excess
	r.Cuts = append(r.Cuts, o.Cuts...)
	r.Damaged.merge(o.Damaged)
	r.Repeated += o.Repeated
	r.Findings.merge(o.Findings)
}

// refused returns the packets of files in which no packet has a readable link type.
func (r *Result) refused() (links window.UnreadableLinks) {
	skipped := make(map[string]uint64)
	for u, n := range r.SkippedLink {
		skipped[u.File] += n
	}
	for u, n := range r.SkippedLink {
		if skipped[u.File] == r.packets[u.File] {
			links.Add(u, n)
		}
	}
	return links
}

// Damage counts the skipped parts of damaged captures.
type Damage struct {
	Gaps  uint64 `json:"places"` // gaps
	Bytes uint64 `json:"bytes"`
}

// add adds the gaps of a reader that has ended and returns them as an error, or nil.
func (d *Damage) add(r *capture.Reader) error {
	found := r.Damage()
	if found == nil {
		return nil
	}
	d.Gaps += uint64(found.Gaps)
	d.Bytes += uint64(found.Bytes)
	return found
}

// damage adds the gaps of a reader that has ended.
func (r *Result) damage(of *capture.Reader) {
	if left := r.Damaged.add(of); left != nil {
		r.Cuts = append(r.Cuts, left)
	}
}

func (d *Damage) merge(other Damage) {
	d.Gaps += other.Gaps
	d.Bytes += other.Bytes
}

// Findings maps each finding's finding.Finding.ID to its severity, so that several taps and chunks
// count it once. It is nil if findings were not enabled.
type Findings map[uint64]finding.Severity

var severities = [...]finding.Severity{finding.Error, finding.Warning, finding.Info}

// Note adds findings. It creates the map on first use.
func (f *Findings) Note(list []finding.Finding) {
	for i := range list {
		if *f == nil {
			*f = make(Findings)
		}
		(*f)[list[i].ID] = list[i].Kind.Severity()
	}
}

// merge adds a worker's findings, if findings were enabled.
func (f Findings) merge(of Findings) {
	if f != nil {
		maps.Copy(f, of)
	}
}

// Count returns the number of findings by severity, with an entry for each severity. It returns nil
// if findings were not enabled.
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
	fmt.Fprintf(w, "findings\t%d\t= %d errors + %d warnings + %d infos; report looks for more kinds\n", len(f), n[finding.Error], n[finding.Warning], n[finding.Info])
}

// NoteMissing writes hints about why a capture may have fewer observations than it should: no packets; no
// tags, since a tag with an unknown TPID looks like any other protocol; packets of which too few bytes
// were captured; or encrypted ones. frames are the decoded ones of the packets, by reason.
func NoteMissing(w io.Writer, packets uint64, frames *[decode.NumReasons]uint64, tags, reflections uint64, d *csig.Domain) {
	decoded, cut, hidden := uint64(0), uint64(0), frames[decode.Hidden]
	for reason, n := range frames {
		decoded += n
		if decode.Reason(reason).Cut() {
			cut += n
		}
	}
	const aFew = 100 // one cut packet in this many needs no note
	switch {
	case packets == 0:
		fmt.Fprintln(w, "note: there are no packets.")
		return
	case cut > decoded/aFew:
		fmt.Fprintf(w, "note: the capture ends within the headers of %d of %d packets, so tags, addresses, ports or reflections\n"+
			"are missing: capture more bytes of each packet (tcpdump -s 128, or -s 256 with tunnels).\n", cut, decoded)
		return
	case hidden > decoded/2:
		fmt.Fprintf(w, "note: %d of %d packets are encrypted by MACsec, and the tags inside them cannot be read: capture where the\n"+
			"packets are in clear text.\n", hidden, decoded)
		return
	case tags > 0 || decoded == 0:
		return
	case reflections > 0:
		fmt.Fprint(w, "note: the packets have reflections, but none has a CSIG tag.")
	default:
		fmt.Fprint(w, "note: none of the packets has a CSIG tag or reflection.")
	}
	noteTPIDs(w, d)
}

// noteTPIDs ends a hint about missing tags.
func noteTPIDs(w io.Writer, d *csig.Domain) {
	fmt.Fprintf(w, "\nTags are known by their TPID, here %s: name others in\n"+
		"csig: tpids of a file for --config (csigscope config dump prints one). A capture has no tags at a\n"+
		"sender before they are added, and behind a switch or a network card that strips them.\n", d.TPIDNames())
}

// NoteMissing writes the hints of NoteMissing for a replay.
func (r *Result) NoteMissing(w io.Writer, d *csig.Domain) {
	kinds := r.Found.Kinds()
	NoteMissing(w, r.Packets, &r.Frames, kinds[0], kinds[1], d)
}
