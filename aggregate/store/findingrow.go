package store

import (
	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/finding"
)

// NewFindingRow is a finding as it is stored, under the source of the blocks that it was
// found beside. seq, with the finding's kind and ID, tells it apart from others of the
// producer.
func NewFindingRow(f *finding.Finding, source aggregate.Source, seq uint64) FindingRow {
	row := FindingRow{
		Source: source, Seq: seq, Kind: f.Kind.String(), ID: f.ID, Severity: string(f.Kind.Severity()), From: f.From, To: f.To, Count: f.Count,
		Device: f.Device, Port: f.Port, Location: f.Location, Evidence: f.Evidence,
	}
	for _, p := range f.Packets {
		row.Packets = append(row.Packets, p.Number)
	}
	return row
}
