package store

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode/csig"
)

func TestNames(t *testing.T) {
	sequential(t)
	s := openStore(t)
	ctx := t.Context()
	groups := []fabric.Group{
		{ID: 1 << 63, Name: "rack1", Level: "rack", Parent: "pod1", Order: 0},
		{ID: 2, Name: "rack 'two'\n\\", Level: "rack", Parent: "pod1", Order: 1},
		{ID: aggregate.UnknownGroup, Name: "unknown", Order: 2},
	}
	locations := []fabric.Location{
		{ID: 7, Name: "leaf1:up1", Kind: fabric.KindPort, Device: "leaf1", Stage: "leaf", Orientation: "up", Capacity: 1e8, Candidates: []string{"leaf1:up1"}, CandidateCount: 1, Set: 8, DeviceLoc: 9, StageLoc: 10},
		{ID: 8, Name: "leaf1:up*", Kind: fabric.KindSet, Candidates: []string{"leaf1:up1", "leaf1:up2"}, CandidateCount: 100, Set: 8, DeviceLoc: 9, StageLoc: 10},
	}
	for range 2 { // the second call replaces
		if err := s.WriteGroups(ctx, groups); err != nil {
			t.Fatal(err)
		}
		if err := s.WriteLocations(ctx, locations); err != nil {
			t.Fatal(err)
		}
		if err := s.WriteEpoch(ctx, 42, "a configuration"); err != nil {
			t.Fatal(err)
		}
		groups[1].Name = "rack two"
	}
	gotGroups, err := s.Groups(ctx)
	if diff := cmp.Diff(groups, gotGroups); err != nil || diff != "" {
		t.Errorf("groups: %v (-want +got):\n%s", err, diff)
	}
	gotLocations, err := s.Locations(ctx)
	locations[0], locations[1] = locations[1], locations[0] // by name
	if diff := cmp.Diff(locations, gotLocations); err != nil || diff != "" {
		t.Errorf("locations: %v (-want +got):\n%s", err, diff)
	}
	var text string
	if err := s.reader.QueryRow(ctx, "SELECT text FROM csigscope.epochs FINAL WHERE epoch = 42").Scan(&text); err != nil || text != "a configuration" {
		t.Errorf("epoch: %q, %v", text, err)
	}
	if err := s.WriteEpoch(ctx, 7, "a later one"); err != nil {
		t.Fatal(err)
	}
	if text, err := s.LatestEpoch(ctx, ""); err != nil || text != "a later one" {
		t.Errorf("latest epoch: %q, %v", text, err)
	}
	for prefix, want := range map[string]string{"a conf": "a configuration", "a": "a later one", "conf": "", "it's": ""} {
		if text, err := s.LatestEpoch(ctx, prefix); err != nil || text != want {
			t.Errorf("latest epoch with %q: %q, %v; want %q", prefix, text, err, want)
		}
	}
}

