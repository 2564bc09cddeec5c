package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/store"
)

var flowColumns = []string{
	"src", "src_port", "dst", "dst_port", "proto", "src_group", "dst_group", "kind", "observations", "bytes",
	"mean", "min", "max", "unit", "heavy", "windows", "location", "location_heavy",
}

func newQueryFlows() *cobra.Command {
	cmd := newQuestionCommand("flows", "Flows by how often they were heavily loaded", (*question).flows)
	cmd.Long = `flows lists who suffers: the flows with the most heavy observations, and the location that
most of those name. A row of a flow counts its heavy observations alone. "others" are all
that is left: the clear observations, and those of flows that are not named, cell by cell
where a cell names a flow and in the group overflow of all other cells. Together they are
all observations, but for min and max, which are those of the whole cells.

Each window of 1 s or 1 min names the worst flows of each signal and kind (flows: {top:
100} in the configuration; 0 for none). Up to flows: {budget: 4096} flows a window their
numbers are exact; beyond that they are what was counted at least, as they are where a
replay cuts a window with more than 1024 flows. Those that export sees are handed over; a
collector takes up to 10,000 rows of a stream's window (window_flows among the limits of its
section ingest) and adds the rest to the others.`
	return cmd
}

func (q *question) flows() (*table, error) {
	query := q.query
	if query.Resolution == 0 {
		query.Resolution = time.Second
	}
	rows, err := q.db.store.TopFlows(q.cmd.Context(), query, q.top)
	if err != nil {
		return nil, err
	}
	unit := q.query.Signal.Unit()
	t := &table{columns: flowColumns}
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
		t.rows = append(t.rows, row)
	}
	return t, nil
}

var findingColumns = []string{"severity", "kind", "id", "first", "last", "count", "device", "port", "location", "evidence"}

func newQueryFindings() *cobra.Command {
	var dsn, output, from, to string
	var filter store.FindingFilter
	var top int
	cmd := &cobra.Command{
		Use:   "findings",
		Short: "What broke the protocol or the configuration, the most severe first",
		Example: `  csigscope query findings --severity error,warning
  csigscope query findings --device leaf3 --from 2026-01-20T09:00:00Z -o json`,
		Args: usageArgs(cobra.NoArgs),
	}
	flags := cmd.Flags()
	addStoreFlag(cmd, &dsn)
	addOutputFlag(cmd, &output)
	flags.StringVar(&from, "from", "", "begin of the range (`TIME`, RFC 3339), default all that is stored, or a server's last hour")
	flags.StringVar(&to, "to", "", "end of the range (`TIME`, RFC 3339)")
	flags.StringSliceVar(&filter.Severities, "severity", nil, "only these `SEVERITIES`: info, warning, error")
	flags.StringSliceVar(&filter.Kinds, "kind", nil, "only these `KINDS`")
	flags.StringSliceVar(&filter.Devices, "device", nil, "only about these `DEVICES`")
	flags.IntVar(&top, "top", 100, "how many at most")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		begin, end := store.Everything()
		if err := parseRange(from, to, &begin, &end); err != nil {
			return err
		}
		db, err := openForReading(cmd, dsn)
		if err != nil {
			return err
		}
		defer db.Close()
		t, err := storedFindings(cmd, db.store, begin, end, filter, top)
		if err != nil {
			return err
		}
		return t.write(cmd.OutOrStdout(), output)
	}
	return askServer(cmd, serverQuestion{parameters: []string{"from", "to", "severity", "kind", "device", "top"}, ask: askFindings})
}

func storedFindings(cmd *cobra.Command, db *store.Store, from, to time.Time, filter store.FindingFilter, top int) (*table, error) {
	rows, err := db.ChosenFindings(cmd.Context(), from, to, filter, top)
	if err != nil {
		return nil, err
	}
	locations, err := db.Locations(cmd.Context())
	if err != nil {
		return nil, err
	}
	names := make(map[aggregate.LocationID]string, len(locations))
	for _, l := range locations {
		names[l.ID] = l.Name
	}
	t := &table{columns: findingColumns}
	for _, f := range rows {
		at := orNil(names[f.Location])
		if at == nil && f.Location != aggregate.NoLocation {
			at = fmt.Sprintf("location %016x", uint64(f.Location))
		}
		t.rows = append(t.rows, []any{
			f.Severity, f.Kind, fmt.Sprintf("%016x", f.ID), stamp(time.Unix(0, f.From)), stamp(time.Unix(0, f.To)), f.Count,
			orNil(f.Device), orNil(f.Port), at, orNil(f.Evidence),
		})
	}
	return t, nil
}
