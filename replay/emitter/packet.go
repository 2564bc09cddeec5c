package emitter

// mark is the tag or the reflection that a packet carries, with the memory of who
// wrote it, which no packet has.
type mark struct {
	code   uint32 // of the quantization table
	writer int32  // port that replaced the tag last; none if it is untouched
	lm     uint16
	signal uint8 // index in Scenario.Signals
	set    bool  // the packet carries one
}

// none is no port.
const none = -1

// packet is one packet in a queue or on the link behind it. Times are picoseconds
// since the start of the run.
type packet struct {
	entered  int64 // into the queue
	started  int64 // left the queue, first bit on the link
	arrives  int64 // in the next queue, or at the receiver
	flow     int32
	id       uint32 // number of the packet in its flow, both directions
	number   uint32 // of data: sequence number; of acknowledgements: acknowledgement number
	stamp    uint32 // TCP timestamp of the sender
	echo     uint32 // TCP timestamp that it answers
	sent     uint32 // when the data left its sender, see age; of acknowledgements: that which they answer
	length   uint16 // of the frame, without check sequence
	hop      int8   // index of the present queue in the route
	ack      bool   // travels from the flow's receiver to its sender
	tag      mark
	reflects mark
}

// clock is the time on the clock that packets carry: it wraps every 4.3 s.
func clock(now int64) uint32 { return uint32(now / 1000) }

// age is the time since the packet was sent, or that which it acknowledges, in
// nanoseconds.
func (k *packet) age(now int64) int64 { return int64(clock(now) - k.sent) }
