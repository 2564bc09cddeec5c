package emitter

// flow is one connection: data from its sender, acknowledgements from its
// receiver. Loss is not repaired: the receiver acknowledges the highest byte it
// has, as one does that has given up on what is missing.
type flow struct {
	tuple, back      fiveTuple // of data, and of what answers it
	src, dst         int32     // hosts
	forward, reverse route
	tagged           []route // of data, by signal; nil where no device's hash sees tags
	style            uint8   // of the framer
	overhead         uint16  // bytes that its encapsulation adds to a frame
	cell, cellBack   int32   // of the truth: sender's to receiver's rack, and back

	// The sender.
	pace         pacing
	control      Control
	marks        bool       // packets are ECN-capable
	window       *window    // nil: open loop
	transfers    *transfers // nil: one without end
	payload      uint32     // bytes of data in a full packet
	acknowledged uint32     // first byte that is not; window only
	urgent       uint32     // end of the packet that is to be acknowledged at once
	tagEvery     int32
	untilTag     int32 // data packets before the next tagged one
	tags         uint32
	sequence     uint32 // of the next byte
	heard        uint32 // newest TCP timestamp of the receiver
	lastAck      uint32 // newest reflection that arrived
	lastMark     mark
	dataLength   uint16 // of an untagged data frame

	// The receiver.
	ackEvery   int32
	unacked    int32 // data packets since the last acknowledgement
	ackTags    uint32
	newest     mark     // of the tags that arrived; set until it is reflected
	summary    *summary // takes the place of newest where the worst is reflected
	ackSource  uint32
	acksToCopy int32

	sent, delivered, dropped, trimmed uint64 // packets of both directions
}

// route is the way of a packet.
func (f *flow) route(k *packet) *route {
	switch {
	case k.ack:
		return &f.reverse
	case f.tagged != nil && k.tag.set:
		return &f.tagged[k.tag.signal]
	}
	return &f.forward
}

// signalAt deals out n signals to successive tags: over any n tags each one once,
// and over n*n tags each one at each place, so that a receiver that reflects only
// every so manieth tag still reflects all signals. It is the sum of the count's
// digits in base n, modulo n.
func signalAt(count uint32, n uint32) uint8 {
	if n == 1 {
		return 0
	}
	sum := uint32(0)
	for ; count > 0; count /= n {
		sum += count % n
	}
	return uint8(sum % n)
}
