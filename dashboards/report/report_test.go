package report_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/aggregate/flow"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/dashboards/report"
	"github.com/csigscope/csigscope/dashboards/report/source"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// named derives every name from the ID, with characters that need escaping.
type named struct{}

func (named) GroupName(id aggregate.GroupID) string {
	return fmt.Sprintf("rack%d<script>alert(1)</script>", id)
}

func (named) Location(id aggregate.LocationID) (fabric.Location, bool) {
	return fabric.Location{ID: id, Name: fmt.Sprintf("leaf|%d</svg>", id), Kind: fabric.KindPort, Device: "leaf", CandidateCount: 1, Candidates: []string{fmt.Sprintf("leaf|%d</svg>", id)}}, true
}

// Hops returns two hops; the second may be the bottleneck.
func (named) Hops(src, dst aggregate.GroupID) []fabric.Hop {
	return []fabric.Hop{
		{Name: fmt.Sprintf("up</td>%d", src), Ports: []string{"a", "b"}, Count: 2},
		{Name: fmt.Sprintf("down%d", dst), Ports: []string{"leaf|1</svg>"}, Count: 1},
	}
}

// domain returns the built-in domain.
func domain(t testing.TB) *csig.Domain {
	t.Helper()
	d, err := csig.DefaultSpec().Compile()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// sampleData returns the data of groups, each congested toward the next one, and the report's
// signals.
func sampleData(t testing.TB, groups int, thresholds aggregate.Thresholds) (*source.Memory, []report.Signal) {
	t.Helper()
	memory := source.NewMemory(source.Resolutions{Fine: time.Second, Window: time.Second, Total: time.Second}, thresholds, source.Limits{Bytes: 64 << 20, Steps: 10})
	encoding := aggregate.Encoding(csig.Layout{Format: csig.Compact, Profile: csig.IETF01}.Index())
	for i := range groups {
		b := &aggregate.Block{
			Resolution: int64(time.Second), WindowStart: int64(i) * int64(time.Second),
			Signal: []uint8{uint8(csig.MinABWRatio)}, Kind: []uint8{uint8(decode.Tag)}, Encoding: []uint8{uint8(encoding)},
			SrcGroup: []uint64{uint64(i)}, DstGroup: []uint64{uint64((i + 1) % groups)}, Location: []uint64{uint64(i%3 + 1)},
			Observations: []uint64{40}, Samples: []uint64{40}, Unjudged: []uint64{0}, Bytes: []uint64{1}, Sum: []uint64{uint64(20 * (i + 1))}, Min: []uint64{1}, Max: []uint64{9},
			Untouched: []uint64{1}, Trimmed: []uint64{0}, Heavy: []uint64{uint64(i % 5)}, HeavySum: []uint64{uint64(i % 5)}, Evidence: []uint8{uint8(i % 8)},
			DistCode: []uint16{1, 30}, DistCount: []uint64{10, 30}, DistEnd: []uint32{2},
		}
		if heavy := b.Heavy[0]; heavy > 1 {
			b.Flows = []aggregate.FlowRow{{
				Flow:   flow.Flow{Src: [16]byte{10: 0xff, 11: 0xff, 12: 10, 15: byte(i)}, Dst: [16]byte{0: 0x20, 1: 1}, SrcPort: 1, DstPort: 2, Proto: 6},
				Signal: b.Signal[0], Kind: b.Kind[0], SrcGroup: b.SrcGroup[0], DstGroup: b.DstGroup[0],
				Observations: heavy - 1, Bytes: 1, Measured: heavy - 1, Sum: 2e4 * (heavy - 1), Heavy: heavy - 1, HeavySum: 1,
				Location: b.Location[0], LocationHeavy: heavy - 1,
			}}
		}
		if err := memory.WriteBlock(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	signals, err := report.Signals(t.Context(), memory, named{}, domain(t))
	if err != nil {
		t.Fatal(err)
	}
	return memory, signals
}

// sample returns a report of sampleData.
func sample(t testing.TB, groups int) *report.Report {
	t.Helper()
	memory, signals := sampleData(t, groups, aggregate.DefaultThresholds())
	r := &report.Report{
		Title: "<b>", Files: []string{"a|b<i>.pcap"}, Signals: signals, OnsetRatio: 0.05, ClearRatio: 0.02,
		Findings: report.Findings([]finding.Finding{{
			Kind: finding.ForgedValue, Subject: "10.0.0.1", Count: 3, Of: 9, From: 1, To: 2, Evidence: "<img src=x>",
			Packets: []finding.Packet{{File: "a", Number: 1}, {File: "a", Number: 2}, {File: "b", Number: 7}},
		}, {Kind: finding.TapLoss, Subject: "tap2", Count: 3, Of: 9, Evidence: "lost"}}),
		Unknown: []string{"<u>"},
	}
	if err := r.Coverage.Cover(t.Context(), memory, named{}, []report.CellPackets{{Src: 1, Dst: 2, Tagged: 3, Untagged: 1}, {Src: 9999, Dst: 1, Incapable: 4}, {Src: 9998, Dst: 1, Untagged: 5}}); err != nil {
		t.Fatal(err)
	}
	second := func(n int64) time.Time { return time.Unix(n, 0).UTC() }
	r.Coverage.SetTaps([]report.Tap{
		{Name: "tap10", Place: "receiver", Weight: 1, From: second(1), To: second(100), Packets: 5, Tags: 5, Observations: 5, Stored: 5},
		{Name: "tap2<i>", Place: "receiver", Weight: 100, From: second(1), To: second(50), Packets: 5, Tags: 500, Observations: 500, Stored: 400, Rejected: map[string]uint64{"<u>": 100}, Frames: map[string]uint64{"ok": 5, "cut-ip": 1}},
		{Name: "tap3", Place: "receiver", Weight: 1, From: second(1), To: second(100), Packets: 5},
	}, []string{"tap10", "dead<b>"})
	var err error
	if r.Verdict, err = report.Judge(t.Context(), memory, &report.VerdictInput{Names: named{}, Thresholds: aggregate.DefaultThresholds()}, &r.Coverage); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSignals(t *testing.T) {
	t.Parallel()
	s := sample(t, 70).Signals[0]
	if s.Name != "min_abw_ratio" || s.Cells != 70 || s.Congested != 42 || len(s.Matrix.Groups) != 64 || s.Matrix.LeftOut != 6 || len(s.Worst) != 20 {
		t.Errorf("%s: %d cells, %d congested, %d groups and %d left out, %d worst", s.Name, s.Cells, s.Congested, len(s.Matrix.Groups), s.Matrix.LeftOut, len(s.Worst))
	}
	if !slices.IsSortedFunc(s.Matrix.Groups, fabric.CompareNames) || !slices.IsSortedFunc(s.Worst, func(a, b report.WorstCell) int { return int(b.Heavy) - int(a.Heavy) }) {
		t.Errorf("out of order: %v", s.Matrix.Groups)
	}
	for k, heavy := range s.Heat.Heavy {
		var sum float64
		for i := range s.Heat.Locations {
			sum += s.Heat.Share[i][k]
		}
		if heavy > 0 && (sum < 0.999 || sum > 1.001) {
			t.Errorf("shares of step %d add up to %g", k, sum)
		}
	}
	if len(s.Heat.Starts) > 10 || len(s.Heat.Starts) != len(s.Heat.Heavy) {
		t.Errorf("%d steps of %s", len(s.Heat.Starts), s.Heat.Step)
	}
}

// Names come from captures and files, so they must be shown but never interpreted.
func TestNamesAreInert(t *testing.T) {
	t.Parallel()
	r := sample(t, 5)
	r.Title = `up\|1 \*2* &lt;`
	var html, markdown bytes.Buffer
	if err := r.WriteHTML(&html); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteMarkdown(&markdown); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"<script", "<img", "<b>", "<i>", "<u>", "leaf|1</svg>"} {
		if strings.Contains(html.String(), bad) {
			t.Errorf("HTML holds %q", bad)
		}
	}
	for _, outside := range []string{"http://", "https://", "src=", "url("} {
		if strings.Contains(strings.ReplaceAll(html.String(), "&lt;img src=x&gt;", ""), outside) {
			t.Errorf("HTML holds %q", outside)
		}
	}
	for _, bad := range []string{"<script", "<img", "<b>", "<i>", "<u>", "leaf|1"} {
		if strings.Contains(markdown.String(), bad) {
			t.Errorf("Markdown holds %q", bad)
		}
	}
	if want := `# up\\\|1 \\\*2\* \&lt;`; !strings.HasPrefix(markdown.String(), want+"\n") {
		t.Errorf("Markdown begins with %.40q, want %q", markdown.String(), want)
	}
	for _, want := range []string{"packets of a: 1, 2", "packets of b: 7", "forged-value"} {
		if !strings.Contains(html.String(), want) {
			t.Errorf("HTML lacks %q", want)
		}
	}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back report.Report
	if err := json.Unmarshal(b, &back); err != nil || len(back.Signals) != 1 || back.Signals[0].Matrix.Cells[0][1] == nil {
		t.Errorf("JSON does not come back: %v", err)
	}
}

// TestThresholds checks that a report judges cells by the thresholds that it names.
func TestThresholds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		onset     float64
		congested int
	}{{0.01, 4}, {0.05, 3}, {0.075, 2}, {0.5, 0}} {
		_, list := sampleData(t, 5, aggregate.Thresholds{Onset: tt.onset, Clear: 0.01}) // 0, 1, 2, 3 and 4 heavy of 40 each
		if list[0].Congested != tt.congested {
			t.Errorf("onset %g: %d cells were congested, want %d", tt.onset, list[0].Congested, tt.congested)
		}
	}
	r := report.Report{OnsetRatio: 0.125, ClearRatio: 0.0002}
	if rule := r.Rule(); !strings.Contains(rule, "at least 12.5 % of") || !strings.Contains(rule, "until one below 0.02 %. ") {
		t.Error(rule)
	}
}

func TestEmpty(t *testing.T) {
	t.Parallel()
	memory := source.NewMemory(source.Resolutions{Fine: time.Second, Window: time.Second, Total: time.Second}, aggregate.DefaultThresholds(), source.Limits{Bytes: 1 << 20, Steps: 10})
	signals, err := report.Signals(t.Context(), memory, named{}, domain(t))
	if err != nil {
		t.Fatal(err)
	}
	r := &report.Report{Signals: signals, Findings: report.Findings(nil)}
	if err := r.Coverage.Cover(t.Context(), memory, named{}, nil); err != nil {
		t.Fatal(err)
	}
	r.Coverage.SetTaps(nil, nil)
	var b bytes.Buffer
	if err := r.WriteHTML(&b); err != nil || !strings.Contains(b.String(), "None.") {
		t.Errorf("%v: %s", err, b.String())
	}
	if err := r.WriteMarkdown(&b); err != nil {
		t.Error(err)
	}
	r.Coverage.SetTaps([]report.Tap{{Name: "mirror", Observations: 9, Rejected: map[string]uint64{"orphan": 7, "place": 2}}}, nil)
	v, err := report.Judge(t.Context(), memory, &report.VerdictInput{Names: named{}, Thresholds: aggregate.DefaultThresholds()}, &r.Coverage)
	if want := "Observations were made, but none enters a heatmap: 7 orphan, 2 place."; err != nil || v.Text != want {
		t.Errorf("%v: %+v", err, v)
	}
}

// TestVerdict checks that a report starts with the verdict and that its taps are the captures'
// taps.
func TestVerdict(t *testing.T) {
	t.Parallel()
	r := sample(t, 5)
	v := r.Verdict
	if v.Kind != "congested" || len(v.Statements) != 3 || v.Statements[0].Heavy < v.Statements[1].Heavy || v.Statements[0].Worst[0].Signal != "min_abw_ratio" || r.Lead() != "min_abw_ratio" {
		t.Errorf("%+v, lead %s", v, r.Lead())
	}
	if len(v.Notes) != 1 || !strings.HasPrefix(v.Notes[0], "3 of 4 taps are silent: dead<b>, tap2<i> (silent for the last 50s), tap3 (no tags and no reflections);") {
		t.Errorf("%q", v.Notes)
	}
	var b bytes.Buffer
	if err := r.WriteMarkdown(&b); err != nil {
		t.Fatal(err)
	}
	verdict, faults := strings.Index(b.String(), "**"+v.Text), strings.Index(b.String(), "Protocol faults: 1 error")
	if verdict < 0 || faults < verdict {
		t.Errorf("the verdict is at %d, protocol faults at %d:\n%.1000s", verdict, faults, &b)
	}
}

// TestRampIsThePages compares the ramps with the page's.
func TestRampIsThePages(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile("../page/static/color.js")
	if err != nil {
		t.Fatal(err)
	}
	for name, ramp := range report.Ramps {
		var want []string
		for _, s := range ramp {
			want = append(want, fmt.Sprintf("%v", s))
		}
		line := regexp.MustCompile(`\b` + name + `: \[(\[[\d., ]+\](?:, \[[\d., ]+\])+)\]`).FindStringSubmatch(string(script))
		if line == nil {
			t.Fatalf("color.js has no stops of %s", name)
		}
		got := regexp.MustCompile(`\[([\d.]+), ([\d.]+), ([\d.]+)\]`).FindAllStringSubmatch(line[1], -1)
		for i, numbers := range got {
			var have [3]float64
			for k := range have {
				have[k], _ = strconv.ParseFloat(numbers[k+1], 64)
			}
			if text := fmt.Sprintf("{%v %v %v}", have[0], have[1], have[2]); len(got) != len(want) || text != want[i] {
				t.Errorf("%s: stop %d of the page is %s, of reports %v", name, i, text, want)
			}
		}
	}
}

// TestSeverity checks that a mean has the same position on the ramp as on the page.
func TestSeverity(t *testing.T) {
	t.Parallel()
	cell := func(stored uint64) aggregate.CellStats {
		return aggregate.CellStats{Measured: 1, Sum: stored, Min: stored, Max: stored}
	}
	for _, tt := range []struct {
		signal   csig.Signal
		means    []uint64
		capacity float64
		at, want float64 // in the signal's unit
	}{
		{csig.MinABWRatio, []uint64{900_000}, 0, 0.25, 0.75},
		{csig.MinABW, []uint64{1_000_000}, 4e9, 1e9, 0.75},
		{csig.MinABW, []uint64{1_000_000}, 0, 1e9, 0},
		{csig.MaxDelay, []uint64{1000, 100_000}, 0, 10_000, 0.5}, // logarithmic
		{csig.MaxDelay, []uint64{1000, 4000}, 0, 1000, 0.25},
		{csig.MaxDelay, nil, 0, 1000, 1},
	} {
		var cells []aggregate.CellStats
		for _, m := range tt.means {
			c := cell(m)
			c.Signal = tt.signal
			cells = append(cells, c)
		}
		if got := report.Severity(tt.signal, cells, tt.capacity, tt.at); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%s of %v: %g is at %g, want %g", tt.signal, tt.means, tt.at, got, tt.want)
		}
	}
}

