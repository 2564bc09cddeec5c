package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// named calls everything by its number, and by something that is no name.
type named struct{}

func (named) GroupName(id aggregate.GroupID) string {
	return fmt.Sprintf("rack%d<script>alert(1)</script>", id)
}

func (named) Location(id aggregate.LocationID) (fabric.Location, bool) {
	return fabric.Location{ID: id, Name: fmt.Sprintf("leaf|%d</svg>", id), Kind: fabric.KindPort, Device: "leaf", CandidateCount: 1}, true
}

// sample is a report of so many groups, each congested towards the next one.
func sample(t testing.TB, groups int) *Report {
	t.Helper()
	total, line := aggregate.NewSummary(time.Second, 1<<16), aggregate.NewTimeline(time.Second, 10, 1<<16)
	for i := range groups {
		b := &aggregate.Block{
			Resolution: int64(time.Second), WindowStart: int64(i) * int64(time.Second),
			Signal: []uint8{uint8(csig.MinABW)}, Kind: []uint8{uint8(decode.Tag)}, Encoding: []uint8{0},
			SrcGroup: []uint64{uint64(i)}, DstGroup: []uint64{uint64((i + 1) % groups)}, Location: []uint64{uint64(i%3 + 1)},
			Observations: []uint64{20}, Bytes: []uint64{1}, Sum: []uint64{uint64(20 * (i + 1))}, Min: []uint64{1}, Max: []uint64{9},
			Untouched: []uint64{0}, Trimmed: []uint64{0}, Heavy: []uint64{uint64(i % 5)}, HeavySum: []uint64{uint64(i % 5)},
			DistCode: []uint16{1}, DistCount: []uint64{20}, DistEnd: []uint32{1},
		}
		for _, sink := range []aggregate.Sink{total, line} {
			if err := sink.WriteBlock(t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
	}
	return &Report{
		Title: "<b>", Files: []string{"a|b<i>.pcap"}, Signals: Signals(total, line, named{}),
		Findings: Findings([]finding.Finding{{
			Kind: finding.ForgedValue, Subject: "10.0.0.1", Count: 3, Of: 9, From: 1, To: 2, Evidence: "<img src=x>",
			Packets: []finding.Packet{{File: "a", Number: 1}, {File: "a", Number: 2}, {File: "b", Number: 7}},
		}}),
		Unknown: []string{"<u>"},
	}
}

func TestSignals(t *testing.T) {
	t.Parallel()
	s := sample(t, 70).Signals[0]
	if s.Name != "min_abw" || s.Cells != 70 || s.Congested != 56 || len(s.Matrix.Groups) != maxGroups || s.Matrix.LeftOut != 6 || len(s.Worst) != maxWorst {
		t.Errorf("%s: %d cells, %d congested, %d groups and %d left out, %d worst", s.Name, s.Cells, s.Congested, len(s.Matrix.Groups), s.Matrix.LeftOut, len(s.Worst))
	}
	if !slices.IsSortedFunc(s.Matrix.Groups, natural) || !slices.IsSortedFunc(s.Worst, func(a, b Cell) int { return int(b.Heavy) - int(a.Heavy) }) {
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

// Names come from captures and files: they are shown, and never read.
func TestNamesAreInert(t *testing.T) {
	t.Parallel()
	r := sample(t, 5)
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
	for _, want := range []string{"packets of a: 1, 2", "packets of b: 7", "forged-value"} {
		if !strings.Contains(html.String(), want) {
			t.Errorf("HTML lacks %q", want)
		}
	}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(b, &back); err != nil || len(back.Signals) != 1 || back.Signals[0].Matrix.Cells[0][1] == nil {
		t.Errorf("JSON does not come back: %v", err)
	}
}

func TestEmpty(t *testing.T) {
	t.Parallel()
	r := &Report{Signals: Signals(aggregate.NewSummary(time.Second, 10), aggregate.NewTimeline(time.Second, 10, 10), named{}), Findings: Findings(nil)}
	var b bytes.Buffer
	if err := r.WriteHTML(&b); err != nil || !strings.Contains(b.String(), "None.") {
		t.Errorf("%v: %s", err, b.String())
	}
}

func TestNatural(t *testing.T) {
	t.Parallel()
	want := []string{"", "rack", "rack1", "rack2", "rack2a", "rack10", "rack010b", "rack10c", "spine1:down2", "spine1:down10", "x"}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, natural)
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
