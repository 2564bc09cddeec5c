package api

import (
	"context"
	"encoding/base64"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/model"
	"github.com/csigscope/csigscope/aggregate/recent"
	"github.com/csigscope/csigscope/decode/csig"
)

type cellsInput struct {
	SignalInput
	RangeInput
	WaitInput
	FilterInput
	Limit  int    `query:"limit" default:"5000" minimum:"1" maximum:"20000" doc:"cells of a page"`
	Cursor string `query:"cursor" maxLength:"200" doc:"next_cursor of the page before, with the same parameters"`
}

// question is what has to stay the same from page to page.
func (in *cellsInput) question() uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%+v %d %+v", in.SignalInput, in.Windows, in.FilterInput)
	return h.Sum64()
}

func (a *API) cells(ctx context.Context, s *recent.State, in *cellsInput) (*answer, error) {
	if s == nil {
		q, err := a.question(ctx, &in.SignalInput, &in.RangeInput)
		if err != nil {
			return nil, err
		}
		if in.Cursor != "" {
			return nil, wrong("cursor", in.Cursor, "history has no pages: take a shorter range, or a higher limit")
		}
		page, err := a.pastCells(ctx, q, &in.FilterInput)
		if err != nil {
			return nil, err
		}
		if page.Total > in.Limit {
			return nil, wrong("limit", in.Limit, "there are %d cells: raise it, or name src, dst or state", page.Total)
		}
		return of(nil, page)
	}
	var err error
	offset := 0
	if in.Cursor != "" {
		if s, offset, err = pageAt(s, in); err != nil {
			return nil, err
		}
	}
	k, err := in.key(in.Windows, s.Signals())
	if err != nil {
		return nil, err
	}
	a.used.note(k, a.Now())
	v, err := a.view(ctx, s, k)
	if err != nil {
		return nil, err
	}
	f, err := in.filter(v.names, k.signal)
	if err != nil {
		return nil, err
	}
	chosen := v.chosen(&f)
	page := &model.Cells{About: about(s, k), Total: len(chosen)}
	chosen = chosen[min(offset, len(chosen)):]
	if len(chosen) > in.Limit {
		chosen = chosen[:in.Limit]
		page.Next = cursor(s, offset+in.Limit, in.question())
	}
	return &answer{content{page, v, chosen}, s}, nil
}

// fill puts cells in place of the null that an object ends with.
func (v *view) fill(head []byte, chosen []int) []byte {
	size := len(head)
	for _, i := range chosen {
		size += len(v.text[i]) + 1
	}
	out := append(make([]byte, 0, size), head[:len(head)-len("null}")]...)
	out = append(out, '[')
	for n, i := range chosen {
		if n > 0 {
			out = append(out, ',')
		}
		out = append(out, v.text[i]...)
	}
	return append(out, "]}"...)
}

// cursor names the next page: the revision, the cells before it, and the question.
func cursor(s *recent.State, offset int, question uint64) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%s.%d.%x", token(s), offset, question))
}

// pageAt is the state that a cursor is pinned to.
func pageAt(s *recent.State, in *cellsInput) (*recent.State, int, error) {
	fail := func(why string) (*recent.State, int, error) {
		return nil, 0, wrong("cursor", in.Cursor, "%s: leave it out to begin anew", why)
	}
	text, err := base64.RawURLEncoding.DecodeString(in.Cursor)
	if err != nil {
		return fail("is not the next_cursor of a page")
	}
	parts := strings.Split(string(text), ".")
	if len(parts) != 3 {
		return fail("is not the next_cursor of a page")
	}
	epoch, revision, ok := parseToken(parts[0], s.Epoch)
	offset, err := strconv.Atoi(parts[1])
	if !ok || err != nil || offset < 0 {
		return fail("is not the next_cursor of a page")
	}
	if parts[2] != strconv.FormatUint(in.question(), 16) {
		return fail("is of a question with other parameters")
	}
	at, ok := s.At(revision)
	if !ok || epoch != s.Epoch {
		return nil, 0, huma.NewError(410, "cursor: its revision is not at hand any more: leave it out to begin anew")
	}
	return at, offset, nil
}

// pastCells answers from the store.
func (a *API) pastCells(ctx context.Context, q query.Question, in *FilterInput) (*model.Cells, error) {
	n, err := a.history(ctx)
	if err != nil {
		return nil, err
	}
	f, err := in.filter(n, q.Signal)
	if err != nil {
		return nil, err
	}
	rows, err := a.Reader.Cells(ctx, q)
	if err != nil {
		return nil, err
	}
	page := &model.Cells{About: pastAbout(q), Values: []model.Cell{}}
	for i := range rows {
		if pastTakes(&f, &rows[i]) {
			page.Values = append(page.Values, n.pastCell(q.Signal, &rows[i]))
		}
	}
	page.Total = len(page.Values)
	slices.SortFunc(page.Values, func(x, y model.Cell) int {
		return strings.Compare(x.Src+"\x00"+x.Dst, y.Src+"\x00"+y.Dst)
	})
	return page, nil
}

// history are the names of what is stored.
func (a *API) history(ctx context.Context) (*names, error) {
	if a.Names == a.Reader {
		return a.names.get(ctx)
	}
	groups, err := a.Reader.Groups(ctx)
	if err != nil {
		return nil, fmt.Errorf("read groups: %w", err)
	}
	locations, err := a.Reader.Locations(ctx)
	if err != nil {
		return nil, fmt.Errorf("read locations: %w", err)
	}
	return newNames(0, groups, locations), nil
}

func pastAbout(q query.Question) model.About {
	return model.About{
		Source: "store", Signal: csig.SignalNames([]csig.Signal{q.Signal})[0], Unit: q.Signal.Unit().String(),
		Level: q.Level.String(), From: q.From, To: q.To,
	}
}

func pastTakes(f *filter, r *query.CellRow) bool {
	c := aggregate.CellStats{
		Src: r.Src, Dst: r.Dst, Observations: r.Observations, Heavy: r.Heavy, Mode: r.Mode, ModeCount: r.ModeCount,
		State: aggregate.StateOf(r.Observations, r.Trimmed, r.Heavy),
	}
	rest := *f
	rest.minRoom, rest.maxRoom = optional[float64]{}, optional[float64]{}
	// NaN, of a cell without a value, is in no bound.
	return rest.takes(&c) && (!f.minRoom.set || r.Mean >= f.minRoom.value) && (!f.maxRoom.set || r.Mean <= f.maxRoom.value)
}

func (n *names) pastCell(s csig.Signal, r *query.CellRow) model.Cell {
	c := model.Cell{
		Src: n.groupName(r.Src), Dst: n.groupName(r.Dst), Kind: r.Kind.String(),
		State: aggregate.StateOf(r.Observations, r.Trimmed, r.Heavy).String(), Observations: r.Observations,
		Mean: measure(s, r.Mean), Min: measure(s, r.Min), Max: measure(s, r.Max),
		Untouched: r.Untouched, Trimmed: r.Trimmed, Heavy: r.Heavy, HeavyRatio: share(r.Heavy, r.Observations),
	}
	if r.ModeCount > 0 {
		c.Mode = &model.Bottleneck{Location: n.locationName(r.Mode), Heavy: r.ModeCount, ShareRatio: share(r.ModeCount, r.Heavy)}
	}
	if r.RunnerUpCount > 0 {
		c.RunnerUp = &model.Bottleneck{Location: n.locationName(r.RunnerUp), Heavy: r.RunnerUpCount, ShareRatio: share(r.RunnerUpCount, r.Heavy)}
	}
	return c
}
