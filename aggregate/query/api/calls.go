package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/danielgtaylor/huma/v2"

	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/rpc"
)

// withCalls serves the same questions as calls, beside those over HTTP.
func (a *API) withCalls(next http.Handler) http.Handler {
	mux := http.NewServeMux()
	rpc.Register(mux, rpc.Config{
		Source: asked{a, next}, AnswerTimeout: a.Timeout + a.SendTimeout, SendTimeout: a.SendTimeout, Logger: a.Logger,
	})
	mux.Handle("/", next)
	return query.SecurityHeaders(mux)
}

// asked answers calls by the endpoints of the same names.
type asked struct {
	api  *API
	http http.Handler
}

// taken is where an endpoint leaves what it has found for a call.
type taken struct {
	answer *answer
	watch  *watch
	leave  func() // makes room for another watch
}

type takenKey struct{}

// takenBy is where a call wants its answer; nil where the asker wants it over HTTP.
func takenBy(ctx context.Context) *taken {
	t, _ := ctx.Value(takenKey{}).(*taken)
	return t
}

// put puts a question to its endpoint.
func (c asked) put(ctx context.Context, name string, parameters url.Values) (*taken, error) {
	t := &taken{}
	r, err := http.NewRequestWithContext(context.WithValue(ctx, takenKey{}, t), http.MethodGet, "/api/v1/"+name+"?"+parameters.Encode(), nil)
	if err != nil {
		return nil, fmt.Errorf("ask for %s: %w", name, err)
	}
	w := refusal{header: http.Header{}}
	c.http.ServeHTTP(&w, r)
	if t.answer == nil && t.watch == nil {
		return nil, w.refused()
	}
	return t, nil
}

// Ask implements rpc.Source.
func (c asked) Ask(ctx context.Context, name string, parameters url.Values) (any, error) {
	t, err := c.put(ctx, name, parameters)
	if err != nil {
		return nil, err
	}
	return t.answer.whole(), nil
}

// Watch implements rpc.Source.
func (c asked) Watch(ctx context.Context, parameters url.Values, told func(*rpc.Event) error) error {
	t, err := c.put(ctx, "watch", parameters)
	if err != nil {
		return err
	}
	defer t.leave()
	err = t.watch.run(ctx, func(e *event) error {
		called, err := e.called()
		if err != nil {
			return err
		}
		return told(called)
	})
	if _, refused := errors.AsType[huma.StatusError](err); !refused && query.OutcomeOf(ctx, err) != query.Unavailable {
		return err
	}
	w := refusal{header: http.Header{}}
	c.api.refuse(ctx, &w, err)
	return w.refused()
}

// called is the event as calls have it.
func (e *event) called() (*rpc.Event, error) {
	call := func() (*rpc.Event, error) { return rpc.NewEvent(e.name, e.id, e.whole()) }
	if e.sent != nil {
		return e.sent.called.get(call)
	}
	return call()
}

// refusal is an http.ResponseWriter for problems.
type refusal struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (r *refusal) Header() http.Header { return r.header }

// WriteHeader implements http.ResponseWriter.
func (r *refusal) WriteHeader(code int) { r.code = code }

// Write implements http.ResponseWriter.
func (r *refusal) Write(b []byte) (int, error) { return r.body.Write(b) }

func (r *refusal) refused() error {
	out := &rpc.Refused{RetryAfter: r.header.Get("Retry-After")}
	if err := json.Unmarshal(r.body.Bytes(), &out.Problem); err != nil {
		return fmt.Errorf("read answer of status %d: %w", r.code, err)
	}
	return out
}
