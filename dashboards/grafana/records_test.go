package grafana_test

import (
	"log/slog"
	"math"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/data"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/flow"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/store/chdb"
	"github.com/csigscope/csigscope/aggregate/store/chdb/chdbtest"
	"github.com/csigscope/csigscope/aggregate/table/tabletest"
	"github.com/csigscope/csigscope/dashboards/grafana"
	"github.com/csigscope/csigscope/dashboards/grafana/grafanatest"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

func TestMain(m *testing.M) { chdbtest.Main(m) }

var recordsStart = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)

// Names with characters that are special in SQL.
const (
	oddGroup = `it's \new rack2\`
	oddPort  = `leaf1:up\1'`
)

// recorded returns a viewer of a store with flows and findings, which the demo does not have.
func recorded(t *testing.T) *grafanatest.Viewer {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: asks the real engine")
	}
	engine := chdbtest.Start(t)
	s, err := store.Open(t.Context(), store.Options{
		Writer: engine.ClickHouseOptions(chdb.RoleWriter), Migrator: engine.ClickHouseOptions(chdb.RoleMigrator), Reader: engine.ClickHouseOptions(chdb.RoleReader),
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.Migrate(t.Context()))
	must(s.WriteGroups(t.Context(), []fabric.Group{{ID: aggregate.UnknownGroup, Name: "unknown"}, {ID: 10, Name: "rack1", Level: "rack"}, {ID: 11, Name: oddGroup, Level: "rack"}}))
	must(s.WriteLocations(t.Context(), []fabric.Location{{ID: 5, Name: oddPort, Kind: fabric.KindPort, Set: 5, DeviceLoc: 5, StageLoc: 5}}))
	named := aggregate.FlowRow{
		Signal: uint8(csig.MinABWRatio), Kind: uint8(decode.Tag), SrcGroup: 10, DstGroup: 11,
		Flow:         flow.Flow{Src: netip.MustParseAddr("10.0.0.1").As16(), Dst: netip.MustParseAddr("2001:db8::2").As16(), SrcPort: 49152, DstPort: 4791, Proto: 17},
		Observations: 20, Bytes: 3000, Measured: 10, Sum: 2_500_000, Min: 20, Max: 500_000, Heavy: 4, HeavySum: 300, Location: 5, LocationHeavy: 3,
	}
	others := named
	others.Flow, others.Location, others.LocationHeavy, others.Heavy, others.Measured = flow.Flow{}, 0, 0, 0, 0
	ungrouped := named
	ungrouped.SrcGroup, ungrouped.DstGroup = uint64(aggregate.UnknownGroup), uint64(aggregate.UnknownGroup)
	block := tabletest.Block(rand.New(rand.NewPCG(1, 2)), 0, recordsStart, 1, csig.MinABWRatio)
	block.Flows = []aggregate.FlowRow{named, others, ungrouped}
	must(s.WriteBlock(t.Context(), block))
	block.Flows, block.Resolution = nil, int64(time.Minute) // the minute ended with the capture
	must(s.WriteBlock(t.Context(), block))
	must(s.Flush(t.Context()))
	must(s.WriteFindings(t.Context(), []store.FindingRow{{
		Source: aggregate.Source{Producer: 1}, Kind: "rogue-insertion", ID: 77, Severity: store.SeverityError, From: recordsStart.UnixNano(), To: recordsStart.UnixNano() + 5,
		Count: 3, Device: "leaf1", Port: "up1", Location: 5, Evidence: "S=31", Packets: []uint64{9},
	}, {Source: aggregate.Source{Producer: 1}, Kind: "orphan-tag", ID: 78, Severity: store.SeverityInfo, Count: 2}}))
	address, err := engine.Listen(t.Context(), "127.0.0.1:0")
	must(err)
	return &grafanatest.Viewer{
		URL: "http://" + address + "/?database=" + store.DefaultDatabase, From: recordsStart, To: recordsStart.Add(time.Minute), Interval: time.Second,
		Choices: chosen(t, map[string]grafanatest.Choice{"src": {Value: "rack1"}, "dst": {Value: oddGroup}, "group": {Value: oddGroup}, "rows": {Text: "1s", Value: "1s"}}),
	}
}

