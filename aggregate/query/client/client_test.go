package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/query/client"
	"github.com/csigscope/csigscope/aggregate/query/querytest"
	"github.com/csigscope/csigscope/aggregate/query/wire"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/aggregate/table/tabletest"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/ingest/edge"
	"github.com/csigscope/csigscope/ingest/edge/edgetest"
)

var begin = time.Date(2026, 1, 20, 9, 0, 0, 0, time.UTC)

func window(t *testing.T, m *table.Memory, second int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, uint64(second)))
	b := tabletest.Block(rng, 0, begin.Add(time.Duration(second)*time.Second), 16, csig.MinABWRatio)
	if err := m.WriteBlock(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	m.Publish()
}

func serve(t *testing.T) (*table.Memory, *httptest.Server, *client.Client) {
	t.Helper()
	m := table.NewMemory(table.MemoryOptions{Now: tabletest.Still})
	past := querytest.Fabric(4, 2)
	past.FlowRows, past.FindingRows = querytest.Flows(past, 20), querytest.Findings(past, 20)
	a, err := api.New(api.Config{Memory: m, Names: tabletest.Names{Racks: 4}, Reader: past})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	c, err := client.New(server.URL+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	return m, server, c
}

func TestQuestions(t *testing.T) {
	m, _, c := serve(t)
	window(t, m, 0)
	whole, err := c.AllCells(t.Context(), nil)
	if err != nil || len(whole.Cells) != 16 {
		t.Fatalf("%d cells, %v", len(whole.Cells), err)
	}
	pages, err := c.AllCells(t.Context(), url.Values{"limit": {"5"}})
	if diff := cmp.Diff(whole, pages, protocmp.Transform(), protocmp.IgnoreFields(&wire.About{}, "as_of", "age_s")); err != nil || diff != "" {
		t.Errorf("pages: %v (-whole +pages):\n%s", err, diff)
	}
	p, err := c.Path(t.Context(), url.Values{"src": {"rack1"}, "dst": {"rack2"}})
	if err != nil || p.Cell.Dst != "rack2" || p.Room == nil {
		t.Errorf("path %+v, %v", p, err)
	}
	if l, err := c.Locations(t.Context(), nil); err != nil || len(l.Locations) == 0 {
		t.Errorf("locations %+v, %v", l, err)
	}
	if l, err := c.Flows(t.Context(), url.Values{"signal": {"max_delay"}, "limit": {"5"}}); err != nil || len(l.Flows) != 5 || l.Total != 20 {
		t.Errorf("flows %+v, %v", l, err)
	}
	if l, err := c.Findings(t.Context(), url.Values{"severity": {"error"}}); err != nil || len(l.Findings) == 0 {
		t.Errorf("findings %+v, %v", l, err)
	}
	if l, err := c.Timeline(t.Context(), nil); err != nil || len(l.Timeline) != 1 {
		t.Errorf("timeline %+v, %v", l, err)
	}
	var refused *client.Error
	if _, err := c.Cells(t.Context(), url.Values{"src": {"nobody"}}); !errors.As(err, &refused) || refused.Status != 422 || len(refused.Errors) != 1 {
		t.Errorf("refused with %v", err)
	}
	if _, err := c.Cells(t.Context(), url.Values{"limit": {"0"}, "form": {"x"}}); !errors.As(err, &refused) || refused.Status != 422 || len(refused.Errors) != 2 {
		t.Errorf("refused before it was asked with %v", err)
	}
	if _, err := c.Cells(t.Context(), url.Values{"after": {"0"}, "wait": {"2s"}}); !errors.As(err, &refused) || len(refused.Errors) != 2 || !strings.Contains(err.Error(), "call Watch or Changes") {
		t.Errorf("wait: %v", err)
	}
	for _, server := range []string{"", "127.0.0.1:9465", "ftp://host", "http://"} {
		if _, err := client.New(server, nil); err == nil {
			t.Errorf("server %q is taken", server)
		}
	}
}

// TestWatchResumes: a broken stream resumes where it was.
func TestWatchResumes(t *testing.T) {
	m, server, c := serve(t)
	window(t, m, 0)
	ctx, cancel := context.WithCancel(t.Context())
	events := make(chan *wire.WatchResponse, 16)
	var watching sync.WaitGroup
	watching.Go(func() {
		err := c.Watch(ctx, url.Values{"src": {"rack1"}}, func(e *wire.WatchResponse) error {
			events <- e
			return nil
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("watch ended with %v", err)
		}
	})
	if e := <-events; len(e.GetSnapshot().GetCells()) != 4 {
		t.Errorf("first event %+v", e)
	}
	if e := <-events; e.GetSynced() == nil {
		t.Errorf("second event %+v", e)
	}
	for second := 1; second <= 3; second++ {
		if second == 2 {
			server.CloseClientConnections()
		}
		window(t, m, second)
		e := <-events
		if !e.GetWindow().GetWindowStart().AsTime().Equal(begin.Add(time.Duration(second) * time.Second)) {
			t.Errorf("event %+v, want window %d", e, second)
		}
	}
	if err := m.Sync(t.Context(), func(context.Context) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if e := <-events; len(e.GetDurable().GetWindowStarts()) != 4 {
		t.Errorf("event %+v, want four durable windows", e)
	}
	cancel()
	watching.Wait()
	stop := errors.New("enough")
	if err := c.Watch(t.Context(), nil, func(*wire.WatchResponse) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("stopped with %v", err)
	}
	var refused *client.Error
	if err := c.Watch(t.Context(), url.Values{"level": {"x"}}, func(*wire.WatchResponse) error { return nil }); !errors.As(err, &refused) {
		t.Errorf("refused with %v", err)
	}
}

// TestChangesResume: so does a stream of changes.
func TestChangesResume(t *testing.T) {
	m, server, c := serve(t)
	window(t, m, 0)
	stop, second, passed := errors.New("enough"), 0, ""
	err := c.Changes(t.Context(), nil, func(e *wire.ChangesResponse) error {
		switch {
		case e.GetInitial() != nil && second > 0:
			t.Errorf("the stream began again after %s", passed)
		case len(e.GetInitial().GetChanges()) == 0 && second == 0 && passed == "" && e.GetSynced() == nil:
			t.Errorf("first event %v", e)
		case e.GetChanges() != nil && e.Id != e.GetChanges().Revision:
			t.Errorf("event %s of %s", e.Id, e.GetChanges().Revision)
		}
		if passed = e.Id; passed == "" {
			return nil
		}
		if second++; second == 4 {
			return stop
		}
		if second == 2 {
			server.CloseClientConnections()
		}
		window(t, m, second)
		return nil
	})
	if !errors.Is(err, stop) {
		t.Errorf("stopped with %v", err)
	}
}

// TestExport: a table comes with its ending.
func TestExport(t *testing.T) {
	m, _, c := serve(t)
	window(t, m, 0)
	var out bytes.Buffer
	end, err := c.Export(t.Context(), client.TableCells, url.Values{"src": {"rack1"}}, &out)
	if err != nil || *end != (client.Exported{Rows: 4, Complete: true}) || bytes.Count(out.Bytes(), []byte("\n")) != 5 {
		t.Errorf("%+v, %v: %s", end, err, &out)
	}
	for table, rows := range map[string]int{client.TableFlows: 20, client.TableFindings: 20} {
		out.Reset()
		parameters := url.Values{"format": {"parquet"}}
		if table == client.TableFlows {
			parameters.Set("signal", "max_delay")
		}
		if end, err := c.Export(t.Context(), table, parameters, &out); err != nil || end.Rows != rows || !bytes.HasPrefix(out.Bytes(), []byte("PAR1")) {
			t.Errorf("%s: %+v, %v", table, end, err)
		}
	}
	var refused *client.Error
	if _, err := c.Export(t.Context(), client.TableCells, url.Values{"format": {"xlsx"}}, &out); !errors.As(err, &refused) {
		t.Errorf("refused with %v", err)
	}
	cut := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, strings.Repeat("x", 1<<16))
		panic(http.ErrAbortHandler)
	}))
	defer cut.Close()
	if c, err = client.New(cut.URL, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Export(t.Context(), client.TableCells, nil, &out); err == nil || !strings.Contains(err.Error(), "broke off") {
		t.Errorf("cut off: %v", err)
	}
}

