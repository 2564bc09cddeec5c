package outbox

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
)

// maxClasses bounds the classes of a log, with those that it does not know.
const maxClasses = 32

// tail is a number behind the last sound record, of what may or may not have been one.
// No record has that number, so that the loss shows.
type tail struct {
	seq    uint64 // 0 for none
	reason Reason // Torn or Uncertain
}

// recover reads the position and the segments.
func (l *Log) recover() error {
	p, err := l.position.open(l.o.FS, l.o.Dir)
	if err != nil {
		l.o.Logger.Warn("position is damaged: records may be sent again", slog.String("error", err.Error()))
	}
	if err := l.list(); err != nil {
		return err
	}
	if p = l.identify(p); p != nil {
		for i := range p.classes {
			l.class(p.classes[i].name)
		}
	}
	for i := range l.classes {
		c := &l.classes[i]
		// The clock may have been set since it was acknowledged: nobody knows how long
		// ago that was.
		c.ackedAt = l.o.Now()
		at := p.of(c)
		c.acked, c.ackedSum, c.extent = at.acked, at.ackedSum, at.extent
		c.saved = c.acked
		if err := l.survey(c, at, p != nil); err != nil {
			return fmt.Errorf("read %s segments: %w", c.Name, err)
		}
		c.next = max(c.appended, at.doubt) + 1
	}
	if p == nil {
		l.trySave()
	}
	return nil
}

// list finds the segments. Files with other names are left alone.
func (l *Log) list() error {
	files, err := l.o.FS.List(l.o.Dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		name, number, first, ok := parseSegmentName(f.Name)
		if !ok || number >= 1<<62 {
			continue
		}
		c := l.class(name)
		if c == nil {
			continue
		}
		c.segments = append(c.segments, segment{number: number, first: first, end: f.Size, size: f.Size})
		l.number = max(l.number, number)
		l.total += f.Size
	}
	for i := range l.classes {
		list := l.classes[i].segments
		sortSegments(list)
		for j := 1; j < len(list); j++ {
			if list[j].first > list[j-1].first {
				list[j-1].next = list[j].first
			}
		}
	}
	return nil
}

// class is the class of a name. One that Options do not know is a newer program's and is
// held; nil beyond maxClasses.
func (l *Log) class(name string) *class {
	i := slices.IndexFunc(l.classes, func(c class) bool { return c.Name == name })
	if i >= 0 {
		return &l.classes[i]
	}
	if len(l.classes) >= maxClasses || name == "" || len(name) > maxClassName {
		return nil
	}
	l.o.Logger.Warn("outbox holds records of a newer csigscope: keeping them for it", slog.String("class", name))
	l.classes = append(l.classes, class{Class: Class{Name: name, Exempt: true}, index: len(l.classes), held: true, unknown: true})
	return &l.classes[len(l.classes)-1]
}

// identify finds the id of the log, and tells by it whether the position is of this log:
// that of another one would pass records over.
func (l *Log) identify(p *position) *position {
	ids := make(map[uint64]int)
	most := uint64(0)
	for i := range l.classes {
		c := &l.classes[i]
		for _, s := range c.segments {
			scan, err := c.reader.open(l, c, s)
			if err != nil {
				continue // survey tells
			}
			f, _, err := scan.at(0)
			if err != nil {
				continue
			}
			if ids[f.id]++; ids[f.id] > ids[most] {
				most = f.id
			}
		}
		c.reader.close()
	}
	switch {
	case p != nil && (len(ids) == 0 || ids[p.id] > 0):
		l.id = p.id
		return p
	case p != nil:
		l.o.Logger.Error("position is of another outbox: records may be sent again")
	}
	if l.id = most; l.id == 0 {
		l.id = rand.Uint64()
	}
	return nil
}

// survey reads the headers of unacknowledged records, and finds out where the class
// ends: at the last sound one, or where the position says. What lies behind both was being
// written in a crash. Where no position tells (known), records may be missing there.
func (l *Log) survey(c *class, at classPosition, known bool) error {
	if !known && len(c.segments) > 0 {
		c.acked = c.segments[0].first - 1
	}
	c.cursor = cursor{seen: c.acked, sum: c.ackedSum}
	c.confirmed, c.sum = max(c.acked, at.confirmed), max(c.ackedSum, at.sum)
	end := surveyed{seq: c.acked, sum: c.ackedSum, base: known || c.acked == 0}
	for i := range c.segments {
		if i+1 < len(c.segments) && c.segments[i+1].first <= c.acked+1 {
			continue
		}
		if c.cursor.number == 0 {
			c.cursor.number = c.segments[i].number
		}
		if err := l.surveySegment(c, &c.segments[i], &end); errors.Is(err, ErrNewer) && !c.unknown {
			return err
		} else if err != nil {
			l.o.Logger.Error("segment cannot be read", slog.String("class", c.Name), slog.String("error", err.Error()))
		}
	}
	c.reader.close()
	if !known {
		c.ackedSum, c.cursor.sum = end.start, end.start
		c.extent.From = 0 // nobody knows of when the records before the first sound one were
	}
	torn := end.junk && end.seq >= c.confirmed
	if end.cut && end.seq > c.confirmed {
		torn, end.seq, end.sum = true, end.before, end.sum-end.weight
	}
	c.confirmed, c.sum = max(c.confirmed, end.seq), max(c.sum, end.sum)
	c.appended = c.confirmed
	switch {
	case at.doubt > c.acked:
		c.tail = tail{at.doubt, Uncertain}
		c.appended = max(c.appended, at.doubt)
	case !known && len(c.segments) > 0:
		c.tail = tail{c.appended + 1, Uncertain}
		c.appended++
	case torn:
		c.tail = tail{c.appended + 1, Torn}
		c.appended++
		l.o.Logger.Warn("outbox ends in the middle of a record: a crash while it was written, or a damaged disk",
			slog.String("class", c.Name))
	}
	if c.appended > c.acked {
		c.waiting = max(c.waiting, 1)
	}
	return nil
}

// surveyed is what a survey found so far.
type surveyed struct {
	seq    uint64 // of the last sound header
	sum    uint64 // weight of all records up to it
	start  uint64 // weight of those before the first one
	base   bool   // start is known
	junk   bool   // bytes that are no record follow
	cut    bool   // its record is cut
	before uint64 // number of the record before it
	weight uint64 // of it
}

// surveySegment reads the headers of a segment.
func (l *Log) surveySegment(c *class, s *segment, end *surveyed) error {
	s.before = end.sum
	scan, err := c.reader.open(l, c, *s)
	if err != nil {
		return err
	}
	for offset := int64(0); ; {
		f, skipped, err := scan.at(offset)
		if errors.Is(err, io.EOF) {
			if s.size > 0 {
				end.junk = skipped
			}
			return nil
		}
		if err != nil {
			return err
		}
		offset = f.next()
		if !end.base {
			end.start, end.base = f.before, true
		}
		if f.prev < s.first {
			s.before = f.before
		}
		if f.seq <= end.seq {
			continue
		}
		end.before, end.seq, end.sum, end.weight, end.cut = end.seq, f.seq, f.before+f.weight, f.weight, f.cut
		c.waiting++
		c.extent = c.extent.Join(f.extent)
		c.ages.note(f.seq, f.time())
	}
}
