package query

import (
	"context"
	"fmt"
	"time"
)

// Asker is whom a request is from, as far as who answers it has to know. It is safe for
// concurrent use.
type Asker interface {
	// Ask is called before each question to the store that may take long; its error is a
	// Limited.
	Ask() error
	// Spent tells for how long the store was at work.
	Spent(time.Duration)
	// Told tells how many rows an answer has.
	Told(rows int)
	// Stay is called before the asker waits or watches, for which there are limits of their
	// own; its error is a Limited. leave ends it.
	Stay() (leave func(), err error)
}

// Limited says that an asker has had what there is for it at the moment.
type Limited struct {
	Detail string        // what the limit is, and what to change
	Retry  time.Duration // when to come again
}

func (l *Limited) Error() string { return l.Detail }

// RetryAfter is the value of the header Retry-After: whole seconds, at least one.
func (l *Limited) RetryAfter() string {
	return fmt.Sprint(max(1, int64((l.Retry+time.Second-1)/time.Second)))
}

type askerKey struct{}

// WithAsker says whom the work under the context is for.
func WithAsker(ctx context.Context, a Asker) context.Context {
	return context.WithValue(ctx, askerKey{}, a)
}

// AskerOf is whom the work is for; without any, one without limits.
func AskerOf(ctx context.Context) Asker {
	if a, ok := ctx.Value(askerKey{}).(Asker); ok {
		return a
	}
	return unlimited{}
}

type unlimited struct{}

func (unlimited) Ask() error            { return nil }
func (unlimited) Spent(time.Duration)   {}
func (unlimited) Told(int)              {}
func (unlimited) Stay() (func(), error) { return func() {}, nil }

// Metered reads rows for whom the context is for: it asks whether they may be read, and tells
// what that took. Implementations of Analytics and Records use it.
func Metered[Row any](ctx context.Context, read func() ([]Row, error)) ([]Row, error) {
	a := AskerOf(ctx)
	if err := a.Ask(); err != nil {
		return nil, err
	}
	begin := time.Now()
	rows, err := read()
	a.Spent(time.Since(begin))
	a.Told(len(rows))
	return rows, err
}
