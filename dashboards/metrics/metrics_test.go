package metrics_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/dashboards/metrics"
	"github.com/csigscope/csigscope/decode"
)

var update = flag.Bool("update", false, "write the golden files again")

func registry(t testing.TB, list ...prometheus.Collector) *prometheus.Registry {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	for _, c := range list {
		if err := r.Register(c); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// scrape returns the exposition that Prometheus gets.
func scrape(t testing.TB, r *prometheus.Registry) string {
	t.Helper()
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if answer.Code != http.StatusOK {
		t.Fatalf("%d: %s", answer.Code, answer.Body)
	}
	return answer.Body.String()
}

func TestExposition(t *testing.T) {
	r := registry(t, everything()...)
	problems, err := testutil.GatherAndLint(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	got := scrape(t, r)
	const golden = "testdata/exposition.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-update writes it again): %s", golden, diff)
	}
}

// TestReference checks that exactly the families of the reference are exported, with their types
// and labels, and that the golden exposition has an example of each.
func TestReference(t *testing.T) {
	all := everything()
	r := registry(t, append(all[:len(all)-1], counting(t))...)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	listed := make(map[string]metrics.Family)
	for _, f := range metrics.All() {
		if listed[f.Name].Name != "" {
			t.Errorf("%s is listed twice", f.Name)
		}
		listed[f.Name] = f
	}
	var text bytes.Buffer
	if err := metrics.WriteReference(&text); err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		want, ok := listed[f.GetName()]
		delete(listed, f.GetName())
		if !ok || string(want.Type) != strings.ToLower(f.GetType().String()) || want.Help != f.GetHelp() {
			t.Errorf("%s %s is not as the reference says: %+v", f.GetType(), f.GetName(), want)
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName())
			}
			if !slices.Equal(labels, slices.Sorted(slices.Values(want.Labels))) {
				t.Errorf("%s has labels %q, listed %q", f.GetName(), labels, want.Labels)
			}
		}
		if !strings.Contains(text.String(), "| `"+f.GetName()+"` | "+string(want.Type)+" |") {
			t.Errorf("%s is missing in the text", f.GetName())
		}
	}
	for name := range listed {
		t.Errorf("%s is listed and never exported", name)
	}
}

