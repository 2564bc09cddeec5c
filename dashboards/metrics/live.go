package metrics

import "time"

// Live is what a pipeline over taps does beside aggregating.
type Live struct {
	Checkpoints, Failed uint64
	LastCheckpoint      time.Time // the zero Time before the first one
	Stalled             uint64    // rings that did not stop for a checkpoint in time
	Full                uint64    // times that a ring waited for room
	Reloads             uint64
	LostStates          uint64 // states of the last life that could not be gone on from
}

// NewLive exports checkpoints and reloads.
func NewLive(read func() Live) *Collector {
	c := new(Collector)
	made := c.counter("checkpoints_total", "Checkpoints made, and those that failed and will be tried again.", "result")
	last := c.gauge("checkpoint_last_timestamp_seconds", "Time of the last checkpoint: a crash loses what came after it. Absent before the first one.")
	stalled := c.counter("checkpoint_stalls_total", "Times that a ring did not stop for a checkpoint in time, and was left out.")
	full := c.counter("live_backpressure_total", "Times that a ring held so many rows that it had to wait: the kernel may drop frames meanwhile.")
	reloads := c.counter("config_reloads_total", "Configurations taken over while running.")
	lost := c.counter("live_lost_states_total", "States of the last life that could not be gone on from: their open windows are lost.")
	c.read = func(to emit) {
		l := read()
		to(made, float64(l.Checkpoints), "ok")
		to(made, float64(l.Failed), "failed")
		if !l.LastCheckpoint.IsZero() {
			to(last, seconds(l.LastCheckpoint.UnixNano()))
		}
		to(stalled, float64(l.Stalled))
		to(full, float64(l.Full))
		to(reloads, float64(l.Reloads))
		to(lost, float64(l.LostStates))
	}
	return c
}

// NewEngine exports how the embedded engine is doing.
func NewEngine(restarts func() uint64) *Collector {
	c := new(Collector)
	again := c.counter("engine_restarts_total", "Times that the embedded ClickHouse engine had to be started again.")
	c.read = func(to emit) { to(again, float64(restarts())) }
	return c
}
