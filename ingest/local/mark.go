package local

import "github.com/csigscope/csigscope/aggregate"

// Mark is how far the rows of one ring go, as of a round.
type Mark struct {
	Name string // of the tap
	Ring int
	// Of and Session are as in RingStats.
	Of, Session string
	Source      aggregate.Source
	// At is the time (Unix ns) up to which the ring has taken frames in; 0 before the first.
	At int64
	// Closed says that all of its windows have closed: none was open at At.
	Closed bool
}
