package api_test

import (
	"context"
	"encoding/base64"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/query/querytest"
	"github.com/csigscope/csigscope/aggregate/query/wire"
	csigdecode "github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// newHistory is an API over a store only, with 10 s of 4 racks.
func newHistory(t testing.TB) (*served, *querytest.Memory) {
	t.Helper()
	past := querytest.Fabric(4, 10)
	past.FlowRows, past.FindingRows = querytest.Flows(past, 250), querytest.Findings(past, 120)
	return newServed(t, 4, func(c *api.Config) { c.Memory, c.Names, c.Reader = nil, nil, past }), past
}

const past = "from=2026-01-20T09:00:00Z&to=2026-01-20T09:00:10Z"

// TestPastTimeline: the windows of a cell equal its cells over the same ranges, with known gaps.
func TestPastTimeline(t *testing.T) {
	s, store := newHistory(t)
	store.Gaps = []query.Span{{From: begin.Add(5 * time.Second), To: begin.Add(6500 * time.Millisecond)}}
	line := read[wire.TimelineResponse](t, s.get(t, "/api/v1/timeline?src=rack1&dst=rack2&step=2s&signal=max_delay&"+past))
	if line.About.Source != "store" || line.StepS != 2 || len(line.Timeline) != 5 {
		t.Fatalf("timeline %+v", line)
	}
	for i, m := range line.Timeline {
		from, to := begin.Add(time.Duration(2*i)*time.Second), begin.Add(time.Duration(2*i+2)*time.Second)
		cells := read[wire.CellsResponse](t, s.get(t, fmt.Sprintf("/api/v1/cells?src=rack1&dst=rack2&signal=max_delay&from=%s&to=%s", from.Format(time.RFC3339), to.Format(time.RFC3339))))
		if diff := cmp.Diff(cells.Cells[0], m.Cell, protocmp.Transform(), cmpopts.EquateApprox(1e-9, 0), protocmp.IgnoreFields(m.Cell, "trend")); diff != "" || m.Observations != m.Cell.Observations || m.Cells != 1 {
			t.Errorf("window %d: %d observations (-cells +timeline):\n%s", i, m.Observations, diff)
		}
		if cells.Cells[0].Trend == nil || m.Cell.Trend != nil {
			t.Errorf("window %d: trend %v of its range, %v of a window of the timeline", i, cells.Cells[0].Trend, m.Cell.Trend)
		}
		if want := []float64{1, 1, 0.5, 0.75, 1}[i]; m.CompletenessRatio != want || len(m.Locations) == 0 {
			t.Errorf("window %d: completeness %v, want %v, locations %v", i, m.CompletenessRatio, want, m.Locations)
		}
	}
	if line := read[wire.TimelineResponse](t, s.get(t, "/api/v1/timeline?top=0&"+past)); len(line.Timeline) != 10 || line.StepS != 1 || line.Timeline[0].Cell != nil || len(line.Timeline[0].Locations) != 0 || line.Timeline[0].Cells < 5 {
		t.Errorf("all cells: %+v", line.Timeline)
	}
	for target, says := range map[string]string{
		"step=1500ms&" + past: "multiple",
		"step=x&" + past:      "duration",
		"step=-1s&" + past:    "duration",
		"step=1s&from=2020-01-01T00:00:00Z&to=2026-01-20T09:00:10Z": "longer step",
	} {
		if w := s.get(t, "/api/v1/timeline?"+target); w.Code < 400 || w.Code >= 500 || !strings.Contains(w.Body.String(), says) {
			t.Errorf("%s: %d %s", target, w.Code, w.Body)
		}
	}
}

// TestPastSilence: windows in which no cell at all has observations have completeness 0, whichever cells
// and however many locations are asked for. An empty store has no age.
func TestPastSilence(t *testing.T) {
	s, store := newHistory(t)
	store.Rows = slices.DeleteFunc(store.Rows, func(r querytest.Row) bool {
		second := (r.Window - begin.UnixNano()) / 1e9
		return second == 3 || second == 5 && store.GroupRows[0].ID == r.Src // rack1 alone is silent at 5
	})
	for _, chosen := range []string{"", "src=rack1&", "dst=pod1&", "src=rack1&dst=rack2&"} {
		for _, top := range []string{"top=0&", "top=3&"} {
			for i, m := range read[wire.TimelineResponse](t, s.get(t, "/api/v1/timeline?step=1s&"+chosen+top+past)).Timeline {
				want := 1.0
				if i == 3 {
					want = 0
				}
				if m.CompletenessRatio != want || len(m.Locations) > 0 && top == "top=0&" {
					t.Errorf("%s%s: completeness %v in window %d, want %v, %d locations", chosen, top, m.CompletenessRatio, i, want, len(m.Locations))
				}
			}
		}
	}
	store.Rows = nil
	for _, question := range []string{"cells?", "flows?", "verdict?"} {
		if age, known := object(t, s.get(t, "/api/v1/"+question+past))["age_s"]; known {
			t.Errorf("%s: age %v of an empty store", question, age)
		}
	}
}

// TestPastEquals: of locations with equally many heavy observations, history puts the one with the more
// severe mean first, as memory does.
func TestPastEquals(t *testing.T) {
	s, store := newHistory(t)
	store.Rows = nil
	for i, mean := range []uint64{300, 100, 200} {
		store.Rows = append(store.Rows, querytest.Row{
			Window: begin.UnixNano(), Signal: csig.MinABWRatio, Kind: csigdecode.Tag, Src: store.GroupRows[0].ID, Dst: store.GroupRows[1].ID, Location: store.LocationRows[i].ID,
			Sums: aggregate.Sums{Observations: 10, Samples: 10, Measured: 10, Sum: 10 * mean, Min: mean, Max: mean, Heavy: 10, HeavySum: 10 * mean},
		})
	}
	var want []string
	for _, i := range []int{1, 2, 0} {
		want = append(want, store.LocationRows[i].Name)
	}
	for path, list := range map[string][]*wire.Location{
		"timeline":  read[wire.TimelineResponse](t, s.get(t, "/api/v1/timeline?step=1s&"+past)).Timeline[0].Locations,
		"locations": read[wire.LocationsResponse](t, s.get(t, "/api/v1/locations?"+past)).Locations,
	} {
		var got []string
		for _, l := range list {
			got = append(got, l.Location)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

// TestPastNewNames: names that were described since names were last read are in all answers.
func TestPastNewNames(t *testing.T) {
	for path, of := range map[string]func(w *httptest.ResponseRecorder) []string{
		"export?table=windows&step=1s&format=csv&": func(w *httptest.ResponseRecorder) []string {
			rows, err := csv.NewReader(w.Body).ReadAll()
			if err != nil {
				t.Fatal(err)
			}
			return slices.Concat(column(t, rows, "src"), column(t, rows, "mode_location"))
		},
		"timeline?step=1s&": func(w *httptest.ResponseRecorder) (list []string) {
			for _, m := range read[wire.TimelineResponse](t, w).Timeline {
				for _, l := range m.Locations {
					list = append(list, l.Location)
				}
			}
			return list
		},
		"timeline?step=1s&top=0&src=rack1&dst=rack2&": func(w *httptest.ResponseRecorder) (list []string) {
			for _, m := range read[wire.TimelineResponse](t, w).Timeline {
				list = append(list, m.Cell.GetMode().GetLocation())
			}
			return list
		},
	} {
		now, stored := begin.Add(time.Minute), querytest.Fabric(4, 10)
		s := newServed(t, 4, func(c *api.Config) {
			c.Memory, c.Names, c.Reader, c.Now = nil, nil, stored, func() time.Time { return now }
		})
		groups, locations := stored.GroupRows, stored.LocationRows
		stored.GroupRows, stored.LocationRows = groups[:2:2], nil
		s.get(t, "/api/v1/timeline?top=0&signal=max_delay&"+past) // reads names
		stored.GroupRows, stored.LocationRows = groups, locations
		now = now.Add(time.Second)
		list := of(s.get(t, "/api/v1/"+path+"signal=max_delay&"+past))
		named := 0
		for _, name := range list {
			if strings.HasPrefix(name, "group ") || strings.HasPrefix(name, "location ") {
				t.Fatalf("%s: %q is without its name", path, name)
			}
			if name != "" {
				named++
			}
		}
		if named == 0 {
			t.Errorf("%s: no names", path)
		}
	}
}

// TestPastPath: a path's history equals its cell's, with the description of its mode.
func TestPastPath(t *testing.T) {
	s, store := newHistory(t)
	store.Gaps = []query.Span{{From: begin.Add(-time.Minute), To: begin.Add(time.Second)}, {From: begin.Add(9 * time.Second), To: begin.Add(time.Minute)}}
	p := read[wire.PathResponse](t, s.get(t, "/api/v1/path?src=rack1&dst=rack2&signal=min_abw&"+past))
	cells := read[wire.CellsResponse](t, s.get(t, "/api/v1/cells?src=rack1&dst=rack2&signal=min_abw&"+past))
	if diff := cmp.Diff(cells.Cells, []*wire.Cell{p.Cell}, protocmp.Transform()); diff != "" {
		t.Errorf("cell (-cells +path):\n%s", diff)
	}
	if p.Room == nil || p.Limit == nil || p.Limit.Location != p.Cell.Mode.Location || p.Limit.CapacityBps != 100e9 || p.About.CompletenessRatio != 0.8 || p.About.GetAgeS() != 50 || p.About.Source != "store" {
		t.Errorf("path %+v", p)
	}
	for target, code := range map[string]int{"src=rack1&dst=rack1": 404, "src=pod1&dst=rack1": 422, "src=nobody&dst=rack1": 422} {
		if w := s.get(t, "/api/v1/path?"+target+"&"+past); w.Code != code {
			t.Errorf("%s: %d %s", target, w.Code, w.Body)
		}
	}
}

// trimmed is a store without the windows of 1 s before a time, whose questions about windows are recorded.
type trimmed struct {
	*querytest.Memory
	before time.Time
	asked  []query.Question
	flows  []query.FlowQuestion
}

func (r *trimmed) Extent(ctx context.Context) (query.Extent, error) {
	e, err := r.Memory.Extent(ctx)
	e.Seconds, e.Resolutions = r.before, append(e.Resolutions, time.Minute)
	return e, err
}

func (r *trimmed) LocationWindows(ctx context.Context, q query.Question) ([]aggregate.LocationWindow, error) {
	r.asked = append(r.asked, q)
	return r.Memory.LocationWindows(ctx, q)
}

func (r *trimmed) Flows(ctx context.Context, q query.FlowQuestion) ([]query.FlowTotal, error) {
	r.flows = append(r.flows, q)
	return r.Memory.Flows(ctx, q)
}

// TestPastTrimmed: a range that begins before the first stored second is widened to whole minutes, and
// states of links, flows and a timeline come from windows of 1 min. No shorter step is possible.
func TestPastTrimmed(t *testing.T) {
	_, store := newHistory(t)
	for _, c := range []struct {
		name       string
		before     time.Time
		wantTo     time.Time
		wantLength time.Duration
		wantSteps  map[string]float64 // of a timeline; 0: it is refused
	}{
		{"all seconds", begin, begin.Add(10 * time.Second), time.Second, map[string]float64{"": 1, "step=2s&": 2, "step=1m&": 60}},
		{"later seconds", begin.Add(5 * time.Second), begin.Add(time.Minute), time.Minute, map[string]float64{"": 60, "step=2s&": 0, "step=1m&": 60}},
	} {
		r := &trimmed{Memory: store, before: c.before}
		s := newServed(t, 4, func(o *api.Config) { o.Memory, o.Names, o.Reader = nil, nil, r })
		for path, about := range map[string]*wire.About{
			"cells": read[wire.CellsResponse](t, s.get(t, "/api/v1/cells?"+past)).About,
			"path":  read[wire.PathResponse](t, s.get(t, "/api/v1/path?src=rack1&dst=rack2&"+past)).About,
			"links": read[wire.LinksResponse](t, s.get(t, "/api/v1/links?"+past)).About,
			"flows": read[wire.FlowsResponse](t, s.get(t, "/api/v1/flows?"+past)).About,
		} {
			if !about.From.AsTime().Equal(begin) || !about.To.AsTime().Equal(c.wantTo) {
				t.Errorf("%s, %s: from %s to %s, want to %s", c.name, path, about.From.AsTime(), about.To.AsTime(), c.wantTo)
			}
		}
		if len(r.asked) != 1 || r.asked[0].Step != c.wantLength || !r.asked[0].To.Equal(c.wantTo) {
			t.Errorf("%s: links ask for %+v, want windows of %s", c.name, r.asked, c.wantLength)
		}
		for step, want := range c.wantSteps {
			w := s.get(t, "/api/v1/timeline?"+step+past)
			if want == 0 && (w.Code != 422 || !strings.Contains(w.Body.String(), "no longer stored")) || want > 0 && read[wire.TimelineResponse](t, w).StepS != want {
				t.Errorf("%s: timeline?%s: %d %.300s; want windows of %g s", c.name, step, w.Code, w.Body, want)
			}
		}
		for _, q := range r.flows {
			if q.Resolution != c.wantLength || !q.To.Equal(c.wantTo) {
				t.Errorf("%s: flows are asked for by %+v, want windows of %s", c.name, q, c.wantLength)
			}
		}
	}
}

// object parses an answer as JSON.
func object(t *testing.T, w *httptest.ResponseRecorder) (v map[string]any) {
	t.Helper()
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil || w.Code != 200 {
		t.Fatalf("status %d, %v: %.500s", w.Code, err, w.Body)
	}
	return v
}

// TestPastOthers: matrix and locations of history match its cells.
func TestPastOthers(t *testing.T) {
	s, _ := newHistory(t)
	m := read[wire.MatrixResponse](t, s.get(t, "/api/v1/matrix?"+past))
	cells := read[wire.CellsResponse](t, s.get(t, "/api/v1/cells?"+past))
	seen := 0
	for _, c := range cells.Cells {
		i := slices.Index(m.Groups, c.Src)*len(m.Groups) + slices.Index(m.Groups, c.Dst)
		if m.Mean[i] != c.Mean.GetRatio() || m.State[i] != c.State || m.HeavyRatio[i] != c.GetHeavyRatio() {
			t.Errorf("%s to %s differs in the matrix", c.Src, c.Dst)
		}
		seen++
	}
	if !slices.Equal(m.Groups, []string{"rack1", "rack2", "rack3", "rack4"}) || seen < 8 || !math.IsNaN(m.Mean[0]) || m.State[0] != wire.State_STATE_NO_DATA {
		t.Errorf("groups %v, %d cells", m.Groups, seen)
	}
	l := read[wire.LocationsResponse](t, s.get(t, "/api/v1/locations?top=3&signal=max_delay&"+past))
	if len(l.Locations) != 3 || l.Total <= 3 || l.Locations[0].Cells == 0 || l.Locations[0].HeavyMean == nil || l.Locations[0].Heavy < l.Locations[1].Heavy {
		t.Errorf("locations %+v", l)
	}
}

// TestPastProducers: each answer over a range of the store counts the producers of the range,
// once for all of its pages.
func TestPastProducers(t *testing.T) {
	memory := querytest.Fabric(4, 10)
	memory.FlowRows, memory.Producers = querytest.Flows(memory, 250), query.ProducerCounts{Expected: 3, Present: 2}
	s := newServed(t, 4, func(c *api.Config) { c.Memory, c.Names, c.Reader = nil, nil, memory })
	for _, target := range []string{"cells?", "matrix?", "path?src=rack1&dst=rack2&", "locations?", "links?", "timeline?", "flows?signal=max_delay&"} {
		o := object(t, s.get(t, "/api/v1/"+target+past))
		if o["expected_producers"] != 3.0 || o["present_producers"] != 2.0 {
			t.Errorf("%s: %v of %v producers", target, o["present_producers"], o["expected_producers"])
		}
	}
	read := func(cursor any) map[string]any {
		return object(t, s.get(t, fmt.Sprintf("/api/v1/flows?signal=max_delay&limit=100&cursor=%s&%s", cursor, past)))
	}
	first := read("")
	memory.Producers.Present = 3
	before := memory.Calls()
	if next := read(first["next_cursor"]); next["present_producers"] != 2.0 {
		t.Errorf("second page: %v producers", next["present_producers"])
	}
	if n := memory.Calls() - before; n > 1 {
		t.Errorf("%d reads for a second page, want the extent at most", n)
	}
}

// TestPastPages: pages of history fit together even if more rows are stored meanwhile; if they
// cannot, the client gets an error. All have one age, also if the range ends in the future.
func TestPastPages(t *testing.T) {
	const ahead = "&from=2026-01-20T09:00:00Z&to=2026-01-20T09:02:00Z"
	for _, path := range []string{"cells?signal=min_abw&limit=5&" + past, "flows?signal=max_delay&limit=99", "findings?limit=50", "cells?signal=min_abw&limit=5" + ahead, "flows?signal=max_delay&limit=99" + ahead} {
		s, store := newHistory(t)
		list := func(body map[string]any) []any {
			for _, name := range []string{"cells", "flows", "findings"} {
				if v, ok := body[name].([]any); ok {
					return v
				}
			}
			return nil
		}
		onePage := strings.NewReplacer("limit=5&", "limit=1000&", "limit=99", "limit=1000", "limit=50", "limit=1000", "limit=5", "limit=1000").Replace(path)
		whole := list(object(t, s.get(t, "/api/v1/"+onePage)))
		var got []any
		var cursors []string
		times := map[[2]any]bool{}
		for target := path; target != ""; {
			page := object(t, s.get(t, "/api/v1/"+target))
			got = append(got, list(page)...)
			times[[2]any{page["as_of"], page["age_s"]}] = true
			target = ""
			if next, ok := page["next_cursor"].(string); ok {
				cursors, target = append(cursors, next), path+"&cursor="+next
			}
			// Later rows are not part of this answer.
			store.Rows = append(store.Rows, store.Rows[:20]...)
			store.Rows[len(store.Rows)-1].Window = store.Rows[len(store.Rows)-2].Window + int64(20*len(cursors))*int64(time.Second)
			store.FlowRows = append(querytest.Flows(store, 1), store.FlowRows...)
			store.FindingRows = append(querytest.Findings(store, 1), store.FindingRows...)
		}
		if diff := cmp.Diff(whole, got); diff != "" || len(cursors) < 2 || len(times) != 1 {
			t.Errorf("%s: %d pages of answers at %v (-whole +pages):\n%.1000s", path, len(cursors)+1, times, diff)
		}
		other, _ := newHistory(t)
		if w := other.get(t, "/api/v1/"+path+"&cursor="+cursors[0]); w.Code != 200 {
			t.Errorf("%s: another process that stores the same: %d %s", path, w.Code, w.Body)
		}
		changed, store := newHistory(t)
		store.Rows[0].Observations++
		store.Rows[0].Signal = store.Rows[1].Signal
		store.Rows = store.Rows[:len(store.Rows)/2]
		store.FlowRows, store.FindingRows = store.FlowRows[1:], store.FindingRows[1:]
		if w := changed.get(t, "/api/v1/"+path+"&cursor="+cursors[0]); w.Code != 410 || !strings.Contains(w.Body.String(), "have changed") {
			t.Errorf("%s: another process that stores something else: %d %s", path, w.Code, w.Body)
		}
		forged, err := base64.RawURLEncoding.DecodeString(cursors[0])
		parts := strings.Split(string(forged), ".")
		parts[5] = strconv.Itoa(math.MaxInt)
		far := base64.RawURLEncoding.EncodeToString([]byte(strings.Join(parts, ".")))
		if page := object(t, s.get(t, "/api/v1/"+path+"&cursor="+far)); err != nil || len(list(page)) > 0 {
			t.Errorf("%s: a page behind the end has %d rows, %v", path, len(list(page)), err)
		}
		for change, code := range map[string]int{"&src=rack1": 422, "&cursor=" + cursors[0]: 422, "&from=2026-01-20T09:00:01Z&to=2026-01-20T09:00:02Z": 422} {
			if strings.Contains(path, "from=") && strings.HasPrefix(change, "&from") {
				continue // already present
			}
			if w := s.get(t, "/api/v1/"+path+"&cursor="+cursors[0]+change); w.Code != code {
				t.Errorf("%s%s: %d %s", path, change, w.Code, w.Body)
			}
		}
	}
}

// TestAgeOfPages: age_s of all pages is that at their as_of, however late a page is asked for.
func TestAgeOfPages(t *testing.T) {
	now, stored := begin.Add(time.Minute), querytest.Fabric(4, 10)
	stored.FlowRows = querytest.Flows(stored, 25)
	s := newServed(t, 4, func(c *api.Config) {
		c.Memory, c.Names, c.Reader, c.Now = nil, nil, stored, func() time.Time { return now }
	})
	for _, path := range []string{"/api/v1/cells?limit=5&", "/api/v1/flows?limit=10&"} {
		path += "signal=max_delay&" + past
		first := object(t, s.get(t, path))
		now = now.Add(4 * time.Second)
		second := object(t, s.get(t, path+"&cursor="+first["next_cursor"].(string)))
		if first["as_of"] != second["as_of"] || first["age_s"] != second["age_s"] {
			t.Errorf("%s: page of %v, age %v, next page of %v, age %v", path, first["as_of"], first["age_s"], second["as_of"], second["age_s"])
		}
	}
}

// cellsReader counts questions for cells.
type cellsReader struct {
	*querytest.Memory
	asked int
}

func (r *cellsReader) Cells(ctx context.Context, q query.Question) ([]aggregate.CellStats, error) {
	r.asked++
	return r.Memory.Cells(ctx, q)
}

// TestPagesOfManyRows: an answer of more rows than are kept is read again for one of its pages, not for each.
func TestPagesOfManyRows(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: one question after the other has nothing for the race detector")
	}
	store := &cellsReader{Memory: querytest.Fabric(270, 1)}
	s := newServed(t, 4, func(c *api.Config) { c.Memory, c.Names, c.Reader = nil, nil, store })
	cells := map[string]bool{}
	total, cursor := 0, ""
	for more := true; more; {
		page := object(t, s.get(t, "/api/v1/cells?signal=min_abw&limit=5000&cursor="+cursor+"&"+past))
		for _, c := range page["cells"].([]any) {
			cell := c.(map[string]any)
			cells[cell["src"].(string)+">"+cell["dst"].(string)] = true
			total++
		}
		cursor, more = page["next_cursor"].(string)
	}
	if total <= 1<<16 || len(cells) != total || store.asked != 2 {
		t.Errorf("%d cells, %d of them different, of %d reads of the store", total, len(cells), store.asked)
	}
}
