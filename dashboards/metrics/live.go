package metrics

import "time"

// Live is what a pipeline over taps does beside aggregating.
type Live struct {
	Checkpoints, Failed uint64
	LastCheckpoint      time.Time // the zero Time before the first one
	Stalled             uint64    // rings that did not stop for a round in time
	Full                uint64    // times that a ring waited for room
	Reloads             uint64
}

// NewLive exports rounds and reloads.
func NewLive(read func() Live) *Collector {
	c := new(Collector)
	made := c.counter("checkpoints_total", "Rounds of closed windows made durable with their marks, and those whose marks could not be written.", "result")
	last := c.gauge("checkpoint_last_timestamp_seconds", "Time of the last round: after a kill the gap begins there. Absent before the first one.")
	stalled := c.counter("checkpoint_stalls_total", "Times that a ring did not stop for a round in time, and was left out.")
	full := c.counter("live_backpressure_total", "Times that a ring held so many rows that it had to wait: the kernel may drop frames meanwhile.")
	reloads := c.counter("config_reloads_total", "Configurations taken over while running.")
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
