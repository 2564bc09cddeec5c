package api_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/query/querytest"
	"github.com/csigscope/csigscope/aggregate/query/tabular"
	"github.com/csigscope/csigscope/aggregate/query/tabular/tabulartest"
	"github.com/csigscope/csigscope/aggregate/query/wire"
)

// exportOf reads a table over a connection, with its trailers.
func exportOf(t *testing.T, url, target string, f tabular.Format) ([][]string, *http.Response) {
	t.Helper()
	response, err := http.Get(url + "/api/v1/" + target + "&format=" + string(f))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != 200 || response.Header.Get("Content-Type") != f.ContentType() {
		t.Fatalf("%s as %s: %v, %s, type %q: %.200s", target, f, err, response.Status, response.Header.Get("Content-Type"), body)
	}
	rows, notes, err := tabulartest.Read(f, body)
	if err != nil {
		t.Fatalf("%s as %s: %v", target, f, err)
	}
	for name, value := range notes {
		if response.Trailer.Get(name) != value {
			t.Errorf("%s as %s: %s is %q in the metadata, %q in the trailers", target, f, name, value, response.Trailer.Get(name))
		}
	}
	if got := response.Trailer.Get("Csigscope-Rows"); got != strconv.Itoa(len(rows)-1) || response.Header.Get("Csigscope-Row-Limit") == "" {
		t.Errorf("%s as %s: %d rows, trailers %v, headers %v", target, f, len(rows)-1, response.Trailer, response.Header)
	}
	return rows, response
}

// TestExportNothing: a table without rows is complete, even as lines, which have no header.
func TestExportNothing(t *testing.T) {
	url := listen(t, newCalled(t, nil))
	for _, f := range []tabular.Format{tabular.NDJSON, tabular.CSV, tabular.Parquet, tabular.Arrow} {
		response, err := http.Get(url + "/api/v1/export?signal=type_7&windows=1&format=" + string(f))
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(io.Discard, response.Body)
		response.Body.Close()
		if tr := response.Trailer; err != nil || response.StatusCode != 200 || response.Header.Get("Content-Type") != f.ContentType() || tr.Get("Csigscope-Rows") != "0" || tr.Get("Csigscope-Complete") != "true" {
			t.Errorf("%s: %v, %s, headers %v, trailers %v", f, err, response.Status, response.Header, tr)
		}
	}
}

// column returns the values of the named column.
func column(t *testing.T, rows [][]string, name string) (values []string) {
	t.Helper()
	i := slices.Index(rows[0], name)
	if i < 0 {
		t.Fatalf("no column %s in %q", name, rows[0])
	}
	for _, r := range rows[1:] {
		values = append(values, r[i])
	}
	return values
}

// TestExport: tables equal the answers, in each format.
func TestExport(t *testing.T) {
	s := newCalled(t, nil)
	url := listen(t, s)
	for target, cells := range map[string]string{
		"export?dst=pod1&signal=min_abw":                         "cells?dst=pod1&signal=min_abw",
		"export?signal=max_delay&windows=3":                      "cells?signal=max_delay&windows=3",
		"export?state=congested&table=windows&windows=1":         "cells?state=congested",
		"export?src=rack1&" + past:                               "cells?src=rack1&" + past,
		"export?signal=max_delay&table=windows&step=10s&" + past: "cells?signal=max_delay&" + past,
	} {
		want := read[wire.CellsResponse](t, s.get(t, "/api/v1/"+cells))
		rows, response := exportOf(t, url, target, tabular.CSV)
		for _, f := range []tabular.Format{tabular.Parquet, tabular.Arrow} {
			others, _ := exportOf(t, url, target, f)
			if diff := cmp.Diff(rows, others); diff != "" {
				t.Errorf("%s as %s (-CSV +%s):\n%.1000s", target, f, f, diff)
			}
		}
		unit := map[string]string{"bit/s": "_bps", "ns": "_ns", "ratio": "_ratio"}[want.About.Unit]
		mean, src, mode, from, to := column(t, rows, "mean"+unit), column(t, rows, "src"), column(t, rows, "mode_location"), column(t, rows, "from"), column(t, rows, "to")
		if len(rows)-1 != len(want.Cells) || len(mean) == 0 || response.Trailer.Get("Csigscope-Complete") != "true" {
			t.Fatalf("%s: %d rows, want %d, trailers %v", target, len(rows)-1, len(want.Cells), response.Trailer)
		}
		at := map[string]*wire.Cell{}
		for _, c := range want.Cells {
			at[c.Src+" "+c.Dst] = c
		}
		for i, dst := range column(t, rows, "dst") {
			c := at[src[i]+" "+dst]
			v, _, _ := c.Mean.Number()
			name := ""
			if c.Mode != nil {
				name = c.Mode.Location
			}
			if mean[i] != strconv.FormatFloat(v, 'f', -1, 64) || mode[i] != name || from[i] != want.About.From.AsTime().Format(time.RFC3339) || to[i] != want.About.To.AsTime().Format(time.RFC3339) {
				t.Errorf("%s: row %q of %+v", target, rows[i+1], c)
			}
		}
		if memory := want.About.Source == "memory"; memory != (response.Header.Get("ETag") != "") {
			t.Errorf("%s: tag %q", target, response.Header.Get("ETag"))
		}
	}
}

