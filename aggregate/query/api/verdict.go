package api

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/wire"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/decode/csig"
)

const (
	// maxStatementCells bounds the cells listed under a statement.
	maxStatementCells = 20
	// maxStatementNames bounds the locations and the sources listed under a statement.
	maxStatementNames = 64
	// statementBytes and statementCellBytes are the approximate sizes of a statement with its
	// names, and of each of its cells.
	statementBytes, statementCellBytes = 8 << 10, 24
	// verdictReads is the number of signals that are read at a time: most of a question of a small store runs on one
	// core.
	verdictReads = 2
)

// ofAllSignals selects the resolved locations of all signals. The signal only initializes the
// scope.
type ofAllSignals struct{ *wire.VerdictRequest }

// GetSignal implements subject.
func (ofAllSignals) GetSignal() string { return csig.MinABWRatio.String() }

// GetLevel implements subject.
func (ofAllSignals) GetLevel() string { return fabric.LevelLocation.String() }

func (a *API) verdict(ctx context.Context, s *table.State, in *wire.VerdictRequest) (*answer, error) {
	on, err := a.scope(ctx, s, ofAllSignals{in})
	if err != nil {
		return nil, err
	}
	on.about.Signal, on.about.Unit = "", ""
	f, err := a.topology(ctx, s)
	if err != nil {
		return nil, err
	}
	v, err := a.verdictOf(ctx, s, &on, f)
	if err != nil {
		return nil, err
	}
	return of(s, on.names.verdict(v, on.about, int(in.GetTop())))
}

// verdictOf returns the verdict, for memory computed once per revision.
func (a *API) verdictOf(ctx context.Context, s *table.State, on *scope, f *fabric.Fabric) (*query.FabricVerdict, error) {
	if s == nil {
		return a.makeVerdict(ctx, s, on, f)
	}
	type verdictOf struct {
		windows         uint32
		revision, names uint64
		topology        *fabric.Fabric
	}
	return getOrCompute(a.cache, verdictOf{on.about.GetWindows(), s.Revision, on.names.version, f}, func() (*query.FabricVerdict, int, error) {
		v, err := a.makeVerdict(ctx, s, on, f)
		if err != nil {
			return nil, 0, err
		}
		size := 0
		for i := range v.Statements {
			size += statementBytes + len(v.Statements[i].Cells)*statementCellBytes
		}
		return v, size, nil
	})
}

