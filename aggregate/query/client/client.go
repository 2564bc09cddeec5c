// Package client is a client of a csigscope query API: for cells, paths and locations, and for
// changes as they happen.
//
// Parameters of a question are those that /openapi.json lists for its URL. Calls do not wait: none
// takes wait, and only Watch and Changes take after. Answers are messages of package wire:
//
//	c, err := client.New("http://127.0.0.1:9465", nil)
//	...
//	answer, err := c.Cells(ctx, url.Values{"signal": {"min_abw"}, "src": {"rack1", "rack2"}})
//	...
//	for _, cell := range answer.GetCells() {
//		fmt.Println(cell.GetSrc(), cell.GetDst(), cell.GetState(), cell.GetMean().GetBps())
//	}
//
// Watch and Changes reopen a broken stream and resume it. Programs that send request messages
// instead of URL parameters, and reopen streams themselves, use wire.NewQueryServiceClient, as the
// command in the folder example does.
//
// It knows the API's address and its messages. It must never know the use of answers.
package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/csigscope/csigscope/aggregate/query/rest"
	"github.com/csigscope/csigscope/aggregate/query/wire"
	"github.com/csigscope/csigscope/ingest/retry"
)

const (
	// maxAnswer bounds an answer or an event, in bytes.
	maxAnswer = 256 << 20
	// maxProblem bounds an error.
	maxProblem = 64 << 10
)

// Client queries one server. Questions are sent as calls, except Export. If a parameter is invalid
// or the server refuses a question, the error wraps an *Error. It is safe for concurrent use.
type Client struct {
	// Retrying, if not nil, is called when Watch or Changes will reopen its stream after a wait, with
	// the reason. Set it before either is called.
	Retrying func(why error, wait time.Duration)

	base   string
	http   problems
	calls  wire.QueryServiceClient
	schema *rest.Schema
	retry  time.Duration // first wait before a stream is opened again
}

// Error is a refusal: the problem with the question, and how to fix it.
type Error struct {
	*wire.Problem
	retryAfter time.Duration // 0: the server names none
}

// newError makes an Error of a problem and the headers of its answer.
func newError(p *wire.Problem, h http.Header) *Error {
	after, _ := strconv.ParseUint(h.Get("Retry-After"), 10, 31)
	return &Error{p, time.Duration(after) * time.Second}
}

// Error implements error.
func (e *Error) Error() string {
	if e.GetDetail() == "" {
		return e.GetTitle()
	}
	return e.GetDetail()
}

// New makes a client of the server at a URL such as http://127.0.0.1:9465. h may be nil; one for a
// server that requires a credential presents a client certificate, or its Transport sets the
// header Authorization: Bearer TOKEN.
func New(server string, h *http.Client) (*Client, error) {
	u, err := url.Parse(server)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" {
		return nil, fmt.Errorf("read server %q: expected a URL such as http://127.0.0.1:9465", server)
	}
	if h == nil {
		h = &http.Client{}
	}
	c := &Client{base: strings.TrimSuffix(u.String(), "/"), http: problems{h}, schema: rest.NewSchema(), retry: time.Second}
	c.calls = wire.NewQueryServiceClient(c.http, c.base, connect.WithReadMaxBytes(maxAnswer))
	return c, nil
}

// problems is an HTTP client that turns an answer with a problem (RFC 9457) into an Error, even
// one from another source than the API.
type problems struct{ *http.Client }

// Do implements connect.HTTPClient.
func (p problems) Do(r *http.Request) (*http.Response, error) {
	response, err := p.Client.Do(r)
	if err != nil {
		return nil, err
	}
	if kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")); kind != "application/problem+json" {
		return response, nil
	}
	defer response.Body.Close()
	e := newError(&wire.Problem{}, response.Header)
	if err := json.NewDecoder(io.LimitReader(response.Body, maxProblem)).Decode(e.Problem); err != nil || e.Title == "" {
		e.Problem = &wire.Problem{Title: response.Status}
	}
	e.Status = uint32(response.StatusCode)
	return nil, e
}

// ask sends a question. in is its message, without parameters.
func ask[Q, R any](ctx context.Context, c *Client, name string, in *Q, parameters url.Values, call func(context.Context, *connect.Request[Q]) (*connect.Response[R], error)) (*R, error) {
	if err := c.parse(parameters, in); err != nil {
		return nil, fmt.Errorf("ask for %s: %w", name, err)
	}
	answer, err := call(ctx, connect.NewRequest(in))
	if err != nil {
		return nil, fmt.Errorf("ask for %s: %w", name, refusal(err))
	}
	return answer.Msg, nil
}

