package api_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/alto"
	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/query/querytest"
	"github.com/csigscope/csigscope/aggregate/query/rest"
	"github.com/csigscope/csigscope/aggregate/query/wire"
	"github.com/csigscope/csigscope/ingest/edge/edgetest"
)

// endpoint is a request that reads the store.
type endpoint struct {
	path  string // of calls, without the service
	query string // or the body of calls and of ALTO
	media string // of a body
	// each is the number of reads per request beyond those of every answer; -1 if it is answered
	// without the store.
	each int
}

// endpoints are all endpoints, each asked for history if it has one.
func endpoints() (list []endpoint) {
	const (
		rack = "&src=rack1&dst=rack2"
		past = "from=2026-01-20T09:00:00Z&to=2026-01-20T09:00:04Z"
		sent = `"from":"2026-01-20T09:00:00Z","to":"2026-01-20T09:00:04Z"`
	)
	for _, e := range []struct {
		path, query, call, body string
		each                    int
	}{
		{"verdict", past, "Verdict", sent, 3*3 + 3}, // for three signals
		{"cells", past, "Cells", sent, 2},
		{"matrix", past, "Matrix", sent, 2},
		{"path", past + rack, "Path", sent + `,"src":"rack1","dst":"rack2"`, 3},
		{"locations", past, "Locations", sent, 2},
		{"links", past, "Links", sent, 4},
		{"topology", "", "Topology", "", -1},
		{"timeline", past + "&step=1s", "Timeline", sent + `,"step":"1s"`, 4},
		{"flows", past, "Flows", sent, 2},
		{"findings", past, "Findings", sent, 1},
		{"fabric", "", "Fabric", "", 0},
		{"health", "", "Health", "", -1},
		{"watch", "", "", "", 0},
		{"changes", "", "", "", 0},
		{"export", past, "", "", 1},
		{"export/flows", past, "", "", 1},
		{"export/findings", past, "", "", 1},
		{"bundle", "signal=min_abw_ratio&level=location", "", "", 2},
		{"frames", "signal=min_abw_ratio&level=location", "", "", 1},
		{"extent", "", "", "", 0},
		{"openapi.json", "", "", "", -1},
	} {
		list = append(list, endpoint{path: "/api/v1/" + e.path, query: e.query, each: e.each})
		if e.call != "" {
			list = append(list, endpoint{path: "/" + wire.QueryServiceName + "/" + e.call, query: "{" + e.body + "}", media: "application/json", each: e.each})
		}
	}
	for _, call := range []string{"Watch", "Changes"} {
		list = append(list, endpoint{
			path: "/" + wire.QueryServiceName + "/" + call, query: "\x00\x00\x00\x00\x02{}", media: "application/connect+json",
		})
	}
	const asked = `{"cost-type":{"cost-mode":"numerical","cost-metric":"bw-available"},"endpoints":{"srcs":["ipv4:10.0.0.1"],"dsts":["ipv4:10.0.0.2"]}}`
	for path, e := range map[string]endpoint{
		"directory": {each: -1}, "networkmap": {}, "costmap/": {},
		"networkmap/filtered": {query: `{"pids":[]}`, media: "application/alto-networkmapfilter+json"},
		"costmap/filtered":    {query: asked, media: "application/alto-costmapfilter+json"},
		"endpointprop":        {query: `{"properties":["csigscope-network-map.pid"],"endpoints":["ipv4:10.0.0.1"]}`, media: "application/alto-endpointpropparams+json"},
		"endpointcost":        {query: asked, media: "application/alto-endpointcostparams+json"},
	} {
		e.path = alto.Path + path
		if path == "costmap/" {
			for _, kind := range []string{"num-routingcost", "num-bw-available", "num-bw-available-min", "num-csig-max-hop-delay", "ord-routingcost", "ord-bw-available", "ord-bw-available-min", "ord-csig-max-hop-delay"} {
				list = append(list, endpoint{path: e.path + kind, each: e.each})
			}
			continue
		}
		list = append(list, e)
	}
	return list
}

