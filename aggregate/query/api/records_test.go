package api_test

import (
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/query/querytest"
	"github.com/csigscope/csigscope/aggregate/query/wire"
)

// TestFlows: filters select exactly their rows, and names are resolved.
func TestFlows(t *testing.T) {
	s, store := newHistory(t)
	all := read[wire.FlowsResponse](t, s.get(t, "/api/v1/flows?signal=max_delay&limit=1000"))
	if all.Total != 250 || len(all.Flows) != 250 || all.Truncated || all.NextCursor != "" || all.WindowS != 1 || all.About.From.AsTime().Minute() != 0 || all.About.AsOf == nil {
		t.Fatalf("%d of %d flows from %s", len(all.Flows), all.Total, all.About.From)
	}
	first, last := all.Flows[0], all.Flows[249]
	if first.SrcAddress != "10.0.1.0" || first.SrcPort != 1000 || first.Proto != 17 || first.Others || first.Max.GetNs() != 30_000 || first.HeavyRatio != 0.5 || first.Mode.ShareRatio != 0.5 || first.SrcGroup != "rack1" {
		t.Errorf("first flow %+v", first)
	}
	if !last.Others || last.SrcAddress != "" || last.Mode != nil {
		t.Errorf("others %+v", last)
	}
	for parameters, takes := range map[string]func(*wire.Flow) bool{
		"src=rack1":                    func(f *wire.Flow) bool { return f.SrcGroup == "rack1" },
		"src=rack1&src=rack2&dst=pod1": func(f *wire.Flow) bool { return f.SrcGroup == "rack1" || f.SrcGroup == "rack2" },
		"src_address=10.0.1.7":         func(f *wire.Flow) bool { return f.SrcAddress == "10.0.1.7" },
		"src_address=10.0.1.0/25&min_heavy=200": func(f *wire.Flow) bool {
			return strings.HasPrefix(f.SrcAddress, "10.0.1.") && f.Heavy >= 200
		},
		"dst_address=10.0.2.0%2F24": func(f *wire.Flow) bool { return !f.Others },
		"kind=reflection":           func(*wire.Flow) bool { return false },
		"kind=tag&kind=reflection":  func(*wire.Flow) bool { return true },
		"kind=tag":                  func(*wire.Flow) bool { return true },
		"from=2026-01-20T08:00:00Z&to=2026-01-20T09:00:00Z": func(*wire.Flow) bool { return false },
	} {
		want := 0
		for _, f := range all.Flows {
			if takes(f) {
				want++
			}
		}
		got := read[wire.FlowsResponse](t, s.get(t, "/api/v1/flows?signal=max_delay&limit=1000&"+parameters))
		for _, f := range got.Flows {
			if !takes(f) {
				t.Errorf("%s: took %+v", parameters, f)
			}
		}
		if int(got.Total) != want {
			t.Errorf("%s: %d flows, want %d", parameters, got.Total, want)
		}
	}
	const beyond = "from=2026-01-20T09:00:00Z&to=2026-01-21T09:00:00Z"
	flows, cells := read[wire.FlowsResponse](t, s.get(t, "/api/v1/flows?signal=max_delay&"+beyond)), read[wire.CellsResponse](t, s.get(t, "/api/v1/cells?signal=max_delay&"+beyond))
	if age := flows.About.GetAgeS(); age <= 0 || age != cells.About.GetAgeS() {
		t.Errorf("age %g of flows in a range that ends in the future, %g of cells", age, cells.About.GetAgeS())
	}
	const inside = "signal=max_delay&window=1m&from=2026-01-20T09:00:01Z&to=2026-01-20T09:00:59Z"
	minute := read[wire.FlowsResponse](t, s.get(t, "/api/v1/flows?"+inside))
	if from, to := minute.About.From.AsTime(), minute.About.To.AsTime(); minute.Total != 250 || minute.WindowS != 60 || !from.Equal(begin) || to.Sub(from) != time.Minute {
		t.Errorf("%d flows from %s to %s, expected all of the whole minute", minute.Total, from, to)
	}
	if rows := strings.Count(s.get(t, "/api/v1/export/flows?"+inside).Body.String(), "\n2026-01-20T09:00:00Z,2026-01-20T09:01:00Z,"); rows != 250 {
		t.Errorf("%d rows of the whole minute in a table", rows)
	}
	if l := read[wire.LinksResponse](t, s.get(t, "/api/v1/links?signal=max_delay&from=2026-01-20T09:00:01Z&to=2026-01-20T10:30:00Z")).Links[0]; l.Flows == 0 {
		t.Errorf("no flows at %s in a range of minutes that begins within the first", l.Link)
	}
	store.FlowRows = querytest.Flows(store, 20_002)
	if many := read[wire.FlowsResponse](t, s.get(t, "/api/v1/flows?signal=max_delay")); !many.Truncated || many.Total != 20_000 || len(many.Flows) != 100 {
		t.Errorf("too many: %d of %d flows, truncated %t", len(many.Flows), many.Total, many.Truncated)
	}
}

