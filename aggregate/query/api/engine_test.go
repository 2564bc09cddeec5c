package api_test

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/flow"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/query/tabular"
	"github.com/csigscope/csigscope/aggregate/query/wire"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/store/chdb"
	"github.com/csigscope/csigscope/aggregate/store/chdb/chdbtest"
	"github.com/csigscope/csigscope/aggregate/table/tabletest"
	csigdecode "github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

func TestMain(m *testing.M) { chdbtest.Main(m) }

func openStore(t *testing.T) (*store.Store, *chdb.Engine) {
	t.Helper()
	engine := chdbtest.Start(t)
	s, err := store.Open(t.Context(), store.Options{
		Writer: engine.ClickHouseOptions(chdb.RoleWriter), Migrator: engine.ClickHouseOptions(chdb.RoleMigrator),
		Reader: engine.ClickHouseOptions(chdb.RoleReader), Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close store: %v", err)
		}
	})
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s, engine
}

// TestMemoryAgreesWithStore writes the same windows to memory and to the store, and compares
// their answers: SQL and memory find the same modes at every level.
func TestMemoryAgreesWithStore(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: one question after the other has nothing for the race detector")
	}
	db, engine := openStore(t)
	names := tabletest.Names{Racks: 6}
	groups, _ := names.Groups(t.Context())
	locations, _ := names.Locations(t.Context())
	if err := db.WriteGroups(t.Context(), groups); err != nil {
		t.Fatal(err)
	}
	if err := db.WriteLocations(t.Context(), locations); err != nil {
		t.Fatal(err)
	}
	s := newServed(t, 36, func(c *api.Config) { c.Reader = query.FromStore(db) })
	s.also = db
	for _, second := range []int{0, 1, 3} { // the last three windows have an outage in them
		s.window(t, second)
	}
	if err := s.memory.Sync(t.Context(), db.Flush); err != nil {
		t.Fatal(err)
	}
	cells := func(target string) []*wire.Cell {
		list := read[wire.CellsResponse](t, s.get(t, target)).Cells
		for _, c := range list {
			for _, b := range []*wire.Bottleneck{c.Mode, c.RunnerUp} {
				if b != nil {
					b.Mean = nil // history has no means of modes
				}
			}
		}
		slices.SortFunc(list, func(a, b *wire.Cell) int { return cmp.Or(cmp.Compare(a.Src, b.Src), cmp.Compare(a.Dst, b.Dst)) })
		return list
	}
	compared := 0
	for _, signal := range []string{"min_abw", "min_abw_ratio", "max_delay"} {
		for _, level := range []string{"location", "set", "device", "stage"} {
			for _, span := range []struct {
				windows int
				from    string
			}{{1, "09:00:03"}, {3, "09:00:01"}} {
				question := "/api/v1/cells?signal=" + signal + "&level=" + level
				live := cells(fmt.Sprintf("%s&windows=%d", question, span.windows))
				past := cells(fmt.Sprintf("%s&from=2026-01-20T%sZ&to=2026-01-20T09:00:04Z", question, span.from))
				if diff := gocmp.Diff(past, live, protocmp.Transform(), withoutCoverage(), cmpopts.EquateApprox(1e-5, 0)); diff != "" {
					t.Fatalf("%s, %d windows (-store +memory):\n%.2000s", question, span.windows, diff)
				}
				compared += len(live)
			}
		}
	}
	if compared != 3*4*2*36 {
		t.Errorf("compared %d cells", compared)
	}
	timelinesAgree(t, s)
	verdictsAgree(t, s)
	engineReads(t, s, engine)
	recordsCome(t, s, db)
	for _, target := range injectionTargets() {
		if w := s.get(t, target); w.Code >= 500 || w.Code == 200 && !strings.Contains(w.Body.String(), `"total":0`) {
			t.Errorf("%s: %d %s", target, w.Code, w.Body)
		}
	}
	if after := cells("/api/v1/cells?from=2026-01-20T09:00:00Z&to=2026-01-20T09:00:04Z"); len(after) != 36 {
		t.Errorf("%d cells are left", len(after))
	}
	endedSignal(t, s, db)
}

// endedSignal asks about a time two days ago, when there was a signal that is gone.
func endedSignal(t *testing.T, s *served, db *store.Store) {
	t.Helper()
	gone := csig.ConfiguredSignal(5, csig.Nanosecond, csig.AggregateMax)
	block := tabletest.Block(rand.New(rand.NewPCG(3, 4)), 9, begin.Add(-48*time.Hour), 4, gone)
	if err := errors.Join(db.WriteBlock(t.Context(), block), db.Flush(t.Context())); err != nil {
		t.Fatal(err)
	}
	const then = "from=2026-01-18T09:00:00Z&to=2026-01-18T09:00:04Z"
	v := read[wire.VerdictResponse](t, s.get(t, "/api/v1/verdict?"+then))
	if !slices.Equal(v.Signals, []string{"type_5"}) || v.Observations == 0 {
		t.Errorf("signals %q, %d observations: %s", v.Signals, v.Observations, v.Text)
	}
	cells := read[wire.CellsResponse](t, s.get(t, "/api/v1/cells?signal=type_5&"+then)).Cells
	if len(cells) != 4 || cells[0].Mean == nil {
		t.Errorf("cells of %s: %v", gone, cells)
	}
}

