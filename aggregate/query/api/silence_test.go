package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/flow"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/query/wire"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/aggregate/table/tabletest"
	csigdecode "github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// TestSilence: three minutes after the only producers fell silent, no answer has a number that a
// controller could take for a present one.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := begin.Add(4 * time.Second)
		clock := func() time.Time { return now }
		s := newServed(t, 9, func(c *api.Config) {
			c.Memory, c.Now = table.NewMemory(table.MemoryOptions{Epoch: 7, Log: 16, Now: clock}), clock
			c.Down = func(silent []table.Producer) []string { return []string{silent[len(silent)-1].Name} }
		})
		s.memory.Expect([]table.Producer{{ID: 1, Name: "eth0"}, {ID: 2, Name: "eth1"}, {ID: 3, Name: "eth2"}}, nil) // the third never sends
		for second := range 4 {
			s.window(t, second)
		}
		named := producersBlocks(3, 9)[0]
		named.Flows = []aggregate.FlowRow{{
			Flow: flow.Flow{Src: [16]byte{15: 1}, Dst: [16]byte{15: 2}, Proto: 6}, Signal: uint8(csig.MinABWRatio), Kind: uint8(csigdecode.Tag),
			SrcGroup: named.SrcGroup[0], DstGroup: named.DstGroup[0], Observations: 1, Heavy: 1,
		}}
		s.writeBlock(t, named)
		s.memory.Publish()
		path := func() *wire.PathResponse {
			return read[wire.PathResponse](t, s.get(t, "/api/v1/path?src=rack1&dst=rack2"))
		}
		if p := path(); p.Room == nil || p.About.GetExpectedProducers() != 3 || p.About.GetPresentProducers() != 2 || p.Cell.ExpectedProducers != 2 || p.Cell.PresentProducers != 2 || len(p.Cell.SilentProducers) > 0 {
			t.Errorf("while two of three send: %v", p)
		}
		for _, after := range []time.Duration{2 * time.Second, 3 * time.Second, 20 * time.Second, 3 * time.Minute} {
			now = begin.Add(4*time.Second + after)
			s.memory.Publish()
			gone := after >= 3*time.Second
			for _, n := range []int{1, 10, 60} {
				cells := s.get(t, fmt.Sprintf("/api/v1/cells?windows=%d", n))
				text := cells.Body.String()
				page := read[wire.CellsResponse](t, cells)
				if a := page.About; a.GetAgeS() != after.Seconds() || !a.AsOf.AsTime().Equal(now) || a.GetExpectedProducers() != 3 || (a.GetPresentProducers() == 0) != gone || len(page.Cells) != 9 {
					t.Fatalf("%s later: %d cells of %v", after, len(page.Cells), a)
				}
				for _, c := range page.Cells {
					if (c.State == wire.State_STATE_NO_DATA) != gone || (c.Mean == nil) != gone || (c.HeavyRatio == nil) != gone || gone && (c.Mode != nil || c.Min != nil || len(c.SilentProducers) != 2) {
						t.Fatalf("%s later: %v", after, c)
					}
				}
				if gone && (strings.Contains(text, "heavy_ratio") || strings.Contains(text, "mean")) {
					t.Errorf("%s later: %.300s", after, text)
				}
				locations := read[wire.LocationsResponse](t, s.get(t, fmt.Sprintf("/api/v1/locations?windows=%d", n)))
				links := read[wire.LinksResponse](t, s.get(t, fmt.Sprintf("/api/v1/links?windows=%d", n)))
				if (locations.Total == 0) != gone || (links.Total == 0) != gone {
					t.Errorf("%s later, %d windows: %d locations, %d links", after, n, locations.Total, links.Total)
				}
				if flows := read[wire.FlowsResponse](t, s.get(t, fmt.Sprintf("/api/v1/flows?windows=%d", n))); flows.Total != 0 && gone || flows.Total == 0 && after == 2*time.Second && n > 2 {
					t.Errorf("%s later, %d windows: %d flows", after, n, flows.Total)
				}
				var matrix struct {
					Mean, Heavy [][]*float64
					State       [][]string
				}
				if err := json.Unmarshal(s.get(t, fmt.Sprintf("/api/v1/matrix?windows=%d", n)).Body.Bytes(), &matrix); err != nil || len(matrix.Mean) != 3 || (matrix.Mean[0][1] == nil) != gone || (matrix.State[0][1] == "no_data") != gone {
					t.Errorf("%s later: matrix %v, %v", after, matrix, err)
				}
			}
			if p := path(); gone && (p.Room != nil || p.Limit != nil || p.Cell.State != wire.State_STATE_NO_DATA || p.About.GetAgeS() != after.Seconds()) {
				t.Errorf("%s later: path %v", after, p)
			}
			verdict := read[wire.VerdictResponse](t, s.get(t, "/api/v1/verdict"))
			if !strings.Contains(fmt.Sprint(verdict.Notes), " silent: eth") || (verdict.Kind == wire.VerdictKind_VERDICT_KIND_NO_DATA) != gone || gone && (verdict.Cells != 0 || len(verdict.Statements) != 0) {
				t.Errorf("%s later: verdict %v", after, verdict)
			}
			h := read[wire.HealthResponse](t, s.get(t, "/api/v1/health"))
			if h.GetAgeS() != after.Seconds() || (h.PresentProducers == 0) != gone || h.ExpectedProducers != 3 || gone && len(h.MissingProducers) != 3 || fmt.Sprint(h.DownProducers) != "[eth2]" {
				t.Errorf("%s later: health %v", after, h)
			}
			line := read[wire.TimelineResponse](t, s.get(t, "/api/v1/timeline?windows=60")).Timeline
			if last := line[len(line)-1]; gone && (last.Observations != 0 || last.CompletenessRatio != 0) {
				t.Errorf("%s later: %v", after, last)
			}
		}
		if got := read[wire.CellsResponse](t, s.get(t, "/api/v1/cells?state=no_data")); got.Total != 9 {
			t.Errorf("%d cells without data", got.Total)
		}
	})
}

