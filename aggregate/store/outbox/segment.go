package outbox

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// segment is a file of records of all classes. Numbers ascend; a process uses none twice, but a later
// one may use those of deleted segments again.
type segment struct {
	number  uint64
	edition int   // how often it was rewritten
	end     int64 // of the records
	size    int64 // of the file, if known
	begun   time.Time
	unread  bool   // it could not be read when the log was opened
	parts   []part // one for each class with records in it
}

// part is the records of one class in a segment.
type part struct {
	class  int
	prev   uint64 // number of the confirmed record before its first one
	last   uint64 // number of its last one
	before uint64 // weight of all confirmed records before its first one
	bytes  int64

	ackedAt  time.Time // when all of it was acknowledged, or the log was opened after that
	earlier  bool      // it was acknowledged before the log was opened
	released bool      // see Release
}

const (
	segmentSuffix = ".seg"
	// rewriteSuffix is the suffix of a segment while it is rewritten.
	rewriteSuffix = ".new"
)

func segmentName(number uint64) string { return fmt.Sprintf("%012d%s", number, segmentSuffix) }

func (l *Log) path(number uint64) string { return filepath.Join(l.o.Dir, segmentName(number)) }

// parseSegmentName parses the number of a segment from its name.
func parseSegmentName(name string) (number uint64, ok bool) {
	body, ok := strings.CutSuffix(name, segmentSuffix)
	number, err := strconv.ParseUint(body, 10, 62)
	return number, ok && err == nil
}

// atOrAfter is the index of the first segment with that number or a later one.
func atOrAfter(list []segment, number uint64) int {
	i, _ := slices.BinarySearchFunc(list, number, func(s segment, n uint64) int { return cmp.Compare(s.number, n) })
	return i
}

// segment returns the segment with a number, nil for none; the caller holds mu.
func (l *Log) segment(number uint64) *segment {
	i := atOrAfter(l.segments, number)
	if i == len(l.segments) || l.segments[i].number != number {
		return nil
	}
	return &l.segments[i]
}

// part returns the part of a class, nil for none.
func (s *segment) part(class int) *part {
	i := slices.IndexFunc(s.parts, func(p part) bool { return p.class == class })
	if i < 0 {
		return nil
	}
	return &s.parts[i]
}

// note adds a confirmed record to its part.
func (s *segment) note(class int, h *header) {
	p := s.part(class)
	if p == nil {
		s.parts = append(s.parts, part{class: class, prev: h.prev, before: h.before})
		p = &s.parts[len(s.parts)-1]
	}
	p.last = max(p.last, h.seq)
	p.bytes += h.size()
	p.ackedAt, p.earlier, p.released = time.Time{}, false, false
}
