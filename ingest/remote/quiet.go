package remote

import (
	"log/slog"
	"time"
)

// quietFor is how long a log is silent about what goes wrong again and again.
const quietFor = time.Minute

// quiet keeps the log of one thing that goes wrong again and again short: it is said at
// first, and then at most once in quietFor, with how often it was not. It is for one
// goroutine at a time.
type quiet struct {
	last    time.Time // that it was said
	leftOut uint64    // since
	said    bool      // since it was well
}

// wrong tells whether it is to be said now, and with what: attrs, and how often it was left
// out since it last was said.
func (q *quiet) wrong(now time.Time, attrs ...any) (line []any, say bool) {
	if !q.last.IsZero() && now.Sub(q.last) < quietFor {
		q.leftOut++
		return nil, false
	}
	if q.leftOut > 0 {
		attrs = append(attrs, slog.Uint64("left_out", q.leftOut))
	}
	q.last, q.leftOut, q.said = now, 0, true
	return attrs, true
}

// well tells whether it is to be said that nothing is wrong any more: once, where it was
// said that something is.
func (q *quiet) well() bool {
	said := q.said
	q.said = false
	return said
}
