package store

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode/csig"
)

// TestViewsWithBoundParameters queries every parameterized view as other programs do, with
// parameters of the query, and checks that each parameter is required.
func TestViewsWithBoundParameters(t *testing.T) {
	sequential(t)
	s := covered(t)
	values := clickhouse.Parameters{
		"signal": "2", "from": stamp(testStart), "to": stamp(testStart.Add(time.Minute)), "level": "1",
		"resolution_ns": fmt.Sprint(time.Second.Nanoseconds()), "step_ns": fmt.Sprint(time.Second.Nanoseconds()), "group": "rack1",
		"onset": "0.05", "clear": "0.02", "apart": "[1709251200]", "by_second": "0",
	}
	parameter := regexp.MustCompile(`\{(\w+):([^}]+)\}`)
	asked := 0
	for _, m := range s.schema {
		for _, statement := range m.Statements {
			name := created.FindStringSubmatch(statement)
			if name == nil || m.Version != 0 {
				continue
			}
			var bound []string
			types := map[string]string{}
			for _, p := range parameter.FindAllStringSubmatch(statement, -1) {
				if _, seen := types[p[1]]; !seen {
					bound = append(bound, fmt.Sprintf("%s = {%[1]s:%s}", p[1], p[2]))
					types[p[1]] = p[2]
				}
			}
			if len(bound) == 0 {
				continue
			}
			asked++
			ctx := clickhouse.Context(t.Context(), clickhouse.WithParameters(values))
			ask := func(arguments []string) error {
				rows, err := s.reader.Query(ctx, fmt.Sprintf("SELECT count() FROM %s.%s(%s)", s.database, name[1], strings.Join(arguments, ", ")))
				if err == nil {
					err = rows.Close()
				}
				return err
			}
			if err := ask(bound); err != nil {
				t.Errorf("%s: %v", name[1], err)
			}
			for i := range bound {
				if ask(slices.Delete(slices.Clone(bound), i, i+1)) == nil {
					t.Errorf("%s: answers without %s", name[1], bound[i])
				}
			}
		}
	}
	if asked < 5*numResolutionTables+3 {
		t.Errorf("%d views asked", asked)
	}
}

// TestViewsWithoutNulls: the settings of a user's profile that make NULL of missing values change no
// row of a view.
func TestViewsWithoutNulls(t *testing.T) {
	s := covered(t)
	during := fmt.Sprintf("from = '%s', to = '%s'", stamp(testStart), stamp(testStart.Add(time.Minute)))
	for _, view := range []string{
		"current_gaps", "superseded", "cells_1s(signal = 2, level = 1, onset = 0.05, clear = 0.02, " + during + ")",
		"top_locations_1s(signal = 2, level = 1, " + during + ")", "coverage_windows_1s(step_ns = 1000000000, " + during + ")",
	} {
		read := func(settings string) (list []string) {
			t.Helper()
			query := fmt.Sprintf("SELECT formatRow('JSONEachRow', *) AS row FROM %s.%s ORDER BY row%s", s.database, view, settings)
			if err := s.query(t.Context(), s.migrator, "read view", query, func(rows driver.Rows) error {
				list = append(list, "")
				return rows.Scan(&list[len(list)-1])
			}); err != nil {
				t.Fatalf("%s: %v", view, err)
			}
			return list
		}
		want := read("")
		if diff := cmp.Diff(want, read(" SETTINGS join_use_nulls = 1, aggregate_functions_null_for_empty = 1")); diff != "" || len(want) == 0 && view != "superseded" {
			t.Errorf("%s: %d rows (-without +with):\n%s", view, len(want), diff)
		}
	}
}

// Rows as full as their columns allow: three of one location, and one of another, which would be
// the mode if a sum wrapped.
const (
	hugeRows     = 3
	hugeSeen     = 1<<63 + 5
	hugeMeasured = 1 << 63
	hugeTrimmed  = 5
	hugeHeavy    = 1 << 63
	otherHeavy   = 1<<63 + 1
	hugeSum      = math.MaxUint64 // and bytes
)

// times is n rows of v, and of w each.
func times(n uint64, v uint64, w ...uint64) *big.Int {
	sum := new(big.Int).SetUint64(v)
	sum.Mul(sum, new(big.Int).SetUint64(n))
	for _, one := range w {
		sum.Add(sum, new(big.Int).SetUint64(one))
	}
	return sum
}

// saturatedInt is a sum as readers return it, capped at 2^64-1.
func saturatedInt(n *big.Int) uint64 {
	if n.IsUint64() {
		return n.Uint64()
	}
	return math.MaxUint64
}