// TestFewerWindows: an answer over more windows than are in memory states their actual number.
func TestFewerWindows(t *testing.T) {
	s := newServed(t, 9, func(c *api.Config) { c.Memory = table.NewMemory(table.MemoryOptions{Windows: 3, Ahead: -1}) })
	for second := range 5 {
		s.window(t, second)
	}
	for _, target := range []string{"cells?", "matrix?", "path?src=rack1&dst=rack2&", "locations?", "links?", "verdict?", "timeline?", "flows?"} {
		for asked, want := range map[int]float64{2: 2, 60: 3} {
			o := object(t, s.get(t, fmt.Sprintf("/api/v1/%swindows=%d", target, asked)))
			if o["windows"] != want || o["from"] != begin.Add(time.Duration(5-want)*time.Second).Format(time.RFC3339) {
				t.Errorf("%s: %v windows from %v, of %d asked for", target, o["windows"], o["from"], asked)
			}
		}
	}
}

// TestAgeOfSharedPage: a page is computed once per revision, but each answer has its own age.
func TestAgeOfSharedPage(t *testing.T) {
	now := begin
	s := newServed(t, 4, func(c *api.Config) { c.Now = func() time.Time { return now } })
	s.window(t, 0)
	for _, after := range []float64{1, 2.5} {
		now = begin.Add(time.Second + time.Duration(after*float64(time.Second)))
		if a := read[wire.CellsResponse](t, s.get(t, "/api/v1/cells")).About; a.GetAgeS() != after {
			t.Errorf("%v s after the window the age is %v", after, a.GetAgeS())
		}
	}
}

// TestVerdictWords: kinds have the same names in reports, logs and answers.
func TestVerdictWords(t *testing.T) {
	t.Parallel()
	for n := range wire.VerdictKind_name {
		if k := wire.VerdictKind(n); k > 0 && query.VerdictKind(k-1).String() != wire.Word(k.Descriptor().Values().ByNumber(k.Number())) {
			t.Errorf("%s is %s", k, query.VerdictKind(k-1))
		}
	}
	for n := range wire.StatementKind_name {
		if k := wire.StatementKind(n); k > 0 && query.StatementKind(k-1).String() != wire.Word(k.Descriptor().Values().ByNumber(k.Number())) {
			t.Errorf("%s is %s", k, query.StatementKind(k-1))
		}
	}
}

// TestNeverHeard: before the first window, answers and streams say which producers are silent as soon as these are
// expected.
func TestNeverHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := begin
		s := newClocked(t, table.MemoryOptions{Log: 16}, &now, tabletest.Names{Racks: 3})
		f := follow(t, s, "heartbeat=60s")
		tag := s.get(t, "/api/v1/verdict").Header().Get("ETag")
		list := []table.Producer{{ID: 1, Name: "eth0"}, {ID: 2, Name: "eth1"}}
		for n := range len(list) {
			s.memory.Expect(list[:n+1], nil)
			synctest.Wait()
			w := s.get(t, "/api/v1/verdict", "If-None-Match", tag)
			if v := read[wire.VerdictResponse](t, w); len(v.Notes) != 1 || !strings.Contains(v.Notes[0], list[n].Name) {
				t.Errorf("%d are expected: %v", n+1, v)
			}
			tag = w.Header().Get("ETag")
		}
		s.memory.Expect(list, nil) // nothing new
		if w := s.get(t, "/api/v1/verdict", "If-None-Match", tag); w.Code != http.StatusNotModified {
			t.Errorf("the same are expected: %d", w.Code)
		}
		want := []string{"initial tap_lost eth0", "2 tap_lost eth1"}
		if diff := cmp.Diff(want, lines(t, f.events(t))); diff != "" {
			t.Errorf("changes (-want +got):\n%s", diff)
		}
	})
}

// TestTimelineOfLateRows: late rows of a window change the states of later windows that were shown before.
func TestTimelineOfLateRows(t *testing.T) {
	now := begin.Add(3 * time.Second)
	s := newClocked(t, table.MemoryOptions{}, &now, tabletest.Names{Racks: 3})
	between := []seen{{1, 2, 1, 3, 100}}
	for i, b := range []*aggregate.Block{rows(1, 1, between), rows(1, 2, between), rows(2, 0, loaded)} {
		s.writeBlock(t, b)
		s.memory.Publish()
		shown := 0
		for _, m := range read[wire.TimelineResponse](t, s.get(t, "/api/v1/timeline?windows=2&src=rack1&dst=rack2")).Timeline {
			if m.Cells == 0 {
				continue
			}
			if shown++; (m.Congested == 1) != (i == 2) {
				t.Errorf("after block %d: %v", i, m)
			}
		}
		if shown != min(i+1, 2) {
			t.Errorf("after block %d: %d windows with cells", i, shown)
		}
	}
}