func TestExtent(t *testing.T) {
	sequential(t)
	s := openStore(t)
	ctx := t.Context()
	e, err := s.Extent(ctx)
	if diff := cmp.Diff(Extent{}, e); err != nil || diff != "" {
		t.Fatalf("empty store: %v (-want +got):\n%s", err, diff)
	}
	r := row{
		resolution: int64(10 * time.Millisecond), window: testStart.Add(1500 * time.Millisecond).UnixNano(),
		signal: uint8(csig.MaxDelay), kind: 1, src: 10, dst: 11, location: 5, observations: 20, heavy: 4,
	}
	write(t, s, blocks([]row{r}))
	e, err = s.Extent(ctx)
	if err != nil || len(e.Resolutions) != 1 || e.Resolutions[0] != 10*time.Millisecond || e.Observations != 20 {
		t.Errorf("fine rows alone: %+v, %v", e, err)
	}
	for i := range 90 {
		r.resolution, r.window = int64(time.Second), testStart.Add(time.Duration(i+1)*time.Second).UnixNano()
		r.signal = uint8(i % 2)
		write(t, s, blocks([]row{r}))
	}
	r.resolution, r.window, r.observations = int64(time.Minute), testStart.UnixNano(), 1
	write(t, s, blocks([]row{r}))
	e, err = s.Extent(ctx)
	want := Extent{
		First: testStart.Add(time.Second), Last: testStart.Add(91 * time.Second), Seconds: testStart.Add(time.Second),
		Resolutions: []time.Duration{10 * time.Millisecond, time.Second, time.Minute},
		Signals:     []csig.Signal{csig.MinABW, csig.MinABWRatio}, Observations: 1800, Heavy: 360,
	}
	if diff := cmp.Diff(want, e); err != nil || diff != "" {
		t.Errorf("all resolutions: %v (-want +got):\n%s", err, diff)
	}
	later := testStart.Add(time.Hour)
	for from, minutes := range map[time.Time]bool{testStart: true, later.Add(-time.Second): true, later: false} {
		if trimmed := (Extent{First: testStart, Seconds: later}); trimmed.OnlyMinutes(from) != minutes || want.OnlyMinutes(from) {
			t.Errorf("only minutes from %s: %t without the first hour, %t with all windows", from, trimmed.OnlyMinutes(from), want.OnlyMinutes(from))
		}
	}
	checkSignals(t, s, r)
}

// TestExtent1970: fine windows count as recent if they are from the first minutes of 1970, and
// nothing is stored if they expire between two queries.
func TestExtent1970(t *testing.T) {
	sequential(t)
	s := openStore(t)
	r := row{resolution: int64(10 * time.Millisecond), window: int64(time.Minute), signal: uint8(csig.MaxDelay), kind: 1, src: 10, dst: 11, observations: 20}
	write(t, s, blocks([]row{r}))
	want := Extent{
		First: time.Unix(60, 0).UTC(), Last: time.Unix(60, 1).UTC(),
		Resolutions: []time.Duration{10 * time.Millisecond}, Signals: []csig.Signal{csig.MaxDelay}, Observations: 20,
	}
	e, err := s.Extent(t.Context())
	if diff := cmp.Diff(want, e); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	s.reader = &asked{s.reader, "DISTINCT resolution_ns", func() { truncate(t, s, "partials_fine") }}
	if e, err := s.Extent(t.Context()); err != nil || !e.Empty() {
		t.Errorf("expired meanwhile: %+v, %v, want nothing", e, err)
	}
}

// asked is a connection that calls before ahead of each query with a text.
type asked struct {
	driver.Conn
	text   string
	before func()
}

func (c *asked) Query(ctx context.Context, query string, args ...any) (driver.Rows, error) {
	if strings.Contains(query, c.text) {
		c.before()
	}
	return c.Conn.Query(ctx, query, args...)
}

// checkSignals adds a type that was last seen before the extent's last day.
func checkSignals(t *testing.T, s *Store, r row) {
	t.Helper()
	older := csig.ConfiguredSignal(5, csig.Nanosecond, csig.AggregateMax)
	before := testStart.Add(-48 * time.Hour)
	r.window, r.signal = before.UnixNano(), uint8(older)
	write(t, s, blocks([]row{r}))
	for _, tc := range []struct {
		from, to time.Time
		want     []csig.Signal
	}{
		{before, before.Add(time.Minute), []csig.Signal{older}},
		{before, testStart.Add(time.Minute), []csig.Signal{csig.MinABWRatio, older}},
		{before.Add(time.Minute), testStart, nil},
	} {
		got, err := s.Signals(t.Context(), Question{From: tc.from, To: tc.to})
		if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
			t.Errorf("signals from %s to %s: %v (-want +got):\n%s", tc.from, tc.to, err, diff)
		}
	}
	if _, err := s.Signals(t.Context(), Question{From: testStart, To: testStart}); !errors.Is(err, ErrQuestion) {
		t.Errorf("signals of an empty range: %v", err)
	}
}