func (e *endpoint) request() *http.Request {
	if e.media == "" {
		return httptest.NewRequest("GET", e.path+"?"+e.query, nil)
	}
	r := httptest.NewRequest("POST", e.path, strings.NewReader(e.query))
	r.Header.Set("Content-Type", e.media)
	return r
}

// TestEndpointsAreMetered: a client that has used up its budget cannot cause reads of the store
// through any endpoint, and the common reads of all answers happen once for many requests.
func TestEndpointsAreMetered(t *testing.T) {
	all := endpoints()
	checkEndpoints(t, all)
	for _, e := range all {
		memory := querytest.Fabric(2, 4)
		h := meteredHandler(t, memory)
		limited := edgetest.Limited(t, time.Second, h)
		w := httptest.NewRecorder()
		limited.ServeHTTP(w, e.request())
		if n := memory.Calls(); n != 0 || e.each >= 0 && w.Code != http.StatusTooManyRequests && !strings.Contains(w.Body.String(), "resource_exhausted") {
			t.Errorf("%s: %d reads for a client without a budget, status %d: %.200s", e.path, n, w.Code, w.Body)
		}
		if path := strings.ToLower(e.path); strings.HasSuffix(path, "/watch") || strings.HasSuffix(path, "/changes") {
			continue // never ends
		}
		const requests = 20
		for range requests {
			w = httptest.NewRecorder()
			h.ServeHTTP(w, e.request())
			if w.Code != http.StatusOK {
				t.Fatalf("%s: status %d: %.200s", e.path, w.Code, w.Body)
			}
		}
		const beginning = 4 // extent, groups, locations, peers
		if n := memory.Calls(); n > beginning+requests*max(e.each, 0) || e.each >= 0 && n == 0 {
			t.Errorf("%s: %d reads for %d requests, want at most %d each, and what all begin with once", e.path, n, requests, e.each)
		}
	}
}

// meteredHandler serves all endpoints over a reader, with a clock that advances slightly: no two
// answers have the same time.
func meteredHandler(t *testing.T, memory *querytest.Memory) http.Handler {
	t.Helper()
	var looked atomic.Int64
	now := func() time.Time { return begin.Add(time.Duration(looked.Add(1))) }
	reader := query.Metered(memory, now)
	s := newServed(t, 4, func(c *api.Config) { c.Reader, c.Names, c.Now = reader, nil, now })
	s.window(t, 0)
	mux := http.NewServeMux()
	mux.Handle("/", s)
	mux.Handle(alto.Path, alto.New(alto.Config{Memory: s.memory, Groups: reader.Groups, WithSlot: s.WithSlot, Now: now}))
	return mux
}

// checkEndpoints: the list has everything in the API's document, its service and ALTO's
// directory.
func checkEndpoints(t *testing.T, list []endpoint) {
	t.Helper()
	known := make(map[string]bool)
	for _, e := range list {
		known[e.path] = true
	}
	var document struct{ Paths map[string]any }
	if err := json.Unmarshal(rest.Document, &document); err != nil || len(document.Paths) == 0 {
		t.Fatal(err)
	}
	for path := range document.Paths {
		if !known[path] && !strings.HasPrefix(path, "/api/v1/admin/") {
			t.Errorf("%s is served, and nothing checks that it is metered", path)
		}
	}
	methods := wire.File_query_proto.Services().Get(0).Methods()
	for i := range methods.Len() {
		if path := "/" + wire.QueryServiceName + "/" + string(methods.Get(i).Name()); !known[path] {
			t.Errorf("%s is served, and nothing checks that it is metered", path)
		}
	}
	w := httptest.NewRecorder()
	meteredHandler(t, querytest.Fabric(2, 4)).ServeHTTP(w, httptest.NewRequest("GET", alto.Directory, nil))
	var directory struct {
		Resources map[string]struct{ URI string }
	}
	if err := json.Unmarshal(w.Body.Bytes(), &directory); err != nil || len(directory.Resources) == 0 {
		t.Fatalf("%v: %s", err, w.Body)
	}
	for _, r := range directory.Resources {
		if path, err := url.JoinPath(alto.Path, r.URI); err != nil || !known[path] {
			t.Errorf("%s is served, and nothing checks that it is metered", path)
		}
	}
}
