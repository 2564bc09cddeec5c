package local

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/window"
)

// State is what one ring goes on from.
type State struct {
	Name string // of the tap
	Ring int
	// Of and Session are as in RingStats.
	Of, Session string

	Tap    window.Tap
	Source aggregate.Source
	// At is the time (Unix ns) up to which the ring's frames are in the state, or in
	// windows that were closed before; 0 before the first frame.
	At   int64
	Data []byte // of aggregate.Shard.AppendState
}

// ErrState is wrapped by the error for bytes that are no states.
var ErrState = errors.New("is no state of taps, or of another version")

// stateVersion changes with the encoding.
const stateVersion = 2

// AppendStates appends the states so that ParseStates gets them back. There is no
// checksum: whoever stores them adds one.
//
//	version:8, then of each state
//	length:uvarint name | ring:uvarint | length:uvarint of | length:uvarint session
//	tags:8 reflections:8 weight:uvarint
//	producer:64 incarnation:64 epoch:64 at:64 | length:uvarint data, little-endian
func AppendStates(b []byte, states []State) []byte {
	b = append(b, stateVersion)
	for i := range states {
		s := &states[i]
		b = appendText(b, s.Name)
		b = binary.AppendUvarint(b, uint64(s.Ring))
		b = appendText(appendText(b, s.Of), s.Session)
		b = append(b, flag(s.Tap.Tags), flag(s.Tap.Reflections))
		b = binary.AppendUvarint(b, s.Tap.Weight)
		for _, v := range [...]uint64{s.Source.Producer, s.Source.Incarnation, s.Source.Epoch, uint64(s.At)} {
			b = binary.LittleEndian.AppendUint64(b, v)
		}
		b = appendText(b, s.Data)
	}
	return b
}

func appendText[T string | []byte](b []byte, text T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// ParseStates reads what AppendStates wrote. Data of the states lies in b. The error is
// an ErrState.
func ParseStates(b []byte) ([]State, error) {
	r := stateReader{b: b}
	if version := r.take(1); version == nil || version[0] != stateVersion {
		return nil, fmt.Errorf("read states: %w", ErrState)
	}
	var states []State
	for len(r.b) > 0 && !r.bad {
		var s State
		s.Name = string(r.text())
		s.Ring = int(r.number(maxRing))
		s.Of, s.Session = string(r.text()), string(r.text())
		if flags := r.take(2); flags != nil {
			s.Tap.Tags, s.Tap.Reflections = flags[0] == 1, flags[1] == 1
		}
		s.Tap.Weight = r.number(1 << 62)
		if ids := r.take(32); ids != nil {
			s.Source = aggregate.Source{
				Producer:    binary.LittleEndian.Uint64(ids),
				Incarnation: binary.LittleEndian.Uint64(ids[8:]),
				Epoch:       binary.LittleEndian.Uint64(ids[16:]),
			}
			s.At = int64(binary.LittleEndian.Uint64(ids[24:]))
		}
		s.Data = r.text()
		states = append(states, s)
	}
	if r.bad {
		return nil, fmt.Errorf("read states: %w", ErrState)
	}
	return states, nil
}

// stateReader takes fields off; bad is sticky.
type stateReader struct {
	b   []byte
	bad bool
}

func (r *stateReader) take(n uint64) []byte {
	if r.bad || uint64(len(r.b)) < n {
		r.bad = true
		return nil
	}
	out := r.b[:n:n]
	r.b = r.b[n:]
	return out
}

func (r *stateReader) number(limit uint64) uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > limit {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *stateReader) text() []byte { return r.take(r.number(uint64(len(r.b)))) }
