package capture

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"golang.org/x/net/bpf"
)

// Defaults and limits of a TapConfig.
const (
	DefaultTapBlocks    = 256
	DefaultTapBlockSize = 256 << 10
	DefaultTapRetire    = 20 * time.Millisecond
	DefaultTapWait      = 20 * time.Millisecond
	MaxTapRings         = 256

	maxTapMemory    = 16 << 30 // total of all rings
	minTapBlockSize = 64 << 10 // holds any frame of an interface
	maxTapWait      = time.Second
	maxTapRetire    = time.Second
	maxInstructions = 4096 // BPF_MAXINSNS
	maxNameLen      = 15   // IFNAMSIZ without the terminator
)

// TimestampSource selects the source of timestamps.
type TimestampSource uint8

const (
	// TimestampAuto uses the network card's times if the card already stamps every frame, else the
	// kernel's. A hardware time more than a second away from the possible receive times is replaced
	// by a system time.
	TimestampAuto TimestampSource = iota
	// TimestampSoftware uses the kernel's receive time by the system clock.
	TimestampSoftware
	// TimestampHardware uses the network card's time by its own clock, whatever it shows.
	TimestampHardware
)

// String returns "auto", "software" or "hardware".
func (s TimestampSource) String() string {
	switch s {
	case TimestampAuto:
		return "auto"
	case TimestampSoftware:
		return "software"
	case TimestampHardware:
		return "hardware"
	}
	return "unknown"
}

// ParseTimestampSource parses the output of String; an empty string means auto.
func ParseTimestampSource(s string) (TimestampSource, error) {
	switch s {
	case "", "auto":
		return TimestampAuto, nil
	case "software":
		return TimestampSoftware, nil
	case "hardware":
		return TimestampHardware, nil
	}
	return 0, fmt.Errorf("parse timestamps %q: expected auto, software or hardware", s)
}

// TapConfig configures a Tap. Zero values of all fields except Interface are valid.
type TapConfig struct {
	// Interface is the name of an Ethernet interface. Its frames are captured whatever its index
	// is: the interface may disappear and come back.
	Interface string
	// Rings is the number of rings that share the frames, one per core. Default 1, at most
	// MaxTapRings.
	Rings int
	// Filter is a classic BPF program that the kernel runs on each frame without its stripped VLAN
	// tag. It returns the number of bytes to keep; 0 drops the frame at no further cost. Nil keeps
	// everything.
	Filter []bpf.RawInstruction
	// Extended makes the tap's only ring capture nothing until Extend sets a program of extended BPF,
	// which replaces Filter.
	Extended bool
	// Fanout is a classic BPF program that chooses the ring of a frame, modulo Rings; its offsets must
	// be relative to the link layer. Nil uses the kernel's flow hash, which cannot look behind unknown
	// EtherTypes: all frames tagged with one go to a single ring.
	Fanout []bpf.RawInstruction
	// SnapLen is the maximum number of bytes kept per frame; 0: as Filter returns.
	SnapLen uint32
	// Outgoing also captures frames that this host sends through the interface.
	Outgoing bool
	// Promiscuous also captures frames addressed to others.
	Promiscuous bool
	// Timestamps selects the timestamps. The tap never changes the card's settings:
	// hwstamp_ctl -i IFACE -r 1 makes the card stamp every frame.
	Timestamps TimestampSource

	// A ring has Blocks of BlockSize bytes each, a power of two from 64 KiB. A block is delivered
	// when it is full, or between Retire and twice Retire after its first frame. A long Retire
	// loses the end of a short run when the tap closes. While nobody reads, the blocks last at
	// least Blocks times Retire, however few frames come. Defaults 256, 256 KiB and 20 ms: 5 s.
	Blocks    int
	BlockSize int
	Retire    time.Duration
	// Wait is the maximum time that ReadBatch waits for a frame. Default 20 ms, 1 ms to 1 s.
	Wait time.Duration

	Logger *slog.Logger // for link changes; nil discards them
}

