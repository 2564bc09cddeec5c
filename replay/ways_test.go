package replay_test

import (
	"bytes"
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/replay"
	"github.com/csigscope/csigscope/replay/emitter/emittertest"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// TestWays checks that packets are counted by the groups of their endpoints, with and without a
// tag: behind a leaf that strips tags none has one.
func TestWays(t *testing.T) {
	t.Parallel()
	s := emittertest.Named(t, "rogue")
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
	reflecting := emittertest.Named(t, "pony")
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

// TestExaminedLinks checks that cooked captures have the findings and the ways of the same frames in
// Ethernet, those of untagged packets included.
func TestExaminedLinks(t *testing.T) {
	t.Parallel()
	s := emittertest.Named(t, "rogue")
	s.Duration, s.Faults, s.CaptureUntagged, s.TagEvery = 400*time.Millisecond, nil, true, 1
	s.Devices = []scenario.Behavior{{Match: "spine1", Kind: "strip"}}
	var cfg replay.ExamineConfig
	want := examine(t, s, func(c *replay.ExamineConfig) {
		c.Group = c.Finding.Locator.(*fabric.Fabric).Group
		cfg = *c
	})
	if len(want.Findings) == 0 || want.Findings[0].Kind != finding.StrippedFlows {
		t.Errorf("no tags are stripped: %+v", want.Findings)
	}
	sorted := func(list []replay.Way) []replay.Way {
		slices.SortFunc(list, func(a, b replay.Way) int { return cmp.Or(cmp.Compare(a.Src, b.Src), cmp.Compare(a.Dst, b.Dst)) })
		return list
	}
	for _, link := range []capture.LinkType{capture.LinkSLL, capture.LinkSLL2} {
		cooked, dir := cfg, t.TempDir()
		cooked.Files = nil
		for _, path := range cfg.Files {
			cooked.Files = append(cooked.Files, cook(t, dir, path, link))
		}
		got, err := replay.Examine(t.Context(), cooked)
		if err != nil {
			t.Fatal(err)
		}
		for i := range got.Findings {
			for k := range got.Findings[i].Packets {
				got.Findings[i].Packets[k].File = filepath.Join(filepath.Dir(cfg.Files[0]), filepath.Base(got.Findings[i].Packets[k].File))
			}
		}
		if diff := gocmp.Diff(want.Findings, got.Findings); diff != "" {
			t.Errorf("%s: findings (-Ethernet +link)\n%s", link, diff)
		}
		if diff := gocmp.Diff(sorted(want.Ways), sorted(got.Ways)); diff != "" {
			t.Errorf("%s: ways (-Ethernet +link)\n%s", link, diff)
		}
	}
}

// cook writes a capture of Ethernet to a folder with another link type, and returns its path.
func cook(t *testing.T, dir, path string, link capture.LinkType) string {
	t.Helper()
	r, err := capture.Open(path, capture.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var out bytes.Buffer
	w := capture.NewWriter(&out, capture.Interface{Name: strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)), Link: link})
	var batch capture.Batch
	for r.ReadBatch(&batch) == nil {
		for _, f := range batch.Frames[:batch.N] {
			etherType, rest := f.Data[12:14], f.Data[14:]
			if f.Data = slices.Concat(make([]byte, 14), etherType, rest); link == capture.LinkSLL2 {
				f.Data = slices.Concat(etherType, make([]byte, 18), rest)
			}
			if err := w.Write(&f, ""); err != nil {
				t.Fatal(err)
			}
		}
	}
	cooked := filepath.Join(dir, filepath.Base(path))
	if err := errors.Join(w.Flush(), os.WriteFile(cooked, out.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	return cooked
}