// TestWatchNeverAnswered: a watch of an unreachable server ends at once; one that is refused for
// now is retried, and the caller gets the reason before the wait.
func TestWatchNeverAnswered(t *testing.T) {
	t.Parallel()
	c, err := client.New("http://"+refusing(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	c.Retrying = func(why error, _ time.Duration) { t.Errorf("tried again after %v", why) }
	if err := c.Watch(t.Context(), nil, func(*wire.WatchResponse) error { return nil }); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("ended with %v", err)
	}
	full := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		edge.WriteProblem(w, http.StatusServiceUnavailable, "too many watch")
	}))
	defer full.Close()
	if c, err = client.New(full.URL, nil); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	told := 0
	c.Retrying = func(why error, wait time.Duration) {
		if told++; !strings.Contains(why.Error(), "too many watch") || wait <= 0 {
			t.Errorf("reported %v, %s", why, wait)
		}
		cancel()
	}
	err = c.Watch(ctx, nil, func(*wire.WatchResponse) error { return nil })
	if !errors.Is(err, context.Canceled) || told != 1 {
		t.Errorf("told %d times, ended with %v", told, err)
	}
}

// TestWatchLimited: a client beyond its limits ends at its first attempt; a later one is repeated,
// not before Retry-After, whether the refusal comes from the API or from the server before it.
func TestWatchLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var attempts []http.HandlerFunc
		c, err := client.New("http://server", &http.Client{Transport: transport(func(w http.ResponseWriter, r *http.Request) {
			if len(attempts) == 0 {
				edge.WriteProblem(w, http.StatusGone, "more attempts than expected")
				return
			}
			next := attempts[0]
			attempts = attempts[1:]
			next(w, r)
		})})
		if err != nil {
			t.Fatal(err)
		}
		var waits []time.Duration
		c.Retrying = func(_ error, wait time.Duration) { waits = append(waits, wait) }
		_, ended := wire.NewQueryServiceHandler(limiting{})
		away := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
		refuse := func(status int, retryAfter string) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", retryAfter)
				edge.WriteProblem(w, status, "")
			}
		}
		guard := func(auth edge.Auth) http.HandlerFunc {
			access := &edge.Access{Settings: edge.Settings{Limits: edge.Limits{Requests: 1. / 60, Burst: 1}}}
			s, err := edge.New(edge.Config{Auth: &auth, Access: access, Refused: func(edge.Reason, ...slog.Attr) {}})
			if err != nil {
				t.Fatal(err)
			}
			return s.Guard(http.HandlerFunc(ended.ServeHTTP)).ServeHTTP
		}
		clients := filepath.Join(t.TempDir(), "clients")
		edgetest.WriteTokens(t, clients, edgetest.TokenLine("te", "read", "secret", ""))
		limited, strict := guard(edge.Auth{Anonymous: edge.Peer{Name: "anonymous", Role: edge.Read}}), guard(edge.Auth{Clients: clients})
		for _, tt := range []struct {
			attempts []http.HandlerFunc
			least    []time.Duration // of the waits
			status   uint32
		}{
			{[]http.HandlerFunc{refuse(429, "7")}, nil, 429},
			{[]http.HandlerFunc{ended.ServeHTTP, refuse(429, "7"), away, refuse(401, "")}, []time.Duration{9 * time.Second, 7 * time.Second, time.Second / 2}, 401},
			{[]http.HandlerFunc{limited, limited, strict}, []time.Duration{9 * time.Second, 50 * time.Second}, 401},
			{[]http.HandlerFunc{refuse(503, "8"), away, refuse(429, "soon"), refuse(404, "")}, []time.Duration{8 * time.Second, time.Second / 2, time.Second / 2}, 404},
		} {
			attempts, waits = tt.attempts, nil
			err := c.Watch(t.Context(), nil, func(*wire.WatchResponse) error { return nil })
			var refused *client.Error
			if !errors.As(err, &refused) || refused.Status != tt.status || len(attempts) > 0 || len(waits) != len(tt.least) {
				t.Fatalf("ended with %v after %v, want %d after %v", err, waits, tt.status, tt.least)
			}
			for i, least := range tt.least {
				if waits[i] < least {
					t.Errorf("waits %v, want at least %v", waits, tt.least)
				}
			}
		}
	})
}

