package replay_test

import (
	"context"
	"io"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay"
	"github.com/csigscope/csigscope/replay/emitter/emittertest"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// witnessed sets compact tags, which name sets of ports, and adds taps at both spines to those at
// the receivers.
func witnessed(s *scenario.Scenario) {
	*s = s.WithLayout(csig.Layout{Format: csig.Compact, Profile: csig.IETF01})
	s.Classic, s.Taps = true, []scenario.Tap{{Racks: true}, {Name: "spine1", After: []string{"spine1"}}, {Name: "spine2", After: []string{"spine2"}}}
}

// witnesses returns the configuration to replay the recording's captures, with a new fabric. The
// fabric file says which of them only show the paths of flows.
func (rec *recording) witnesses(t *testing.T, sink *blocks, keep func(name string) bool) (replay.Config, *fabric.Fabric) {
	t.Helper()
	f, _ := emittertest.Network(t, rec.report.Fabric)
	cfg := rec.config(sink)
	cfg.Resolver, cfg.ChunkBytes, cfg.Files = f, 64<<10, nil
	for _, path := range rec.files {
		if keep(strings.TrimSuffix(filepath.Base(path), ".pcap")) {
			cfg.Files = append(cfg.Files, path)
		}
	}
	points := map[string]uint32{}
	file, err := fabric.Load(rec.report.Fabric)
	if err != nil {
		t.Fatal(err)
	}
	for _, tap := range file.Taps {
		if len(tap.At) > 0 {
			n, err := f.ObservationPoint(tap.At)
			if err != nil {
				t.Fatal(err)
			}
			points[tap.Name] = n
		}
	}
	cfg.Tap = func(name string) window.Tap {
		tap := window.TapAt(tapOf(file, name).Place, 1)
		tap.ObservationPoint = points[name]
		return tap
	}
	return cfg, f
}

// tapOf returns a tap of a fabric file; it is empty if the file does not list it.
func tapOf(spec *fabric.Spec, name string) (tap fabric.TapSpec) {
	for _, t := range spec.Taps {
		if t.Name == name {
			return t
		}
	}
	return tap
}

// ports counts the heavy observations in 1 s windows that name one port, and those that name
// another location.
func (s *blocks) ports(f *fabric.Fabric) (ports, sets uint64) {
	for i := range s.list {
		b := &s.list[i]
		for j := range b.Len() {
			l, ok := f.Location(aggregate.LocationID(b.Location[j]))
			switch {
			case !ok || b.Resolution != int64(time.Second) || b.Heavy[j] == 0:
			case l.Kind == fabric.KindPort:
				ports += b.Heavy[j]
			default:
				sets += b.Heavy[j]
			}
		}
	}
	return ports, sets
}

// tags counts the tags in 1 s windows.
func (s *blocks) tags() (n uint64) {
	for i := range s.list {
		b := &s.list[i]
		for j, kind := range b.Kind {
			if decode.Kind(kind) == decode.Tag && b.Resolution == int64(time.Second) {
				n += b.Observations[j]
			}
		}
	}
	return n
}

// TestWitnesses checks that captures of mid-fabric taps narrow sets down to ports, equally on any
// number of cores and at any pace, and that rows without them have other identities.
func TestWitnesses(t *testing.T) {
	rec := shared(t, witnessed)
	all := func(string) bool { return true }
	var alone, want blocks
	cfg, f := rec.witnesses(t, &alone, func(name string) bool { return !strings.HasPrefix(name, "spine") })
	replayed(t, cfg)
	if _, sets := alone.ports(f); sets == 0 {
		t.Fatal("no set without taps at spines: the capture shows too little")
	}
	cfg, f = rec.witnesses(t, &want, all)
	replayed(t, cfg)
	if ports, sets := want.ports(f); ports == 0 || sets > 0 {
		t.Errorf("with taps at all spines %d heavy observations name a port, %d do not", ports, sets)
	}
	if f.Counts().Ways.Contradicted > 0 {
		t.Errorf("counts %+v: what taps saw contradicts something", f.Counts().Ways)
	}
	if got, without := want.tags(), alone.tags(); got != without {
		t.Errorf("%d tags, %d without taps at spines", got, without)
	}
	for i := range want.list {
		for j := range alone.list {
			if a, b := &want.list[i], &alone.list[j]; a.Producer == b.Producer && a.Incarnation == b.Incarnation {
				t.Fatal("rows with and without evidence have one identity")
			}
		}
	}
	for _, test := range []struct {
		name    string
		workers int
		pace    float64
	}{{"four workers", 4, 0}, {"paced", 1, 1e6}} {
		var got blocks
		cfg, _ := rec.witnesses(t, &got, all)
		cfg.Workers, cfg.Pace = test.workers, test.pace
		replayed(t, cfg)
		if !reflect.DeepEqual(got.sorted(), want.sorted()) {
			t.Errorf("%s: %d blocks differ from %d", test.name, len(got.list), len(want.list))
		}
	}
}

// TestPipedWitnesses checks that a stream with mid-fabric taps is written twice, and gives the rows
// of the same capture as a file.
func TestPipedWitnesses(t *testing.T) {
	rec := shared(t, func(s *scenario.Scenario) {
		witnessed(s)
		s.Classic, s.SingleFile = false, true
	})
	var want blocks
	cfg, f := rec.witnesses(t, &want, func(string) bool { return true })
	cfg.ChunkBytes = -1
	replayed(t, cfg)
	if ports, sets := want.ports(f); ports == 0 || sets > 0 {
		t.Errorf("with taps at all spines %d heavy observations name a port, %d do not", ports, sets)
	}
	identities := map[uint64]bool{}
	for _, test := range []struct {
		name  string
		taps  []string
		pace  float64
		times int
	}{
		{"fast", []string{"rack1", "spine1", "spine2"}, 0, 2},
		{"paced", []string{"rack1", "spine1", "spine2"}, 1e6, 2},
		{"receivers only", []string{"rack1"}, 0, 1},
	} {
		var got blocks
		times := 0
		cfg, f := rec.witnesses(t, &got, func(string) bool { return true })
		cfg.Files, cfg.Pace = nil, test.pace
		cfg.Piped = &replay.PipedCapture{Name: "made", ID: 1, Taps: test.taps, Write: func(_ context.Context, w io.Writer) error {
			times++
			return copyFile(w, rec.files[0])
		}}
		if result := replayed(t, cfg); result.Packets != rec.report.Captured || times != test.times {
			t.Errorf("%s: %d packets of %d, written %d times", test.name, result.Packets, rec.report.Captured, times)
		}
		identities[got.list[0].Incarnation] = true
		if test.times == 1 {
			if _, sets := got.ports(f); sets == 0 {
				t.Errorf("%s: no set without evidence", test.name)
			}
		} else if diff := cmp.Diff(anonymous(&want), anonymous(&got)); diff != "" {
			t.Errorf("%s: blocks differ (-file +stream):\n%.2000s", test.name, diff)
		}
	}
	if len(identities) != 2 {
		t.Errorf("%d identities: expected one with evidence and one without", len(identities))
	}
}
