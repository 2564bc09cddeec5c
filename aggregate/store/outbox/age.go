package outbox

import "time"

// maxMarks bounds what is remembered of when records came.
const maxMarks = 128

// ages remembers when the records of a class came, roughly where there are many: the
// marks get further apart.
type ages struct {
	marks []mark
	every time.Duration // between marks
}

// mark says that the record of that number came then, and those after it later.
type mark struct {
	seq uint64
	at  time.Time
}

// note remembers a record, which comes after all before it.
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

// forget drops what is only of records up to one.
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

// since is when the oldest record after acked came, or somewhat before.
func (a *ages) since(acked uint64) (at time.Time, ok bool) {
	for i := range a.marks {
		if i == 0 || a.marks[i].seq <= acked+1 {
			at = a.marks[i].at
		}
	}
	return at, len(a.marks) > 0
}

// oldest is when the oldest record that waits came; the caller holds mu.
func (c *class) oldest() (time.Time, bool) {
	if c.Exempt || c.held || c.waiting == 0 {
		return time.Time{}, false
	}
	return c.ages.since(c.acked)
}
