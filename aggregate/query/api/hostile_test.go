package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/query/querytest"
	"github.com/csigscope/csigscope/aggregate/query/tabular"
	"github.com/csigscope/csigscope/aggregate/query/wire"
	"github.com/csigscope/csigscope/ingest/edge/edgetest"
)

// TestProblems: an error names the parameter, the expected values and the fix.
func TestProblems(t *testing.T) {
	s := newServed(t, 9, func(c *api.Config) { c.Reader = querytest.Fabric(2, 4) })
	s.window(t, 0)
	for target, tt := range map[string]struct {
		code int
		says string
	}{
		"cells?form=1":                    {422, "form: no such parameter"},
		"cells?limit=0":                   {422, "limit: expected a whole number from 1 to 20000"},
		"cells?limit=x":                   {422, "limit: expected a whole number"},
		"cells?max_room_bps=40G":          {422, "without a unit of at least 0, such as"},
		"cells?limit=1&limit=2":           {422, "limit: is given 2 times: give it once"},
		"links?link=a&link=b":             {422, `no such link "a"`},
		"flows?link=a&link=b":             {422, "no such link"},
		"cells?src=%zz":                   {400, "escape"},
		"cells?signal=max_speed":          {422, "min_abw_ratio"},
		"cells?level=galaxy":              {422, "expected one of location, set, device, stage, far_end"},
		"cells?src=rack99":                {422, `no such group "rack99": csigscope query cells names those with traffic, /api/v1/fabric all of them`},
		"cells?location=nowhere":          {422, `no such location "nowhere": csigscope query locations and /api/v1/fabric list them`},
		"cells?state=fine":                {422, "expected one of"},
		"cells?max_room_bps=1":            {422, "signal=min_abw"},
		"cells?max_room_ratio=NaN":        {422, "finite"},
		"cells?from=2026-01-20T09:00:00Z": {422, "give both"},
		"cells?from=now&to=then":          {422, "RFC 3339"},
		"cells?from=2026-01-20T10:00:00Z&to=2026-01-20T09:00:00Z": {422, "not before to"},
		"cells?cursor=abc":                   {422, "leave it out"},
		"cells?wait=30s":                     {422, "give after"},
		"cells?after=1&wait=1h":              {422, "from 0s to 1m0s"},
		"cells?after=x":                      {422, "revision"},
		"cells?after=99":                     {422, "ahead"},
		"flows?src_address=rack1":            {422, "10.0.1.0/24"},
		"flows?window=2s":                    {422, "expected one of"},
		"flows?signal=max_speed":             {422, "min_abw_ratio"},
		"flows?cursor=abc":                   {422, "leave it out"},
		"findings?severity=high":             {422, "expected one of"},
		"findings?location=nowhere":          {422, `no such location "nowhere": csigscope query locations and /api/v1/fabric list them`},
		"findings?from=2026-01-20T09:00:00Z": {422, "give both"},
		"timeline?step=1s":                   {422, "from and to"},
		"path?src=rack1":                     {422, "dst: required"},
		"path?src=pod1&dst=rack1":            {422, "src: stands for several groups"},
		"path?src=rack1&dst=pod1":            {422, "dst: stands for several groups"},
		"timeline?step=500ms&from=2026-01-20T09:00:00Z&to=2026-01-20T09:00:10Z": {422, "step: expected a step that is a multiple of a stored resolution: 1s"},
		"timeline?step=1s&from=2026-01-20T09:00:00Z&to=2026-01-20T19:00:00Z":    {422, "step: 36000 windows of 1s, at most 3600"},
		"watch?heartbeat=1ms":                    {422, "from 1s to 1m"},
		"watch?after=x":                          {422, "revision"},
		"watch?after=99":                         {422, "ahead"},
		"nothing":                                {404, "/openapi.json"},
		"cells?src=" + strings.Repeat("a", 5000): {414, "fewer groups"},
	} {
		w := s.get(t, "/api/v1/"+target)
		var p wire.Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%.60s: %v, type %s: %.200s", target, err, w.Header().Get("Content-Type"), w.Body)
		}
		if w.Code != tt.code || int(p.Status) != tt.code || !strings.Contains(p.Detail, tt.says) {
			t.Errorf("%.60s: %d %q, want %d %q", target, w.Code, p.Detail, tt.code, tt.says)
		}
	}
	for method, code := range map[string]int{"POST": 405, "DELETE": 405, "HEAD": 200} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(method, "/api/v1/cells", nil))
		if w.Code != code {
			t.Errorf("%s: %d, want %d", method, w.Code, code)
		}
	}
}

