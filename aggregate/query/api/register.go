package api

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/csigscope/csigscope/aggregate/query/wire"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/ingest/edge"
)

// register serves the methods of the service, over HTTP and as calls.
func (a *API) register(mux, calls *http.ServeMux) {
	question[wire.VerdictResponse](a, mux, calls, "Verdict", fromMemory, a.verdict)
	question[wire.CellsResponse](a, mux, calls, "Cells", fromMemory, a.cells)
	question[wire.MatrixResponse](a, mux, calls, "Matrix", fromMemory, a.matrix)
	question[wire.PathResponse](a, mux, calls, "Path", fromMemory, a.path)
	question[wire.LocationsResponse](a, mux, calls, "Locations", fromMemory, a.locations)
	question[wire.LinksResponse](a, mux, calls, "Links", fromMemory, a.links)
	question[wire.TopologyResponse](a, mux, calls, "Topology", fromStore, a.wires)
	question[wire.TimelineResponse](a, mux, calls, "Timeline", fromMemory, a.timeline)
	question[wire.FlowsResponse](a, mux, calls, "Flows", fromStore, a.flows)
	question[wire.FindingsResponse](a, mux, calls, "Findings", fromStore, a.findings)
	question[wire.FabricResponse](a, mux, calls, "Fabric", fromStore, a.fabric)
	question[wire.HealthResponse](a, mux, calls, "Health", fromStore, a.health)
	stream[wire.WatchResponse](a, mux, calls, "Watch", a.newWatch)
	stream[wire.ChangesResponse](a, mux, calls, "Changes", a.newChanges)
}

// question serves a method with one answer, of the type R.
func question[R, Q any, P message[Q]](a *API, mux, calls *http.ServeMux, method string, from source, f func(context.Context, *table.State, P) (*answer, error)) {
	serve(a, mux, strings.ToLower(method), from, f)
	procedure, options := a.callOptions(method)
	calls.Handle(procedure, a.timed(connect.NewUnaryHandler(procedure, func(ctx context.Context, r *connect.Request[Q]) (*connect.Response[R], error) {
		return call[Q, R](ctx, a, r, from, f)
	}, options)))
}

// stream serves a method with a stream of events, in a call as responses of the type R.
func stream[R, Q any, M message[R], P streamRequest[Q]](a *API, mux, calls *http.ServeMux, method string, open opener[P]) {
	mux.HandleFunc("/api/v1/"+strings.ToLower(method), serveStream(a, open))
	procedure, options := a.callOptions(method)
	calls.Handle(procedure, a.timed(connect.NewServerStreamHandler(procedure, func(ctx context.Context, r *connect.Request[Q], to *connect.ServerStream[R]) error {
		return send(ctx, a, P(r.Msg), open, &caller{api: a, stream: to.Conn(), response: M(new(R)).ProtoReflect().Type()})
	}, options)))
}

// source is where a question is answered from.
type source bool

// Questions from memory are answered from the store if they have a time range.
const (
	fromStore  source = false
	fromMemory source = true
)

// message is a pointer to a message.
type message[Q any] interface {
	*Q
	proto.Message
}

