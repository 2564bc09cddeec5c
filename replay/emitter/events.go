package emitter

import "math"

// never is later than any event.
const never = math.MaxInt64

// agenda holds the next event time of each of a fixed number of sources and finds
// the earliest, the lowest source first among equals. It is a winner tree: an
// update costs the logarithm of the number of sources and allocates nothing.
type agenda struct {
	at     []int64 // per source
	winner []int32 // nodes of the tree; the leaves are the second half
	size   int
}

func newAgenda(sources int) *agenda {
	size := 1
	for size < sources {
		size *= 2
	}
	a := &agenda{at: make([]int64, size), winner: make([]int32, 2*size), size: size}
	for i := range a.at {
		a.at[i] = never
		a.winner[size+i] = int32(i)
	}
	for n := size - 1; n > 0; n-- {
		a.winner[n] = a.winner[2*n]
	}
	return a
}

// next is the earliest source and its time.
func (a *agenda) next() (source int32, at int64) {
	source = a.winner[1]
	return source, a.at[source]
}

// set moves a source's next event.
func (a *agenda) set(source int32, at int64) {
	a.at[source] = at
	for n := (int(source) + a.size) / 2; n > 0; n /= 2 {
		w, other := a.winner[2*n], a.winner[2*n+1]
		if a.at[other] < a.at[w] {
			w = other
		}
		if a.winner[n] == w && w != source {
			return
		}
		a.winner[n] = w
	}
}
