package emitter

// mark is the tag or the reflection that a packet carries, with the memory of who
// wrote it, which no packet has.
type mark struct {
	code   uint32 // of the quantization table
	writer int32  // port that replaced the tag last; none if it is untouched
	// What a faithful fabric would have written, kept where any port is not, and flags:
	// the D bit and others that no packet has.
	faith       uint32 // code in the low bits
	faithWriter int32
	lm          uint16
	signal      uint8 // index in Scenario.Signals
	set         bool  // the packet carries one
}

// Flags of mark.faith, above the 20 bits of codes.
const (
	flagTrimmed  = 1 << 31 // the D bit
	flagCut      = 1 << 30 // trimmed by the queue that it is in
	flagInserted = 1 << 29 // no sender made the tag
	flagReserved = 1 << 28 // a reserved bit is set
	flagDoubled  = 1 << 27 // another tag stands before it
	faithBits    = 1<<20 - 1
)

func (m *mark) is(flag uint32) bool { return m.faith&flag != 0 }
func (m *mark) faithCode() uint32   { return m.faith & faithBits }

func (m *mark) setFaith(code uint32, writer int32) {
	m.faith, m.faithWriter = m.faith&^faithBits|code, writer
}

// sameOnWire tells whether receivers can tell two marks apart.
func (m *mark) sameOnWire(o *mark) bool {
	return m.set == o.set && m.code == o.code && m.lm == o.lm && m.signal == o.signal &&
		(m.writer == none) == (o.writer == none) && m.is(flagTrimmed) == o.is(flagTrimmed) &&
		m.is(flagReserved) == o.is(flagReserved)
}

// Writers that are no ports.
const (
	none   = -1 // nobody replaced the tag
	forged = -2 // its sender did not write the initial value
)

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
	ecn      uint8  // codepoint; of acknowledgements: of the data that they answer
	tag      mark
	reflects mark
}

// firstTTL is the time to live that hosts give packets.
const firstTTL = 64

// clock is the time on the clock that packets carry: it wraps every 4.3 s.
func clock(now int64) uint32 { return uint32(now / 1000) }

// age is the time since the packet was sent, or that which it acknowledges, in
// nanoseconds.
func (k *packet) age(now int64) int64 { return int64(clock(now) - k.sent) }