// TestExportWindows: windows of a table equal those of the timeline.
func TestExportWindows(t *testing.T) {
	s := newCalled(t, nil)
	url := listen(t, s)
	for target, timeline := range map[string]string{
		"export?table=windows&src=rack1&dst=rack2&windows=9":       "timeline?src=rack1&dst=rack2",
		"export?table=windows&src=rack1&dst=rack2&step=2s&" + past: "timeline?src=rack1&dst=rack2&step=2s&" + past,
	} {
		rows, _ := exportOf(t, url, target, tabular.Parquet)
		line := read[wire.TimelineResponse](t, s.get(t, "/api/v1/"+timeline))
		from, observations := column(t, rows, "from"), column(t, rows, "observations")
		if len(from) != len(line.Timeline) || len(from) < 3 {
			t.Fatalf("%s: %d rows of %d windows", target, len(from), len(line.Timeline))
		}
		for i, m := range line.Timeline {
			if from[i] != m.WindowStart.AsTime().Format(time.RFC3339) || observations[i] != strconv.FormatUint(m.Cell.Observations, 10) {
				t.Errorf("%s: window %s has %s observations, want %d", target, from[i], observations[i], m.Cell.Observations)
			}
		}
	}
}

// TestExportRecords: flows and findings as tables.
func TestExportRecords(t *testing.T) {
	s := newCalled(t, nil)
	url := listen(t, s)
	flows := read[wire.FlowsResponse](t, s.get(t, "/api/v1/flows?signal=max_delay&src=rack1"))
	findings := read[wire.FindingsResponse](t, s.get(t, "/api/v1/findings?severity=error"))
	for _, f := range []tabular.Format{tabular.CSV, tabular.Parquet, tabular.Arrow} {
		rows, response := exportOf(t, url, "export/flows?signal=max_delay&src=rack1", f)
		if most := response.Header.Get("Csigscope-Row-Limit"); most != strconv.Itoa(api.MaxExportRecords) {
			t.Errorf("%s: at most %s rows, want %d", f, most, api.MaxExportRecords)
		}
		for i, heavy := range column(t, rows, "heavy") {
			if v := flows.Flows[i]; heavy != strconv.FormatUint(v.Heavy, 10) || column(t, rows, "src_address")[i] != v.SrcAddress || column(t, rows, "others")[i] != strconv.FormatBool(v.Others) {
				t.Errorf("%s: flow %q of %+v", f, rows[i+1], v)
			}
		}
		found, _ := exportOf(t, url, "export/findings?severity=error", f)
		if evidence := column(t, found, "evidence"); len(rows)-1 != int(flows.Total) || len(evidence) != int(findings.Total) || evidence[0] != findings.Findings[0].Evidence {
			t.Errorf("%s: %d flows, %d findings", f, len(rows)-1, len(evidence))
		}
	}
}

