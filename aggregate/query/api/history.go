package api

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/wire"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/decode/csig"
)

// pastQuestion is a question to the store about one signal.
type pastQuestion struct {
	query.Question
	last   time.Time     // end of the last stored window
	length time.Duration // 1 s, or 1 min if the first windows of 1 s are no longer stored; From and To are multiples
}

func (a *API) question(ctx context.Context, in subject, when times) (q pastQuestion, err error) {
	if q.From, q.To, _, err = historyOf(when); err != nil {
		return q, err
	}
	extent, err := a.stored(ctx)
	if err != nil {
		return q, err
	}
	if q.length = time.Second; extent.OnlyMinutes(q.From) {
		q.length = time.Minute
		q.From, q.To = q.From.Truncate(time.Minute), q.To.Add(time.Minute-1).Truncate(time.Minute)
	}
	q.Step = q.To.Sub(q.From)
	q.Resolution = extent.OnlyFine()
	q.last = extent.Last
	k, err := keyOf(in, 1, extent.Signals)
	if err == nil && !k.signal.HasValue() { // perhaps a configured one, before the extent's last day
		inRange, err := a.Reader.Signals(ctx, q.Question)
		if err != nil {
			return q, err
		}
		if k, err = keyOf(in, 1, inRange); err != nil {
			return q, err
		}
	}
	q.Signal, q.Level = k.signal, k.level
	return q, err
}

// scope is the data behind an answer: the last windows of a state or, without one, the range of
// the store.
type scope struct {
	query.Question
	query.Analytics
	names   *names
	about   *wire.About
	windows []*table.Window // of the state
	length  time.Duration   // of history, see pastQuestion
}

func (a *API) scope(ctx context.Context, s *table.State, in ranged) (on scope, err error) {
	if s == nil {
		on.Analytics = a.Reader
		q, err := a.question(ctx, in, in)
		if err != nil {
			return on, err
		}
		on.Question, on.about, on.length = q.Question, a.pastAbout(q, a.Now()), q.length
		on.names, err = a.history().get(ctx)
		return on, err
	}
	k, err := stateKey(s, in, int(in.GetWindows()))
	if err != nil {
		return on, err
	}
	on.windows = s.Last(k.windows)
	on.about = a.aboutWindows(s, k, on.windows)
	on.Question = query.Question{Signal: k.signal, Level: k.level, Step: s.Resolution}
	if n := len(on.windows); n > 0 {
		on.From, on.To = on.windows[0].Start, on.windows[n-1].End
	}
	if on.names, err = a.names.get(ctx); err != nil {
		return on, err
	}
	on.Analytics = query.FromWindows(on.windows, on.names.at, s.Old(on.windows))
	return on, nil
}

// stored returns the extent of the store.
func (a *API) stored(ctx context.Context) (query.Extent, error) {
	if a.Reader == nil {
		return query.Extent{}, &refused{status: http.StatusNotFound, detail: "there is no history here: leave out from and to for the windows in memory"}
	}
	return a.Reader.Extent(ctx)
}

// history returns the names of stored ids.
func (a *API) history() *namesCache {
	if a.Names == a.Reader {
		return &a.names
	}
	return &a.past
}

// resolve calls f with the names of history. If f fails, resolve calls it once more with freshly
// read names: a name may be new.
func (a *API) resolve(ctx context.Context, f func(*names) error) (*names, error) {
	return resolve(ctx, a.history(), f)
}

func resolve(ctx context.Context, among *namesCache, f func(*names) error) (*names, error) {
	n, err := among.get(ctx)
	if err != nil {
		return nil, err
	}
	if err = f(n); err == nil {
		return n, nil
	}
	later, again := among.noOlderThan(ctx, namesAgain)
	if again != nil || later == n {
		return nil, err
	}
	return later, f(later)
}

