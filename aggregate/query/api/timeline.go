package api

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/model"
	"github.com/csigscope/csigscope/aggregate/table"
)

// maxMoments bounds the windows of a timeline.
const maxMoments = 3600

type timelineInput struct {
	SignalInput
	TimesInput
	Step    string `query:"step" maxLength:"20" doc:"with from and to: length of a window, such as 10s; otherwise about 120 windows" example:"10s"`
	Windows int    `query:"windows" default:"60" minimum:"1" maximum:"3600" doc:"how many of the last windows in memory" example:"10"`
	WaitInput
	GroupInput
	Top int `query:"top" default:"3" minimum:"0" maximum:"100" doc:"locations of each window, of all cells" example:"5"`
}

func (in *timelineInput) chosen() *FilterInput { return &FilterInput{GroupInput: in.GroupInput} }

func (a *API) timeline(ctx context.Context, s *table.State, in *timelineInput) (*answer, error) {
	if s == nil {
		return a.pastTimeline(ctx, in)
	}
	if in.Step != "" {
		return nil, wrong("step", in.Step, "is of history: give from and to as well")
	}
	k, err := in.key(in.Windows, s.Signals())
	if err != nil {
		return nil, err
	}
	out := model.Timeline{About: about(s, k), StepSeconds: s.Resolution.Seconds(), Values: []model.Moment{}}
	for _, w := range s.Last(in.Windows) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		m, err := a.moment(ctx, w, k, in)
		if err != nil {
			return nil, err
		}
		out.Values = append(out.Values, m)
	}
	return of(s, &out)
}

// moment is what one window in memory came to.
func (a *API) moment(ctx context.Context, w *table.Window, k viewKey, in *timelineInput) (m model.Moment, err error) {
	v, err := a.windowView(ctx, w, k.signal, k.level)
	if err != nil {
		return m, err
	}
	f, err := in.chosen().filter(v.names, k.signal)
	if err != nil {
		return m, err
	}
	m = model.Moment{Start: w.Start, Completeness: w.Completeness(), Locations: []model.Location{}}
	for _, i := range v.chosen(&f) {
		c := &v.cells[i]
		count(&m, c.Observations, c.Heavy, c.State)
		if f.oneCell() {
			cell := v.names.cell(c)
			m.Cell = &cell
		}
	}
	for _, l := range w.Rows.Locations(k.signal, v.names.at(k.level)) {
		if len(m.Locations) < in.Top && l.Heavy > 0 && l.Location != aggregate.NoLocation {
			m.Locations = append(m.Locations, v.names.location(&l, k.signal))
		}
	}
	return m, nil
}

func count(m *model.Moment, observations, heavy uint64, state aggregate.State) {
	m.Cells++
	m.Observations = aggregate.AddSat(m.Observations, observations)
	m.Heavy = aggregate.AddSat(m.Heavy, heavy)
	if state == aggregate.Congested {
		m.Congested++
	}
}

// pastTimeline answers from the store. Windows with neither observations nor gaps are left
// out.
func (a *API) pastTimeline(ctx context.Context, in *timelineInput) (*answer, error) {
	q, err := a.steps(ctx, in)
	if err != nil {
		return nil, err
	}
	n, err := a.history(ctx)
	if err != nil {
		return nil, err
	}
	f, err := in.chosen().filter(n, q.Signal)
	if err != nil {
		return nil, err
	}
	f.narrow(&q)
	missing, err := a.Reader.Missing(ctx, q.From, q.To)
	if err != nil {
		return nil, err
	}
	t := pastMoments{question: q, names: n, gaps: missing, at: make(map[int64]*model.Moment)}
	if err := t.addCells(ctx, a.Reader, &f); err != nil {
		return nil, err
	}
	if in.Top > 0 {
		if err := t.addLocations(ctx, a.Reader, in.Top); err != nil {
			return nil, err
		}
	}
	out := model.Timeline{About: pastAbout(q), StepSeconds: q.Step.Seconds(), HeavyOnly: q.Step < time.Second, Values: []model.Moment{}}
	for _, start := range slices.Sorted(maps.Keys(t.at)) {
		out.Values = append(out.Values, *t.at[start])
	}
	return of(nil, &out)
}

// steps is the question of a timeline.
func (a *API) steps(ctx context.Context, in *timelineInput) (query.Question, error) {
	q, err := a.question(ctx, &in.SignalInput, &in.TimesInput)
	if err != nil {
		return q, err
	}
	err = a.cut(ctx, &q, in.Step)
	return q, err
}

// cut cuts the question's range into windows of the step, which may be empty.
func (a *API) cut(ctx context.Context, q *query.Question, text string) error {
	step := time.Duration(0)
	if text != "" {
		var err error
		if step, err = time.ParseDuration(text); err != nil || step <= 0 {
			return wrong("step", text, "expected a duration such as 10s")
		}
	}
	extent, err := a.stored(ctx)
	if err != nil {
		return err
	}
	err = q.Cut(extent, step, maxMoments)
	if errors.Is(err, query.ErrInvalid) || errors.Is(err, query.ErrTooLarge) {
		return wrong("step", text, "%v", err)
	}
	return err
}

// pastMoments are the windows of a timeline from the store, by their start in Unix ns.
type pastMoments struct {
	question query.Question
	names    *names
	gaps     gaps
	at       map[int64]*model.Moment
}

func (t *pastMoments) moment(start int64) *model.Moment {
	m := t.at[start]
	if m == nil {
		begin := time.Unix(0, start).UTC()
		m = &model.Moment{Start: begin, Completeness: t.gaps.covered(begin, begin.Add(t.question.Step)), Locations: []model.Location{}}
		t.at[start] = m
	}
	return m
}

func (t *pastMoments) addCells(ctx context.Context, r query.Reader, f *filter) error {
	rows, err := r.CellWindows(ctx, t.question)
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
		if !pastTakes(f, r) {
			continue
		}
		m := t.moment(r.Window)
		count(m, r.Observations, r.Heavy, aggregate.StateOf(r.Observations, r.Trimmed, r.Heavy))
		if f.oneCell() {
			cell := t.names.pastCell(t.question.Signal, r)
			m.Cell = &cell
		}
	}
	return nil
}

// addLocations adds the locations of each window with the most heavy observations.
func (t *pastMoments) addLocations(ctx context.Context, r query.Reader, top int) error {
	rows, err := r.LocationWindows(ctx, t.question)
	if err != nil {
		return err
	}
	slices.SortFunc(rows, func(x, y query.LocationCount) int {
		return cmp.Or(cmp.Compare(y.Heavy, x.Heavy), cmp.Compare(x.Location, y.Location))
	})
	for _, r := range rows {
		m := t.moment(r.Window)
		if r.Heavy == 0 || r.Location == aggregate.NoLocation || len(m.Locations) >= top {
			continue
		}
		l := t.names.named(r.Location)
		l.Observations, l.Heavy = r.Observations, r.Heavy
		m.Locations = append(m.Locations, l)
	}
	return nil
}
