package capture

import (
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// maxStampError is how far the card's clock may be off to be believed.
	maxStampError = time.Second

	frameHeaderLen = int(unsafe.Sizeof(unix.Tpacket3Hdr{}))
	defaultTPID    = 0x8100 // of kernels that do not tell
)

// cursor is where in the blocks of a ring reading is. A block belongs to the kernel
// or to the reader; its status says to whom:
//
//	block   status, frames, offset of the first | frame | frame | ...
//	frame   tpacket3_hdr: next, time, lengths, status, tag | sockaddr_ll | bytes
type cursor struct {
	ring      []byte
	blockSize int
	blocks    int
	longest   uint32 // frame of the wire, without the stripped tag
	stamps    Stamp

	block int  // number
	held  bool // block is the reader's
	first bool // nothing of it has been handed out
	left  int  // frames of the block that are yet to be handed out
	at    int  // offset of the next frame in ring

	stampClock

	warm int  // offset up to which ring was read in advance
	kept byte // keeps those reads
}

// stampClock compares the network card's clock with the system's. A frame of a block was
// received between two system times, however long it then waited in the ring: the kernel
// opened the block before it, and the reader took the block after it.
type stampClock struct {
	quiet int64 // Unix ns: no frame was received before it that is yet to be handed out

	// Of the block at hand, Unix ns of the system; read is 0 before its first hardware time.
	opened, read int64
	from         int64 // no frame of it was received before
	firstStamp   int64 // its first hardware time

	measured bool
	ahead    int64 // see Ring.Ahead
}

// Each frame says where the next one is, so that reading them waits for memory once a
// frame. What lies ahead is read in advance instead, in runs that do not wait for each
// other: of 16 KiB, which fit into the nearest cache beside what frames are made into.
// Longer ones are no faster, shorter ones slower (BenchmarkRing: 4 KiB take 17 ns a frame,
// 16 KiB 14, none at all 27).
const (
	cacheLine = 64
	readAhead = 16 << 10
)

// warmUp reads the next run, up to the end of the block.
func (c *cursor) warmUp(end int) {
	from := max(c.warm, c.at)
	c.warm = min(from+readAhead, end)
	if from >= c.warm {
		return
	}
	sum := c.kept
	run := c.ring[from:c.warm]
	for i := 0; i < len(run); i += cacheLine {
		sum ^= run[i]
	}
	c.kept = sum
}

// batchTally is what is counted of one batch.
type batchTally struct {
	frames, bytes, stripped, supers, hardware, restamped, bad uint64
}

func (c *cursor) header() *unix.TpacketHdrV1 {
	d := (*unix.TpacketBlockDesc)(unsafe.Pointer(&c.ring[c.block*c.blockSize]))
	return (*unix.TpacketHdrV1)(unsafe.Pointer(&d.Hdr))
}

// acquire takes the next block, if the kernel is done with it.
func (c *cursor) acquire() bool {
	h := c.header()
	if atomic.LoadUint32(&h.Block_status)&unix.TP_STATUS_USER == 0 {
		return false
	}
	c.held, c.first = true, true
	c.left, c.at = int(h.Num_pkts), c.block*c.blockSize+int(h.Offset_to_first_pkt)
	c.warm = c.at
	c.opened, c.read = int64(h.Ts_first_pkt.Sec)*int64(time.Second)+int64(h.Ts_first_pkt.Usec), 0 // these are ns here
	return true
}

// release gives back a block whose frames are all handed out.
func (c *cursor) release() {
	if !c.held || c.left > 0 {
		return
	}
	atomic.StoreUint32(&c.header().Block_status, unix.TP_STATUS_KERNEL)
	c.held = false
	if c.block++; c.block == c.blocks {
		c.block = 0
	}
}

// fill hands out frames of the block at hand, numbered after packets.
func (c *cursor) fill(b *Batch, packets uint64, t *batchTally) {
	end := (c.block + 1) * c.blockSize
	n := 0
	for ; n < BatchSize && c.left > 0; n++ {
		if c.at+frameHeaderLen > end {
			c.left, t.bad = 0, t.bad+1
			break
		}
		if c.at+readAhead/2 > c.warm {
			c.warmUp(end)
		}
		h := (*unix.Tpacket3Hdr)(unsafe.Pointer(&c.ring[c.at]))
		from := c.at + int(h.Mac)
		to := from + int(h.Snaplen)
		if to > end {
			c.left, t.bad = 0, t.bad+1
			break
		}
		f := &b.Frames[n]
		f.Data = c.ring[from:to]
		f.TimeNS = int64(h.Sec)*int64(time.Second) + int64(h.Nsec)
		f.WireLen, f.Interface, f.NoTime = h.Len, 0, false
		f.TPID, f.TCI = 0, 0
		f.Packet, f.Offset = packets+uint64(n)+1, 0
		if h.Status&unix.TP_STATUS_VLAN_VALID != 0 {
			restore(f, h)
			t.stripped++
		}
		if h.Status&unix.TP_STATUS_GSO_TCP != 0 || h.Len > c.longest {
			t.supers++
		}
		if h.Status&unix.TP_STATUS_TS_RAW_HARDWARE != 0 {
			c.judgeStamp(f, t)
		}
		t.bytes += uint64(f.WireLen)
		c.at += int(h.Next_offset)
		c.left--
	}
	b.N = n
	t.frames += uint64(n)
}

// restore puts the tag that was stripped beside the frame. Its TCI may be 0: the
// flags of the status say what is there.
func restore(f *Frame, h *unix.Tpacket3Hdr) {
	f.TPID, f.TCI = defaultTPID, uint16(h.Hv1.Vlan_tci)
	if h.Status&unix.TP_STATUS_VLAN_TPID_VALID != 0 {
		f.TPID = h.Hv1.Vlan_tpid
	}
	f.WireLen += strippedLen
}

// judgeStamp believes the network card's time with StampAuto only where it is within
// maxStampError of when the frame can have been received: many cards count international
// atomic time, or from when they were switched on. Else the block's first frame takes the
// earliest time that is possible, and the card tells how much later the others came.
func (c *cursor) judgeStamp(f *Frame, t *batchTally) {
	t.hardware++
	if c.read == 0 {
		c.read = time.Now().UnixNano()
		c.from, c.firstStamp = min(max(c.opened, c.quiet), c.read), f.TimeNS
	}
	if early, late := c.from-f.TimeNS, f.TimeNS-c.read; c.stamps == StampAuto && max(early, late) > int64(maxStampError) {
		f.TimeNS = min(c.from+max(f.TimeNS-c.firstStamp, 0), c.read)
		t.restamped++
	}
	c.compare(f.TimeNS)
}

// compare learns how far the clock of frames is ahead of the system's. No frame is read
// before it is received, so each time says at least how much; the most of them is of the
// frame that waited least, until a block shows that the clock was set back.
func (c *stampClock) compare(ns int64) {
	least, most := ns-c.read, ns-c.from
	if !c.measured || c.ahead > most {
		c.measured, c.ahead = true, least
	}
	c.ahead = max(c.ahead, least)
}