// pastFilter returns the names of history and the resolved filter, and narrows the question to
// it.
func (a *API) pastFilter(ctx context.Context, q *query.Question, in proto.Message) (n *names, f filter, err error) {
	n, err = a.resolve(ctx, func(n *names) (err error) {
		f, err = n.filter(in, q.Signal)
		return err
	})
	if err == nil {
		f.narrow(q)
	}
	return n, f, err
}

// pastCells returns the cells of a range that the filter accepts, by source and destination.
func (a *API) pastCells(ctx context.Context, q query.Question, in proto.Message) ([]*wire.Cell, error) {
	_, f, err := a.pastFilter(ctx, &q, in)
	if err != nil {
		return nil, err
	}
	rows, err := a.Reader.Cells(ctx, q)
	if err != nil {
		return nil, err
	}
	n, err := a.history().knowing(ctx, func(n *names) bool { return n.know(rows) })
	if err != nil {
		return nil, err
	}
	var list []*wire.Cell
	for i := range rows {
		if f.takes(&rows[i]) {
			list = append(list, n.pastCell(&rows[i]))
		}
	}
	slices.SortFunc(list, func(x, y *wire.Cell) int { return cmp.Or(cmp.Compare(x.Src, y.Src), cmp.Compare(x.Dst, y.Dst)) })
	return list, nil
}

// narrow restricts the question to one cell, or one row of cells, if the filter accepts no
// others.
func (f *filter) narrow(q *query.Question) {
	if len(f.src) == 1 {
		q.Src = &f.src[0]
	}
	if len(f.dst) == 1 {
		q.Dst = &f.dst[0]
	}
}

// oneCell reports whether the filter names one source and one destination.
func (f *filter) oneCell() bool { return len(f.src) == 1 && len(f.dst) == 1 }

// pastAbout describes an answer of the store that was given at asOf.
func (a *API) pastAbout(q pastQuestion, asOf time.Time) *wire.About {
	newest := q.To
	if q.last.Before(newest) {
		newest = q.last
	}
	about := &wire.About{
		AsOf: timestamppb.New(asOf), Source: "store", Signal: csig.SignalNames([]csig.Signal{q.Signal})[0], Unit: q.Signal.Unit().String(),
		Level: q.Level.String(), From: timestamppb.New(q.From), To: timestamppb.New(q.To), Durable: true, Final: true,
		OnsetRatio: a.Thresholds.Onset, ClearRatio: a.Thresholds.Clear,
	}
	if !newest.IsZero() {
		about.AgeS = age(newest, asOf)
	}
	return about
}

// producersOf identifies the producers of an answer of the store, in Unix ns.
type producersOf struct{ from, to, asOf int64 }

// countProducers adds the number of producers in its range to an answer of the store, if it has a
// range. They are counted once for all pages.
func (a *API) countProducers(ctx context.Context, answer proto.Message) error {
	ranged, ok := answer.(interface{ GetAbout() *wire.About })
	if !ok {
		return nil
	}
	about := ranged.GetAbout()
	from, to := about.GetFrom().AsTime(), about.GetTo().AsTime()
	n, err := getOrCompute(a.cache, producersOf{from.UnixNano(), to.UnixNano(), about.GetAsOf().AsTime().UnixNano()}, func() (query.ProducerCounts, int, error) {
		n, err := a.Reader.CountProducers(ctx, from, to)
		return n, 0, err
	})
	about.ExpectedProducers, about.PresentProducers = uint32(n.Expected), uint32(n.Present)
	return err
}

// CellsOf converts cells to the form of answers of history, in the same order.
func CellsOf(cells []aggregate.CellStats, groups []fabric.Group, locations []fabric.Location) []*wire.Cell {
	n := newNames(0, groups, locations)
	list := make([]*wire.Cell, len(cells))
	for i := range cells {
		list[i] = n.pastCell(&cells[i])
	}
	return list
}

