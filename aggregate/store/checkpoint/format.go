package checkpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"time"
)

// Errors that callers tell apart.
var (
	// ErrDamaged is the error of a checkpoint that is not what was written. Nothing of
	// it can be used.
	ErrDamaged = errors.New("checkpoint is damaged")
	// ErrNewer is the error of a checkpoint that a newer program has left.
	ErrNewer = errors.New("checkpoint was left by a newer program")
)

const (
	magic       = "ckp1"
	version     = 1
	fixedSize   = 32
	maxSections = 64
	// maxHeader bounds all before the contents.
	maxHeader = fixedSize + 255 + maxSections*(1+255+12) + 4
	// MaxBytes bounds a checkpoint.
	MaxBytes = 4 << 30
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Section is a part of a checkpoint. Its name has 1 to 255 bytes.
type Section struct {
	Name string
	Data []byte
}

// Saved is a checkpoint that was read.
type Saved struct {
	Number   uint64 // from 1
	Time     time.Time
	Sections []Section
}

// Section is the contents of the section, nil if there is none of that name.
func (s *Saved) Section(name string) []byte {
	for i := range s.Sections {
		if s.Sections[i].Name == name {
			return s.Sections[i].Data
		}
	}
	return nil
}

// header is what stands before the contents.
type header struct {
	name     string
	number   uint64
	time     int64
	size     uint64 // of the file
	length   int    // of the header
	sections []sectionHeader
}

type sectionHeader struct {
	name string
	size uint64
	crc  uint32
}

// encodeHeader is the header of the sections' checkpoint.
func encodeHeader(name string, number uint64, at time.Time, sections []Section) ([]byte, error) {
	if name == "" || len(name) > math.MaxUint8 || len(sections) > maxSections {
		return nil, fmt.Errorf("name of %d bytes, %d sections: expected 1 to 255 and at most %d", len(name), len(sections), maxSections)
	}
	b := append([]byte(magic), version, uint8(len(name)))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(sections)))
	b = binary.LittleEndian.AppendUint64(b, number)
	b = binary.LittleEndian.AppendUint64(b, uint64(at.UnixNano()))
	b = append(binary.LittleEndian.AppendUint64(b, 0), name...)
	size := uint64(0)
	for i := range sections {
		s := &sections[i]
		if s.Name == "" || len(s.Name) > math.MaxUint8 {
			return nil, fmt.Errorf("section %.20q: expected a name of 1 to 255 bytes", s.Name)
		}
		b = append(append(b, uint8(len(s.Name))), s.Name...)
		b = binary.LittleEndian.AppendUint64(b, uint64(len(s.Data)))
		b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(s.Data, castagnoli))
		size += uint64(len(s.Data))
	}
	if size += uint64(len(b)) + 4; size > MaxBytes {
		return nil, fmt.Errorf("%d bytes: expected at most %d", size, uint64(MaxBytes))
	}
	binary.LittleEndian.PutUint64(b[24:], size)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli)), nil
}

// parseHeader reads a header off the beginning of a checkpoint.
func parseHeader(b []byte) (*header, error) {
	if len(b) < fixedSize || string(b[:4]) != magic {
		return nil, fmt.Errorf("%w: no header", ErrDamaged)
	}
	if b[4] > version {
		return nil, ErrNewer
	}
	sections := int(binary.LittleEndian.Uint16(b[6:]))
	h := &header{
		number: binary.LittleEndian.Uint64(b[8:]), time: int64(binary.LittleEndian.Uint64(b[16:])),
		size: binary.LittleEndian.Uint64(b[24:]),
	}
	rest := b[fixedSize:]
	text := func(n int) string {
		if n > len(rest) {
			rest = nil
			return ""
		}
		s := string(rest[:n])
		rest = rest[n:]
		return s
	}
	h.name = text(int(b[5]))
	for range min(sections, maxSections) {
		if len(rest) == 0 {
			break
		}
		s := sectionHeader{name: text(1 + int(rest[0]))}
		if numbers := text(12); s.name != "" && numbers != "" {
			s.name = s.name[1:]
			s.size = binary.LittleEndian.Uint64([]byte(numbers))
			s.crc = binary.LittleEndian.Uint32([]byte(numbers[8:]))
			h.sections = append(h.sections, s)
		}
	}
	h.length = len(b) - len(rest)
	if len(rest) < 4 || crc32.Checksum(b[:h.length], castagnoli) != binary.LittleEndian.Uint32(rest) ||
		len(h.sections) != sections {
		return nil, fmt.Errorf("%w: the header's checksum does not match", ErrDamaged)
	}
	h.length += 4
	return h, nil
}

// parse reads a checkpoint. The sections share b's memory.
func parse(b []byte) (*header, *Saved, error) {
	h, err := parseHeader(b)
	if err != nil {
		return nil, nil, err
	}
	if h.size != uint64(len(b)) {
		return h, nil, fmt.Errorf("%w: %d bytes, expected %d", ErrDamaged, len(b), h.size)
	}
	saved := &Saved{Number: h.number, Time: time.Unix(0, h.time)}
	rest := b[h.length:]
	for _, s := range h.sections {
		if s.size > uint64(len(rest)) {
			return h, nil, fmt.Errorf("%w: section %s does not fit", ErrDamaged, s.name)
		}
		data := rest[:s.size:s.size]
		rest = rest[s.size:]
		if crc32.Checksum(data, castagnoli) != s.crc {
			return h, nil, fmt.Errorf("%w: the checksum of section %s does not match", ErrDamaged, s.name)
		}
		saved.Sections = append(saved.Sections, Section{s.name, data})
	}
	if len(rest) > 0 {
		return h, nil, fmt.Errorf("%w: %d bytes too many", ErrDamaged, len(rest))
	}
	return h, saved, nil
}
