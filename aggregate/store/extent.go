package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode/csig"
)

// Extent is the range of stored windows. It is empty when First equals Last.
type Extent struct {
	First, Last time.Time       // start of the first window, end of the last one
	Seconds     time.Time       // start of the first window of 1 s; Last if there are only longer ones
	Resolutions []time.Duration // ascending; those below 1 s are of the last 10 min

	// Signals, Observations and Heavy cover the last 24 hours before Last, tags and reflections
	// together.
	Signals             []csig.Signal // ascending
	Observations, Heavy uint64
}

// Empty reports whether nothing is stored.
func (e Extent) Empty() bool { return !e.First.Before(e.Last) || len(e.Signals) == 0 }

// OnlyMinutes reports whether a range begins where the store has windows of 1 min, and those of 1 s are no
// longer stored.
func (e Extent) OnlyMinutes(from time.Time) bool {
	return from.Before(e.Seconds) && e.First.Before(e.Seconds)
}

// OnlyFine returns the longest resolution if it is below 1 s, else 0. A replay that was interrupted early has stored
// fine windows only.
func (e Extent) OnlyFine() time.Duration {
	if n := len(e.Resolutions); n > 0 && e.Resolutions[n-1] < time.Second {
		return e.Resolutions[n-1]
	}
	return 0
}

// recent is the time before Last in which Extent looks for signals.
const recent = 24 * time.Hour

// Extent returns the time range of the stored windows, and their recent resolutions and signals.
func (s *Store) Extent(ctx context.Context) (Extent, error) {
	var spans [numResolutionTables]span
	for g := range numResolutionTables {
		var err error
		if spans[g], err = s.span(ctx, g); err != nil {
			return Extent{}, err
		}
	}
	var e Extent
	if !spans[fineTable].empty() {
		fine, err := s.fineResolutions(ctx, spans[fineTable])
		if err != nil {
			return Extent{}, err
		}
		e.Resolutions = fine
	}
	seconds, minutes := spans[secondTable], spans[minuteTable]
	if !seconds.empty() {
		e.Resolutions = append(e.Resolutions, time.Second)
	}
	if !minutes.empty() {
		e.Resolutions = append(e.Resolutions, time.Minute)
	}
	whole := seconds.within(minutes)
	if whole.empty() {
		whole = spans[fineTable]
	}
	if whole.empty() || len(e.Resolutions) == 0 { // the second if the fine windows expired meanwhile
		return e, nil
	}
	e.First, e.Last, e.Seconds = whole.first, whole.last, seconds.first
	if seconds.empty() && !minutes.empty() {
		e.Seconds = e.Last
	}
	return e, s.totals(ctx, &e, seconds, minutes)
}

// span is from the first window's start to the last one's end.
type span struct{ first, last time.Time }

func (w span) empty() bool { return w.first.IsZero() }

// within refines the ends of a span of minutes by those of the seconds inside it.
func (w span) within(minutes span) span {
	if w.empty() || minutes.empty() {
		return span{later(w.first, minutes.first), later(w.last, minutes.last)}
	}
	whole := minutes
	if w.first.Before(minutes.first.Add(time.Minute)) {
		whole.first = w.first
	}
	if w.last.After(minutes.last.Add(-time.Minute)) {
		whole.last = w.last
	}
	return whole
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// span is read from the metadata of parts, without reading rows. Rows of superseded runs count
// too.
func (s *Store) span(ctx context.Context, g int) (span, error) {
	at := resolutionTableAt(g)
	query := fmt.Sprintf("SELECT min(window_start), max(window_start), count() FROM %s.%s", s.database, at.table())
	var w span
	err := s.query(ctx, s.reader, "read extent", query, func(rows driver.Rows) error {
		var first, last time.Time
		var n uint64
		if err := rows.Scan(&first, &last, &n); err != nil || n == 0 {
			return err
		}
		w = span{first, last.Add(max(at.Length, 1))}
		return nil
	})
	return w, err
}

// maxFineResolutions bounds the list of lengths of fine windows.
const maxFineResolutions = 16

// fineResolutions are the lengths of the fine windows of the last minutes. The span of the fine
// table ends with the start of its last window, since its windows differ in length.
func (s *Store) fineResolutions(ctx context.Context, w span) ([]time.Duration, error) {
	at := resolutionTableAt(fineTable)
	query := fmt.Sprintf("SELECT DISTINCT resolution_ns FROM %s.%s WHERE %[3]s(window_start) >= %[3]s(toDateTime64('%[4]s', 9, 'UTC')) LIMIT %d",
		s.database, at.table(), at.KeyStart, stamp(w.last.Add(-10*time.Minute)), maxFineResolutions)
	list, err := queryRows(ctx, s, "read extent", query, func(rows driver.Rows) (time.Duration, error) {
		var ns uint64
		err := rows.Scan(&ns)
		return time.Duration(ns), err
	})
	slices.Sort(list)
	return list, err
}

// totals reads the signals of the extent's last day, from the table with the fewest rows that
// covers it.
func (s *Store) totals(ctx context.Context, e *Extent, seconds, minutes span) error {
	from := later(e.First, e.Last.Add(-recent))
	resolution := time.Minute
	switch {
	case !seconds.empty() && (minutes.empty() || e.Last.Sub(from) <= time.Hour):
		resolution = time.Second
	case minutes.empty():
		resolution = e.Resolutions[0]
	}
	q := Question{From: from.Truncate(time.Minute), To: e.Last.Add(time.Minute), Resolution: resolution}
	query := fmt.Sprintf("SELECT signal, %s FROM %s GROUP BY signal ORDER BY signal LIMIT 256", saturated("sum(observations), sum(heavy)"), q.totals(s.database))
	return s.query(ctx, s.reader, "read extent", query, func(rows driver.Rows) error {
		var signal uint8
		var observations, heavy uint64
		if err := rows.Scan(&signal, &observations, &heavy); err != nil {
			return err
		}
		e.Signals = append(e.Signals, csig.Signal(signal))
		e.Observations = aggregate.AddSat(e.Observations, observations)
		e.Heavy = aggregate.AddSat(e.Heavy, heavy)
		return nil
	})
}

// Signals returns the signals in the question's range, ascending; the question's own signal and cells
// do not matter. Unlike Extent it can go back further than a day.
func (s *Store) Signals(ctx context.Context, q Question) ([]csig.Signal, error) {
	if err := s.resolveAmong(ctx, &q, false, "1"); err != nil {
		return nil, fmt.Errorf("read signals: %w", err)
	}
	query := fmt.Sprintf("SELECT DISTINCT signal FROM %s ORDER BY signal LIMIT 256", q.totals(s.database))
	return queryRows(ctx, s, "read signals", query, func(rows driver.Rows) (csig.Signal, error) {
		var signal uint8
		err := rows.Scan(&signal)
		return csig.Signal(signal), err
	})
}

func (q *Question) totals(database string) string { return q.call(database, "totals", q.spanArgs()) }
