package aggregate

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"

	"github.com/csigscope/csigscope/decode/csig"
)

// State is the state of a cell, a link or a location at the end of a range. The last Horizon
// windows decide, however long the range is.
type State uint8

// The states. Their numbers are those of the API's enum, less one.
const (
	NoData    State = iota // nothing was observed, or not recently: silence is never health
	TooFew                 // fewer than MinObservations samples, and no judged window among the last
	Clear                  // nothing was heavy
	Congested              // the heavy share reached the onset, and has not fallen below the clear share since
	Brief                  // something was heavy, but the state is not congested
	NotJudged              // no threshold applies, such as for min ABW without the port's capacity

	// NumStates bounds every State.
	NumStates
)

var stateNames = [NumStates]string{"no_data", "too_few", "clear", "congested", "brief", "not_judged"}

// String returns the state's name in snake case.
func (s State) String() string {
	if s < NumStates {
		return stateNames[s]
	}
	return fmt.Sprintf("state_%d", uint8(s))
}

// HowToJudge says why cells of a signal can be NotJudged, and how to resolve that.
func HowToJudge(s csig.Signal) string {
	if s == csig.MinABW {
		return "the signal's table has no threshold (heavy) or no bucket that is heavy as a whole, or the port's capacity is unknown: name the ports in a fabric file (--fabric), or set heavy to a bandwidth such as 10Gbps, or finer buckets, in csig.tables of the configuration"
	}
	return "the signal's table has no threshold (heavy), or no bucket that is heavy as a whole: set heavy, or finer buckets, in csig.tables of the configuration"
}

const (
	// MinObservations is the number of samples that a window needs to be judged.
	MinObservations = 10
	// Horizon is the number of windows before a time that decide the state at that time.
	Horizon = 300
	// HistoryWindows is the number of windows that a History holds: those that decide the state at the end of
	// each of its last 128 windows.
	HistoryWindows = Horizon + 128
)

// Thresholds are shares of heavy observations: a window at or above Onset starts congestion, one
// below Clear ends it, and one in between changes nothing.
type Thresholds struct{ Onset, Clear float64 }

// DefaultThresholds returns the thresholds that apply without configuration.
func DefaultThresholds() Thresholds { return Thresholds{Onset: 0.05, Clear: 0.02} }

// Check returns an error unless 0 < Clear <= Onset <= 1.
func (t Thresholds) Check() error {
	if t.Clear > 0 && t.Clear <= t.Onset && t.Onset <= 1 {
		return nil
	}
	return errors.New("expected 0 < clear <= onset <= 1")
}

// Judgement is the judgement of one window.
type Judgement uint8

