package api

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/wire"
	"github.com/csigscope/csigscope/aggregate/table"
)

// maxMoments bounds the windows of a timeline.
const maxMoments = 3600

func (a *API) timeline(ctx context.Context, s *table.State, in *wire.TimelineRequest) (*answer, error) {
	if s == nil {
		return a.pastTimeline(ctx, in)
	}
	if in.GetStep() != nil {
		return nil, wrong("step", in.GetStep().AsDuration().String(), "applies only to history: give from and to as well")
	}
	k, err := stateKey(s, in, int(in.GetWindows()))
	if err != nil {
		return nil, err
	}
	out := &wire.TimelineResponse{About: a.about(s, k), StepS: s.Resolution.Seconds(), HeavyOnly: isFine(s)}
	for _, w := range s.Parts(s.Last(int(in.GetWindows()))) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		m, err := a.moment(ctx, w, k, in)
		if err != nil {
			return nil, err
		}
		m.Durable = s.Durable([]*table.Window{w})
		out.Timeline = append(out.Timeline, m)
	}
	return of(s, out)
}

// moment sums up one window in memory.
func (a *API) moment(ctx context.Context, w *table.Window, k viewKey, in *wire.TimelineRequest) (m *wire.Moment, err error) {
	v, err := a.windowView(ctx, w, k.signal, k.level)
	if err != nil {
		return m, err
	}
	f, err := v.names.filter(in, k.signal)
	if err != nil {
		return m, err
	}
	m = &wire.Moment{WindowStart: timestamppb.New(w.Start), CompletenessRatio: w.Completeness(), Final: w.Final}
	for _, i := range v.chosen(&f) {
		c := &v.cells[i]
		count(m, c.Observations, c.Heavy, c.State)
		if f.oneCell() {
			m.Cell = v.names.cell(c, &v.covers[i])
			m.Cell.Since, m.Cell.SustainedS, m.Cell.CongestedRatio = nil, 0, 0 // as in the store, which has them only at the end of a range
		}
	}
	for _, l := range w.Rows.Locations(k.signal, v.names.at(k.level)) {
		if len(m.Locations) < int(in.GetTop()) && l.Heavy > 0 && l.Location != aggregate.NoLocation {
			m.Locations = append(m.Locations, v.names.location(&l, k.signal))
		}
	}
	return m, nil
}

func count(m *wire.Moment, observations, heavy uint64, state aggregate.State) {
	m.Cells++
	m.Observations = aggregate.AddSat(m.Observations, observations)
	m.Heavy = aggregate.AddSat(m.Heavy, heavy)
	if state == aggregate.Congested {
		m.Congested++
	}
}

// pastTimeline answers from the store.
func (a *API) pastTimeline(ctx context.Context, in *wire.TimelineRequest) (*answer, error) {
	q, err := a.steps(ctx, in)
	if err != nil {
		return nil, err
	}
	n, f, err := a.pastFilter(ctx, &q.Question, in)
	if err != nil {
		return nil, err
	}
	missing, err := a.Reader.Missing(ctx, q.From, q.To, min(q.length, q.Step))
	if err != nil {
		return nil, err
	}
	t := pastMoments{question: q.Question, names: n, gaps: missing, at: make(map[int64]*wire.Moment)}
	if err := t.addCells(ctx, a, &f); err != nil {
		return nil, err
	}
	all := q.Step >= time.Second // shorter windows exist only with heavy observations
	if in.GetTop() > 0 || all && len(f.src)+len(f.dst) > 0 {
		if err := t.addLocations(ctx, a, int(in.GetTop())); err != nil {
			return nil, err
		}
	}
	if all {
		t.fill()
	}
	out := &wire.TimelineResponse{About: a.pastAbout(q, a.Now()), StepS: q.Step.Seconds(), HeavyOnly: q.Step < time.Second}
	for _, start := range slices.Sorted(maps.Keys(t.at)) {
		out.Timeline = append(out.Timeline, t.at[start])
	}
	return of(nil, out)
}

