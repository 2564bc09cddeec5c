package outbox

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"sync"
	"time"
)

// Errors of Append that callers tell apart.
var (
	// ErrFull reports that the records do not fit below MaxBytes, even after rewriting every
	// segment that would free a third or more.
	ErrFull = errors.New("outbox is full")
	// ErrClosed is the error after Close.
	ErrClosed = errors.New("outbox closed")
	// ErrTooLarge reports that a record exceeds MaxLabel or MaxPayload, or a group MaxBytes.
	ErrTooLarge = errors.New("record too large for the outbox")
)

// Class is one kind of records.
type Class struct {
	Name string // for people
	// ID identifies the class on disk, and never another one; its index in Options, from 1,
	// unless set.
	ID uint8
	// Exempt records are few and small, and are accepted beyond MaxBytes.
	Exempt bool
	// Expendable records are dropped before those of other classes, and displace only each other.
	Expendable bool
	// Latest is for records of which only the last one counts: each replaces the previous one,
	// Next returns none, and Latest reads the last one.
	Latest bool
}

// Options configure a log.
type Options struct {
	Dir string // created if needed, for its owner alone
	// Classes in ascending order of importance: records of the first ones are dropped first.
	Classes []Class
	// Order is the order in which Next returns the classes' records; the last of Classes first
	// unless set.
	Order []int
	// MaxBytes bounds the segments together; at least 4 KiB.
	MaxBytes int64
	// SegmentBytes ends a segment, 1/64 of MaxBytes but at most 64 MiB unless set.
	SegmentBytes int64
	// SegmentAge also ends a segment; 0 is never.
	SegmentAge time.Duration
	// SaveEvery is how often the position is written while records are acknowledged, 1 s unless
	// set: after a crash Next returns records acknowledged since then again.
	SaveEvery time.Duration
	// SaveWeight bounds the weight of these records: the position is also written after records
	// of this weight; 0 is no bound.
	SaveWeight uint64

	FS     FS               // nil: the operating system's
	Now    func() time.Time // nil: time.Now
	Logger *slog.Logger     // nil: silent
}

// Log is an open outbox. Next, After, Ack and Lose are for one goroutine, the sender, and Latest is for
// one goroutine at a time; the other methods are safe for concurrent use.
type Log struct {
	o     Options
	id    uint64
	owner io.Closer
	ready chan struct{}

	files    sync.Mutex // held while files are written or removed; taken before swap
	saved    time.Time  // when the position was last synced; guarded by files
	unsaved  uint64     // weight of the records acknowledged since then; guarded by files
	position positionFile
	active   File // of the last segment, nil when it is sealed; guarded by files

	// swap is held for writing while a segment is replaced or removed, and for reading while the
	// sender reads segments; taken before mu.
	swap sync.RWMutex

	mu       sync.Mutex
	classes  []*class  // complete once the log is open
	segments []segment // by number
	rotate   bool      // the active segment failed: write to a new one
	number   uint64    // of the last segment
	total    int64     // bytes of all segments
	closed   bool
	changed  bool // since the position was written
	lost     map[Reason]Lost
}

// class is the state of one class.
type class struct {
	Class
	index     int
	held      bool   // see Hold
	appended  uint64 // last sequence number that was confirmed or given up
	confirmed uint64 // last one that was confirmed
	acked     uint64
	next      uint64 // sequence number of the next record
	sum       uint64 // weight of all records up to confirmed
	ackedSum  uint64 // weight of all records up to acked
	extent    Extent // of all since the class was last empty
	doubt     uint64 // number of an Uncertain loss after the last record; 0 for none
	waiting   uint64 // records
	ages      ages
	saved     uint64 // acked in the synced position; guarded by files

	cursor   cursor // the sender's, as all fields below
	reader   openSegment
	failures int
}

// Waiting is the sum of unacknowledged records.
type Waiting struct {
	Records uint64
	Weight  uint64
}

