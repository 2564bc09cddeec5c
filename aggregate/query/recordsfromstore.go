package query

import (
	"context"
	"math"
	"time"

	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/decode/csig"
)

// Flows implements Records.
func (r storeReader) Flows(ctx context.Context, q FlowQuestion) ([]FlowRow, error) {
	filter := store.FlowFilter{SrcGroups: q.SrcGroups, DstGroups: q.DstGroups, Src: q.Src, Dst: q.Dst, Kind: q.Kind, MinHeavy: q.MinHeavy}
	flows, err := Metered(ctx, func() ([]store.FlowTotal, error) {
		return r.store.ChosenFlows(ctx, store.Query{Signal: q.Signal, From: q.From, To: q.To, Resolution: q.Resolution}, filter, q.Limit)
	})
	rows := make([]FlowRow, len(flows))
	for i := range flows {
		rows[i] = newFlowRow(q.Signal, &flows[i])
	}
	return rows, asked(err)
}

func newFlowRow(s csig.Signal, f *store.FlowTotal) FlowRow {
	row := FlowRow{
		Src: f.Src, Dst: f.Dst, SrcPort: f.SrcPort, DstPort: f.DstPort, Proto: f.Proto, SrcGroup: f.SrcGroup, DstGroup: f.DstGroup, Kind: f.Kind,
		Observations: f.Observations, Bytes: f.Bytes, Mean: f.Mean, Min: math.NaN(), Max: math.NaN(),
		Heavy: f.Heavy, Windows: f.Windows, Location: f.Location, LocationHeavy: f.LocationHeavy,
	}
	if f.Measured > 0 {
		row.Min, row.Max = s.Unit().FromStored(f.Min), s.Unit().FromStored(f.Max)
	}
	return row
}

// Findings implements Records.
func (r storeReader) Findings(ctx context.Context, q FindingQuestion) ([]FindingRow, error) {
	filter := store.FindingFilter{Kinds: q.Kinds, Severities: q.Severities, Devices: q.Devices, Locations: q.Locations}
	findings, err := Metered(ctx, func() ([]store.FindingRow, error) { return r.store.ChosenFindings(ctx, q.From, q.To, filter, q.Limit) })
	rows := make([]FindingRow, len(findings))
	for i, f := range findings {
		rows[i] = FindingRow{
			Kind: f.Kind, ID: f.ID, Severity: f.Severity, First: time.Unix(0, f.From).UTC(), Last: time.Unix(0, f.To).UTC(), Count: f.Count,
			Device: f.Device, Port: f.Port, Location: f.Location, Evidence: f.Evidence, Packets: f.Packets,
		}
	}
	return rows, asked(err)
}

// Missing implements Records.
func (r storeReader) Missing(ctx context.Context, from, to time.Time) ([]Span, error) {
	spans, err := r.store.Missing(ctx, from, to)
	list := make([]Span, len(spans))
	for i, s := range spans {
		list[i] = Span(s)
	}
	return list, asked(err)
}
