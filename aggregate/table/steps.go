package table

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/csigscope/csigscope/aggregate"
)

// Bounds say which blocks a table takes and how much it holds: its memory depends on nothing else.
// There is one rule for all tables. If windows need more steps than Steps, or a new row has no
// room, steps get longer and rows of the same key add up. If only one step is left, the row goes
// into an overflow row of its signal and kind, so that totals stay exact; FlowTotals drops it.
type Bounds struct {
	Resolution time.Duration // of the blocks that the table takes; it ignores all others
	Step       time.Duration // length of the first steps, default Resolution
	Steps      int           // maximum number, two or more; 0: one step holds all of time
	Rows       int           // maximum number, in all steps together
	// Sliding tables keep the newest steps at their first length. They forget the oldest ones past
	// Steps, by number and by time, and past Rows, but never the newest. A step holds at most a
	// quarter of Rows before it overflows, so that one flood of keys does not push out all others.
	//
	// A sliding table counts a block once, however often an exporter or a peer repeats it: its
	// steps hold the (producer, incarnation, seq) of their blocks. It refuses blocks of forgotten
	// steps, which it could not recognize as repeated.
	Sliding bool
}

// Bounds of the identities in a sliding table, of some 50 bytes each. It refuses a block past them,
// because it could not recognize a repeat.
const (
	maxBlocks         = 1 << 20 // in all steps; a quarter of them in one step
	maxProducerBlocks = 1 << 12 // of a producer in one step
)

// steps are values by (start of a step, cell, key within the cell), within Bounds. A key is a
// location, a code or a flow.
//
// Its mutex guards it where it is embedded; other owners have their own lock. Unexported methods
// expect that the caller holds the lock.
type steps[K comparable, V any] struct {
	bounds Bounds
	merge  func(into, v *V)
	past   func(K) K // the key of an overflow row; nil if overflow alone counts values without room

	mu          sync.Mutex
	width       int64 // of a step, ns
	first, last int64 // starts of windows, Unix ns
	list        []*step[K, V]
	held        int    // rows of all steps
	full        bool   // a row had no room
	overflow    V      // all that had no room
	forgotten   uint64 // number of steps, because of Rows and maxBlocks alone

	// Only of sliding tables. Steps after newest are ahead: they are kept besides the Steps up to
	// newest, at most as many, and hold at most half of Rows and of maxBlocks together.
	newest int64 // start of a step
	floor  int64 // end of the last forgotten step
	blocks int   // identities in all steps
}

// step is one interval of time. It shares its rows with readers, who never see them change: they
// are copied before the next write.
type step[K comparable, V any] struct {
	start  int64 // Unix ns
	rows   *rows[K, V]
	shared bool

	// Only of sliding tables.
	blocks map[uint64]blockIDs // by producer
	n      int                 // identities in blocks
}

// blockID identifies a block of a producer.
type blockID struct{ incarnation, seq uint64 }

func (id blockID) part() uint64 { return id.seq >> aggregate.PartShift }

// blockIDs are the blocks of one producer in a step. Most have one.
type blockIDs struct {
	first blockID
	more  map[blockID]struct{} // nil without others
}

func (ids blockIDs) len() int { return 1 + len(ids.more) }

// admission says whether a sliding table counts a block.
type admission uint8

const (
	admitted admission = iota
	repeated           // the table counted it before
	crowded            // maxBlocks or maxProducerBlocks is reached
)

// admit adds a block's identity to its step.
func (t *steps[K, V]) admit(s *step[K, V], b *aggregate.Block) admission {
	id := blockID{b.Incarnation, b.Seq}
	ids, known := s.blocks[b.Producer]
	if known {
		if _, more := ids.more[id]; more || ids.first == id {
			return repeated
		}
	}
	if s.n >= maxBlocks/4 || known && ids.len() >= maxProducerBlocks {
		return crowded
	}
	if s.start > t.newest && s.n > 0 {
		if _, blocks := t.ahead(); blocks >= maxBlocks/2 {
			return crowded
		}
	}
	switch {
	case !known:
		ids.first = id
	case ids.more == nil:
		ids.more = map[blockID]struct{}{id: {}}
	default:
		ids.more[id] = struct{}{}
	}
	s.blocks[b.Producer] = ids
	s.n++
	t.blocks++
	return admitted
}

