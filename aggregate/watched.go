package aggregate

import "github.com/csigscope/csigscope/decode"

// NotWatched is greater than every code: no value of a series is watched.
const NotWatched uint32 = 1 << 30

// Watched is an observation, and why it is watched. One may be in a list twice, with
// different reasons.
type Watched struct {
	*decode.Observation
	Why      WatchReason
	Location LocationID // of WatchedValue
}

// WatchReason is why an observation is watched.
type WatchReason uint8

// The reasons.
const (
	WatchedSource   WatchReason = iota // its source is unusual
	WatchedValue                       // its value is unusual for its location
	WatchedReserved                    // reserved bits are set
	WatchedOrphan                      // it is RejectOrphan
	WatchedSent                        // at a tap of a sender, a value that is not initial
)
