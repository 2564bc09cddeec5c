package answers

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/csigscope/csigscope/aggregate/query/client"
	"github.com/csigscope/csigscope/aggregate/query/rest"
	"github.com/csigscope/csigscope/aggregate/query/tabular"
	"github.com/csigscope/csigscope/aggregate/query/wire"
)

// cellBrief are the columns of cells for people.
var cellBrief = []string{"src", "dst", "state", "observations", "mean", "heavy_ratio", "mode_location", "mode_share", "runner_up_location"}

// Cells asks for cells, on all pages.
func Cells(ctx context.Context, c *client.Client, parameters url.Values) (*Answer, error) {
	all, err := c.AllCells(ctx, parameters)
	if err != nil {
		return nil, err
	}
	a := newAnswer(all, "cells", cellBrief...)
	a.worst = worstCell
	return a, nil
}

// Verdict asks for the bottlenecks of the fabric. Its rows are the statements.
func Verdict(ctx context.Context, c *client.Client, parameters url.Values) (*Answer, error) {
	found, err := c.Verdict(ctx, parameters)
	if err != nil {
		return nil, err
	}
	a := newAnswer(found, "statements", "rank", "text")
	a.prose = verdictLines(found)
	return a, nil
}

// verdictLines formats a verdict for people.
func verdictLines(v *wire.VerdictResponse) []string {
	lines := []string{v.Text}
	for _, s := range v.Statements {
		lines = append(lines, fmt.Sprintf("%3d  %s", s.Rank, s.Text))
	}
	rest := func(more uint64, text string) {
		places := "places"
		if more == 1 {
			places = "place"
		}
		if more > 0 {
			lines = append(lines, fmt.Sprintf("     %d more %s %s", more, places, text))
		}
	}
	rest(v.Total-uint64(len(v.Statements)), "had fewer heavy observations")
	rest(v.RestPlaces, "had heavy observations, but too few to count as congested; cells behind them may still have been congested")
	for _, note := range v.Notes {
		lines = append(lines, "note: "+note)
	}
	return lines
}

// Locations asks for locations.
func Locations(ctx context.Context, c *client.Client, parameters url.Values) (*Answer, error) {
	return listed("locations", "location", "kind", "stage", "candidate_count", "capacity", "heavy", "cells", "heavy_mean")(c.Locations(ctx, parameters))
}

// Links asks for ports, and for the named locations.
func Links(ctx context.Context, c *client.Client, parameters url.Values) (*Answer, error) {
	return listed("links", "link", "peer", "state", "capacity", "mean", "trend", "bound", "observations", "heavy_ratio", "passed", "among", "cells", "flows")(c.Links(ctx, parameters))
}

// Topology asks for the ports of the fabric or, for a pair, its paths.
func Topology(ctx context.Context, c *client.Client, parameters url.Values) (*Answer, error) {
	list := listed("ports")
	if parameters.Has("src") {
		list = listed("paths")
	}
	return list(c.Topology(ctx, parameters))
}

// Timeline asks for windows and their locations.
func Timeline(ctx context.Context, c *client.Client, parameters url.Values) (*Answer, error) {
	return listed("timeline", "window_start", "final", "cells", "congested", "heavy", "completeness", "locations_location", "locations_heavy")(c.Timeline(ctx, parameters))
}

// Flows asks for the first page of flows.
func Flows(ctx context.Context, c *client.Client, parameters url.Values) (*Answer, error) {
	found, err := c.Flows(ctx, parameters)
	if err != nil {
		return nil, err
	}
	return flowsAnswer(found), nil
}

// flowsAnswer shows people the number of samples only if a flow is estimated from some.
func flowsAnswer(found *wire.FlowsResponse) *Answer {
	brief := []string{"others", "src_address", "src_port", "dst_address", "dst_port", "proto", "src_group", "dst_group", "observations", "mean", "heavy", "heavy_ratio", "mode_location"}
	if slices.ContainsFunc(found.Flows, func(f *wire.Flow) bool { return f.Sampled > 0 }) {
		brief = slices.Insert(brief, slices.Index(brief, "heavy_ratio"), "sampled")
	}
	return newAnswer(found, "flows", brief...)
}

// Findings asks for the first page of findings.
func Findings(ctx context.Context, c *client.Client, parameters url.Values) (*Answer, error) {
	return listed("findings", "severity", "kind", "device", "port", "first", "last", "count", "evidence")(c.Findings(ctx, parameters))
}