// parse sets a message to parameters; it refuses invalid ones as the server would, and those for
// waiting, which calls do not have.
func (c *Client) parse(parameters url.Values, in any) error {
	m, ok := in.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is no question", in)
	}
	err := c.schema.Parse(parameters, m)
	if wrong, ok := errors.AsType[rest.Wrong](err); ok {
		waits, has := (&wire.WaitRequest{}).ProtoReflect().Descriptor().Fields(), m.ProtoReflect().Descriptor().Fields()
		for _, d := range wrong {
			if name := protoreflect.Name(strings.TrimPrefix(d.Location, "query.")); waits.ByName(name) != nil && has.ByName(name) == nil {
				d.Message = "calls do not wait: leave it out, and call Watch or Changes to wait for changes"
			}
		}
		const status = http.StatusUnprocessableEntity
		return &Error{Problem: &wire.Problem{Title: http.StatusText(status), Status: status, Detail: wrong.Error(), Errors: wrong}}
	}
	return err
}

// refusal returns the Error in a refused call, or else the error itself.
func refusal(err error) error {
	refused, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return err
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	for _, d := range refused.Details() {
		if v, err := d.Value(); err == nil {
			if p, ok := v.(*wire.Problem); ok {
				return newError(p, refused.Meta())
			}
		}
	}
	if status := statuses[refused.Code()]; status != 0 && connect.IsWireError(err) {
		return newError(&wire.Problem{Title: http.StatusText(status), Status: uint32(status), Detail: refused.Message()}, refused.Meta())
	}
	return err
}

// statuses are the HTTP statuses of calls that the server refuses before they reach the API.
var statuses = map[connect.Code]int{
	connect.CodeInvalidArgument: http.StatusBadRequest, connect.CodeUnauthenticated: http.StatusUnauthorized,
	connect.CodePermissionDenied: http.StatusForbidden, connect.CodeResourceExhausted: http.StatusTooManyRequests,
}

// Cells returns a page of cells.
func (c *Client) Cells(ctx context.Context, parameters url.Values) (*wire.CellsResponse, error) {
	return ask(ctx, c, "cells", &wire.CellsRequest{}, parameters, c.calls.Cells)
}

// AllCells returns the cells of all pages, of one revision.
func (c *Client) AllCells(ctx context.Context, parameters url.Values) (*wire.CellsResponse, error) {
	all, err := c.Cells(ctx, parameters)
	if err != nil {
		return nil, err
	}
	for all.NextCursor != "" {
		parameters = with(parameters, "cursor", all.NextCursor)
		page, err := c.Cells(ctx, parameters)
		if err != nil {
			return nil, err
		}
		all.Cells, all.NextCursor = append(all.Cells, page.Cells...), page.NextCursor
		all.About.NotJudgedHint = cmp.Or(all.About.NotJudgedHint, page.About.NotJudgedHint)
	}
	return all, nil
}

// with adds a parameter to a copy of parameters.
func with(parameters url.Values, name, value string) url.Values {
	out := maps.Clone(parameters)
	if out == nil {
		out = url.Values{}
	}
	out.Set(name, value)
	return out
}

// Verdict describes in words where the fabric is congested.
func (c *Client) Verdict(ctx context.Context, parameters url.Values) (*wire.VerdictResponse, error) {
	return ask(ctx, c, "verdict", &wire.VerdictRequest{}, parameters, c.calls.Verdict)
}

// Path returns one pair of groups: bandwidth left, bottleneck and shortest paths.
func (c *Client) Path(ctx context.Context, parameters url.Values) (*wire.PathResponse, error) {
	return ask(ctx, c, "path", &wire.PathRequest{}, parameters, c.calls.Path)
}

// Locations returns the locations that observations name, those with the most heavy ones first.
func (c *Client) Locations(ctx context.Context, parameters url.Values) (*wire.LocationsResponse, error) {
	return ask(ctx, c, "locations", &wire.LocationsRequest{}, parameters, c.calls.Locations)
}

// Links returns the ports of the fabric, and the named locations.
func (c *Client) Links(ctx context.Context, parameters url.Values) (*wire.LinksResponse, error) {
	return ask(ctx, c, "links", &wire.LinksRequest{}, parameters, c.calls.Links)
}

// Topology returns the fabric file's topology.
func (c *Client) Topology(ctx context.Context, parameters url.Values) (*wire.TopologyResponse, error) {
	return ask(ctx, c, "topology", &wire.TopologyRequest{}, parameters, c.calls.Topology)
}

// Flows returns a page of flows.
func (c *Client) Flows(ctx context.Context, parameters url.Values) (*wire.FlowsResponse, error) {
	return ask(ctx, c, "flows", &wire.FlowsRequest{}, parameters, c.calls.Flows)
}

// Findings returns a page of findings.
func (c *Client) Findings(ctx context.Context, parameters url.Values) (*wire.FindingsResponse, error) {
	return ask(ctx, c, "findings", &wire.FindingsRequest{}, parameters, c.calls.Findings)
}

// Timeline returns a summary of each window.
func (c *Client) Timeline(ctx context.Context, parameters url.Values) (*wire.TimelineResponse, error) {
	return ask(ctx, c, "timeline", &wire.TimelineRequest{}, parameters, c.calls.Timeline)
}

// Health returns the freshness and completeness of answers, and the extent of the store.
func (c *Client) Health(ctx context.Context) (*wire.HealthResponse, error) {
	return ask(ctx, c, "health", &wire.HealthRequest{}, nil, c.calls.Health)
}