// injections are values with a meaning in SQL, shells, file systems, HTML or HTTP.
var injections = []string{
	"' OR 1=1 --", "rack1'; DROP TABLE partials_1s; --", `" UNION SELECT file('/etc/passwd')`, "rack1) OR (1=1", "{x:UInt64}",
	"../../../../etc/passwd", "..%2f..%2fetc%2fpasswd", "file:///etc/passwd", "$(id)", "`id`", "|id",
	"<script>alert(1)</script>", "rack1\r\nX-Evil: 1", "\x00", "%s%n%x", "\xff\xfe", "1e999", "-1", "99999999999999999999", "０",
}

// injectionTargets are injections as parameters of history questions: all of them where text
// reaches the store, and some where a name is resolved or a number parsed first.
func injectionTargets() (list []string) {
	add := func(path string, values []string, names ...string) {
		for _, name := range names {
			for _, value := range values {
				q := url.Values{"from": {"2026-01-20T09:00:00Z"}, "to": {"2026-01-20T09:00:01Z"}}
				q.Set(name, value)
				list = append(list, "/api/v1/"+path+"?"+q.Encode())
			}
		}
	}
	add("findings", injections, "kind", "device")
	add("findings", injections[:2], "severity", "location", "cursor")
	add("flows", injections[:2], "signal", "src", "src_address", "dst_address", "kind", "min_heavy", "window", "cursor")
	add("cells", injections[:2], "signal", "from", "src", "location", "cursor")
	add("timeline", injections[:2], "step", "src")
	add("path", injections[:2], "src", "signal")
	return list
}

// TestInjections: values are only names to look up. A reader gets only numbers.
func TestInjections(t *testing.T) {
	s := newServed(t, 9, func(c *api.Config) { c.Reader = querytest.Fabric(2, 4) })
	s.window(t, 0)
	want := s.get(t, "/api/v1/cells").Body.String()
	parameters := map[string][]string{
		"cells": {
			"signal", "level", "windows", "from", "to", "after", "wait", "src", "dst", "location", "state", "min_heavy_ratio",
			"min_room_bps", "max_room_bps", "min_room_ratio", "max_room_ratio", "limit", "cursor",
		},
		"matrix": {"signal", "level", "windows", "from", "to", "src", "dst", "after", "wait"}, "path": {"src", "dst", "signal", "level", "windows", "from", "to"},
		"locations": {"signal", "level", "windows", "from", "to", "top"}, "timeline": {"signal", "src", "dst", "windows", "top", "from", "to", "step"},
		"flows":    {"signal", "from", "to", "src", "dst", "src_address", "dst_address", "kind", "min_heavy", "window", "limit", "cursor"},
		"findings": {"severity", "location", "from", "to", "limit", "cursor"},
		"export":   {"signal", "src", "format", "from"},
		"fabric":   {"x"}, "health": {"x"}, "watch": {"signal", "level", "src", "dst", "after", "heartbeat"}, "changes": {"signal", "src", "link", "state", "after", "heartbeat"},
	}
	for path, names := range parameters {
		for _, name := range names {
			for _, value := range injections {
				q := url.Values{name: {value}}
				if path == "path" {
					q["src"], q["dst"] = append(q["src"], "rack1")[:1], append(q["dst"], "rack1")[:1]
				}
				if name == "from" || name == "to" {
					q["from"], q["to"] = append(q["from"], "2026-01-20T09:00:00Z")[:1], append(q["to"], "2026-01-20T09:00:01Z")[:1]
				}
				w := s.get(t, "/api/v1/"+path+"?"+q.Encode())
				if w.Code < 400 || w.Code >= 500 || w.Header().Get("Content-Type") != "application/problem+json" || !json.Valid(w.Body.Bytes()) {
					t.Errorf("%s: %s=%q: %d %.200s", path, name, value, w.Code, w.Body)
				}
				if strings.Contains(w.Body.String(), "<script>") || w.Header().Get("X-Evil") != "" || strings.Contains(w.Body.String(), "root:") {
					t.Errorf("%s: %s=%q comes back: %.200s", path, name, value, w.Body)
				}
			}
		}
	}
	for _, header := range []string{"If-None-Match", "Last-Event-ID"} {
		for _, value := range injections {
			if w := s.get(t, "/api/v1/cells", header, value); w.Code >= 500 {
				t.Errorf("%s %q: %d", header, value, w.Code)
			}
		}
	}
	if got := s.get(t, "/api/v1/cells").Body.String(); got != want {
		t.Error("answers have changed")
	}
}

