package capture

import (
	"errors"
	"io"
	"math"
)

// Merger returns the frames of several readers in time order. It is only for pacing: taps have
// different clocks, so the order of two frames of different readers does not show which came first.
// Within one reader the order of the file is kept, even if its times run backwards.
//
// A frame without time follows the frame before it. A Merger is not safe for concurrent use. It
// holds one Batch per reader that has not ended, and one Reader per open file.
type Merger struct {
	inputs   []input
	heap     []int // indexes into inputs, the next frame's at 0
	failed   []int // inputs whose error is not reported yet
	ended    []int // inputs whose end is not reported yet
	last     int   // input of the last frame returned; -1 if there is none
	begun    bool
	pending  []start // files to open when their time comes, in time order
	opts     Options // of those files
	open     int     // number of open files
	deferred int
}

type input struct {
	reader *Reader
	owned  bool   // the merger opened the reader and closes it
	batch  *Batch // nil before the first batch and after the last
	pos    int    // next frame in batch
	time   int64  // of the frame at pos
	err    error
}

// NewMerger merges readers. It does not read yet, and the caller still has to close the readers.
func NewMerger(readers ...*Reader) *Merger {
	m := &Merger{inputs: make([]input, len(readers)), last: -1}
	for i, r := range readers {
		m.inputs[i].reader = r
	}
	return m
}

// MergeFiles merges the captures of [Files] or any others. It examines each file at once and opens
// it when the time of its first packet comes, so that about one file per tap of a directory of
// rotated files is open at a time. It reads pipes and standard input from the start. Next reports
// files that cannot be opened or are no captures, before any frame. Close the Merger to close its
// open files.
//
// If more than Options.MaxOpen files overlap in time, the others wait until one ends, and their
// first frames come later than their time. Deferred counts them.
func MergeFiles(paths []string, opts Options) *Merger {
	pending := make([]start, len(paths))
	var b Batch
	for i, path := range paths {
		time, err := firstTime(path, &b)
		if err != nil { // the error is reported on opening
			time = math.MinInt64
		}
		pending[i] = start{path: path, index: i, time: time}
	}
	sortStarts(pending)
	return &Merger{inputs: make([]input, len(paths)), last: -1, pending: pending, opts: opts.withDefaults()}
}

// Deferred returns the number of files so far that had to wait because Options.MaxOpen files were
// open when they were due.
func (m *Merger) Deferred() int { return m.deferred }

// Ended returns an input that has ended, with or without an error, after its last frame was
// returned; each input once. ok is false if there is none.
func (m *Merger) Ended() (reader int, ok bool) {
	n := len(m.ended)
	if n == 0 {
		return -1, false
	}
	reader = m.ended[n-1]
	m.ended = m.ended[:n-1]
	return reader, true
}

// Reader returns the reader of input i, for its Interfaces and Counters. With MergeFiles it is nil
// until the file is opened, and remains available after the end.
func (m *Merger) Reader(i int) *Reader { return m.inputs[i].reader }

// Close closes the files that MergeFiles opened and that have not ended. The readers of NewMerger
// belong to the caller. After it, Next returns io.EOF.
func (m *Merger) Close() error {
	var err error
	for i := range m.inputs {
		err = errors.Join(err, m.close(i))
	}
	m.pending, m.heap, m.failed, m.ended = nil, nil, nil, nil
	m.begun, m.last = true, -1
	return err
}

// close releases the resources for reading an input.
func (m *Merger) close(i int) error {
	in := &m.inputs[i]
	in.batch = nil
	if !in.owned {
		return nil
	}
	in.owned = false
	m.open--
	in.reader.release()
	return in.reader.Close()
}

// Next returns the next frame and the index of its reader in NewMerger, or of its file in
// MergeFiles. The frame and its Data are valid until the next call. Next waits until every reader
// has a frame or has ended.
//
// A failed reader is reported once, by its index and error with a nil frame; the caller may
// continue with the others. When all have ended, Next returns io.EOF with index -1, now and on
// later calls.
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

// prepare moves the next frame to the top of the heap. It leaves the last returned frame only now,
// since the next batch overwrites it.
func (m *Merger) prepare() {
	if !m.begun {
		m.begun = true
		for i := range m.inputs {
			if m.inputs[i].reader != nil && m.load(i) {
				m.heap = append(m.heap, i)
			}
		}
		for i := len(m.heap)/2 - 1; i >= 0; i-- {
			m.down(i)
		}
		m.admit()
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
	m.admit()
}

// admit opens the files whose first packet is due. A file stays due while earlier ones are opened,
// since pending is sorted.
func (m *Merger) admit() {
	for len(m.pending) > 0 && (len(m.heap) == 0 || m.pending[0].time <= m.inputs[m.heap[0]].time) {
		next := &m.pending[0]
		if m.open >= m.opts.MaxOpen {
			if !next.waits {
				next.waits = true
				m.deferred++
			}
			return
		}
		m.pending = m.pending[1:]
		in := &m.inputs[next.index]
		in.reader, in.err = Open(next.path, m.opts)
		if in.err != nil {
			m.failed = append(m.failed, next.index)
			m.ended = append(m.ended, next.index)
			continue
		}
		in.owned = true
		m.open++
		if m.load(next.index) {
			m.heap = append(m.heap, next.index)
			m.up(len(m.heap) - 1)
		}
	}
}

// load reads the next batch of an input and reports whether there was one.
func (m *Merger) load(i int) bool {
	in := &m.inputs[i]
	in.pos = 0
	if in.batch == nil {
		in.batch = new(Batch)
	}
	if err := in.reader.ReadBatch(in.batch); err != nil {
		m.ended = append(m.ended, i)
		if closed := m.close(i); errors.Is(err, io.EOF) {
			err = closed
		}
		if err != nil {
			in.err = err
			m.failed = append(m.failed, i)
		}
		return false
	}
	in.stamp()
	return true
}

// stamp sets the input's time to that of the next frame; a frame without time keeps the last one.
func (in *input) stamp() {
	if f := &in.batch.Frames[in.pos]; !f.NoTime {
		in.time = f.TimeNS
	}
}

// before orders equal times by reader, for reproducible results.
func (m *Merger) before(a, b int) bool {
	ta, tb := m.inputs[a].time, m.inputs[b].time
	return ta < tb || ta == tb && a < b
}

// up restores the heap above i.
func (m *Merger) up(i int) {
	for i > 0 && m.before(m.heap[i], m.heap[(i-1)/2]) {
		m.heap[i], m.heap[(i-1)/2] = m.heap[(i-1)/2], m.heap[i]
		i = (i - 1) / 2
	}
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
