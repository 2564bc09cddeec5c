package api

import (
	"context"
	"encoding/base64"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query/wire"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/decode/csig"
)

func (a *API) cells(ctx context.Context, s *table.State, in *wire.CellsRequest) (*answer, error) {
	if s == nil {
		return a.cellsPast(ctx, in)
	}
	var err error
	offset := 0
	if in.GetCursor() != "" {
		if s, offset, err = pageAt(s, in); err != nil {
			return nil, err
		}
	}
	k, err := stateKey(s, in, int(in.GetWindows()))
	if err != nil {
		return nil, err
	}
	page, err := a.cellsShared(ctx, s, k, in, offset)
	if err != nil {
		return nil, err
	}
	if in.GetCursor() == "" && !isFine(s) {
		type first struct {
			question string
			limit    uint32
		}
		a.lately.note(first{questionOf(in), in.GetLimit()}, a.Now(), func(ctx context.Context, s *table.State) error {
			page, err := a.cellsShared(ctx, s, k, in, 0)
			if err == nil {
				_, _, err = page.json(a.schema)
			}
			return err
		})
	}
	// The page is shared, its age is not.
	value, _ := page.value.(*wire.CellsResponse)
	answered := *page
	about := a.about(s, k)
	about.NotJudgedHint = value.GetAbout().GetNotJudgedHint()
	answered.value = &wire.CellsResponse{About: about, Total: value.GetTotal(), NextCursor: value.GetNextCursor()}
	return &answer{answered, s}, nil
}

// cellsShared is cellsPage, computed once for all equal requests.
func (a *API) cellsShared(ctx context.Context, s *table.State, k viewKey, in *wire.CellsRequest, offset int) (*content, error) {
	n, err := a.names.get(ctx)
	if err != nil {
		return nil, err
	}
	type asked struct {
		question      string
		revision      uint64
		durable       bool
		names         uint64
		offset, limit int
	}
	durable := s.Durable(s.Last(k.windows))
	return getOrCompute(a.cache, asked{questionOf(in), s.Revision, durable, n.version, offset, int(in.GetLimit())}, func() (*content, int, error) {
		c, err := a.cellsPage(ctx, s, k, in, offset)
		if err != nil {
			return nil, 0, err
		}
		return c, c.size(), nil
	})
}

// cellsPage returns the cells in memory from the offset on.
func (a *API) cellsPage(ctx context.Context, s *table.State, k viewKey, in *wire.CellsRequest, offset int) (*content, error) {
	v, err := a.view(ctx, s, k)
	if err != nil {
		return nil, err
	}
	f, err := v.names.filter(in, k.signal)
	if err != nil {
		return nil, err
	}
	chosen := v.chosen(&f)
	page := &wire.CellsResponse{About: a.about(s, k), Total: uint64(len(chosen))}
	chosen = chosen[min(offset, len(chosen)):]
	if len(chosen) > int(in.GetLimit()) {
		chosen = chosen[:in.GetLimit()]
		page.NextCursor = cursor(s, offset+int(in.GetLimit()), questionHash(in))
	}
	v.explainUnjudged(page.About, k.signal, chosen)
	return &content{value: page, view: v, chosen: chosen, shared: &lazily[[]byte]{}}, nil
}

// noCells is the end of an object with an empty list of cells.
const noCells = "[]}"

// list formats cells as the list at the end of an object.
func (v *view) list(chosen []int) []byte {
	texts := v.texts()
	size := len(noCells)
	for _, i := range chosen {
		size += len(texts[i]) + 1
	}
	out := append(make([]byte, 0, size), '[')
	for n, i := range chosen {
		if n > 0 {
			out = append(out, ',')
		}
		out = append(out, texts[i]...)
	}
	return append(out, "]}"...)
}

// cellsPast answers from the store.
func (a *API) cellsPast(ctx context.Context, in *wire.CellsRequest) (*answer, error) {
	at, err := pinAt(in.GetCursor(), questionHash(in))
	if err != nil {
		return nil, err
	}
	q, err := a.question(ctx, in, in)
	if err != nil {
		return nil, err
	}
	at.from, at.to, q.last = q.From.UnixNano(), q.To.UnixNano(), at.keep(q.last)
	p, err := paged(a, at, int(in.GetLimit()), math.MaxInt, func() ([]*wire.Cell, bool, error) {
		cells, err := a.pastCells(ctx, q.Question, in)
		return cells, false, err
	})
	if err != nil {
		return nil, err
	}
	out := &wire.CellsResponse{About: a.pastAbout(q, p.asOf.AsTime()), Total: uint64(p.total), NextCursor: p.next, Cells: p.rows}
	explainUnjudged(out.About, q.Signal, out.Cells)
	return of(nil, out)
}