var hugeSource = aggregate.Source{Producer: 1, Incarnation: 1, Epoch: 1}

// fillHuge writes the rows into every table.
func fillHuge(t *testing.T, s *Store) {
	t.Helper()
	var rows []row
	for _, resolution := range []time.Duration{10 * time.Millisecond, time.Second, time.Minute} {
		r := row{
			resolution: int64(resolution), window: testStart.UnixNano(), source: hugeSource, signal: uint8(csig.MaxDelay), kind: 1,
			src: 10, dst: 11, location: 5, observations: hugeSeen, bytes: hugeSum, sum: hugeSum, min: 1, max: 2, untouched: hugeHeavy,
			trimmed: hugeTrimmed, heavy: hugeHeavy, heavySum: hugeSum, distCode: []uint16{7}, distCount: []uint64{hugeMeasured},
		}
		for seq := range uint64(hugeRows) {
			r.seq = seq
			rows = append(rows, r)
		}
		r.seq, r.location, r.observations, r.heavy, r.trimmed, r.distCount = hugeRows, 6, otherHeavy, otherHeavy, 0, []uint64{otherHeavy}
		rows = append(rows, r)
	}
	write(t, s, blocks(rows))
	var taps []TapRow
	var flows []FlowRow
	var findings []FindingRow
	var gaps []gap
	for seq := range uint64(hugeRows) {
		tap := aTap(hugeSource, seq, testStart)
		for _, n := range []*uint64{
			&tap.Packets, &tap.Bytes, &tap.Tags, &tap.Reflections, &tap.Observations, &tap.Stored, &tap.Overflow, &tap.Late,
			&tap.Untouched, &tap.Trimmed, &tap.KernelDrops, &tap.Freezes, &tap.SuperFrames, &tap.Lost,
		} {
			*n = hugeSum
		}
		tap.Frames, tap.Rejected = map[string]uint64{"ok": hugeSum}, map[string]uint64{"orphan": hugeSum}
		flow := aFlow(hugeSource, seq, testStart, 1)
		flow.Observations, flow.Bytes, flow.Measured, flow.Sum, flow.Min, flow.Max = hugeSeen, hugeSum, hugeMeasured, hugeSum, 1, 2
		flow.Heavy, flow.HeavySum, flow.LocationHeavy = hugeHeavy, hugeSum, hugeHeavy
		finding := aFinding(hugeSource, seq, testStart)
		finding.Count = hugeSum
		lost := lossExtent{Producer: 1, From: testStart.UnixNano(), To: testStart.UnixNano() + 1000, Observations: hugeSum}
		taps, flows, findings = append(taps, tap), append(flows, flow), append(findings, finding)
		gaps = append(gaps, gapsOf([]lossExtent{lost}, GapDrops, seq, notExpiredGap)...)
	}
	err := errors.Join(s.WriteTaps(t.Context(), taps), writeFlows(t.Context(), s, flows), s.WriteFindings(t.Context(), findings),
		s.sendGaps(t.Context(), gaps), s.WriteGroups(t.Context(), []fabric.Group{{ID: 10, Name: "rack1"}}))
	if err != nil {
		t.Fatal(err)
	}
}