// TestRecordsOf1970: the default range begins no earlier than times of questions.
func TestRecordsOf1970(t *testing.T) {
	s, store := newHistory(t)
	for i := range store.Rows {
		store.Rows[i].Window -= begin.UnixNano()
	}
	for i := range store.FlowRows {
		store.FlowRows[i].Window = time.Unix(0, 0)
	}
	for i := range store.FindingRows {
		store.FindingRows[i].From, store.FindingRows[i].To = 0, 0
	}
	flows := read[wire.FlowsResponse](t, s.get(t, "/api/v1/flows?signal=max_delay"))
	if from := flows.About.From.AsTime(); from.UnixNano() != 0 || flows.Total != 250 {
		t.Errorf("%d flows from %s", flows.Total, from)
	}
	findings := read[wire.FindingsResponse](t, s.get(t, "/api/v1/findings"))
	if from := findings.From.AsTime(); from.UnixNano() != 0 || findings.Total != 120 {
		t.Errorf("%d findings from %s", findings.Total, from)
	}
}

// TestFindings does the same for findings.
func TestFindings(t *testing.T) {
	s, _ := newHistory(t)
	all := read[wire.FindingsResponse](t, s.get(t, "/api/v1/findings?limit=1000"))
	if all.Total != 120 || all.Truncated || all.Source != "store" {
		t.Fatalf("%d findings from %s", all.Total, all.From)
	}
	if f := all.Findings[0]; f.Id != "1000000000000000" || f.Location == "" || f.Severity != wire.Severity_SEVERITY_ERROR || len(f.Packets) != 2 || f.Count != 1 || f.Evidence != "S=0 'then' 4" {
		t.Errorf("first %+v", f)
	}
	for parameters, takes := range map[string]func(*wire.Finding) bool{
		"kind=scrub-failure":              func(f *wire.Finding) bool { return f.Kind == "scrub-failure" },
		"kind=scrub-failure&kind=x":       func(f *wire.Finding) bool { return f.Kind == "scrub-failure" },
		"severity=error&severity=warning": func(f *wire.Finding) bool { return f.Severity != wire.Severity_SEVERITY_INFO },
		"device=leaf1":                    func(f *wire.Finding) bool { return f.Device == "leaf1" },
		"location=leaf1:up1":              func(f *wire.Finding) bool { return f.Location == "leaf1:up1" },
		"location=leaf1:up1&severity=warning": func(f *wire.Finding) bool {
			return f.Location == "leaf1:up1" && f.Severity == wire.Severity_SEVERITY_WARNING
		},
		"from=2026-01-20T08:00:00Z&to=2026-01-20T08:59:59Z": func(*wire.Finding) bool { return false },
		"kind=%27+OR+1%3D1": func(*wire.Finding) bool { return false },
	} {
		want := 0
		for _, f := range all.Findings {
			if takes(f) {
				want++
			}
		}
		if got := read[wire.FindingsResponse](t, s.get(t, "/api/v1/findings?limit=1000&"+parameters)); int(got.Total) != want {
			t.Errorf("%s: %d findings, want %d", parameters, got.Total, want)
		}
	}
}
