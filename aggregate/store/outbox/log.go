package outbox

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Errors of Append that callers tell apart.
var (
	// ErrFull says that the record has no room below MaxBytes, even without those
	// that are acknowledged.
	ErrFull   = errors.New("outbox is full")
	ErrClosed = errors.New("outbox closed")
	// ErrTooLarge says that a record is beyond MaxLabel, MaxPayload or MaxBytes.
	ErrTooLarge = errors.New("record too large for the outbox")
)

// Class is one kind of records.
type Class struct {
	Name string // letters and digits; part of file names
	// Exempt records are few and small, and are taken beyond MaxBytes.
	Exempt bool
	// Expendable records give way before those of any class, and only to each other.
	Expendable bool
}

// Options configure a log.
type Options struct {
	Dir string // made if need be, for its owner alone
	// Classes in ascending order of importance: Next gives the last one's records
	// first.
	Classes []Class
	// MaxBytes bounds the segments of all classes together; at least 4 KiB.
	MaxBytes int64
	// SegmentBytes ends a segment, 1/64 of MaxBytes but at most 64 MiB unless set.
	SegmentBytes int64
	// SegmentAge ends a segment as well; 0 is never.
	SegmentAge time.Duration
	// SaveEvery is how often the position is written while records are acknowledged, 1 s
	// unless set: after a crash what was acknowledged since is given out again.
	SaveEvery time.Duration

	FS     FS               // nil: the operating system's
	Now    func() time.Time // nil: time.Now
	Logger *slog.Logger     // nil: silent
}

// Log is an open outbox. Next, Ack and Lose are for one goroutine, the sender; the
// other methods are for anyone, and for several at a time.
type Log struct {
	o     Options
	id    uint64
	owner io.Closer
	ready chan struct{}

	files sync.Mutex // held while files are written or removed; taken before mu
	saved time.Time  // when the position was last written; guarded by files

	mu      sync.Mutex
	classes []class
	number  uint64 // of the last segment
	total   int64  // bytes of all segments
	closed  bool
	changed bool // since the position was written
	lost    map[Reason]Lost
}

// class is the state of one series of segments.
type class struct {
	Class
	index    uint8
	segments []segment // by number
	appended uint64    // last sequence number that was confirmed or given up
	acked    uint64
	next     uint64 // sequence number of the next record
	ackedAt  time.Time
	waiting  Waiting
	ages     ages

	active File   // of the last segment, nil when that is sealed; guarded by files
	rotate bool   // the active segment is not to be trusted
	saved  uint64 // acked as the position on disk has it; guarded by files

	cursor   cursor // the sender's, as all that follows
	reader   openSegment
	failures int
}

// Waiting is what is not acknowledged.
type Waiting struct {
	Records uint64
	Weight  uint64
}

// Lost is what will never be given out.
type Lost struct {
	Records uint64
	Weight  uint64 // of those whose header could be read
}

// Stats is a snapshot of a log.
type Stats struct {
	Bytes   int64
	Waiting Waiting
	// Oldest is when the oldest record that waits came, or somewhat before where many
	// wait; the zero Time when none does. Exempt records do not count.
	Oldest time.Time
	Lost   map[Reason]Lost // since the log was opened
}

// Open takes a folder into possession and finds out where its log stands. A position
// that cannot be read is no error: records are sent again then.
func Open(o Options) (*Log, error) {
	o = o.withDefaults()
	if len(o.Classes) == 0 || len(o.Classes) > 255 || o.MaxBytes < 4<<10 {
		return nil, fmt.Errorf("open outbox %s: expected 1 to 255 classes and room for 4 KiB", o.Dir)
	}
	owner, err := o.FS.Own(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("open outbox %s: %w", o.Dir, err)
	}
	l := &Log{o: o, owner: owner, ready: make(chan struct{}, 1), lost: make(map[Reason]Lost)}
	for i, c := range o.Classes {
		l.classes = append(l.classes, class{Class: c, index: uint8(i)})
	}
	if err := l.recover(); err != nil {
		return nil, errors.Join(fmt.Errorf("open outbox %s: %w", o.Dir, err), owner.Close())
	}
	l.signal()
	return l, nil
}

