package query_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/querytest"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var start = querytest.Start

// small has two racks with data and a silent one, two ports of one leaf, and a location without a
// name.
func small() *querytest.Memory {
	const leaf, up1, up2 = 1<<60 + 1, 1<<60 + 2, 1<<60 + 3
	row := func(second int, kind decode.Kind, at aggregate.LocationID, n, heavy, ppm uint64) querytest.Row {
		return querytest.Row{
			Window: start.Add(time.Duration(second) * time.Second).UnixNano(),
			Signal: csig.MinABWRatio, Kind: kind, Src: 101, Dst: 102, Location: at,
			Sums: aggregate.Sums{Observations: n, Samples: n, Measured: n, Sum: ppm * n, Min: ppm, Max: ppm, Heavy: heavy, HeavySum: ppm * heavy},
		}
	}
	return &querytest.Memory{
		Resolution: time.Second,
		Rows: []querytest.Row{
			row(0, decode.Tag, up1, 60, 10, 100_000),
			row(0, decode.Tag, up2, 40, 8, 50_000),
			row(0, decode.Tag, 1<<59, 20, 9, 150_000),
			row(0, decode.Reflection, up2, 99, 99, 10_000),
			row(2, decode.Reflection, up2, 20, 20, 20_000),
			row(2, decode.Reflection, aggregate.NoLocation, 5, 0, 1_000_000),
		},
		GroupRows: []fabric.Group{
			{ID: 103, Name: "rack3", Level: "rack", Parent: "pod1", Order: 3},
			{ID: 102, Name: "rack2", Level: "rack", Parent: "pod1", Order: 2},
			{ID: 101, Name: "rack1", Level: "rack", Parent: "pod1", Order: 1},
			{ID: 100, Name: "pod1", Level: "pod"},
			{ID: aggregate.UnknownGroup, Name: "unknown"},
		},
		LocationRows: []fabric.Location{
			{ID: leaf, Name: "leaf1", Kind: "set", Device: "leaf1", Set: leaf, DeviceLoc: leaf, StageLoc: leaf},
			{ID: up1, Name: "leaf1:up1", Kind: "port", Device: "leaf1", Stage: "leaf", Capacity: 100e6, Set: leaf, DeviceLoc: leaf, StageLoc: leaf},
			{ID: up2, Name: "leaf1:up2", Kind: "port", Device: "leaf1", Stage: "leaf", Capacity: 100e6, Set: leaf, DeviceLoc: leaf, StageLoc: leaf},
		},
	}
}

