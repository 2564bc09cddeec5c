package emitter

// steps says where in a training step a flow is active, and how steps differ. Times
// are picoseconds.
type steps struct {
	offset int64  // of the flow's part from the step's begin
	jitter int64  // steps begin up to so much late
	seed   uint64 // of the jitter: the flows of a workload step together
	late   int64  // a straggler is so much later than the others,
	every  int64  // once in so many steps
}

// delay is how long after the step's nominal begin the flow's part of it begins.
func (s *steps) delay(step int64) int64 {
	d := s.offset
	if s.jitter > 0 {
		r := stream(s.seed, uint64(step))
		d += int64(r.below(uint64(s.jitter + 1)))
	}
	if s.late > 0 && step%s.every == s.every-1 {
		d += s.late
	}
	return d
}
