package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpcreflect"
	"google.golang.org/protobuf/proto"

	"github.com/csigscope/csigscope/aggregate/query/model"
	"github.com/csigscope/csigscope/aggregate/query/wire"
)

// Source answers questions. It is safe for concurrent use.
type Source interface {
	// Ask answers the question of that name, such as "cells", with a pointer to its answer
	// in package model. What is not answered is a Refused.
	Ask(ctx context.Context, name string, parameters url.Values) (any, error)
	// Watch tells of events until ctx ends or told fails. What cannot begin is a Refused.
	Watch(ctx context.Context, parameters url.Values, told func(*Event) error) error
}

// Refused says why there is no answer.
type Refused struct {
	model.Problem
	RetryAfter string // as the header of HTTP; empty for none
}

// Error implements error.
func (r *Refused) Error() string { return r.Detail }

// Config configures Register.
type Config struct {
	Source Source
	// AnswerTimeout bounds an answer and SendTimeout an event of a watch, each with its way
	// to the asker: the server's own limits do not apply.
	AnswerTimeout, SendTimeout time.Duration
	Logger                     *slog.Logger
}

// maxRequest bounds a request, in bytes; the longest sensible one lists some hundred names.
const maxRequest = 64 << 10

// minCompressed is how long an answer is at least that is worth being compressed.
const minCompressed = 1 << 10

// Register serves the service, and what tells tools of it (gRPC server reflection).
func Register(mux *http.ServeMux, c Config) {
	s := &service{c}
	path, h := wire.NewQueryServiceHandler(s,
		connect.WithReadMaxBytes(maxRequest), connect.WithCompressMinBytes(minCompressed), inCodecs(),
		connect.WithRecover(func(ctx context.Context, call connect.Spec, _ http.Header, p any) error {
			c.Logger.ErrorContext(ctx, "answer call", slog.String("procedure", call.Procedure), slog.Any("panic", p))
			return connect.NewError(connect.CodeInternal, errors.New("the server could not answer: its log says why"))
		}))
	mux.Handle(path, s.timed(h))
	tells := grpcreflect.NewStaticReflector(wire.QueryServiceName)
	mux.Handle(grpcreflect.NewHandlerV1(tells, connect.WithReadMaxBytes(maxRequest)))
	mux.Handle(grpcreflect.NewHandlerV1Alpha(tells, connect.WithReadMaxBytes(maxRequest)))
}

type service struct{ Config }

type sendKey struct{}

// timed puts calls under the limits of the service.
func (s *service) timed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		send := http.NewResponseController(w) // a writer that knows no limits is a test's
		_ = send.SetWriteDeadline(time.Now().Add(s.AnswerTimeout))
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), sendKey{}, send)))
	})
}

// ask answers a call.
func ask[M, W any](ctx context.Context, s *service, name string, request proto.Message, convert func(*M) *W) (*connect.Response[W], error) {
	values, err := parameters(request)
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	found, err := s.Source.Ask(ctx, name, values)
	if err != nil {
		return nil, s.refused(ctx, err)
	}
	value, ok := found.(*M)
	if !ok {
		return nil, s.refused(ctx, fmt.Errorf("answer %s: %T is no answer to it", name, found))
	}
	return connect.NewResponse(convert(value)), nil
}

// statusCanceled is the status of a refusal that nobody waits for any more.
const statusCanceled = 499

// codes are what refusals of HTTP are called here; others are of requests that cannot be met.
var codes = map[int]connect.Code{
	http.StatusNotFound: connect.CodeNotFound, http.StatusGone: connect.CodeFailedPrecondition,
	http.StatusTooManyRequests: connect.CodeResourceExhausted, http.StatusInternalServerError: connect.CodeInternal,
	statusCanceled: connect.CodeCanceled, http.StatusServiceUnavailable: connect.CodeUnavailable, http.StatusGatewayTimeout: connect.CodeDeadlineExceeded,
}

// refused is an error as the caller is told of it.
func (s *service) refused(ctx context.Context, err error) error {
	var r *Refused
	if !errors.As(err, &r) {
		switch ended := ctx.Err(); {
		case errors.Is(ended, context.DeadlineExceeded):
			return connect.NewError(connect.CodeDeadlineExceeded, ended)
		case ended != nil:
			return connect.NewError(connect.CodeCanceled, ended)
		}
		s.Logger.ErrorContext(ctx, "answer call", slog.Any("error", err))
		return connect.NewError(connect.CodeInternal, errors.New("the server could not answer: its log says why"))
	}
	code, ok := codes[r.Status]
	if !ok {
		code = connect.CodeInvalidArgument
	}
	out := connect.NewError(code, errors.New(text(r.Detail)))
	if r.RetryAfter != "" {
		out.Meta().Set("Retry-After", r.RetryAfter)
	}
	if detail, err := connect.NewErrorDetail(problem(&r.Problem)); err == nil {
		out.AddDetail(detail)
	}
	return out
}

func problem(p *model.Problem) *wire.Problem {
	out := &wire.Problem{Title: p.Title, Status: uint32(p.Status), Detail: text(p.Detail)}
	for _, e := range p.Errors {
		out.Errors = append(out.Errors, &wire.ProblemDetail{Message: text(e.Message), Location: text(e.Location)})
	}
	return out
}

// Watch implements wire.QueryServiceHandler.
func (s *service) Watch(ctx context.Context, r *connect.Request[wire.WatchRequest], stream *connect.ServerStream[wire.WatchResponse]) error {
	values, err := parameters(r.Msg)
	if err != nil {
		return connect.NewError(connect.CodeInvalidArgument, err)
	}
	extend := func() {}
	if send, ok := ctx.Value(sendKey{}).(*http.ResponseController); ok {
		_ = send.SetReadDeadline(time.Time{})
		extend = func() { _ = send.SetWriteDeadline(time.Now().Add(s.SendTimeout)) }
	}
	err = s.Source.Watch(ctx, values, func(e *Event) error {
		extend()
		return stream.Conn().Send(e)
	})
	if err == nil {
		return nil
	}
	extend() // for the end of the stream
	return s.refused(ctx, err)
}
