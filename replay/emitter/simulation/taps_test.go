package simulation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
	"github.com/csigscope/csigscope/replay/emitter/truth"
)

// framesOf reads a capture.
func framesOf(t *testing.T, path string) (frames []capture.Frame, names []string) {
	t.Helper()
	r, err := capture.Open(path, capture.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var batch capture.Batch
	for {
		err := r.ReadBatch(&batch)
		for _, f := range batch.Frames[:batch.N] {
			f.Data = slices.Clone(f.Data)
			frames = append(frames, f)
		}
		if errors.Is(err, io.EOF) {
			for _, i := range r.Interfaces() {
				names = append(names, i.Name)
			}
			return frames, names
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestTapsStandWhereTheySay checks that patterns find links, that the fabric file has the places,
// and that a packet is seen once on each link of its path, at increasing times.
func TestTapsStandWhereTheySay(t *testing.T) {
	s := tiny()
	s.Taps = []scenario.Tap{
		{Racks: true},
		{Name: "senders", After: []string{"host*"}},
		{Name: "leaf1-in", Before: []string{"leaf1"}},
		{Name: "leaf1-out", After: []string{"leaf1"}},
		{Name: "core", Ports: []string{"leaf*:up*", "spine*:*"}},
	}
	r, dir := run(t, s)
	spec, err := fabric.Load(r.Fabric)
	if err != nil {
		t.Fatal(err)
	}
	var places []string
	for _, tap := range spec.Taps {
		places = append(places, tap.Name+" "+tap.Place)
	}
	want := "rack1 receiver, rack2 receiver, rack3 receiver, senders sender, leaf1-in mid, leaf1-out mid, core mid"
	if got := strings.Join(places, ", "); got != want {
		t.Errorf("taps %s, want %s", got, want)
	}
	sent := map[string]int64{}
	key := func(f *capture.Frame) string { // addresses, identification and TCP header
		at := bytes.Index(f.Data, []byte{0x08, 0x00, 0x45})
		return string(f.Data[at+6:at+8]) + string(f.Data[at+14:at+38])
	}
	frames, _ := framesOf(t, filepath.Join(dir, "senders.pcapng"))
	for i := range frames {
		if _, twice := sent[key(&frames[i])]; twice {
			t.Fatal("two packets of senders are alike")
		}
		sent[key(&frames[i])] = frames[i].TimeNS
	}
	received := 0
	for _, rack := range []string{"rack1", "rack2", "rack3"} {
		frames, _ := framesOf(t, filepath.Join(dir, rack+".pcapng"))
		received += len(frames)
		for i := range frames {
			at, ok := sent[key(&frames[i])]
			if !ok || frames[i].TimeNS < at+time.Microsecond.Nanoseconds() {
				t.Fatalf("a packet arrives at %d that was sent at %d", frames[i].TimeNS, at)
			}
		}
	}
	if received == 0 || received > len(sent) {
		t.Errorf("%d packets received of %d", received, len(sent))
	}
}

// TestTapsMakeTheirMistakes compares a tap's counts in the truth's header with its file, and the
// correctly captured frames with the remaining ones.
func TestTapsMakeTheirMistakes(t *testing.T) {
	const offset, drift, jitter = 40 * time.Millisecond, 500_000, 3 * time.Microsecond
	clean := tiny()
	clean.SingleFile = true
	_, dir := run(t, clean)
	exact, _ := framesOf(t, filepath.Join(dir, "tiny.pcapng"))

	s := clean
	s.Taps = []scenario.Tap{{
		Racks: true, Offset: offset, Drift: drift, Jitter: jitter,
		Loss: 20_000, Duplicate: 30_000, Reorder: 10_000, SnapLen: 96,
	}}
	r, dir := run(t, s)
	frames, names := framesOf(t, filepath.Join(dir, "tiny.pcapng"))
	counted := make([]uint64, len(names))
	backwards := make([]uint64, len(names))
	last := make([]int64, len(names))
	for i := range frames {
		f := &frames[i]
		counted[f.Interface]++
		if f.TimeNS < last[f.Interface]-2*jitter.Nanoseconds() {
			backwards[f.Interface]++
		}
		last[f.Interface] = f.TimeNS
		if len(f.Data) > 96 {
			t.Fatalf("%d bytes captured", len(f.Data))
		}
	}
	var all truth.Tap
	for i, tap := range readTruth(t, r.Truth).header.Taps {
		if tap.Name != names[i] || tap.Captured != counted[i] || tap.Captured != tap.Frames-tap.Lost+tap.Duplicated {
			t.Errorf("%+v; the file has %d frames of %s", tap, counted[i], names[i])
		}
		if backwards[i] == 0 || backwards[i] > tap.Reordered {
			t.Errorf("%s: times run backwards %d times, %d frames were reordered", tap.Name, backwards[i], tap.Reordered)
		}
		all.Frames += tap.Frames
		all.Lost += tap.Lost
		all.Duplicated += tap.Duplicated
	}
	if all.Frames != uint64(len(exact)) || all.Frames-all.Lost+all.Duplicated != uint64(len(frames)) {
		t.Errorf("%+v of %d frames; %d captured", all, len(exact), len(frames))
	}
	near := func(n, of uint64, share float64) bool {
		want := float64(of) * share
		return math.Abs(float64(n)-want) < 6*math.Sqrt(want)
	}
	if !near(all.Lost, all.Frames, 0.02) || !near(all.Duplicated, all.Frames, 0.03) {
		t.Errorf("%d lost and %d duplicated of %d", all.Lost, all.Duplicated, all.Frames)
	}
	checkClock(t, exact, frames, clean.WithDefaults().Start.UnixNano(), offset.Nanoseconds(), drift, jitter.Nanoseconds())
}

// checkClock expects every frame of a tap with a bad clock at the time that the clock's errors
// imply.
func checkClock(t *testing.T, exact, frames []capture.Frame, start, offset, ppb, jitter int64) {
	t.Helper()
	times := map[string][]int64{}
	for i := range exact {
		k := string(exact[i].Data[:min(96, len(exact[i].Data))])
		times[k] = append(times[k], exact[i].TimeNS)
	}
	for i := range frames {
		found := false
		for _, at := range times[string(frames[i].Data)] {
			want := at + offset + (at-start)*ppb/1e9
			found = found || max(frames[i].TimeNS-want, want-frames[i].TimeNS) <= jitter+1
		}
		if !found {
			t.Fatalf("frame %d: time %d is not that of its tap's clock", i, frames[i].TimeNS)
		}
	}
}

// TestMirrorsAreUnwrapped checks that sessions of both types hold the frames that a tap at the same
// place captures, that they number lost frames too, and that type III has the switch's time.
func TestMirrorsAreUnwrapped(t *testing.T) {
	erspan := decode.NewUnwrapper(decode.Mirrors{ERSPAN: true})
	s := tiny()
	s.SnapLen = 256
	plain := s
	plain.Taps = []scenario.Tap{{Name: "tap", Before: []string{"host*"}}}
	_, dir := run(t, plain)
	want, _ := framesOf(t, filepath.Join(dir, "tap.pcapng"))
	for kind := 2; kind <= 3; kind++ {
		s.Taps = []scenario.Tap{{Name: "tap", Before: []string{"host*"}, ERSPAN: kind, Session: 77, Loss: 10_000}}
		r, dir := run(t, s)
		frames, _ := framesOf(t, filepath.Join(dir, "tap.pcapng"))
		var lost uint64
		for i := range frames {
			inner, session, m := erspan.Unwrap(&decode.Frame{Data: frames[i].Data, WireLen: frames[i].WireLen})
			if m != decode.MirrorOK || session.ID != 77 || int(session.Type) != kind || session.Truncated {
				t.Fatalf("type %d: %s, session %+v", kind, m, session)
			}
			w := &want[session.Sequence]
			if inner.WireLen != w.WireLen || !bytes.HasPrefix(w.Data, inner.Data) || len(inner.Data) < min(len(w.Data), 190) {
				t.Fatalf("type %d: packet %d differs from the frame that was mirrored", kind, session.Sequence)
			}
			if kind == 3 && (session.SwitchClock != decode.ClockPTP || session.SwitchNS != w.TimeNS) {
				t.Fatalf("the switch's time is %d, want %d", session.SwitchNS, w.TimeNS)
			}
			lost = uint64(session.Sequence) - uint64(i)
		}
		if stats := r.Taps[0]; stats.Lost == 0 || stats.Lost-lost > 20 || stats.Captured != uint64(len(frames)) {
			t.Errorf("type %d: %d are missing from the sequence; %+v", kind, lost, stats)
		}
	}
}

// TestCompressedCapturesAreTheSame checks that compression changes only the file's size, and that
// equal runs give equal files.
func TestCompressedCapturesAreTheSame(t *testing.T) {
	s := tiny()
	s.SingleFile = true
	_, dir := run(t, s)
	want, _ := framesOf(t, filepath.Join(dir, "tiny.pcapng"))
	plain, err := os.Stat(filepath.Join(dir, "tiny.pcapng"))
	if err != nil {
		t.Fatal(err)
	}
	for how, extension := range map[string]string{"gzip": ".gz", "zstd": ".zst"} {
		s.Compress = how
		var files [2][]byte
		for i := range files {
			r, _ := run(t, s)
			if !strings.HasSuffix(r.Captures[0], "tiny.pcapng"+extension) {
				t.Fatalf("captures %v", r.Captures)
			}
			got, _ := framesOf(t, r.Captures[0])
			if len(got) != len(want) {
				t.Errorf("%s: %d frames, want %d", how, len(got), len(want))
			}
			if files[i], err = os.ReadFile(r.Captures[0]); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(files[0], files[1]) || len(files[0]) > int(plain.Size()/2) {
			t.Errorf("%s: files of %d and %d bytes, %d without compression", how, len(files[0]), len(files[1]), plain.Size())
		}
	}
}

// TestRunsRepeat checks that equal scenarios give equal files, including the taps' errors.
func TestRunsRepeat(t *testing.T) {
	for _, name := range []string{"noisy-taps", "overlay", "mirrors"} {
		s := named(t, name)
		s.Duration = 200 * time.Millisecond
		one, first := run(t, s)
		_, second := run(t, s)
		for _, path := range append(one.Captures, one.Fabric, one.Truth) {
			a, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(filepath.Join(second, filepath.Base(path)))
			if err != nil || !bytes.Equal(a, b) {
				t.Errorf("%s: %s differs from that in %s: %v", name, path, first, err)
			}
		}
	}
}

// TestWriteEqualsRun checks that a stream has the same bytes as the single file.
func TestWriteEqualsRun(t *testing.T) {
	s := tiny()
	s.SingleFile = true
	r, dir := run(t, s)
	want, err := os.ReadFile(filepath.Join(dir, "tiny.pcapng"))
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	s.SingleFile, s.Classic, s.Compress = false, true, "gzip"
	w, err := Write(context.Background(), s, &got, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) || w.Captured != r.Captured || w.Partials != r.Partials {
		t.Errorf("%d bytes, want %d; %+v, want %+v", got.Len(), len(want), w, r)
	}
}

func TestBadTapsAreRefused(t *testing.T) {
	for _, c := range []struct {
		text, want string
	}{
		{"taps: [{name: a}]", "taps[0]: expected ports, before or after"},
		{"taps: [{racks: true, name: a}]", "racks: names and places its taps by itself: leave out name, ports, before and after"},
		{"taps: [{name: ../a, before: ['*']}]", "names a file"},
		{"taps: [{name: a, ports: ['[']}]", "pattern"},
		{"taps: [{name: a, before: ['*'], loss: 120%}]", "line"},
		{"taps: [{name: a, before: ['*'], erspan: 1}]", "expected 2 or 3"},
		{"taps: [{name: a, before: ['*'], jiter: 1ms}]", "line 1: field jiter"},
		{"taps: [{name: a, before: [" + strings.Repeat("a,", 300) + "b]}]", "301 patterns: expected at most 256"},
		{"compress: lz4", "expected gzip, zstd"},
		{"encap: vxlam", "expected one of none, vlan"},
		{"encap: esp\nencap_at: leaves", "between hosts"},
		{"ip: 5", "expected 4 or 6"},
		{"workloads: [{kind: ring, rate: 1Gbps, encap_at: spines}]", "expected hosts or leaves"},
	} {
		_, err := scenario.Parse(strings.NewReader("base: ring\n"+c.text), "bad")
		if err == nil || !strings.Contains(err.Error(), c.want) && !strings.Contains(err.Error(), strings.Replace(c.want, "line 1", "line 2", 1)) {
			t.Errorf("%s: error %v, want one with %q", c.text, err, c.want)
		}
	}
	for text, want := range map[string]string{
		"taps: [{name: a, before: [spin]}]":                               "no link of the fabric matches",
		"taps: [{racks: true}, {name: a, before: ['host*']}]":             "would count twice",
		"taps: [{name: a, before: [spine1]}, {name: a, before: [leaf1]}]": "two taps have the name",
	} {
		s, err := scenario.Parse(strings.NewReader("base: ring\n"+text), "bad")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := scenario.Fabric(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", text, err, want)
		}
	}
}

// TestNamesOfCaptures checks that no name leads out of the folder, and that nothing is captured if one is refused.
func TestNamesOfCaptures(t *testing.T) {
	r, _ := run(t, tiny())
	spec, err := fabric.Load(r.Fabric)
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(spec.Groups, func(g fabric.GroupSpec) bool { return g.Name == "rack2" })
	for name, refused := range map[string]bool{"pod1/rack2": true, "../rack2": true, ".rack2": true, `it's \rack 2`: false} {
		spec.Groups[at].Name = name
		var text bytes.Buffer
		if err := spec.Write(&text); err != nil {
			t.Fatal(err)
		}
		s := tiny()
		s.FabricFile = filepath.Join(t.TempDir(), "fabric.yaml")
		s.Leaves, s.Spines, s.HostsPerLeaf, s.RackUplinkSpeed = 0, 0, 0, nil
		if err := os.WriteFile(s.FabricFile, text.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, s.SingleFile = range []bool{false, true} {
			dir := filepath.Join(t.TempDir(), "out")
			_, err := Run(context.Background(), s, dir, nil)
			if wrong := refused && !s.SingleFile; (err != nil) != wrong || wrong && !strings.Contains(err.Error(), fmt.Sprintf("%q: its name is no name of a file", name)) {
				t.Errorf("%.20q, single file %t: error %v", name, s.SingleFile, err)
			}
			inside, _ := filepath.Glob(filepath.Join(dir, "*.pcapng"))
			all, _ := filepath.Glob(filepath.Join(dir, "..", "*", "*.pcapng"))
			outside, _ := filepath.Glob(filepath.Join(dir, "..", "*.pcapng"))
			if len(all) != len(inside) || len(outside) > 0 || err != nil && len(inside) > 0 {
				t.Errorf("%.20q: captures %q %q, error %v", name, all, outside, err)
			}
		}
	}
	s := tiny()
	s.Name, s.SingleFile = "../tiny", true
	if _, err := Run(context.Background(), s, t.TempDir(), nil); err == nil || !strings.Contains(err.Error(), "choose another") {
		t.Errorf("the scenario ../tiny: error %v", err)
	}
}

// TestTapsDoNotAllocate checks that tunnels, mirrors and tap errors do not allocate per packet.
func TestTapsDoNotAllocate(t *testing.T) {
	s := tiny()
	s.Duration, s.Window = time.Minute, time.Minute
	s.Encap = "gre-flags"
	s.Taps = []scenario.Tap{
		{Racks: true, Jitter: time.Microsecond, Loss: 1000, Duplicate: 100_000, Reorder: 100_000},
		{Name: "mirror", After: []string{"spine*"}, ERSPAN: 3},
	}
	doesNotAllocate(t, s, 100_000)
}