// transport is a server without a network. A handler that panics gives no answer.
type transport http.HandlerFunc

// RoundTrip implements http.RoundTripper.
func (h transport) RoundTrip(r *http.Request) (answer *http.Response, err error) {
	defer func() {
		if recover() != nil {
			err = io.ErrUnexpectedEOF
		}
	}()
	w := httptest.NewRecorder()
	h(w, r)
	return w.Result(), nil
}

// limiting is an API whose streams end after an event, at a limit of the client.
type limiting struct {
	wire.UnimplementedQueryServiceHandler
}

// Watch implements wire.QueryServiceHandler.
func (limiting) Watch(_ context.Context, _ *connect.Request[wire.WatchRequest], s *connect.ServerStream[wire.WatchResponse]) error {
	if err := s.Send(&wire.WatchResponse{Id: "1-1", Event: &wire.WatchResponse_Heartbeat{Heartbeat: &wire.Heartbeat{}}}); err != nil {
		return err
	}
	limited := connect.NewError(connect.CodeResourceExhausted, errors.New("wait or watch already"))
	limited.Meta().Set("Retry-After", "9")
	detail, err := connect.NewErrorDetail(&wire.Problem{Title: "Too Many Requests", Status: http.StatusTooManyRequests})
	if err != nil {
		return err
	}
	limited.AddDetail(detail)
	return limited
}

// refusing is an address on which no process listens or can listen: its bound socket never does.
func refusing(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", at.(*syscall.SockaddrInet4).Port)
}