// engineReads lets another program, the engine, read tables that were streamed from the engine.
func engineReads(t *testing.T, s *served, engine *chdb.Engine) {
	t.Helper()
	const question = "table=windows&step=1s&signal=max_delay&from=2026-01-20T09:00:00Z&to=2026-01-20T09:00:04Z"
	conn, err := clickhouse.Open(engine.ClickHouseOptions(chdb.RoleMigrator))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for format, called := range map[tabular.Format]string{tabular.CSV: "CSVWithNames", tabular.Parquet: "Parquet", tabular.Arrow: "ArrowStream"} {
		w := s.get(t, "/api/v1/export?format="+string(format)+"&"+question)
		path := filepath.Join(t.TempDir(), "table")
		if err := os.WriteFile(path, w.Body.Bytes(), 0o600); err != nil || w.Code != 200 {
			t.Fatalf("%s: status %d, %v", format, w.Code, err)
		}
		var rows, observations, heavy uint64
		var mean float64
		var first, last time.Time
		query := fmt.Sprintf(`SELECT count(), sum(toUInt64(observations)), sum(toUInt64(heavy)), max(toFloat64(mean_ns)), min(toDateTime64("from", 9, 'UTC')), max(toDateTime64("to", 9, 'UTC'))
FROM file('%s', %s) WHERE src = 'rack1'`, path, called)
		if err := conn.QueryRow(t.Context(), query).Scan(&rows, &observations, &heavy, &mean, &first, &last); err != nil {
			t.Errorf("%s: %v", format, err)
			continue
		}
		line := read[wire.TimelineResponse](t, s.get(t, "/api/v1/timeline?src=rack1&"+strings.TrimPrefix(question, "table=windows&")))
		for _, m := range line.Timeline {
			rows -= m.Cells
			observations -= m.Observations
			heavy -= m.Heavy
		}
		if rows != 0 || observations != 0 || heavy != 0 || mean <= 0 || !first.Equal(begin) || !last.Equal(begin.Add(4*time.Second)) {
			t.Errorf("%s: %d rows, %d observations, %d heavy ones too many; mean %v, from %s to %s", format, int64(rows), int64(observations), int64(heavy), mean, first, last)
		}
	}
}

// timelinesAgree compares the windows of one cell and of all cells in memory with the store's.
func timelinesAgree(t *testing.T, s *served) {
	t.Helper()
	for _, chosen := range []string{"src=rack1&dst=rack2", "dst=pod1"} {
		question := "/api/v1/timeline?signal=max_delay&" + chosen
		live := read[wire.TimelineResponse](t, s.get(t, question))
		past := read[wire.TimelineResponse](t, s.get(t, question+"&step=1s&from=2026-01-20T09:00:00Z&to=2026-01-20T09:00:04Z"))
		for i := range live.Timeline {
			for n := range live.Timeline[i].Locations {
				live.Timeline[i].Locations[n].Cells, live.Timeline[i].Locations[n].HeavyMean = 0, nil // missing in history
			}
			if c := live.Timeline[i].Cell; c != nil && c.Mode != nil {
				c.Mode.Mean = nil
			}
		}
		if diff := gocmp.Diff(past.Timeline, live.Timeline, protocmp.Transform(), withoutCoverage(), cmpopts.EquateApprox(1e-5, 0)); diff != "" || len(live.Timeline) != 4 {
			t.Errorf("%s (-store +memory):\n%.2000s", question, diff)
		}
	}
}

