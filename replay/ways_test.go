package replay_test

import (
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/replay"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// TestWays checks that packets are counted by the groups of their endpoints, with and without a
// tag: behind a leaf that strips tags none has one.
func TestWays(t *testing.T) {
	t.Parallel()
	s, err := scenario.Named("rogue")
	if err != nil {
		t.Fatal(err)
	}
	s.Duration, s.Faults, s.CaptureUntagged, s.TagEvery = 400*time.Millisecond, nil, true, 1
	s.Devices = []scenario.Behavior{{Match: "leaf2", Kind: "strip"}}
	e := examine(t, s, func(c *replay.ExamineConfig) { c.Group = c.Finding.Locator.(*fabric.Fabric).Group })
	stripped, whole := uint64(0), uint64(0)
	for _, w := range e.Ways {
		switch leaf := fabric.GroupIDOf("rack2"); {
		case w.Dst == leaf || w.Src == leaf:
			stripped += w.Untagged
			if w.Tagged > 0 {
				t.Errorf("%d packets of rack2 have a tag", w.Tagged)
			}
		default:
			whole += w.Tagged
			if w.Untagged > 0 {
				t.Errorf("%d packets between other racks have no tag", w.Untagged)
			}
		}
	}
	if stripped < 1000 || whole < 1000 {
		t.Errorf("%d packets without a tag, %d with one", stripped, whole)
	}
	reflecting, err := scenario.Named("pony")
	if err != nil {
		t.Fatal(err)
	}
	reflecting.Duration = 200 * time.Millisecond
	e = examine(t, reflecting, func(c *replay.ExamineConfig) { c.Group = c.Finding.Locator.(*fabric.Fabric).Group })
	sum := uint64(0)
	for _, w := range e.Ways {
		sum += w.Incapable
	}
	if want := e.Decoded.EmptyReflections + e.Decoded.InvalidReflections; sum == 0 || sum > want || sum < want*9/10 {
		t.Errorf("%d ways are not capable, the decoder counted %d", sum, want)
	}
}
