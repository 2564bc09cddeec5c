package query

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/csigscope/csigscope/aggregate"
)

// FramesVersion is the version of the form of frames. It changes when a reader of the old form
// would misread the new one.
const FramesVersion = 1

// FramesHead is the head of an answer with frames: the cells of some windows as columns of
// numbers, which a page uses directly, without parsing each one. Before it comes its length as a
// little-endian uint32, after it spaces of JSON up to a multiple of 8 bytes, then Columns,
// little-endian; offsets are counted from the end of the head.
type FramesHead struct {
	Version   int      `json:"version"`
	StepNS    int64    `json:"step_ns"`
	Groups    []ID     `json:"groups"`    // indexed by layouts
	Locations []ID     `json:"locations"` // indexed by modes from 1 on; 0 is none
	Layouts   []Layout `json:"layouts"`
	Frames    []Frame  `json:"frames"` // of windows with observations, ascending
}

// Layout lists the cells in the rows of frames: windows with the same cells share one. Src and
// Dst are offsets of u16 columns.
type Layout struct {
	Rows int `json:"rows"`
	Src  int `json:"src"`
	Dst  int `json:"dst"`
}

// Frame is one window.
type Frame struct {
	Window  NS                `json:"window"`
	Layout  int               `json:"layout"`
	Columns map[string]Column `json:"columns"` // by name as in Cells; modes are those of ModeColumns
}

// Column has as many numbers as the layout has rows, or one for all rows.
type Column struct {
	Type  string `json:"type,omitempty"` // u8, u16, u32, f32 or f64; empty: all rows have Value
	At    int    `json:"at,omitempty"`
	Value uint64 `json:"value,omitempty"`
}