// Lost is the sum of records that Next will never return.
type Lost struct {
	Records uint64
	Weight  uint64 // as far as it is known; 0 if they are Torn or Uncertain
}

// Stats is a snapshot of a log.
type Stats struct {
	Bytes   int64
	Waiting Waiting // without held records
	Held    Waiting
	// Oldest is when the oldest waiting record was appended, or somewhat before if many wait; the
	// zero Time if none does. Exempt records do not count.
	Oldest time.Time
	Lost   map[Reason]Lost // since the log was opened
}

// Open locks a folder and recovers the state of its log. An unreadable position is not an error:
// records are then sent again, and each class has a loss (Uncertain) after its last record.
func Open(o Options) (*Log, error) {
	o = o.withDefaults()
	if len(o.Classes) == 0 || len(o.Classes) > maxClasses || o.MaxBytes < 4<<10 {
		return nil, fmt.Errorf("open %s: expected 1 to %d classes and room for 4 KiB", o.Dir, maxClasses)
	}
	owner, err := o.FS.Own(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", o.Dir, err)
	}
	l := &Log{o: o, owner: owner, ready: make(chan struct{}, 1), lost: make(map[Reason]Lost)}
	for i, c := range o.Classes {
		c.ID = cmp.Or(c.ID, uint8(i+1))
		l.classes = append(l.classes, &class{Class: c, index: i})
	}
	if err := l.recover(); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", o.Dir, err), owner.Close())
	}
	l.signal()
	return l, nil
}

func (o Options) withDefaults() Options {
	o.SegmentBytes = cmp.Or(o.SegmentBytes, min(o.MaxBytes/64, 64<<20))
	o.SaveEvery = cmp.Or(o.SaveEvery, saveInterval)
	if o.Order == nil {
		for i := range o.Classes {
			o.Order = append(o.Order, len(o.Classes)-1-i)
		}
	}
	if o.FS == nil {
		o.FS = OS{}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Logger = o.Logger.With(slog.String("outbox", o.Dir))
	return o
}

// ClassName returns the name of a class, even of one that Options do not name.
func (l *Log) ClassName(class int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.classes[class].Name
}

// Dir returns the folder.
func (l *Log) Dir() string { return l.o.Dir }

// Ready has a token when there may be a record that Next has not returned.
func (l *Log) Ready() <-chan struct{} { return l.ready }

func (l *Log) signal() {
	select {
	case l.ready <- struct{}{}:
	default:
	}
}

// weight is the weight of the waiting records; the caller holds mu.
func (c *class) weight() uint64 { return c.sum - min(c.ackedSum, c.sum) }

// Stats returns a snapshot of the log's counts.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Stats{Bytes: l.total, Lost: make(map[Reason]Lost, len(l.lost))}
	for i := range l.classes {
		at, c := &s.Waiting, l.classes[i]
		if c.Latest {
			continue
		}
		if c.held {
			at = &s.Held
		}
		at.Records += c.waiting
		at.Weight += c.weight()
		if at, ok := c.oldest(); ok && (s.Oldest.IsZero() || at.Before(s.Oldest)) {
			s.Oldest = at
		}
	}
	maps.Copy(s.Lost, l.lost)
	return s
}

// Mark returns the present end of the log, class by class.
func (l *Log) Mark() []uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	mark := make([]uint64, len(l.classes))
	for i := range l.classes {
		mark[i] = l.classes[i].appended
	}
	return mark
}

// Reached reports whether all records up to a mark are acknowledged.
func (l *Log) Reached(mark []uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range mark {
		c := l.classes[i]
		if c.acked < mark[i] && !c.held && !c.Latest {
			return false
		}
	}
	return true
}

// Close writes the position and unlocks the folder. No other call may be running.
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
	failed := errors.Join(l.save(), l.position.close(), l.seal())
	for i := range l.classes {
		l.classes[i].reader.close()
	}
	if err := errors.Join(failed, l.owner.Close()); err != nil {
		return fmt.Errorf("close outbox %s: %w", l.o.Dir, err)
	}
	return nil
}
