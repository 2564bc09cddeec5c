package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"os"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpcreflect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/csigscope/csigscope/aggregate/query/wire"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/ingest/edge"
)

// maxCall bounds a call's request, in bytes; the longest sensible one lists some hundred names.
const maxCall = 64 << 10

// minCompressed is how long an answer to a call is at least that is worth being compressed.
const minCompressed = 1 << 10

// withCalls serves calls, and what tells tools of them (gRPC server reflection), beside the
// questions over HTTP.
func (a *API) withCalls(next http.Handler) http.Handler {
	path, h := wire.NewQueryServiceHandler(calls{a},
		connect.WithReadMaxBytes(maxCall), connect.WithCompressMinBytes(minCompressed), inCodecs(),
		connect.WithRecover(func(ctx context.Context, call connect.Spec, _ http.Header, p any) error {
			a.Logger.ErrorContext(ctx, "answer call", slog.String("procedure", call.Procedure), slog.Any("panic", p))
			return connect.NewError(connect.CodeInternal, errors.New("the server could not answer: its log says why"))
		}))
	mux := http.NewServeMux()
	mux.Handle(path, a.timed(h))
	tells := grpcreflect.NewStaticReflector(wire.QueryServiceName)
	mux.Handle(grpcreflect.NewHandlerV1(tells, connect.WithReadMaxBytes(maxCall)))
	mux.Handle(grpcreflect.NewHandlerV1Alpha(tells, connect.WithReadMaxBytes(maxCall)))
	mux.Handle("/", next)
	return mux
}

type sendKey struct{}

// timed gives calls time limits of their own: those of the server are for short answers.
func (a *API) timed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		send := http.NewResponseController(w) // a writer that knows no limits is a test's
		_ = send.SetWriteDeadline(time.Now().Add(a.Timeout + a.SendTimeout))
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), sendKey{}, send)))
	})
}

// calls implements the service with the functions that answer questions over HTTP.
type calls struct{ api *API }

// call answers one call.
func call[Q, R any, P request[Q]](ctx context.Context, a *API, in *connect.Request[Q], from source, f func(context.Context, *table.State, P) (*answer, error)) (*connect.Response[R], error) {
	m := P(in.Msg)
	if err := a.check(m); err != nil {
		return nil, a.callError(ctx, err)
	}
	s, _, err := a.source(ctx, m, from, &waiting{})
	if err != nil {
		return nil, a.callError(ctx, err)
	}
	found, err := work(ctx, a, s, m, f)
	if err != nil {
		return nil, a.callError(ctx, err)
	}
	out, ok := found.whole().(any).(*R)
	if !ok {
		return nil, a.callError(ctx, fmt.Errorf("answer %T: %T is no answer to it", m, found.value))
	}
	return connect.NewResponse(out), nil
}

// check holds a call's request against what its fields take.
func (a *API) check(m proto.Message) error {
	if len(m.ProtoReflect().GetUnknown()) > 0 {
		return &refused{
			status: http.StatusBadRequest,
			detail: "the request has a parameter that this server does not know: leave it out, or ask a server of a later version",
		}
	}
	return a.schema.Check(m)
}

// codes are the codes of calls for the statuses of HTTP. All others are InvalidArgument.
var codes = map[int]connect.Code{
	http.StatusNotFound: connect.CodeNotFound, http.StatusGone: connect.CodeFailedPrecondition,
	http.StatusTooManyRequests: connect.CodeResourceExhausted, http.StatusInternalServerError: connect.CodeInternal,
	edge.StatusCanceled: connect.CodeCanceled, http.StatusServiceUnavailable: connect.CodeUnavailable, http.StatusGatewayTimeout: connect.CodeDeadlineExceeded,
}

// callError makes an error one of Connect, with a wire.Problem in its details.
func (a *API) callError(ctx context.Context, err error) error {
	r := a.refusalOf(ctx, err)
	code, ok := codes[r.status]
	if !ok {
		code = connect.CodeInvalidArgument
	}
	out := connect.NewError(code, errors.New(text(r.detail)))
	if r.retryAfter != "" {
		out.Meta().Set("Retry-After", r.retryAfter)
	}
	if detail, err := connect.NewErrorDetail(r.problem()); err == nil {
		out.AddDetail(detail)
	}
	return out
}

// Cells implements wire.QueryServiceHandler.
func (c calls) Cells(ctx context.Context, r *connect.Request[wire.CellsRequest]) (*connect.Response[wire.CellsResponse], error) {
	return call[wire.CellsRequest, wire.CellsResponse](ctx, c.api, r, fromMemory, c.api.cells)
}

