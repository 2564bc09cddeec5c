package capture

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// watched is a rotation of files that the test writes.
type watched struct {
	t      *testing.T
	dir    string
	events chan string
	end    chan error
	cancel context.CancelFunc
}

// watch follows a path below a new directory with the given files. It records frames as name@second
// and errors as name!reason.
func watch(t *testing.T, path string, files map[string][]byte) *watched {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &watched{t: t, dir: folder(t, files), events: make(chan string, 1000), end: make(chan error, 1), cancel: cancel}
	r, err := FollowRotation(ctx, filepath.Join(w.dir, path), Options{Poll: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	go func() { w.end <- w.run(r) }()
	return w
}

func (w *watched) run(r *Rotation) error {
	defer r.Close()
	var b Batch
	for {
		reader, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			for err == nil {
				if err = reader.ReadBatch(&b); err == nil {
					for i := range b.N {
						w.events <- fmt.Sprintf("%s@%d", filepath.Base(reader.Name()), binary.LittleEndian.Uint32(b.Frames[i].Data))
					}
				}
			}
			if errors.Is(err, io.EOF) {
				continue
			}
		}
		what := "?" + err.Error()
		for text, sentinel := range map[string]error{"missed": ErrMissed, "compressed": ErrCompressed, "shrunk": ErrShrunk} {
			if errors.Is(err, sentinel) {
				what = text
			}
		}
		if _, name, ok := strings.Cut(err.Error(), w.dir+"/"); ok {
			name, _, _ = strings.Cut(name, `"`)
			what = name + "!" + what
		}
		w.events <- what
	}
}

// saw waits for two polls and compares the events since the last call.
func (w *watched) saw(want ...string) {
	w.t.Helper()
	time.Sleep(2 * time.Second)
	synctest.Wait()
	if diff := cmp.Diff(want, drained(w.events)); diff != "" {
		w.t.Error(diff)
	}
}

func (w *watched) stop() {
	w.cancel()
	if err := <-w.end; err != nil {
		w.t.Errorf("stopped with %v", err)
	}
}

func (w *watched) path(name string) string { return filepath.Join(w.dir, name) }

func (w *watched) write(name string, data []byte) {
	w.t.Helper()
	if err := os.WriteFile(w.path(name), data, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func (w *watched) append(name string, data []byte) {
	w.t.Helper()
	f, err := os.OpenFile(w.path(name), os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		_, err = f.Write(data)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *watched) do(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// more returns the records of packets without a file header.
func more(secs ...uint32) []byte { return at(secs...)[classicFileHeader:] }

// TestRotationOfFolder follows new files as dumpcap -b and tcpdump -G create them.
func TestRotationOfFolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, "", map[string][]byte{"b": at(1, 2), "a": at(5), "notes": []byte("of no matter here"), "header": at()})
		w.saw("b@1", "b@2", "a@5")
		w.append("a", more(6))
		w.saw("a@6")
		w.write("c", nil) // created, nothing flushed yet
		w.saw()
		w.append("a", more(7))
		w.saw("a@7")
		w.append("c", at())
		w.saw()
		w.append("a", more(8)[:9])
		w.saw()
		w.append("a", more(8)[9:])
		w.append("c", more(9))
		w.saw("a@8", "c@9")
		w.do(os.Remove(w.path("b"))) // dumpcap -b files:N
		w.append("c", more(10))
		w.saw("c@10")
		w.write("e", at(13))
		w.write("d", at(12))
		w.saw("d@12", "e@13")
		w.append("header", more(14)) // after a quiet hour
		w.saw("header@14")
		w.stop()
	})
}

// TestRotationOfRing rewrites the files of a ring in place, like tcpdump -W.
func TestRotationOfRing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, "", map[string][]byte{"f0": at(1, 2)})
		w.saw("f0@1", "f0@2")
		w.write("f1", at(3, 4))
		w.saw("f1@3", "f1@4")
		w.write("f0", at(5, 6)) // same length as before
		w.saw("f0@5", "f0@6")
		w.write("f1", nil)
		w.saw()
		w.append("f1", at(7))
		w.saw("f1@7")
		w.write("f1", at(8, 9)) // a ring of one file, longer at once
		w.saw("f1!shrunk", "f1@8", "f1@9")
		w.stop()
	})
}

// TestRotationOfFile replaces a file under its name in every way.
func TestRotationOfFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, "f", map[string][]byte{"f": nil, "other": at(99)})
		w.saw()
		w.append("f", at(1)[:30])
		w.saw()
		w.append("f", at(1)[30:])
		w.saw("f@1")
		w.do(os.Rename(w.path("f"), w.path("f.1")))
		w.append("f.1", more(2))
		w.saw("f@2")
		w.write("f", at(3))
		w.append("f.1", more(4))
		w.saw("f@4", "f@3")
		w.do(os.Remove(w.path("f")))
		w.saw()
		w.write("f", at(5))
		w.saw("f@5")
		w.do(os.Truncate(w.path("f"), 0))
		w.saw("f!shrunk")
		w.append("f", at(6))
		w.saw("f@6")
		w.stop()
	})
}

// TestRotationMisses expects reports about files that are not read.
func TestRotationMisses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, "", map[string][]byte{"a": at(1), "old.gz": zipped(t, at(0))})
		w.saw("old.gz!compressed", "a@1")
		w.write("b", at(2))
		w.saw("b@2")
		w.append("a", more(3)) // a second program
		w.write("b.gz", zstded(t, at(2)))
		w.saw()
		w.append("a", more(4))
		w.write("c", at(5))
		w.append("c", []byte{1, 2, 3})
		w.saw("b.gz!compressed", "a!missed", "c@5")
		w.write("d", at(6))
		w.saw("c!?"+cutText(w.path("c")), "d@6")
		w.append("c", make([]byte, 99)) // it is known that c is not read in full
		w.write("e", at(7))
		w.saw("e@7")
		w.stop()
	})
}

