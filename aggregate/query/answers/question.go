// Package answers converts answers to rows, for people and for scripts: messages of the query
// API, whose fields are the columns, and data that only a store has, such as taps and coverage.
//
// It knows the columns that people look at first. It must never know SQL, HTTP or flags.
package answers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/decode/csig"
)

// ErrEmpty is the error for a question to an empty store.
var ErrEmpty = errors.New("nothing is stored yet")

// ParameterError reports a parameter that is invalid for this store.
type ParameterError struct {
	Parameter string // name of the field of Params, in lower case
	Err       error
}

// Error implements error.
func (e *ParameterError) Error() string { return e.Parameter + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *ParameterError) Unwrap() error { return e.Err }

// Params are the parameters of a question.
type Params struct {
	Signal   string // as in csig.FindSignal
	Src, Dst string // groups; "" for all
	// Query has the rest. Without a start or an end it covers everything stored; without a
	// resolution the store chooses.
	Query store.Question
}

// Question is a question to a store, whose names it has read. Its methods answer it; they are
// safe for concurrent use.
type Question struct {
	store  *store.Store
	params Params
	query  store.Question
	names  map[aggregate.GroupID]string
}

// Ask prepares a question to a store, which its caller still owns. Errors are ErrEmpty, a
// *ParameterError, or those of the store.
func Ask(ctx context.Context, db *store.Store, p Params) (*Question, error) {
	q := &Question{store: db, params: p, query: p.Query}
	extent, err := db.Extent(ctx)
	if err != nil {
		return nil, err
	}
	if !extent.First.Before(extent.Last) {
		return nil, ErrEmpty
	}
	q.fill(&extent)
	if err := q.findSignal(ctx, extent.Signals); err != nil {
		return nil, err
	}
	if err := q.readGroups(ctx); err != nil {
		return nil, err
	}
	return q, nil
}

// fill sets the unset fields, and extends the range to whole windows.
func (q *Question) fill(extent *store.Extent) {
	if q.query.From.IsZero() {
		q.query.From = extent.First
	}
	if q.query.To.IsZero() {
		q.query.To = extent.Last
	}
	q.query.Resolution = cmp.Or(q.query.Resolution, extent.OnlyFine())
	// A range that ends now begins and ends within a window.
	window := cmp.Or(q.query.Resolution, time.Second)
	if q.query.Resolution == 0 && extent.OnlyMinutes(q.query.From) {
		window = time.Minute
	}
	q.query.From = q.query.From.Truncate(window)
	if end := q.query.To.Truncate(window); end.Before(q.query.To) {
		q.query.To = end.Add(window)
	}
}

// readGroups reads the names of groups, and resolves the requested ones.
func (q *Question) readGroups(ctx context.Context) error {
	groups, err := q.store.Groups(ctx)
	if err != nil {
		return err
	}
	q.names = make(map[aggregate.GroupID]string, len(groups))
	ids := make(map[string]aggregate.GroupID, len(groups))
	for _, g := range groups {
		q.names[g.ID] = g.Name
		ids[g.Name] = g.ID
	}
	for _, o := range []struct {
		parameter, name string
		to              **aggregate.GroupID
	}{{"src", q.params.Src, &q.query.Src}, {"dst", q.params.Dst, &q.query.Dst}} {
		if o.name == "" {
			continue
		}
		id, ok := ids[o.name]
		if !ok {
			return &ParameterError{o.parameter, fmt.Errorf("group %q: is not in the store", o.name)}
		}
		*o.to = &id
	}
	return nil
}

// findSignal finds the signal with a name among recent ones, or else among those of the range.
func (q *Question) findSignal(ctx context.Context, recent []csig.Signal) error {
	s, err := csig.FindSignal(q.params.Signal, recent)
	if err == nil && !s.HasValue() && q.query.From.Before(q.query.To) {
		inRange, readErr := q.store.Signals(ctx, store.Question{From: q.query.From.Truncate(time.Minute), To: q.query.To, Resolution: time.Minute})
		if readErr != nil {
			return readErr
		}
		s, err = csig.FindSignal(q.params.Signal, inRange)
	}
	if err != nil {
		return &ParameterError{"signal", err}
	}
	q.query.Signal = s
	return nil
}

func (q *Question) group(id aggregate.GroupID) string {
	return cmp.Or(q.names[id], id.Placeholder())
}
