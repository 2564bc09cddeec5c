package query

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/csigscope/csigscope/decode/csig"
)

// Errors that callers tell apart: what was asked for is wrong, or more than the
// bounds allow, or there is nothing to answer from.
var (
	ErrInvalid  = errors.New("invalid request")
	ErrTooLarge = errors.New("answer too large")
	ErrNoData   = errors.New("no data stored")
	// ErrUnavailable is the error of what may be answered later: the store is away or slow.
	ErrUnavailable = errors.New("the store cannot be asked at the moment")
)

// targetWindows is how many windows an automatic step aims at: enough to scrub
// through, few enough to send.
const targetWindows = 120

// heavyOnlyBelow is the resolution below which producers keep only cells where
// something was heavy.
const heavyOnlyBelow = time.Second

// niceSteps are the steps an automatic choice may take. Each divides the next day
// evenly, so that windows of neighbouring ranges line up.
var niceSteps = []time.Duration{
	100 * time.Microsecond, time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond,
	10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour,
}

// plan is a range cut into windows, and the resolution of the rows it reads.
type plan struct {
	from, to         int64 // Unix ns, multiples of step
	step, resolution int64
}

func (p plan) windows() int { return int((p.to - p.from) / p.step) }

// question asks for a signal's rows over the plan's range.
func (p plan) question(s csig.Signal) Question {
	return Question{
		Signal: s, From: time.Unix(0, p.from), To: time.Unix(0, p.to),
		Resolution: time.Duration(p.resolution), Step: time.Duration(p.step),
	}
}

// newPlan fills in what the options leave open and checks what they say. Ranges
// are widened to whole windows.
func newPlan(o Options, e Extent) (plan, error) {
	if e.Empty() || len(e.Resolutions) == 0 {
		return plan{}, ErrNoData
	}
	from, to := o.From, o.To
	if from.IsZero() {
		from = e.First
	}
	if to.IsZero() {
		to = e.Last
	}
	if !from.Before(to) {
		return plan{}, fmt.Errorf("%w: from %s is not before to %s", ErrInvalid,
			from.UTC().Format(time.RFC3339Nano), to.UTC().Format(time.RFC3339Nano))
	}
	resolutions := slices.Sorted(slices.Values(e.Resolutions))
	step := o.Step
	if step == 0 {
		step = automaticStep(to.Sub(from), resolutions)
	}
	resolution, err := resolutionFor(step, resolutions)
	if err != nil {
		return plan{}, err
	}
	p := plan{step: int64(step), resolution: int64(resolution)}
	p.from = floorTo(from.UnixNano(), p.step)
	p.to = floorTo(to.UnixNano()-1, p.step) + p.step
	if n := (p.to - p.from) / p.step; n > int64(o.MaxWindows) {
		return plan{}, fmt.Errorf("%w: %d windows of %s, at most %d: take a longer step or a shorter range",
			ErrTooLarge, n, step, o.MaxWindows)
	}
	return p, nil
}

// automaticStep never goes below 1 s where such rows exist: finer rows cover only
// cells that were heavy, which would hide the others without being asked to.
func automaticStep(length time.Duration, resolutions []time.Duration) time.Duration {
	finest := resolutions[0]
	for _, r := range resolutions {
		if r >= heavyOnlyBelow {
			finest = r
			break
		}
	}
	for _, s := range niceSteps {
		if s >= finest && s%finest == 0 && length <= targetWindows*s {
			return s
		}
	}
	n := (length + targetWindows*finest - 1) / (targetWindows * finest)
	return max(n, 1) * finest
}

// resolutionFor is the stored resolution to read for a step. Complete ones (1 s and
// above) that all divide it give the same answer, unless the coarser has not closed
// its last window yet: only the reader can tell, so 0 leaves the choice to it.
func resolutionFor(step time.Duration, resolutions []time.Duration) (time.Duration, error) {
	var fit []time.Duration
	for _, r := range slices.Backward(resolutions) {
		if step > 0 && step%r == 0 {
			fit = append(fit, r)
		}
	}
	if len(fit) == 0 {
		return 0, fmt.Errorf("%w: step %s is not a multiple of a stored resolution %v", ErrInvalid, step, resolutions)
	}
	if len(fit) > 1 && fit[1] >= heavyOnlyBelow {
		return 0, nil
	}
	return fit[0], nil
}

func floorTo(t, step int64) int64 {
	q := t / step
	if t%step < 0 {
		q--
	}
	return q * step
}

// Cut cuts the question's range into windows: of the step, or of one that gives about 120 of
// them where that is 0. The range is widened to whole windows, which are at most so many.
// Errors wrap ErrInvalid, ErrTooLarge or ErrNoData.
func (q *Question) Cut(e Extent, step time.Duration, windows int) error {
	p, err := newPlan(Options{From: q.From, To: q.To, Step: step, MaxWindows: windows}, e)
	if err != nil {
		return err
	}
	q.From, q.To = time.Unix(0, p.from).UTC(), time.Unix(0, p.to).UTC()
	q.Step, q.Resolution = time.Duration(p.step), time.Duration(p.resolution)
	return nil
}
