package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/query/querytest"
	"github.com/csigscope/csigscope/aggregate/query/rest/resttest"
	"github.com/csigscope/csigscope/aggregate/query/wire"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/ingest/edge/edgetest"
)

// h2c serves HTTP/2 without TLS, as commands do.
func h2c(t testing.TB, h http.Handler) (*http.Client, string) {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}, server.URL
}

// caller is a client that speaks gRPC by default.
func caller(t testing.TB, h http.Handler, options ...connect.ClientOption) wire.QueryServiceClient {
	t.Helper()
	client, url := h2c(t, h)
	if options == nil {
		options = []connect.ClientOption{connect.WithGRPC()}
	}
	return wire.NewQueryServiceClient(client, url, options...)
}

// newCalled has windows in memory, and history.
func newCalled(t testing.TB, change func(*api.Config)) *served {
	t.Helper()
	store := querytest.Fabric(4, 10)
	store.FlowRows, store.FindingRows = querytest.Flows(store, 25), querytest.Findings(store, 12)
	store.Gaps = []query.Span{{From: begin, To: begin.Add(time.Second)}}
	s := newServed(t, 16, func(c *api.Config) {
		c.Reader = store
		if change != nil {
			change(c)
		}
	})
	for second := range 3 {
		s.window(t, second)
	}
	return s
}

func call[Q, R any](t *testing.T, f func(context.Context, *connect.Request[Q]) (*connect.Response[R], error), q *Q) *R {
	t.Helper()
	r, err := f(t.Context(), connect.NewRequest(q))
	if err != nil {
		t.Fatal(err)
	}
	return r.Msg
}

// TestCalls: calls and the same questions over HTTP have equal answers, field by field, from
// memory and from the store.
func TestCalls(t *testing.T) {
	s := newCalled(t, nil)
	c := caller(t, s)
	from, to := timestamppb.New(begin), timestamppb.New(begin.Add(10*time.Second))
	two, half := uint32(2), 0.5
	src, dst := []string{"rack1"}, []string{"pod1", "pod2"}
	for target, message := range map[string]proto.Message{
		"cells": call(t, c.Cells, &wire.CellsRequest{}),
		"cells?signal=max_delay&windows=2&src=rack1&level=device":            call(t, c.Cells, &wire.CellsRequest{Signal: "max_delay", Windows: &two, Src: src, Level: "device"}),
		"cells?max_room_ratio=0.5&dst=pod1&dst=pod2&state=congested&limit=2": call(t, c.Cells, &wire.CellsRequest{MaxRoomRatio: &half, Dst: dst, State: []wire.State{wire.State_STATE_CONGESTED}, Limit: &two}),
		"cells?min_heavy_ratio=0.5&" + past:                                  call(t, c.Cells, &wire.CellsRequest{MinHeavyRatio: &half, From: from, To: to}),
		"matrix?signal=min_abw":                                              call(t, c.Matrix, &wire.MatrixRequest{Signal: "min_abw"}),
		"matrix?" + past:                                                     call(t, c.Matrix, &wire.MatrixRequest{From: from, To: to}),
		"path?src=rack1&dst=rack2":                                           call(t, c.Path, &wire.PathRequest{Src: "rack1", Dst: "rack2"}),
		"path?src=rack1&dst=rack2&" + past:                                   call(t, c.Path, &wire.PathRequest{Src: "rack1", Dst: "rack2", From: from, To: to}),
		"locations?top=2&level=device":                                       call(t, c.Locations, &wire.LocationsRequest{Top: &two, Level: "device"}),
		"locations?" + past:                                                  call(t, c.Locations, &wire.LocationsRequest{From: from, To: to}),
		"timeline?src=rack1&top=2":                                           call(t, c.Timeline, &wire.TimelineRequest{Src: src, Top: &two}),
		"timeline?src=rack1&dst=rack2&step=2s&" + past: call(t, c.Timeline, &wire.TimelineRequest{
			Src: src, Dst: []string{"rack2"}, Step: durationpb.New(2 * time.Second), From: from, To: to,
		}),
		"flows?signal=max_delay&src_address=10.0.0.0/8&kind=tag&limit=2": call(t, c.Flows, &wire.FlowsRequest{
			Signal: "max_delay", SrcAddress: "10.0.0.0/8", Kind: []wire.Kind{wire.Kind_KIND_TAG}, Limit: &two,
		}),
		"findings?severity=error&severity=info": call(t, c.Findings, &wire.FindingsRequest{Severity: []wire.Severity{wire.Severity_SEVERITY_ERROR, wire.Severity_SEVERITY_INFO}}),
		"fabric":                                call(t, c.Fabric, &wire.FabricRequest{}),
		"health":                                call(t, c.Health, &wire.HealthRequest{}),
	} {
		w := s.get(t, "/api/v1/"+target)
		if w.Code != 200 || w.Body.Len() < 200 {
			t.Errorf("%s: %d %s", target, w.Code, w.Body)
		}
		told := message.ProtoReflect().New().Interface()
		if err := resttest.Read(w.Body.Bytes(), told); err != nil {
			t.Errorf("%s: %v", target, err)
		}
		if diff := cmp.Diff(told, message, protocmp.Transform(), cmpopts.EquateNaNs()); diff != "" {
			t.Errorf("%s (-HTTP +call):\n%.2000s", target, diff)
		}
	}
}

