package answers

import (
	"context"
	"fmt"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query/tabular"
	"github.com/csigscope/csigscope/aggregate/store"
)

var flowColumns = []string{
	"src", "src_port", "dst", "dst_port", "proto", "src_group", "dst_group", "kind", "observations", "bytes",
	"mean", "min", "max", "unit", "heavy", "windows", "location", "location_heavy",
}

// Flows are those that were heavily loaded most often, Top at most.
func (q *Question) Flows(ctx context.Context) (*tabular.Listing, error) {
	query := q.query
	if query.Resolution == 0 {
		query.Resolution = time.Second
	}
	rows, err := q.store.TopFlows(ctx, query, q.params.Top)
	if err != nil {
		return nil, err
	}
	unit := q.query.Signal.Unit()
	t := &tabular.Listing{Columns: flowColumns}
	for i := range rows {
		f := &rows[i]
		row := []any{"others", nil, "others", nil, nil}
		if f.Src.IsValid() {
			row = []any{f.Src.String(), f.SrcPort, f.Dst.String(), f.DstPort, f.Proto}
		}
		row = append(row, q.group(f.SrcGroup), q.group(f.DstGroup), f.Kind.String(), f.Observations, f.Bytes, number(f.Mean), nil, nil, unit.String(), f.Heavy, f.Windows, nil, nil)
		if f.Measured > 0 {
			row[11], row[12] = unit.FromStored(f.Min), unit.FromStored(f.Max)
		}
		if f.LocationHeavy > 0 {
			row[16], row[17] = q.location(f.Location), f.LocationHeavy
		}
		t.Rows = append(t.Rows, row)
	}
	return t, nil
}

var findingColumns = []string{"severity", "kind", "id", "first", "last", "count", "device", "port", "location", "evidence"}

// Findings are what broke the protocol or the configuration in a range, the most severe
// first, top at most.
func Findings(ctx context.Context, db *store.Store, from, to time.Time, filter store.FindingFilter, top int) (*tabular.Listing, error) {
	rows, err := db.ChosenFindings(ctx, from, to, filter, top)
	if err != nil {
		return nil, err
	}
	locations, err := db.Locations(ctx)
	if err != nil {
		return nil, err
	}
	names := make(map[aggregate.LocationID]string, len(locations))
	for _, l := range locations {
		names[l.ID] = l.Name
	}
	t := &tabular.Listing{Columns: findingColumns}
	for _, f := range rows {
		at := orNil(names[f.Location])
		if at == nil && f.Location != aggregate.NoLocation {
			at = fmt.Sprintf("location %016x", uint64(f.Location))
		}
		t.Rows = append(t.Rows, []any{
			f.Severity, f.Kind, fmt.Sprintf("%016x", f.ID), stamp(time.Unix(0, f.From)), stamp(time.Unix(0, f.To)), f.Count,
			orNil(f.Device), orNil(f.Port), at, orNil(f.Evidence),
		})
	}
	return t, nil
}
