package capture

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// growing is a capture file that the test writes while it is followed.
type growing struct {
	t    *testing.T
	path string
	file *os.File
}

func newGrowing(t *testing.T) *growing {
	t.Helper()
	g := &growing{t: t, path: filepath.Join(t.TempDir(), "f.pcap")}
	g.create()
	return g
}

func (g *growing) create() {
	g.t.Helper()
	f, err := os.OpenFile(g.path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = f.Close() })
	g.file = f
}

func (g *growing) write(p []byte) {
	g.t.Helper()
	if _, err := g.file.Write(p); err != nil {
		g.t.Fatal(err)
	}
}

// follow reads the file in a goroutine and sends its frames to the channel.
func (g *growing) follow(ctx context.Context) (frames chan string, end chan error) {
	frames, end = make(chan string, 1000), make(chan error, 1)
	go func() {
		r, err := Follow(ctx, g.path, Options{Poll: time.Second})
		if err != nil {
			end <- err
			return
		}
		var b Batch
		for err == nil {
			err = r.ReadBatch(&b)
			for _, f := range b.Frames[:b.N] {
				frames <- string(f.Data)
			}
		}
		if r.Size() != -1 {
			err = errors.New("a followed file has a size")
		}
		_ = r.Close() // read-only
		end <- err
	}()
	return frames, end
}

func drained(c chan string) []string {
	var got []string
	for len(c) > 0 {
		got = append(got, <-c)
	}
	return got
}

// pieces returns a file header and two records, the second in two halves.
func pieces() (head, first, half, rest []byte) {
	le := binary.LittleEndian
	p := newPcap(le, magicNanos, 0, 1)
	n := len(p.buf)
	p.add(1, 0, 5, []byte("first")).add(2, 0, 6, []byte("second"))
	record := n + classicRecordHeader + 5
	return p.buf[:n], p.buf[n:record], p.buf[record : record+18], p.buf[record+18:]
}

// TestFollowGrowingFile writes a file piece by piece, starting empty: frames must arrive within one
// poll after they are complete, and stopping must end cleanly.
func TestFollowGrowingFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGrowing(t)
		ctx, cancel := context.WithCancel(t.Context())
		frames, end := g.follow(ctx)
		head, first, half, rest := pieces()
		for i, step := range []struct {
			add  []byte
			want []string
		}{
			{nil, nil},
			{head[:3], nil},
			{head[3:], nil},
			{first, []string{"first"}},
			{half, nil},
			{nil, nil},
			{rest, []string{"second"}},
			{slices.Concat(first, first, half), []string{"first", "first"}},
		} {
			g.write(step.add)
			time.Sleep(time.Second)
			synctest.Wait()
			if got := drained(frames); !slices.Equal(got, step.want) {
				t.Errorf("step %d: %q, want %q", i, got, step.want)
			}
		}
		cancel()
		synctest.Wait()
		if err := <-end; !errors.Is(err, io.EOF) {
			t.Errorf("stopped with %v, want io.EOF", err)
		}
	})
}

// TestFollowStopsBeforeHeader stops a reader whose file stays empty.
func TestFollowStopsBeforeHeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGrowing(t)
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		if _, end := g.follow(ctx); !errors.Is(<-end, context.DeadlineExceeded) {
			t.Error("Follow did not end with the error of its context")
		}
	})
}

// TestFollowRotation renames the file: the reader must read everything written to it until its
// successor exists, then end.
func TestFollowRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGrowing(t)
		head, first, half, rest := pieces()
		g.write(slices.Concat(head, first))
		frames, end := g.follow(t.Context())
		synctest.Wait()
		if err := os.Rename(g.path, g.path+".1"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		g.write(half)
		time.Sleep(5 * time.Second)
		g.write(rest)
		g.create()
		synctest.Wait()
		if err := <-end; !errors.Is(err, io.EOF) {
			t.Errorf("rotated: %v, want io.EOF", err)
		}
		if got := drained(frames); !slices.Equal(got, []string{"first", "second"}) {
			t.Errorf("frames %q", got)
		}

		g.write(slices.Concat(head, half))
		_, end = g.follow(t.Context())
		synctest.Wait()
		if err := os.Remove(g.path); err != nil {
			t.Fatal(err)
		}
		g.create()
		var cut *CutError
		if err := <-end; !errors.As(err, &cut) || cut.Have != len(half) {
			t.Errorf("rotated inside a record: %v, want a *CutError", err)
		}
	})
}

// TestFollowOutgrown rewrites the file in place between two polls, beyond the part already read:
// none of the new content may count as the old file's.
func TestFollowOutgrown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGrowing(t)
		g.write(at(1))
		frames, end := g.follow(t.Context())
		synctest.Wait()
		if err := g.file.Truncate(0); err != nil {
			t.Fatal(err)
		}
		g.write(at(2, 3, 4))
		if err := <-end; !errors.Is(err, ErrShrunk) {
			t.Errorf("error %v, want ErrShrunk", err)
		}
		if got := drained(frames); len(got) != 1 {
			t.Errorf("%d frames, want the first alone", len(got))
		}
	})
}

// TestFollowShrunk truncates the file in place.
func TestFollowShrunk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGrowing(t)
		head, first, _, _ := pieces()
		g.write(slices.Concat(head, first))
		_, end := g.follow(t.Context())
		synctest.Wait()
		if err := g.file.Truncate(int64(len(head))); err != nil {
			t.Fatal(err)
		}
		if err := <-end; !errors.Is(err, ErrShrunk) {
			t.Errorf("error %v, want ErrShrunk", err)
		}
	})
}

func TestFollowRefuses(t *testing.T) {
	if _, err := Follow(t.Context(), t.TempDir(), Options{}); !errors.Is(err, ErrDirectory) {
		t.Errorf("directory: %v", err)
	}
	if _, err := Follow(t.Context(), filepath.Join(t.TempDir(), "none"), Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	if _, err := Follow(t.Context(), writeFile(t, "f.gz", zipped(t, at(1))), Options{}); !errors.Is(err, ErrCompressed) {
		t.Errorf("compressed: %v", err)
	}
	var format *FormatError
	if _, err := Follow(t.Context(), writeFile(t, "f", []byte("what is this")), Options{}); !errors.As(err, &format) {
		t.Errorf("no capture: %v", err)
	}
}
