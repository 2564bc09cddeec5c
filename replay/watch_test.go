package replay_test

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/replay"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// tapIdentity identifies a tap's counts in a chunk.
type tapIdentity struct {
	aggregate.Source
	seq uint64
}

// findings holds a replay's findings by identity; a repeated report replaces the earlier one.
type findings struct {
	mu sync.Mutex
	at map[tapIdentity][]finding.Finding
}

func (f *findings) take(_ context.Context, list []replay.TapCounts) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.at == nil {
		f.at = map[tapIdentity][]finding.Finding{}
	}
	for i := range list {
		if len(list[i].Findings) > 0 {
			f.at[tapIdentity{list[i].Source, list[i].Seq}] = list[i].Findings
		}
	}
	return nil
}

// lines returns the findings of all taps together, with their counts and times.
func (f *findings) lines() []string {
	var list []finding.Finding
	for _, one := range f.at {
		list = append(list, one...)
	}
	return linesOf(list, func(*finding.Finding) bool { return true })
}

// linesOf merges the findings that pass the filter by subject.
func linesOf(list []finding.Finding, may func(*finding.Finding) bool) (lines []string) {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b finding.Finding) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Subject, b.Subject))
	})
	for i := 0; i < len(list); {
		one := list[i]
		for i++; i < len(list) && list[i].ID == one.ID; i++ {
			one.Count, one.From, one.To = one.Count+list[i].Count, min(one.From, list[i].From), max(one.To, list[i].To)
		}
		if may(&one) {
			lines = append(lines, fmt.Sprint(one.Kind, " ", one.Subject, " ", one.Count, " ", one.From, " to ", one.To))
		}
	}
	return lines
}

// watched reports whether a finding's kind is visible in single observations at receivers.
func watched(f *finding.Finding) bool {
	return slices.Contains([]finding.Kind{finding.UnauthorisedSender, finding.UnknownLocator, finding.AboveCapacity, finding.ReservedBits, finding.OrphanTag}, f.Kind)
}

// suspects returns a recording with unknown locators, and a configuration that allows the senders
// of one rack only.
func suspects(t *testing.T, change func(*scenario.Scenario), fault scenario.Behavior) (recording, finding.Config) {
	rec := record(t, func(s *scenario.Scenario) {
		change(s)
		s.Duration, s.RepeatAckEvery = 1500*time.Millisecond, 0
		s.Faults = nil
		if fault.Kind != "" {
			s.Faults = []scenario.Behavior{fault}
		}
	})
	return rec, finding.Config{Domain: rec.domain, Locator: rec.fabric}
}

var wrongLM = scenario.Behavior{Match: "spine1:*", Kind: scenario.WrongLM}

// TestWatched checks that a replay has the same findings as an examination of each observation, for
// the kinds visible in single observations, and none without a fault.
func TestWatched(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fault   scenario.Behavior
		senders []netip.Prefix
		want    string
	}{
		"wrong locator": {wrongLM, nil, "unknown-locator"},
		"senders":       {scenario.Behavior{}, []netip.Prefix{netip.MustParsePrefix("10.0.1.0/24"), netip.MustParsePrefix("10.1.0.0/16")}, "unauthorised-sender"},
		"no fault":      {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rec, looked := suspects(t, func(*scenario.Scenario) {}, test.fault)
			looked.Senders = test.senders
			var f findings
			cfg := rec.config(new(blocks))
			cfg.Taps, cfg.Finding = f.take, &looked
			result := replayed(t, cfg)
			e, err := replay.Examine(t.Context(), replay.ExamineConfig{
				Files: rec.files, Decode: decode.Config{Domain: rec.domain}, Finding: looked,
				Tap: func(string) window.Tap { return window.TapAt("", 1) },
			})
			if err != nil {
				t.Fatal(err)
			}
			got := f.lines()
			if n := len(result.Findings); n != len(got) || result.Findings == nil {
				t.Errorf("the result counts %d findings of %d", n, len(got))
			}
			if diff := gocmp.Diff(linesOf(e.Findings, watched), got); diff != "" {
				t.Errorf("examined (-), replayed (+):\n%s", diff)
			}
			if text := strings.Join(got, "\n"); !strings.Contains(text, test.want) || test.want == "" && text != "" {
				t.Errorf("found %q, want %q", text, test.want)
			}
		})
	}
}

// TestWatchedAlways checks that a capture gives the same findings with the same identities, on more
// cores and at a pace.
func TestWatchedAlways(t *testing.T) {
	t.Parallel()
	early := wrongLM // findings of the first chunks only must not be forgotten
	early.End = 500 * time.Millisecond
	rec, looked := suspects(t, classic, early)
	var counted replay.Findings
	run := func(change func(*replay.Config)) map[tapIdentity][]finding.Finding {
		var f findings
		cfg := rec.config(new(blocks))
		cfg.Taps, cfg.Finding, cfg.ChunkBytes = f.take, &looked, 1<<20
		change(&cfg)
		result := replayed(t, cfg)
		if counted == nil {
			counted = result.Findings
		} else if diff := gocmp.Diff(counted, result.Findings); diff != "" {
			t.Errorf("counted before (-), now (+):\n%s", diff)
		}
		return f.at
	}
	want := run(func(*replay.Config) {})
	if len(want) < 2 || len(counted) == 0 {
		t.Fatalf("%d chunks with findings, %d findings", len(want), len(counted))
	}
	if diff := gocmp.Diff(want, run(func(c *replay.Config) { c.Workers = 2 })); diff != "" {
		t.Errorf("on two cores:\n%s", diff)
	}
	if diff := gocmp.Diff(want, run(func(c *replay.Config) { c.Pace = 1e12 })); diff != "" {
		t.Errorf("paced:\n%s", diff)
	}
}