// TestUntimedFinding: a finding of packets without a time is in every range, and has no time.
func TestUntimedFinding(t *testing.T) {
	s := newCalled(t, func(c *api.Config) {
		m := c.Reader.(*querytest.Memory)
		m.FindingRows = append(m.FindingRows, query.FindingRow{Kind: "orphan-tag", Severity: "error", Count: 3})
	})
	const asked = "findings?kind=orphan-tag&from=2026-01-20T09:00:05Z&to=2026-01-20T09:00:06Z"
	answer := s.get(t, "/api/v1/"+asked)
	if body := answer.Body.String(); strings.Contains(body, "1970") || strings.Contains(body, `"first"`) || strings.Contains(body, `"last"`) || !strings.Contains(body, `"total":1,`) {
		t.Errorf("answered %s", body)
	}
	url := listen(t, s)
	for _, f := range []tabular.Format{tabular.CSV, tabular.Parquet, tabular.Arrow} {
		rows, _ := exportOf(t, url, "export/"+asked, f)
		if first, last := column(t, rows, "first"), column(t, rows, "last"); len(rows) != 2 || first[0]+last[0] != "" {
			t.Errorf("%s: %q", f, rows)
		}
	}
}

// endless is a store that repeats one window without end, slowly after a number of rows.
type endless struct {
	*querytest.Memory
	after  int
	failed error // error after that; nil: continues until the client gives up
}

func (e endless) EachCellWindow(ctx context.Context, q query.Question, n int, f func(*aggregate.CellWindow) error) (bool, error) {
	rows, err := e.CellWindows(ctx, q)
	for i := 0; err == nil && i < n; i++ {
		if i == e.after {
			if e.failed != nil {
				return false, e.failed
			}
			<-ctx.Done()
			return false, ctx.Err()
		}
		err = f(&rows[i%len(rows)])
	}
	return err == nil, err
}

// TestExportLimits: a truncated table is marked as such, and a failed one is not valid.
func TestExportLimits(t *testing.T) {
	const target = "export?table=windows&step=1s&" + past
	for name, tt := range map[string]struct {
		after  int
		failed error
		cutBy  string
		rows   string
		broken bool
		code   int
	}{
		"rows":          {after: 1 << 30, cutBy: "rows", rows: "5000"},
		"time":          {after: 1234, cutBy: "time", rows: "1234"},
		"failed":        {after: 3000, failed: errors.New("dial tcp 10.0.0.1: secret"), broken: true},
		"failed early":  {after: 0, failed: errors.New("dial tcp 10.0.0.1: secret"), code: 500},
		"too expensive": {after: 0, failed: query.ErrTooLarge, code: 422},
		"no time":       {after: 0, code: 504},
	} {
		s := newServed(t, 4, func(c *api.Config) {
			c.Reader, c.ExportRows, c.ExportTimeout = endless{querytest.Fabric(4, 10), tt.after, tt.failed}, 5000, 30*time.Second
			if tt.failed == nil && tt.after < 5000 {
				c.ExportTimeout = 300 * time.Millisecond
			}
		})
		for _, f := range []tabular.Format{tabular.CSV, tabular.Parquet, tabular.Arrow} {
			url := listen(t, s)
			if tt.code == 0 && !tt.broken {
				_, response := exportOf(t, url, target, f)
				if tr := response.Trailer; tr.Get("Csigscope-Complete") != "false" || tr.Get("Csigscope-Cut-By") != tt.cutBy || tr.Get("Csigscope-Rows") != tt.rows {
					t.Errorf("%s: trailers %v", name, tr)
				}
				continue
			}
			response, err := http.Get(url + "/api/v1/" + target + "&format=" + string(f))
			if err != nil {
				if !tt.broken {
					t.Errorf("%s: %v", name, err)
				}
				continue
			}
			body, err := io.ReadAll(response.Body)
			response.Body.Close()
			if tt.code != 0 && (response.StatusCode != tt.code || response.Header.Get("Content-Type") != "application/problem+json" || strings.Contains(string(body), "secret")) {
				t.Errorf("%s as %s: %s %s", name, f, response.Status, body)
			}
			if tt.broken && err == nil && response.StatusCode == 200 {
				t.Errorf("%s as %s: %d bytes are taken for a table", name, f, len(body))
			}
		}
	}
	s := newServed(t, 4, func(c *api.Config) { c.Reader = querytest.Fabric(4, 10) })
	for target, code := range map[string]int{"export?format=xlsx": 422, "export?step=1s": 422, "export?table=x": 422, "export/flows?src=nobody": 422, "export/findings?limit=1": 422, "export/nothing": 404} {
		if w := s.get(t, "/api/v1/"+target); w.Code != code {
			t.Errorf("%s: %d %s", target, w.Code, w.Body)
		}
	}
}