// cursor encodes the position of the next page: the revision, the cells before it, and the
// question.
func cursor(s *table.State, offset int, question uint64) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%s.%d.%x", token(s), offset, question))
}

// pageAt returns the state that a cursor is pinned to.
func pageAt(s *table.State, in *wire.CellsRequest) (*table.State, int, error) {
	if isPast(in.GetCursor()) {
		return nil, 0, wrong("cursor", in.GetCursor(), "belongs to an answer of history: give its from and to")
	}
	fail := func(why string) (*table.State, int, error) {
		return nil, 0, wrong("cursor", in.GetCursor(), "%s: leave it out to start over", why)
	}
	text, err := base64.RawURLEncoding.DecodeString(in.GetCursor())
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
	if parts[2] != strconv.FormatUint(questionHash(in), 16) {
		return fail("belongs to a question with other parameters")
	}
	at, ok := s.At(revision)
	if !ok || epoch != s.Epoch {
		return nil, 0, &refused{status: http.StatusGone, detail: "cursor: its revision is no longer in memory: leave it out to start over"}
	}
	return at, offset, nil
}

// maxSide bounds the rows of a matrix.
const maxSide = 512

func (a *API) matrix(ctx context.Context, s *table.State, in *wire.MatrixRequest) (*answer, error) {
	if s == nil {
		q, err := a.question(ctx, in, in)
		if err != nil {
			return nil, err
		}
		cells, err := a.pastCells(ctx, q.Question, in)
		if err != nil {
			return nil, err
		}
		n, err := a.history().get(ctx)
		if err != nil {
			return nil, err
		}
		return n.matrix(nil, a.pastAbout(q, a.Now()), q.Signal, cells)
	}
	v, k, err := a.asked(ctx, s, in, int(in.GetWindows()))
	if err != nil {
		return nil, err
	}
	f, err := v.names.filter(in, k.signal)
	if err != nil {
		return nil, err
	}
	return v.names.matrix(s, a.about(s, k), k.signal, v.messages(v.chosen(&f)))
}

// matrix arranges cells in rows and columns.
func (n *names) matrix(s *table.State, about *wire.About, signal csig.Signal, cells []*wire.Cell) (*answer, error) {
	explainUnjudged(about, signal, cells)
	axis := n.axis(cells)
	side := len(axis)
	if side > maxSide {
		return nil, wrong("src", "", "the matrix has %d groups, at most %d: name src and dst, or ask for cells", side, maxSide)
	}
	m := &wire.MatrixResponse{
		About: about, Groups: axis, Mean: slices.Repeat([]float64{math.NaN()}, side*side), HeavyRatio: slices.Repeat([]float64{math.NaN()}, side*side),
		Mode: make([]string, side*side), State: slices.Repeat([]wire.State{wire.State_STATE_NO_DATA}, side*side),
	}
	index := make(map[string]int, side)
	for i, name := range axis {
		index[name] = i
	}
	for _, c := range cells {
		at := index[c.Src]*side + index[c.Dst]
		m.State[at], m.Mode[at] = c.State, c.Mode.GetLocation()
		if c.HeavyRatio != nil {
			m.HeavyRatio[at] = *c.HeavyRatio
		}
		if mean, _, ok := c.Mean.Number(); ok {
			m.Mean[at] = mean
		}
	}
	return of(s, m)
}

// axis are the groups of cells in the catalog's order.
func (n *names) axis(cells []*wire.Cell) []string {
	missing := make(map[string]bool)
	for i := range cells {
		missing[cells[i].Src], missing[cells[i].Dst] = true, true
	}
	axis := make([]string, 0, len(missing))
	add := func(name string) {
		if missing[name] {
			axis = append(axis, name)
			delete(missing, name)
		}
	}
	for _, g := range n.groups {
		add(g.Name)
	}
	for i := range cells {
		add(cells[i].Src)
		add(cells[i].Dst)
	}
	return axis
}

func (a *API) locations(ctx context.Context, s *table.State, in *wire.LocationsRequest) (*answer, error) {
	on, err := a.scope(ctx, s, in)
	if err != nil {
		return nil, err
	}
	rows, err := on.TopLocations(ctx, on.Question, maxLocations)
	if err != nil {
		return nil, err
	}
	if s == nil {
		if on.names, err = a.history().knowing(ctx, func(n *names) bool {
			return !slices.ContainsFunc(rows, func(l aggregate.LocationStats) bool { return !n.knowLocation(l.Location) })
		}); err != nil {
			return nil, err
		}
	}
	rows = slices.DeleteFunc(rows, func(l aggregate.LocationStats) bool { return l.Location == aggregate.NoLocation })
	out := &wire.LocationsResponse{About: on.about, Total: uint64(len(rows))}
	for i := range rows[:min(int(in.GetTop()), len(rows))] {
		l, p := on.names.location(&rows[i], on.Signal), on.names.wirePlace(rows[i].Location)
		l.Candidates, l.CandidateCount = p.Candidates, p.CandidateCount
		out.Locations = append(out.Locations, l)
	}
	return of(s, out)
}