// wholeTime is the width of a step that holds everything.
const wholeTime = math.MaxInt64

func newSteps[K comparable, V any](b Bounds, merge func(into, v *V), past func(K) K) steps[K, V] {
	b.Step = cmp.Or(b.Step, b.Resolution)
	width := int64(b.Step)
	switch {
	case b.Steps == 0:
		b.Steps, width = 1, wholeTime
	case !b.Sliding:
		b.Steps = max(b.Steps, 2) // two adjacent windows can need two steps at every length
	}
	return steps[K, V]{bounds: b, merge: merge, past: past, width: width, newest: math.MaxInt64}
}

// takes reports whether the block is for this table.
func (t *steps[K, V]) takes(b *aggregate.Block) bool {
	return b.Resolution == int64(t.bounds.Resolution) && (b.WindowStart >= 0 || !t.bounds.Sliding)
}

// at returns the step of a window for writing, a new one if need be. It is nil if a sliding table
// has forgotten the step, or has the maximum number of steps ahead.
func (t *steps[K, V]) at(start int64) *step[K, V] {
	if len(t.list) == 0 {
		t.first, t.last = start, start
	}
	t.first, t.last = min(t.first, start), max(t.last, start)
	for !t.bounds.Sliding && t.last/t.width-t.first/t.width >= int64(t.bounds.Steps) {
		t.widen()
	}
	start -= start % t.width
	i, found := t.find(start)
	if found {
		t.list[i].own()
		return t.list[i]
	}
	if t.bounds.Sliding && !t.keeps(start, i) {
		return nil
	}
	s := t.insert(start)
	if t.bounds.Sliding && i > 0 { // the previous step is likely to be similar
		s.rows.reserve(len(t.list[i-1].rows.cells), len(t.list[i-1].rows.list))
	}
	return s
}

// insert adds an empty step where there is none.
func (t *steps[K, V]) insert(start int64) *step[K, V] {
	i, _ := t.find(start)
	s := &step[K, V]{start: start, rows: newRows[K, V]()}
	if t.bounds.Sliding {
		s.blocks = make(map[uint64]blockIDs)
	}
	t.list = slices.Insert(t.list, i, s)
	return s
}

// find returns the index of the step that starts at a time, or the index at which it would be
// inserted.
func (t *steps[K, V]) find(start int64) (i int, found bool) {
	return slices.BinarySearchFunc(t.list, start, func(s *step[K, V], at int64) int { return cmp.Compare(s.start, at) })
}

// keeps reports whether a sliding table has room for a new step, at an index of its list.
func (t *steps[K, V]) keeps(start int64, i int) bool {
	upTo := t.upToNewest()
	if start > t.newest {
		return len(t.list)-upTo < t.bounds.Steps
	}
	return start >= t.floor && (i > 0 || upTo < t.bounds.Steps)
}

// upToNewest returns the number of steps that are not ahead.
func (t *steps[K, V]) upToNewest() int {
	n := len(t.list)
	for n > 0 && t.list[n-1].start > t.newest {
		n--
	}
	return n
}

// add adds a value to its row of a step. It returns the step that holds the row: another one if
// steps got longer.
func (t *steps[K, V]) add(s *step[K, V], k rowKey[K], v *V) *step[K, V] {
	have := s.rows.find(k)
	for have == nil && t.noRoom(s) {
		t.full = true
		if t.bounds.Sliding || len(t.list) == 1 {
			t.merge(&t.overflow, v)
			if t.past == nil {
				return s
			}
			k.cell.Src, k.cell.Dst, k.key = aggregate.OverflowGroup, aggregate.OverflowGroup, t.past(k.key)
			have = s.rows.find(k)
			break
		}
		t.widen()
		s = t.at(s.start)
		have = s.rows.find(k)
	}
	if have != nil {
		t.merge(have, v)
		return s
	}
	s.rows.insert(k, v)
	t.held++
	return s
}

