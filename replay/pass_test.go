package replay_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/conform"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// TestPasses: conform, trace and report read on behind damage; they count what a replay
// counts, say so, and lose no result.
func TestPasses(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*scenario.Scenario){"classic": classic, "pcapng": singleFile} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rec := record(t, func(s *scenario.Scenario) { change(s); s.Duration = 500 * time.Millisecond })
			data, err := os.ReadFile(rec.files[0])
			if err != nil {
				t.Fatal(err)
			}
			clear(data[len(data)/2 : len(data)/2+30_000])
			damaged := filepath.Join(t.TempDir(), "damaged.pcap")
			if err := os.WriteFile(damaged, data, 0o600); err != nil {
				t.Fatal(err)
			}
			whole := rec.files[0]
			rec.files = []string{damaged}
			want := replayed(t, rec.config(new(blocks)))
			cfg := decode.Config{Domain: rec.domain}

			c, err := replay.Conform(t.Context(), replay.ConformConfig{
				Judge: conform.Config{Decode: cfg, MaxPackets: 10_000}, Before: []string{whole}, After: []replay.PortCapture{{Path: damaged}},
			})
			saysDamage(t, err)
			if c == nil || c.Damaged != want.Damaged || c.Counts.After+c.Counts.Unknown < want.Packets || c.Counts.Matched+c.Counts.Ambiguous == 0 {
				t.Errorf("conform: %+v, want %+v", c, want.Damaged)
			}
			traced, err := replay.Trace(t.Context(), replay.TraceConfig{Files: []string{whole, damaged}, Decode: cfg})
			saysDamage(t, err)
			if traced == nil || traced.Damaged != want.Damaged || len(traced.Hops) != 1 {
				t.Errorf("trace: %+v, want %+v", traced, want.Damaged)
			}
			e, err := replay.Examine(t.Context(), replay.ExamineConfig{
				Files: rec.files, Decode: cfg, Finding: finding.Config{Domain: rec.domain, Locator: rec.fabric},
				Tap: func(string) window.Tap { return window.TapAt("", 1) },
			})
			saysDamage(t, err)
			if e == nil || e.Packets != want.Packets || e.Observations == 0 {
				t.Errorf("examine: %+v, want %d packets", e, want.Packets)
			}
		})
	}
}

// saysDamage requires exactly one error that names the damage or the place where the capture is
// cut.
func saysDamage(t *testing.T, err error) {
	t.Helper()
	var damage *capture.DamageError
	var cut *capture.CutError
	if !errors.As(err, &damage) && !errors.As(err, &cut) {
		t.Errorf("error %v", err)
	}
	if all, ok := err.(interface{ Unwrap() []error }); !ok || len(all.Unwrap()) != 1 {
		t.Errorf("told otherwise than once: %v", err)
	}
}

// TestNoteMissing: a hint says what is missing and why, and none is written where nothing is.
func TestNoteMissing(t *testing.T) {
	t.Parallel()
	frames := func(ok, no, cut, hidden uint64) *[decode.NumReasons]uint64 {
		return &[decode.NumReasons]uint64{decode.OK: ok, decode.NoCSIG: no, decode.CutIP: cut, decode.Hidden: hidden}
	}
	domain, err := csig.DefaultSpec().Compile()
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		packets           uint64
		frames            *[decode.NumReasons]uint64
		tags, reflections uint64
		want              string
	}{
		{100, frames(100, 0, 0, 0), 100, 0, ""},
		{100, frames(0, 0, 0, 0), 0, 0, ""}, // other link types, of which an error tells
		{1000, frames(995, 0, 5, 0), 995, 0, ""},
		{0, frames(0, 0, 0, 0), 0, 0, "no packets"},
		{100, frames(50, 0, 50, 0), 100, 0, "within the headers of 50 of 100 packets"},
		{100, frames(1, 0, 0, 99), 1, 0, "99 of 100 packets are encrypted by MACsec"},
		{100, frames(10, 90, 0, 0), 0, 10, "have reflections, but none has a CSIG tag.\nTags are known by their TPID"},
		{100, frames(0, 100, 0, 0), 0, 0, "none of the packets has a CSIG tag or reflection.\nTags are known by their TPID, here 0x9900, 0x88b5, 0x88b6: name others in\n"},
	} {
		var b strings.Builder
		replay.NoteMissing(&b, tc.packets, tc.frames, tc.tags, tc.reflections, domain)
		if got := b.String(); !strings.Contains(got, tc.want) || tc.want == "" && got != "" {
			t.Errorf("%v: %q, want %q", tc, got, tc.want)
		}
	}
}