// chosen returns the initial choices of a user who opens the boards, except for the given ones,
// which replace choices that come from a query.
func chosen(t *testing.T, given map[string]grafanatest.Choice) map[string]grafanatest.Choice {
	t.Helper()
	for _, b := range decoded(t, grafana.DefaultOptions()) {
		each(b["templating"], func(o map[string]any) {
			name, _ := o["name"].(string)
			current, _ := o["current"].(map[string]any)
			value, ok := current["value"].(string)
			if _, is := given[name]; name == "" || !ok || is {
				return
			}
			text, _ := current["text"].(string)
			given[name] = grafanatest.Choice{Text: text, Value: value}
		})
	}
	return given
}

// TestRecords checks that flows and findings are readable, and that a location filters them.
func TestRecords(t *testing.T) {
	v := recorded(t)
	flows := []string{"10.0.0.1", "2001:db8::2", oddPort}
	for _, tt := range []struct {
		location, title string
		rows            int
		want            []string
	}{
		{"", "Flows of $src to $dst", 2, flows},
		{oddPort, "Flows of $src to $dst", 1, flows},
		{"spine1:down1", "Flows of $src to $dst", 0, nil},
		{"", "Worst flows of $group", 2, flows},
		{"", "Findings", 2, []string{"error", "rogue-insertion", "leaf1", oddPort, "S=31"}},
		{oddPort, "Findings", 1, []string{"error"}},
		{"spine1:down1", "Findings", 0, nil},
	} {
		v.Choices["location"] = grafanatest.Choice{Value: tt.location}
		frame, err := v.Ask(panelSQL(t, tt.title))
		if err != nil {
			t.Fatal(err)
		}
		var texts []string
		for _, f := range frame.Fields {
			if f.Type() == data.FieldTypeString && f.Len() > 0 {
				texts = append(texts, f.At(0).(string))
			}
		}
		for _, w := range tt.want {
			if !slices.Contains(texts, w) {
				t.Errorf("%s at %q: first row is %q, want %q in it", tt.title, tt.location, texts, w)
			}
		}
		if source, at := frame.FieldByName("source"); at >= 0 && tt.rows > 1 && source.At(1) != "all others" {
			t.Errorf("%s: what others come to is of %v", tt.title, source.At(1))
		}
		if at, i := frame.FieldByName("time"); i >= 0 && tt.rows > 1 && !at.NilAt(1) {
			t.Errorf("%s: a finding without a time is of %v", tt.title, at.At(1))
		}
		if frame.Rows() != tt.rows {
			t.Errorf("%s at %q: %d rows, want %d", tt.title, tt.location, frame.Rows(), tt.rows)
		}
		mean, at := frame.FieldByName("mean available bandwidth of capacity")
		if at >= 0 && tt.rows > 0 {
			if got, err := mean.FloatAt(0); err != nil || got != 0.25 {
				t.Errorf("%s: mean is %g, %v, want 0.25", tt.title, got, err)
			}
			if tt.rows > 1 && !mean.NilAt(1) {
				t.Errorf("%s: a flow without a value has a mean", tt.title)
			}
		}
	}
}

func panelSQL(t *testing.T, title string) (sql string) {
	t.Helper()
	for _, b := range decoded(t, grafana.DefaultOptions()) {
		for _, p := range b["panels"].([]any) {
			if p := p.(map[string]any); p["title"] == title {
				sql = p["targets"].([]any)[0].(map[string]any)["rawSql"].(string)
			}
		}
	}
	if sql == "" {
		t.Fatalf("no panel %q", title)
	}
	return sql
}

var linkedField = regexp.MustCompile(`__data\.fields\.(\w+)`)

// TestUnknownGroups checks that a name of no group selects nothing, and not the traffic of unknown groups.
func TestUnknownGroups(t *testing.T) {
	v := recorded(t)
	for _, title := range []string{"Flows of $src to $dst", "Worst flows of $group"} {
		for name, want := range map[string]int{"unknown": 1, "nobody": 0} {
			for _, chosen := range []string{"src", "dst", "group"} {
				v.Choices[chosen] = grafanatest.Choice{Value: name}
			}
			frame, err := v.Ask(panelSQL(t, title))
			if err != nil {
				t.Fatal(err)
			}
			if frame.Rows() != want {
				t.Errorf("%s: %d rows of %s, want %d", title, frame.Rows(), name, want)
			}
		}
	}
}

