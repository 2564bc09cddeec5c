package capture

import (
	"errors"
	"io"
)

// Merger hands out the frames of several readers in the order of their times.
// It serves pacing only: clocks of different taps differ, so the order of two
// frames of different readers says nothing about which came first. Within one
// reader the order of the file is kept, even where its times run backwards.
//
// A frame without time follows the frame before it. A Merger is not safe for
// concurrent use; memory is one Batch per reader.
type Merger struct {
	inputs []input
	heap   []int // indices into inputs, the next frame's at 0
	failed []int // inputs whose error is still to be reported
	last   int   // input of the frame handed out last; -1 for none
	begun  bool
}

type input struct {
	reader *Reader
	batch  Batch
	pos    int   // next frame in batch
	time   int64 // of the frame at pos
	err    error
}

// NewMerger merges readers. It does not read yet and does not take over their
// closing.
func NewMerger(readers ...*Reader) *Merger {
	m := &Merger{inputs: make([]input, len(readers)), last: -1}
	for i, r := range readers {
		m.inputs[i].reader = r
	}
	return m
}

// Next returns the next frame and the index of its reader in NewMerger. The
// frame and its Data are valid until the next call. It waits until every reader
// has a frame or has ended.
//
// A reader that fails is reported once, as its index and error with a nil
// frame; the caller may go on, the others continue. When all have ended, Next
// returns io.EOF with index -1, and from then on the same.
func (m *Merger) Next() (frame *Frame, reader int, err error) {
	m.prepare()
	if n := len(m.failed); n > 0 {
		i := m.failed[n-1]
		m.failed = m.failed[:n-1]
		return nil, i, m.inputs[i].err
	}
	if len(m.heap) == 0 {
		return nil, -1, io.EOF
	}
	m.last = m.heap[0]
	in := &m.inputs[m.last]
	return &in.batch.Frames[in.pos], m.last, nil
}

// prepare makes the top of the heap the next frame. The frame handed out last
// is left only now, since the next batch overwrites it.
func (m *Merger) prepare() {
	if !m.begun {
		m.begun = true
		for i := range m.inputs {
			if m.load(i) {
				m.heap = append(m.heap, i)
			}
		}
		for i := len(m.heap)/2 - 1; i >= 0; i-- {
			m.down(i)
		}
		return
	}
	if m.last < 0 {
		return
	}
	in := &m.inputs[m.last]
	in.pos++
	if in.pos < in.batch.N {
		in.stamp()
	} else if !m.load(m.last) {
		n := len(m.heap) - 1
		m.heap[0] = m.heap[n]
		m.heap = m.heap[:n]
	}
	m.last = -1
	m.down(0)
}

// load reads the next batch of an input and reports whether there was one.
func (m *Merger) load(i int) bool {
	in := &m.inputs[i]
	in.pos = 0
	if err := in.reader.ReadBatch(&in.batch); err != nil {
		if !errors.Is(err, io.EOF) {
			in.err = err
			m.failed = append(m.failed, i)
		}
		return false
	}
	in.stamp()
	return true
}

// stamp takes the time of the next frame; a frame without one keeps the last.
func (in *input) stamp() {
	if f := &in.batch.Frames[in.pos]; !f.NoTime {
		in.time = f.TimeNS
	}
}

// before orders equal times by reader, so that the result is reproducible.
func (m *Merger) before(a, b int) bool {
	ta, tb := m.inputs[a].time, m.inputs[b].time
	return ta < tb || ta == tb && a < b
}

// down restores the heap below i.
func (m *Merger) down(i int) {
	for {
		c := 2*i + 1
		if c >= len(m.heap) {
			return
		}
		if c+1 < len(m.heap) && m.before(m.heap[c+1], m.heap[c]) {
			c++
		}
		if !m.before(m.heap[c], m.heap[i]) {
			return
		}
		m.heap[i], m.heap[c] = m.heap[c], m.heap[i]
		i = c
	}
}