// stuck is a store that does not answer until the request is canceled.
type stuck struct {
	*querytest.Memory
	failed bool
}

func (r stuck) Cells(ctx context.Context, _ query.Question) ([]aggregate.CellStats, error) {
	if r.failed {
		return nil, errors.New("dial tcp 10.0.0.1: secret")
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestExpensive: a question to the store ends at its limit, while windows close and are served.
// Internal errors are not disclosed.
func TestExpensive(t *testing.T) {
	const past = "/api/v1/cells?from=2026-01-20T09:00:00Z&to=2026-01-20T09:00:05Z"
	s := newServed(t, 9, func(c *api.Config) {
		c.Reader, c.Timeout = stuck{querytest.Fabric(2, 4), false}, 200*time.Millisecond
	})
	done := make(chan *httptest.ResponseRecorder)
	go func() { done <- s.get(t, past) }()
	for second := range 5 {
		s.window(t, second)
		if w := s.get(t, "/api/v1/cells"); w.Code != 200 {
			t.Errorf("beside it: %d %s", w.Code, w.Body)
		}
	}
	if w := <-done; w.Code != 504 || !strings.Contains(w.Body.String(), "shorter range") {
		t.Errorf("cut: %d %s", w.Code, w.Body)
	}
	s = newServed(t, 9, func(c *api.Config) { c.Reader = stuck{querytest.Fabric(2, 4), true} })
	if w := s.get(t, past); w.Code != 500 || strings.Contains(w.Body.String(), "secret") {
		t.Errorf("failed: %d %s", w.Code, w.Body)
	}
}

// broken is a store that panics.
type broken struct{ *querytest.Memory }

func (broken) Cells(context.Context, query.Question) ([]aggregate.CellStats, error) {
	panic("secret") // the server has to recover from it
}

// illegible is a store that panics when its names are read.
type illegible struct{ *querytest.Memory }

func (illegible) Groups(context.Context) ([]fabric.Group, error) {
	panic("secret") // the server has to recover from it
}

// TestPanic: a panic in the work on an answer fails this answer, and ends neither the server nor others. The log says where
// it was.
func TestPanic(t *testing.T) {
	for method, reader := range map[string]query.Reader{"broken.Cells": broken{querytest.Fabric(2, 4)}, "illegible.Groups": illegible{querytest.Fabric(2, 4)}} {
		var log bytes.Buffer
		s := newServed(t, 9, func(c *api.Config) { c.Reader, c.Logger = reader, slog.New(slog.NewTextHandler(&log, nil)) })
		logged := func(question string) {
			if text := log.String(); !strings.Contains(text, "secret") || !strings.Contains(text, method) {
				t.Errorf("%T, %s: %s", reader, question, text)
			}
			log.Reset()
		}
		for _, question := range []string{"cells", "verdict"} {
			if w := s.get(t, "/api/v1/"+question+"?"+past); w.Code != 500 || strings.Contains(w.Body.String(), "secret") {
				t.Errorf("%T, %s: %d %s", reader, question, w.Code, w.Body)
			}
			logged(question)
		}
		q := &wire.CellsRequest{From: timestamppb.New(begin), To: timestamppb.New(begin.Add(10 * time.Second))}
		if _, err := caller(t, s).Cells(t.Context(), connect.NewRequest(q)); connect.CodeOf(err) != connect.CodeInternal || strings.Contains(err.Error(), "secret") {
			t.Errorf("%T, call: %v", reader, err)
		}
		logged("call")
	}
}

// FuzzRequests: the answer to any request is JSON and not an error of the server.
func FuzzRequests(f *testing.F) {
	for _, seed := range []string{
		"cells?signal=min_abw&src=rack1&limit=1", "cells?windows=3&level=set&after=0&wait=1ms", "path?src=rack1&dst=rack2", "matrix?dst=pod1",
		"locations?top=2&from=2026-01-20T09:00:00Z&to=2026-01-20T09:00:05Z", "timeline?top=0", "timeline?src=rack1&dst=rack2&step=2s&from=2026-01-20T09:00:00Z&to=2026-01-20T09:00:05Z",
		"flows?signal=max_delay&src_address=10.0.0.0/8&limit=1", "findings?severity=error&kind=x&limit=2&device=leaf1", "matrix?from=2026-01-20T09:00:00Z&to=2026-01-20T09:00:05Z",
		"cells?limit=1&from=2026-01-20T09:00:00Z&to=2026-01-20T09:00:05Z&cursor=aC4xLjIuMy40LjUuNg", "fabric", "health", "export?src=rack1",
		"export?format=parquet&table=windows&from=2026-01-20T09:00:00Z&to=2026-01-20T09:00:05Z&step=1s", "export/flows?format=arrow&signal=max_delay", "export/findings?kind=x", "cells?cursor=MDAwMDAwMDAwMDAwMDAwNy0xLjEuMA",
		"cells?max_room_bps=1e308&signal=type_5:max:ns", "extent", "bundle?signal=min_abw", "watch?heartbeat=x", "openapi.json", "%2e%2e/cells", "cells?from=1970-01-01T00:00:00Z&to=2106-01-01T00:00:00Z",
	} {
		f.Add(seed, "")
	}
	past := querytest.Fabric(2, 2)
	past.FlowRows, past.FindingRows = querytest.Flows(past, 5), querytest.Findings(past, 5)
	s := newServed(f, 9, func(c *api.Config) { c.Reader = past })
	s.window(f, 0)
	notJSON := []string{"text/event-stream", tabular.CSV.ContentType(), tabular.Parquet.ContentType(), tabular.Arrow.ContentType()}
	f.Fuzz(func(t *testing.T, target, tag string) {
		path, parameters, _ := strings.Cut(target, "?")
		r := httptest.NewRequest("GET", "/api/v1/", nil)
		r.URL.Path, r.URL.RawQuery = "/api/v1/"+path, parameters
		r.Header.Set("If-None-Match", tag)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond) // of watches
		defer cancel()
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r.WithContext(ctx))
		redirect := w.Code >= 300 && w.Code < 400
		if w.Code >= 500 || !redirect && !slices.Contains(notJSON, w.Header().Get("Content-Type")) && !json.Valid(w.Body.Bytes()) {
			t.Errorf("%q: status %d, body %.200s", target, w.Code, w.Body)
		}
	})
}

// TestLimited: a client that has used up its budget gets Retry-After, and is still answered from
// memory.
func TestLimited(t *testing.T) {
	s := newServed(t, 9, func(c *api.Config) { c.Reader = query.Metered(querytest.Fabric(2, 4), time.Now) })
	s.window(t, 0)
	limited := edgetest.Limited(t, 7*time.Second, s)
	for target, want := range map[string]struct {
		code          int
		retry, detail string
	}{
		"cells?from=2026-01-20T09:00:00Z&to=2026-01-20T09:00:02Z": {429, "7", "shorter ranges"},
		"watch":                 {429, "1", "wait or watch already"},
		"cells?after=1&wait=1s": {429, "1", "wait or watch already"},
		"cells":                 {200, "", ""},
	} {
		w := httptest.NewRecorder()
		limited.ServeHTTP(w, httptest.NewRequest("GET", "/api/v1/"+target, nil))
		if w.Code != want.code || w.Header().Get("Retry-After") != want.retry || !strings.Contains(w.Body.String(), want.detail) {
			t.Errorf("%s: %d %v %s", target, w.Code, w.Header(), w.Body)
		}
	}
}
