// Package outboxtest damages the folder of an outbox in every way that a disk, or whoever
// tidies it up, does: for the tests of those that keep their records in one.
//
// It knows how the files of an outbox are laid out. It must never know what is in a record.
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
	// Damage changes the files of a class, which has at least three segments. other is a
	// class that has a segment as well, or the same one.
	Damage func(dir, class, other string) error
}

// Cases are all kinds of damage: of the first segment of a class, one in the middle and the
// last one, of the position, and of the lock.
func Cases() []Case {
	var list []Case
	for at, name := range []string{"first", "middle", "last"} {
		for _, op := range segmentOps {
			list = append(list, Case{"segment/" + name + "/" + op.name, op.harmless, func(dir, class, other string) error {
				files, err := Segments(dir, class)
				if err != nil {
					return err
				}
				i := at * (len(files) - 1) / 2
				return op.do(&target{dir, files, i, other})
			}})
		}
	}
	for _, op := range positionOps {
		list = append(list, Case{"position/" + op.name, true, func(dir, _, _ string) error {
			return edit(filepath.Join(dir, "position"), op.do)
		}})
	}
	remove := func(name string) func(string, string, string) error {
		return func(dir, _, _ string) error { return os.Remove(filepath.Join(dir, name)) }
	}
	return append(
		list,
		Case{"position/missing", true, remove("position")},
		Case{"position/swapped with a segment", false, func(dir, class, _ string) error {
			files, err := Segments(dir, class)
			if err != nil {
				return err
			}
			return swap(filepath.Join(dir, "position"), files[0])
		}},
		Case{"lock/missing", true, remove("lock")},
		Case{"lock/garbage", true, func(dir, _, _ string) error {
			return os.WriteFile(filepath.Join(dir, "lock"), bytes.Repeat([]byte{0xff}, 100), 0o600)
		}},
	)
}

// Segments are the files of a class, oldest first.
func Segments(dir, class string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, class+"-*.seg"))
	if err == nil && len(files) == 0 {
		err = errors.New("no segments of class " + class)
	}
	slices.Sort(files)
	return files, err
}

// target is the segment that is damaged.
type target struct {
	dir   string
	files []string
	i     int
	other string
}

func (t *target) name() string { return t.files[t.i] }

// neighbour is another segment of the class.
func (t *target) neighbour() string { return t.files[(t.i+1)%len(t.files)] }

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
		base := filepath.Base(t.files[len(t.files)-1])
		var number, first uint64
		class, rest, _ := bytes.Cut([]byte(base), []byte("-"))
		if _, err := fmt.Sscanf(string(rest), "%d-%d.seg", &number, &first); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(t.dir, fmt.Sprintf("%s-%012d-%020d.seg", class, number+1000, first+1000)), b, 0o600)
	}},
	{"swapped with the next", false, func(t *target) error { return swap(t.name(), t.neighbour()) }},
	{"swapped with another class", false, func(t *target) error {
		files, err := Segments(t.dir, t.other)
		if err != nil {
			return err
		}
		return swap(t.name(), files[len(files)/2])
	}},
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

// extent is where a record lies in its file.
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
