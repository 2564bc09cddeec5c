package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"os"
	"runtime/debug"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/csigscope/csigscope/aggregate/query/wire"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/ingest/edge"
)

// maxCall bounds a call's request, in bytes; the longest sensible one lists some hundred names.
const maxCall = 64 << 10

// minCompressed is the minimum length of an answer to a call for compression.
const minCompressed = 1 << 10

// withCalls adds server reflection (grpc.reflection.v1), health checks (grpc.health.v1), and the
// questions over HTTP to the calls.
func (a *API) withCalls(mux *http.ServeMux, next http.Handler) http.Handler {
	services := grpcreflect.NewStaticReflector(wire.QueryServiceName, grpchealth.HealthV1ServiceName)
	mux.Handle(grpcreflect.NewHandlerV1(services, connect.WithReadMaxBytes(maxCall)))
	mux.Handle(grpcreflect.NewHandlerV1Alpha(services, connect.WithReadMaxBytes(maxCall)))
	mux.Handle(grpchealth.NewHandler(checker{a}, connect.WithReadMaxBytes(maxCall)))
	mux.Handle("/", unimplemented(next))
	return mux
}

// unimplemented refuses calls of unknown services and methods in the form of their protocol, and
// passes all other requests to next.
func unimplemented(next http.Handler) http.Handler {
	calls := connect.NewErrorWriter(connect.WithRequireConnectProtocolHeader())
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !calls.IsSupported(r) {
			next.ServeHTTP(w, r)
			return
		}
		err := connect.NewError(connect.CodeUnimplemented, fmt.Errorf("no such method %.200q: server reflection lists them", r.URL.Path))
		_ = calls.Write(w, r, err) // a client that left reads no error
	})
}

// checker answers health checks.
type checker struct{ api *API }

// Check implements grpchealth.Checker. An API without windows in memory is healthy as long as its
// store answers.
func (c checker) Check(ctx context.Context, r *grpchealth.CheckRequest) (*grpchealth.CheckResponse, error) {
	if r.Service != "" && r.Service != wire.QueryServiceName {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("no such service %.200q", r.Service))
	}
	status := grpchealth.StatusServing
	if c.api.Memory == nil {
		ctx, cancel := context.WithTimeout(ctx, storePatience)
		defer cancel()
		if _, err := c.api.storedExtent(ctx); err != nil {
			status = grpchealth.StatusNotServing
		}
	}
	return &grpchealth.CheckResponse{Status: status}, nil
}

type sendKey struct{}

// timed gives calls their own time limits: the server's limits are for short answers.
func (a *API) timed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		send := http.NewResponseController(w) // only a test's writer has no deadlines
		_ = send.SetWriteDeadline(time.Now().Add(a.Timeout + sendTimeout))
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), sendKey{}, send)))
	})
}