// TestCallParameters: requests have the parameters of their endpoints, and no others.
func TestCallParameters(t *testing.T) {
	var doc struct {
		Paths map[string]struct {
			Get struct{ Parameters []struct{ Name, In string } }
		}
	}
	s := newServed(t, 4, nil)
	if err := json.Unmarshal(s.get(t, "/openapi.json").Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	methods := wire.File_query_proto.Services().Get(0).Methods()
	for i := range methods.Len() {
		m := methods.Get(i)
		var want, got []string
		for _, p := range doc.Paths["/api/v1/"+strings.ToLower(string(m.Name()))].Get.Parameters {
			// Streams themselves wait for revisions; flows are answered at once.
			if p.In == "query" && (m.IsStreamingServer() || m.Name() == "Flows" || p.Name != "after" && p.Name != "wait") {
				want = append(want, p.Name)
			}
		}
		fields := m.Input().Fields()
		for n := range fields.Len() {
			f := fields.Get(n)
			if k := f.Kind(); k == protoreflect.Uint32Kind || k == protoreflect.DoubleKind || k == protoreflect.Uint64Kind {
				if !f.HasPresence() {
					t.Errorf("%s: %s that is 0 cannot be told from one that is not set", m.Name(), f.Name())
				}
			}
			got = append(got, string(f.Name()))
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(want, got) {
			t.Errorf("%s takes %q, the endpoint %q", m.Name(), got, want)
		}
	}
	if methods.Len() != 14 {
		t.Errorf("%d methods", methods.Len())
	}
}

// logLines are lines of a log.
type logLines chan string

// Write implements io.Writer.
func (l logLines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

// TestCallWatch: a stream has the same events as over HTTP, ends with the API, which is no error in
// the log, and frees its place when the caller leaves.
func TestCallWatch(t *testing.T) {
	for name, option := range map[string]connect.ClientOption{"gRPC": connect.WithGRPC(), "gRPC-Web": connect.WithGRPCWeb(), "Connect": connect.WithProtoJSON()} {
		t.Run(name, func(t *testing.T) {
			logged := make(logLines, 16)
			s := newCalled(t, func(c *api.Config) { c.Watchers, c.Logger = 2, slog.New(slog.NewTextHandler(logged, nil)) })
			running, end := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { defer close(ended); _ = s.Run(running) }()
			url := listen(t, s) + "/api/v1/watch?signal=max_delay&src=rack1"
			c := caller(t, s, option)
			events := open(t, url)
			stream := watch(t, c, &wire.WatchRequest{Signal: "max_delay", Src: []string{"rack1"}})
			compare := func(want string) *wire.WatchResponse {
				t.Helper()
				e := events.next(t)
				if !stream.Receive() || e.name != want {
					t.Fatalf("event %s, want %s: %v", e.name, want, stream.Err())
				}
				m := stream.Msg().ProtoReflect()
				inner := m.Get(m.WhichOneof(m.Descriptor().Oneofs().ByName("event"))).Message().Interface()
				told := inner.ProtoReflect().New().Interface()
				if err := resttest.Read([]byte(e.data), told); err != nil {
					t.Error(err)
				}
				if diff := cmp.Diff(told, inner, protocmp.Transform()); diff != "" || stream.Msg().Id != e.id {
					t.Errorf("%s with id %q, want %q (-HTTP +call):\n%.1000s", want, stream.Msg().Id, e.id, diff)
				}
				return stream.Msg()
			}
			compare("snapshot")
			compare("synced")
			s.window(t, 3)
			id := compare("window").Id
			if third := watch(t, c, &wire.WatchRequest{}); third.Receive() || connect.CodeOf(third.Err()) != connect.CodeUnavailable {
				t.Errorf("a watcher too many: %v", third.Err())
			}
			s.window(t, 4)
			compare("window")
			stream.Close()
			resumed := watch(t, c, &wire.WatchRequest{After: id, Heartbeat: durationpb.New(time.Second)})
			for !resumed.Receive() && connect.CodeOf(resumed.Err()) == connect.CodeUnavailable { // until there is room again
				resumed = watch(t, c, &wire.WatchRequest{After: id, Heartbeat: durationpb.New(time.Second)})
			}
			if resumed.Msg().GetWindow() == nil || resumed.Msg().Id == id {
				t.Errorf("resumed with %v, %v", resumed.Msg(), resumed.Err())
			}
			if !resumed.Receive() || resumed.Msg().GetHeartbeat() == nil {
				t.Errorf("silence: %v, %v", resumed.Msg(), resumed.Err())
			}
			end()
			<-ended
			for resumed.Receive() {
			}
			if resumed.Err() == nil {
				t.Error("the stream ends as if all had been told")
			}
			if len(logged) > 0 {
				t.Errorf("logged %s", <-logged)
			}
		})
	}
}

func watch(t *testing.T, c wire.QueryServiceClient, q *wire.WatchRequest) *connect.ServerStreamForClient[wire.WatchResponse] {
	t.Helper()
	stream, err := c.Watch(t.Context(), connect.NewRequest(q))
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// TestReflection: tools such as grpcurl learn the service from the server.
func TestReflection(t *testing.T) {
	client, url := h2c(t, newCalled(t, nil))
	stream := grpcreflect.NewClient(client, url).NewStream(t.Context())
	names, err := stream.ListServices()
	if err != nil || !slices.Equal(names, []protoreflect.FullName{wire.QueryServiceName, grpchealth.HealthV1ServiceName}) {
		t.Errorf("services %v, %v", names, err)
	}
	if files, err := stream.FileContainingSymbol(wire.QueryServiceName); err != nil || len(files) == 0 {
		t.Errorf("%d files, %v", len(files), err)
	}
	if _, err := stream.Close(); err != nil {
		t.Error(err)
	}
}

// away is a reader of a store that does not answer.
type away struct{ query.Reader }

func (away) Extent(context.Context) (query.Extent, error) {
	return query.Extent{}, query.ErrUnavailable
}

// TestHealthChecks: an API without memory is healthy while its store answers, and unknown
// services are not found.
func TestHealthChecks(t *testing.T) {
	live := newCalled(t, nil)
	history := newServed(t, 4, func(c *api.Config) { c.Memory, c.Reader = nil, querytest.Fabric(4, 10) })
	away := newServed(t, 4, func(c *api.Config) { c.Memory, c.Reader = nil, away{querytest.Fabric(4, 10)} })
	const serving = "SERVING_STATUS_SERVING"
	for _, tt := range []struct {
		s       *served
		service string
		want    string
	}{
		{live, "", serving}, {live, wire.QueryServiceName, serving}, {history, "", serving}, {away, "", "SERVING_STATUS_NOT_SERVING"}, {live, "nobody.Service", "not_found"},
	} {
		client, url := h2c(t, tt.s)
		check := connect.NewClient[structpb.Struct, structpb.Struct](client, url+"/"+grpchealth.HealthV1ServiceName+"/Check", connect.WithProtoJSON())
		got := ""
		r, err := check.CallUnary(t.Context(), connect.NewRequest(&structpb.Struct{Fields: map[string]*structpb.Value{"service": structpb.NewStringValue(tt.service)}}))
		if err != nil {
			got = connect.CodeOf(err).String()
		} else {
			got = r.Msg.Fields["status"].GetStringValue()
		}
		if got != tt.want {
			t.Errorf("%q: %s, want %s", tt.service, got, tt.want)
		}
	}
}

// TestStoredExtent: health includes the store's extent, which is the only data without memory.
func TestStoredExtent(t *testing.T) {
	past := querytest.Fabric(4, 10)
	extent, err := past.Extent(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := &wire.Stored{First: timestamppb.New(extent.First), Last: timestamppb.New(extent.Last), Signals: csig.SignalNames(extent.Signals)}
	for name, memory := range map[string]bool{"memory": true, "store": false} {
		s := newServed(t, 4, func(c *api.Config) {
			if c.Reader = past; !memory {
				c.Memory = nil
			}
		})
		got := read[wire.HealthResponse](t, s.get(t, "/api/v1/health"))
		if diff := cmp.Diff(want, got.Stored, protocmp.Transform()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if !memory && (got.Source != "store" || !got.First.AsTime().Equal(extent.First) || !got.Last.AsTime().Equal(extent.Last) || len(got.Signals) == 0 || got.AgeS == nil) {
			t.Errorf("without memory: %v", got)
		}
	}
	empty := newServed(t, 4, func(c *api.Config) { c.Memory, c.Reader = nil, &querytest.Memory{} })
	if got := read[wire.HealthResponse](t, empty.get(t, "/api/v1/health")); got.Stored != nil || got.First != nil || got.Last != nil {
		t.Errorf("of an empty store: %v", got)
	}
}

// TestUnimplemented: calls of unknown services and methods are refused in their protocol.
func TestUnimplemented(t *testing.T) {
	client, url := h2c(t, newCalled(t, nil))
	for _, path := range []string{"/csigscope.query.v1.Nothing/Cells", "/" + wire.QueryServiceName + "/Nothing", "/" + wire.QueryServiceName + "/"} {
		for name, option := range map[string]connect.ClientOption{"grpc": connect.WithGRPC(), "grpc-web": connect.WithGRPCWeb(), "connect": connect.WithSendGzip()} {
			c := connect.NewClient[emptypb.Empty, emptypb.Empty](client, url+path, option)
			_, err := c.CallUnary(t.Context(), connect.NewRequest(&emptypb.Empty{}))
			if connect.CodeOf(err) != connect.CodeUnimplemented || !strings.Contains(err.Error(), "no such method") {
				t.Errorf("%s of %s: %v", name, path, err)
			}
		}
	}
}

// TestCallsRefused: refusals name the parameter and the fix, as over HTTP.
func TestCallsRefused(t *testing.T) {
	s := newCalled(t, nil)
	c := caller(t, s)
	none, below := uint32(0), -1.0
	code := connect.CodeOf
	cells := func(q *wire.CellsRequest) func() error {
		return func() error { _, err := c.Cells(t.Context(), connect.NewRequest(q)); return err }
	}
	path := func(q *wire.PathRequest) func() error {
		return func() error { _, err := c.Path(t.Context(), connect.NewRequest(q)); return err }
	}
	for name, tt := range map[string]struct {
		ask  func() error
		code connect.Code
		says string
	}{
		"signal":   {cells(&wire.CellsRequest{Signal: "x"}), connect.CodeInvalidArgument, "min_abw_ratio"},
		"limit":    {cells(&wire.CellsRequest{Limit: &none}), connect.CodeInvalidArgument, "limit: expected a whole number from 1 to 20000"},
		"room":     {cells(&wire.CellsRequest{MaxRoomRatio: &below}), connect.CodeInvalidArgument, "finite"},
		"time":     {cells(&wire.CellsRequest{From: &timestamppb.Timestamp{Seconds: 1 << 62}}), connect.CodeInvalidArgument, "from"},
		"cursor":   {cells(&wire.CellsRequest{Cursor: "MDAwMDAwMDAwMDAwMDAwOC0xLjEuMA"}), connect.CodeInvalidArgument, "start over"},
		"names":    {cells(&wire.CellsRequest{Src: slices.Repeat([]string{"rack1"}, 1000)}), connect.CodeInvalidArgument, "src: expected at most 64 values"},
		"large":    {cells(&wire.CellsRequest{Signal: strings.Repeat("x", 1<<17)}), connect.CodeResourceExhausted, "larger than"},
		"required": {path(&wire.PathRequest{Src: "rack1"}), connect.CodeInvalidArgument, "dst: required"},
		"several":  {path(&wire.PathRequest{Src: "rack1", Dst: "pod1"}), connect.CodeInvalidArgument, "several groups"},
		"nothing": {path(&wire.PathRequest{
			Src: "rack1", Dst: "rack1", From: timestamppb.New(begin), To: timestamppb.New(begin.Add(time.Second)),
		}), connect.CodeNotFound, "longer range"},
	} {
		if err := tt.ask(); code(err) != tt.code || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want %s: %s", name, err, tt.code, tt.says)
		}
	}
	later := &wire.CellsRequest{}
	later.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 999, protowire.VarintType), 1))
	if err := cells(later)(); code(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), "later version") {
		t.Errorf("a parameter of a later version: %v", err)
	}
	for _, kind := range []string{"application/json", "application/json; charset=utf-8"} {
		r := httptest.NewRequest("POST", wire.QueryServiceCellsProcedure, strings.NewReader(`{"max_room_ration": 0.1}`))
		r.Header.Set("Content-Type", kind)
		w := httptest.NewRecorder()
		if s.ServeHTTP(w, r); w.Code != 400 || !strings.Contains(w.Body.String(), "max_room_ration") {
			t.Errorf("a misspelled parameter: %d %.200s", w.Code, w.Body)
		}
	}
	_, err := c.Cells(t.Context(), connect.NewRequest(&wire.CellsRequest{Src: []string{"nobody"}}))
	var refused *connect.Error
	if !errors.As(err, &refused) || len(refused.Details()) != 1 {
		t.Fatalf("refused with %v", err)
	}
	detail, err := refused.Details()[0].Value()
	if p, ok := detail.(*wire.Problem); err != nil || !ok || p.Status != 422 || len(p.Errors) != 1 || p.Errors[0].Location != "query.src" {
		t.Errorf("details %v, %v", detail, err)
	}
	failing := newCalled(t, func(c *api.Config) { c.Reader = stuck{querytest.Fabric(2, 4), true} })
	q := &wire.CellsRequest{From: timestamppb.New(begin), To: timestamppb.New(begin.Add(time.Second))}
	if _, err := caller(t, failing).Cells(t.Context(), connect.NewRequest(q)); code(err) != connect.CodeInternal || strings.Contains(err.Error(), "secret") {
		t.Errorf("failed: %v", err)
	}
	slow := newCalled(t, func(c *api.Config) { c.Reader, c.Timeout = stuck{querytest.Fabric(2, 4), false}, 50*time.Millisecond })
	if _, err := caller(t, slow).Cells(t.Context(), connect.NewRequest(q)); code(err) != connect.CodeDeadlineExceeded {
		t.Errorf("cut: %v", err)
	}
	stream, err := caller(t, edgetest.Limited(t, 7*time.Second, s)).Watch(t.Context(), connect.NewRequest(&wire.WatchRequest{}))
	if err != nil || stream.Receive() || code(stream.Err()) != connect.CodeResourceExhausted {
		t.Errorf("limited: %v, %v", err, stream.Err())
	}
	if errors.As(stream.Err(), &refused) && refused.Meta().Get("Retry-After") != "1" {
		t.Errorf("limited: metadata %v", refused.Meta())
	}
}

// FuzzCalls: the response to any message is an answer or a refusal, and never an error of the
// server.
func FuzzCalls(f *testing.F) {
	seed := func(method string, m proto.Message) {
		body, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(method, body)
	}
	two, far := uint32(2), &timestamppb.Timestamp{Seconds: -1 << 60, Nanos: -1}
	seed("Cells", &wire.CellsRequest{Signal: "min_abw", Src: []string{"rack1"}, Limit: &two})
	seed("Matrix", &wire.MatrixRequest{From: far, To: far})
	seed("Path", &wire.PathRequest{Src: "rack1", Dst: "rack2"})
	seed("Locations", &wire.LocationsRequest{Top: &two})
	seed("Timeline", &wire.TimelineRequest{Step: durationpb.New(-1), From: timestamppb.New(begin), To: timestamppb.New(begin.Add(time.Second))})
	seed("Flows", &wire.FlowsRequest{Signal: "max_delay", SrcAddress: "10.0.0.0/8", Cursor: "aC4xLjIuMy40LjUuNg"})
	seed("Findings", &wire.FindingsRequest{Kind: []string{"'"}})
	seed("Fabric", &wire.FabricRequest{})
	seed("Health", &wire.HealthRequest{})
	f.Add("Nothing", []byte{0xff})
	s := newCalled(f, nil)
	f.Fuzz(func(t *testing.T, method string, body []byte) {
		r := httptest.NewRequest("POST", "/csigscope.query.v1.QueryService/", strings.NewReader(string(body)))
		r.URL.Path += method
		r.Header.Set("Content-Type", "application/proto")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code >= 500 {
			t.Errorf("%s of %q: status %d, body %.200s", method, body, w.Code, w.Body)
		}
	})
}
