package window

import "fmt"

// Succeed makes a shard of another configuration that goes on after this one, which has
// to be flushed and is not to be used any more. The successor writes to the same sink,
// numbers its blocks from where this one ended, keeps the counts and the watermark, and
// knows the reflections that may still be repeated. So a configuration can change
// while packets come, and each is counted once.
//
// The configuration's SeqBase is what it would be for a new shard. It fails after an
// error of the sink, when windows are open, or when the configuration is wrong.
func (s *Shard) Succeed(cfg Config) (*Shard, error) {
	if s.err != nil {
		return nil, s.err
	}
	if s.pending > 0 || len(s.clock.waiting) > 0 || s.openWindows() > 0 {
		return nil, fmt.Errorf("succeed shard: %w", errNotFlushed)
	}
	next, err := NewShard(cfg, s.sink)
	if err != nil {
		return nil, err
	}
	next.rows.seq = s.rows.seq
	next.clock.now, next.clock.started = s.clock.now, s.clock.started
	next.counts = s.Counts()
	if next.repeats != nil && s.repeats != nil {
		next.repeats = s.repeats
		next.counts.ReflectionEvictions = 0 // the memory counts on
	}
	return next, nil
}
