package query

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/csigscope/csigscope/aggregate"
)

// FramesVersion is the version of the form of frames. It changes when a reader of the old
// form would misread the new one.
const FramesVersion = 1

// FramesHead begins an answer of frames: the cells of some windows as columns of numbers
// that a page takes as they are, without parsing them one by one. Its length as a
// little-endian uint32 comes before it, then spaces of JSON up to a multiple of 8 bytes,
// then Columns, little-endian; places are counted from the end of the head.
type FramesHead struct {
	Version   int      `json:"version"`
	StepNS    int64    `json:"step_ns"`
	Groups    []ID     `json:"groups"`    // that layouts count
	Locations []ID     `json:"locations"` // that modes count from 1 on; 0 is none
	Layouts   []Layout `json:"layouts"`
	Frames    []Frame  `json:"frames"` // of windows with observations, ascending
}

// Layout says which cells the rows of frames are: windows that were observed in the same
// cells share one. Src and Dst are places of u16.
type Layout struct {
	Rows int `json:"rows"`
	Src  int `json:"src"`
	Dst  int `json:"dst"`
}

// Frame is one window.
type Frame struct {
	Window  NS                `json:"window"`
	Layout  int               `json:"layout"`
	Columns map[string]Column `json:"columns"` // by name as in Cells; modes are mode, mode_count, runner_up, runner_up_count
}

// Column is as many numbers as the layout has rows, or one that all rows have.
type Column struct {
	Type  string `json:"type,omitempty"` // u8, u16, u32, f32 or f64; empty: all rows have Value
	At    int    `json:"at,omitempty"`
	Value uint64 `json:"value,omitempty"`
}

// BuildFrames reads the cells of one signal, at one level, as frames; lean ones have the
// columns that a drawing needs alone. Options are those of Build; From and To are best
// multiples of the step. Errors are those of Build. The answer is the caller's.
func BuildFrames(ctx context.Context, r Reader, o Options, lean bool) ([]byte, error) {
	o = o.withDefaults()
	extent, err := r.Extent(ctx)
	if err != nil {
		return nil, fmt.Errorf("read extent: %w", err)
	}
	if err := o.findSignals(extent); err != nil {
		return nil, err
	}
	if len(o.Signals) != 1 || len(o.Levels) != 1 {
		return nil, fmt.Errorf("%w: frames are of one signal at one level: name one each", ErrInvalid)
	}
	p, err := newPlan(o, extent)
	if err != nil {
		return nil, err
	}
	q := p.question(o.Signals[0])
	q.Level, q.Src, q.Dst = o.Levels[0], o.Src, o.Dst
	rows, err := r.CellWindows(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("read cells per window: %w", err)
	}
	if len(rows) > o.MaxRows {
		return nil, fmt.Errorf("%w: more than %d rows: take fewer windows", ErrTooLarge, o.MaxRows)
	}
	if !slices.IsSortedFunc(rows, compareCells) {
		slices.SortFunc(rows, compareCells)
	}
	return EncodeFrames(p.step, rows, lean)
}

// EncodeFrames writes rows as frames, lean or not as in BuildFrames. The rows are ordered by
// window, source and destination; step is the length of the windows in ns. Errors wrap
// ErrTooLarge. The answer is the caller's.
func EncodeFrames(step int64, rows []CellRow, lean bool) ([]byte, error) {
	f := newFramer(lean)
	f.head.StepNS = step
	for len(rows) > 0 {
		n := 1
		for n < len(rows) && rows[n].Window == rows[0].Window {
			n++
		}
		f.frame(rows[:n])
		rows = rows[n:]
	}
	if len(f.groups) > math.MaxUint16 {
		return nil, fmt.Errorf("%w: %d groups, at most %d", ErrTooLarge, len(f.groups), math.MaxUint16)
	}
	return f.finish()
}

// framer writes frames.
type framer struct {
	head      FramesHead
	lean      bool
	data      []byte
	groups    map[aggregate.GroupID]uint16
	locations map[aggregate.LocationID]uint64
	keys      []CellRow // rows that the last layout was made of
	column    []uint64  // that is being written
}

func newFramer(lean bool) *framer {
	return &framer{
		head:   FramesHead{Version: FramesVersion, Groups: []ID{}, Locations: []ID{}, Layouts: []Layout{}, Frames: []Frame{}},
		lean:   lean,
		groups: make(map[aggregate.GroupID]uint16), locations: make(map[aggregate.LocationID]uint64),
	}
}

// group is a group's place among the head's.
func (f *framer) group(id aggregate.GroupID) uint16 {
	at, known := f.groups[id]
	if !known {
		at = uint16(len(f.head.Groups))
		f.groups[id] = at
		f.head.Groups = append(f.head.Groups, ID(id))
	}
	return at
}

// location is a location's place among the head's, from 1 on.
func (f *framer) location(id aggregate.LocationID) uint64 {
	if id == aggregate.NoLocation {
		return 0
	}
	at, known := f.locations[id]
	if !known {
		f.head.Locations = append(f.head.Locations, ID(id))
		at = uint64(len(f.head.Locations))
		f.locations[id] = at
	}
	return at
}

