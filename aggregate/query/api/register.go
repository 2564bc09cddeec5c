package api

import (
	"context"
	"errors"
	"math"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/model"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/decode/csig"
)

// reply is a response with a body that is encoded already.
type reply struct {
	Status int
	ETag   string `header:"ETag"`
	Type   string `header:"Content-Type"`
	Body   []byte
}

var retryLater = http.Header{"Retry-After": []string{"1"}}

func (a *API) register(h huma.API) {
	endpoint(a, h, "cells", "The cells: room left, state and bottleneck of each source and destination", model.Cells{}, a.cells)
	endpoint(a, h, "matrix", "The same as matrices of sources and destinations", model.Matrix{}, a.matrix)
	endpoint(a, h, "path", "One source and destination: room left, limiting location and its candidates", model.Path{}, a.path)
	endpoint(a, h, "locations", "Locations by how often heavily loaded observations name them", model.Locations{}, a.locations)
	endpoint(a, h, "flows", "Flows by how often they were heavily loaded", model.Flows{}, a.flows)
	endpoint(a, h, "findings", "What broke the protocol or the configuration", model.Findings{}, a.findings)
	endpoint(a, h, "timeline", "What each window came to", model.Timeline{}, a.timeline)
	endpoint(a, h, "fabric", "The groups and locations that answers name", model.Fabric{}, a.fabric)
	endpoint(a, h, "health", "How fresh and how complete answers are", model.Health{}, a.health)
	a.registerExports(h)
	a.registerWatch(h)
	complete(h.OpenAPI().Components.Schemas)
}

// endpoint serves one kind of question: at most so many at a time, each for so long.
func endpoint[I any](a *API, h huma.API, name, summary string, sample any, f func(context.Context, *table.State, *I) (*answer, error)) {
	const contentType = "application/json"
	op := huma.Operation{
		OperationID: name, Summary: summary, Method: http.MethodGet, Path: "/api/v1/" + name, Responses: responses(h, contentType, sample),
	}
	huma.Register(h, op, func(ctx context.Context, in *I) (*reply, error) {
		s, fresh, err := a.await(ctx, in)
		if err != nil {
			return nil, a.answerable(ctx, err)
		}
		if s != nil && !fresh { // the asker has it all
			return &reply{Status: http.StatusNotModified, ETag: etag(s)}, nil
		}
		var out *reply
		err = a.work(ctx, func(ctx context.Context) error {
			found, err := f(ctx, s, in)
			if err != nil {
				return err
			}
			out = &reply{Status: http.StatusOK, Type: contentType}
			if found.state != nil { // else the store's reader has told
				query.AskerOf(ctx).Told(len(found.chosen))
				out.ETag = etag(found.state)
			}
			if t := takenBy(ctx); t != nil {
				t.answer = found
				return nil
			}
			out.Body, err = found.json()
			return err
		})
		if err != nil {
			return nil, err
		}
		return out, nil
	})
}

// work works on an answer when it is its turn, and no longer than the limit. Waiting for a
// revision is done before.
func (a *API) work(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, a.Timeout)
	defer cancel()
	err := a.inTurn(ctx, a.slots, func() error { return f(ctx) })
	if err != nil {
		return a.answerable(ctx, err)
	}
	return nil
}

// inTurn calls f while it holds a slot.
func (a *API) inTurn(ctx context.Context, slots chan struct{}, f func() error) error {
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.Canceled) {
			return ctx.Err()
		}
		return huma.ErrorWithHeaders(huma.NewError(http.StatusServiceUnavailable, "too many requests at a time: try again later"), retryLater)
	}
	return f()
}

// measure is a value in the signal's unit, nil without one.
func measure(s csig.Signal, v float64) *model.Measure {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	switch s.Unit() {
	case csig.BitPerSecond:
		return &model.Measure{BPS: &v}
	case csig.Ratio:
		return &model.Measure{Ratio: &v}
	case csig.Nanosecond:
		return &model.Measure{NS: &v}
	case csig.Count:
		return &model.Measure{Count: &v}
	}
	return nil
}
