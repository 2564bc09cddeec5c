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

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/query/model"
	"github.com/csigscope/csigscope/aggregate/query/querytest"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/aggregate/table/tabletest"
)

var begin = time.Date(2026, 1, 20, 9, 0, 0, 0, time.UTC)

// served is an API over a memory that the test fills.
type served struct {
	*api.API
	memory *table.Memory
	cells  int
	also   aggregate.Sink // is told the same; nil for none
}

func newServed(t testing.TB, cells int, change func(*api.Config)) *served {
	t.Helper()
	side := 1
	for side*side < cells {
		side++
	}
	s := &served{memory: table.NewMemory(table.MemoryOptions{Epoch: 7, Log: 16}), cells: cells}
	cfg := api.Config{
		Memory: s.memory, Names: tabletest.Names{Racks: side}, Fabric: "lab",
		Now: func() time.Time { return begin.Add(time.Minute) },
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	if s.API, err = api.New(cfg); err != nil {
		t.Fatal(err)
	}
	return s
}

// window closes the window of a second, as two producers tell of it.
func (s *served) window(t testing.TB, second int) {
	t.Helper()
	s.write(t, second)
	s.memory.Publish()
}

func (s *served) write(t testing.TB, second int) {
	t.Helper()
	for _, b := range producersBlocks(second, s.cells) {
		if err := s.memory.WriteBlock(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if s.also == nil {
			continue
		}
		if err := s.also.WriteBlock(t.Context(), b); err != nil {
			t.Fatal(err)
		}
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

func read[T any](t testing.TB, w *httptest.ResponseRecorder) T {
	t.Helper()
	var v T
	text := w.Body.String()
	d := json.NewDecoder(w.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil || w.Code != 200 || w.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("status %d, %v, of type %q: %.500s", w.Code, err, w.Header().Get("Content-Type"), text)
	}
	return v
}

func TestDocument(t *testing.T) {
	s := newServed(t, 4, nil)
	var doc struct {
		OpenAPI string
		Paths   map[string]struct {
			Get struct {
				Parameters []struct{ Name, Description string }
				Responses  map[string]struct {
					Content map[string]struct{ Schema map[string]any }
				}
			}
		}
		Components struct{ Schemas map[string]any }
	}
	w := s.get(t, "/openapi.json")
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(doc.OpenAPI, "3.1.") {
		t.Errorf("version %q, want 3.1", doc.OpenAPI)
	}
	for _, name := range []string{"cells", "matrix", "path", "locations", "timeline", "flows", "findings", "fabric", "health", "watch", "export", "export/flows", "export/findings"} {
		get := doc.Paths["/api/v1/"+name].Get
		if len(get.Responses["200"].Content) == 0 || len(get.Responses["default"].Content) == 0 {
			t.Errorf("%s: responses %v", name, get.Responses)
		}
		for _, p := range get.Parameters {
			if p.Name == "" || p.Description == "" && p.Name != "If-None-Match" {
				t.Errorf("%s: parameter %+v says nothing", name, p)
			}
		}
	}
	for _, name := range []string{"Cells", "WindowEvent", "Synced", "Heartbeat", "Gap", "Problem"} {
		if doc.Components.Schemas[name] == nil {
			t.Errorf("no schema of %s", name)
		}
	}
}

// TestCellsEncoding: what is written out by hand is what the model's types encode to.
func TestCellsEncoding(t *testing.T) {
	s := newServed(t, 30, nil)
	s.window(t, 0)
	for _, signal := range []string{"min_abw", "min_abw_ratio", "max_delay"} {
		w := s.get(t, "/api/v1/cells?signal="+signal)
		text := bytes.Clone(w.Body.Bytes())
		page := read[model.Cells](t, w)
		if page.Total != 30 || len(page.Values) != 30 || page.Next != "" {
			t.Fatalf("%s: %d of %d cells", signal, len(page.Values), page.Total)
		}
		again, err := json.Marshal(page)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(again), string(text)); diff != "" {
			t.Errorf("%s (-model +sent):\n%.2000s", signal, diff)
		}
		for _, c := range page.Values {
			if v, unit, ok := c.Mean.Value(); !ok || unit != page.Unit || v <= 0 {
				t.Fatalf("%s: mean %v %s", signal, v, unit)
			}
		}
	}
}

func TestCellsFilter(t *testing.T) {
	s := newServed(t, 100, nil)
	s.window(t, 0)
	all := read[model.Cells](t, s.get(t, "/api/v1/cells")).Values
	for query, takes := range map[string]func(model.Cell) bool{
		"src=rack1":           func(c model.Cell) bool { return c.Src == "rack1" },
		"src=rack1&src=rack2": func(c model.Cell) bool { return c.Src == "rack1" || c.Src == "rack2" },
		"dst=pod2": func(c model.Cell) bool {
			return slices.Contains([]string{"rack2", "rack4", "rack6", "rack8", "rack10"}, c.Dst)
		},
		"state=congested":       func(c model.Cell) bool { return c.State == "congested" },
		"min_heavy_ratio=0.5":   func(c model.Cell) bool { return c.HeavyRatio >= 0.5 },
		"max_room_ratio=0.3":    func(c model.Cell) bool { return *c.Mean.Ratio <= 0.3 },
		"min_room_ratio=0.3":    func(c model.Cell) bool { return *c.Mean.Ratio >= 0.3 },
		"location=leaf1:up1":    func(c model.Cell) bool { return c.Mode != nil && c.Mode.Location == "leaf1:up1" },
		"max_room_ratio=0":      func(model.Cell) bool { return false },
		"src=rack3&dst=rack5":   func(c model.Cell) bool { return c.Src == "rack3" && c.Dst == "rack5" },
		"state=clear&src=rack1": func(c model.Cell) bool { return c.State == "clear" && c.Src == "rack1" },
	} {
		want := []model.Cell{}
		for _, c := range all {
			if takes(c) {
				want = append(want, c)
			}
		}
		got := read[model.Cells](t, s.get(t, "/api/v1/cells?"+query))
		if diff := cmp.Diff(want, got.Values); diff != "" || got.Total != len(want) {
			t.Errorf("%s (-want +got):\n%.1000s", query, diff)
		}
	}
	for _, c := range read[model.Cells](t, s.get(t, "/api/v1/cells?level=device")).Values {
		if c.Mode != nil && c.Mode.Location != "leaf1" && c.Mode.Location != "leaf2" {
			t.Fatalf("mode %s at the level of devices", c.Mode.Location)
		}
	}
}

// TestPages: pages are of one revision, whatever happens meanwhile.
func TestPages(t *testing.T) {
	s := newServed(t, 50, nil)
	s.window(t, 0)
	want := read[model.Cells](t, s.get(t, "/api/v1/cells")).Values
	var got []model.Cell
	target := "/api/v1/cells?limit=20"
	first := ""
	for second := 1; target != ""; second++ {
		page := read[model.Cells](t, s.get(t, target))
		got = append(got, page.Values...)
		if target = ""; page.Next != "" {
			target = "/api/v1/cells?limit=20&cursor=" + page.Next
			first = page.Next
		}
		s.window(t, second)
	}
	if diff := cmp.Diff(want, got); diff != "" {
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

// TestRevisions: answers carry their revision, by which they are not sent twice and can be
// waited for.
func TestRevisions(t *testing.T) {
	s := newServed(t, 4, nil)
	s.window(t, 0)
	w := s.get(t, "/api/v1/cells")
	tag, revision := w.Header().Get("ETag"), read[model.Cells](t, w).Revision
	if tag != `W/"0000000000000007-1"` || revision != "0000000000000007-1" {
		t.Fatalf("tag %s of revision %s", tag, revision)
	}
	for _, name := range []string{"cells", "matrix", "locations", "timeline"} {
		if w := s.get(t, "/api/v1/"+name, "If-None-Match", tag); w.Code != 304 || w.Body.Len() > 0 {
			t.Errorf("%s that did not change: %d %s", name, w.Code, w.Body)
		}
	}
	if w := s.get(t, "/api/v1/cells?after="+revision+"&wait=20ms"); w.Code != 304 {
		t.Errorf("nothing came: %d %s", w.Code, w.Body)
	}
	done := make(chan *httptest.ResponseRecorder)
	go func() { done <- s.get(t, "/api/v1/cells?after=1&wait=30s") }()
	s.window(t, 1)
	if got := read[model.Cells](t, <-done); got.Revision != "0000000000000007-2" || !got.From.Equal(begin.Add(time.Second)) {
		t.Errorf("waited for %s from %s", got.Revision, got.From)
	}
	if got := read[model.Cells](t, s.get(t, "/api/v1/cells?after=0000000000000009-99&wait=30s")); got.Revision != "0000000000000007-2" {
		t.Errorf("a revision of another life is answered with %s", got.Revision)
	}
}

// TestOthers reads the other answers against the cells.
func TestOthers(t *testing.T) {
	s := newServed(t, 25, nil)
	for second := range 3 {
		s.window(t, second)
	}
	cells := read[model.Cells](t, s.get(t, "/api/v1/cells?windows=3"))
	m := read[model.Matrix](t, s.get(t, "/api/v1/matrix?windows=3"))
	at := map[string]int{}
	for i, g := range m.Groups {
		at[g] = i
	}
	for _, c := range cells.Values {
		row, column := at[c.Src], at[c.Dst]
		if string(m.State[row][column]) != c.State || fmt.Sprintf("%.6g", *m.Mean[row][column]) != fmt.Sprintf("%.6g", *c.Mean.Ratio) || *m.Mode[row][column] != c.Mode.Location {
			t.Errorf("%s to %s: %s in the matrix, %s in cells", c.Src, c.Dst, m.State[row][column], c.State)
		}
	}
	p := read[model.Path](t, s.get(t, "/api/v1/path?src=rack2&dst=rack3&windows=3"))
	if p.AgeSeconds != 57 || p.Room == nil || p.Limit == nil || p.Limit.Location != p.Cell.Mode.Location || len(p.Limit.Candidates) != 1 || p.Completeness != 1 {
		t.Errorf("path %+v", p)
	}
	l := read[model.Locations](t, s.get(t, "/api/v1/locations?windows=3&top=3"))
	if len(l.Values) != 3 || l.Total != tabletest.Locations || l.Values[0].Heavy < l.Values[1].Heavy || l.Values[0].CapacityBPS != 100e9 {
		t.Errorf("locations %+v", l)
	}
	line := read[model.Timeline](t, s.get(t, "/api/v1/timeline?src=rack1"))
	if len(line.Values) != 3 || line.Values[2].Cells != 5 || len(line.Values[0].Locations) != 3 {
		t.Errorf("timeline %+v", line)
	}
	f := read[model.Fabric](t, s.get(t, "/api/v1/fabric"))
	if len(f.Groups) != 7 || len(f.Locations) != 14 || f.Name != "lab" {
		t.Errorf("fabric %+v", f)
	}
	h := read[model.Health](t, s.get(t, "/api/v1/health"))
	if *h.AgeSeconds != 57 || h.Windows != 3 || h.Producers != 2 || len(h.Signals) != 3 {
		t.Errorf("health %+v", h)
	}
}

// TestHistory asks a store.
func TestHistory(t *testing.T) {
	s := newServed(t, 4, func(c *api.Config) { c.Memory, c.Names, c.Reader = nil, nil, querytest.Fabric(4, 10) })
	page := read[model.Cells](t, s.get(t, "/api/v1/cells?from=2026-01-20T09:00:00Z&to=2026-01-20T09:00:05Z"))
	if page.Source != "store" || len(page.Values) == 0 || page.Values[0].Mean == nil || page.Revision != "" {
		t.Errorf("history %+v", page)
	}
	l := read[model.Locations](t, s.get(t, "/api/v1/locations?from=2026-01-20T09:00:00Z&to=2026-01-20T09:00:05Z"))
	if len(l.Values) == 0 || l.Values[0].Heavy == 0 {
		t.Errorf("locations %+v", l)
	}
	if w := s.get(t, "/api/v1/cells"); w.Code != 404 || !strings.Contains(w.Body.String(), "give from and to") {
		t.Errorf("no memory: %d %s", w.Code, w.Body)
	}
	if b := read[query.Bundle](t, s.get(t, "/api/v1/bundle")); len(b.Data) == 0 {
		t.Error("the page's bundle is empty")
	}
	if w := s.get(t, "/api/v1/extent"); w.Code != http.StatusOK {
		t.Errorf("extent: %d", w.Code)
	}
}
