// Package outboxtest damages the folder of an outbox in every way that a disk or a user can, for
// tests of packages that keep their records in one.
//
// It knows the layout of an outbox's files. It must never know the contents of a record.
package outboxtest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

const (
	headerSize = 92
	slotSize   = 4096
)

// Case is one kind of damage.
type Case struct {
	Name string
	// Harmless damage loses no record.
	Harmless bool
	// Damage changes the files of a folder that has at least three segments.
	Damage func(dir string) error
}

// Cases returns all kinds of damage: to the first segment, one in the middle and the last one, to
// the position, and to the lock.
func Cases() []Case {
	var list []Case
	for at, name := range []string{"first", "middle", "last"} {
		for _, op := range segmentOps {
			list = append(list, Case{"segment/" + name + "/" + op.name, op.harmless, func(dir string) error {
				files, err := Segments(dir)
				if err != nil {
					return err
				}
				i := at * (len(files) - 1) / 2
				return op.do(&target{dir, files, i})
			}})
		}
	}
	for _, op := range positionOps {
		list = append(list, Case{"position/" + op.name, true, func(dir string) error {
			return edit(filepath.Join(dir, "position"), op.do)
		}})
	}
	remove := func(name string) func(string) error {
		return func(dir string) error { return os.Remove(filepath.Join(dir, name)) }
	}
	return append(
		list,
		Case{"position/missing", true, remove("position")},
		Case{"position/swapped with a segment", false, func(dir string) error {
			files, err := Segments(dir)
			if err != nil {
				return err
			}
			return swap(filepath.Join(dir, "position"), files[0])
		}},
		Case{"lock/missing", true, remove("lock")},
		Case{"lock/garbage", true, func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "lock"), bytes.Repeat([]byte{0xff}, 100), 0o600)
		}},
	)
}

// Segments returns the segment files, oldest first.
func Segments(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.seg"))
	if err == nil && len(files) == 0 {
		err = errors.New("no segments")
	}
	slices.Sort(files)
	return files, err
}

// Last finds the record with the highest number among those whose payload want accepts, in a
// folder that another process may be writing to; 0 for none.
func Last(dir string, want func(payload []byte) bool) (number uint64, payload []byte) {
	files, _ := Segments(dir)
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // acknowledged meanwhile
		}
		for at := 0; at+headerSize <= len(b); {
			label := at + headerSize
			body := label + int(binary.LittleEndian.Uint32(b[at+8:]))
			end := body + int(binary.LittleEndian.Uint32(b[at+12:]))
			if end > len(b) {
				break
			}
			if seq := binary.LittleEndian.Uint64(b[at+24:]); seq > number && want(b[body:end]) {
				number, payload = seq, b[body:end]
			}
			at = end
		}
	}
	return number, payload
}

// target is the segment to damage.
type target struct {
	dir   string
	files []string
	i     int
}

func (t *target) name() string { return t.files[t.i] }

var segmentOps = []struct {
	name     string
	harmless bool
	do       func(*target) error
}{
	{"flip in a header", false, record(func(b []byte, at extent) []byte { return flip(b, at.from+30) })},
	{"flip in the magic", false, record(func(b []byte, at extent) []byte { return flip(b, at.from) })},
	{"flip in a label", true, record(func(b []byte, at extent) []byte { return flip(b, at.from+headerSize) })},
	{"flip in a payload", false, record(func(b []byte, at extent) []byte { return flip(b, at.to-1) })},
	{"cut at a border", false, record(func(b []byte, at extent) []byte { return b[:at.from] })},
	{"cut in a header", false, record(func(b []byte, at extent) []byte { return b[:at.from+40] })},
	{"cut in a payload", false, record(func(b []byte, at extent) []byte { return b[:at.to-3] })},
	{"cut to nothing", false, record(func([]byte, extent) []byte { return nil })},
	{"zeroed page", false, record(func(b []byte, at extent) []byte {
		from := at.from &^ (slotSize - 1)
		clear(b[from:min(from+slotSize, len(b))])
		return b
	})},
	{"record twice, at the end", true, record(func(b []byte, at extent) []byte { return append(b, b[at.from:at.to]...) })},
	{"record twice, in the middle", false, record(func(b []byte, at extent) []byte {
		return slices.Insert(b, at.from, slices.Clone(b[at.from:at.to])...)
	})},
	{"missing", false, func(t *target) error { return os.Remove(t.name()) }},
	{"file twice", true, func(t *target) error {
		b, err := os.ReadFile(t.name())
		if err != nil {
			return err
		}
		var number uint64
		if _, err := fmt.Sscanf(filepath.Base(t.files[len(t.files)-1]), "%d.seg", &number); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(t.dir, fmt.Sprintf("%012d.seg", number+1000)), b, 0o600)
	}},
	{"swapped with the next", false, func(t *target) error { return swap(t.name(), t.files[(t.i+1)%len(t.files)]) }},
}

var positionOps = []struct {
	name string
	do   func([]byte) []byte
}{
	{"flip in the first slot", func(b []byte) []byte { return flip(b, 40) }},
	{"flip in the second slot", func(b []byte) []byte { return flip(b, slotSize+40) }},
	{"flip in both slots", func(b []byte) []byte { return flip(flip(b, 20), slotSize+20) }},
	{"cut to nothing", func([]byte) []byte { return nil }},
	{"cut in the first slot", func(b []byte) []byte { return b[:60] }},
	{"cut at the second slot", func(b []byte) []byte { return b[:slotSize] }},
	{"cut in the second slot", func(b []byte) []byte { return b[:slotSize+60] }},
	{"zeroed first page", func(b []byte) []byte { clear(b[:slotSize]); return b }},
	{"zeroed second page", func(b []byte) []byte { clear(b[slotSize:]); return b }},
	{"slots swapped", func(b []byte) []byte {
		second := slices.Clone(b[slotSize:])
		first := slices.Clone(b[:slotSize])
		return append(append(second, make([]byte, slotSize-len(second))...), first...)
	}},
	{"first slot twice", func(b []byte) []byte { return append(b[:slotSize], b[:slotSize]...) }},
	{"garbage", func([]byte) []byte { return bytes.Repeat([]byte("{}\n"), 3000) }},
}

// extent is the position of a record in its file.
type extent struct{ from, to int }

// record damages the record in the middle of a segment.
func record(do func(b []byte, at extent) []byte) func(*target) error {
	return func(t *target) error {
		return edit(t.name(), func(b []byte) []byte {
			var list []extent
			for at := 0; at+headerSize <= len(b); {
				size := headerSize + int(binary.LittleEndian.Uint32(b[at+8:])) + int(binary.LittleEndian.Uint32(b[at+12:]))
				list = append(list, extent{at, min(at+size, len(b))})
				at += size
			}
			return do(b, list[len(list)/2])
		})
	}
}

func flip(b []byte, at int) []byte {
	b[at] ^= 0x10
	return b
}

func edit(name string, do func([]byte) []byte) error {
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	return os.WriteFile(name, do(b), 0o600)
}

func swap(one, other string) error {
	if one == other {
		return nil
	}
	return errors.Join(os.Rename(one, one+".swap"), os.Rename(other, one), os.Rename(one+".swap", other))
}
