package api_test

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/query/model"
	"github.com/csigscope/csigscope/aggregate/recent/recenttest"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/store/chdb"
	"github.com/csigscope/csigscope/aggregate/store/chdb/chdbtest"
)

func TestMain(m *testing.M) { chdbtest.Main(m) }

func openStore(t *testing.T) *store.Store {
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
	return s
}

// TestMemoryAgreesWithStore writes the same windows to memory and to the store, and asks both
// the same: the modes that SQL finds are those that memory finds, at every level.
func TestMemoryAgreesWithStore(t *testing.T) {
	db := openStore(t)
	names := recenttest.Names{Racks: 6}
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
	for second := range 4 {
		s.window(t, second)
	}
	if err := db.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	cells := func(target string) []model.Cell {
		list := read[model.Cells](t, s.get(t, target)).Values
		for i := range list {
			c := &list[i]
			for _, b := range []*model.Bottleneck{c.Mode, c.RunnerUp} {
				if b != nil {
					b.Mean = nil // history has no means of modes
				}
			}
		}
		slices.SortFunc(list, func(a, b model.Cell) int { return cmp.Or(cmp.Compare(a.Src, b.Src), cmp.Compare(a.Dst, b.Dst)) })
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
				if diff := gocmp.Diff(past, live, cmpopts.EquateApprox(1e-5, 0)); diff != "" {
					t.Fatalf("%s, %d windows (-store +memory):\n%.2000s", question, span.windows, diff)
				}
				compared += len(live)
			}
		}
	}
	if compared != 3*4*2*36 {
		t.Errorf("compared %d cells", compared)
	}
	for _, target := range injectionTargets() {
		if w := s.get(t, target); w.Code >= 500 {
			t.Errorf("%s: %d %s", target, w.Code, w.Body)
		}
	}
	if after := cells("/api/v1/cells?from=2026-01-20T09:00:00Z&to=2026-01-20T09:00:04Z"); len(after) != 36 {
		t.Errorf("%d cells are left", len(after))
	}
}