// maxRetry bounds the wait before a stream is reopened.
const maxRetry = 30 * time.Second

// Watch calls handle for each event, until ctx ends, handle fails, the server refuses the
// question, or the first attempt gets no answer or exceeds a limit of the client (429). It returns
// ctx's error, the error of handle, or the reason. A broken stream is reopened, not before the
// server's Retry-After, and resumes; if that is not possible, it begins with a snapshot, mostly
// after a gap.
func (c *Client) Watch(ctx context.Context, parameters url.Values, handle func(*wire.WatchResponse) error) error {
	in := &wire.WatchRequest{}
	return follow(ctx, c, "watch", in, &in.After, parameters, c.calls.Watch, handle)
}

// Changes is Watch for a stream of changes, which begins with an initial event instead of a
// snapshot.
func (c *Client) Changes(ctx context.Context, parameters url.Values, handle func(*wire.ChangesResponse) error) error {
	in := &wire.ChangesRequest{}
	return follow(ctx, c, "changes", in, &in.After, parameters, c.calls.Changes, handle)
}

// streamCall opens a stream.
type streamCall[Q, R any] func(context.Context, *connect.Request[Q]) (*connect.ServerStreamForClient[R], error)

// question is a pointer to a question, and event one to an event.
type (
	question[Q any] interface {
		*Q
		proto.Message
	}
	event[R any] interface {
		*R
		GetId() string
	}
)

// follow reads one stream after another. in is their question, without parameters, and after its
// field for the revision to resume after.
func follow[Q, R any, P question[Q], E event[R]](ctx context.Context, c *Client, name string, in P, after *string, parameters url.Values, call streamCall[Q, R], handle func(*R) error) error {
	if err := c.parse(parameters, in); err != nil {
		return fmt.Errorf("ask for %s: %w", name, err)
	}
	answered := false
	for backoff := (retry.Backoff{First: c.retry, Longest: maxRetry, Jitter: true}); ; {
		began := *after
		err := read(ctx, name, in, call, func(e *R) error {
			answered = true
			if err := handle(e); err != nil {
				return &handlerError{err}
			}
			if id := E(e).GetId(); id != "" {
				*after = id
			}
			return nil
		})
		var stop *handlerError
		refused, isRefused := errors.AsType[*Error](err)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &stop):
			return stop.error
		case isRefused && refused.Status < 500 && (!answered || refused.Status != http.StatusTooManyRequests), !isRefused && !answered:
			return err
		}
		answered = true // by events, or by a refusal for now
		if *after != began {
			backoff.Reset()
		}
		wait := backoff.Pause()
		if isRefused {
			wait = max(wait, refused.retryAfter)
		}
		if c.Retrying != nil {
			c.Retrying(err, wait)
		}
		if !retry.Sleep(ctx, wait) {
			return ctx.Err()
		}
	}
}

// handlerError is an error of the caller's handler.
type handlerError struct{ error }

// read reads one stream to its end.
func read[Q, R any, P question[Q]](ctx context.Context, name string, in P, call streamCall[Q, R], handle func(*R) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := call(ctx, connect.NewRequest((*Q)(proto.CloneOf(in))))
	if err != nil {
		return fmt.Errorf("ask for %s: %w", name, refusal(err))
	}
	defer stream.Close()
	for stream.Receive() {
		if err := handle(stream.Msg()); err != nil {
			return err
		}
	}
	if err := stream.Err(); err != nil {
		return fmt.Errorf("read events: %w", refusal(err))
	}
	return fmt.Errorf("read events: %w", io.ErrUnexpectedEOF)
}

// Tables that a server exports.
const (
	TableCells    = "export" // parameter table: cells or windows
	TableFlows    = "export/flows"
	TableFindings = "export/findings"
)

// Exported describes the end of a table.
type Exported struct {
	Rows     int
	Complete bool
	CutBy    string // rows or time, if it is not complete
}

// errCutOff reports a transfer that broke off.
var errCutOff = errors.New("the table broke off: ask again, or for fewer rows")

// Export writes a table to w as it arrives. Parameters are those of /api/v1/export and below;
// format is csv, ndjson, parquet or arrow. After an error the bytes in w are useless.
func (c *Client) Export(ctx context.Context, table string, parameters url.Values, w io.Writer) (*Exported, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/api/v1/"+table+"?"+parameters.Encode(), nil)
	if err != nil {
		return nil, fmt.Errorf("ask for %s: %w", table, err)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask for %s: %w", table, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask for %s: %s", table, response.Status)
	}
	if _, err := io.Copy(w, response.Body); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = errCutOff
		}
		return nil, fmt.Errorf("read %s: %w", table, err)
	}
	rows, err := strconv.Atoi(response.Trailer.Get("Csigscope-Rows"))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", table, errCutOff)
	}
	return &Exported{rows, response.Trailer.Get("Csigscope-Complete") == "true", response.Trailer.Get("Csigscope-Cut-By")}, nil
}
