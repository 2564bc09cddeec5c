package store

import (
	"context"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// aTap is a plausible row of a tap that starts at a time.
func aTap(source aggregate.Source, seq uint64, at time.Time) TapRow {
	return TapRow{
		Source: source, Seq: seq, Name: "rack it's", Place: "receiver", Interface: "eth\t0", Link: "Ethernet", Timestamps: "file", TickNS: 0.5,
		From: at.UnixNano() + 1, To: at.UnixNano() + 999, Packets: 10, Bytes: 1500, Frames: map[string]uint64{"ok": 7, "cut-ip": 3},
		Tags: 5, Reflections: 4, Observations: 9, Stored: 4, Overflow: 1, Late: 1, Rejected: map[string]uint64{"orphan": 2, "place": 1},
		Untouched: 2, Trimmed: 1, KernelDrops: 6, Freezes: 2, SuperFrames: 4, Lost: 3, SkewNS: -5,
	}
}

func aFlow(source aggregate.Source, seq uint64, at time.Time, port uint16) FlowRow {
	return FlowRow{
		Source: source, Seq: seq, Window: at.UnixNano(), Resolution: int64(time.Second), Signal: csig.MaxDelay, Kind: decode.Tag, SrcGroup: 10, DstGroup: 11,
		Flow:         Flow{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("2001:db8::2"), port, 4791, 17},
		Observations: 20, Bytes: 3000, Measured: 10, Sum: 500, Min: 20, Max: 80, Heavy: 4, HeavySum: 300, Location: 5, LocationHeavy: 3, Sampled: 2,
	}
}

// writeFlows stores flows without the rows of their windows.
func writeFlows(ctx context.Context, s *Store, rows []FlowRow) error {
	if len(s.deliveries) > 0 {
		return takeRecords(s.deliveries[0], &flowTable, rows)
	}
	return s.sendRecords(ctx, flowTable.insertion(rows))
}

func aFinding(source aggregate.Source, seq uint64, at time.Time) FindingRow {
	return FindingRow{
		Source: source, Seq: seq, Kind: "rogue-insertion", ID: 77, Severity: SeverityError, From: at.UnixNano(), To: at.UnixNano() + 5, Count: 3,
		Device: "leaf1", Port: "up1", Location: 5, Evidence: "S=31 'then' 4\n", Packets: []uint64{9, 1 << 63},
	}
}

// TestFindingTimes: a finding of packets with a wrong clock can be stored.
func TestFindingTimes(t *testing.T) {
	f := finding.Finding{Kind: finding.OrphanTag, From: -1, To: aggregate.EndOfTime + 1, Count: 2}
	row := NewFindingRow(&f, aggregate.Source{}, 1)
	if err := findingTable.check(&row); err != nil || row.From != 0 || row.To != aggregate.EndOfTime-1 {
		t.Errorf("from %d to %d: %v", row.From, row.To, err)
	}
}

// TestTaps writes periods, twice: they add up once, without superseded runs.
func TestTaps(t *testing.T) {
	s := openStore(t)
	first, second := aggregate.Source{Producer: 1 << 63, Incarnation: 2, Epoch: 3}, aggregate.Source{Producer: 1 << 63, Incarnation: 2, Epoch: 4}
	for _, source := range []aggregate.Source{first, second} {
		if err := s.BeginRun(t.Context(), Run{Source: source, Mode: RunReplay, Name: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.EndRun(t.Context(), Run{Source: second, Mode: RunReplay, Name: "x"}); err != nil {
		t.Fatal(err)
	}
	one := aTap(aggregate.Source{}, 0, testStart)
	for range 2 {
		untimed := TapRow{Source: second, Seq: 2, Name: one.Name, Place: one.Place, Interface: one.Interface, Link: one.Link, Timestamps: one.Timestamps}
		rows := []TapRow{aTap(first, 0, testStart), aTap(second, 0, testStart), aTap(second, 1, testStart.Add(time.Minute)), untimed}
		if err := s.WriteTaps(t.Context(), rows); err != nil {
			t.Fatal(err)
		}
	}
	both := one
	both.To += int64(time.Minute)
	for _, n := range []*uint64{
		&both.Packets, &both.Bytes, &both.Tags, &both.Reflections, &both.Observations, &both.Stored, &both.Overflow, &both.Late,
		&both.Untouched, &both.Trimmed, &both.KernelDrops, &both.Freezes, &both.SuperFrames, &both.Lost,
	} {
		*n *= 2
	}
	both.Frames, both.Rejected = map[string]uint64{"ok": 14, "cut-ip": 6}, map[string]uint64{"orphan": 4, "place": 2}
	for _, tt := range []struct {
		from, to time.Duration
		want     []TapTotal
	}{
		{0, time.Second, []TapTotal{{one, 1}}},
		{0, time.Hour, []TapTotal{{both, 1}}},
		{-time.Duration(testStart.UnixNano()), time.Hour, []TapTotal{{both, 1}}}, // with packets without times
		{-time.Hour, 0, nil},
		{2 * time.Minute, time.Hour, nil},
	} {
		got, err := s.Taps(t.Context(), testStart.Add(tt.from), testStart.Add(tt.to))
		if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
			t.Errorf("%s to %s: %v (-want +got):\n%s", tt.from, tt.to, err, diff)
		}
	}
	if _, err := s.Taps(t.Context(), testStart, testStart); err == nil {
		t.Error("an empty range: no error")
	}
}

// TestFlows: the worst first, tags before reflections, windows added up, and the others.
func TestFlows(t *testing.T) {
	sequential(t)
	s := openStore(t)
	source := aggregate.Source{Producer: 1, Incarnation: 2, Epoch: 3}
	a := aFlow(source, 1, testStart, 1)
	later := aFlow(source, 2, testStart.Add(time.Second), 1)
	later.Location, later.LocationHeavy = 4, 4
	reflected := aFlow(source, 3, testStart, 1)
	reflected.Kind, reflected.Heavy = decode.Reflection, 1000
	b := aFlow(source, 1, testStart, 2)
	b.Heavy, b.Measured, b.Sum, b.Min, b.Max, b.Location, b.LocationHeavy, b.Sampled = 0, 0, 0, 0, 0, 0, 0, 0
	others := aFlow(source, 1, testStart, 0)
	others.Flow, others.Heavy = Flow{}, 100
	minute := aFlow(source, 1, testStart, 3)
	minute.Resolution = int64(time.Minute)
	for range 2 {
		if err := writeFlows(t.Context(), s, []FlowRow{a, b, later, reflected, others, minute}); err != nil {
			t.Fatal(err)
		}
	}
	total := func(r FlowRow, windows uint64) FlowTotal {
		mean := float64(r.Sum) / float64(r.Measured)
		return FlowTotal{
			Flow: r.Flow, SrcGroup: r.SrcGroup, DstGroup: r.DstGroup, Kind: r.Kind, Observations: r.Observations * windows, Bytes: r.Bytes * windows,
			Mean: mean, Min: float64(r.Min), Max: float64(r.Max), Heavy: r.Heavy * windows, Windows: windows, Location: r.Location, LocationHeavy: r.LocationHeavy, Sampled: r.Sampled * windows,
		}
	}
	added := total(a, 2)
	added.Location, added.LocationHeavy = 4, 4
	nothing := total(b, 1)
	nothing.Mean, nothing.Min, nothing.Max = math.NaN(), math.NaN(), math.NaN()
	q := FlowQuestion{Signal: csig.MaxDelay, From: testStart, To: testStart.Add(time.Minute), Limit: 10}
	got, err := s.Flows(t.Context(), q)
	if diff := cmp.Diff([]FlowTotal{total(others, 1), added, nothing}, got, cmpopts.EquateNaNs(), cmpopts.EquateComparable(netip.Addr{})); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	q.Resolution, q.Limit = time.Minute, 1
	if got, err := s.Flows(t.Context(), q); err != nil || len(got) != 1 || got[0].SrcPort != 3 {
		t.Errorf("minutes: %+v, %v", got, err)
	}
	q.SrcGroups = []aggregate.GroupID{99}
	if got, err := s.Flows(t.Context(), q); err != nil || len(got) != 0 {
		t.Errorf("of nobody: %+v, %v", got, err)
	}
	q.Resolution = time.Millisecond
	if _, err := s.Flows(t.Context(), q); err == nil {
		t.Error("fine windows: no error")
	}
}

// TestFindings: rows of one finding add up; long fields are cut; rows without a time change no time.
func TestFindings(t *testing.T) {
	sequential(t)
	s := openStore(t)
	source := aggregate.Source{Producer: 1, Incarnation: 2, Epoch: 3}
	first := aFinding(source, 1, testStart)
	again := aFinding(source, 2, testStart.Add(time.Second))
	again.Evidence, again.Severity = "later", SeverityWarning
	long := aFinding(source, 3, testStart.Add(time.Minute))
	long.Kind, long.Severity, long.Evidence, long.Packets = "scrub-failure", SeverityInfo, strings.Repeat("x", 5000), make([]uint64, 100)
	untimed, partly := aFinding(source, 4, time.Unix(0, 0)), aFinding(source, 5, time.Unix(0, 0))
	untimed.ID, untimed.To, partly.To = 78, 0, 0
	for range 2 {
		if err := s.WriteFindings(t.Context(), []FindingRow{first, again, long, untimed, partly}); err != nil {
			t.Fatal(err)
		}
	}
	first.Source, first.Seq, first.Count, first.To = aggregate.Source{}, 0, 9, again.To
	untimed.Source, untimed.Seq = aggregate.Source{}, 0
	long.Source, long.Seq, long.Evidence, long.Packets = aggregate.Source{}, 0, long.Evidence[:maxEvidence], long.Packets[:maxFindingPackets]
	got, err := s.Findings(t.Context(), FindingQuestion{From: testStart, To: testStart.Add(time.Hour), Limit: 100})
	if diff := cmp.Diff([]FindingRow{first, untimed, long}, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// TestRecordsRefused writes rows that no table can hold.
func TestRecordsRefused(t *testing.T) {
	sequential(t)
	s := openStore(t)
	for name, write := range map[string]func() error{
		"tap before 1970":     func() error { return s.WriteTaps(t.Context(), []TapRow{{From: -1}}) },
		"tap after 2105":      func() error { return s.WriteTaps(t.Context(), []TapRow{{To: aggregate.EndOfTime}}) },
		"tap backwards":       func() error { return s.WriteTaps(t.Context(), []TapRow{{From: 2, To: 1}}) },
		"finding of severity": func() error { return s.WriteFindings(t.Context(), []FindingRow{{Severity: "high"}}) },
	} {
		if write() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if n := readStrings(t, s, "SELECT toString((SELECT count() FROM csigscope.taps) + (SELECT count() FROM csigscope.flows) + (SELECT count() FROM csigscope.findings))"); n[0] != "0" {
		t.Errorf("%s rows stored", n[0])
	}
}

// TestBounded: cut text is a prefix of the original, up to a character.
func TestBounded(t *testing.T) {
	for _, test := range []struct {
		text string
		n    int
		want string
	}{
		{"", 3, ""}, {"abc", 3, "abc"}, {"abcd", 3, "abc"}, {"ab\u00b5", 3, "ab"}, {"\u20ac\u20ac", 5, "\u20ac"}, {"\u20ac", 2, ""}, {"\x80\x80\x80", 2, ""},
	} {
		if got := bounded(test.text, test.n); got != test.want {
			t.Errorf("%q cut to %d bytes is %q, want %q", test.text, test.n, got, test.want)
		}
	}
}