func (o Options) withDefaults() Options {
	if o.SegmentBytes == 0 {
		o.SegmentBytes = min(o.MaxBytes/64, 64<<20)
	}
	if o.SaveEvery == 0 {
		o.SaveEvery = saveInterval
	}
	if o.FS == nil {
		o.FS = OS{}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Logger = o.Logger.With(slog.String("outbox", o.Dir))
	return o
}

// Dir is the folder.
func (l *Log) Dir() string { return l.o.Dir }

// Ready has a token when there may be a record that Next has not given out.
func (l *Log) Ready() <-chan struct{} { return l.ready }

func (l *Log) signal() {
	select {
	case l.ready <- struct{}{}:
	default:
	}
}

// recover reads the position and the segments.
func (l *Log) recover() error {
	p, err := readPosition(l.o.FS, l.o.Dir)
	if err != nil {
		l.o.Logger.Warn("position cannot be read: records may be sent again", slog.String("error", err.Error()))
	}
	if err := l.list(); err != nil {
		return err
	}
	l.id = rand.Uint64()
	for i := range l.classes {
		c := &l.classes[i]
		// The clock may have been set since it was acknowledged: nobody knows how long
		// ago that was.
		c.ackedAt = l.o.Now()
		if p != nil {
			l.id = p.ID
			at := p.Classes[c.Name]
			c.acked, c.appended = at.Acked, max(at.Acked, at.Appended)
			c.saved = at.Acked
		} else if len(c.segments) > 0 {
			c.acked = c.segments[0].first - 1
		}
		if err := l.survey(c); err != nil {
			return fmt.Errorf("read %s segments: %w", c.Name, err)
		}
		c.next = c.appended + 1
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
		i := slices.IndexFunc(l.classes, func(c class) bool { return c.Name == name })
		if !ok || i < 0 || number >= 1<<62 {
			continue
		}
		c := &l.classes[i]
		c.segments = append(c.segments, segment{number: number, first: first, end: f.Size, size: f.Size})
		l.number = max(l.number, number)
		l.total += f.Size
	}
	for i := range l.classes {
		sortSegments(l.classes[i].segments)
	}
	return nil
}

// survey reads the headers of what is not acknowledged. What lies behind the last sound
// one counts as one record: it was being written in a crash, or is damaged, and its
// number is not used again, so that the loss shows.
func (l *Log) survey(c *class) error {
	last := c.acked
	junk := false
	c.cursor = cursor{seen: c.acked}
	for i := range c.segments {
		if i+1 < len(c.segments) && c.segments[i+1].first <= c.acked+1 {
			continue
		}
		if c.cursor.number == 0 {
			c.cursor.number = c.segments[i].number
		}
		s, err := c.reader.open(l, c, c.segments[i])
		if err != nil {
			l.o.Logger.Error("segment cannot be read", slog.String("error", err.Error()))
			continue
		}
		tail, err := surveySegment(s, func(f *found) {
			if f.seq > last {
				last = f.seq
				c.waiting.Records++
				c.waiting.Weight += f.weight
				c.ages.note(f.seq, f.time())
			}
		})
		if err != nil {
			if errors.Is(err, ErrNewer) {
				return err
			}
			l.o.Logger.Error("segment cannot be read", slog.String("error", err.Error()))
		}
		if c.segments[i].size > 0 {
			junk = tail
		}
	}
	if junk {
		last++
		l.o.Logger.Warn("outbox ends in the middle of a record: a crash while it was written, or a damaged disk",
			slog.String("class", c.Name))
	}
	c.reader.close()
	c.appended = max(c.appended, last)
	return nil
}

// surveySegment calls visit for every sound header, and tells whether the segment ends
// in something else.
func surveySegment(s *scanner, visit func(*found)) (junk bool, err error) {
	for offset := int64(0); ; {
		f, skipped, err := s.at(offset)
		if errors.Is(err, io.EOF) {
			return skipped, nil
		}
		if err != nil {
			return false, err
		}
		visit(&f)
		offset = f.next()
	}
}

// Stats is a snapshot of the log's counts.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Stats{Bytes: l.total, Lost: make(map[Reason]Lost, len(l.lost))}
	for i := range l.classes {
		s.Waiting.Records += l.classes[i].waiting.Records
		s.Waiting.Weight += l.classes[i].waiting.Weight
		if at, ok := l.classes[i].oldest(); ok && (s.Oldest.IsZero() || at.Before(s.Oldest)) {
			s.Oldest = at
		}
	}
	for reason, n := range l.lost {
		s.Lost[reason] = n
	}
	return s
}

// Mark is where the log stands, class by class.
func (l *Log) Mark() []uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	mark := make([]uint64, len(l.classes))
	for i := range l.classes {
		mark[i] = l.classes[i].appended
	}
	return mark
}

// Reached tells whether nothing of what was there at a mark waits any longer.
func (l *Log) Reached(mark []uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.classes {
		if l.classes[i].acked < mark[i] {
			return false
		}
	}
	return true
}

// Close writes the position and gives the folder free. Everybody must be done with it.
func (l *Log) Close() error {
	l.files.Lock()
	defer l.files.Unlock()
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	l.mu.Unlock()
	failed := l.save()
	for i := range l.classes {
		c := &l.classes[i]
		if c.active != nil {
			failed = errors.Join(failed, c.active.Close())
			c.active = nil
		}
		c.reader.close()
	}
	if err := errors.Join(failed, l.owner.Close()); err != nil {
		return fmt.Errorf("close outbox %s: %w", l.o.Dir, err)
	}
	return nil
}