// pastCell is a cell of history: values have all their digits.
func (n *names) pastCell(r *aggregate.CellStats) *wire.Cell {
	c := &wire.Cell{
		Src: n.groupName(r.Src), Dst: n.groupName(r.Dst), Kind: wire.Kind(r.Kind), State: stateOf(r.State), Observations: r.Observations,
		Since: sinceOf(&r.Verdict), SustainedS: seconds(r.Lasted), CongestedRatio: share(r.CongestedWindows, r.JudgedWindows),
		MeanError: measure(r.Signal, r.MeanError()), Unjudged: r.Unjudged,
		Mean: measure(r.Signal, r.MeanValue()), Min: measure(r.Signal, r.MinValue()), Max: measure(r.Signal, r.MaxValue()), Trend: measure(r.Signal, r.TrendValue()),
		Samples: r.Samples, Untouched: r.Untouched, Trimmed: r.Trimmed, Heavy: r.Heavy, HeavyRatio: ratioOf(r.Heavy, r.Observations),
	}
	if r.ModeCount > 0 {
		c.Mode = &wire.Bottleneck{Location: n.locationName(r.Mode), Heavy: r.ModeCount, ShareRatio: share(r.ModeCount, r.Heavy), Evidence: slices.Collect(r.ModeEvidence.Words)}
	}
	if r.RunnerUpCount > 0 {
		c.RunnerUp = &wire.Bottleneck{Location: n.locationName(r.RunnerUp), Heavy: r.RunnerUpCount, ShareRatio: share(r.RunnerUpCount, r.Heavy), Evidence: slices.Collect(r.RunnerUpEvidence.Words)}
	}
	n.setCandidates(c, r)
	return c
}

// gaps are the known gaps of a range.
type gaps []query.Span

// covered is the share of a range outside of known gaps.
func (g gaps) covered(from, to time.Time) float64 {
	missing := time.Duration(0)
	for _, s := range g {
		if s.From.Before(from) {
			s.From = from
		}
		if s.To.After(to) {
			s.To = to
		}
		missing += max(s.To.Sub(s.From), 0)
	}
	return 1 - float64(missing)/float64(to.Sub(from))
}

// pin is the common part of all pages of one answer of the store, and the position of the next
// page. The zero value is the first page of a new answer.
type pin struct {
	from, to, asOf  int64 // Unix ns
	last            int64 // end of the last stored window, Unix ns
	offset          int
	question, print uint64 // hashes of the parameters and of all rows
}

func (p *pin) cursor() string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "h.%d.%d.%d.%d.%d.%x.%x", p.from, p.to, p.asOf, p.last, p.offset, p.question, p.print))
}

// seen reports whether there was a page before.
func (p *pin) seen() bool { return p.asOf != 0 }

// keep returns the end of the last stored window as of the first page, by which all pages have one age.
func (p *pin) keep(last time.Time) time.Time {
	if p.seen() {
		return time.Unix(0, p.last)
	}
	p.last = last.UnixNano()
	return last
}