func (c *TapConfig) setDefaults() {
	c.Rings = cmp.Or(c.Rings, 1)
	c.Blocks = cmp.Or(c.Blocks, DefaultTapBlocks)
	c.BlockSize = cmp.Or(c.BlockSize, DefaultTapBlockSize)
	c.Retire = cmp.Or(c.Retire, DefaultTapRetire)
	c.Wait = cmp.Or(c.Wait, DefaultTapWait)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
}

func (c *TapConfig) check() error {
	switch {
	case c.Interface == "" || len(c.Interface) > maxNameLen:
		return fmt.Errorf("expected the name of an interface, 1 to %d bytes", maxNameLen)
	case c.Rings < 1 || c.Rings > MaxTapRings:
		return fmt.Errorf("%d rings: expected 1 to %d", c.Rings, MaxTapRings)
	case c.BlockSize < minTapBlockSize || c.BlockSize > 1<<30 || c.BlockSize&(c.BlockSize-1) != 0:
		return fmt.Errorf("block size %d: expected a power of two from %d to %d", c.BlockSize, minTapBlockSize, 1<<30)
	case c.Blocks < 2 || c.Blocks > maxTapMemory/c.BlockSize/c.Rings:
		return fmt.Errorf("%d blocks: expected at least 2, and at most %d GiB in all rings", c.Blocks, maxTapMemory>>30)
	case c.Retire < time.Millisecond || c.Retire > maxTapRetire:
		return fmt.Errorf("retire %s: expected 1 ms to %s", c.Retire, maxTapRetire)
	case c.Wait < time.Millisecond || c.Wait > maxTapWait:
		return fmt.Errorf("wait %s: expected 1 ms to %s", c.Wait, maxTapWait)
	case c.Extended && (c.Rings > 1 || c.Filter != nil):
		return fmt.Errorf("%d rings, %d instructions: expected one ring and no classic filter beside an extended one", c.Rings, len(c.Filter))
	case len(c.Filter) > maxInstructions || len(c.Fanout) > maxInstructions:
		return fmt.Errorf("filter of %d and fanout of %d instructions: expected at most %d", len(c.Filter), len(c.Fanout), maxInstructions)
	case c.Timestamps > TimestampHardware:
		return fmt.Errorf("timestamps %d: expected auto, software or hardware", c.Timestamps)
	}
	return nil
}

// Operations of classic BPF that end a program.
const (
	returnConstant = 0x06
	returnA        = 0x16
)

// limited returns the filter with its result bounded by snap, since a packet socket's snapshot
// length is the filter's result.
func limited(filter []bpf.RawInstruction, snap uint32) ([]bpf.RawInstruction, error) {
	snap = cmp.Or(snap, math.MaxUint32)
	if filter == nil {
		return []bpf.RawInstruction{{Op: returnConstant, K: min(snap, math.MaxInt32)}}, nil
	}
	out := make([]bpf.RawInstruction, len(filter))
	for i, in := range filter {
		switch {
		case in.Op == returnConstant:
			in.K = min(in.K, snap)
		case in.Op == returnA && snap != math.MaxUint32:
			return nil, errors.New("a snapshot length needs a filter that returns constants")
		}
		out[i] = in
	}
	return out, nil
}

// LinkState is the state of a tap's interface.
type LinkState uint8

// Link states.
const (
	LinkGone LinkState = iota // no interface with that name
	LinkDown                  // it exists, but is set down, has no carrier, or cannot be captured from
	LinkUp
)

// String returns "gone", "down" or "up".
func (s LinkState) String() string {
	switch s {
	case LinkGone:
		return "gone"
	case LinkDown:
		return "down"
	case LinkUp:
		return "up"
	}
	return "unknown"
}

