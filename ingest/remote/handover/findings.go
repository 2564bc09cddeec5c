package handover

import (
	"strings"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/ingest/local/journal"
	"github.com/csigscope/csigscope/ingest/remote"
	"github.com/csigscope/csigscope/ingest/wire"
)

// What a row of a tap brings with it has room in a record.
const _ = uint(remote.MaxFindings - journal.MaxFindings)

// wireFindings are the findings under the number of a tap's row.
func wireFindings(list []store.FindingRow, of *store.TapRow) (found []*wire.Finding) {
	for i := range list {
		f := &list[i]
		if f.Source != of.Source || f.Seq != of.Seq {
			continue
		}
		found = append(found, &wire.Finding{
			Kind: f.Kind, Id: f.ID, Severity: f.Severity, FromNs: f.From, ToNs: f.To, Count: f.Count,
			Device: f.Device, Port: f.Port, Location: uint64(f.Location), Evidence: strings.ToValidUTF8(f.Evidence[:min(len(f.Evidence), remote.MaxEvidence)], ""),
		})
	}
	return found
}

// findingOfWire is a finding of an exporter, under the number of its tap's row. Packets of
// live taps have no numbers.
func findingOfWire(f *wire.Finding, source aggregate.Source, seq uint64) store.FindingRow {
	return store.FindingRow{
		Source: source, Seq: seq, Kind: f.GetKind(), ID: f.GetId(), Severity: f.GetSeverity(), From: f.GetFromNs(), To: f.GetToNs(), Count: f.GetCount(),
		Device: f.GetDevice(), Port: f.GetPort(), Location: aggregate.LocationID(f.GetLocation()), Evidence: f.GetEvidence(),
	}
}