// TestDistribution reads packed distributions, at the ends of the ranges, with both ways of
// unpacking.
func TestDistribution(t *testing.T) {
	sequential(t)
	s := openStore(t)
	r := row{resolution: int64(time.Second), window: testStart.UnixNano(), kind: 1, distCode: []uint16{0, 31, 65535}, distCount: []uint64{1, 1 << 63, 300}}
	empty := r
	empty.dst, empty.distCode, empty.distCount = 1, nil, nil
	write(t, s, blocks([]row{r, empty}))
	var got, none map[uint16]uint64
	ctx := t.Context()
	for dst, to := range []*map[uint16]uint64{&got, &none} {
		if err := s.reader.QueryRow(ctx, "SELECT dist FROM csigscope.partials_1s WHERE dst_group = {dst:UInt64}", namedUint("dst", dst)).Scan(to); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(map[uint16]uint64{0: 1, 31: 1 << 63, 65535: 300}, got); diff != "" || len(none) != 0 {
		t.Errorf("distribution, and %v of an empty one (-want +got):\n%s", none, diff)
	}
	var same bool
	query := "SELECT " + unpack(oldestServer, "c", 16) + " = " + unpack(currentServer, "c", 16) + " AND " +
		unpack(oldestServer, "n", 64) + " = " + unpack(currentServer, "n", 64) +
		" FROM (SELECT unhex('00001F00FFFF') AS c, unhex('0100000000000080FFFFFFFFFFFFFFFF') AS n)"
	if err := s.reader.QueryRow(ctx, query).Scan(&same); err != nil || !same {
		t.Errorf("old and new servers unpack differently: %v", err)
	}
}

// TestPinnedNames: the first description of a name is pinned until it is unpinned, or until a
// fabric file replaces it.
func TestPinnedNames(t *testing.T) {
	sequential(t)
	s := openStore(t)
	ctx := t.Context()
	rack := fabric.Group{ID: fabric.GroupIDOf("it's rack1"), Name: "it's rack1", Level: "rack", Parent: "pod1", Order: 3}
	port := fabric.Location{
		ID: fabric.PortLocationID("leaf1", "up1"), Name: "leaf1:up1", Kind: fabric.KindPort, Device: "leaf1", Stage: "leaf", Orientation: "up",
		Capacity: 4e8, Candidates: []string{"leaf1:up1"}, CandidateCount: 1, Set: 8, DeviceLoc: 9, StageLoc: 10,
	}
	check := func(step string, want ...fabric.Name) {
		t.Helper()
		got, err := s.Names(ctx, []aggregate.GroupID{rack.ID, 99}, []aggregate.LocationID{port.ID, 99})
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", step, err, diff)
		}
	}
	check("nothing")
	pinned := []fabric.Name{{Group: &rack, Exporter: "host1", Pinned: true}, {Location: &port, Exporter: "host2", Pinned: true}}
	if err := s.PinNames(ctx, pinned); err != nil {
		t.Fatal(err)
	}
	check("pinned", pinned...)
	for _, step := range []struct {
		names []string
		want  []string
		loose [2]bool
	}{
		{[]string{"nobody", "it's rack1"}, []string{"group it's rack1 host1"}, [2]bool{true, false}},
		{[]string{"it's rack1"}, nil, [2]bool{true, false}},
		{nil, []string{"port leaf1:up1 host2"}, [2]bool{true, true}},
	} {
		list, err := s.Unpin(ctx, step.names)
		var got []string
		for _, u := range list {
			got = append(got, u.Kind+" "+u.Name+" "+u.Exporter)
		}
		if diff := cmp.Diff(step.want, got); err != nil || diff != "" {
			t.Errorf("unpinned %q: %v (-want +got):\n%s", step.names, err, diff)
		}
		pinned[0].Pinned, pinned[1].Pinned = !step.loose[0], !step.loose[1]
		check("unpinned", pinned...)
	}
	if err := s.WriteGroups(ctx, []fabric.Group{rack}); err != nil {
		t.Fatal(err)
	}
	check("of a file", fabric.Name{Group: &rack, Pinned: true}, pinned[1])
	if list, err := s.Unpin(ctx, nil); err != nil || len(list) != 0 {
		t.Errorf("names of files are unpinned together with those of exporters: %v, %v", list, err)
	}
}
