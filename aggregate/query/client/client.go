// Package client asks a csigscope query API: for cells, paths and locations, and for changes
// as they come.
//
// It knows the API's addresses and its model. It must never know what answers are used for.
package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/csigscope/csigscope/aggregate/query/model"
)

const (
	// maxAnswer bounds an answer, in bytes.
	maxAnswer = 256 << 20
	// maxProblem bounds an error.
	maxProblem = 64 << 10
)

// Client asks one server. It is safe for concurrent use.
type Client struct {
	// Retrying, if not nil, is told why a watch opens its stream again after a wait. It is
	// called by Watch, and set before that.
	Retrying func(why error, wait time.Duration)

	base  string
	http  *http.Client
	retry time.Duration // first wait before a stream is opened again
}

// Error is a refusal: what is wrong with the question, and what to change.
type Error struct{ model.Problem }

// Error implements error.
func (e *Error) Error() string {
	if e.Detail == "" {
		return e.Title
	}
	return e.Detail
}

// New makes a client of the server at a URL such as http://127.0.0.1:9465. h may be nil.
func New(server string, h *http.Client) (*Client, error) {
	u, err := url.Parse(server)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" {
		return nil, fmt.Errorf("read server %q: expected a URL such as http://127.0.0.1:9465", server)
	}
	if h == nil {
		h = &http.Client{}
	}
	return &Client{base: strings.TrimSuffix(u.String(), "/"), http: h, retry: time.Second}, nil
}

// Cells is a page of cells. Parameters are those of /api/v1/cells.
func (c *Client) Cells(ctx context.Context, parameters url.Values) (*model.Cells, error) {
	return get[model.Cells](ctx, c, "cells", parameters)
}

// AllCells are the cells of all pages, of one revision.
func (c *Client) AllCells(ctx context.Context, parameters url.Values) (*model.Cells, error) {
	all, err := c.Cells(ctx, parameters)
	if err != nil {
		return nil, err
	}
	for next := all.Next; next != ""; {
		parameters = clone(parameters)
		parameters.Set("cursor", next)
		page, err := c.Cells(ctx, parameters)
		if err != nil {
			return nil, err
		}
		all.Values = append(all.Values, page.Values...)
		next = page.Next
	}
	all.Next = ""
	return all, nil
}

// Path is one source and destination.
func (c *Client) Path(ctx context.Context, parameters url.Values) (*model.Path, error) {
	return get[model.Path](ctx, c, "path", parameters)
}

// Matrix is a signal as matrices.
func (c *Client) Matrix(ctx context.Context, parameters url.Values) (*model.Matrix, error) {
	return get[model.Matrix](ctx, c, "matrix", parameters)
}

// Locations are those that heavily loaded observations name most.
func (c *Client) Locations(ctx context.Context, parameters url.Values) (*model.Locations, error) {
	return get[model.Locations](ctx, c, "locations", parameters)
}

// Flows is a page of flows.
func (c *Client) Flows(ctx context.Context, parameters url.Values) (*model.Flows, error) {
	return get[model.Flows](ctx, c, "flows", parameters)
}

// Findings is a page of findings.
func (c *Client) Findings(ctx context.Context, parameters url.Values) (*model.Findings, error) {
	return get[model.Findings](ctx, c, "findings", parameters)
}

// Timeline is what each window came to.
func (c *Client) Timeline(ctx context.Context, parameters url.Values) (*model.Timeline, error) {
	return get[model.Timeline](ctx, c, "timeline", parameters)
}

// Fabric is what answers name.
func (c *Client) Fabric(ctx context.Context) (*model.Fabric, error) {
	return get[model.Fabric](ctx, c, "fabric", nil)
}

// Health is how fresh and complete answers are.
func (c *Client) Health(ctx context.Context) (*model.Health, error) {
	return get[model.Health](ctx, c, "health", nil)
}

func clone(parameters url.Values) url.Values {
	out := url.Values{}
	for k, v := range parameters {
		out[k] = v
	}
	return out
}

func get[T any](ctx context.Context, c *Client, name string, parameters url.Values) (*T, error) {
	response, err := c.open(ctx, name, parameters, "")
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	var out T
	if err := json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(&out); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return &out, nil
}

// ErrUnchanged is the answer to a question with after and wait when nothing has come.
var ErrUnchanged = errors.New("nothing has changed")

// open gives the response to a question that the server has an answer to.
func (c *Client) open(ctx context.Context, name string, parameters url.Values, seen string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/api/v1/"+name+"?"+parameters.Encode(), nil)
	if err != nil {
		return nil, fmt.Errorf("ask for %s: %w", name, err)
	}
	if seen != "" {
		request.Header.Set("Last-Event-ID", seen)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask for %s: %w", name, err)
	}
	if response.StatusCode == http.StatusOK {
		return response, nil
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusNotModified {
		return nil, fmt.Errorf("ask for %s: %w", name, ErrUnchanged)
	}
	e := &Error{}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxProblem)).Decode(&e.Problem); err != nil || e.Title == "" {
		e.Problem = model.Problem{Title: response.Status}
	}
	e.Status = response.StatusCode
	return nil, fmt.Errorf("ask for %s: %w", name, e)
}
