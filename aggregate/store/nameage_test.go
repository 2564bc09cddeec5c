package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
)

// namesWhere returns the names in a table that meet a condition, in order.
func namesWhere(t *testing.T, s *Store, table, where string) string {
	t.Helper()
	return strings.Join(readStrings(t, s, fmt.Sprintf("SELECT name FROM csigscope.%s FINAL WHERE %s ORDER BY name", table, where)), " ")
}

// migrateExec runs statements as the migrator.
func migrateExec(t *testing.T, s *Store, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if err := s.migrator.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNamesAge: the server deletes names that no row has used for longer than rows are kept, and
// no others.
func TestNamesAge(t *testing.T) {
	sequential(t)
	s := openStore(t)
	ctx := t.Context()
	named := func(id uint64, name, parent string) fabric.Name {
		return fabric.Name{Group: &fabric.Group{ID: aggregate.GroupID(id), Name: name, Parent: parent}, Exporter: "host1", Pinned: true}
	}
	place := func(id, set, device, stage aggregate.LocationID) fabric.Name {
		return fabric.Name{Location: &fabric.Location{ID: id, Name: fmt.Sprint("place", id), Set: set, DeviceLoc: device, StageLoc: stage}, Exporter: "host1", Pinned: true}
	}
	names := []fabric.Name{
		named(10, "rack1", "pod1"), named(11, "pod1", "cluster1"), named(12, "cluster1", ""), named(13, "idle", "pod2"), named(14, "again", ""),
		place(5, 6, 7, 8), place(6, 6, 7, 8), place(7, 7, 7, 8), place(8, 8, 8, 8), place(9, 9, 9, 9),
	}
	if err := s.PinNames(ctx, names); err != nil {
		t.Fatal(err)
	}
	write(t, s, blocks([]row{{
		resolution: int64(time.Minute), window: time.Now().Truncate(time.Minute).UnixNano(), kind: 1, src: 10, dst: 10, location: 5, observations: 1,
	}}))
	age := func(days int) {
		for _, table := range []string{"groups", "locations"} {
			migrateExec(t, s, fmt.Sprintf("ALTER TABLE csigscope.%s UPDATE used = used - INTERVAL %d DAY WHERE 1 SETTINGS mutations_sync = 1", table, days))
		}
	}
	versions := readStrings(t, s, "SELECT concat(name, toString(at)) FROM csigscope.groups FINAL ORDER BY name")
	age(429)
	if err := s.PinNames(ctx, []fabric.Name{named(14, "again", "")}); err != nil {
		t.Fatal(err)
	}
	for pass, want := range []string{"again rack1", "again pod1 rack1", "again cluster1 pod1 rack1"} {
		if err := s.renewNames(ctx); err != nil {
			t.Fatal(err)
		}
		if got := namesWhere(t, s, "groups", "used > now() - INTERVAL 1 DAY"); got != want {
			t.Errorf("pass %d: %s are in use, want %s", pass, got, want)
		}
	}
	if got, want := namesWhere(t, s, "locations", "used > now() - INTERVAL 1 DAY"), "place5 place6 place7 place8"; got != want {
		t.Errorf("%s are in use, want %s", got, want)
	}
	if diff := cmp.Diff(versions, readStrings(t, s, "SELECT concat(name, toString(at)) FROM csigscope.groups FINAL ORDER BY name")); diff != "" {
		t.Errorf("versions (-before +after):\n%s", diff)
	}
	kept, err := s.Names(ctx, []aggregate.GroupID{10}, nil)
	if diff := cmp.Diff(names[:1], kept); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	age(2)
	migrateExec(t, s, "OPTIMIZE TABLE csigscope.groups FINAL", "OPTIMIZE TABLE csigscope.locations FINAL")
	if got, want := namesWhere(t, s, "groups", "1"), "again cluster1 pod1 rack1"; got != want {
		t.Errorf("%s are left, want %s", got, want)
	}
	if got, want := namesWhere(t, s, "locations", "1"), "place5 place6 place7 place8"; got != want {
		t.Errorf("%s are left, want %s", got, want)
	}
}

// TestNamesOutliveRows: names are kept longer than any rows, whatever the rows' retention.
func TestNamesOutliveRows(t *testing.T) {
	sequential(t)
	s := openStore(t)
	const day = 24 * time.Hour
	for _, tc := range []struct {
		keep Retention
		want string
	}{
		{Retention{}, "430"},
		{Retention{0, 0, 800 * day}, "830"},
		{Retention{0, 1000*day + time.Hour, 0}, "1031"},
		{Retention{time.Hour, day, day}, "430"},
		{Retention{0, 0, MaxRetention}, "18280"},
	} {
		if err := s.SetRetention(t.Context(), tc.keep); err != nil {
			t.Fatal(err)
		}
		for _, table := range []string{"groups", "locations"} {
			text := readStrings(t, s, "SELECT create_table_query FROM system.tables WHERE database = 'csigscope' AND name = '"+table+"'")[0]
			if !strings.Contains(text, "TTL used + toIntervalDay("+tc.want+")") {
				t.Errorf("%v: %s, want %s days", tc.keep, text, tc.want)
			}
		}
	}
	if last := readStrings(t, s, fmt.Sprintf("SELECT toString(now('UTC') + toIntervalDay(%d) > now('UTC'))", int(MaxRetention/day)+30)); last[0] != "1" {
		t.Error("the longest retention ends in the past: times of servers are 32 bits of seconds")
	}
}

// TestPinnedTogether: of two descriptions in one list the first one wins.
func TestPinnedTogether(t *testing.T) {
	sequential(t)
	s := openStore(t)
	var refused, held []fabric.Name
	s.NotifyContested(func(one, other fabric.Name) { refused, held = append(refused, one), append(held, other) })
	group := func(level, exporter string) fabric.Name {
		return fabric.Name{Group: &fabric.Group{ID: 10, Name: "rack1", Level: level}, Exporter: exporter, Pinned: true}
	}
	list := []fabric.Name{group("rack", "host1"), group("pod", "host2"), group("rack", "host3")}
	if err := s.PinNames(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	got, err := s.Names(t.Context(), []aggregate.GroupID{10}, nil)
	if diff := cmp.Diff([][]fabric.Name{list[:1], list[1:2], list[:1]}, [][]fabric.Name{got, refused, held}); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// TestListsOfNames: an exporter with a million names (with -short, fewer) gets its share of
// lists, starting with the names that it described first, and displaces no other name.
func TestListsOfNames(t *testing.T) {
	sequential(t)
	s := openStore(t)
	names := 1_000_000
	if testing.Short() {
		names = maxListedGroupsOf + 1000
	}
	many := func(table, columns, values, exporter string, n int, at string) {
		migrateExec(t, s, fmt.Sprintf("INSERT INTO csigscope.%[1]s (id, name, %[2]s, exporter, at) SELECT sipHash64('%[3]s', number), concat('%[3]s-', toString(number)), %[4]s, '%[3]s', %[5]s FROM numbers(%[6]d)",
			table, columns, exporter, values, at, n))
	}
	if err := s.WriteGroups(t.Context(), []fabric.Group{{ID: 2, Name: "of a file", Order: 7}}); err != nil {
		t.Fatal(err)
	}
	const earlier = "now64(9, 'UTC') - INTERVAL 1 HOUR"
	many("groups", "ord", "0", "greedy", names, "now64(9, 'UTC')")
	migrateExec(t, s, "INSERT INTO csigscope.groups (id, name, exporter, at) SELECT sipHash64('old', number), concat('old-', toString(number)), 'greedy', "+earlier+" FROM numbers(100)")
	many("groups", "ord", "0", "calm", 1000, "now64(9, 'UTC')")
	many("locations", "candidates", "[]", "greedy", maxListedLocationsOf+10, "now64(9, 'UTC')")
	began := time.Now()
	groups, err := s.Groups(t.Context())
	took := time.Since(began)
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, g := range groups {
		count[strings.Split(g.Name, "-")[0]]++
	}
	want := map[string]int{"of a file": 1, "calm": 1000, "old": 100, "greedy": maxListedGroupsOf - 100}
	if diff := cmp.Diff(want, count); diff != "" {
		t.Errorf("listed groups (-want +got):\n%s", diff)
	}
	locations, err := s.Locations(t.Context())
	if err != nil || len(locations) != maxListedLocationsOf {
		t.Errorf("%d locations, %v, want %d", len(locations), err, maxListedLocationsOf)
	}
	left := uint64(names + 100 - maxListedGroupsOf + 10)
	if n := s.WriterStatus().UnlistedNames; n != left {
		t.Errorf("%d names are counted as left out, want %d", n, left)
	}
	if !slices.ContainsFunc(groups, func(g fabric.Group) bool { return g.Name == "calm-999" }) {
		t.Error("a name of the other exporter is left out")
	}
	t.Logf("%d groups: %d listed in %s", names+1101, len(groups), took)
}