// BuildFrames reads the cells of one signal, at one level, as frames; lean ones have only the
// columns needed for drawing. Options are those of Build; From and To should be multiples of the
// step. Errors are those of Build. The caller owns the answer.
func BuildFrames(ctx context.Context, r Reader, o Options, lean bool) ([]byte, error) {
	_, p, err := o.plan(ctx, r)
	if err != nil {
		return nil, err
	}
	if len(o.Signals) != 1 || len(o.Levels) != 1 {
		return nil, fmt.Errorf("%w: frames are of one signal at one level: name one each", ErrInvalid)
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
	if !slices.IsSortedFunc(rows, aggregate.CompareCellWindows) {
		slices.SortFunc(rows, aggregate.CompareCellWindows)
	}
	return encodeFrames(p.step, rows, lean)
}

// encodeFrames encodes rows, ordered by window, source and destination, as frames, lean or not as in
// BuildFrames.
func encodeFrames(step int64, rows []aggregate.CellWindow, lean bool) ([]byte, error) {
	f := newFramer(step, lean)
	for i := range rows {
		if i > 0 && rows[i].Start != rows[i-1].Start {
			f.frame(rows[i-1].Start)
		}
		f.rows = append(f.rows, &rows[i].CellStats)
	}
	if n := len(rows); n > 0 {
		f.frame(rows[n-1].Start)
	}
	return f.finish()
}

// EncodeFrame encodes the cells of one window, ordered by source and destination, as frames with all
// columns. start is in Unix ns, and step the length of the window in ns. Errors wrap ErrTooLarge. The
// caller owns the answer.
func EncodeFrame(start, step int64, cells []aggregate.CellStats) ([]byte, error) {
	f := newFramer(step, false)
	for i := range cells {
		f.rows = append(f.rows, &cells[i])
	}
	if len(cells) > 0 {
		f.frame(start)
	}
	return f.finish()
}

// framer encodes frames.
type framer struct {
	head      FramesHead
	lean      bool
	data      []byte
	groups    map[aggregate.GroupID]uint16
	locations map[aggregate.LocationID]uint64
	rows      []*aggregate.CellStats // of the next frame
	keys      []*aggregate.CellStats // rows of the last layout
	column    []uint64               // the column being written
}

func newFramer(step int64, lean bool) *framer {
	return &framer{
		head:   FramesHead{Version: FramesVersion, StepNS: step, Groups: []ID{}, Locations: []ID{}, Layouts: []Layout{}, Frames: []Frame{}},
		lean:   lean,
		groups: make(map[aggregate.GroupID]uint16), locations: make(map[aggregate.LocationID]uint64),
	}
}

// group is a group's index in the head.
func (f *framer) group(id aggregate.GroupID) uint16 {
	at, known := f.groups[id]
	if !known {
		at = uint16(len(f.head.Groups))
		f.groups[id] = at
		f.head.Groups = append(f.head.Groups, ID(id))
	}
	return at
}

// location is a location's index in the head, from 1 on.
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

// frame adds the rows as the frame of one window, ordered by source and destination.
func (f *framer) frame(start int64) {
	out := Frame{Window: NS(start), Layout: f.layout(), Columns: map[string]Column{}}
	counts := func(name string, of func(*aggregate.CellStats) uint64) { out.Columns[name] = f.counts(of) }
	values := func(name string, of func(*aggregate.CellStats) float64) { out.Columns[name] = f.values(of) }
	counts("kind", func(c *aggregate.CellStats) uint64 { return uint64(c.Kind) })
	counts("observations", func(c *aggregate.CellStats) uint64 { return c.Observations })
	counts("state", func(c *aggregate.CellStats) uint64 { return uint64(c.State) })
	counts("samples", func(c *aggregate.CellStats) uint64 { return c.Samples })
	counts("heavy", func(c *aggregate.CellStats) uint64 { return c.Heavy })
	counts("trimmed", func(c *aggregate.CellStats) uint64 { return c.Trimmed })
	counts("mode", func(c *aggregate.CellStats) uint64 { return f.location(c.Mode) })
	values("mean", (*aggregate.CellStats).MeanValue)
	if !f.lean {
		values("min", (*aggregate.CellStats).MinValue)
		values("max", (*aggregate.CellStats).MaxValue)
		counts("untouched", func(c *aggregate.CellStats) uint64 { return c.Untouched })
		counts("mode_count", func(c *aggregate.CellStats) uint64 { return c.ModeCount })
		counts("mode_evidence", func(c *aggregate.CellStats) uint64 { return uint64(c.ModeEvidence) })
		counts("runner_up", func(c *aggregate.CellStats) uint64 { return f.location(c.RunnerUp) })
		counts("runner_up_count", func(c *aggregate.CellStats) uint64 { return c.RunnerUpCount })
		counts("runner_up_evidence", func(c *aggregate.CellStats) uint64 { return uint64(c.RunnerUpEvidence) })
	}
	f.head.Frames = append(f.head.Frames, out)
	f.rows = f.rows[:0]
}

// layout returns the layout of the last frame if the cells are the same, else a new one.
func (f *framer) layout() int {
	same := slices.EqualFunc(f.rows, f.keys, func(a, b *aggregate.CellStats) bool { return a.Src == b.Src && a.Dst == b.Dst })
	if same {
		return len(f.head.Layouts) - 1
	}
	f.keys = append(f.keys[:0], f.rows...)
	l := Layout{Rows: len(f.rows), Src: f.align()}
	for _, c := range f.rows {
		f.data = binary.LittleEndian.AppendUint16(f.data, f.group(c.Src))
	}
	l.Dst = f.align()
	for _, c := range f.rows {
		f.data = binary.LittleEndian.AppendUint16(f.data, f.group(c.Dst))
	}
	f.head.Layouts = append(f.head.Layouts, l)
	return len(f.head.Layouts) - 1
}

// align pads to the next offset that suits any type.
func (f *framer) align() int {
	for len(f.data)%8 != 0 {
		f.data = append(f.data, 0)
	}
	return len(f.data)
}

// counts writes a column in the narrowest type that fits its largest number.
func (f *framer) counts(of func(*aggregate.CellStats) uint64) Column {
	f.column = f.column[:0]
	least, most := uint64(math.MaxUint64), uint64(0)
	for _, c := range f.rows {
		v := of(c)
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
func (f *framer) values(of func(*aggregate.CellStats) float64) Column {
	out := Column{Type: "f32", At: f.align()}
	for _, c := range f.rows {
		f.data = binary.LittleEndian.AppendUint32(f.data, math.Float32bits(float32(of(c))))
	}
	return out
}

func (f *framer) finish() ([]byte, error) {
	if len(f.groups) > math.MaxUint16 {
		return nil, fmt.Errorf("%w: %d groups, at most %d", ErrTooLarge, len(f.groups), math.MaxUint16)
	}
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
