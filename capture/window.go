package capture

import "io"

// window is the part of a byte stream that is in memory: buf[r:w] is unread.
// Slices of it stay valid until the next fill or discard.
type window struct {
	src  io.Reader
	buf  []byte
	r, w int
	base int64 // stream offset of buf[0]
	err  error // why the stream ended; sticky
}

func (v *window) unread() []byte { return v.buf[v.r:v.w] }

func (v *window) offset() int64 { return v.base + int64(v.r) }

// fill makes at least n bytes available and reads as many more as the buffer
// takes in one go. It reports false when the stream ends first; v.err is then
// set. The caller has checked n against its limits: fill grows the buffer to n
// when it must.
func (v *window) fill(n int) bool {
	v.compact(n)
	for idle := 0; v.w-v.r < n && v.err == nil; {
		m, err := v.src.Read(v.buf[v.w:])
		v.w += m
		v.err = err
		if m > 0 {
			idle = 0
		} else if idle++; idle >= 100 && err == nil {
			v.err = io.ErrNoProgress
		}
	}
	return v.w-v.r >= n
}

// compact moves what is unread to the front, so that n bytes fit behind it.
func (v *window) compact(n int) {
	dst := v.buf
	if n > len(dst) {
		dst = make([]byte, n)
	}
	left := copy(dst, v.unread())
	v.base += int64(v.r)
	v.buf, v.r, v.w = dst, 0, left
}

// discard reads n bytes away, in memory that does not depend on n, and returns
// how many there were.
func (v *window) discard(n int64) int64 {
	done := int64(0)
	for {
		step := min(n-done, int64(v.w-v.r))
		v.r += int(step)
		done += step
		if done == n || !v.fill(1) {
			return done
		}
	}
}