func (t *steps[K, V]) noRoom(s *step[K, V]) bool {
	if t.bounds.Sliding {
		if s.start > t.newest {
			if rows, _ := t.ahead(); rows >= t.bounds.Rows/2 {
				return true
			}
		}
		return len(s.rows.list) >= t.stepRows()
	}
	return t.held >= t.bounds.Rows
}

// ahead returns the numbers of rows and block identities in the steps after newest.
func (t *steps[K, V]) ahead() (rows, blocks int) {
	for _, s := range t.list[t.upToNewest():] {
		rows += len(s.rows.list)
		blocks += s.n
	}
	return rows, blocks
}

// stepRows returns the maximum number of rows of one step.
func (t *steps[K, V]) stepRows() int {
	if t.bounds.Sliding {
		return max(t.bounds.Rows/4, 1)
	}
	return t.bounds.Rows
}

// widen merges steps by two, or by five.
func (t *steps[K, V]) widen() {
	t.width = widened(t.width, int64(t.bounds.Step))
	old := t.list
	t.list, t.held = make([]*step[K, V], 0, len(old)/2+1), 0
	for _, s := range old {
		s.start -= s.start % t.width
		n := len(t.list)
		if n == 0 || t.list[n-1].start != s.start {
			t.list = append(t.list, s)
			t.held += len(s.rows.list)
			continue
		}
		into := t.list[n-1]
		into.own()
		for k, v := range s.rows.all {
			if have := into.rows.find(k); have != nil {
				t.merge(have, v)
				continue
			}
			into.rows.insert(k, v)
			t.held++
		}
	}
}

// widened returns the next length: 2, 10, 20, 100 and so on times the first length, so that steps
// of 1 ms divide a second evenly; at last all of time.
func widened(width, first int64) int64 {
	if width > wholeTime/5 {
		return wholeTime
	}
	for first <= width/10 {
		first *= 10
	}
	if width == first {
		return 2 * width
	}
	return 5 * width
}

// StepFor returns the length at which a range needs at most this number of steps.
func StepFor(first, last int64, resolution time.Duration, steps int) time.Duration {
	width := int64(resolution)
	for last/width-first/width >= int64(max(steps, 2)) {
		width = widened(width, int64(resolution))
	}
	return time.Duration(width)
}

// slide forgets the oldest steps of a sliding table past its bounds.
func (t *steps[K, V]) slide() {
	if !t.bounds.Sliding {
		return
	}
	for n := t.upToNewest(); n > 1; n-- {
		past := n > t.bounds.Steps || t.newest != math.MaxInt64 && t.list[0].start <= t.newest-int64(t.bounds.Steps)*t.width
		if !past && t.held <= t.bounds.Rows && t.blocks <= maxBlocks {
			return
		}
		if !past {
			t.forgotten++
		}
		t.floor = t.list[0].start + t.width
		t.forget(0)
	}
}

// forget drops the step at an index of the list.
func (t *steps[K, V]) forget(i int) {
	t.held -= len(t.list[i].rows.list)
	t.blocks -= t.list[i].n
	t.list = slices.Delete(t.list, i, i+1)
}

// Full reports whether a row had no room: steps are longer than their number requires, or rows
// overflowed or were dropped.
func (t *steps[K, V]) Full() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.full
}

// Extent returns the starts of the first and the last window, Unix ns; both are 0 if there are
// none.
func (t *steps[K, V]) Extent() (first, last int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.first, t.last
}

// Step returns the length of a step: 1, 2, 10, 20, 100 and so on times the first length.
func (t *steps[K, V]) Step() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Duration(t.width)
}

