package outbox

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
)

// maxClasses bounds the classes of a log, including unknown ones.
const maxClasses = 32

// recover reads the position and the segments.
func (l *Log) recover() error {
	p, err := l.position.open(l.o.FS, l.o.Dir)
	if err != nil {
		l.o.Logger.Warn("cannot read the position of the outbox: records may be sent again", slog.String("error", err.Error()))
	}
	if err := l.list(); err != nil {
		return err
	}
	if p = l.identify(p); p != nil {
		for i := range p.classes {
			l.classOf(p.classes[i].class)
		}
	}
	v := surveyor{log: l, position: p}
	for i := range l.segments {
		if err := v.segment(&l.segments[i]); err != nil {
			return fmt.Errorf("read segment %s: %w", segmentName(l.segments[i].number), err)
		}
	}
	v.end()
	for i := range l.classes {
		v.finish(l.classes[i])
	}
	l.removeTorn(v.torn)
	if p == nil {
		l.trySave()
	}
	return nil
}

// list finds the segments. It ignores files with other names.
func (l *Log) list() error {
	files, err := l.o.FS.List(l.o.Dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		if number, ok := parseSegmentName(f.Name); ok {
			l.segments = append(l.segments, segment{number: number, end: f.Size, size: f.Size})
			l.number = max(l.number, number)
			l.total += f.Size
		} else if number, ok := parseSegmentName(strings.TrimSuffix(f.Name, rewriteSuffix) + segmentSuffix); ok {
			if err := l.o.FS.Remove(l.path(number) + rewriteSuffix); err != nil {
				l.o.Logger.Warn("cannot remove an unfinished file of the outbox", slog.String("error", err.Error()))
			}
		}
	}
	slices.SortFunc(l.segments, func(a, b segment) int { return cmp.Compare(a.number, b.number) })
	return nil
}

// classOf returns the class of an ID. A class that Options do not name belongs to a newer program
// and is held; nil beyond maxClasses.
func (l *Log) classOf(id uint8) *class {
	if c := l.known(id); c != nil {
		return c
	}
	if len(l.classes) >= maxClasses {
		return nil
	}
	name := fmt.Sprintf("class %d", id)
	c := &class{Class: Class{Name: name, ID: id, Exempt: true}, index: len(l.classes), held: true}
	l.classes = append(l.classes, c)
	return c
}

// identify finds the id of the log, and drops a position with another id: it would make Next skip
// records.
func (l *Log) identify(p *position) *position {
	ids := make(map[uint64]int)
	most := uint64(0)
	var r openSegment
	defer r.close()
	for i := range l.segments {
		scan, err := r.open(l, &l.segments[i])
		if err != nil {
			continue // the survey reports it
		}
		f, _, err := scan.at(0)
		if err != nil {
			continue
		}
		if ids[f.id]++; ids[f.id] > ids[most] {
			most = f.id
		}
	}
	switch {
	case p != nil && (len(ids) == 0 || ids[p.id] > 0):
		l.id = p.id
		return p
	case p != nil:
		l.o.Logger.Error("the position in the outbox's folder is another outbox's: records may be sent again")
	}
	if l.id = most; l.id == 0 {
		l.id = rand.Uint64()
	}
	return nil
}

// surveyor reads the headers of all records to recover the state of each class. A group without
// its end was being written during a crash, unless the position or a later record shows that it
// was confirmed.
type surveyor struct {
	log      *Log
	position *position // nil for none
	classes  [256]surveyed
	open     openSegment
	group    []found         // incomplete so far
	doubtful []doubtful      // records of incomplete groups in earlier segments
	torn     map[uint64]bool // segments with unconfirmed records
	damaged  bool            // some bytes are not records
	unread   bool            // some segments cannot be read
}

// surveyed is the state of a class found so far.
type surveyed struct {
	met   bool
	start uint64 // weight of the records before the first one
	seq   uint64 // highest number found
}

// doubtful is a record that may or may not have been confirmed.
type doubtful struct {
	header
	segment uint64 // number
}