// TapCounters holds the totals of one Ring since it was opened. Received is at least Frames +
// Dropped: the rest waits in the ring, or was in it when the ring was closed.
type TapCounters struct {
	Frames uint64 // delivered by ReadBatch
	Bytes  uint64 // their bytes on the wire

	Received uint64 // passed the filter
	Dropped  uint64 // part of Received that was dropped because the ring was full
	Freezes  uint64 // times that the ring became full

	Stripped uint64 // frames whose outermost tag was stripped into metadata: Frame.TPID
	// SuperFrames counts frames that receive offload (GRO, LRO) merged from several: their number
	// and lengths differ from the wire's. The kernel marks those of TCP; others are recognized
	// because they exceed the interface's MTU. A counting program in the kernel sees the mark of any
	// protocol, but recognizes no others.
	SuperFrames uint64
	// HardwareStamps counts frames with the network card's time.
	HardwareStamps uint64
	// Restamped counts frames whose hardware time was more than a second off with TimestampAuto:
	// they have the system's approximate time of receipt.
	Restamped uint64
	// Odd counts packets that a counting program in the kernel does not read. If a ring takes them,
	// Received includes them.
	Odd uint64
	// Unsampled counts heavy observations that a counting program in the kernel did not sample, because samples had no
	// budget or no room: no flow has them.
	Unsampled uint64
	Malformed uint64 // blocks of the ring whose lengths contradict each other

	Downs   uint64 // times that the link went down or disappeared
	Ups     uint64 // times that it came up again
	Reopens uint64 // times that the ring was opened again, for an interface that was created again
}

// Add adds o to c.
func (c *TapCounters) Add(o *TapCounters) {
	to, from := c.fields(), o.fields()
	for i := range to {
		*to[i] += *from[i]
	}
}

func (c *TapCounters) fields() [15]*uint64 {
	return [...]*uint64{
		&c.Frames, &c.Bytes, &c.Received, &c.Dropped, &c.Freezes, &c.Stripped, &c.SuperFrames,
		&c.HardwareStamps, &c.Restamped, &c.Odd, &c.Unsampled, &c.Malformed, &c.Downs, &c.Ups, &c.Reopens,
	}
}

// Tap captures the live frames of one interface through AF_PACKET rings of version 3 (TPACKET_V3)
// on Linux. It continues after its link goes down or disappears and comes back.
type Tap struct {
	cfg    TapConfig
	filter []bpf.RawInstruction
	rings  []*Ring
	groups groups

	program int // descriptor of the extended filter, 0 before Extend
}

// NewTap checks the configuration. Open opens the rings.
func NewTap(cfg TapConfig) (*Tap, error) {
	cfg.setDefaults()
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("configure tap %q: %w", cfg.Interface, err)
	}
	filter, err := limited(cfg.Filter, cfg.SnapLen)
	if err != nil {
		return nil, fmt.Errorf("configure tap %q: %w", cfg.Interface, err)
	}
	return &Tap{cfg: cfg, filter: filter}, nil
}

// Open opens all rings. It fails if the interface does not exist or is not Ethernet, or if packet
// sockets are not permitted; a link that is down is no error. Each ring must be read by one
// goroutine.
func (t *Tap) Open() error {
	if t.rings != nil {
		return fmt.Errorf("open tap %q: it is open already", t.cfg.Interface)
	}
	for range t.cfg.Rings {
		r, err := openRing(t)
		if err != nil {
			return errors.Join(fmt.Errorf("open tap %q: %w", t.cfg.Interface, err), t.Close())
		}
		t.rings = append(t.rings, r)
	}
	return nil
}

// Extend filters the frames of an open tap with TapConfig.Extended by a program of type socket
// filter. fd is the program's descriptor, which must stay open until the next Extend or Close. The
// program replaces an earlier one at once. Only the ring's goroutine may call Extend.
func (t *Tap) Extend(fd int) error {
	t.program = fd
	for _, r := range t.rings {
		if err := r.extend(); err != nil {
			return fmt.Errorf("filter tap %q: %w", t.cfg.Interface, err)
		}
	}
	return nil
}

// Rings returns the rings of the open tap.
func (t *Tap) Rings() []*Ring { return t.rings }

// Close closes all rings. The last ReadBatch must have returned.
func (t *Tap) Close() error {
	var errs []error
	for _, r := range t.rings {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}

// Counters returns the totals of all rings. It is safe to call at any time after Open. Each ring
// counts Downs, Ups and Reopens.
func (t *Tap) Counters() TapCounters {
	var sum TapCounters
	for _, r := range t.rings {
		c := r.Counters()
		sum.Add(&c)
	}
	return sum
}