// own makes the rows ready for writing.
func (s *step[K, V]) own() {
	if s.shared {
		s.rows, s.shared = s.rows.clone(), false
	}
}

// share returns the current rows. Later writes do not change them.
func (s *step[K, V]) share() *rows[K, V] {
	s.shared = true
	return s.rows
}

// rows are values by cell and key. Blocks come cell by cell, and in the same order from each
// producer, so most rows are found next to the last one.
type rows[K comparable, V any] struct {
	cells []cellRows
	index map[aggregate.CellKey]int32 // of cells
	list  []row[K, V]
	far   map[rowKey[K]]int32 // positions of rows, of cells with more than nearRows
	last  int                 // position of the cell that was found last
}

type rowKey[K comparable] struct {
	cell aggregate.CellKey
	key  K
}

// cellRows is a cell, whose rows are a linked list.
type cellRows struct {
	cell  aggregate.CellKey
	first int32 // index of a row, -1 for none
	n     int32
}

type row[K comparable, V any] struct {
	key   K
	next  int32 // index of another row of the cell, -1 for none
	value V
}

// nearRows is the number of a cell's rows up to which they are searched one by one.
const nearRows = 16

func newRows[K comparable, V any]() *rows[K, V] {
	return &rows[K, V]{index: make(map[aggregate.CellKey]int32), far: make(map[rowKey[K]]int32)}
}

// reserve makes room in empty rows.
func (t *rows[K, V]) reserve(cells, n int) {
	t.cells, t.index, t.list = make([]cellRows, 0, cells), make(map[aggregate.CellKey]int32, cells), make([]row[K, V], 0, n)
}

func (t *rows[K, V]) clone() *rows[K, V] {
	return &rows[K, V]{slices.Clone(t.cells), maps.Clone(t.index), slices.Clone(t.list), maps.Clone(t.far), t.last}
}

// cell returns the position of a cell, -1 if it has no row.
func (t *rows[K, V]) cell(k aggregate.CellKey) int {
	for i := t.last; i < min(t.last+2, len(t.cells)); i++ {
		if t.cells[i].cell == k {
			t.last = i
			return i
		}
	}
	i, ok := t.index[k]
	if !ok {
		return -1
	}
	t.last = int(i)
	return int(i)
}

// find returns the value of a row, nil if there is none. It is valid until the next insert.
func (t *rows[K, V]) find(k rowKey[K]) *V {
	at := t.cell(k.cell)
	if at < 0 {
		return nil
	}
	if t.cells[at].n > nearRows {
		if i, ok := t.far[k]; ok {
			return &t.list[i].value
		}
		return nil
	}
	for i := t.cells[at].first; i >= 0; i = t.list[i].next {
		if t.list[i].key == k.key {
			return &t.list[i].value
		}
	}
	return nil
}

// insert adds a row that does not exist yet.
func (t *rows[K, V]) insert(k rowKey[K], v *V) {
	at := t.cell(k.cell)
	if at < 0 {
		at = len(t.cells)
		t.cells = append(t.cells, cellRows{cell: k.cell, first: -1})
		t.index[k.cell], t.last = int32(at), at
	}
	c := &t.cells[at]
	t.list = append(t.list, row[K, V]{k.key, c.first, *v})
	c.first = int32(len(t.list) - 1)
	switch c.n++; {
	case c.n == nearRows+1:
		for i := c.first; i >= 0; i = t.list[i].next {
			t.far[rowKey[K]{k.cell, t.list[i].key}] = i
		}
	case c.n > nearRows:
		t.far[k] = c.first
	}
}

// all yields every row.
func (t *rows[K, V]) all(yield func(rowKey[K], *V) bool) {
	for i := range t.cells {
		c := &t.cells[i]
		for at := c.first; at >= 0; at = t.list[at].next {
			if !yield(rowKey[K]{c.cell, t.list[at].key}, &t.list[at].value) {
				return
			}
		}
	}
}
