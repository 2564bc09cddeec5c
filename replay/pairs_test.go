package replay_test

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/replay"
	"github.com/csigscope/csigscope/replay/emitter/emittertest"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// TestPairs checks that packets are counted by the groups of their endpoints, with and without a
// tag: behind a leaf that strips tags none has one.
func TestPairs(t *testing.T) {
	t.Parallel()
	s := emittertest.Named(t, "rogue")
	s.Duration, s.Faults, s.CaptureUntagged, s.TagEvery = 400*time.Millisecond, nil, true, 1
	s.Devices = []scenario.Behavior{{Match: "leaf2", Kind: "strip"}}
	e := examine(t, s, func(c *replay.ExamineConfig) { c.Group = c.Finding.Locator.(*fabric.Fabric).Group })
	stripped, whole := uint64(0), uint64(0)
	for _, w := range e.Pairs {
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
	for _, w := range e.Pairs {
		sum += w.Incapable
	}
	if want := e.Decoded.EmptyReflections + e.Decoded.InvalidReflections; sum == 0 || sum > want || sum < want*9/10 {
		t.Errorf("%d pairs are not capable, the decoder counted %d", sum, want)
	}
}

// TestExaminedLinks checks that cooked captures have the findings and the pairs of the same frames in
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
	for _, link := range []capture.LinkType{capture.LinkSLL, capture.LinkSLL2} {
		cooked, dir := cfg, t.TempDir()
		cooked.Files = nil
		for _, path := range cfg.Files {
			cooked.Files = append(cooked.Files, rewrite(t, dir, path, link, func(frame []byte) []byte {
				if link == capture.LinkSLL2 {
					return slices.Concat(frame[12:14], make([]byte, 18), frame[14:])
				}
				return slices.Concat(make([]byte, 14), frame[12:])
			}))
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
		if diff := gocmp.Diff(sorted(want.Pairs), sorted(got.Pairs)); diff != "" {
			t.Errorf("%s: pairs (-Ethernet +link)\n%s", link, diff)
		}
	}
}

// TestExaminedMirrors: packets in mirror sessions count as if they had been captured themselves, whether or
// not the packets around them have tags, which are not at the tap's place.
func TestExaminedMirrors(t *testing.T) {
	t.Parallel()
	s, err := scenario.Named("pony")
	if err != nil {
		t.Fatal(err)
	}
	s.Duration, s.CaptureUntagged = 100*time.Millisecond, true
	var cfg replay.ExamineConfig
	examine(t, s, func(c *replay.ExamineConfig) {
		c.Group = c.Finding.Locator.(*fabric.Fabric).Group
		cfg = *c
	})
	tpid := cfg.Decode.Domain.TPIDs()[0]
	layout, _ := cfg.Decode.Domain.LayoutOf(tpid)
	tag := append([]byte{byte(tpid >> 8), byte(tpid)}, make([]byte, layout.Format.DataLen())...)
	carriedIn := func(around []byte) func([]byte) []byte {
		return func(frame []byte) []byte {
			carrier := []byte{8, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 47, 0, 0, 198, 51, 100, 1, 198, 51, 100, 2, 0, 0, 0x88, 0xbe}
			binary.BigEndian.PutUint16(carrier[4:], uint16(24+len(frame)))
			return slices.Concat(make([]byte, 12), around, carrier, frame)
		}
	}
	for place, whole := range map[string]bool{"receiver": true, "sender": false} {
		for name, around := range map[string][]byte{"untagged": nil, "tagged": tag, "twice": slices.Concat(tag, tag)} {
			bare, mirrored, dir := cfg, cfg, t.TempDir()
			bare.Tap = func(string) window.Tap { return window.TapAt(place, 1) }
			mirrored.Tap = func(string) window.Tap {
				at := window.TapAt(place, 1)
				at.Mirrors = decode.Mirrors{ERSPAN: true}
				return at
			}
			mirrored.Files = nil
			for _, path := range cfg.Files {
				mirrored.Files = append(mirrored.Files, rewrite(t, dir, path, capture.LinkEthernet, carriedIn(around)))
			}
			want, err := replay.Examine(t.Context(), bare)
			if err != nil {
				t.Fatal(err)
			}
			got, err := replay.Examine(t.Context(), mirrored)
			if err != nil {
				t.Fatal(err)
			}
			if whole == (len(want.Pairs) == 0) || place == "sender" && len(want.Findings) == 0 || want.Decoded.EmptyReflections == 0 {
				t.Fatalf("%s: %d pairs, %d findings: the test shows nothing", place, len(want.Pairs), len(want.Findings))
			}
			found := kinds(want.Findings)
			if name == "twice" { // an orphan is one at any place
				found = append(found, "orphan-tag of "+layout.String())
			}
			if diff := gocmp.Diff(found, kinds(got.Findings)); place == "sender" && diff != "" {
				t.Errorf("%s, %s: findings (-bare +mirrored)\n%s", place, name, diff)
			}
			carriers := slices.IndexFunc(got.Pairs, func(w replay.GroupPackets) bool { return w.Src == aggregate.UnknownGroup && w.Tagged > 0 })
			if carriers >= 0 && around != nil {
				got.Pairs = slices.Delete(got.Pairs, carriers, carriers+1)
			}
			if diff := gocmp.Diff(sorted(want.Pairs), sorted(got.Pairs)); diff != "" {
				t.Errorf("%s, %s: pairs (-bare +mirrored)\n%s", place, name, diff)
			}
		}
	}
}

// kinds returns the kinds and subjects of findings.
func kinds(list []finding.Finding) (names []string) {
	for i := range list {
		names = append(names, list[i].Kind.String()+" of "+list[i].Subject)
	}
	return names
}

func sorted(list []replay.GroupPackets) []replay.GroupPackets {
	slices.SortFunc(list, func(a, b replay.GroupPackets) int {
		return cmp.Or(cmp.Compare(a.Src, b.Src), cmp.Compare(a.Dst, b.Dst))
	})
	return list
}

// rewrite writes a capture of Ethernet to a folder, with other frames of a link type, and returns its path.
func rewrite(t *testing.T, dir, path string, link capture.LinkType, to func([]byte) []byte) string {
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
			cut := int(f.WireLen) - len(f.Data)
			f.Data = to(f.Data)
			f.WireLen = uint32(len(f.Data) + cut)
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
