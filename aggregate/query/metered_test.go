package query_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/querytest"
	"github.com/csigscope/csigscope/ingest/edge"
	"github.com/csigscope/csigscope/ingest/edge/edgetest"
)

// everyMethod calls all methods of a metered reader, and returns their errors by name.
func everyMethod(ctx context.Context, r query.Reader) map[string]error {
	failed := make(map[string]error)
	extent, err := r.Extent(ctx)
	failed["Extent"] = err
	_, failed["Groups"] = r.Groups(ctx)
	_, failed["Locations"] = r.Locations(ctx)
	_, failed["Peers"] = r.(query.Linker).Peers(ctx)
	q := query.Question{From: querytest.Start, To: querytest.Start.Add(2 * time.Second), Step: time.Second}
	if len(extent.Signals) > 0 {
		q.Signal = extent.Signals[0]
	}
	_, failed["Signals"] = r.Signals(ctx, q)
	_, failed["Cells"] = r.Cells(ctx, q)
	_, failed["CellWindows"] = r.CellWindows(ctx, q)
	_, failed["EachCellWindow"] = r.EachCellWindow(ctx, q, 3, func(*aggregate.CellWindow) error { return nil })
	_, failed["LocationWindows"] = r.LocationWindows(ctx, q)
	_, failed["TopLocations"] = r.TopLocations(ctx, q, 3)
	_, failed["CellLocations"] = r.CellLocations(ctx, q)
	_, failed["Flows"] = r.Flows(ctx, query.FlowQuestion{Signal: q.Signal, From: q.From, To: q.To, Limit: 3})
	_, failed["Findings"] = r.Findings(ctx, query.FindingQuestion{From: q.From, To: q.To, Limit: 3})
	_, failed["Missing"] = r.Missing(ctx, q.From, q.To, time.Second)
	_, failed["CountProducers"] = r.CountProducers(ctx, q.From, q.To)
	return failed
}

// TestMetered: all reads are charged to the budget, and nothing is read once that is used up.
func TestMetered(t *testing.T) {
	for i := range reflect.TypeFor[query.Reader]().NumMethod() {
		name := reflect.TypeFor[query.Reader]().Method(i).Name
		if _, called := everyMethod(t.Context(), query.Metered(querytest.Fabric(2, 2), time.Now))[name]; !called {
			t.Errorf("%s: the test does not call it", name)
		}
	}
	server, err := edge.New(edge.Config{Auth: &edge.Auth{Anonymous: edge.Peer{Name: "anonymous", Role: edge.Read}}, Access: &edge.Access{}})
	if err != nil {
		t.Fatal(err)
	}
	memory := querytest.Fabric(2, 2)
	r := query.Metered(memory, time.Now)
	server.Guard(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		for name, err := range everyMethod(q.Context(), r) {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	if s := server.Stats(); s.Rows == 0 || s.StoreTime <= 0 || memory.Calls() != 15 {
		t.Errorf("charged %d rows and %s for %d reads", s.Rows, s.StoreTime, memory.Calls())
	}
	memory = querytest.Fabric(2, 2)
	r = query.Metered(memory, time.Now)
	edgetest.Limited(t, 1500*time.Millisecond, http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		for name, err := range everyMethod(q.Context(), r) {
			var limited *edge.LimitError
			if !errors.As(err, &limited) || limited.RetryAfter() != "2" {
				t.Errorf("%s: %v, want a budget that is used up", name, err)
			}
		}
	})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	if n := memory.Calls(); n != 0 {
		t.Errorf("%d reads for a client without a budget", n)
	}
}

// TestMeteredReadsOnce: the common reads of all answers happen once in a while, and a client
// without a budget gets the previous result.
func TestMeteredReadsOnce(t *testing.T) {
	memory, now := querytest.Fabric(2, 2), time.Unix(1e9, 0)
	r := query.Metered(memory, func() time.Time { return now })
	begin := func(ctx context.Context) {
		t.Helper()
		var groups []fabric.Group
		_, err := r.Extent(ctx)
		if err == nil {
			groups, err = r.Groups(ctx)
		}
		if err != nil || len(groups) == 0 {
			t.Errorf("%v, %v", groups, err)
		}
	}
	for range 100 {
		begin(t.Context())
	}
	if n := memory.Calls(); n != 2 {
		t.Errorf("%d reads for 100 requests, want one of each list", n)
	}
	now = now.Add(time.Second)
	edgetest.Limited(t, time.Second, http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) { begin(q.Context()) })).
		ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	if n := memory.Calls(); n != 2 {
		t.Errorf("%d reads, want none for a client without a budget", n)
	}
	begin(t.Context())
	if n := memory.Calls(); n != 4 {
		t.Errorf("%d reads, want each list again", n)
	}
}

// TestBundleLimited: a client that has used up its budget gets Retry-After.
func TestBundleLimited(t *testing.T) {
	h := query.NewHandler(query.HandlerConfig{Reader: query.Metered(querytest.Fabric(2, 2), time.Now)})
	w := httptest.NewRecorder()
	edgetest.Limited(t, 1500*time.Millisecond, h).ServeHTTP(w, httptest.NewRequest("GET", "/api/v1/bundle", nil))
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "2" || !strings.Contains(w.Body.String(), "shorter ranges") {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}