// TestRanges checks ranges that begin or end within the only stored window, of 1 s: it is in the answers, and covers
// its part of the range, however long the displayed windows are.
func TestRanges(t *testing.T) {
	v := recorded(t)
	for _, tt := range []struct {
		from, to, interval time.Duration
		covered            float64
	}{
		{0, time.Second, time.Second, 1},
		{0, 10 * time.Second, time.Second, 0.1},
		{0, 10 * time.Second, 10 * time.Second, 0.1},
		{-49 * time.Second, 51 * time.Second, 200 * time.Second, 0.01},
		{500 * time.Millisecond, 10500 * time.Millisecond, time.Second, 0.05},
		{500 * time.Millisecond, 10500 * time.Millisecond, 7 * time.Second, 0.05},
		{-9500 * time.Millisecond, 500 * time.Millisecond, time.Second, 0.05},
	} {
		v.From, v.To, v.Interval = recordsStart.Add(tt.from), recordsStart.Add(tt.to), tt.interval
		ask := func(title string) *data.Frame {
			t.Helper()
			frame, err := v.Ask(panelSQL(t, title))
			if err != nil {
				t.Fatal(err)
			}
			return frame
		}
		frame := ask("Known")
		if end, _ := frame.FieldByName("to_ms"); end.At(0) != strconv.FormatInt(recordsStart.Add(time.Second).UnixMilli(), 10) {
			t.Errorf("the newest rows end at %v", end.At(0))
		}
		known, _ := frame.FieldByName("coverage")
		if got, err := known.FloatAt(0); err != nil || math.Abs(got-tt.covered) > 1e-12 {
			t.Errorf("%v: coverage is %g, %v", tt, got, err)
		}
		tags, _ := ask("Coverage").FieldByName("tags")
		seen := 0
		for i := range tags.Len() {
			if got, err := tags.FloatAt(i); err != nil || got > 0 {
				seen++
			}
		}
		if seen != 1 {
			t.Errorf("%v: %d windows of %d have tags, want 1", tt, seen, tags.Len())
		}
		if flows := ask("Worst flows of $group"); flows.Rows() != 2 {
			t.Errorf("%v: %d flows, want 2", tt, flows.Rows())
		}
		if cells := ask("Mean available bandwidth, of capacity"); cells.Rows() == 0 {
			t.Errorf("%v: no cells", tt)
		}
	}
}

// TestFields checks that every column in an override or a data link is in the query's result.
// Grafana ignores unknown names.
func TestFields(t *testing.T) {
	v := recorded(t)
	checked := 0
	for name, b := range decoded(t, grafana.DefaultOptions()) {
		for _, p := range b["panels"].([]any) {
			p := p.(map[string]any)
			var columns []string
			each(p["targets"], func(o map[string]any) {
				sql, ok := o["rawSql"].(string)
				if !ok {
					return
				}
				frame, err := v.Ask(sql)
				if err != nil {
					t.Fatalf("%s: %s: %v", name, p["title"], err)
				}
				for _, f := range frame.Fields {
					columns = append(columns, f.Name)
				}
			})
			if len(columns) == 0 {
				continue
			}
			var named []string
			each(p["fieldConfig"], func(o map[string]any) {
				if matcher, ok := o["matcher"].(map[string]any); ok && matcher["id"] == "byName" {
					named = append(named, matcher["options"].(string))
				}
				url, _ := o["url"].(string)
				for _, m := range linkedField.FindAllStringSubmatch(url, -1) {
					named = append(named, m[1])
				}
			})
			for _, n := range named {
				if strings.HasPrefix(n, "mean ") && n != "mean available bandwidth of capacity" {
					continue // belongs to a signal that is not selected
				}
				// Grouping to a matrix joins the names of rows and columns.
				for part := range strings.SplitSeq(n, `\`) {
					if !slices.Contains(columns, part) {
						t.Errorf("%s: %s names the column %s, which its query has not", name, p["title"], part)
					}
					checked++
				}
			}
		}
	}
	if checked < 15 {
		t.Errorf("%d names checked", checked)
	}
}