// segment reads one segment.
func (v *surveyor) segment(s *segment) error {
	v.group = v.group[:0]
	scan, err := v.open.open(v.log, s)
	if err != nil {
		v.unreadable(s, err)
		return nil
	}
	defer v.open.close()
	for offset := int64(0); ; {
		f, skipped, err := scan.at(offset)
		if skipped {
			v.damaged = true
			v.doubt(s)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if errors.Is(err, ErrNewer) {
			return err
		}
		if err != nil {
			v.unreadable(s, err)
			break
		}
		if offset == 0 {
			s.begun = f.time()
		}
		offset = f.next()
		v.group = append(v.group, f)
		if f.cut {
			v.doubt(s)
		} else if !f.more {
			for i := range v.group {
				v.confirm(s, &v.group[i].header)
			}
			v.group = v.group[:0]
		}
	}
	v.doubt(s)
	return nil
}

// unreadable leaves a segment to the sender, which retries.
func (v *surveyor) unreadable(s *segment, err error) {
	s.unread, v.unread = true, true
	v.log.o.Logger.Error("cannot read a file of the outbox, trying again", slog.String("segment", segmentName(s.number)), slog.String("error", err.Error()))
}

// doubt keeps the records of a group without an end until it is clear whether they count.
func (v *surveyor) doubt(s *segment) {
	for i := range v.group {
		v.doubtful = append(v.doubtful, doubtful{v.group[i].header, s.number})
	}
	v.group = v.group[:0]
}

// confirm counts a record of a complete group, and earlier ones that it shows to be confirmed.
func (v *surveyor) confirm(s *segment, h *header) {
	if len(v.doubtful) > 0 {
		v.doubtful = slices.DeleteFunc(v.doubtful, func(d doubtful) bool {
			if d.class != h.class || d.seq > h.prev {
				return false
			}
			v.take(v.log.segment(d.segment), &d.header)
			return true
		})
	}
	v.take(s, h)
}

// take counts a confirmed record once, even if there are copies.
func (v *surveyor) take(s *segment, h *header) {
	c := v.log.classOf(h.class)
	if c == nil {
		return
	}
	at := &v.classes[h.class]
	if !at.met {
		at.met, at.start = true, h.before
		c.acked = h.prev
		switch {
		case v.unread:
			c.acked = 0 // all earlier records may lie there
		case v.damaged && h.prev > 0:
			c.acked-- // the previous record may lie in the damage
		}
		if v.position != nil {
			p := v.position.of(c)
			c.acked, c.ackedSum, c.extent = p.acked, p.ackedSum, p.extent
		}
	}
	if h.seq <= at.seq {
		return
	}
	at.seq = h.seq
	s.note(c.index, h)
	c.confirmed, c.sum = h.seq, h.before+h.weight
	if h.seq > c.acked {
		c.waiting++
		c.extent = c.extent.Join(h.extent)
		c.ages.note(h.seq, h.time())
	}
}

// end decides about the groups without an end.
func (v *surveyor) end() {
	l := v.log
	v.torn = make(map[uint64]bool)
	lost := 0
	for i := range v.doubtful {
		d := &v.doubtful[i]
		c := l.classOf(d.class)
		if c == nil {
			continue
		}
		if d.seq <= v.position.of(c).confirmed || d.seq <= v.classes[d.class].seq {
			v.take(l.segment(d.segment), &d.header)
			continue
		}
		v.torn[d.segment] = true
		c.next = max(c.next, d.seq)
		lost++
	}
	if lost > 0 {
		l.lost[Torn] = Lost{Records: uint64(lost)}
		l.o.Logger.Warn("outbox ends in the middle of a group of records, after a crash while writing it", slog.Int("records", lost))
	}
}

// finish sets the first and last records of a class.
func (v *surveyor) finish(c *class) {
	l, known := v.log, v.position != nil
	at, p := &v.classes[c.ID], v.position.of(c)
	if !at.met {
		c.acked, c.ackedSum, c.extent = p.acked, p.ackedSum, p.extent
	}
	c.confirmed, c.sum = max(c.confirmed, p.confirmed, c.acked), max(c.sum, p.sum, c.ackedSum)
	if !known {
		c.ackedSum = at.start
		c.extent.From = 0 // the time of the records before the first valid one is unknown
	}
	c.saved = c.acked
	c.appended = c.confirmed
	if c.Latest {
		c.acked = max(c.acked, at.seq-min(at.seq, 1)) // all but the last one
	}
	switch {
	case c.Latest:
	case p.doubt > c.acked:
		c.doubt = p.doubt
	case !known && (at.met || v.damaged && !c.Exempt):
		c.doubt = max(c.appended, c.next) + 1
	}
	c.appended = max(c.appended, c.doubt)
	c.next = max(c.appended, c.next) + 1
	if c.appended > c.acked {
		c.waiting = max(c.waiting, 1)
	}
	c.cursor = cursor{seen: c.acked, sum: c.ackedSum}
	if i := slices.IndexFunc(l.segments, func(s segment) bool {
		p := s.part(c.index)
		return s.unread || p != nil && p.last > c.acked
	}); i >= 0 {
		c.cursor.number = l.segments[i].number
	}
	// The clock may have been set since records were acknowledged, so their age is unknown.
	l.ack(c, c.acked, c.ackedSum, c.waiting, l.o.Now())
	for i := range l.segments {
		if p := l.segments[i].part(c.index); p != nil {
			p.earlier = !p.ackedAt.IsZero()
		}
	}
}

// removeTorn removes unconfirmed records from segments: behind later records, which have higher
// numbers, the next process would take them for confirmed ones.
func (l *Log) removeTorn(torn map[uint64]bool) {
	for number := range torn {
		err := l.rewrite(number, func(c *class, seq uint64) bool { return seq <= c.confirmed })
		if err != nil {
			l.o.Logger.Warn("cannot remove incomplete records from the outbox", slog.String("error", err.Error()))
		}
	}
}