// Path asks for one source and destination.
func Path(ctx context.Context, c *client.Client, parameters url.Values) (*Answer, error) {
	p, err := c.Path(ctx, parameters)
	if err != nil {
		return nil, err
	}
	return &Answer{message: p, rows: []proto.Message{p}, unit: p.GetAbout().GetUnit(), brief: []string{
		"cell_src", "cell_dst", "cell_state", "room", "cell_heavy_ratio", "limit_location", "limit_candidate_count", "cell_mode_evidence", "age_s", "completeness", "from", "to",
	}}, nil
}

// Windows asks for cells by window, and writes them in one of tabular.ListingFormats.
func Windows(ctx context.Context, c *client.Client, parameters url.Values, w io.Writer, format string) (*client.Exported, error) {
	lines := format == "json" || format == "ndjson"
	parameters.Set("table", "windows")
	parameters.Set("format", string(tabular.CSV))
	if lines {
		parameters.Set("format", string(tabular.NDJSON))
	}
	if format == "csv" || format == "ndjson" {
		return c.Export(ctx, client.TableCells, parameters, w)
	}
	var table bytes.Buffer
	end, err := c.Export(ctx, client.TableCells, parameters, &table)
	if err != nil {
		return nil, err
	}
	if lines {
		rows := bytes.ReplaceAll(bytes.TrimSpace(table.Bytes()), []byte("\n"), []byte(","))
		var out bytes.Buffer
		if err := json.Indent(&out, fmt.Appendf(nil, `{"windows":[%s]}`, rows), "", "  "); err != nil {
			return nil, fmt.Errorf("read windows: %w", err)
		}
		_, err = fmt.Fprintln(w, out.String())
		return end, err
	}
	rows, err := csv.NewReader(&table).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("read windows: %w", err)
	}
	t := newListing(rows[0], append([]string{"from"}, cellBrief...))
	for _, r := range rows[1:] {
		row := make([]any, len(r))
		for i, text := range r {
			if row[i] = OrNil(text); text == "" {
				continue
			}
			if v, err := strconv.ParseFloat(text, 64); err == nil && shortName(rows[0][i]) != rows[0][i] {
				row[i] = v
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return end, t.Write(w, format)
}

// errEnough ends a watch at its limit.
var errEnough = errors.New("as many windows as were asked for")

// Watch asks a server for the current cells, and prints them and then those of each window that
// closes or changes: in JSON the events as they arrive, except heartbeats, otherwise the cells as
// rows. It returns after the given number of windows or, if that is 0, when ctx ends. It reports missing
// revisions to notes, after which all cells follow.
func Watch(ctx context.Context, c *client.Client, parameters url.Values, windows int, w io.Writer, format string, notes io.Writer) error {
	printed, unit := false, ""
	schema := rest.NewSchema()
	err := c.Watch(ctx, parameters, func(e *wire.WatchResponse) error {
		switch v := e.GetEvent().(type) {
		case *wire.WatchResponse_Heartbeat:
			return nil
		case *wire.WatchResponse_Gap:
			missing(notes, v.Gap)
		case *wire.WatchResponse_Lagging:
			missing(notes, v.Lagging)
		}
		var err error
		if format == "json" || format == "ndjson" {
			err = writeEvent(schema, e, w, format == "json")
		} else if t := cellsOf(e, &unit); t != nil {
			t.Continued, printed = printed, true
			err = t.Write(w, format)
		}
		if err != nil {
			return err
		}
		if e.GetWindow() != nil {
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

// cellsOf returns the cells of a snapshot or a window, nil without any. A watch starts with a
// snapshot, which sets the unit.
func cellsOf(e *wire.WatchResponse, unit *string) *tabular.Listing {
	var list []*wire.Cell
	about, final, durable := e.GetSnapshot().GetAbout(), false, false
	switch {
	case e.GetSnapshot() != nil:
		list, final, durable, *unit = e.GetSnapshot().Cells, about.GetFinal(), about.GetDurable(), about.GetUnit()
	case e.GetWindow() != nil:
		window := e.GetWindow()
		list, final, durable = window.Cells, window.Final, window.Durable
		about = &wire.About{From: window.WindowStart, To: window.WindowEnd, Signal: window.Signal, Unit: *unit}
	}
	if len(list) == 0 {
		return nil
	}
	a := newAnswer(&wire.CellsResponse{About: about, Cells: list}, "cells", append([]string{"from", "final", "durable"}, cellBrief...)...)
	t := a.listing(false)
	t = &tabular.Listing{Columns: append(t.Columns, "final", "durable"), Rows: t.Rows, Show: t.Show, Brief: append(t.Brief, "final", "durable")}
	for i := range t.Rows {
		t.Rows[i] = append(t.Rows[i], final, durable)
	}
	return t
}

// Changes asks a server for the present state, and prints it and then each change as it arrives:
// as ndjson the events, except heartbeats, otherwise a line for each change. It returns after the
// given number of later changes or, if that is 0, when ctx ends. It reports missing revisions to notes,
// and that the whole state follows once more.
func Changes(ctx context.Context, c *client.Client, parameters url.Values, count int, w io.Writer, format string, notes io.Writer) error {
	schema, began := rest.NewSchema(), false
	err := c.Changes(ctx, parameters, func(e *wire.ChangesResponse) error {
		switch v := e.GetEvent().(type) {
		case *wire.ChangesResponse_Heartbeat:
			return nil
		case *wire.ChangesResponse_Gap:
			missing(notes, v.Gap)
			began = false
		case *wire.ChangesResponse_Lagging:
			missing(notes, v.Lagging)
			began = false
		case *wire.ChangesResponse_Initial:
			if began {
				fmt.Fprintln(notes, "csigscope: the whole state follows, and replaces the changes before it")
			}
			began = true
		}
		if format == "ndjson" {
			if err := writeEvent(schema, e, w, false); err != nil {
				return err
			}
		} else if err := writeChanges(w, cmp.Or(e.GetInitial(), e.GetChanges())); err != nil {
			return err
		}
		if n := len(e.GetChanges().GetChanges()); n > 0 && count > 0 {
			if count -= n; count <= 0 {
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

// writeChanges writes a line for each change: the end of the window, the kind, the cell or the
// producer, and its new state.
func writeChanges(w io.Writer, set *wire.ChangeSet) error {
	var out bytes.Buffer
	for _, c := range set.GetChanges() {
		at := "-"
		if set.WindowEnd != nil {
			at = set.WindowEnd.AsTime().Format(time.RFC3339)
		}
		fmt.Fprintf(&out, "%s  %-13s  ", at, c.Kind.Word())
		if c.Producer != "" {
			out.WriteString(c.Producer)
			if c.AgeS != nil {
				fmt.Fprintf(&out, "  %g s", *c.AgeS)
			}
		} else {
			fmt.Fprintf(&out, "%s to %s  %s", c.Src, c.Dst, c.State.Word())
		}
		if c.LocationBefore != "" {
			fmt.Fprintf(&out, "  from %s", c.LocationBefore)
		}
		if c.Location != "" {
			fmt.Fprintf(&out, "  at %s", c.Location)
		}
		if c.LastedS > 0 {
			fmt.Fprintf(&out, "  for %g s", c.LastedS)
		}
		if c.HeavyRatio != nil {
			fmt.Fprintf(&out, "  %.1f %% heavy", 100**c.HeavyRatio)
		}
		if mean, unit, ok := c.Mean.Number(); ok {
			fmt.Fprintf(&out, "  mean %.4g %s", mean, unit)
		}
		if len(c.SilentProducers) > 0 {
			fmt.Fprintf(&out, "  without %s", strings.Join(c.SilentProducers, ", "))
		}
		out.WriteByte('\n')
	}
	if _, err := w.Write(out.Bytes()); err != nil {
		return fmt.Errorf("write changes: %w", err)
	}
	return nil
}

// event is a response of a stream.
type event interface {
	proto.Message
	GetId() string
}

// writeEvent writes an event in the form of the API's document.
func writeEvent(s *rest.Schema, e event, w io.Writer, indent bool) error {
	m := e.ProtoReflect()
	f := m.WhichOneof(m.Descriptor().Oneofs().ByName("event"))
	if f == nil {
		return nil // of a later version
	}
	line := []byte{'{'}
	if e.GetId() != "" {
		line = fmt.Appendf(line, `"id":%q,`, e.GetId())
	}
	line, err := s.Append(fmt.Appendf(line, `"event":%q,"data":`, f.Name()), m.Get(f).Message().Interface())
	if err != nil {
		return err
	}
	line = append(line, '}')
	if indent {
		var out bytes.Buffer
		if err := json.Indent(&out, line, "", "  "); err != nil {
			return fmt.Errorf("write event: %w", err)
		}
		line = out.Bytes()
	}
	if _, err := w.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("write event: %w", err)
	}
	return nil
}

// missing reports that revisions are missing before the state that follows.
func missing(notes io.Writer, g *wire.Gap) {
	fmt.Fprintf(notes, "csigscope: %d revisions are missing (%s), the whole state follows\n", g.GetMissedRevisions(), g.GetReason())
}
