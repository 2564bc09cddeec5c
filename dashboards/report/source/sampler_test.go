package source_test

import (
	"runtime"
	"strings"
	"testing"
	"time"
	"weak"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/dashboards/report"
	"github.com/csigscope/csigscope/dashboards/report/source"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// sampled writes 300 windows of the given number of cells into a Memory that holds the whole time
// in long steps only.
func sampled(t *testing.T, bytes uint64, cells int) *source.Memory {
	t.Helper()
	m := source.NewMemory(resolutions, aggregate.DefaultThresholds(), source.Limits{Bytes: bytes, Steps: 1024})
	const now = 1_763_000_000_000 // ms
	for ms := range int64(300) {
		for src := range uint64(cells) {
			write(t, m, now+10*ms, src+10, decode.Tag, 1)
		}
	}
	return m
}

// TestSamplerHoldsNoMemory checks that a sampler does not keep the rest of its Memory alive.
func TestSamplerHoldsNoMemory(t *testing.T) {
	t.Parallel()
	memory, samples := func() (weak.Pointer[source.Memory], report.Sampler) {
		m := sampled(t, 1<<24, 1)
		return weak.Make(m), m.Sampler()
	}()
	runtime.GC()
	if memory.Value() != nil {
		t.Error("a Sampler keeps the Memory that it is of")
	}
	cell := aggregate.CellID{Src: 10, Dst: 2, Kind: decode.Tag}
	list, err := samples.Samples(t.Context(), csig.MaxDelay, []aggregate.CellID{cell})
	if err != nil || len(list) != 2 || list[0].Step != time.Millisecond || len(list[0].Series) == 0 || len(list[0].Series[0].Cells[0]) == 0 {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestNoMemoryForStretches checks that stretches without memory are reported, with a hint.
func TestNoMemoryForStretches(t *testing.T) {
	t.Parallel()
	const hint = "there was not enough memory to look at parts of the time in steps of 1ms: raise --memory"
	for name, test := range map[string]struct {
		bytes uint64
		cells int
		want  bool
	}{"enough": {1 << 24, 4, false}, "too little": {1 << 20, 40, true}} {
		m := sampled(t, test.bytes, test.cells)
		missed, err := report.MissedPeriods(t.Context(), m, time.Millisecond)
		if err != nil || missed == "" || strings.Contains(missed, hint) != test.want || (len(m.Unsampled()) > 0) != test.want {
			t.Errorf("%s: %q, %v; no stretches of %s", name, missed, err, m.Unsampled())
		}
	}
}