// serve serves one kind of question.
func serve[Q any, P message[Q]](a *API, mux *http.ServeMux, name string, from source, f func(context.Context, *table.State, P) (*answer, error)) {
	mux.HandleFunc("/api/v1/"+name, func(w http.ResponseWriter, r *http.Request) {
		in := P(new(Q))
		s, ok := a.begin(w, r, in, from)
		if !ok {
			return
		}
		found, err := work(r.Context(), a, s, in, f)
		var head, cells []byte
		if err == nil {
			head, cells, err = found.json(a.schema)
		}
		if err != nil {
			a.refuse(r.Context(), w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if found.state != nil && from == fromMemory {
			w.Header().Set("ETag", etag(found.state))
		}
		if _, err = w.Write(head); err == nil && cells != nil {
			_, err = w.Write(cells)
		}
		if err != nil {
			a.Logger.DebugContext(r.Context(), "send answer", slog.Any("error", err))
		}
	})
}

// begin reads a request and returns the state to answer it from, nil for the store. ok is false
// if begin has answered: the request is invalid, or nothing has changed.
func (a *API) begin(w http.ResponseWriter, r *http.Request, in proto.Message, from source) (s *table.State, ok bool) {
	wait := &waiting{client: r.Header}
	requests := []proto.Message{in}
	if from == fromMemory {
		wait.WaitRequest = &wire.WaitRequest{}
		requests = append(requests, wait.WaitRequest)
	}
	err := a.schema.Parse(r.URL.Query(), requests...)
	fresh := true
	if err == nil {
		s, fresh, err = a.source(r.Context(), in, from, wait)
	}
	switch {
	case err != nil:
		a.refuse(r.Context(), w, err)
	case !fresh: // the client has this revision
		w.Header().Set("ETag", etag(s))
		w.WriteHeader(http.StatusNotModified)
	default:
		return s, true
	}
	return nil, false
}

// source returns the state to answer from, nil for the store. fresh is false if the client has it
// already.
func (a *API) source(ctx context.Context, in proto.Message, from source, wait *waiting) (s *table.State, fresh bool, err error) {
	if from == fromStore {
		return nil, true, nil
	}
	if r, ok := in.(times); ok {
		if _, _, past, err := historyOf(r); past || err != nil {
			if asked, ok := in.(resolved); ok && err == nil && asked.GetResolution() != nil {
				err = wrong("resolution", asked.GetResolution().AsDuration().String(), "applies only to windows in memory: leave it out, or from and to")
			}
			return nil, true, err
		}
	}
	m, err := a.memoryOf(in)
	if err != nil {
		return nil, true, err
	}
	return a.state(ctx, m, wait)
}

// work computes an answer when a slot is free, within the time limit, after any wait for a
// revision.
func work[P proto.Message](ctx context.Context, a *API, s *table.State, in P, f func(context.Context, *table.State, P) (*answer, error)) (found *answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, a.Timeout)
	defer cancel()
	err = a.withSlot(ctx, a.slots, func() error {
		if found, err = f(ctx, s, in); err == nil && found.state == nil {
			err = a.countProducers(ctx, found.value)
		}
		return err
	})
	if err != nil {
		return nil, a.refusalOf(ctx, err) // only the current context shows whether its time was up
	}
	if found.state != nil { // otherwise the store's reader has charged them
		edge.BudgetOf(ctx).ChargeRows(len(found.chosen))
	}
	return found, nil
}

// WithSlot calls f when a slot is free among the API's answers, within their time limit. It is for
// documents that are served beside the API's own.
func (a *API) WithSlot(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, a.Timeout)
	defer cancel()
	return a.withSlot(ctx, a.slots, func() error { return f(ctx) })
}

// withSlot calls f while it holds a slot.
func (a *API) withSlot(ctx context.Context, slots chan struct{}, f func() error) error {
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.Canceled) {
			return ctx.Err()
		}
		return &refused{status: http.StatusServiceUnavailable, detail: "too many requests at a time: try again later", retryAfter: retryAfter}
	}
	return f()
}

// measure is a value in the signal's unit, nil without one.
func measure(s csig.Signal, v float64) *wire.Measure {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	switch s.Unit() {
	case csig.BitPerSecond:
		return &wire.Measure{Value: &wire.Measure_Bps{Bps: v}}
	case csig.Ratio:
		return &wire.Measure{Value: &wire.Measure_Ratio{Ratio: v}}
	case csig.Nanosecond:
		return &wire.Measure{Value: &wire.Measure_Ns{Ns: v}}
	case csig.Count:
		return &wire.Measure{Value: &wire.Measure_Count{Count: v}}
	}
	return nil
}