func (n *names) location(l *aggregate.LocationStats, s csig.Signal) *wire.Location {
	out := n.named(l.Location)
	out.Observations, out.Heavy, out.Cells = l.Observations, l.Heavy, uint64(l.Cells)
	out.HeavyMean = measure(s, sixDigits(s.Unit().FromStoredMean(l.HeavyMean())))
	return out
}

// named is a location without its counts.
func (n *names) named(id aggregate.LocationID) *wire.Location {
	p := n.wirePlace(id)
	return &wire.Location{Location: p.Location, Kind: p.Kind, Device: p.Device, Stage: p.Stage, CapacityBps: p.CapacityBps}
}

// endsOf are the source and destination of a path.
func endsOf(in *wire.PathRequest) *wire.MatrixRequest {
	return &wire.MatrixRequest{Src: []string{in.GetSrc()}, Dst: []string{in.GetDst()}}
}

func (a *API) path(ctx context.Context, s *table.State, in *wire.PathRequest) (*answer, error) {
	if s == nil {
		return a.pastPath(ctx, in)
	}
	v, k, err := a.asked(ctx, s, in, int(in.GetWindows()))
	if err != nil {
		return nil, err
	}
	f, err := v.names.filter(endsOf(in), k.signal)
	if err != nil {
		return nil, err
	}
	return a.pathOf(ctx, s, a.about(s, k), v.names, k.signal, v.messages(v.chosen(&f)), in)
}

// pastPath answers from the store.
func (a *API) pastPath(ctx context.Context, in *wire.PathRequest) (*answer, error) {
	q, err := a.question(ctx, in, in)
	if err != nil {
		return nil, err
	}
	cells, err := a.pastCells(ctx, q.Question, endsOf(in))
	if err != nil {
		return nil, err
	}
	n, err := a.history().get(ctx)
	if err != nil {
		return nil, err
	}
	missing, err := a.Reader.Missing(ctx, q.From, q.To, q.length)
	if err != nil {
		return nil, err
	}
	about := a.pastAbout(q, a.Now())
	about.CompletenessRatio = gaps(missing).covered(q.From, q.To)
	return a.pathOf(ctx, nil, about, n, q.Signal, cells, in)
}

// pathOf is the answer for a path that matches exactly one cell.
func (a *API) pathOf(ctx context.Context, s *table.State, about *wire.About, n *names, signal csig.Signal, cells []*wire.Cell, in *wire.PathRequest) (*answer, error) {
	switch {
	case len(cells) == 0 && s == nil:
		return nil, &refused{status: http.StatusNotFound, detail: fmt.Sprintf("nothing was observed from %q to %q in that time: take a longer range", in.GetSrc(), in.GetDst())}
	case len(cells) == 0:
		return nil, &refused{status: http.StatusNotFound, detail: fmt.Sprintf("nothing was observed from %q to %q in the last %d windows: raise windows, or ask for history (from, to)", in.GetSrc(), in.GetDst(), in.GetWindows())}
	case len(cells) > 1:
		parameter, group := "dst", in.GetDst()
		if slices.ContainsFunc(cells, func(c *wire.Cell) bool { return c.GetSrc() != cells[0].GetSrc() }) {
			parameter, group = "src", in.GetSrc()
		}
		return nil, wrong(parameter, group, "stands for several groups, with %d cells: name one of them, or ask for cells", len(cells))
	}
	explainUnjudged(about, signal, cells)
	p := &wire.PathResponse{About: about, Cell: cells[0]}
	if signal.Aggregation() == csig.AggregateMin {
		p.Room = p.Cell.Mean
	}
	if p.Cell.Mode != nil {
		p.Limit = n.locationNamed(p.Cell.Mode.Location)
	}
	if err := a.routes(ctx, s, in, p); err != nil {
		return nil, err
	}
	return of(s, p)
}

// locationNamed is the location with a name.
func (n *names) locationNamed(name string) *wire.Place {
	index := &wire.Place{Location: name, Kind: wire.LocationKind_LOCATION_KIND_UNKNOWN}
	if ids := n.locationIDs[name]; len(ids) > 0 {
		index = n.wirePlace(slices.Min(ids))
	}
	return index
}