// TestViewsDoNotWrap queries every view with sums beyond 64 bits, and requires exact sums;
// readers cap them at 2^64-1.
func TestViewsDoNotWrap(t *testing.T) {
	sequential(t)
	s := openStore(t)
	fillHuge(t, s)
	seen, filled, heavy := times(hugeRows, hugeSeen, otherHeavy), times(hugeRows+1, hugeSum), times(hugeRows, hugeHeavy, otherHeavy)
	measured, untouched, records := times(hugeRows, hugeMeasured, otherHeavy), times(hugeRows+1, hugeHeavy), times(hugeRows, hugeSum)
	trimmed, mode, other, nothing := times(hugeRows, hugeTrimmed), times(hugeRows, hugeHeavy), times(1, otherHeavy), new(big.Int)
	type answers map[string]*big.Int
	cell := answers{
		"observations": seen, "samples": measured, "bytes": filled, "measured": measured, "sum": filled, "untouched": untouched, "trimmed": trimmed, "heavy": heavy, "heavy_sum": filled,
		"mode_location": big.NewInt(5), "mode_count": mode, "mode_sum": records, "runner_up": big.NewInt(6), "runner_up_count": other,
	}
	location := answers{"observations": times(hugeRows, hugeSeen), "heavy": mode, "heavy_sum": records}
	covered := answers{"observations": seen, "tags": seen, "reflections": nothing, "untouched": untouched, "trimmed": trimmed, "overflow": nothing}
	windows := answers{"lost": records}
	for column, n := range covered {
		windows[column] = n
	}
	tap := answers{"frames['ok']": records, "rejected['orphan']": records}
	for _, column := range strings.Fields("packets bytes tags reflections observations stored overflow late untouched trimmed kernel_drops freezes super_frames lost") {
		tap[column] = records
	}
	ask := func(view, where string, want answers) {
		t.Helper()
		var columns, values []string
		for column, n := range want {
			columns, values = append(columns, "toString("+column+")"), append(values, n.String())
		}
		got := readStrings(t, s, fmt.Sprintf("SELECT arrayJoin([%s]) FROM %s WHERE %s", strings.Join(columns, ", "), view, where))
		if diff := cmp.Diff(values, got); diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", view, columns, diff)
		}
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if !(math.Abs(got-want) <= 1e-9*want) {
			t.Errorf("%s is %g, want %g", what, got, want)
		}
	}
	for _, resolution := range []time.Duration{10 * time.Millisecond, time.Second, time.Minute} {
		q := Question{Signal: csig.MaxDelay, From: testStart, To: testStart.Add(time.Minute), Resolution: resolution, Step: resolution}
		signal, span, step := q.signalArgs(), q.spanArgs(), q.stepArgs()
		ask(q.view(s.database, "cells", false, judgedBy(s.thresholds)), "state = 'congested'", cell)
		ask(q.view(s.database, "cell_windows", true, judgedBy(s.thresholds)), "state = 'congested'", cell)
		ask(q.view(s.database, "location_windows", true), "location = 5", location)
		ask(q.view(s.database, "top_locations", false), "location = 5", location)
		ask(q.totals(s.database), "1", answers{"observations": seen, "heavy": heavy, "trimmed": trimmed})
		ask(q.codes(s.database), "code = 7", answers{"observations": measured})
		ask(q.call(s.database, "coverage_windows", span, step), "1", windows)
		ask(q.call(s.database, "coverage_cells", signal, span), "1", covered)
		ask(q.call(s.database, "group_windows", signal, span, step, "group = 'rack1'"), "1", answers{"bytes": filled, "observations": seen, "heavy": heavy})

		cells, err := s.Cells(t.Context(), q)
		if err != nil || len(cells) != 1 {
			t.Fatalf("cells %+v, %v", cells, err)
		}
		c := cells[0]
		sum, _ := new(big.Float).SetInt(filled).Float64()
		all, _ := new(big.Float).SetInt(measured).Float64()
		near("mean", c.MeanValue(), sum/all)
		c.Sum, c.Measured = 0, 0 // both scaled
		verdict := aggregate.Verdict{Since: testStart.UnixNano(), Lasted: int64(time.Minute), AnyJudged: true, Sustained: true, AnyLoaded: true}
		judged := uint64(1)
		if resolution < time.Second { // the horizon is shorter than the range
			verdict, judged = aggregate.Verdict{}, 0
		}
		if want := (aggregate.CellStats{
			Src: 10, Dst: 11, Signal: csig.MaxDelay, Kind: 1, Observations: saturatedInt(seen), Samples: saturatedInt(measured), Bytes: saturatedInt(filled), Min: 1, Max: 2, Untouched: saturatedInt(untouched), Trimmed: saturatedInt(trimmed), Heavy: saturatedInt(heavy),
			HeavySum: saturatedInt(filled), Mode: 5, ModeCount: saturatedInt(mode), ModeSum: saturatedInt(records), RunnerUp: 6, RunnerUpCount: otherHeavy, State: aggregate.Congested,
			Votes:   []aggregate.Vote{{Location: 5, Heavy: saturatedInt(mode)}, {Location: 6, Heavy: otherHeavy}},
			Verdict: verdict, JudgedWindows: judged, CongestedWindows: judged,
		}); !reflect.DeepEqual(c, want) {
			t.Errorf("cell %+v, want %+v", c, want)
		}
		early := q
		early.From = testStart.Add(-2 * time.Minute)
		if cells, err = s.Cells(t.Context(), early); err != nil || len(cells) != 1 || cells[0].LaterSum != cells[0].Sum || cells[0].LaterMeasured != cells[0].Measured {
			t.Errorf("cells %+v, %v, want all in the later half", cells, err)
		}
		cellWindows, err := s.CellWindows(t.Context(), q)
		if err != nil || len(cellWindows) != 1 || cellWindows[0].Observations != math.MaxUint64 || cellWindows[0].ModeCount != math.MaxUint64 {
			t.Errorf("cell windows %+v, %v", cellWindows, err)
		}
		locations, err := s.LocationWindows(t.Context(), q)
		if err != nil || len(locations) != 2 || locations[0].Observations != math.MaxUint64 || locations[0].Heavy != math.MaxUint64 {
			t.Errorf("location windows %+v, %v", locations, err)
		}
		top, err := s.TopLocations(t.Context(), q, 1)
		if want := (aggregate.LocationStats{Location: 5, Observations: math.MaxUint64, Heavy: math.MaxUint64, HeavySum: math.MaxUint64, Cells: 1}); err != nil || len(top) != 1 || top[0] != want {
			t.Errorf("top locations %+v, %v, want %+v", top, err, want)
		}
		codes, err := s.Codes(t.Context(), q)
		codeWindows, err2 := s.CodeWindows(t.Context(), q)
		for _, list := range [][]CodeRow{codes, codeWindows} {
			if err := errors.Join(err, err2); err != nil || len(list) != 1 || list[0].Observations != math.MaxUint64 {
				t.Errorf("codes %+v, %v", list, err)
			}
		}
		coverage, err := s.CoverageWindows(t.Context(), q)
		if err != nil || len(coverage) != 1 || coverage[0].Observations != math.MaxUint64 || coverage[0].Lost != math.MaxUint64 || coverage[0].Trimmed != hugeRows*hugeTrimmed {
			t.Errorf("coverage %+v, %v", coverage, err)
		}
		known, err := s.CoverageCells(t.Context(), q)
		if err != nil || len(known) != 1 || known[0].Tags != math.MaxUint64 {
			t.Errorf("coverage of cells %+v, %v", known, err)
		}
	}
	q := testQuestion()
	q.Signal = csig.MaxDelay
	worst := FlowQuestion{Signal: q.Signal, From: q.From, To: q.To, Resolution: time.Second, Limit: 1}
	ask(s.flowView(&worst), "1", answers{"observations": times(hugeRows, hugeSeen), "bytes": records, "measured": times(hugeRows, hugeMeasured), "heavy": mode, "location_heavy": mode})
	ask(s.recordView("tap_totals", q.From, q.To), "1", tap)
	ask(s.recordView("finding_totals", q.From, q.To), "1", answers{"count": records})
	flows, err := s.Flows(t.Context(), worst)
	if err != nil || len(flows) != 1 || flows[0].Observations != math.MaxUint64 || flows[0].LocationHeavy != math.MaxUint64 {
		t.Fatalf("flows %+v, %v", flows, err)
	}
	near("mean of a flow", flows[0].Mean, 2)
	taps, err := s.Taps(t.Context(), q.From, q.To)
	if err != nil || len(taps) != 1 || taps[0].Packets != math.MaxUint64 || taps[0].Frames["ok"] != math.MaxUint64 || taps[0].Rejected["orphan"] != math.MaxUint64 {
		t.Errorf("taps %+v, %v", taps, err)
	}
	findings, err := s.Findings(t.Context(), FindingQuestion{From: q.From, To: q.To, Limit: 10})
	if err != nil || len(findings) != 1 || findings[0].Count != math.MaxUint64 {
		t.Errorf("findings %+v, %v", findings, err)
	}
	extent, err := s.Extent(t.Context())
	if err != nil || extent.Observations != math.MaxUint64 || extent.Heavy != math.MaxUint64 {
		t.Errorf("extent %+v, %v", extent, err)
	}
}

// The views know the same units and directions of signals as package csig.
func TestSignalsOfViews(t *testing.T) {
	sequential(t)
	files, err := template.ParseFS(migrationFiles, "migrations/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	expression := func(name string) string {
		var b strings.Builder
		if err := files.ExecuteTemplate(&b, name, nil); err != nil {
			t.Fatal(err)
		}
		return strings.ReplaceAll(b.String(), "{signal:UInt8}", "toUInt8(number)")
	}
	got := readStrings(t, openStore(t), fmt.Sprintf("SELECT format('{} {}', toString(%s), toString(%s)) FROM numbers(%d)", expression("unit"), expression("lower is worse"), csig.NumSignals))
	for i := range csig.Signal(csig.NumSignals) {
		lower := 0
		if i.Direction() == csig.Min {
			lower = 1
		}
		if want := fmt.Sprintf("%d %d", i.Unit()&3, lower); i.HasValue() && got[i] != want { // the upper bit of a unit is only Count's
			t.Errorf("%s: unit and direction %s, want %s", i.FullName(), got[i], want)
		}
	}
}