func (a *API) makeVerdict(ctx context.Context, s *table.State, on *scope, f *fabric.Fabric) (*query.FabricVerdict, error) {
	g := &query.VerdictInput{
		From: on.From, To: on.To, Fabric: f, Location: on.names.describe,
		Group: on.names.describeGroup,
	}
	var err error
	if g.Coverage, err = a.seen(ctx, s, on); err != nil {
		return nil, err
	}
	read, length := *on, on.decidingLength()
	if newest := g.Coverage.Newest; s == nil && newest.After(on.From) && newest.Before(on.To) {
		read.To = newest.Add(length - 1).Truncate(length) // states are those at the end of the data
	}
	on = &read
	signals, err := a.signalsOf(ctx, s, on)
	if err != nil {
		return nil, err
	}
	g.Signals = make([]query.SignalRows, len(signals))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(verdictReads)
	for i, signal := range signals {
		of := *on
		of.Signal = signal
		group.Go(func() error {
			return recovering(func() (err error) {
				g.Signals[i], err = a.signalRows(ctx, s, &of, length)
				return err
			})
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return query.NewFabricVerdict(g), nil
}

// signalsOf returns the scope's signals that have values.
func (a *API) signalsOf(ctx context.Context, s *table.State, on *scope) (list []csig.Signal, err error) {
	var all []csig.Signal
	if s != nil {
		all = s.Signals()
	} else if all, err = a.Reader.Signals(ctx, on.Question); err != nil {
		return nil, err
	}
	for _, signal := range all {
		if signal.HasValue() {
			list = append(list, signal)
		}
	}
	return list, nil
}

// seen returns the coverage of a range.
func (a *API) seen(ctx context.Context, s *table.State, on *scope) (query.Producers, error) {
	if s != nil {
		p := query.Producers{Expected: s.Coverage.Expected, Present: s.Coverage.Present(), Covered: 1, Newest: s.Coverage.Newest}
		for _, silent := range s.Coverage.Silent {
			p.Silent = append(p.Silent, text(silent.Name))
		}
		return p, nil
	}
	missing, err := a.Reader.Missing(ctx, on.From, on.To, on.decidingLength())
	if err != nil {
		return query.Producers{}, err
	}
	on.about.CompletenessRatio = gaps(missing).covered(on.From, on.To)
	extent, err := a.stored(ctx)
	if err != nil {
		return query.Producers{}, err
	}
	err = a.countProducers(ctx, &wire.VerdictResponse{About: on.about})
	return query.Producers{Expected: int(on.about.ExpectedProducers), Present: int(on.about.PresentProducers), Covered: on.about.CompletenessRatio, Newest: extent.Last}, err
}

// signalRows reads the rows of the scope's signal. Windows of the store of that length decide states.
func (a *API) signalRows(ctx context.Context, s *table.State, on *scope, length time.Duration) (query.SignalRows, error) {
	rows := query.SignalRows{Signal: on.Signal}
	var err error
	if rows.Recent, err = a.recent(ctx, s, on, length); err != nil {
		return rows, err
	}
	q := on.Question
	q.NoModes, q.HeavyOnly = true, true
	if rows.Cells, err = on.Cells(ctx, q); err != nil {
		return rows, err
	}
	if rows.Locations, err = on.CellLocations(ctx, q); err != nil || s != nil {
		return rows, err
	}
	rows.Earlier, err = a.earlier(ctx, on, rows.Recent)
	return rows, err
}

// earlier returns the windows of a range of the store before the recent ones, nil for none. They
// are as short as the limit on their number allows.
func (a *API) earlier(ctx context.Context, on *scope, recent *query.Recent) (*query.Recent, error) {
	q, length := on.Question, time.Duration(recent.Length)
	q.Resolution = 0
	q.To = q.To.Add(-aggregate.Horizon * length).Truncate(length)
	if !q.From.Before(q.To) {
		return nil, nil
	}
	q.Step = (q.To.Sub(q.From)/aggregate.Horizon/length + 1) * length
	windows, err := on.LocationWindows(ctx, q)
	return &query.Recent{Thresholds: a.Thresholds, Length: int64(q.Step), End: q.To.UnixNano(), Windows: windows}, err
}

// describe describes a location as far as it is known.
func (n *names) describe(id aggregate.LocationID) *fabric.Location {
	if l, ok := n.locations[id]; ok {
		return l
	}
	return &fabric.Location{ID: id, Name: n.locationName(id), Kind: fabric.KindUnknown}
}

// describeGroup describes a group as far as it is known.
func (n *names) describeGroup(id aggregate.GroupID) fabric.Group {
	if i := slices.IndexFunc(n.groups, func(g fabric.Group) bool { return g.ID == id }); i >= 0 {
		return n.groups[i]
	}
	return fabric.Group{ID: id, Name: n.groupName(id)}
}

// verdict converts a verdict to its answer.
func (n *names) verdict(v *query.FabricVerdict, about *wire.About, top int) *wire.VerdictResponse {
	out := &wire.VerdictResponse{
		About: about, Kind: wire.VerdictKind(v.Kind + 1), Text: v.Text, Notes: v.Notes, Signals: csig.SignalNames(v.Signals),
		Cells: uint64(v.Cells), JudgedCells: uint64(v.JudgedCells), CongestedCells: uint64(v.CongestedCells), Observations: v.Observations, Heavy: v.Heavy,
		Total: uint64(len(v.Statements)), RestPlaces: uint64(v.Rest.Places), RestShareRatio: sixDigits(v.Rest.Share),
	}
	for i := range v.Statements[:min(top, len(v.Statements))] {
		out.Statements = append(out.Statements, n.statement(uint32(i+1), &v.Statements[i]))
	}
	return out
}

func (n *names) statement(rank uint32, s *query.Statement) *wire.Statement {
	out := &wire.Statement{
		Rank: rank, Text: text(s.Text), Place: text(s.Place), Kind: wire.StatementKind(s.Kind + 1), State: stateOf(s.State),
		Last: stampOf(s.Last), Heavy: s.Heavy, ShareRatio: sixDigits(s.Share),
		Ports: uint32(s.Ports), OfPorts: uint32(s.OfPorts), Device: text(s.Device), FarEnd: text(s.FarEnd), Host: text(s.Host),
		CellCount: uint64(len(s.Cells)), SourceCount: uint32(len(s.Sources)),
	}
	if s.Dated {
		out.Since = timestamppb.New(time.Unix(0, s.Since))
	}
	if s.Last > 0 { // else neither is known
		out.First = timestamppb.New(time.Unix(0, s.First))
	}
	for _, l := range s.Locations[:min(len(s.Locations), maxStatementNames)] {
		out.Locations = append(out.Locations, text(l.Name))
	}
	for _, g := range s.Sources[:min(len(s.Sources), maxStatementNames)] {
		out.Sources = append(out.Sources, n.groupName(g))
	}
	if s.Destination != nil {
		out.Destination = n.groupName(*s.Destination)
	}
	for i := range s.Signals {
		one := &s.Signals[i]
		out.Signals = append(out.Signals, &wire.StatementSignal{
			Signal: one.Signal.String(), Heavy: one.Heavy, Worst: measure(one.Signal, sixDigits(one.Signal.Unit().FromStoredMean(one.Worst))), WorstText: one.WorstText(),
		})
	}
	for _, c := range s.Cells[:min(len(s.Cells), maxStatementCells)] {
		out.Cells = append(out.Cells, &wire.StatementCell{Src: n.groupName(c.Src), Dst: n.groupName(c.Dst), Heavy: c.Heavy})
	}
	return out
}

// stampOf converts Unix ns, nil for 0.
func stampOf(ns int64) *timestamppb.Timestamp {
	if ns == 0 {
		return nil
	}
	return timestamppb.New(time.Unix(0, ns))
}
