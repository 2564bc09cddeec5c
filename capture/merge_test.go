package capture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func pcapAt(t *testing.T, cut int, secs ...uint32) *Reader {
	t.Helper()
	p := newPcap(binary.LittleEndian, magicMicros, 0, 1)
	for _, s := range secs {
		p.add(s, 0, 4, []byte("data"))
	}
	r, err := NewReader(bytes.NewReader(p.buf[:len(p.buf)-cut]), "x", Options{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// merged formats a merger's results: reader@seconds, or reader!error.
func merged(t *testing.T, m *Merger) []string {
	t.Helper()
	var got []string
	for {
		f, i, err := m.Next()
		var cut *CutError
		switch {
		case errors.Is(err, io.EOF):
			if f != nil || i != -1 {
				t.Errorf("end with frame %v of reader %d", f, i)
			}
			if _, i, err = m.Next(); i != -1 || !errors.Is(err, io.EOF) {
				t.Errorf("after the end: reader %d, %v", i, err)
			}
			return got
		case errors.As(err, &cut):
			got = append(got, fmt.Sprintf("%d!cut", i))
		case err != nil:
			t.Fatal(err)
		case f.NoTime:
			got = append(got, fmt.Sprintf("%d@-", i))
		default:
			got = append(got, fmt.Sprintf("%d@%d", i, f.TimeNS/1e9))
		}
	}
}

func TestMerger(t *testing.T) {
	untimed := func() *Reader {
		n := (&ngBytes{}).section(binary.LittleEndian).iface(1, 0).
			enhanced(0, 3e6, 1, []byte{1}).simple(1, []byte{1}).enhanced(0, 9e6, 1, []byte{1})
		r, err := NewReader(bytes.NewReader(n.buf), "x", Options{})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	// Times before 1970 distinguish a frame without time from one with time 0.
	early := func(secs ...uint64) *Reader {
		n := (&ngBytes{}).section(binary.LittleEndian)
		n.iface(1, 0, n.option(optOffset, binary.LittleEndian.AppendUint64(nil, ^uint64(9))))
		for i, s := range secs {
			if n.enhanced(0, s*1e6, 1, []byte{1}); i == 0 {
				n.simple(1, []byte{1})
			}
		}
		r, err := NewReader(bytes.NewReader(n.buf), "x", Options{})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	tests := []struct {
		name    string
		readers []*Reader
		want    []string
	}{
		{"none", nil, nil},
		{"empty", []*Reader{pcapAt(t, 0), pcapAt(t, 0)}, nil},
		{"interleaved", []*Reader{pcapAt(t, 0, 1, 4, 5), pcapAt(t, 0, 2, 3, 6), pcapAt(t, 0, 0, 9)}, []string{"2@0", "0@1", "1@2", "1@3", "0@4", "0@5", "1@6", "2@9"}},
		{"ties by reader", []*Reader{pcapAt(t, 0, 1, 1), pcapAt(t, 0, 1)}, []string{"0@1", "0@1", "1@1"}},
		{"backwards in one file", []*Reader{pcapAt(t, 0, 5, 2, 7), pcapAt(t, 0, 6)}, []string{"0@5", "0@2", "1@6", "0@7"}},
		{"without time", []*Reader{pcapAt(t, 0, 2, 4), untimed()}, []string{"0@2", "1@3", "1@-", "0@4", "1@9"}},
		{"without time, before 1970", []*Reader{early(2, 6), early(3, 4)}, []string{"0@-8", "0@-", "1@-7", "1@-", "1@-6", "0@-4"}},
		{"a cut file", []*Reader{pcapAt(t, 0, 2, 4), pcapAt(t, 1, 1, 3), pcapAt(t, 1, 3)}, []string{"2!cut", "1@1", "1!cut", "0@2", "0@4"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, merged(t, NewMerger(tt.readers...))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestMergerKeepsFrames reads across many batches: a frame must not change until the next call,
// even if it is the last of its batch.
func TestMergerKeepsFrames(t *testing.T) {
	var readers []*Reader
	for k := range 3 {
		p := newPcap(binary.LittleEndian, magicMicros, 0, 1)
		for i := range 2000 {
			sec := uint32(3*i + k)
			p.add(sec, 0, 4, binary.LittleEndian.AppendUint32(nil, sec))
		}
		r, err := NewReader(bytes.NewReader(p.buf), "x", Options{ReadBuffer: 4096})
		if err != nil {
			t.Fatal(err)
		}
		readers = append(readers, r)
	}
	m := NewMerger(readers...)
	for want := range uint32(6000) {
		f, i, err := m.Next()
		if err != nil {
			t.Fatal(err)
		}
		if got := binary.LittleEndian.Uint32(f.Data); got != want || i != int(want%3) || f.TimeNS != int64(want)*1e9 {
			t.Fatalf("frame %d of reader %d at %d, want %d", got, i, f.TimeNS, want)
		}
	}
}