func build(t *testing.T, r query.Reader, o query.Options) *query.Bundle {
	t.Helper()
	o.Now = start.Add(time.Hour)
	b, err := query.Build(context.Background(), r, o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestBuildThresholds: a bundle includes the thresholds of its states.
func TestBuildThresholds(t *testing.T) {
	for want, given := range map[aggregate.Thresholds]aggregate.Thresholds{
		aggregate.DefaultThresholds(): {},
		{Onset: 0.3, Clear: 0.001}:    {Onset: 0.3, Clear: 0.001},
	} {
		if b := build(t, small(), query.Options{Thresholds: given}); b.OnsetRatio != want.Onset || b.ClearRatio != want.Clear {
			t.Errorf("%v: onset %g, clear %g", given, b.OnsetRatio, b.ClearRatio)
		}
	}
}

func TestBuildGolden(t *testing.T) {
	b := build(t, small(), query.Options{Fabric: "test", Levels: []fabric.Level{fabric.LevelDevice, fabric.LevelLocation}})
	got, err := json.MarshalIndent(b, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "bundle.json")
	if *update {
		if err := os.WriteFile(golden, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(bytes.TrimSpace(want)), string(got)); diff != "" {
		t.Errorf("bundle differs (-want +got); -update rewrites the golden file:\n%s", diff)
	}
	var back query.Bundle
	if err := json.Unmarshal(got, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b, &back, cmpopts.EquateApprox(1e-5, 0), cmpopts.EquateNaNs()); diff != "" {
		t.Errorf("bundle changes in JSON (-out +back):\n%s", diff)
	}
}

func TestBuildModes(t *testing.T) {
	b := build(t, small(), query.Options{Levels: fabric.Levels()})
	cells := b.Data[0].Total
	if len(cells.Src) != 1 || cells.Kind[0] != int(decode.Tag) || cells.Observations[0] != 120 {
		t.Fatalf("cells of kind %d with %d observations, want one, of the tags alone: 120", cells.Kind, cells.Observations)
	}
	name := func(i int) string { return b.Locations[i].Name }
	at := cells.Modes["location"]
	if name(at.Mode[0]) != "leaf1:up1" || at.ModeCount[0] != 10 || at.RunnerUpCount[0] != 9 {
		t.Errorf("mode %s with %d, runner-up with %d; want leaf1:up1 with 10, then 9", name(at.Mode[0]), at.ModeCount[0], at.RunnerUpCount[0])
	}
	device := cells.Modes["device"]
	if name(device.Mode[0]) != "leaf1" || device.ModeCount[0] != 18 {
		t.Errorf("mode by device %s with %d, want leaf1 with 18", name(device.Mode[0]), device.ModeCount[0])
	}
	if got := name(b.Locations[at.Mode[0]].DeviceIndex); got != "leaf1" {
		t.Errorf("device of the mode is %s, want leaf1", got)
	}
	m := small()
	m.Rows = m.Rows[4:] // reflections of one port
	cells = build(t, m, query.Options{}).Data[0].Total
	if cells.Kind[0] != int(decode.Reflection) || cells.Modes["location"].RunnerUp[0] != -1 {
		t.Errorf("kind %d, runner-up %d; want reflections where no tag was seen, and -1", cells.Kind[0], cells.Modes["location"].RunnerUp[0])
	}
}

func TestBuildKeepsSilentGroups(t *testing.T) {
	b := build(t, small(), query.Options{})
	var names []string
	for _, g := range b.Groups {
		names = append(names, g.Name)
	}
	if want := []string{"rack1", "rack2", "rack3"}; !cmp.Equal(names, want) {
		t.Errorf("axes %v, want %v: silent racks stay, pods do not", names, want)
	}
}

func TestBuildConserves(t *testing.T) {
	m := querytest.Fabric(8, 25)
	for _, step := range []time.Duration{0, time.Second, 5 * time.Second} {
		o := query.Options{Step: step, Signals: []csig.Signal{csig.MaxDelay}}
		answer, err := query.BuildFrames(context.Background(), m, o, false)
		if err != nil {
			t.Fatal(err)
		}
		_, rows := querytest.ReadFrames(t, answer)
		var cells uint64
		for _, r := range rows {
			cells += r.Observations
		}
		if total := build(t, m, o).Data[0].Sum.Observations; cells != total || total == 0 {
			t.Errorf("step %s: %d observations in windows, %d in total", step, cells, total)
		}
	}
}

func TestBuildRefuses(t *testing.T) {
	m := querytest.Fabric(4, 20)
	tests := map[string]struct {
		reader  query.Reader
		options query.Options
		want    error
	}{
		"backward range": {m, query.Options{From: start.Add(time.Hour), To: start}, query.ErrInvalid},
		"odd step":       {m, query.Options{Step: 1500 * time.Millisecond}, query.ErrInvalid},
		"many windows":   {m, query.Options{From: start, To: start.Add(time.Hour), Step: time.Second, MaxWindows: 100}, query.ErrTooLarge},
		"many rows":      {m, query.Options{MaxRows: 10}, query.ErrTooLarge},
		"empty store":    {&querytest.Memory{Resolution: time.Second}, query.Options{}, query.ErrNoData},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := query.Build(context.Background(), test.reader, test.options); !errors.Is(err, test.want) {
				t.Errorf("error %v, want %v", err, test.want)
			}
		})
	}
}

// offGrid answers with a window between two steps.
type offGrid struct{ *querytest.Memory }

func (o offGrid) LocationWindows(ctx context.Context, q query.Question) ([]aggregate.LocationWindow, error) {
	rows, err := o.Memory.LocationWindows(ctx, q)
	rows[0].Start++
	return rows, err
}

func TestBuildRefusesWindowsOffTheGrid(t *testing.T) {
	if _, err := query.Build(context.Background(), offGrid{small()}, query.Options{}); err == nil {
		t.Error("no error for a row between two windows")
	}
}

// TestAutomaticStep: the range that a bundle covers has the same windows as the range that was asked for, which
// may start within a window.
func TestAutomaticStep(t *testing.T) {
	m := querytest.Fabric(2, 5)
	for length, want := range map[time.Duration]time.Duration{
		5 * time.Second:                time.Second,
		2 * time.Minute:                time.Second,
		3 * time.Minute:                2 * time.Second,
		time.Hour:                      30 * time.Second,
		time.Hour + 30*time.Second:     30 * time.Second,
		time.Hour + 31*time.Second:     time.Minute,
		24 * time.Hour:                 15 * time.Minute,
		300 * time.Hour:                3 * time.Hour,
		120*24*time.Hour - time.Second: 24 * time.Hour,
		9000 * time.Hour:               96 * time.Hour,
	} {
		for _, from := range []time.Time{start, start.Add(7 * time.Second), start.Add(-time.Nanosecond)} {
			b := build(t, m, query.Options{From: from, To: from.Add(length)})
			if got := time.Duration(b.StepNS); got != want && from.Equal(start) {
				t.Errorf("step for %s: %s, want %s", length, got, want)
			}
			if len(b.Windows) > 121 {
				t.Errorf("%d windows for %s from %s, want about 120 at most", len(b.Windows), length, from)
			}
			first := time.Unix(0, int64(b.Windows[0]))
			again := build(t, m, query.Options{From: first, To: first.Add(time.Duration(len(b.Windows)) * time.Duration(b.StepNS))})
			if again.StepNS != b.StepNS || !slices.Equal(again.Windows, b.Windows) {
				t.Errorf("%s from %s are %d windows of %s, and these %d of %s", length, from,
					len(b.Windows), time.Duration(b.StepNS), len(again.Windows), time.Duration(again.StepNS))
			}
		}
	}
}

// asked records the last question to a reader, and claims more resolutions than it has.
type asked struct {
	*querytest.Memory
	resolutions []time.Duration
	question    query.Question
}

func (a *asked) Extent(ctx context.Context) (query.Extent, error) {
	e, err := a.Memory.Extent(ctx)
	e.Resolutions = a.resolutions
	return e, err
}

func (a *asked) LocationWindows(_ context.Context, q query.Question) ([]aggregate.LocationWindow, error) {
	a.question = q
	return nil, nil
}

// TestSplitRangeOfAllTimes: a range is widened to whole windows, but never beyond all times.
func TestSplitRangeOfAllTimes(t *testing.T) {
	end := time.Unix(0, aggregate.EndOfTime).UTC()
	e := query.Extent{First: start, Last: end, Signals: []csig.Signal{csig.MinABW}, Resolutions: []time.Duration{time.Second, time.Minute}}
	for step, from := range map[time.Duration]time.Time{0: start, time.Second: end.Add(-time.Hour), 7 * time.Second: end.Add(-time.Hour), 1000 * time.Hour: start} {
		q := query.Question{From: from, To: end}
		if err := query.SplitRange(&q, e, step, 5000); err != nil || !q.To.Equal(end) || q.From.UnixNano()%int64(q.Step) != 0 {
			t.Errorf("step %s: %s to %s, %v", step, q.From, q.To, err)
		}
	}
}

func TestResolution(t *testing.T) {
	const ms = time.Millisecond
	for name, test := range map[string]struct {
		stored    []time.Duration
		step      time.Duration
		want      time.Duration
		heavyOnly bool
	}{
		"only seconds divide":         {[]time.Duration{10 * ms, time.Second, time.Minute}, 5 * time.Second, time.Second, false},
		"the reader chooses":          {[]time.Duration{10 * ms, time.Second, time.Minute}, 2 * time.Minute, 0, false},
		"complete rows before fine":   {[]time.Duration{time.Minute, 10 * ms}, 2 * time.Minute, time.Minute, false},
		"fine rows when asked for":    {[]time.Duration{10 * ms, time.Second}, 20 * ms, 10 * ms, true},
		"the coarser of two fine":     {[]time.Duration{ms, 10 * ms, time.Second}, 20 * ms, 10 * ms, true},
		"never fine without being so": {[]time.Duration{10 * ms, time.Second}, 0, time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := &asked{Memory: small(), resolutions: test.stored}
			b := build(t, r, query.Options{Step: test.step, From: start, To: start.Add(100 * ms)})
			if got := r.question.Resolution; got != test.want || b.ResolutionNS != int64(test.want) {
				t.Errorf("asked for rows of %s and says %d ns, want %s", got, b.ResolutionNS, test.want)
			}
			if b.HeavyOnly != test.heavyOnly {
				t.Errorf("heavy only: %t, want %t", b.HeavyOnly, test.heavyOnly)
			}
		})
	}
}