// Matrix implements wire.QueryServiceHandler.
func (c calls) Matrix(ctx context.Context, r *connect.Request[wire.MatrixRequest]) (*connect.Response[wire.MatrixResponse], error) {
	return call[wire.MatrixRequest, wire.MatrixResponse](ctx, c.api, r, fromMemory, c.api.matrix)
}

// Path implements wire.QueryServiceHandler.
func (c calls) Path(ctx context.Context, r *connect.Request[wire.PathRequest]) (*connect.Response[wire.PathResponse], error) {
	return call[wire.PathRequest, wire.PathResponse](ctx, c.api, r, fromMemory, c.api.path)
}

// Locations implements wire.QueryServiceHandler.
func (c calls) Locations(ctx context.Context, r *connect.Request[wire.LocationsRequest]) (*connect.Response[wire.LocationsResponse], error) {
	return call[wire.LocationsRequest, wire.LocationsResponse](ctx, c.api, r, fromMemory, c.api.locations)
}

// Timeline implements wire.QueryServiceHandler.
func (c calls) Timeline(ctx context.Context, r *connect.Request[wire.TimelineRequest]) (*connect.Response[wire.TimelineResponse], error) {
	return call[wire.TimelineRequest, wire.TimelineResponse](ctx, c.api, r, fromMemory, c.api.timeline)
}

// Flows implements wire.QueryServiceHandler.
func (c calls) Flows(ctx context.Context, r *connect.Request[wire.FlowsRequest]) (*connect.Response[wire.FlowsResponse], error) {
	return call[wire.FlowsRequest, wire.FlowsResponse](ctx, c.api, r, fromStore, c.api.flows)
}

// Findings implements wire.QueryServiceHandler.
func (c calls) Findings(ctx context.Context, r *connect.Request[wire.FindingsRequest]) (*connect.Response[wire.FindingsResponse], error) {
	return call[wire.FindingsRequest, wire.FindingsResponse](ctx, c.api, r, fromStore, c.api.findings)
}

// Fabric implements wire.QueryServiceHandler.
func (c calls) Fabric(ctx context.Context, r *connect.Request[wire.FabricRequest]) (*connect.Response[wire.FabricResponse], error) {
	return call[wire.FabricRequest, wire.FabricResponse](ctx, c.api, r, fromStore, c.api.fabric)
}

// Health implements wire.QueryServiceHandler.
func (c calls) Health(ctx context.Context, r *connect.Request[wire.HealthRequest]) (*connect.Response[wire.HealthResponse], error) {
	return call[wire.HealthRequest, wire.HealthResponse](ctx, c.api, r, fromStore, c.api.health)
}

// Watch implements wire.QueryServiceHandler.
func (c calls) Watch(ctx context.Context, r *connect.Request[wire.WatchRequest], stream *connect.ServerStream[wire.WatchResponse]) error {
	w := &caller{api: c.api, stream: stream.Conn()}
	if out, ok := ctx.Value(sendKey{}).(*http.ResponseController); ok {
		_ = out.SetReadDeadline(time.Time{})
		w.out = out
	}
	err := c.api.follow(ctx, r.Msg, w)
	if err == nil || w.gone != nil {
		return w.gone
	}
	w.extend() // for the end of the stream
	return c.api.callError(ctx, err)
}

// follow tells of events until ctx ends or sending one fails.
func (a *API) follow(ctx context.Context, in *wire.WatchRequest, to recipient) error {
	if err := a.check(in); err != nil {
		return err
	}
	w, leave, err := a.newWatch(ctx, in, in.GetAfter())
	if err != nil {
		return err
	}
	defer leave()
	return w.run(ctx, to)
}

// caller is the recipient of a watch that is a call.
type caller struct {
	api    *API
	out    *http.ResponseController // nil in tests
	stream interface{ Send(any) error }
	gone   error // why the caller could not be sent an event
}

// send implements recipient.
func (c *caller) send(t *turn, e *event) error {
	called, err := e.called()
	if err != nil {
		return err
	}
	c.extend()
	if c.api.sends.isCut(t) {
		c.gone = os.ErrDeadlineExceeded
		return c.gone
	}
	c.gone = c.stream.Send(&calledInTurn{called, c.api.sends, t})
	return c.gone
}

