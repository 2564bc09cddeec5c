package api

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/csigscope/csigscope/aggregate/query/model"
	"github.com/csigscope/csigscope/aggregate/recent"
	"github.com/csigscope/csigscope/decode/csig"
)

// answer is a body that is encoded already.
type answer struct {
	Status int
	ETag   string `header:"ETag"`
	Type   string `header:"Content-Type"`
	Body   []byte
}

// unchanged tells that the asker has it all.
func unchanged(s *recent.State) *answer {
	return &answer{Status: http.StatusNotModified, ETag: etag(s)}
}

func encoded(v any) (*answer, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode answer: %w", err)
	}
	return &answer{Body: body}, nil
}

var retryLater = http.Header{"Retry-After": []string{"1"}}

func (a *API) register(h huma.API) {
	endpoint(a, h, "cells", "The cells: room left, state and bottleneck of each source and destination", model.Cells{}, a.cells)
	endpoint(a, h, "matrix", "The same as matrices of sources and destinations", model.Matrix{}, a.matrix)
	endpoint(a, h, "path", "One source and destination: room left, limiting location and its candidates", model.Path{}, a.path)
	endpoint(a, h, "locations", "Locations by how often heavily loaded observations name them", model.Locations{}, a.locations)
	endpoint(a, h, "timeline", "What each window in memory came to", model.Timeline{}, a.timeline)
	endpoint(a, h, "fabric", "The groups and locations that answers name", model.Fabric{}, a.fabric)
	endpoint(a, h, "health", "How fresh and how complete answers are", model.Health{}, a.health)
	export(a, h)
	a.registerWatch(h)
}

// endpoint serves one kind of question: at most so many at a time, each for so long.
func endpoint[I any](a *API, h huma.API, name, summary string, sample any, f func(context.Context, *recent.State, *I) (*answer, error)) {
	answers(a, h, "application/json", huma.Operation{OperationID: name, Summary: summary}, sample, f)
}

// answers is the same for any type of content.
func answers[I any](a *API, h huma.API, contentType string, op huma.Operation, sample any, f func(context.Context, *recent.State, *I) (*answer, error)) {
	op.Method, op.Path, op.Responses = http.MethodGet, "/api/v1/"+op.OperationID, responses(h, contentType, sample)
	huma.Register(h, op, func(ctx context.Context, in *I) (*answer, error) {
		s, fresh, err := a.await(ctx, in)
		if err != nil {
			return nil, a.answerable(ctx, err)
		}
		if s != nil && !fresh {
			return unchanged(s), nil
		}
		out, err := a.answer(ctx, func(ctx context.Context) (*answer, error) { return f(ctx, s, in) })
		if err != nil {
			return nil, a.answerable(ctx, err)
		}
		if out.Status == 0 {
			out.Status = http.StatusOK
		}
		if out.Status == http.StatusOK {
			out.Type = contentType
		}
		return out, nil
	})
}

// answer works on an answer when it is its turn, and no longer than the limit. Waiting for a
// revision is done before.
func (a *API) answer(ctx context.Context, f func(context.Context) (*answer, error)) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, a.Timeout)
	defer cancel()
	select {
	case a.slots <- struct{}{}:
		defer func() { <-a.slots }()
	case <-ctx.Done():
		return nil, huma.ErrorWithHeaders(huma.NewError(http.StatusServiceUnavailable, "too many requests at a time: try again later"), retryLater)
	}
	return f(ctx)
}

func responses(h huma.API, contentType string, sample any) map[string]*huma.Response {
	schemas := h.OpenAPI().Components.Schemas
	problem := func(description string) *huma.Response {
		return &huma.Response{Description: description, Content: map[string]*huma.MediaType{
			"application/problem+json": {Schema: schemas.Schema(reflect.TypeFor[model.Problem](), true, "")},
		}}
	}
	return map[string]*huma.Response{
		"200": {Description: "OK", Content: map[string]*huma.MediaType{
			contentType: {Schema: schemas.Schema(reflect.TypeOf(sample), true, "")},
		}},
		"304":     {Description: "Nothing has changed"},
		"default": problem("What is wrong, and what to change"),
	}
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
