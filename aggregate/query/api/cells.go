package api

import (
	"context"
	"encoding/base64"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/csigscope/csigscope/aggregate/query/model"
	"github.com/csigscope/csigscope/aggregate/table"
)

type cellsInput struct {
	SignalInput
	RangeInput
	WaitInput
	FilterInput
	PageInput
	Limit int `query:"limit" default:"5000" minimum:"1" maximum:"20000" doc:"cells of a page" example:"1000"`
}

// question is what has to stay the same from page to page.
func (in *cellsInput) question() uint64 {
	return questionHash(in.SignalInput, in.RangeInput, in.FilterInput)
}

func (a *API) cells(ctx context.Context, s *table.State, in *cellsInput) (*answer, error) {
	if s == nil {
		return a.cellsPast(ctx, in)
	}
	var err error
	offset := 0
	if in.Cursor != "" {
		if s, offset, err = pageAt(s, in); err != nil {
			return nil, err
		}
	}
	page, err := a.cellsShared(ctx, s, in, offset)
	if err != nil {
		return nil, err
	}
	if in.Cursor == "" {
		type first struct {
			question string
			limit    int
		}
		again := *in
		a.lately.note(first{in.text(), in.Limit}, a.Now(), func(ctx context.Context, s *table.State) error {
			page, err := a.cellsShared(ctx, s, &again, 0)
			if err == nil {
				_, err = page.json()
			}
			return err
		})
	}
	return &answer{*page, s}, nil
}

// text is the question without its page, the same for the same questions alone.
func (in *cellsInput) text() string {
	return fmt.Sprintf("%#v %#v %#v", in.SignalInput, in.RangeInput, in.FilterInput)
}

// cellsShared is cellsPage, made once for all who ask the same.
func (a *API) cellsShared(ctx context.Context, s *table.State, in *cellsInput, offset int) (*content, error) {
	k, err := in.key(in.Windows, s.Signals())
	if err != nil {
		return nil, err
	}
	n, err := a.names.get(ctx)
	if err != nil {
		return nil, err
	}
	type asked struct {
		question      string
		revision      uint64
		names         uint64
		offset, limit int
	}
	return once(a.made, asked{in.text(), s.Revision, n.version, offset, in.Limit}, func() (*content, int, error) {
		c, err := a.cellsPage(ctx, s, k, in, offset)
		if err != nil {
			return nil, 0, err
		}
		return c, c.size(), nil
	})
}

// cellsPage is what memory says of the cells from the offset on.
func (a *API) cellsPage(ctx context.Context, s *table.State, k viewKey, in *cellsInput, offset int) (*content, error) {
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
	return &content{value: page, view: v, chosen: chosen, shared: &lazily[[]byte]{}}, nil
}

// fill puts cells in place of the null that an object ends with.
func (v *view) fill(head []byte, chosen []int) []byte {
	texts := v.texts()
	size := len(head)
	for _, i := range chosen {
		size += len(texts[i]) + 1
	}
	out := append(make([]byte, 0, size), head[:len(head)-len("null}")]...)
	out = append(out, '[')
	for n, i := range chosen {
		if n > 0 {
			out = append(out, ',')
		}
		out = append(out, texts[i]...)
	}
	return append(out, "]}"...)
}

// cellsPast answers from the store.
func (a *API) cellsPast(ctx context.Context, in *cellsInput) (*answer, error) {
	at, err := pinAt(in.Cursor, in.question())
	if err != nil {
		return nil, err
	}
	q, err := a.question(ctx, &in.SignalInput, &in.TimesInput)
	if err != nil {
		return nil, err
	}
	at.from, at.to = q.From.UnixNano(), q.To.UnixNano()
	p, err := paged(a, at, in.Limit, math.MaxInt, func() ([]model.Cell, error) { return a.pastCells(ctx, q, &in.FilterInput) })
	if err != nil {
		return nil, err
	}
	out := &model.Cells{About: pastAbout(q), Total: p.total, Next: p.next, Values: p.rows}
	out.AsOf = p.asOf
	return of(nil, out)
}

// cursor names the next page: the revision, the cells before it, and the question.
func cursor(s *table.State, offset int, question uint64) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%s.%d.%x", token(s), offset, question))
}

// pageAt is the state that a cursor is pinned to.
func pageAt(s *table.State, in *cellsInput) (*table.State, int, error) {
	if isPast(in.Cursor) {
		return nil, 0, wrong("cursor", in.Cursor, "is of history: give the same from and to")
	}
	fail := func(why string) (*table.State, int, error) {
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
