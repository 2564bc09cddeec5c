package report_test

import (
	"bytes"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/dashboards/report"
	"github.com/csigscope/csigscope/dashboards/report/source"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// TestFlows checks that flows and others together have the heavy observations of all cells.
func TestFlows(t *testing.T) {
	t.Parallel()
	s := sample(t, 70).Signals[0]
	if len(s.Flows.Top) != 20 || s.Flows.Top[0].Heavy != 3 || s.Flows.Top[0].Src != "10.0.0.4:1" || s.Flows.Top[0].HeavyMean != "2.0 %" {
		t.Errorf("%d flows, first %+v", len(s.Flows.Top), s.Flows.Top[0])
	}
	sum, share := s.Flows.Others.Heavy, s.Flows.Others.HeavyShare
	for _, f := range s.Flows.Top {
		sum, share = sum+f.Heavy, share+f.HeavyShare
	}
	if sum != 14*(1+2+3+4) || math.Abs(share-1) > 1e-9 {
		t.Errorf("flows and others are %d heavy observations, %g of all", sum, share)
	}
}

// TestDistributions checks that the bars cover all measured values, on both sides of the threshold.
func TestDistributions(t *testing.T) {
	t.Parallel()
	s := sample(t, 70).Signals[0]
	if len(s.Distributions) != 1 || s.Distributions[0].Layout != "compact/ietf01" || s.Distributions[0].Measured != 70*40 {
		t.Fatalf("distributions are %+v", s.Distributions)
	}
	d := s.Distributions[0]
	if d.Threshold == nil || *d.Threshold != 0.1875 || len(d.Bins) != 30 {
		t.Fatalf("%d bins, threshold %v", len(d.Bins), d.Threshold)
	}
	for i, b := range d.Bins {
		if want := map[int]uint64{0: 700, 29: 2100}[i]; b.N != want || b.Heavy != (b.Low < *d.Threshold) {
			t.Errorf("bin %d is %+v", i, b)
		}
	}
	for _, c := range s.Worst {
		if len(c.Distributions) != 1 || len(c.Distributions[0].Bins) != len(d.Bins) || c.Distributions[0].Measured != 40 {
			t.Errorf("%s to %s: %+v", c.Src, c.Dst, c.Distributions)
		}
	}
}

// TestWideDistributions checks that wide tags have as few bins, and that they cover all codes.
func TestWideDistributions(t *testing.T) {
	t.Parallel()
	for _, signal := range []csig.Signal{csig.MinABW, csig.MinABWRatio, csig.MaxDelay, csig.MaxNQD} {
		layout := csig.Layout{Format: csig.Wide, Profile: csig.UEC050}
		table := domain(t).Table(layout, signal.Type())
		memory := source.NewMemory(source.Resolutions{Fine: time.Second, Window: time.Second, Total: time.Second}, aggregate.DefaultThresholds(), source.Limits{Bytes: 64 << 20, Steps: 10})
		b := &aggregate.Block{
			Resolution: int64(time.Second), Signal: []uint8{uint8(signal)}, Kind: []uint8{uint8(decode.Tag)}, Encoding: []uint8{uint8(layout.Index())},
			SrcGroup: []uint64{1}, DstGroup: []uint64{2}, Location: []uint64{3}, Observations: []uint64{0}, Samples: []uint64{0}, Unjudged: []uint64{0}, Bytes: []uint64{1}, Sum: []uint64{1}, Min: []uint64{1}, Max: []uint64{9},
			Untouched: []uint64{0}, Trimmed: []uint64{0}, Heavy: []uint64{1}, HeavySum: []uint64{1}, Evidence: []uint8{0},
		}
		for i := range uint16(csig.DistIndexes) {
			b.DistCode, b.DistCount = append(b.DistCode, i), append(b.DistCount, uint64(i)+1)
			b.Observations[0] += uint64(i) + 1
		}
		b.DistEnd = []uint32{uint32(len(b.DistCode))}
		if err := memory.WriteBlock(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		signals, err := report.Signals(t.Context(), memory, named{}, domain(t))
		if err != nil {
			t.Fatal(err)
		}
		d := signals[0].Distributions[0]
		if d.Measured != b.Observations[0] || len(d.Bins) > 34 || len(d.Bins) < 25 {
			t.Errorf("%s: %d observations of %d in %d bins", signal, d.Measured, b.Observations[0], len(d.Bins))
		}
		lo, hi, known := table.HeavyCodes(0)
		if known != (d.Threshold != nil) {
			t.Errorf("%s: threshold %v", signal, d.Threshold)
		}
		var heavy, want uint64
		for i := range d.Bins {
			if d.Bins[i].Heavy {
				heavy += d.Bins[i].N
			}
			if i > 0 && (d.Bins[i-1].High == nil || *d.Bins[i-1].High != d.Bins[i].Low) {
				t.Errorf("%s: bin %d begins at %g, the one before ends at %v", signal, i, d.Bins[i].Low, d.Bins[i-1].High)
			}
		}
		for i := range b.DistCode {
			if first, _ := csig.DistCodes(b.DistCode[i]); known && (csig.DistIndex(lo) <= b.DistCode[i] && b.DistCode[i] <= csig.DistIndex(hi)) && first < table.Codes() {
				want += b.DistCount[i]
			}
		}
		if heavy != want {
			t.Errorf("%s: %d observations are heavy, want %d", signal, heavy, want)
		}
		var page bytes.Buffer
		if err := (&report.Report{Signals: signals}).WriteHTML(&page); err != nil {
			t.Fatal(err)
		}
		for _, bar := range regexp.MustCompile(`<title>(.*?) to below (.*?):`).FindAllStringSubmatch(page.String(), -1) {
			if bar[1] == bar[2] {
				t.Errorf("%s: a bar is of %s to below %s", signal, bar[1], bar[2])
			}
		}
	}
}

// TestPath checks that the hop with the mode's port is marked.
func TestPath(t *testing.T) {
	t.Parallel()
	for _, c := range sample(t, 70).Signals[0].Worst {
		if len(c.Path) != 2 || c.Path[0].Bottleneck || c.Path[1].Bottleneck != (c.Mode == "leaf|1</svg>") {
			t.Errorf("%s to %s with the mode %s: %+v", c.Src, c.Dst, c.Mode, c.Path)
		}
	}
}

// TestCoverage checks that gaps are listed, worst first, and that silent taps are named. Some
// untouched tags are no gap.
func TestCoverage(t *testing.T) {
	t.Parallel()
	c := sample(t, 5).Coverage
	if len(c.Cells) != 2 || c.Cells[0].Incapable != 4 || c.Cells[1].Untagged != 1 || c.Cells[1].Untouched != 1 {
		t.Errorf("cells are %+v", c.Cells)
	}
	var notes []string
	for _, tap := range c.Taps {
		notes = append(notes, tap.Name+"="+tap.Note)
	}
	if got := strings.Join(notes, " "); got != "tap2<i>=silent for the last 50s tap3=no tags and no reflections tap10=" {
		t.Errorf("taps are %s", got)
	}
	if len(c.Silent) != 1 || c.Silent[0] != "dead<b>" || c.Taps[0].Unread() != "1 cut-ip" {
		t.Errorf("silent are %v, not read %s", c.Silent, c.Taps[0].Unread())
	}
}