// TestRest checks the words about places that a verdict leaves out: those beyond the limit, and those
// that were never congested.
func TestRest(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		statements, calm int
		want             string
	}{
		{10, 0, ""},
		{11, 0, "1 more place had fewer heavy observations."},
		{3, 2, "2 more places had heavy observations, but too few to count as congested; cells behind them may still have been congested."},
		{12, 1, "2 more places had fewer heavy observations. 1 more place had heavy observations, but too few to count as congested; cells behind them may still have been congested."},
	} {
		v := &query.FabricVerdict{Statements: make([]query.Statement, test.statements)}
		v.Rest.Places = test.calm
		if got := report.VerdictOf(v); got.Rest() != test.want || got.LeftOut != max(test.statements-10, 0)+test.calm {
			t.Errorf("%d statements and %d calm places: %d left out, %q", test.statements, test.calm, got.LeftOut, got.Rest())
		}
	}
}

// TestTimesFromZero: 1970 is a time like any other, and unknown times are null.
func TestTimesFromZero(t *testing.T) {
	t.Parallel()
	v := report.VerdictOf(&query.FabricVerdict{Statements: []query.Statement{{Last: int64(time.Second)}, {}}})
	if s := v.Statements[0]; s.First == nil || s.Last == nil || s.First.UnixNano() != 0 || s.Last.UnixNano() != int64(time.Second) {
		t.Errorf("from %v to %v, want the first second of 1970", s.First, s.Last)
	}
	if s := v.Statements[1]; s.First != nil || s.Last != nil {
		t.Errorf("from %v to %v, want null", s.First, s.Last)
	}
	list := report.Findings([]finding.Finding{{To: int64(time.Second)}, {}})
	if f := list[0]; f.From != "1970-01-01T00:00:00Z" || f.To != "1970-01-01T00:00:01Z" {
		t.Errorf("a finding from %q to %q, want the first second of 1970", f.From, f.To)
	}
	if f := list[1]; f.From != "" || f.To != "" {
		t.Errorf("a finding from %q to %q, want none", f.From, f.To)
	}
}