// callOptions returns the path of a method's calls, and their options.
func (a *API) callOptions(method string) (procedure string, options connect.HandlerOption) {
	return "/" + wire.QueryServiceName + "/" + method, connect.WithHandlerOptions(
		connect.WithSchema(wire.File_query_proto.Services().ByName("QueryService").Methods().ByName(protoreflect.Name(method))),
		connect.WithReadMaxBytes(maxCall), connect.WithCompressMinBytes(minCompressed), inCodecs(),
		connect.WithRecover(func(ctx context.Context, call connect.Spec, _ http.Header, p any) error {
			a.Logger.ErrorContext(ctx, "answer call", slog.String("procedure", call.Procedure), slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
			return connect.NewError(connect.CodeInternal, errors.New("the server could not answer: its log says why"))
		}))
}

// call answers one call.
func call[Q, R any, P message[Q]](ctx context.Context, a *API, in *connect.Request[Q], from source, f func(context.Context, *table.State, P) (*answer, error)) (*connect.Response[R], error) {
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

// check validates a call's request against the options of its fields.
func (a *API) check(m proto.Message) error {
	if len(m.ProtoReflect().GetUnknown()) > 0 {
		return &refused{
			status: http.StatusBadRequest,
			detail: "the request has a parameter that this server does not know: leave it out, or ask a server of a later version",
		}
	}
	return a.schema.Check(m)
}

// codes are the codes of calls for HTTP statuses. All others are InvalidArgument.
var codes = map[int]connect.Code{
	http.StatusNotFound: connect.CodeNotFound, http.StatusGone: connect.CodeFailedPrecondition,
	http.StatusTooManyRequests: connect.CodeResourceExhausted, http.StatusInternalServerError: connect.CodeInternal,
	edge.StatusCanceled: connect.CodeCanceled, http.StatusServiceUnavailable: connect.CodeUnavailable, http.StatusGatewayTimeout: connect.CodeDeadlineExceeded,
}

// callError converts an error to one of Connect, with a wire.Problem in its details.
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

// send sends a caller the events of a stream.
func send[Q any, P streamRequest[Q]](ctx context.Context, a *API, in P, open opener[P], to *caller) error {
	if out, ok := ctx.Value(sendKey{}).(*http.ResponseController); ok {
		_ = out.SetReadDeadline(time.Time{})
		to.out = out
	}
	err := follow(ctx, a, in, open, to)
	if err == nil || to.gone != nil {
		return to.gone
	}
	to.extend() // for the end of the stream
	return a.callError(ctx, err)
}

// follow sends events until ctx ends or sending one fails.
func follow[Q any, P streamRequest[Q]](ctx context.Context, a *API, in P, open opener[P], to recipient) error {
	if err := a.check(in); err != nil {
		return err
	}
	w, leave, err := begin(ctx, a, in, in.GetAfter(), open)
	if err != nil {
		return err
	}
	defer leave()
	return w.run(ctx, to)
}

// caller is the recipient of a stream that is a call.
type caller struct {
	api      *API
	out      *http.ResponseController // nil in tests
	stream   interface{ Send(any) error }
	response protoreflect.MessageType // of the call: an event is the field of its name
	gone     error                    // the error that kept an event from the caller
}

// send implements recipient.
func (c *caller) send(t *turn, e *event) error {
	called, err := e.called(c.response)
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
		_ = c.out.SetWriteDeadline(time.Now().Add(sendTimeout))
	}
}

// charge implements recipient: connect keeps a copy of the event for each caller.
func (c *caller) charge(askedEvent) any { return c }

// stop implements recipient.
func (c *caller) stop() {
	if c.out != nil {
		_ = c.out.SetWriteDeadline(past)
	}
}

// called returns the event in its form for calls: a response whose field of the event's name holds
// it.
func (e *event) called(response protoreflect.MessageType) (*calledEvent, error) {
	return e.inCall.get(func() (*calledEvent, error) {
		m := response.New()
		fields := m.Descriptor().Fields()
		m.Set(fields.ByName("id"), protoreflect.ValueOfString(e.id))
		m.Set(fields.ByName(protoreflect.Name(e.name)), protoreflect.ValueOfMessage(e.whole().ProtoReflect()))
		return &calledEvent{message: m.Interface()}, nil
	})
}

// calledEvent is an event in its form for calls, encoded once for all recipients. It is safe for
// concurrent use.
type calledEvent struct {
	message      proto.Message
	binary, json lazily[[]byte]
}

// encoded returns the event in the codec's encoding. The caller must not modify it.
func (e *calledEvent) encoded(c codec) ([]byte, error) {
	in := &e.binary
	if c.json {
		in = &e.json
	}
	return in.get(func() ([]byte, error) { return c.append(nil, e.message) })
}

// calledInTurn is an event that is being sent to one caller.
type calledInTurn struct {
	event *calledEvent // nil once it is encoded: a slow caller must not keep it
	sends *sends
	turn  *turn
}

// appendTo appends the encoded event.
func (e *calledInTurn) appendTo(b []byte, c codec) ([]byte, error) {
	whole, err := e.event.encoded(c)
	e.event = nil
	e.sends.weigh(e.turn, len(whole))
	return append(b, whole...), err
}

// codec is one of connect's encodings of messages. It encodes each event once for all recipients.
// In JSON it refuses unknown names of fields: a misspelled filter must not be ignored.
type codec struct {
	name string
	json bool
}

// inCodecs replaces connect's codecs, under all of their names. Events are not compressed, which
// would be repeated for each watcher.
func inCodecs() connect.HandlerOption {
	return connect.WithHandlerOptions(
		connect.WithCodec(codec{"proto", false}), connect.WithCodec(codec{"json", true}), connect.WithCodec(codec{"json; charset=utf-8", true}),
		connect.WithConditionalHandlerOptions(func(call connect.Spec) []connect.HandlerOption {
			if call.StreamType != connect.StreamTypeServer {
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

// MarshalAppend is called instead of Marshal if connect has a buffer. It copies an event: connect
// may write to the result.
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