// verdictsAgree compares the verdict on windows in memory with the store's.
func verdictsAgree(t *testing.T, s *served) {
	t.Helper()
	live := read[wire.VerdictResponse](t, s.get(t, "/api/v1/verdict?top=100"))
	past := read[wire.VerdictResponse](t, s.get(t, "/api/v1/verdict?top=100&from=2026-01-20T09:00:00Z&to=2026-01-20T09:00:04Z"))
	about := protocmp.IgnoreFields(&wire.VerdictResponse{}, "about")
	if diff := gocmp.Diff(past, live, protocmp.Transform(), about, cmpopts.EquateApprox(1e-5, 0)); diff != "" || len(live.Statements) < 2 || live.About.Source != "memory" || past.About.Source != "store" {
		t.Errorf("%d statements (-store +memory):\n%.2000s", len(live.Statements), diff)
	}
	// Windows of 1 min judge the places and the cells of a long range alike, also those of a minute that is still open.
	long := read[wire.VerdictResponse](t, s.get(t, "/api/v1/verdict?top=100&from=2026-01-20T07:30:00Z&to=2026-01-20T09:00:04Z"))
	congested := read[wire.CellsResponse](t, s.get(t, "/api/v1/cells?signal=min_abw_ratio&state=congested&from=2026-01-20T07:30:00Z&to=2026-01-20T09:00:04Z")).Cells
	for i, one := range long.Statements {
		if past := past.Statements[i]; one.State != past.State || one.Heavy != past.Heavy || one.Since != nil && !one.Since.AsTime().Equal(begin) {
			t.Errorf("a long range: %+v, a short one: %+v", one, past)
		}
	}
	if len(congested) == 0 || len(congested) > int(long.CongestedCells) || congested[0].GetSustainedS() != 60 || !congested[0].Since.AsTime().Equal(begin) {
		t.Errorf("congested cells of a long range: %d by one signal, %d by all, the first %+v", len(congested), long.CongestedCells, congested[0])
	}
}

// recordsCome queries flows and findings that were written to the store.
func recordsCome(t *testing.T, s *served, db *store.Store) {
	t.Helper()
	named := aggregate.FlowRow{
		Signal: uint8(csig.MaxDelay), Kind: uint8(csigdecode.Tag), SrcGroup: tabletest.FirstGroup, DstGroup: tabletest.FirstGroup + 1,
		Flow:         flow.Flow{Src: netip.MustParseAddr("10.0.1.1").As16(), Dst: netip.MustParseAddr("2001:db8::1").As16(), SrcPort: 5, DstPort: 4791, Proto: 17},
		Observations: 20, Bytes: 3000, Measured: 10, Sum: 500, Min: 20, Max: 80, Heavy: 4, HeavySum: 300, Location: tabletest.FirstLocation, LocationHeavy: 3,
	}
	others := named
	others.Flow = flow.Flow{}
	block := tabletest.Block(rand.New(rand.NewPCG(1, 2)), 9, begin, 1, csig.MaxDelay)
	block.Flows = []aggregate.FlowRow{named, others}
	finding := store.FindingRow{
		Kind: "it's", ID: 77, Severity: store.SeverityError, From: begin.UnixNano(), To: begin.UnixNano() + 5, Count: 3,
		Device: "leaf1", Location: tabletest.FirstLocation, Evidence: "S=31 'then' 4\xff\n", Packets: []uint64{1 << 63},
	}
	if err := errors.Join(db.WriteBlock(t.Context(), block), db.Flush(t.Context()), db.WriteFindings(t.Context(), []store.FindingRow{finding})); err != nil {
		t.Fatal(err)
	}
	ns, at := func(v float64) *wire.Measure { return &wire.Measure{Value: &wire.Measure_Ns{Ns: v}} }, &wire.Bottleneck{Location: "leaf1:up1", Heavy: 3, ShareRatio: 0.75}
	want := &wire.Flow{
		SrcAddress: "10.0.1.1", SrcPort: 5, DstAddress: "2001:db8::1", DstPort: 4791, Proto: 17, SrcGroup: "rack1", DstGroup: "rack2", Kind: wire.Kind_KIND_TAG,
		Observations: 20, Bytes: 3000, Mean: ns(50), Min: ns(20), Max: ns(80), Heavy: 4, HeavyRatio: 0.2, Windows: 1, Mode: at,
	}
	rest := proto.CloneOf(want)
	rest.Others, rest.SrcAddress, rest.SrcPort, rest.DstAddress, rest.DstPort, rest.Proto = true, "", 0, "", 0, 0
	if diff := gocmp.Diff([]*wire.Flow{rest, want}, read[wire.FlowsResponse](t, s.get(t, "/api/v1/flows?signal=max_delay&dst=rack2")).Flows, protocmp.Transform()); diff != "" {
		t.Errorf("flows (-want +got):\n%s", diff)
	}
	if diff := gocmp.Diff([]*wire.Flow{want}, read[wire.FlowsResponse](t, s.get(t, "/api/v1/flows?signal=max_delay&src_address=10.0.0.0/8")).Flows, protocmp.Transform()); diff != "" {
		t.Errorf("flows of addresses (-want +got):\n%s", diff)
	}
	told := &wire.Finding{
		Kind: "it's", Id: "000000000000004d", Severity: wire.Severity_SEVERITY_ERROR, First: timestamppb.New(begin), Last: timestamppb.New(begin.Add(5)), Count: 3, Device: "leaf1",
		Location: "leaf1:up1", Evidence: "S=31 'then' 4\ufffd\n", Packets: []uint64{1 << 63},
	}
	if diff := gocmp.Diff([]*wire.Finding{told}, read[wire.FindingsResponse](t, s.get(t, "/api/v1/findings?kind=it%27s&location=leaf1:up1")).Findings, protocmp.Transform()); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}
