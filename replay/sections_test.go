package replay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/aggregate/hop"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode/conform"
	"github.com/csigscope/csigscope/replay"
)

// section returns a pcapng section with a tagged frame at each of the given seconds from each of
// its interfaces.
func section(t *testing.T, interfaces int, seconds ...byte) []byte {
	t.Helper()
	var out bytes.Buffer
	var declared []capture.Interface
	for i := range interfaces {
		declared = append(declared, capture.Interface{Name: fmt.Sprintf("eth%d", i), Link: capture.LinkEthernet})
	}
	w := capture.NewWriter(&out, declared...)
	for _, s := range seconds {
		for i := range declared {
			f := capture.Frame{Data: tagged(s), TimeNS: int64(s) * 1e9, WireLen: 38, Interface: uint32(i)}
			if err := w.Write(&f, ""); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// defaultConfig returns the configuration to replay a file whose frames have default tags, like
// those of tagged.
func defaultConfig(t *testing.T, file string) replay.Config {
	t.Helper()
	rec := shared(t, singleFile)
	cfg := rec.config(&blocks{})
	cfg.Files, cfg.Decode = []string{file}, listConfig(t, new(bytes.Buffer)).Decode
	return cfg
}

// written returns the path of a file with the content.
func written(t *testing.T, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "capture.pcapng")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestSections checks that a pcapng file of many sections, such as joined captures, replays like
// its parts, in any time order, with lanes for one section at a time.
func TestSections(t *testing.T) {
	const sections, interfaces = 300, 3
	var forward, backward []byte
	for i := range sections {
		part := section(t, interfaces, byte(i/2), byte(i/2)+1)
		forward = append(forward, part...)
		backward = append(slices.Clone(part), backward...)
	}
	for name, test := range map[string]struct {
		file   []byte
		pace   float64
		chunks int64
	}{
		"in order": {forward, 0, 0}, "backwards": {backward, 0, 0}, "at a pace": {forward, 1e9, 0},
		"in pieces": {forward, 0, 5000}, "backwards in pieces": {backward, 0, 5000}, "in pieces at a pace": {forward, 1e9, 5000},
	} {
		t.Run(name, func(t *testing.T) {
			var taps tapCounts
			most := 0
			cfg := defaultConfig(t, written(t, test.file))
			cfg.Pace, cfg.ChunkBytes = test.pace, test.chunks
			cfg.Taps = func(ctx context.Context, list []replay.TapCounts) error {
				most = max(most, len(list))
				return taps.take(ctx, list)
			}
			result := replayed(t, cfg)
			byTap, all, counts := taps.sums(t)
			const packets = sections * interfaces * 2
			if result.Packets != packets || result.Counts.In != packets || result.Counts.Late != 0 || !result.Conserved() || counts.In != packets || all.Packets != packets {
				t.Errorf("%d packets, %+v, by tap %+v; want %d", result.Packets, result.Counts, counts, packets)
			}
			if len(byTap) != interfaces || byTap["eth2"].Packets != packets/interfaces || most != interfaces {
				t.Errorf("%d taps, at most %d at a time, want %d", len(byTap), most, interfaces)
			}
		})
	}
}

// TestSectionsInPieces: blocks and taps of a file of many sections, of which some chunks hold
// several and others a part, are the same from any number of workers, and together those
// of the file in one piece.
func TestSectionsInPieces(t *testing.T) {
	var content []byte
	for i := range 24 {
		var seconds []byte
		for s := range 5 + i%4*50 {
			seconds = append(seconds, byte(i*4+s/30))
		}
		content = append(content, section(t, 1+i%3, seconds...)...)
	}
	file := written(t, content)
	chunks, err := capture.Chunks(file, 20_000)
	if err != nil || len(chunks) < 10 {
		t.Fatalf("%d chunks, %v", len(chunks), err)
	}
	locator := shared(t, singleFile).fabric
	run := func(chunkBytes int64, workers int, pace float64) (*blocks, *tapCounts) {
		var got blocks
		var taps tapCounts
		cfg := defaultConfig(t, file)
		cfg.Finding = &finding.Config{Domain: cfg.Decode.Domain, Locator: locator}
		cfg.Sink, cfg.Taps, cfg.ChunkBytes, cfg.Workers, cfg.Pace = &got, taps.take, chunkBytes, workers, pace
		replayed(t, cfg)
		return &got, &taps
	}
	whole, wholeTaps := run(-1, 1, 0)
	want, wantTaps := run(20_000, 1, 0)
	ofWhole, _, _ := wholeTaps.sums(t)
	inPieces, _, _ := wantTaps.sums(t)
	if diff := cmp.Diff(ofWhole, inPieces); diff != "" || want.observations(time.Second) != whole.observations(time.Second) || len(wantTaps.list) <= len(wholeTaps.list) {
		t.Errorf("%d taps of %d, (-whole +pieces):\n%s", len(wantTaps.list), len(wholeTaps.list), diff)
	}
	for _, test := range []struct {
		workers int
		pace    float64
	}{{2, 0}, {7, 0}, {1, 1e9}} {
		got, taps := run(20_000, test.workers, test.pace)
		if !reflect.DeepEqual(got.sorted(), want.sorted()) {
			t.Errorf("%+v: %d blocks differ from %d", test, len(got.list), len(want.list))
		}
		if !reflect.DeepEqual(taps.sorted(), wantTaps.sorted()) {
			t.Errorf("%+v: %d taps differ from %d", test, len(taps.list), len(wantTaps.list))
		}
	}
}

// TestFormatsAgree: a pcapng file gives the rows of a classic pcap of the same packets.
func TestFormatsAgree(t *testing.T) {
	rec := shared(t, classic)
	r, err := capture.Open(rec.files[0], capture.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var out bytes.Buffer
	w := capture.NewWriter(&out, r.Interfaces()...)
	var batch capture.Batch
	for err = r.ReadBatch(&batch); err == nil; err = r.ReadBatch(&batch) {
		for i := range batch.N {
			if err := w.Write(&batch.Frames[i], ""); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !errors.Is(err, io.EOF) || w.Flush() != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), filepath.Base(rec.files[0]))
	if err := os.WriteFile(name, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	of := func(file string, chunkBytes int64) (*blocks, aggregate.Counts) {
		var got blocks
		cfg := rec.config(&got)
		cfg.Files, cfg.ChunkBytes, cfg.Workers = []string{file}, chunkBytes, 2
		result := replayed(t, cfg)
		if result.Packets != rec.report.Captured {
			t.Errorf("%d packets, want %d", result.Packets, rec.report.Captured)
		}
		got.sorted()
		for i := range got.list {
			got.list[i].Producer, got.list[i].Incarnation = 0, 0 // are of the content and its size
		}
		return &got, result.Counts
	}
	want, wantCounts := of(rec.files[0], -1)
	if got, counts := of(name, -1); !reflect.DeepEqual(got.list, want.list) || counts != wantCounts {
		t.Errorf("%d blocks, %+v; want %d, %+v, or they differ", len(got.list), counts, len(want.list), wantCounts)
	}
	// A repeated reflection behind a boundary is not known as one.
	cut, counts := of(name, 200_000)
	if counts.In != wantCounts.In || cut.observations(time.Second) != counts.Stored || counts.Stored > wantCounts.Stored+500 {
		t.Errorf("in pieces: %+v, want about %+v", counts, wantCounts)
	}
}

// TestSectionOfTooManyInterfaces: a section's interfaces are bounded, those of a file are not.
func TestSectionOfTooManyInterfaces(t *testing.T) {
	for name, test := range map[string]struct {
		file []byte
		want string
	}{
		"256 and 256": {slices.Concat(section(t, 256, 1), section(t, 256, 2)), ""},
		"1 and 257":   {slices.Concat(section(t, 1, 1), section(t, 257, 2)), "capture interface 256: expected at most 256 interfaces a section"},
	} {
		r, err := replay.New(defaultConfig(t, written(t, test.file)))
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Run(t.Context()); (err != nil) != (test.want != "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want %q", name, err, test.want)
		}
	}
}

// simplePacket returns a simple packet block.
func simplePacket(frame []byte) []byte {
	pad := -len(frame) & 3
	n := byte(16 + len(frame) + pad)
	return slices.Concat([]byte{3, 0, 0, 0, n, 0, 0, 0, byte(len(frame)), 0, 0, 0}, frame, make([]byte, pad), []byte{n, 0, 0, 0})
}

// examineDefault examines a file as defaultConfig replays it.
func examineDefault(t *testing.T, change func(*replay.ExamineConfig), file []byte) *replay.Examined {
	t.Helper()
	r := defaultConfig(t, written(t, file))
	cfg := replay.ExamineConfig{Files: r.Files, Decode: r.Decode, Finding: finding.Config{Domain: r.Decode.Domain, Locator: shared(t, singleFile).fabric}, Tap: r.Tap}
	change(&cfg)
	e, err := replay.Examine(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestExaminedTimes checks that a packet without a time changes neither end of an examination.
func TestExaminedTimes(t *testing.T) {
	simple := simplePacket(tagged(0))
	for name, test := range map[string]struct {
		file     []byte
		n        uint64
		from, to int64
	}{
		"none":            {section(t, 1), 0, 0, 0},
		"at the end":      {append(section(t, 1, 3, 5), simple...), 3, 3e9, 5e9},
		"first":           {slices.Concat(section(t, 1), simple, section(t, 1, 3, 5)), 3, 3e9, 5e9},
		"at time 0":       {append(section(t, 1, 5, 0), simple...), 3, 0, 5e9},
		"all are untimed": {append(section(t, 1), simple...), 1, 0, 0},
	} {
		if e := examineDefault(t, func(*replay.ExamineConfig) {}, test.file); e.Observations != test.n || e.From != test.from || e.To != test.to {
			t.Errorf("%s: %d observations from %d to %d", name, e.Observations, e.From, e.To)
		}
	}
}

// TestTimeZero checks that time 0 is valid and that a simple packet block has no time.
func TestTimeZero(t *testing.T) {
	cfg := defaultConfig(t, written(t, append(section(t, 1, 0, 2), simplePacket(tagged(0))...)))
	var taps tapCounts
	cfg.Taps = taps.take
	c := replayed(t, cfg).Counts
	if c.In != 3 || c.Stored != 2 || c.Rejected[aggregate.RejectNoTime] != 1 {
		t.Errorf("%+v, want 2 of 3 stored", c)
	}
	if _, all, _ := taps.sums(t); all.Timed != 2 || all.First != 0 || all.Last != 2e9 {
		t.Errorf("%d packets with times from %d to %d", all.Timed, all.First, all.Last)
	}
	var out bytes.Buffer
	l, err := replay.NewLister(listConfig(t, &out))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Run(t.Context(), cfg.Files); err != nil {
		t.Fatal(err)
	}
	for i, start := range []string{`{"time_ns":0,"packet":1,`, `{"time_ns":2000000000,"packet":2,`, `{"packet":3,`} {
		if line := strings.Split(out.String(), "\n")[i]; !strings.HasPrefix(line, start) {
			t.Errorf("packet %d is %s, want %s...", i+1, line, start)
		}
	}
}

// TestSummaryCounts checks that summaries count orphans, and reflections in excess of the maximum
// per packet, separately.
func TestSummaryCounts(t *testing.T) {
	two := slices.Insert(tagged(1), 12, 0x99, 0x00, 0x28, 0x03)
	options := slices.Concat(tagged(2)[:18], []byte{0x45, 0, 0, 76, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 1, 1},
		[]byte{0, 1, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 0xe0, 0x10, 1, 0, 0, 0, 0, 0}, bytes.Repeat([]byte{253, 6, 0xc5, 0x16, 0x2b, 0x85}, 6))
	var file bytes.Buffer
	w := capture.NewWriter(&file, capture.Interface{Link: capture.LinkEthernet})
	for i, data := range [][]byte{two, options, two} {
		if err := w.Write(&capture.Frame{Data: data, TimeNS: int64(i+1) * 1e9, WireLen: uint32(len(data))}, ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	// In a second section with the same interfaces, the first one's lane is reused.
	cfg := defaultConfig(t, written(t, slices.Concat(file.Bytes(), file.Bytes())))
	result := replayed(t, cfg)
	if n := result.Counts.Rejected[aggregate.RejectOrphan]; n != 4 || result.Excess != 6 || !result.Conserved() {
		t.Errorf("%d orphans, %d excess reflections, %+v", n, result.Excess, result.Counts)
	}
	l, err := replay.NewLister(listConfig(t, new(bytes.Buffer)))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Run(t.Context(), cfg.Files); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	l.Counts().WriteText(&text)
	const want = "6 packets, 16 observations\n" +
		"  ok                       6\n" +
		"  orphans                  4 of the observations\n" +
		"  excess reflections       6, beyond 4 observations of one packet\n"
	if text.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &text, want)
	}
}

// TestPortsOfSections: an interface is one port in all sections of a file, and in all files of a
// folder.
func TestPortsOfSections(t *testing.T) {
	t.Parallel()
	one, two := section(t, 1, 1, 2), section(t, 2, 3, 4)
	unnamed, err := os.ReadFile(capturedAt(t, filepath.Join(t.TempDir(), "f"), 5))
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	for name, content := range map[string][]byte{"a": one, "b": two} {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, test := range map[string]struct {
		path string
		want []string
	}{
		"one section":           {written(t, one), []string{"up"}},
		"equal sections":        {written(t, slices.Concat(one, one)), []string{"up"}},
		"unnamed interfaces":    {written(t, slices.Concat(unnamed, unnamed)), []string{"up"}},
		"another interface":     {written(t, slices.Concat(one, unnamed)), []string{"up:eth0", "up:0"}},
		"two interfaces":        {written(t, two), []string{"up:eth0", "up:eth1"}},
		"two in later sections": {written(t, slices.Concat(one, two, one)), []string{"up:eth0", "up:eth1"}},
		"in later files":        {folder, []string{"up:eth0", "up:eth1"}},
	} {
		c, err := replay.Conform(t.Context(), replay.ConformConfig{
			Judge:  conform.Config{Decode: listConfig(t, new(bytes.Buffer)).Decode},
			Before: []string{written(t, two)}, After: []replay.PortCapture{{Port: "up", Path: test.path}},
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if diff := cmp.Diff(test.want, c.Ports); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestMalformedIsNotCut: a packet whose header claims more bytes than were sent does not shorten the
// compared part of the others.
func TestMalformedIsNotCut(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w := capture.NewWriter(&out, capture.Interface{Link: capture.LinkEthernet})
	malformed := tagged(3)
	malformed[20], malformed[21] = 5, 220 // the IP header's total length
	for i, data := range [][]byte{tagged(1), tagged(2), malformed} {
		if err := w.Write(&capture.Frame{Data: data, TimeNS: int64(i+1) * 1e9, WireLen: uint32(len(data))}, ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	path, cfg := written(t, out.Bytes()), listConfig(t, new(bytes.Buffer)).Decode
	c, err := replay.Conform(t.Context(), replay.ConformConfig{
		Judge: conform.Config{Decode: cfg}, Before: []string{path}, After: []replay.PortCapture{{Path: path}},
	})
	if err != nil || c.Cut != 0 || c.Counts.Before != 3 {
		t.Errorf("conform: %+v, %v", c, err)
	}
	if traced, err := replay.Trace(t.Context(), replay.TraceConfig{Files: []string{path, path}, Decode: cfg}); err != nil || traced.Packets != 6 {
		t.Errorf("trace: %+v, %v", traced, err)
	}
}

// TestEqualFileNames: captures that have one name in several folders are told apart by their paths.
func TestEqualFileNames(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w := capture.NewWriter(&out, capture.Interface{Link: capture.LinkEthernet})
	for i := range hop.MinPackets {
		data := tagged(1)
		data[23] = byte(i) // identification
		if err := w.Write(&capture.Frame{Data: data, TimeNS: int64(i+1) * 1e9, WireLen: uint32(len(data))}, ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, name := range []string{"in", "eth0.pcap", "eth0.pcap"} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	cfg := listConfig(t, new(bytes.Buffer)).Decode
	c, err := replay.Conform(t.Context(), replay.ConformConfig{
		Judge: conform.Config{Decode: cfg}, Before: paths[:1], After: replay.PortCaptures(paths[1:]),
	})
	if err != nil || !slices.Equal(c.Ports, paths[1:]) {
		t.Errorf("conform: ports %q, want %q; %v", c.Ports, paths[1:], err)
	}
	traced, err := replay.Trace(t.Context(), replay.TraceConfig{Files: paths, Decode: cfg})
	if err != nil {
		t.Fatal(err)
	}
	var got [][2]string
	for _, h := range traced.Located(fabric.None(nil)) {
		got = append(got, [2]string{h.From, h.To})
	}
	want := [][2]string{{"in", paths[1]}, {"in", paths[2]}, {paths[1], paths[2]}}
	if !slices.Equal(got, want) {
		t.Errorf("trace: %q, want %q", got, want)
	}
}
