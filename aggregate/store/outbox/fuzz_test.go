package outbox

import (
	"bytes"
	"path/filepath"
	"testing"
)

// FuzzSegment opens a log with any bytes as a segment. Each returned record is a complete part of
// the bytes, and reading terminates.
func FuzzSegment(f *testing.F) {
	_, fsys := smallLog(f, true)
	for _, name := range fsys.segments() {
		data := fsys.files[name].data
		f.Add(data)
		f.Add(data[:len(data)-30])
		f.Add(append(bytes.Clone(data[:40]), data...))
		flipped := bytes.Clone(data)
		flipped[headerSize+20] ^= 4
		f.Add(flipped)
	}
	f.Add(bytes.Repeat([]byte(magic), 100))
	f.Fuzz(func(t *testing.T, data []byte) {
		fsys := newFakeFS()
		fsys.files[filepath.Join(testDir, segmentName(1))] = &fakeFile{data: data, synced: len(data)}
		l, err := newHistory(t).open(fsys)
		if err != nil {
			return
		}
		last := map[int]uint64{}
		for {
			e, ok, err := l.Next(nil)
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			if was := last[e.Class]; was != 0 && e.First != was+1 || e.Last < e.First {
				t.Fatalf("%d to %d of class %d after %d", e.First, e.Last, e.Class, was)
			}
			if last[e.Class] = e.Last; e.Lost == "" && !bytes.Contains(data, append(bytes.Clone(e.Label), e.Payload...)) && e.Label != nil {
				t.Fatalf("record %d is not in the segment", e.First)
			}
			l.Ack(&e)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzPosition reads any bytes as a position.
func FuzzPosition(f *testing.F) {
	_, fsys := smallLog(f, true)
	f.Add(fsys.files[filepath.Join(testDir, positionName)].data)
	f.Add([]byte("null\n5d1e1c8f\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		fsys := newFakeFS()
		fsys.files[filepath.Join(testDir, positionName)] = &fakeFile{data: data, synced: len(data)}
		l, err := newHistory(t).open(fsys)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Append(Record{Class: 0, Weight: 1, Payload: []byte("a record")}); err != nil {
			t.Fatal(err)
		}
	})
}