// steps is the question of a timeline.
func (a *API) steps(ctx context.Context, in *wire.TimelineRequest) (pastQuestion, error) {
	q, err := a.question(ctx, in, in)
	if err != nil {
		return q, err
	}
	err = a.cut(ctx, &q.Question, in.GetStep(), maxMoments)
	return q, err
}

// cut cuts the question's range into at most most windows of the step; by default it chooses the
// step.
func (a *API) cut(ctx context.Context, q *query.Question, in *durationpb.Duration, most int) error {
	step := in.AsDuration()
	if in != nil && step <= 0 {
		return wrong("step", step.String(), "expected a duration of more than 0s, such as 10s")
	}
	extent, err := a.stored(ctx)
	if err != nil {
		return err
	}
	err = query.SplitRange(q, extent, step, most)
	if errors.Is(err, query.ErrInvalid) || errors.Is(err, query.ErrTooLarge) {
		_, reason, _ := strings.Cut(err.Error(), ": ") // without ErrInvalid or ErrTooLarge
		return wrong("step", step.String(), "%s", reason)
	}
	return err
}

// pastMoments are the windows of a timeline from the store, by their start in Unix ns.
type pastMoments struct {
	question query.Question
	names    *names
	gaps     gaps
	at       map[int64]*wire.Moment
}

func (t *pastMoments) moment(start int64) *wire.Moment {
	m := t.at[start]
	if m == nil {
		begin := time.Unix(0, start).UTC()
		m = &wire.Moment{WindowStart: timestamppb.New(begin), CompletenessRatio: t.gaps.covered(begin, begin.Add(t.question.Step)), Durable: true, Final: true}
		t.at[start] = m
	}
	return m
}

func (t *pastMoments) addCells(ctx context.Context, a *API, f *filter) error {
	rows, err := a.Reader.CellWindows(ctx, t.question)
	if err != nil {
		return err
	}
	for _, g := range t.gaps {
		step := int64(t.question.Step)
		for start := g.From.UnixNano() / step * step; start < g.To.UnixNano(); start += step {
			t.moment(start)
		}
	}
	for i := range rows {
		r := &rows[i]
		if !f.takes(&r.CellStats) {
			continue
		}
		m := t.moment(r.Start)
		count(m, r.Observations, r.Heavy, r.State)
		if f.oneCell() {
			if t.names, err = a.history().knowingCell(ctx, t.names, &r.CellStats); err != nil {
				return err
			}
			m.Cell = t.names.pastCell(&r.CellStats)
		}
	}
	return nil
}

// fill adds the windows without observations of any cell: their completeness is 0.
func (t *pastMoments) fill() {
	for start := t.question.From.UnixNano(); start < t.question.To.UnixNano(); start += int64(t.question.Step) {
		if t.at[start] == nil {
			t.moment(start).CompletenessRatio = 0
		}
	}
}

// addLocations adds the windows with observations of any cell, and the locations of each with the most
// heavy ones.
func (t *pastMoments) addLocations(ctx context.Context, a *API, top int) error {
	rows, err := a.Reader.LocationWindows(ctx, t.question)
	if err != nil {
		return err
	}
	if t.names, err = a.history().knowing(ctx, func(n *names) bool {
		return !slices.ContainsFunc(rows, func(l aggregate.LocationWindow) bool { return !n.knowLocation(l.Location) })
	}); err != nil {
		return err
	}
	slices.SortFunc(rows, func(x, y aggregate.LocationWindow) int {
		return aggregate.CompareBottlenecks(t.question.Signal.Direction(), &x.LocationStats, &y.LocationStats)
	})
	for _, r := range rows {
		m := t.moment(r.Start)
		if r.Heavy == 0 || r.Location == aggregate.NoLocation || len(m.Locations) >= top {
			continue
		}
		l := t.names.named(r.Location)
		l.Observations, l.Heavy = r.Observations, r.Heavy
		m.Locations = append(m.Locations, l)
	}
	return nil
}
