package report

import (
	"time"

	"github.com/csigscope/csigscope/aggregate/finding"
)

// Findings are those of captures, with packets to open.
func Findings(list []finding.Finding) []Finding {
	out := []Finding{}
	for i := range list[:min(len(list), maxFindings)] {
		f := &list[i]
		one := Finding{
			Severity: string(f.Kind.Severity()), Kind: f.Kind.String(), Subject: f.Subject, Device: f.Device, Port: f.Port, Candidates: f.Candidates,
			Count: f.Count, Of: f.Of, Evidence: f.Evidence, Otherwise: f.Kind.Otherwise(), Packets: byFile(f.Packets[:min(len(f.Packets), maxPackets)]),
		}
		if f.From != 0 {
			one.From, one.To = stamp(f.From), stamp(f.To)
		}
		out = append(out, one)
	}
	return out
}

// byFile groups packets, whose files come one after the other.
func byFile(list []finding.Packet) []Packets {
	out := []Packets{}
	for _, p := range list {
		if n := len(out); n == 0 || out[n-1].File != p.File {
			out = append(out, Packets{File: p.File})
		}
		last := &out[len(out)-1]
		last.Numbers = append(last.Numbers, p.Number)
	}
	return out
}

func stamp(ns int64) string { return time.Unix(0, ns).UTC().Format(time.RFC3339Nano) }
