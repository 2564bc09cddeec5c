package capture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// folder writes files into a new directory.
func folder(t *testing.T, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// at returns a pcap file with a packet at each of the given seconds.
func at(secs ...uint32) []byte {
	p := newPcap(binary.LittleEndian, magicMicros, 0, 1)
	for _, s := range secs {
		p.add(s, 0, 4, binary.LittleEndian.AppendUint32(nil, s))
	}
	return p.buf
}

func TestFilesOfDirectory(t *testing.T) {
	untimed := (&ngBytes{}).section(binary.LittleEndian).iface(1, 0).simple(4, pattern(4, 1)).buf
	second := (&ngBytes{}).section(binary.BigEndian).iface(1, 0).simple(4, pattern(4, 1)).enhanced(0, 25e6, 4, pattern(4, 1)).buf
	broken := zipped(t, at(1))
	broken[3] = 0xff // a header flag that turns the rest into a name
	dir := folder(t, map[string][]byte{
		"tap.pcap": at(30, 31), "tap.pcap1": at(10, 11), "tap.pcap2": zipped(t, at(20, 50)), "tap.pcap10": zstded(t, at(40)),
		"b.pcapng": second, "a.pcapng": untimed, "same-b": at(30), "same-a": at(30),
		"cut": at(15)[:42], "header": at(), "half-a-header": at()[:20], "broken.gz": broken[:12],
		"truth.ndjson": []byte(`{"window":1}`), "README": nil, "new.pcap": nil, "bad.pcap3.gz": []byte("no capture"), ".hidden": at(1), "log.gz": zipped(t, []byte("a line of a log\n")),
	})
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "tap.pcap10"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", filepath.Join(dir, "dangling")); err != nil {
		t.Fatal(err)
	}
	got, damaged, err := Files(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(damaged...); len(damaged) != 1 || !strings.Contains(err.Error(), "bad.pcap3.gz") {
		t.Errorf("damaged: %v", err)
	}
	for i := range got {
		if filepath.Dir(got[i]) != dir {
			t.Errorf("path %q", got[i])
		}
		got[i] = filepath.Base(got[i])
	}
	want := []string{
		"tap.pcap1", "tap.pcap2", "b.pcapng", "same-a", "same-b", "tap.pcap", "link", "tap.pcap10",
		"a.pcapng", "broken.gz", "cut", "half-a-header", "header",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestFilesOfOther(t *testing.T) {
	file := writeFile(t, "notes.txt", []byte("no capture"))
	for _, path := range []string{"-", file} {
		if got, _, err := Files(path); err != nil || !slices.Equal(got, []string{path}) {
			t.Errorf("Files(%q): %v, %v", path, got, err)
		}
	}
	if _, _, err := Files(filepath.Dir(file)); !errors.Is(err, ErrNoCaptures) {
		t.Errorf("directory without captures: %v", err)
	}
	if _, _, err := Files(file + "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
}

// TestMergeFiles merges two taps with rotated files, and checks that each file is opened when due
// and closed at its end.
func TestMergeFiles(t *testing.T) {
	dir := folder(t, map[string][]byte{
		"a0": at(1, 4), "a1": at(6, 9), "a2": at(12, 15),
		"b0": zipped(t, at(2, 7)), "b1": zstded(t, at(7, 13)), "late": at(20)[:42], "none": at(),
	})
	paths, _, err := Files(dir)
	if err != nil {
		t.Fatal(err)
	}
	m := MergeFiles(paths, Options{})
	if ended(m) != nil {
		t.Error("files have ended before they were read")
	}
	var got []string
	for {
		frame, i, err := m.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		name := filepath.Base(paths[i])
		var cut *CutError
		switch {
		case errors.As(err, &cut):
			got = append(got, name+"!cut")
			continue
		case err != nil:
			t.Fatal(err)
		}
		if sec := int64(binary.LittleEndian.Uint32(frame.Data)); sec*1e9 != frame.TimeNS {
			t.Errorf("data of second %d at %d", sec, frame.TimeNS)
		}
		for _, i := range ended(m) {
			got = append(got, filepath.Base(paths[i])+" ends")
		}
		got = append(got, fmt.Sprintf("%s@%d:%s", name, frame.TimeNS/1e9, opened(m, paths)))
	}
	for _, i := range ended(m) {
		got = append(got, filepath.Base(paths[i])+" ends")
	}
	want := []string{
		"a0@1:a0", "b0@2:a0,b0", "a0@4:a0,b0", "a0 ends", "a1@6:b0,a1", "b0@7:b0,a1,b1", "b0 ends", "b1@7:a1,b1",
		"a1@9:a1,b1", "a1 ends", "a2@12:b1,a2", "b1@13:b1,a2", "b1 ends", "a2@15:a2", "late!cut", "none ends", "late ends", "a2 ends",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if c := m.Reader(0).Counters(); c.Packets != 2 || len(m.Reader(0).Interfaces()) != 1 || m.Reader(0).Offset() != 64 {
		t.Errorf("after its end, %+v, offset %d", c, m.Reader(0).Offset())
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

// opened lists the open files in the order of paths.
func opened(m *Merger, paths []string) string {
	var names []string
	for i := range m.inputs {
		if m.inputs[i].owned {
			names = append(names, filepath.Base(paths[i]))
		}
	}
	return strings.Join(names, ",")
}

func TestMergeFilesClose(t *testing.T) {
	dir := folder(t, map[string][]byte{"a": at(1, 2, 3), "b": at(2, 3), "c": at(9)})
	paths, _, err := Files(dir)
	if err != nil {
		t.Fatal(err)
	}
	m := MergeFiles(paths, Options{})
	for range 2 {
		if _, _, err := m.Next(); err != nil {
			t.Fatal(err)
		}
	}
	first := m.Reader(0)
	if m.Reader(2) != nil || opened(m, paths) != "a,b" {
		t.Errorf("open: %s", opened(m, paths))
	}
	if err := m.Close(); err != nil || first.Close() == nil || opened(m, paths) != "" {
		t.Errorf("Close: %v, still open: %s", err, opened(m, paths))
	}
	if _, i, err := m.Next(); i != -1 || !errors.Is(err, io.EOF) {
		t.Errorf("Next after Close: %d, %v", i, err)
	}
}

// ended collects the results of Ended.
func ended(m *Merger) (inputs []int) {
	for {
		i, ok := m.Ended()
		if !ok {
			return inputs
		}
		inputs = append(inputs, i)
	}
}

// TestMergeFilesErrors merges one readable and several unreadable files: these are reported first
// and do not stop the reading.
func TestMergeFilesErrors(t *testing.T) {
	good := writeFile(t, "good", at(1))
	foreign, missing, dir := writeFile(t, "f", []byte("no capture")), good+"x", t.TempDir()
	m := MergeFiles([]string{good, foreign, missing, dir}, Options{})
	var got []string
	for {
		frame, i, err := m.Next()
		var format *FormatError
		switch {
		case errors.Is(err, io.EOF):
			slices.Sort(got[:3])
			if diff := cmp.Diff([]string{"1 foreign", "2 missing", "3 directory", "0 frame"}, got); diff != "" {
				t.Error(diff)
			}
			if inputs := ended(m); len(inputs) != 4 {
				t.Errorf("ended: %v", inputs)
			}
			return
		case errors.As(err, &format):
			got = append(got, fmt.Sprint(i, " foreign"))
		case errors.Is(err, fs.ErrNotExist):
			got = append(got, fmt.Sprint(i, " missing"))
		case errors.Is(err, ErrDirectory):
			got = append(got, fmt.Sprint(i, " directory"))
		case frame != nil:
			got = append(got, fmt.Sprint(i, " frame"))
		}
	}
}

// TestMergeFilesRemoved removes a file between examining and reading it.
func TestMergeFilesRemoved(t *testing.T) {
	good := writeFile(t, "good", at(1))
	m := MergeFiles([]string{good}, Options{})
	if err := os.Remove(good); err != nil {
		t.Fatal(err)
	}
	if frame, i, err := m.Next(); frame != nil || i != 0 || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removed before its time: %d, %v", i, err)
	}
	if _, i, err := m.Next(); i != -1 || !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %d, %v", i, err)
	}
}

// TestMergeFilesMaxOpen merges more overlapping files than may be open: all frames are delivered,
// late for the files that had to wait.
func TestMergeFilesMaxOpen(t *testing.T) {
	dir := folder(t, map[string][]byte{"a": at(1, 9), "b": at(2, 4), "c": at(3, 5), "d": at(6)})
	paths, _, err := Files(dir)
	if err != nil {
		t.Fatal(err)
	}
	for limit, want := range map[int]string{
		0: "1 2 3 4 5 6 9", 3: "1 2 3 4 5 6 9", 2: "1 2 4 3 5 6 9", 1: "1 9 2 4 3 5 6",
	} {
		m := MergeFiles(paths, Options{MaxOpen: limit})
		var got []string
		for {
			frame, _, err := m.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if n := len(strings.Split(opened(m, paths), ",")); limit > 0 && n > limit {
				t.Errorf("limit %d: %d files are open", limit, n)
			}
			got = append(got, fmt.Sprint(frame.TimeNS/1e9))
		}
		if text := strings.Join(got, " "); text != want || (m.Deferred() > 0) != (limit == 1 || limit == 2) {
			t.Errorf("limit %d: %s, %d files had to wait, want %s", limit, text, m.Deferred(), want)
		}
	}
}
