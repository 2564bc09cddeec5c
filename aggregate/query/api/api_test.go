package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/query/querytest"
	"github.com/csigscope/csigscope/aggregate/query/rest"
	"github.com/csigscope/csigscope/aggregate/query/rest/resttest"
	"github.com/csigscope/csigscope/aggregate/query/wire"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/aggregate/table/tabletest"
	"github.com/csigscope/csigscope/decode/csig"
)

var begin = time.Date(2026, 1, 20, 9, 0, 0, 0, time.UTC)

// served is an API over a memory that the test fills.
type served struct {
	*api.API
	memory *table.Memory
	cells  int
	also   aggregate.Sink // gets the same blocks; nil for none
	blocks uint64         // written so far
}

func newServed(t testing.TB, cells int, change func(*api.Config)) *served {
	t.Helper()
	side := 1
	for side*side < cells {
		side++
	}
	s := &served{memory: table.NewMemory(table.MemoryOptions{Epoch: 7, Log: 16, Now: tabletest.Still}), cells: cells}
	cfg := api.Config{
		Memory: s.memory, Names: tabletest.Names{Racks: side}, Fabric: "lab",
		Now: func() time.Time { return begin.Add(time.Minute) },
	}
	if change != nil {
		change(&cfg)
	}
	s.memory = cfg.Memory
	var err error
	if s.API, err = api.New(cfg); err != nil {
		t.Fatal(err)
	}
	return s
}

// window closes the window of a second, with blocks of two producers.
func (s *served) window(t testing.TB, second int) {
	t.Helper()
	s.write(t, second)
	s.memory.Publish()
}

func (s *served) write(t testing.TB, second int) {
	t.Helper()
	for _, b := range producersBlocks(second, s.cells) {
		s.writeBlock(t, b)
	}
}