// frame adds the rows of one window, ordered by source and destination.
func (f *framer) frame(rows []CellRow) {
	out := Frame{Window: NS(rows[0].Window), Layout: f.layout(rows), Columns: map[string]Column{}}
	counts := func(name string, of func(*CellRow) uint64) { out.Columns[name] = f.counts(rows, of) }
	values := func(name string, of func(*CellRow) float64) { out.Columns[name] = f.values(rows, of) }
	counts("kind", func(r *CellRow) uint64 { return uint64(r.Kind) })
	counts("observations", func(r *CellRow) uint64 { return r.Observations })
	counts("heavy", func(r *CellRow) uint64 { return r.Heavy })
	counts("trimmed", func(r *CellRow) uint64 { return r.Trimmed })
	counts("mode", func(r *CellRow) uint64 { return f.location(r.Mode) })
	values("mean", func(r *CellRow) float64 { return r.Mean })
	if !f.lean {
		values("min", func(r *CellRow) float64 { return r.Min })
		values("max", func(r *CellRow) float64 { return r.Max })
		counts("untouched", func(r *CellRow) uint64 { return r.Untouched })
		counts("mode_count", func(r *CellRow) uint64 { return r.ModeCount })
		counts("runner_up", func(r *CellRow) uint64 { return f.location(r.RunnerUp) })
		counts("runner_up_count", func(r *CellRow) uint64 { return r.RunnerUpCount })
	}
	f.head.Frames = append(f.head.Frames, out)
}

// layout is the one of the last frame where the cells are the same, else a new one.
func (f *framer) layout(rows []CellRow) int {
	if sameCells(rows, f.keys) {
		return len(f.head.Layouts) - 1
	}
	f.keys = rows
	l := Layout{Rows: len(rows), Src: f.align()}
	for i := range rows {
		f.data = binary.LittleEndian.AppendUint16(f.data, f.group(rows[i].Src))
	}
	l.Dst = f.align()
	for i := range rows {
		f.data = binary.LittleEndian.AppendUint16(f.data, f.group(rows[i].Dst))
	}
	f.head.Layouts = append(f.head.Layouts, l)
	return len(f.head.Layouts) - 1
}

func sameCells(a, b []CellRow) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Src != b[i].Src || a[i].Dst != b[i].Dst {
			return false
		}
	}
	return true
}

// align is the next place that any type may begin at.
func (f *framer) align() int {
	for len(f.data)%8 != 0 {
		f.data = append(f.data, 0)
	}
	return len(f.data)
}

// counts writes a column as narrow as its largest number allows.
func (f *framer) counts(rows []CellRow, of func(*CellRow) uint64) Column {
	f.column = f.column[:0]
	least, most := uint64(math.MaxUint64), uint64(0)
	for i := range rows {
		v := of(&rows[i])
		least, most = min(least, v), max(most, v)
		f.column = append(f.column, v)
	}
	if least == most && most < 1<<53 {
		return Column{Value: most}
	}
	c := Column{At: f.align()}
	switch {
	case most <= math.MaxUint8:
		c.Type = "u8"
		for _, v := range f.column {
			f.data = append(f.data, uint8(v))
		}
	case most <= math.MaxUint16:
		c.Type = "u16"
		for _, v := range f.column {
			f.data = binary.LittleEndian.AppendUint16(f.data, uint16(v))
		}
	case most <= math.MaxUint32:
		c.Type = "u32"
		for _, v := range f.column {
			f.data = binary.LittleEndian.AppendUint32(f.data, uint32(v))
		}
	default:
		c.Type = "f64"
		for _, v := range f.column {
			f.data = binary.LittleEndian.AppendUint64(f.data, math.Float64bits(float64(v)))
		}
	}
	return c
}

// values writes measurements, seven digits of each; NaN is no value.
func (f *framer) values(rows []CellRow, of func(*CellRow) float64) Column {
	c := Column{Type: "f32", At: f.align()}
	for i := range rows {
		f.data = binary.LittleEndian.AppendUint32(f.data, math.Float32bits(float32(of(&rows[i]))))
	}
	return c
}

func (f *framer) finish() ([]byte, error) {
	head, err := json.Marshal(f.head)
	if err != nil {
		return nil, fmt.Errorf("encode frames: %w", err)
	}
	for (4+len(head))%8 != 0 {
		head = append(head, ' ')
	}
	out := make([]byte, 0, 4+len(head)+len(f.data))
	out = binary.LittleEndian.AppendUint32(out, uint32(len(head)))
	return append(append(out, head...), f.data...), nil
}

// compareCells orders rows as frames and columns have them.
func compareCells(a, b CellRow) int {
	return cmp.Or(cmp.Compare(a.Window, b.Window), cmp.Compare(a.Src, b.Src), cmp.Compare(a.Dst, b.Dst))
}