// pinAt parses a cursor of the question; an empty one is the first page.
func pinAt(cursor string, question uint64) (pin, error) {
	p := pin{question: question}
	if cursor == "" {
		return p, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil {
		_, err = fmt.Sscanf(string(text), "h.%d.%d.%d.%d.%d.%x.%x", &p.from, &p.to, &p.asOf, &p.last, &p.offset, &p.question, &p.print)
	}
	switch {
	case err != nil || p.cursor() != cursor || p.offset < 0 || p.asOf <= 0:
		return p, wrong("cursor", cursor, "is not the next_cursor of a page of history: leave it out to start over")
	case p.question != question:
		return p, wrong("cursor", cursor, "belongs to a question with other parameters: leave it out to start over")
	}
	return p, nil
}

// page is a part of an answer of the store.
type page[T proto.Message] struct {
	rows      []T
	total     int
	truncated bool // total is limited: there are more rows
	asOf      *timestamppb.Timestamp
	next      string
}

// keptRows are rows of an answer, for its following pages.
type keptRows[T proto.Message] struct {
	rows      []T // from number first on
	first     int
	total     int
	truncated bool
}

// paged returns the page that begins at a pin. The rows are queried once, and up to maxKept of them are kept
// a while for the following pages; for later ones they are queried again, and must be the same. Rows beyond
// most are left out, and truncated is set, as it is if ask reports that there are more rows.
func paged[T proto.Message](a *API, at pin, limit, most int, ask func() (rows []T, more bool, err error)) (page[T], error) {
	all, known := a.kept.get(at, a.Now()).(keptRows[T])
	bounds := func() (begin, end int) {
		begin = min(at.offset, all.total) // cursors can be forged
		return begin, min(begin+limit, all.total)
	}
	begin, end := bounds()
	if known = known && begin >= all.first && end <= all.first+len(all.rows); !known {
		rows, more, err := ask()
		if err != nil {
			return page[T]{}, err
		}
		all = keptRows[T]{rows: rows, total: min(len(rows), most), truncated: more || len(rows) > most}
		begin, end = bounds()
		switch {
		case !at.seen():
			at.asOf = a.Now().UnixNano()
			if end < all.total {
				at.print = fingerprint(rows)
			}
		case fingerprint(rows) != at.print:
			return page[T]{}, &refused{status: http.StatusGone, detail: "cursor: stored rows have changed since the page before: leave it out to start over"}
		}
	}
	p := page[T]{rows: all.rows[begin-all.first : end-all.first], total: all.total, truncated: all.truncated, asOf: timestamppb.New(time.Unix(0, at.asOf))}
	if end == all.total {
		return p, nil
	}
	if !known {
		if len(all.rows) > maxKept {
			all.first, all.rows = begin, slices.Clone(all.rows[begin:min(begin+maxKept, len(all.rows))]) // the others may go
		}
		a.kept.put(at, all, len(all.rows), a.Now())
	}
	at.offset = end
	p.next = at.cursor()
	return p, nil
}

// fingerprint is a hash of rows.
func fingerprint[T proto.Message](rows []T) uint64 {
	h := fnv.New64a()
	write := protodelim.MarshalOptions{MarshalOptions: proto.MarshalOptions{Deterministic: true}}
	for _, r := range rows {
		_, _ = write.MarshalTo(h, r) // rows that cannot be encoded fail as an answer too
	}
	return h.Sum64()
}

const (
	// maxKept bounds the rows kept for further pages, each of about 500 bytes.
	maxKept = 1 << 16
	// keptFor is how long unused rows are kept.
	keptFor = 2 * time.Minute
)

// keptAnswers are the rows of answers of the store that have further pages.
type keptAnswers struct {
	mu   sync.Mutex
	list []keptAnswer // the most recently used at the end
}

type keptAnswer struct {
	pin  pin // without an offset
	rows any
	n    int
	used time.Time
}

// get returns the rows of a pin, nil if they are no longer kept.
func (k *keptAnswers) get(p pin, now time.Time) any {
	p.offset = 0
	k.mu.Lock()
	defer k.mu.Unlock()
	k.list = slices.DeleteFunc(k.list, func(a keptAnswer) bool { return now.Sub(a.used) > keptFor })
	i := slices.IndexFunc(k.list, func(a keptAnswer) bool { return a.pin == p })
	if i < 0 {
		return nil
	}
	found := k.list[i]
	found.used = now
	k.list = append(slices.Delete(k.list, i, i+1), found)
	return found.rows
}

// put keeps at most maxKept rows of a pin instead of earlier ones of it, and drops the least recently used ones if
// needed.
func (k *keptAnswers) put(p pin, rows any, n int, now time.Time) {
	p.offset = 0
	k.mu.Lock()
	defer k.mu.Unlock()
	k.list = append(slices.DeleteFunc(k.list, func(a keptAnswer) bool { return a.pin == p }), keptAnswer{p, rows, n, now})
	total := 0
	for i, a := range slices.Backward(k.list) {
		if total += a.n; total > maxKept {
			k.list = slices.Delete(k.list, 0, i+1)
			return
		}
	}
}

// isPast reports whether a cursor belongs to an answer of the store.
func isPast(cursor string) bool {
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	return err == nil && strings.HasPrefix(string(text), "h.")
}