// writeBlock writes a block that differs from all before it.
func (s *served) writeBlock(t testing.TB, b *aggregate.Block) {
	t.Helper()
	s.blocks++
	b.Seq = s.blocks
	if err := s.memory.WriteBlock(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if s.also == nil {
		return
	}
	if err := s.also.WriteBlock(t.Context(), b); err != nil {
		t.Fatal(err)
	}
}

func (s *served) get(t testing.TB, target string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest("GET", target, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// read parses an answer into a message.
func read[T any, P interface {
	*T
	proto.Message
}](t testing.TB, w *httptest.ResponseRecorder) P {
	t.Helper()
	v := P(new(T))
	if err := resttest.Read(w.Body.Bytes(), v); err != nil || w.Code != 200 || w.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("status %d, %v, of type %q: %.500s", w.Code, err, w.Header().Get("Content-Type"), w.Body)
	}
	return v
}

func TestDocument(t *testing.T) {
	d := newServed(t, 4, nil).document(t)
	if !strings.HasPrefix(d.OpenAPI, "3.1.") {
		t.Errorf("version %q, want 3.1", d.OpenAPI)
	}
	for _, name := range []string{"verdict", "cells", "matrix", "path", "locations", "timeline", "flows", "findings", "fabric", "health", "watch", "changes", "export", "export/flows", "export/findings", "bundle"} {
		get := d.Paths["/api/v1/"+name]["get"]
		if len(get.Responses["200"].Content) == 0 || len(get.Responses["default"].Content) == 0 {
			t.Errorf("%s: responses %v", name, get.Responses)
		}
	}
	for path, method := range map[string]string{"clients": "get", "requests": "get", "requests/{id}": "delete", "producers/{name}": "delete"} {
		if _, ok := d.Paths["/api/v1/admin/"+path][method]; !ok {
			t.Errorf("%s %s is not described", method, path)
		}
	}
	if len(d.Paths) != 22 {
		t.Errorf("%d paths", len(d.Paths))
	}
	if len(d.Servers) != 1 || len(d.Security) != 3 || d.Components.SecuritySchemes["bearer"] == nil || d.Components.SecuritySchemes["certificate"] == nil {
		t.Errorf("servers %v, security %v, schemes %v", d.Servers, d.Security, d.Components.SecuritySchemes)
	}
	events := wire.File_query_proto.Messages().ByName("WatchResponse").Oneofs().ByName("event").Fields()
	for i := range events.Len() {
		name := string(events.Get(i).Name())
		one := d.Components.Schemas[strings.ToUpper(name[:1])+name[1:]+"StreamEvent"]
		if one == nil || one.Properties["event"].Const != name {
			t.Errorf("the event %s is not described", name)
		}
	}
	if union := d.Components.Schemas["WatchEvent"]; union == nil || len(union.OneOf) != events.Len() {
		t.Errorf("events of a watch: %+v", union)
	}
	for _, name := range []string{"Cells", "WindowEvent", "Synced", "Heartbeat", "Gap", "Problem"} {
		if d.Components.Schemas[name] == nil {
			t.Errorf("no schema of %s", name)
		}
	}
}

// TestCellsEncoding: the hand-written encoding of cells equals the messages' encoding.
func TestCellsEncoding(t *testing.T) {
	s := newServed(t, 30, nil)
	s.window(t, 0)
	for _, signal := range []string{"min_abw", "min_abw_ratio", "max_delay"} {
		w := s.get(t, "/api/v1/cells?signal="+signal)
		text := bytes.Clone(w.Body.Bytes())
		page := read[wire.CellsResponse](t, w)
		if page.Total != 30 || len(page.Cells) != 30 || page.NextCursor != "" {
			t.Fatalf("%s: %d of %d cells", signal, len(page.Cells), page.Total)
		}
		again, err := rest.NewSchema().Append(nil, page)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(again), string(text)); diff != "" {
			t.Errorf("%s (-message +sent):\n%.2000s", signal, diff)
		}
		for _, c := range page.Cells {
			if v, unit, ok := c.Mean.Number(); !ok || unit != page.About.Unit || v <= 0 {
				t.Fatalf("%s: mean %v %s", signal, v, unit)
			}
		}
	}
}

// TestNotJudgedHint: only answers with cells that are not judged say how to judge them, however
// often they are asked for.
func TestNotJudgedHint(t *testing.T) {
	s := newServed(t, 4, nil)
	unjudged, judged := uint64(tabletest.FirstGroup), uint64(tabletest.FirstGroup+1)
	b := &aggregate.Block{
		Source: aggregate.Source{Producer: 1}, Resolution: 1e9, WindowStart: begin.UnixNano(),
		Signal: slices.Repeat([]uint8{uint8(csig.MinABW)}, 2), Kind: []uint8{1, 1}, Encoding: []uint8{0, 0}, Location: []uint64{0, 0},
		SrcGroup: []uint64{unjudged, judged}, DstGroup: []uint64{judged, unjudged}, DistCode: []uint16{3, 3}, DistCount: []uint64{100, 100}, DistEnd: []uint32{1, 2},
	}
	sums := aggregate.Sums{Observations: 100, Samples: 100, Bytes: 100_000}
	sums.AddValues(100, 1000, 1000, 100_000)
	for _, n := range []uint64{100, 0} {
		sums.Unjudged = n
		b.AppendSums(&sums)
	}
	s.writeBlock(t, b)
	s.memory.Publish()
	history, _ := newHistory(t)
	for _, tc := range []struct {
		s      *served
		target string
		want   string
	}{
		{s, "cells?signal=min_abw", aggregate.HowToJudge(csig.MinABW)},
		{s, "cells?signal=min_abw&src=rack1", aggregate.HowToJudge(csig.MinABW)},
		{s, "cells?signal=min_abw&src=rack2", ""},
		{s, "cells?signal=min_abw&state=clear", ""},
		{s, "cells?signal=max_delay", ""},
		{s, "matrix?signal=min_abw", aggregate.HowToJudge(csig.MinABW)},
		{s, "matrix?signal=min_abw&src=rack2", ""},
		{s, "path?signal=min_abw&src=rack1&dst=rack2", aggregate.HowToJudge(csig.MinABW)},
		{s, "path?signal=min_abw&src=rack2&dst=rack1", ""},
		{s, "locations?signal=min_abw", ""},
		{history, "cells?signal=min_abw&" + past, ""},
	} {
		for range 2 {
			w := tc.s.get(t, "/api/v1/"+tc.target)
			if hint, _ := object(t, w)["not_judged_hint"].(string); hint != tc.want {
				t.Errorf("%s: %q, want %q: %.400s", tc.target, hint, tc.want, w.Body)
			}
		}
	}
}

func TestCellsFilter(t *testing.T) {
	s := newServed(t, 100, nil)
	s.window(t, 0)
	all := read[wire.CellsResponse](t, s.get(t, "/api/v1/cells")).Cells
	for query, takes := range map[string]func(*wire.Cell) bool{
		"src=rack1":           func(c *wire.Cell) bool { return c.Src == "rack1" },
		"src=rack1&src=rack2": func(c *wire.Cell) bool { return c.Src == "rack1" || c.Src == "rack2" },
		"dst=pod2": func(c *wire.Cell) bool {
			return slices.Contains([]string{"rack2", "rack4", "rack6", "rack8", "rack10"}, c.Dst)
		},
		"state=congested":       func(c *wire.Cell) bool { return c.State == wire.State_STATE_CONGESTED },
		"min_heavy_ratio=0.5":   func(c *wire.Cell) bool { return c.GetHeavyRatio() >= 0.5 },
		"max_room_ratio=0.3":    func(c *wire.Cell) bool { return c.Mean.GetRatio() <= 0.3 },
		"min_room_ratio=0.3":    func(c *wire.Cell) bool { return c.Mean.GetRatio() >= 0.3 },
		"location=leaf1:up1":    func(c *wire.Cell) bool { return c.Mode != nil && c.Mode.Location == "leaf1:up1" },
		"max_room_ratio=0":      func(*wire.Cell) bool { return false },
		"src=rack3&dst=rack5":   func(c *wire.Cell) bool { return c.Src == "rack3" && c.Dst == "rack5" },
		"state=clear&src=rack1": func(c *wire.Cell) bool { return c.State == wire.State_STATE_CLEAR && c.Src == "rack1" },
	} {
		var want []*wire.Cell
		for _, c := range all {
			if takes(c) {
				want = append(want, c)
			}
		}
		got := read[wire.CellsResponse](t, s.get(t, "/api/v1/cells?"+query))
		if diff := cmp.Diff(want, got.Cells, protocmp.Transform(), cmpopts.EquateEmpty()); diff != "" || got.Total != uint64(len(want)) {
			t.Errorf("%s (-want +got):\n%.1000s", query, diff)
		}
	}
	for _, c := range read[wire.CellsResponse](t, s.get(t, "/api/v1/cells?level=device")).Cells {
		if c.Mode != nil && c.Mode.Location != "leaf1" && c.Mode.Location != "leaf2" {
			t.Fatalf("mode %s at the level of devices", c.Mode.Location)
		}
	}
}

// TestPages: pages belong to one revision, whatever happens meanwhile.
func TestPages(t *testing.T) {
	s := newServed(t, 50, nil)
	s.window(t, 0)
	want := read[wire.CellsResponse](t, s.get(t, "/api/v1/cells")).Cells
	var got []*wire.Cell
	target := "/api/v1/cells?limit=20"
	first := ""
	for second := 1; target != ""; second++ {
		page := read[wire.CellsResponse](t, s.get(t, target))
		got = append(got, page.Cells...)
		if target = ""; page.NextCursor != "" {
			target = "/api/v1/cells?limit=20&cursor=" + page.NextCursor
			first = page.NextCursor
		}
		s.window(t, second)
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("pages (-want +got):\n%.1000s", diff)
	}
	if w := s.get(t, "/api/v1/cells?limit=20&src=rack1&cursor="+first); w.Code != 422 || !strings.Contains(w.Body.String(), "other parameters") {
		t.Errorf("a cursor of another question: %d %s", w.Code, w.Body)
	}
	for second := range 20 {
		s.window(t, 10+second)
	}
	if w := s.get(t, "/api/v1/cells?limit=20&cursor="+first); w.Code != 410 {
		t.Errorf("a cursor that expired: %d %s", w.Code, w.Body)
	}
}

// TestRevisions: answers carry their revision, by which clients can avoid repeated answers and
// wait for new ones.
func TestRevisions(t *testing.T) {
	s := newServed(t, 4, nil)
	s.window(t, 0)
	w := s.get(t, "/api/v1/cells")
	tag, revision := w.Header().Get("ETag"), read[wire.CellsResponse](t, w).About.Revision
	if tag != `W/"0000000000000007-1"` || revision != "0000000000000007-1" {
		t.Fatalf("tag %s of revision %s", tag, revision)
	}
	for _, name := range []string{"verdict", "cells", "matrix", "locations", "timeline"} {
		if w := s.get(t, "/api/v1/"+name, "If-None-Match", tag); w.Code != 304 || w.Body.Len() > 0 {
			t.Errorf("%s that did not change: %d %s", name, w.Code, w.Body)
		}
	}
	for _, lines := range [][]string{{"*"}, {`"other", ` + tag}, {`"other"`, strings.TrimPrefix(tag, "W/")}} {
		r := httptest.NewRequest("GET", "/api/v1/cells", nil)
		r.Header["If-None-Match"] = lines
		w := httptest.NewRecorder()
		if s.ServeHTTP(w, r); w.Code != 304 {
			t.Errorf("a client that has %q: %d", lines, w.Code)
		}
	}
	if w := s.get(t, "/api/v1/cells?after="+revision+"&wait=20ms"); w.Code != 304 {
		t.Errorf("nothing came: %d %s", w.Code, w.Body)
	}
	done := make(chan *httptest.ResponseRecorder)
	go func() { done <- s.get(t, "/api/v1/cells?after=1&wait=30s") }()
	s.window(t, 1)
	if got := read[wire.CellsResponse](t, <-done); got.About.Revision != "0000000000000007-2" || !got.About.From.AsTime().Equal(begin.Add(time.Second)) {
		t.Errorf("waited for %s from %s", got.About.Revision, got.About.From)
	}
	if got := read[wire.CellsResponse](t, s.get(t, "/api/v1/cells?after=0000000000000009-99&wait=30s")); got.About.Revision != "0000000000000007-2" {
		t.Errorf("a revision of another life is answered with %s", got.About.Revision)
	}
}

// TestOthers compares the other answers with the cells.
func TestOthers(t *testing.T) {
	s := newServed(t, 25, nil)
	for second := range 3 {
		s.window(t, second)
	}
	cells := read[wire.CellsResponse](t, s.get(t, "/api/v1/cells?windows=3"))
	m := read[wire.MatrixResponse](t, s.get(t, "/api/v1/matrix?windows=3"))
	at := map[string]int{}
	for i, g := range m.Groups {
		at[g] = i
	}
	for _, c := range cells.Cells {
		i := at[c.Src]*len(m.Groups) + at[c.Dst]
		if m.State[i] != c.State || fmt.Sprintf("%.6g", m.Mean[i]) != fmt.Sprintf("%.6g", c.Mean.GetRatio()) || m.Mode[i] != c.Mode.Location {
			t.Errorf("%s to %s: %s in the matrix, %s in cells", c.Src, c.Dst, m.State[i], c.State)
		}
	}
	p := read[wire.PathResponse](t, s.get(t, "/api/v1/path?src=rack2&dst=rack3&windows=3"))
	if p.About.GetAgeS() != 57 || p.Room == nil || p.Limit == nil || p.Limit.Location != p.Cell.Mode.Location || len(p.Limit.Candidates) != 1 || p.About.CompletenessRatio != 1 {
		t.Errorf("path %+v", p)
	}
	l := read[wire.LocationsResponse](t, s.get(t, "/api/v1/locations?windows=3&top=3"))
	if len(l.Locations) != 3 || l.Total != tabletest.Locations || l.Locations[0].Heavy < l.Locations[1].Heavy || l.Locations[0].CapacityBps != 100e9 {
		t.Errorf("locations %+v", l)
	}
	line := read[wire.TimelineResponse](t, s.get(t, "/api/v1/timeline?src=rack1"))
	if len(line.Timeline) != 3 || line.Timeline[2].Cells != 5 || len(line.Timeline[0].Locations) != 3 {
		t.Errorf("timeline %+v", line)
	}
	f := read[wire.FabricResponse](t, s.get(t, "/api/v1/fabric"))
	if len(f.Groups) != 7 || len(f.Locations) != 14 || f.Name != "lab" {
		t.Errorf("fabric %+v", f)
	}
	h := read[wire.HealthResponse](t, s.get(t, "/api/v1/health"))
	if h.GetAgeS() != 57 || h.Windows != 3 || h.Producers != 2 || len(h.Signals) != 3 {
		t.Errorf("health %+v", h)
	}
}

// TestHistory queries a store.
func TestHistory(t *testing.T) {
	s := newServed(t, 4, func(c *api.Config) { c.Memory, c.Names, c.Reader = nil, nil, querytest.Fabric(4, 10) })
	page := read[wire.CellsResponse](t, s.get(t, "/api/v1/cells?from=2026-01-20T09:00:00Z&to=2026-01-20T09:00:05Z"))
	if page.About.Source != "store" || len(page.Cells) == 0 || page.Cells[0].Mean == nil || page.About.Revision != "" {
		t.Errorf("history %+v", page)
	}
	l := read[wire.LocationsResponse](t, s.get(t, "/api/v1/locations?from=2026-01-20T09:00:00Z&to=2026-01-20T09:00:05Z"))
	if len(l.Locations) == 0 || l.Locations[0].Heavy == 0 {
		t.Errorf("locations %+v", l)
	}
	for question, past := range map[string]bool{"cells": true, "watch": false, "changes": false} {
		if w := s.get(t, "/api/v1/"+question); w.Code != 404 || strings.Contains(w.Body.String(), "give from and to") != past {
			t.Errorf("%s without memory: %d %s", question, w.Code, w.Body)
		}
	}
	var b query.Bundle
	if err := json.Unmarshal(s.get(t, "/api/v1/bundle").Body.Bytes(), &b); err != nil || len(b.Data) == 0 {
		t.Errorf("the page's bundle is empty: %v", err)
	}
	if w := s.get(t, "/api/v1/extent"); w.Code != http.StatusOK {
		t.Errorf("extent: %d", w.Code)
	}
}

// withoutCoverage ignores the producers of cells, which history and frames lack.
func withoutCoverage() cmp.Option {
	return protocmp.IgnoreFields(&wire.Cell{}, "expected_producers", "present_producers", "silent_producers")
}
