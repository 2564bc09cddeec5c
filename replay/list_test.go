package replay_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay"
)

// tagged returns a frame with a compact tag (draft-ravi-ippm-csig-01 section 4.1) with locator lm,
// before an IPv4 header.
func tagged(lm byte) []byte {
	f := []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x99, 0x00, 0x28, lm & 0x7f, 0x08, 0x00}
	return append(f, 0x45, 0, 0, 20, 0, 0, 0, 0, 64, 253, 0, 0, 10, 0, 0, 1, 10, 0, 1, 1)
}

// capturedAt writes a pcapng file with a tagged frame at each of the given seconds. The frame's
// locator is its second.
func capturedAt(t *testing.T, path string, seconds ...byte) string {
	t.Helper()
	var out bytes.Buffer
	w := capture.NewWriter(&out, capture.Interface{Link: capture.LinkEthernet})
	for _, s := range seconds {
		f := capture.Frame{Data: tagged(s), TimeNS: int64(s) * 1e9, WireLen: 38}
		if err := w.Write(&f, ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// listed has the fields that the tests read.
type listed struct {
	File   string `json:"file"`
	TimeNS int64  `json:"time_ns"`
	Packet uint64 `json:"packet"`
	LM     int    `json:"lm"`
}

// lines formats objects as file/packet@locator.
func lines(t *testing.T, out []byte) (got []string) {
	t.Helper()
	for line := range bytes.Lines(out) {
		var o listed
		if err := json.Unmarshal(line, &o); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if o.TimeNS != int64(o.LM)*1e9 {
			t.Errorf("locator %d at %d", o.LM, o.TimeNS)
		}
		name := o.File
		if name != "" {
			name = filepath.Base(name)
		}
		got = append(got, fmt.Sprintf("%s/%d@%d", name, o.Packet, o.LM))
	}
	return got
}

func listConfig(t *testing.T, out *bytes.Buffer) replay.ListConfig {
	t.Helper()
	domain, err := csig.DefaultSpec().Compile()
	if err != nil {
		t.Fatal(err)
	}
	return replay.ListConfig{Decode: decode.Config{Domain: domain}, Out: out}
}

// Several captures are merged by time; only then do objects name their file.
func TestListMerges(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	files := []string{
		capturedAt(t, path("tap1-0"), 1, 4), capturedAt(t, path("tap1-1"), 6, 9),
		capturedAt(t, path("tap2-0"), 2, 3, 7), capturedAt(t, path(`tap2 "1"`), 8),
	}
	alone := filepath.Join(t.TempDir(), "folder")
	if err := os.Mkdir(alone, 0o700); err != nil {
		t.Fatal(err)
	}
	capturedAt(t, filepath.Join(alone, "only"), 5)
	want := []string{
		"tap1-0/1@1", "tap2-0/1@2", "tap2-0/2@3", "tap1-0/2@4", "tap1-1/1@6", "tap2-0/3@7", `tap2 "1"/1@8`, "tap1-1/2@9",
	}
	for name, test := range map[string]struct {
		paths, want []string
	}{
		"one file":       {files[2:3], []string{"/1@2", "/2@3", "/3@7"}},
		"files":          {files, want},
		"folder":         {[]string{dir}, want},
		"folder of one":  {[]string{alone}, []string{"only/1@5"}},
		"folder, file":   {[]string{alone, files[0]}, []string{"tap1-0/1@1", "tap1-0/2@4", "only/1@5"}},
		"one is left":    {[]string{path("none"), files[3]}, []string{`tap2 "1"/1@8`}},
		"one is missing": {[]string{files[0], path("none"), files[2]}, []string{"tap1-0/1@1", "tap2-0/1@2", "tap2-0/2@3", "tap1-0/2@4", "tap2-0/3@7"}},
	} {
		t.Run(name, func(t *testing.T) {
			var out, copied bytes.Buffer
			cfg := listConfig(t, &out)
			cfg.Annotate = &copied
			l, err := replay.NewLister(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Run(t.Context(), test.paths); errors.Is(err, fs.ErrNotExist) != slices.Contains(test.paths, path("none")) {
				t.Error(err)
			}
			if diff := cmp.Diff(test.want, lines(t, out.Bytes())); diff != "" {
				t.Error(diff)
			}
			if c := l.Counts(); c.Observations != uint64(len(test.want)) || c.Deferred != 0 {
				t.Errorf("counts %+v", c)
			}
			checkCopy(t, &copied, test.want)
		})
	}
}

// checkCopy reads an annotated copy: the same packets in the same order, each on an interface that
// names its file.
func checkCopy(t *testing.T, copied *bytes.Buffer, want []string) {
	t.Helper()
	r, err := capture.NewReader(copied, "copy", capture.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var batch capture.Batch
	if err := r.ReadBatch(&batch); err != nil || batch.N != len(want) {
		t.Fatalf("%d packets, want %d: %v", batch.N, len(want), err)
	}
	for i := range batch.N {
		f := &batch.Frames[i]
		of := filepath.Base(r.Interfaces()[f.Interface].Description)
		if of == "." {
			of = ""
		}
		if name, _, _ := strings.Cut(want[i], "/"); name != of || !slices.Equal(f.Data, tagged(byte(f.TimeNS/1e9))) {
			t.Errorf("packet %d is of %q, want %q", i+1, of, name)
		}
	}
}
