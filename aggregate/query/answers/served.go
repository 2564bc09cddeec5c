package answers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/csigscope/csigscope/aggregate/query/client"
	"github.com/csigscope/csigscope/aggregate/query/tabular"
	"github.com/csigscope/csigscope/aggregate/query/wire"
)

// servedCell is a row under cellColumns.
func servedCell(c *wire.Cell) []any {
	row := cell{
		src: c.Src, dst: c.Dst, kind: c.Kind, state: c.State, observations: c.Observations, values: valuesOf(c.Mean, c.Min, c.Max),
		untouched: c.Untouched, trimmed: c.Trimmed, heavy: c.Heavy, mode: bottleneckOf(c.Mode), runnerUp: bottleneckOf(c.RunnerUp),
	}
	return row.row()
}

func bottleneckOf(b *wire.Bottleneck) bottleneck {
	if b == nil {
		return bottleneck{}
	}
	return bottleneck{b.Location, b.Heavy}
}

func valuesOf(mean, least, most *wire.Measure) (all values) {
	for i, m := range []*wire.Measure{mean, least, most} {
		if v, unit, ok := m.Number(); ok {
			all[i], all[3] = v, unit
		}
	}
	return all
}

// ServedCells asks a server for cells, of all pages.
func ServedCells(ctx context.Context, c *client.Client, parameters url.Values) (*tabular.Listing, error) {
	page, err := c.AllCells(ctx, parameters)
	if err != nil {
		return nil, err
	}
	t := &tabular.Listing{Columns: cellColumns}
	for _, c := range page.Cells {
		t.Rows = append(t.Rows, servedCell(c))
	}
	return t, nil
}

// ServedLocations asks a server for locations.
func ServedLocations(ctx context.Context, c *client.Client, parameters url.Values) (*tabular.Listing, error) {
	found, err := c.Locations(ctx, parameters)
	if err != nil {
		return nil, err
	}
	t := &tabular.Listing{Columns: append(slices.Clone(locationColumns), "cells")}
	for _, l := range found.Locations {
		t.Rows = append(t.Rows, append(servedLocation(l), l.Cells))
	}
	return t, nil
}

// servedLocation is a row under locationColumns.
func servedLocation(l *wire.Location) []any {
	mean := valuesOf(l.HeavyMean, nil, nil)
	return []any{l.Location, orNil(l.Stage), l.Observations, l.Heavy, mean[0], mean[3]}
}

// ServedTimeline asks a server for locations by window.
func ServedTimeline(ctx context.Context, c *client.Client, parameters url.Values) (*tabular.Listing, error) {
	line, err := c.Timeline(ctx, parameters)
	if err != nil {
		return nil, err
	}
	t := &tabular.Listing{Columns: append([]string{"window_start", "completeness", "durable", "cells", "congested"}, locationColumns...)}
	for _, m := range line.Timeline {
		head := []any{stamp(m.GetWindowStart().AsTime()), m.CompletenessRatio, m.Durable, m.Cells, m.Congested}
		if len(m.Locations) == 0 {
			t.Rows = append(t.Rows, append(head, nil, nil, m.Observations, m.Heavy, nil, nil))
		}
		for _, l := range m.Locations {
			t.Rows = append(t.Rows, append(head[:len(head):len(head)], servedLocation(l)...))
		}
	}
	return t, nil
}

// ServedFlows asks a server for flows, of the first page, of top rows.
func ServedFlows(ctx context.Context, c *client.Client, parameters url.Values) (*tabular.Listing, error) {
	found, err := c.Flows(ctx, topAsLimit(parameters))
	if err != nil {
		return nil, err
	}
	t := &tabular.Listing{Columns: flowColumns}
	for _, f := range found.Flows {
		row := flow{
			src: f.SrcAddress, srcPort: uint16(f.SrcPort), dst: f.DstAddress, dstPort: uint16(f.DstPort), proto: uint8(f.Proto),
			srcGroup: f.SrcGroup, dstGroup: f.DstGroup, kind: f.Kind, observations: f.Observations, bytes: f.Bytes,
			values: valuesOf(f.Mean, f.Min, f.Max), heavy: f.Heavy, windows: f.Windows, mode: bottleneckOf(f.Mode),
		}
		t.Rows = append(t.Rows, row.row())
	}
	return t, nil
}