func (c *caller) extend() {
	if c.out != nil {
		_ = c.out.SetWriteDeadline(time.Now().Add(c.api.SendTimeout))
	}
}

// stop implements recipient.
func (c *caller) stop() {
	if c.out != nil {
		_ = c.out.SetWriteDeadline(past)
	}
}

// called is the event as calls have it.
func (e *event) called() (*calledEvent, error) {
	if e.sent != nil {
		return e.sent.called.get(e.newCalled)
	}
	return e.newCalled()
}

// newCalled makes a message of the event.
func (e *event) newCalled() (*calledEvent, error) {
	out := &wire.WatchResponse{Id: e.id}
	switch v := e.whole().(type) {
	case *wire.CellsResponse:
		out.Event = &wire.WatchResponse_Snapshot{Snapshot: v}
	case *wire.Synced:
		out.Event = &wire.WatchResponse_Synced{Synced: v}
	case *wire.WindowEvent:
		out.Event = &wire.WatchResponse_Window{Window: v}
	case *wire.Durable:
		out.Event = &wire.WatchResponse_Durable{Durable: v}
	case *wire.Heartbeat:
		out.Event = &wire.WatchResponse_Heartbeat{Heartbeat: v}
	case *wire.Gap:
		if out.Event = (&wire.WatchResponse_Gap{Gap: v}); e.name == eventLagging {
			out.Event = &wire.WatchResponse_Lagging{Lagging: v}
		}
	default:
		return nil, fmt.Errorf("tell %s: %T is no event", e.name, v)
	}
	return &calledEvent{message: out}, nil
}

// calledEvent is an event as calls have it, encoded once for all who are told of it. It is safe
// for concurrent use.
type calledEvent struct {
	message      *wire.WatchResponse
	binary, json lazily[[]byte]
}

// encoded is the event in the codec's encoding. It is not to be written to.
func (e *calledEvent) encoded(c codec) ([]byte, error) {
	in := &e.binary
	if c.json {
		in = &e.json
	}
	return in.get(func() ([]byte, error) { return c.append(nil, e.message) })
}

// calledInTurn is an event that one caller is sent.
type calledInTurn struct {
	event *calledEvent // nil once it is encoded: a caller that is slow must not keep it
	sends *sends
	turn  *turn
}

// appendTo appends the encoded event, of which connect keeps a copy for each caller until it is
// sent.
func (e *calledInTurn) appendTo(b []byte, c codec) ([]byte, error) {
	whole, err := e.event.encoded(c)
	e.event = nil
	e.sends.weigh(e.turn, len(whole), true)
	return append(b, whole...), err
}

// codec is one of connect's encodings of messages, with events that are encoded once for all.
// In JSON it refuses names that no message has: a filter that was misspelled must not be passed
// over.
type codec struct {
	name string
	json bool
}

// inCodecs puts them in the place of connect's own, under all of their names. Events are not
// compressed: that would be done for each watcher again.
func inCodecs() connect.HandlerOption {
	return connect.WithHandlerOptions(
		connect.WithCodec(codec{"proto", false}), connect.WithCodec(codec{"json", true}), connect.WithCodec(codec{"json; charset=utf-8", true}),
		connect.WithConditionalHandlerOptions(func(call connect.Spec) []connect.HandlerOption {
			if call.Procedure != wire.QueryServiceWatchProcedure {
				return nil
			}
			return []connect.HandlerOption{connect.WithCompressMinBytes(math.MaxInt)}
		}),
	)
}

// Name implements connect.Codec.
func (c codec) Name() string { return c.name }

// Marshal implements connect.Codec.
func (c codec) Marshal(v any) ([]byte, error) { return c.MarshalAppend(nil, v) }

// MarshalAppend is what connect calls instead where there is a buffer. An event is copied: connect
// may write to what it is given.
func (c codec) MarshalAppend(b []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case *calledInTurn:
		return v.appendTo(b, c)
	case proto.Message:
		return c.append(b, v)
	}
	return nil, fmt.Errorf("encode answer: %T is no message", v)
}

func (c codec) append(b []byte, m proto.Message) ([]byte, error) {
	if c.json {
		return protojson.MarshalOptions{}.MarshalAppend(b, m)
	}
	return proto.MarshalOptions{}.MarshalAppend(b, m)
}

// Unmarshal implements connect.Codec.
func (c codec) Unmarshal(data []byte, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("read request: %T is no message", v)
	}
	if c.json {
		return protojson.Unmarshal(data, m)
	}
	return proto.Unmarshal(data, m)
}
