package emitter

// transfers cuts what a flow sends into transfers with pauses between them.
type transfers struct {
	sizes  sizes
	think  int64 // mean pause, ps
	left   int64 // bytes of the present transfer
	count  int64 // transfers that are still to come; negative: without end
	random random
}

// begin draws the next transfer at the end of one, at the time now, and returns when
// it may start, or never if that was the last one. Pauses vary from 0 to twice the
// mean.
func (t *transfers) begin(now int64) int64 {
	if t.count == 0 {
		return never
	}
	if t.count > 0 {
		t.count--
	}
	t.left = int64(t.sizes.draw(&t.random))
	if t.think == 0 {
		return now
	}
	return now + int64(t.random.below(uint64(2*t.think)))
}

// take is how many bytes of the present transfer fit into a packet.
func (t *transfers) take(payload uint32) uint32 {
	n := min(int64(payload), t.left)
	t.left -= n
	return uint32(n)
}
