package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode/csig"
)

// ErrQuestion is the error of invalid questions.
var ErrQuestion = errors.New("invalid question")

// Question asks for one signal over the windows that start in [From, To).
type Question struct {
	Signal   csig.Signal
	From, To time.Time

	// Resolution is the length of the windows to read: 1 min, 1 s or less. Rows below 1 s may exist for
	// congested cells only. For 0 those of 1 min are read where all producers have them, and those of 1 s
	// elsewhere: at the ends of the range, and in minutes that are still open. States are then decided by
	// windows of 1 s if the range is at most an hour or, with a Step, if that is not whole minutes; by
	// windows of 1 min otherwise, and if the first windows of 1 s are no longer stored.
	Resolution time.Duration
	// Step is the length of the windows of the answer; see CellWindows.
	Step time.Duration
	// Level maps locations to their set, device, stage or far end.
	Level fabric.Level
	// Src and Dst choose cells; nil is all.
	Src, Dst *aggregate.GroupID
	// Among, unless empty, restricts the cells further.
	Among []Cell
	// NoModes allows Cells without modes and votes, which take a third of its time, and HeavyOnly allows
	// CellLocations without the rows in which nothing was heavy.
	NoModes, HeavyOnly bool

	either *either // the rows to read if Resolution was 0
}

// either chooses between the rows of 1 min and those of 1 s.
type either struct {
	apart    []time.Time // minutes whose rows of 1 s are read
	bySecond bool        // only rows of 1 s are read
}

// Cell is a source and a destination group.
type Cell struct{ Src, Dst aggregate.GroupID }

// check validates a question with a known resolution.
func (q *Question) check(windowed bool) error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrQuestion}, args...)...)
	}
	from, to := q.From.UnixNano(), q.To.UnixNano()
	if _, err := resolutionTableOf(q.Resolution); err != nil {
		return fail("resolution %s: expected 1m, 1s or less than 1s", q.Resolution)
	}
	switch {
	case q.From.Before(time.Unix(0, 0)) || q.To.After(time.Unix(0, aggregate.EndOfTime)):
		return fail("range %s to %s: expected times in 1970 to 2105", q.From.UTC().Format(stampFormat), q.To.UTC().Format(stampFormat))
	case from >= to:
		return fail("from %s is not before to %s", stamp(q.From), stamp(q.To))
	case q.Level > fabric.LevelFarEnd:
		return fail("level %d: expected 0 location, 1 set, 2 device, 3 stage or 4 far end", q.Level)
	case len(q.Among) > maxChoices:
		return fail("%d cells: expected at most %d", len(q.Among), maxChoices)
	case windowed && (q.Step <= 0 || q.Step%q.Resolution != 0):
		return fail("step %s: expected a multiple of the resolution %s", q.Step, q.Resolution)
	case windowed && (to-from)/int64(q.Step) > maxSteps:
		return fail("%d windows of %s: expected at most %d, take a longer step", (to-from)/int64(q.Step), q.Step, maxSteps)
	}
	return nil
}

// Everything returns the range of all times that can be stored.
func Everything() (from, to time.Time) {
	return time.Unix(0, 0).UTC(), time.Unix(0, aggregate.EndOfTime).UTC()
}

// maxSteps bounds the windows of an answer.
const maxSteps = 100_000

const stampFormat = "2006-01-02 15:04:05.000000000"

// stamp formats a time for SQL, at the earliest 1970: there is no earlier window, and functions of
// window_start in keys take earlier times for some after 2100.
func stamp(t time.Time) string { return later(time.Unix(0, 0), t).UTC().Format(stampFormat) }

// view formats a call of a parameterized view. Its parameters are literals that this package
// formats.
func (q *Question) view(database, name string, windowed bool, more ...string) string {
	args := append([]string{q.signalArgs(), q.spanArgs(), fmt.Sprintf("level = %d", q.Level)}, more...)
	if windowed {
		args = append(args, q.stepArgs())
	}
	return q.call(database, name, args...)
}

// call formats a call of the view for the question's rows.
func (q *Question) call(database, name string, args ...string) string {
	suffix := eitherSuffix
	if q.either == nil {
		g, _ := resolutionTableOf(q.Resolution)
		suffix = resolutionTableAt(g).Suffix
	}
	return fmt.Sprintf("%s.%s_%s(%s)", database, name, suffix, strings.Join(args, ", "))
}

func (q *Question) signalArgs() string { return fmt.Sprintf("signal = %d", q.Signal) }

