package aggregate

import (
	"errors"
	"fmt"
)

// State is the state of a cell, a link or a location. It is that at the end of a range: the last
// Horizon windows before it decide, however long the range is.
type State uint8

// The states. Their numbers are those of the API's enum, less one.
const (
	NoData    State = iota // nothing was observed, or not lately: silence is never health
	TooFew                 // fewer than MinObservations samples
	Clear                  // nothing was heavy
	Congested              // the heavy share reached the onset, and has not fallen below the clear share since
	Brief                  // something was heavy, and it is not congested
	NotJudged              // no threshold applies, such as that of min ABW without the port's capacity

	// NumStates bounds every State.
	NumStates
)

var stateNames = [NumStates]string{"no_data", "too_few", "clear", "congested", "brief", "not_judged"}

// String returns the state as it is printed, in snake case.
func (s State) String() string {
	if s < NumStates {
		return stateNames[s]
	}
	return fmt.Sprintf("state_%d", uint8(s))
}

// HowToJudge is what to do about NotJudged.
const HowToJudge = "min ABW is heavy below a share of the port's capacity, and the capacity is not known: name the ports in a fabric file (--fabric), or give the signal's table an absolute threshold"

const (
	// MinObservations is how many samples a window needs to be judged.
	MinObservations = 10
	// Horizon is how many windows before a time decide the state at that time.
	Horizon = 300
)

// Thresholds are shares of heavy observations: a window at or above Onset makes congested, one
// below Clear ends it, and those between decide nothing.
type Thresholds struct{ Onset, Clear float64 }

// DefaultThresholds returns those of a configuration that names none.
func DefaultThresholds() Thresholds { return Thresholds{Onset: 0.05, Clear: 0.02} }

// Check refuses thresholds that decide nothing, or both ways.
func (t Thresholds) Check() error {
	if t.Clear > 0 && t.Clear <= t.Onset && t.Onset <= 1 {
		return nil
	}
	return errors.New("expected 0 < clear <= onset <= 1")
}

// Judgement is the judgement of one window.
type Judgement uint8

// The judgements. Each one has Loaded where something was heavy.
const (
	Unjudged  Judgement = iota // too few samples, or too many that no threshold judges
	Undecided                  // between the thresholds
	Below                      // the heavy share is below the clear share, whatever was not judged
	Onset                      // the heavy share is at or above the onset

	Loaded Judgement = 4
)

// Judge judges the sums of a window.
func (t Thresholds) Judge(observations, samples, heavy, unjudged uint64) Judgement {
	j := Unjudged
	switch n := float64(observations); {
	case samples < MinObservations:
	case float64(heavy)/n >= t.Onset:
		j = Onset
	case float64(AddSat(heavy, unjudged))/n < t.Clear:
		j = Below
	case float64(unjudged)/n < t.Clear:
		j = Undecided
	}
	if heavy > 0 {
		j |= Loaded
	}
	return j
}

// Verdict is what the last windows before a time say.
type Verdict struct {
	// Since is the start of the first window with an onset that no window below the clear share
	// followed, Unix ns; 0 unless Sustained. What began before Horizon windows has the first one
	// with an onset among them.
	Since     int64
	Lasted    int64 // ns from Since to the end
	AnyJudged bool  // some window was judged
	Sustained bool  // the latest window that decides has an onset
	AnyLoaded bool  // something was heavy in some window
}

// State returns the state of sums whose last windows have the verdict. Where none of them was judged,
// the sums are judged as one window.
func (t Thresholds) State(v Verdict, observations, samples, heavy, unjudged uint64) State {
	switch {
	case observations == 0:
		return NoData
	case v.Sustained:
		return Congested
	case v.AnyJudged && v.AnyLoaded:
		return Brief
	case v.AnyJudged:
		return Clear
	case samples < MinObservations:
		return TooFew
	}
	switch t.Judge(observations, samples, heavy, unjudged) {
	case Onset | Loaded:
		return Congested
	case Unjudged, Unjudged | Loaded:
		return NotJudged
	case Below, Undecided:
		return Clear
	}
	return Brief
}

// Judge sets the state of a cell whose verdict is known.
func (c *CellStats) Judge(t Thresholds) {
	c.State = t.State(c.Verdict, c.Observations, c.Samples, c.Heavy, c.Unjudged)
}

// History holds the judgements of the last Horizon windows of one cell or link, by the number of
// the window: its start by its length. The zero value is empty.
type History struct {
	ring           [Horizon]Judgement
	end            int64 // number of the window after the newest one
	judged, loaded int   // windows in the ring
}

// Set sets the judgement of a window, in place of an earlier one. It forgets windows that are
// Horizon before the newest.
func (h *History) Set(window int64, j Judgement) {
	if window >= h.end {
		for n := max(h.end, window-Horizon+1); n <= window; n++ {
			h.put(n, Unjudged)
		}
		h.end = window + 1
	}
	if window >= h.end-Horizon && window >= 0 {
		h.put(window, j)
	}
}

func (h *History) put(window int64, j Judgement) {
	at := &h.ring[window%Horizon]
	h.count(*at, -1)
	h.count(j, 1)
	*at = j
}

func (h *History) count(j Judgement, n int) {
	if j&Loaded != 0 {
		h.loaded += n
	}
	if j&^Loaded != Unjudged {
		h.judged += n
	}
}

// Get returns the judgement of a window; Unjudged of one that is not held.
func (h *History) Get(window int64) Judgement {
	if window < 0 || window >= h.end || window < h.end-Horizon {
		return Unjudged
	}
	return h.ring[window%Horizon]
}

// End returns the number of the window after the newest one.
func (h *History) End() int64 { return h.end }

// Verdict returns the verdict at the start of the window of a number. Windows have a length in ns.
func (h *History) Verdict(end, length int64) Verdict {
	var v Verdict
	if end == h.end && h.loaded == 0 { // as most cells mostly are: none has an onset
		v.AnyJudged = h.judged > 0
		return v
	}
	open := true // no window below the clear share is later
	for n := min(end, h.end) - 1; n >= max(end-Horizon, h.end-Horizon, 0); n-- {
		j := h.ring[n%Horizon]
		v.AnyLoaded = v.AnyLoaded || j&Loaded != 0
		j &^= Loaded
		v.AnyJudged = v.AnyJudged || j != Unjudged
		switch {
		case j == Onset && open:
			v.Sustained, v.Since, v.Lasted = true, n*length, (end-n)*length
		case j == Below:
			open = false
		}
		if !open && v.AnyJudged && v.AnyLoaded {
			break
		}
	}
	return v
}
