package remote

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/csigscope/csigscope/ingest/credential"
)

// ErrStreams is wrapped by the error for bytes that are no state of streams.
var ErrStreams = errors.New("is no state of streams, or of another version")

// streamsVersion changes with the encoding, and with how blocks are cut into parts.
const streamsVersion = 2

// AppendStreams appends where the lasting streams are, so that ResumeStreams goes on
// there: their numbers, and the rows of their windows. There is no checksum: whoever
// stores it adds one.
//
//	version:8 | streams:uvarint, of each
//	length:uvarint name | incarnation:uvarint | blocks:uvarint | windows:uvarint, of each
//	resolution:uvarint | start:varint from that of the one before | rows:uvarint |
//	flows:uvarint
func (c *Client) AppendStreams(b []byte) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []*Stream
	for _, s := range c.streams {
		if s.lasting {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b *Stream) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.incarnation, b.incarnation))
	})
	b = binary.AppendUvarint(append(b, streamsVersion), uint64(len(list)))
	for _, s := range list {
		b = s.appendState(b)
	}
	return b
}

func (s *Stream) appendState(b []byte) []byte {
	b = append(binary.AppendUvarint(b, uint64(len(s.name))), s.name...)
	b = binary.AppendUvarint(b, s.incarnation)
	b = binary.AppendUvarint(b, s.blocks)
	b = binary.AppendUvarint(b, uint64(len(s.windows)))
	windows := slices.SortedFunc(maps.Keys(s.windows), func(a, b windowKey) int {
		return cmp.Or(cmp.Compare(a.resolution, b.resolution), cmp.Compare(a.start, b.start))
	})
	last := int64(0)
	for _, w := range windows {
		b = binary.AppendUvarint(b, uint64(w.resolution))
		b = binary.AppendVarint(b, w.start-last)
		b = binary.AppendUvarint(b, s.windows[w].rows)
		b = binary.AppendUvarint(b, s.windows[w].flows)
		last = w.start
	}
	return b
}

// ResumeStreams goes on with the lasting streams of an earlier process, before anything is
// written to them. After an error there are none; it is an ErrStreams.
func (c *Client) ResumeStreams(b []byte) error {
	r := stateReader{b: b}
	if r.byte() != streamsVersion {
		return fmt.Errorf("resume streams: %w", ErrStreams)
	}
	var list []*Stream
	for n := r.uvarint(); n > 0 && !r.bad; n-- {
		list = append(list, r.stream(c))
	}
	if r.bad || len(r.b) > 0 {
		return fmt.Errorf("resume streams: %w", ErrStreams)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range list {
		c.streams[s.streamKey] = s
	}
	return nil
}

// stateReader takes fields off; bad is sticky.
type stateReader struct {
	b   []byte
	bad bool
}

func (r *stateReader) stream(c *Client) *Stream {
	s := &Stream{client: c, windows: map[windowKey]windowRows{}, lasting: true}
	s.name = r.text()
	s.incarnation, s.blocks = r.uvarint(), r.uvarint()
	if credential.CheckName(s.name) != nil || s.incarnation == 0 {
		r.bad = true
	}
	n := r.uvarint()
	if n > maxWindows {
		r.bad = true
	}
	last := int64(0)
	for range n {
		if r.bad {
			break
		}
		w := windowKey{resolution: int64(r.uvarint()), start: last + r.varint()}
		s.windows[w] = windowRows{rows: r.uvarint(), flows: r.uvarint()}
		last = w.start
	}
	return s
}

func (r *stateReader) byte() byte {
	if len(r.b) == 0 {
		r.bad = true
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *stateReader) text() string {
	n := r.uvarint()
	if r.bad || n > maxStreamBytes || n > uint64(len(r.b)) {
		r.bad = true
		return ""
	}
	text := string(r.b[:n])
	r.b = r.b[n:]
	return text
}

func (r *stateReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	return took(r, v, n)
}

func (r *stateReader) varint() int64 {
	v, n := binary.Varint(r.b)
	return took(r, v, n)
}

// took passes over n bytes that a number v was read from.
func took[T int64 | uint64](r *stateReader, v T, n int) T {
	if r.bad || n <= 0 {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return v
}