// spanArgs are the range and, where the view leaves it open, the length of the windows and the rows to read.
func (q *Question) spanArgs() string {
	args := fmt.Sprintf("from = '%s', to = '%s'", stamp(q.From), stamp(q.To))
	g, _ := resolutionTableOf(q.Resolution)
	if g == fineTable || q.either != nil {
		args += fmt.Sprintf(", resolution_ns = %d", q.Resolution.Nanoseconds())
	}
	if e := q.either; e != nil {
		apart := make([]string, len(e.apart))
		for i, minute := range e.apart {
			apart[i] = strconv.FormatInt(minute.Unix(), 10)
		}
		bySecond := 0
		if e.bySecond {
			bySecond = 1
		}
		args += fmt.Sprintf(", apart = [%s], by_second = %d", strings.Join(apart, ", "), bySecond)
	}
	return args
}

// judgedBy are the thresholds of views that have states.
func judgedBy(t aggregate.Thresholds) string {
	return fmt.Sprintf("onset = %g, clear = %g", t.Onset, t.Clear)
}

func (q *Question) stepArgs() string { return fmt.Sprintf("step_ns = %d", q.Step.Nanoseconds()) }

// cells is the SQL condition for the question's cells.
func (q *Question) cells() string {
	where := "1"
	if q.Src != nil {
		where += fmt.Sprintf(" AND src_group = %d", *q.Src)
	}
	if q.Dst != nil {
		where += fmt.Sprintf(" AND dst_group = %d", *q.Dst)
	}
	if len(q.Among) > 0 {
		list := make([]string, len(q.Among))
		for i, c := range q.Among {
			list[i] = fmt.Sprintf("(%d, %d)", c.Src, c.Dst)
		}
		where += " AND (src_group, dst_group) IN (" + strings.Join(list, ", ") + ")"
	}
	return where
}

// resolve fills in the resolution and checks the question.
func (s *Store) resolve(ctx context.Context, q *Question, windowed bool) error {
	return s.resolveAmong(ctx, q, windowed, fmt.Sprintf("signal = %d", q.Signal))
}

// resolveAmong is resolve for a question about the rows of a condition.
func (s *Store) resolveAmong(ctx context.Context, q *Question, windowed bool, condition string) error {
	if q.Resolution == 0 {
		if err := s.choose(ctx, q, windowed, condition); err != nil {
			return err
		}
	}
	return q.check(windowed)
}

// choose chooses the rows to read and the length of the windows that decide states.
func (s *Store) choose(ctx context.Context, q *Question, windowed bool, condition string) error {
	const second, minute = time.Second, time.Minute
	divides := func(d time.Duration) bool {
		return q.From.UnixNano()%int64(d) == 0 && q.To.UnixNano()%int64(d) == 0
	}
	inMinutes := !windowed || q.Step%minute == 0
	if !divides(second) || windowed && q.Step%second != 0 {
		return fmt.Errorf("%w: from, to and step are not multiples of 1 s: name the resolution to read", ErrQuestion)
	}
	q.Resolution, q.either = second, &either{bySecond: true}
	if windowed && inMinutes || !windowed && q.To.Sub(q.From) > time.Hour {
		q.Resolution = minute
	}
	// The minutes of a shorter range are not worth a search for them.
	if !inMinutes || q.To.Sub(q.From) <= aggregate.Horizon*second && !divides(minute) {
		return nil
	}
	first, err := s.firstWindow(ctx, minuteTable, q.From, q.To, condition)
	if err != nil || first.IsZero() {
		return err
	}
	begins, err := s.firstWindow(ctx, secondTable, first, first.Add(minute), condition)
	if err != nil {
		return err
	}
	if begins.IsZero() { // windows of 1 s are kept for a shorter time
		q.Resolution = minute
	}
	from := q.From
	if q.Resolution == minute {
		from = earlier(from, q.To.Add(-aggregate.Horizon*minute))
	}
	open, all, err := s.openMinutes(ctx, from, q.To, condition)
	if all = all || len(open) > maxApart; err != nil || all && !begins.IsZero() {
		return err
	}
	q.either = &either{apart: open[max(len(open)-maxApart, 0):]}
	for _, t := range []time.Time{q.From, q.To} {
		if t.UnixNano()%int64(minute) != 0 {
			q.either.apart = append(q.either.apart, t.Truncate(minute))
		}
	}
	return nil
}

// maxApart bounds the minutes of a question that are read by second: their times are part of the statement.
const maxApart = 5000

// firstWindow returns the start of the first window in a range with rows of a condition, zero without one.
func (s *Store) firstWindow(ctx context.Context, g int, from, to time.Time, condition string) (first time.Time, err error) {
	at := resolutionTableAt(g)
	query := fmt.Sprintf("SELECT min(window_start) FROM %s.%s WHERE %s AND %s", s.database, at.table(), condition, at.during(from, to))
	err = s.query(ctx, s.reader, "read first window", query, func(rows driver.Rows) error { return rows.Scan(&first) })
	return orZero(first), err
}
