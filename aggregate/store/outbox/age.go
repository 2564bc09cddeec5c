package outbox

import "time"

// maxMarks bounds the recorded times of appending.
const maxMarks = 128

// ages records when the records of a class were appended. With many records it is approximate:
// the marks get further apart.
type ages struct {
	marks []mark
	every time.Duration // between marks
}

// mark is the time when record seq was appended; later records came later.
type mark struct {
	seq uint64
	at  time.Time
}

// note records the time of a record that follows all earlier ones.
func (a *ages) note(seq uint64, at time.Time) {
	if n := len(a.marks); n > 0 && at.Sub(a.marks[n-1].at) < a.every {
		return
	}
	if len(a.marks) == maxMarks {
		for i := range maxMarks / 2 {
			a.marks[i] = a.marks[2*i]
		}
		a.marks = a.marks[:maxMarks/2]
		a.every = max(2*a.every, a.marks[maxMarks/2-1].at.Sub(a.marks[0].at)/maxMarks)
	}
	a.marks = append(a.marks, mark{seq, at})
}

// forget drops the marks of acknowledged records only.
func (a *ages) forget(acked uint64) {
	n := 0
	for n+1 < len(a.marks) && a.marks[n+1].seq <= acked+1 {
		n++
	}
	if n == 0 {
		return
	}
	a.marks = a.marks[:copy(a.marks, a.marks[n:])]
	if len(a.marks) == 1 {
		a.every = 0
	}
}

// since is the time when the oldest record after acked was appended, or somewhat before.
func (a *ages) since(acked uint64) (at time.Time, ok bool) {
	for i := range a.marks {
		if i == 0 || a.marks[i].seq <= acked+1 {
			at = a.marks[i].at
		}
	}
	return at, len(a.marks) > 0
}

// oldest is the time when the oldest waiting record was appended; the caller holds mu.
func (c *class) oldest() (time.Time, bool) {
	if c.Exempt || c.held || c.waiting == 0 {
		return time.Time{}, false
	}
	return c.ages.since(c.acked)
}
