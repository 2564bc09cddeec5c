package rpc

import (
	"math"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/csigscope/csigscope/aggregate/query/model"
	"github.com/csigscope/csigscope/aggregate/query/wire"
)

// text makes what may come from a capture a string that a message can hold.
func text(s string) string { return strings.ToValidUTF8(s, "\ufffd") }

func texts(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = text(s)
	}
	return out
}

// moment is a time, nil for the zero one.
func moment(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func optionalMoment(t *time.Time) *timestamppb.Timestamp {
	if t == nil {
		return nil
	}
	return moment(*t)
}

// each converts a list.
func each[M, W any](list []M, convert func(*M) *W) []*W {
	out := make([]*W, len(list))
	for i := range list {
		out[i] = convert(&list[i])
	}
	return out
}

func measure(m *model.Measure) *wire.Measure {
	switch {
	case m == nil:
		return nil
	case m.BPS != nil:
		return &wire.Measure{Value: &wire.Measure_Bps{Bps: *m.BPS}}
	case m.Ratio != nil:
		return &wire.Measure{Value: &wire.Measure_Ratio{Ratio: *m.Ratio}}
	case m.NS != nil:
		return &wire.Measure{Value: &wire.Measure_Ns{Ns: *m.NS}}
	case m.Count != nil:
		return &wire.Measure{Value: &wire.Measure_Count{Count: *m.Count}}
	}
	return &wire.Measure{}
}

func bottleneck(b *model.Bottleneck) *wire.Bottleneck {
	if b == nil {
		return nil
	}
	return &wire.Bottleneck{Location: text(b.Location), Heavy: b.Heavy, ShareRatio: b.ShareRatio, Mean: measure(b.Mean)}
}

func cell(c *model.Cell) *wire.Cell {
	if c == nil {
		return nil
	}
	return &wire.Cell{
		Src: text(c.Src), Dst: text(c.Dst), Kind: c.Kind, State: c.State, Observations: c.Observations,
		Mean: measure(c.Mean), Min: measure(c.Min), Max: measure(c.Max),
		Untouched: c.Untouched, Trimmed: c.Trimmed, Heavy: c.Heavy, HeavyRatio: c.HeavyRatio,
		Mode: bottleneck(c.Mode), RunnerUp: bottleneck(c.RunnerUp),
	}
}

func about(a *model.About) *wire.About {
	return &wire.About{
		Source: a.Source, Revision: a.Revision, Signal: a.Signal, Unit: a.Unit, Level: a.Level, From: moment(a.From), To: moment(a.To),
		Windows: uint32(a.Windows), CompletenessRatio: a.Completeness, AsOf: optionalMoment(a.AsOf),
	}
}

func cells(c *model.Cells) *wire.CellsResponse {
	return &wire.CellsResponse{About: about(&c.About), Total: uint64(c.Total), NextCursor: c.Next, Frames: c.Frames, Cells: each(c.Values, cell)}
}

func matrix(m *model.Matrix) *wire.MatrixResponse {
	n := len(m.Groups) * len(m.Groups)
	out := &wire.MatrixResponse{
		About: about(&m.About), Groups: texts(m.Groups),
		Mean: make([]float64, 0, n), HeavyRatio: make([]float64, 0, n), Mode: make([]string, 0, n), State: make([]string, 0, n),
	}
	for row := range m.Groups {
		for column := range m.Groups {
			out.Mean, out.HeavyRatio = append(out.Mean, orNaN(m.Mean[row][column])), append(out.HeavyRatio, orNaN(m.Heavy[row][column]))
			mode := ""
			if name := m.Mode[row][column]; name != nil {
				mode = text(*name)
			}
			out.Mode, out.State = append(out.Mode, mode), append(out.State, string(m.State[row][column]))
		}
	}
	return out
}

func orNaN(v *float64) float64 {
	if v == nil {
		return math.NaN()
	}
	return *v
}

func place(p *model.Place) *wire.Place {
	if p == nil {
		return nil
	}
	return &wire.Place{
		Location: text(p.Location), Kind: p.Kind, Device: text(p.Device), Stage: text(p.Stage), Orientation: text(p.Orientation),
		CapacityBps: p.CapacityBPS, Candidates: texts(p.Candidates), CandidateCount: uint32(p.CandidateCount),
	}
}

func path(p *model.Path) *wire.PathResponse {
	return &wire.PathResponse{About: about(&p.About), Cell: cell(&p.Cell), Room: measure(p.Room), Limit: place(p.Limit), AgeS: p.AgeSeconds}
}

func location(l *model.Location) *wire.Location {
	return &wire.Location{
		Location: text(l.Location), Kind: l.Kind, Device: text(l.Device), Stage: text(l.Stage), CapacityBps: l.CapacityBPS,
		Observations: l.Observations, Heavy: l.Heavy, Cells: l.Cells, HeavyMean: measure(l.HeavyMean),
	}
}

func locations(l *model.Locations) *wire.LocationsResponse {
	return &wire.LocationsResponse{About: about(&l.About), Total: uint64(l.Total), Locations: each(l.Values, location)}
}

func momentOf(m *model.Moment) *wire.Moment {
	return &wire.Moment{
		WindowStart: moment(m.Start), Observations: m.Observations, Heavy: m.Heavy, Cells: uint64(m.Cells), Congested: uint64(m.Congested),
		CompletenessRatio: m.Completeness, Locations: each(m.Locations, location), Cell: cell(m.Cell),
	}
}

func timeline(t *model.Timeline) *wire.TimelineResponse {
	return &wire.TimelineResponse{About: about(&t.About), StepS: t.StepSeconds, HeavyOnly: t.HeavyOnly, Timeline: each(t.Values, momentOf)}
}