// counting returns an HTTP that has served a request, in place of the last one of everything.
func counting(t *testing.T) prometheus.Collector {
	t.Helper()
	h := metrics.NewHTTP()
	h.Count(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	return h
}

// TestBounded checks that the exposition stays small and valid and that no counter decreases, for
// any number of producers and any names.
func TestBounded(t *testing.T) {
	var removed []metrics.Exporter
	many := []metrics.Exporter{{Name: "late", Rows: 1}}
	r := registry(t, metrics.NewIngest(func() metrics.Ingest { return metrics.Ingest{Exporters: many, Removed: removed} }))
	scrape(t, r)
	for i := range 10_000 {
		many = append(many, metrics.Exporter{Name: fmt.Sprintf("host%d", i), Rows: 2, LastSeen: now.Add(time.Duration(-i) * time.Second)})
	}
	text := scrape(t, r)
	rows := regexp.MustCompile(`(?m)^csigscope_exporter_rows_total\{exporter="(.*)"\} (\d+)$`).FindAllStringSubmatch(text, -1)
	if len(rows) != metrics.MaxProducers+1 || !strings.Contains(text, `csigscope_exporter_rows_total{exporter="late"} 1`) {
		t.Errorf("%d exporters", len(rows))
	}
	rest := fmt.Sprintf(`csigscope_exporter_rows_total{exporter="other"} %d`, 2*(10_000-metrics.MaxProducers+1))
	if !strings.Contains(text, rest) {
		t.Errorf("want %s in %s", rest, text)
	}
	// Some may no longer send, with labels of their own and without.
	many, removed = many[:100], many[100:]
	text = scrape(t, r)
	if again := regexp.MustCompile(`(?m)^csigscope_exporter_rows_total\{.*$`).FindAllString(text, -1); len(again) != len(rows) || !strings.Contains(text, rest) {
		t.Errorf("%d exporters after a removal, want %d and %s", len(again), len(rows), rest)
	}
	if last := strings.Count(text, "\ncsigscope_exporter_last_seen_timestamp_seconds{"); last != len(many) || !strings.Contains(text, "\ncsigscope_ingest_exporters 100\n") {
		t.Errorf("%d exporters have a last request, want %d: %s", last, len(many), text)
	}
	many, removed = removed[len(removed)-9_000:], []metrics.Exporter{{Name: metrics.Other, Rows: 1 + 2*1_000}} // forgets exporters with labels of their own too
	if text := scrape(t, r); !strings.Contains(text, rest) {
		t.Errorf("want %s in %s", rest, text)
	}

	hostile := []metrics.Exporter{
		{Name: "same"}, {Name: "same"}, {Name: "\xff\xfe"}, {Name: "a\nb\"c\\"}, {Name: strings.Repeat("x", 1<<20)}, {Name: ""}, {Name: ""},
	}
	text = scrape(t, registry(t, metrics.NewIngest(func() metrics.Ingest { return metrics.Ingest{Exporters: hostile} })))
	if len(text) > 20_000 || !strings.Contains(text, `exporter="same"`) {
		t.Errorf("%d bytes: %.2000s", len(text), text)
	}
}

// TestForgottenExporters checks that the rows of a forgotten exporter count once: those of one with a
// label of its own never become those of others, even if it is back at the next scrape.
func TestForgottenExporters(t *testing.T) {
	var in metrics.Ingest
	for i := range metrics.MaxProducers + 1 {
		in.Exporters = append(in.Exporters, metrics.Exporter{Name: fmt.Sprintf("host%03d", i), Requests: 10, Rows: 100})
	}
	first, last := &in.Exporters[0], &in.Exporters[metrics.MaxProducers]
	r := registry(t, metrics.NewIngest(func() metrics.Ingest { return in }))
	forget := func(e *metrics.Exporter, next metrics.Exporter) {
		if in.Removed == nil {
			in.Removed = []metrics.Exporter{{Name: metrics.Other}}
		}
		in.Removed[0].Requests += e.Requests
		in.Removed[0].Rows += e.Rows
		*e = next
	}
	for _, tt := range []struct {
		name         string
		change       func()
		first, other string // rows of host000 and of others
	}{
		{"all send", func() {}, "100", "100"},
		{"one with a label gives way", func() { forget(first, metrics.Exporter{Name: "host300"}) }, "", "100"},
		{"others send", func() { last.Rows = 150 }, "", "150"},
		{"it is back", func() { forget(first, metrics.Exporter{Name: "host000", Requests: 2, Rows: 7}) }, "7", "150"},
		{"it is forgotten and back", func() { forget(first, metrics.Exporter{Name: "host000", Requests: 1, Rows: 3}) }, "3", "150"},
		{"one without a label gives way", func() { forget(last, metrics.Exporter{Name: "host301"}) }, "3", "150"},
	} {
		tt.change()
		rows := map[string]string{}
		for _, m := range regexp.MustCompile(`(?m)^csigscope_exporter_rows_total\{exporter="(.*)"\} (\d+)$`).FindAllStringSubmatch(scrape(t, r), -1) {
			rows[m[1]] = m[2]
		}
		if rows["host000"] != tt.first || rows[metrics.Other] != tt.other {
			t.Errorf("%s: %q and %q rows, want %q and %q", tt.name, rows["host000"], rows[metrics.Other], tt.first, tt.other)
		}
	}
}

// TestBottlenecksBounded checks that only the worst locations are exported, and that duplicate
// names do not fail a scrape.
func TestBottlenecksBounded(t *testing.T) {
	w := table.NewTopBottlenecks(time.Second, time.Minute, 4000)
	var b aggregate.Block
	b.Resolution, b.WindowStart = int64(time.Second), now.Add(-time.Second).UnixNano()
	for i := range uint64(500) {
		b.Signal, b.Kind = append(b.Signal, 1), append(b.Kind, uint8(decode.Tag))
		b.Location, b.Observations, b.Heavy = append(b.Location, 2+i), append(b.Observations, 10), append(b.Heavy, 1+i%7)
	}
	if err := w.WriteBlock(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	r := registry(t, metrics.NewBottlenecks(clock, 10, func(aggregate.LocationID) string { return "same" }, w.Top))
	if text := scrape(t, r); strings.Count(text, "csigscope_bottleneck_heavy_ratio{") != 1 {
		t.Errorf("got %s", text)
	}
	r = registry(t, metrics.NewBottlenecks(clock, 10, locationName, w.Top))
	if text := scrape(t, r); strings.Count(text, "csigscope_bottleneck_heavy_ratio{") != 10 {
		t.Errorf("got %s", text)
	}
}

// TestScrapeWhileRunning scrapes concurrently while values change, for the race detector.
func TestScrapeWhileRunning(t *testing.T) {
	var n atomic.Uint64
	w := table.NewTopBottlenecks(time.Second, time.Minute, 400)
	http1 := metrics.NewHTTP()
	r := registry(t, http1,
		metrics.NewTaps(func() []metrics.Tap {
			return []metrics.Tap{{Name: fmt.Sprint("eth", n.Load()%3), Frames: n.Load()}}
		}),
		metrics.NewProducers(time.Now, func() []metrics.Producer {
			return []metrics.Producer{{Name: fmt.Sprint(n.Load()), Observed: 1}}
		}),
		metrics.NewBottlenecks(time.Now, 5, locationName, w.Top),
	)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 50 {
				n.Add(1)
				_ = w.WriteBlock(t.Context(), &aggregate.Block{
					Resolution: int64(time.Second), WindowStart: time.Now().UnixNano(),
					Signal: []uint8{1}, Kind: []uint8{1}, Location: []uint64{5}, Observations: []uint64{1}, Heavy: []uint64{1},
				})
				http1.Count(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
				scrape(t, r)
			}
		})
	}
	group.Wait()
}

// TestStoreUp checks that a store is up as long as no attempt has failed and no row waits too long.
func TestStoreUp(t *testing.T) {
	for name, tt := range map[string]struct {
		status store.WriterStatus
		want   string
	}{
		"takes rows": {store.WriterStatus{}, "1"},
		"failed":     {store.WriterStatus{Failure: errors.New("away")}, "0"},
		"hangs":      {store.WriterStatus{Stalled: true}, "0"},
	} {
		want := "# HELP csigscope_store_up 1 while the server takes rows, 0 since an attempt failed or the oldest row has waited for more than 2 minutes.\n" +
			"# TYPE csigscope_store_up gauge\ncsigscope_store_up " + tt.want + "\n"
		c := metrics.NewStore(func() store.WriterStatus { return tt.status })
		if err := testutil.CollectAndCompare(c, strings.NewReader(want), "csigscope_store_up"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