func cutText(path string) string {
	e := CutError{File: path, Offset: 44, Packets: 1, Want: 16, Have: 3, What: "record header"}
	return e.Error()
}

// TestRotationLosesFile removes a file before its turn.
func TestRotationLosesFile(t *testing.T) {
	dir := folder(t, map[string][]byte{"a": at(1), "b": at(2)})
	r, err := FollowRotation(t.Context(), dir, Options{Poll: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if first, err := r.Next(); err != nil || filepath.Base(first.Name()) != "a" {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(filepath.Join(dir, "b")), r.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Next(); !errors.Is(err, ErrMissed) || !strings.Contains(err.Error(), "removed") {
		t.Errorf("error %v, want ErrMissed", err)
	}
}

func TestFollowRotationRefuses(t *testing.T) {
	follow := func(path string) error {
		_, err := FollowRotation(t.Context(), path, Options{})
		return err
	}
	var format *FormatError
	if err := follow(writeFile(t, "f", []byte("what is this, no capture?"))); !errors.As(err, &format) {
		t.Errorf("no capture: %v", err)
	}
	if err := follow(writeFile(t, "f", zstded(t, at(1, 2, 3)))); !errors.Is(err, ErrCompressed) {
		t.Errorf("compressed: %v", err)
	}
	if err := follow(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	gone := t.TempDir()
	r, err := FollowRotation(t.Context(), gone, Options{})
	if err == nil {
		err = os.Remove(gone)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Next(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("folder removed: %v", err)
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("afterwards: %v", err)
	}
}

// TestRotationGrowsLate writes to a capture between its end and the start of the next one.
func TestRotationGrowsLate(t *testing.T) {
	w := &watched{t: t, dir: folder(t, map[string][]byte{"a": at(1), "b": at(2)})}
	r, err := FollowRotation(t.Context(), w.dir, Options{Poll: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	first, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	if got := mustDrain(t, first); len(got) != 1 {
		t.Errorf("%d packets", len(got))
	}
	w.append("a", more(3))
	if _, err := r.Next(); !errors.Is(err, ErrMissed) || !strings.Contains(err.Error(), "grew") {
		t.Errorf("error %v, want ErrMissed", err)
	}
	if second, err := r.Next(); err != nil || filepath.Base(second.Name()) != "b" {
		t.Errorf("the next capture: %v", err)
	}
}

// overwrite writes a file in place. The file system's clock may be too coarse to show it.
func (w *watched) overwrite(name string, data []byte) {
	w.t.Helper()
	w.write(name, data)
	w.do(os.Chtimes(w.path(name), time.Time{}, time.Unix(int64(len(data))+1e6, 0)))
}

// next returns the first frames of the next capture, or the reason why there is none.
func (w *watched) next(r *Rotation) string {
	w.t.Helper()
	var b Batch
	reader, err := r.Next()
	if err == nil {
		err = reader.ReadBatch(&b)
	}
	if err != nil {
		return err.Error()[strings.LastIndex(err.Error(), ": ")+2:]
	}
	what := filepath.Base(reader.Name())
	for _, f := range b.Frames[:b.N] {
		what += fmt.Sprintf("@%d", binary.LittleEndian.Uint32(f.Data))
	}
	return what
}

// TestRotationOverwrites begins a file again before its turn, as in a ring that is read too slowly.
func TestRotationOverwrites(t *testing.T) {
	const lost = "it was overwritten before it was read"
	for name, test := range map[string]struct {
		change func(w *watched)
		want   []string
	}{
		"again":   {func(w *watched) { w.overwrite("b", at(5)) }, []string{lost, "c@3", "b@5"}},
		"at once": {func(w *watched) { w.overwrite("b", at(5, 6, 7)) }, []string{lost, "c@3", "b@5@6@7"}},
		"replaced": {func(w *watched) {
			w.write(".new", at(5))
			w.do(os.Rename(w.path(".new"), w.path("b")))
		}, []string{lost, "c@3", "b@5"}},
		"without a packet yet": {func(w *watched) { w.overwrite("b", at()) }, []string{lost, "c@3"}},
		"empty":                {func(w *watched) { w.overwrite("b", nil) }, []string{lost, "c@3"}},
		"grown":                {func(w *watched) { w.append("b", more(5)) }, []string{"b@2@5", "c@3"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := &watched{t: t, dir: folder(t, map[string][]byte{"a": at(1), "b": at(2), "c": at(3)})}
			r, err := FollowRotation(t.Context(), w.dir, Options{Poll: time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			got := []string{w.next(r)}
			test.change(w)
			for range test.want {
				got = append(got, w.next(r))
			}
			if diff := cmp.Diff(append([]string{"a@1"}, test.want...), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestRotationBeginsAgain begins a capture again between its end and the next one.
func TestRotationBeginsAgain(t *testing.T) {
	for _, again := range [][]byte{at(3), at(3)[:30], at(3, 4)} {
		w := &watched{t: t, dir: folder(t, map[string][]byte{"a": at(1), "b": at(2)})}
		r, err := FollowRotation(t.Context(), w.dir, Options{Poll: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		first, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if got := mustDrain(t, first); len(got) != 1 {
			t.Errorf("%d packets", len(got))
		}
		w.overwrite("a", again)
		got := []string{w.next(r)}
		w.overwrite("a", at(3, 4))
		if diff := cmp.Diff([]string{"b@2", "a@3@4"}, append(got, w.next(r))); diff != "" {
			t.Errorf("%d bytes: %s", len(again), diff)
		}
	}
}