// ServedFindings asks a server for findings, likewise.
func ServedFindings(ctx context.Context, c *client.Client, parameters url.Values) (*tabular.Listing, error) {
	found, err := c.Findings(ctx, topAsLimit(parameters))
	if err != nil {
		return nil, err
	}
	t := &tabular.Listing{Columns: findingColumns}
	for _, f := range found.Findings {
		t.Rows = append(t.Rows, []any{
			f.Severity, f.Kind, f.Id, stamp(f.GetFirst().AsTime()), stamp(f.GetLast().AsTime()), f.Count, orNil(f.Device), orNil(f.Port), orNil(f.Location), orNil(f.Evidence),
		})
	}
	return t, nil
}

// topAsLimit asks for the first page alone, of so many rows.
func topAsLimit(parameters url.Values) url.Values {
	if top, ok := parameters["top"]; ok {
		delete(parameters, "top")
		parameters["limit"] = top
	}
	return parameters
}

// Window are cells under the start of their window, and whether that was on disk.
func Window(start time.Time, durable bool, cells []*wire.Cell) *tabular.Listing {
	t := &tabular.Listing{Columns: append([]string{"window_start", "durable"}, cellColumns...)}
	for _, c := range cells {
		t.Rows = append(t.Rows, append([]any{stamp(start), durable}, servedCell(c)...))
	}
	return t
}

// Path is the cell of a path, before it what is left and what limits it.
func Path(p *wire.PathResponse) *tabular.Listing {
	t := &tabular.Listing{Columns: append([]string{"room", "limit", "candidates", "ports", "age_s", "completeness", "durable", "from", "to"}, cellColumns...)}
	row := []any{nil, nil, nil, nil, p.AgeS, p.GetAbout().GetCompletenessRatio(), p.GetAbout().GetDurable(), stamp(p.GetAbout().GetFrom().AsTime()), stamp(p.GetAbout().GetTo().AsTime())}
	if v, _, ok := p.Room.Number(); ok {
		row[0] = v
	}
	if l := p.Limit; l != nil {
		row[1], row[2], row[3] = l.Location, l.CandidateCount, strings.Join(l.Candidates, " ")
	}
	t.Rows = [][]any{append(row, servedCell(p.Cell)...)}
	return t
}

// errEnough ends a watch that was to end.
var errEnough = errors.New("as many windows as were asked for")

// Watch asks a server for the current cells, and calls print with a listing of them and with one of
// each window that closes or changes. It returns after so many windows, with 0 when ctx ends.
// Missing revisions are reported to notes, and all cells follow.
func Watch(ctx context.Context, c *client.Client, parameters url.Values, windows int, print func(*tabular.Listing) error, notes io.Writer) error {
	printed := false
	show := func(t *tabular.Listing) error {
		t.Continued, printed = printed, true
		return print(t)
	}
	err := c.Watch(ctx, parameters, func(e *wire.WatchResponse) error {
		switch e := e.GetEvent().(type) {
		case *wire.WatchResponse_Gap:
			missing(notes, e.Gap)
		case *wire.WatchResponse_Lagging:
			missing(notes, e.Lagging)
		case *wire.WatchResponse_Snapshot:
			if cells := e.Snapshot.GetCells(); len(cells) > 0 {
				about := e.Snapshot.GetAbout()
				return show(Window(about.GetFrom().AsTime(), about.GetDurable(), cells))
			}
		case *wire.WatchResponse_Window:
			if err := show(Window(e.Window.GetWindowStart().AsTime(), e.Window.GetDurable(), e.Window.GetCells())); err != nil {
				return err
			}
			if windows--; windows == 0 {
				return errEnough
			}
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// missing says that revisions are missing before the cells that follow.
func missing(notes io.Writer, g *wire.Gap) {
	fmt.Fprintf(notes, "csigscope: %d revisions are missing (%s), all cells follow\n", g.GetMissedRevisions(), g.GetReason())
}
