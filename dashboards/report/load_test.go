package report_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/dashboards/report"
	"github.com/csigscope/csigscope/dashboards/report/source"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// TestLoad checks that bursts and a steady load with the same mean get different descriptions.
func TestLoad(t *testing.T) {
	t.Parallel()
	s := sample(t, 70).Signals[0]
	l := s.Worst[0].Load
	if l == nil || l.Bursty != 1 || l.Steady+l.Unclear != 0 || l.InBursts == nil || math.Abs(*l.InBursts-0.25) > 1e-9 || *l.Within > 0.1 || *l.Between < 0.9 {
		t.Fatalf("load is %+v", l)
	}
	for text, load := range map[string]report.Load{
		"load in bursts in 1 of 1 windows":                       *l,
		"steady load in 2 of 3 windows of 1 s":                   {Window: time.Second, Steady: 2, Unclear: 1},
		"load neither steady nor in clear bursts":                {Window: time.Second, Unclear: 4},
		"25.0 % of the observations had a value near 4.7 %, the": *l,
	} {
		if !strings.Contains(load.String(), text) {
			t.Errorf("%q lacks %q", load.String(), text)
		}
	}
}

// sized gives all ports 10 Gbit/s.
type sized struct{ named }

func (n sized) Location(id aggregate.LocationID) (fabric.Location, bool) {
	l, ok := n.named.Location(id)
	l.Capacity = 10_000_000
	return l, ok
}

// loadOf returns the load of a cell in one window; values maps each value to its count.
func loadOf(t *testing.T, signal csig.Signal, names report.Names, values map[uint64]uint64) *report.Load {
	t.Helper()
	layout := csig.Layout{Format: csig.Wide, Profile: csig.UEC050}
	table := domain(t).Table(layout, signal.Type())
	b := &aggregate.Block{
		Resolution: int64(time.Second), Signal: []uint8{uint8(signal)}, Kind: []uint8{uint8(decode.Tag)}, Encoding: []uint8{uint8(layout.Index())},
		SrcGroup: []uint64{1}, DstGroup: []uint64{2}, Location: []uint64{3}, Observations: []uint64{0}, Samples: []uint64{0}, Unjudged: []uint64{0}, Bytes: []uint64{1}, Sum: []uint64{1}, Min: []uint64{1}, Max: []uint64{9},
		Untouched: []uint64{0}, Trimmed: []uint64{0}, Heavy: []uint64{1}, HeavySum: []uint64{1}, Evidence: []uint8{0},
	}
	for value, n := range values {
		code := uint32(0)
		for low, _, _ := table.Range(code); low < value; low, _, _ = table.Range(code) {
			code++
		}
		b.DistCode, b.DistCount = append(b.DistCode, csig.DistIndex(code)), append(b.DistCount, n)
		b.Observations[0] += n
	}
	b.DistEnd = []uint32{uint32(len(b.DistCode))}
	memory := source.NewMemory(source.Resolutions{Fine: time.Second, Window: time.Second, Total: time.Second}, aggregate.DefaultThresholds(), source.Limits{Bytes: 64 << 20, Steps: 10})
	if err := memory.WriteBlock(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	signals, err := report.Signals(t.Context(), memory, names, domain(t))
	if err != nil {
		t.Fatal(err)
	}
	return signals[0].Worst[0].Load
}

// TestLoadOfDelays checks that bursts are found in delays and bandwidths too, which are compared
// with the threshold; for bandwidths it depends on the port.
func TestLoadOfDelays(t *testing.T) {
	t.Parallel()
	spread := map[uint64]uint64{}
	for i := range uint64(40) {
		spread[100_000+i*20_000] = 10
	}
	for name, test := range map[string]struct {
		signal csig.Signal
		names  report.Names
		values map[uint64]uint64
		says   string
	}{
		"delays in bursts":        {csig.MaxDelay, named{}, map[uint64]uint64{1500: 250, 2500: 50, 80_000: 60, 120_000: 40}, "in bursts in 1 of 1 windows of 1 s (there 25.0 % of the observations had a value near 96.36 us, the rest near 1.771 us)"},
		"steady delays":           {csig.MaxDelay, named{}, map[uint64]uint64{50_000: 250, 55_000: 50}, "steady load in 1 of 1 windows"},
		"long delays of any kind": {csig.MaxDelay, named{}, spread, "neither steady nor in clear bursts"},
		"bandwidth in bursts":     {csig.MinABW, sized{}, map[uint64]uint64{100_000: 50, 9_000_000: 50}, "in bursts in 1 of 1 windows of 1 s (there 50.0 % of the observations had a value near 110.6 Mbit/s, the rest near 8.978 Gbit/s)"},
		"steady bandwidth":        {csig.MinABW, sized{}, map[uint64]uint64{5_000_000: 50, 5_500_000: 50}, "steady load in 1 of 1 windows"},
		"of unknown ports":        {csig.MinABW, named{}, map[uint64]uint64{100_000: 50, 9_000_000: 50}, ""},
	} {
		l := loadOf(t, test.signal, test.names, test.values)
		if l == nil && test.says != "" || l != nil && (test.says == "" || !strings.Contains(l.String(), test.says)) {
			t.Errorf("%s: %v, want %q", name, l, test.says)
		}
	}
}