// The judgements. Loaded is added to each if something was heavy.
const (
	Unjudged  Judgement = iota // too few samples, or too many that no threshold judges
	Undecided                  // between the thresholds
	Below                      // the heavy share is below the clear share, even with all unjudged ones
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

// Verdict is the result of the last windows before a time.
type Verdict struct {
	// Since is the start of the first window with an onset after the last one below the clear
	// share, Unix ns; 0 unless Sustained. If the congestion began more than Horizon windows ago, it
	// is the first window with an onset among them.
	Since     int64
	Lasted    int64 // ns from Since to the end
	AnyJudged bool  // some window was judged
	Sustained bool  // the latest deciding window has an onset
	AnyLoaded bool  // something was heavy in some window
	Silent    bool  // all windows with observations are earlier
}

// State returns the state of sums with the verdict of their last windows. If none of those was
// judged, although there were observations, it judges the sums as one window.
func (t Thresholds) State(v Verdict, observations, samples, heavy, unjudged uint64) State {
	switch {
	case observations == 0 || v.Silent:
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

// Judge sets the state of a cell from its verdict.
func (c *CellStats) Judge(t Thresholds) {
	c.State = t.State(c.Verdict, c.Observations, c.Samples, c.Heavy, c.Unjudged)
}

// History holds the judgements of the last HistoryWindows windows of one cell or link. A window's number
// is its start divided by its length. The zero value is empty.
type History struct {
	ring           [HistoryWindows]Judgement
	end            int64 // number of the window after the newest one
	judged, loaded int   // windows in the ring
}

// Set sets or replaces the judgement of a window. It forgets windows that are HistoryWindows before
// the newest.
func (h *History) Set(window int64, j Judgement) {
	if window >= h.end {
		for n := max(h.end, window-HistoryWindows+1); n <= window && h.judged+h.loaded > 0; n++ {
			h.put(n, Unjudged)
		}
		h.end = window + 1
	}
	if window >= h.end-HistoryWindows && window >= 0 {
		h.put(window, j)
	}
}

func (h *History) put(window int64, j Judgement) {
	at := &h.ring[window%HistoryWindows]
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

// Get returns the judgement of a window; Unjudged if it is not held.
func (h *History) Get(window int64) Judgement {
	if window < 0 || window >= h.end || window < h.end-HistoryWindows {
		return Unjudged
	}
	return h.ring[window%HistoryWindows]
}

// End returns the number of the window after the newest one.
func (h *History) End() int64 { return h.end }

// Verdict returns the verdict at the start of window number end. Windows are length ns long.
func (h *History) Verdict(end, length int64) Verdict {
	s := h.Snapshot(end)
	return s.Verdict(end, length)
}

// Snapshot is a History as of a time, reduced to its verdicts, in about an eighth of the size. It never changes. The
// zero value is that of an empty History.
type Snapshot struct {
	last           int64                       // number of the window after the newest one
	onsets         [(Horizon + 63) / 64]uint64 // bit i: window last-1-i has an onset, and none from it on is below the clear share
	judged, loaded uint16                      // windows from the newest judged or loaded one to last; 0 for none
}

// Snapshot returns the Snapshot of the windows before window number end.
func (h *History) Snapshot(end int64) Snapshot {
	s := Snapshot{last: min(end, h.end)}
	left := h.judged + h.loaded // the windows from n down have at most so many; at 0 they are empty
	open := true                // no window below the clear share is later
	for n := s.last - 1; n >= max(s.last-Horizon, h.end-HistoryWindows, 0) && left > 0; n-- {
		j, age := h.ring[n%HistoryWindows], uint16(s.last-n)
		if j&Loaded != 0 {
			s.loaded = cmp.Or(s.loaded, age)
			left--
		}
		if j &^= Loaded; j != Unjudged {
			s.judged = cmp.Or(s.judged, age)
			left--
		}
		switch {
		case j == Onset && open:
			s.onsets[(age-1)/64] |= 1 << ((age - 1) % 64)
		case j == Below:
			open = false
		}
		if s.judged > 0 && (h.loaded == 0 || !open && s.loaded > 0) { // an onset is loaded
			break
		}
	}
	return s
}

// IsZero reports whether the history had no windows.
func (s *Snapshot) IsZero() bool { return s.last == 0 }

// Verdict returns the verdict at the start of window number end, at or after the time of the snapshot, if the history
// gets no windows until then. Windows are length ns long.
func (s *Snapshot) Verdict(end, length int64) Verdict {
	kept := max(s.last-(end-Horizon), 0) // windows before last that still count
	v := Verdict{
		Silent:    s.last > 0 && kept == 0,
		AnyJudged: s.judged > 0 && int64(s.judged) <= kept,
		AnyLoaded: s.loaded > 0 && int64(s.loaded) <= kept,
	}
	for word := int((kept - 1) / 64); word >= 0 && kept > 0; word-- {
		set := s.onsets[word]
		if past := kept - int64(word)*64; past < 64 {
			set &= 1<<past - 1
		}
		if set != 0 {
			n := s.last - int64(word*64+bits.Len64(set))
			v.Sustained, v.Since, v.Lasted = true, n*length, (end-n)*length
			break
		}
	}
	return v
}
