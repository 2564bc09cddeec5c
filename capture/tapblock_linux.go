package capture

import (
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// maxStampError is the maximum error of a trusted card clock.
	maxStampError = time.Second

	frameHeaderLen = int(unsafe.Sizeof(unix.Tpacket3Hdr{}))
	defaultTPID    = 0x8100 // of kernels that do not report it
)

// cursor is the read position in the blocks of a ring. A block belongs to the kernel or to the
// reader, as its status says:
//
//	block   status, frames, offset of the first | frame | frame | ...
//	frame   tpacket3_hdr: next, time, lengths, status, tag | sockaddr_ll | bytes
type cursor struct {
	ring      []byte
	blockSize int
	blocks    int
	longest   uint32 // longest possible frame on the wire, without the stripped tag
	stamps    TimestampSource

	block int  // number
	held  bool // the reader owns block
	first bool // no frame of it has been delivered yet
	left  int  // frames of the block not delivered yet
	at    int  // offset of the next frame in ring

	stampClock

	warm int  // offset up to which ring was prefetched
	kept byte // keeps the prefetching reads alive
}

// stampClock compares the network card's clock with the system's. A frame was received between two
// system times, however long it waited in the ring: after the kernel opened its block and before
// the reader took the block.
type stampClock struct {
	quiet int64 // Unix ns: all frames received before it have been delivered

	// Of the present block, in Unix ns of the system clock; read is 0 before its first hardware
	// time.
	opened, read int64
	from         int64 // earliest possible receive time
	firstStamp   int64 // its first hardware time

	measured bool
	ahead    int64 // see Ring.Ahead
}

// Each frame gives the position of the next one, so reading them waits for memory once per frame.
// So the ring is prefetched in runs of independent reads. A run of 16 KiB fits into the L1 cache
// beside the decoded frames. Longer runs are no faster, shorter ones slower (BenchmarkRing: 17 ns a
// frame with 4 KiB, 14 with 16 KiB, 27 without).
const (
	cacheLine = 64
	readAhead = 16 << 10
)

// warmUp prefetches the next run, up to the end of the block.
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

// batchTally counts the frames of one batch.
type batchTally struct {
	frames, bytes, stripped, supers, hardware, restamped, bad uint64
}

func (c *cursor) header() *unix.TpacketHdrV1 {
	d := (*unix.TpacketBlockDesc)(unsafe.Pointer(&c.ring[c.block*c.blockSize]))
	return (*unix.TpacketHdrV1)(unsafe.Pointer(&d.Hdr))
}

// acquire takes the next block if the kernel has released it.
func (c *cursor) acquire() bool {
	h := c.header()
	if atomic.LoadUint32(&h.Block_status)&unix.TP_STATUS_USER == 0 {
		return false
	}
	c.held, c.first = true, true
	c.left, c.at = int(h.Num_pkts), c.block*c.blockSize+int(h.Offset_to_first_pkt)
	c.warm = c.at
	c.opened, c.read = int64(h.Ts_first_pkt.Sec)*int64(time.Second)+int64(h.Ts_first_pkt.Usec), 0 // the field holds ns in this ring version
	return true
}

// release returns a block to the kernel after all of its frames have been delivered.
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

// fill delivers frames of the present block, numbered after packets.
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

// restore sets the frame's stripped tag. Its TCI may be 0, so only the status flags tell whether
// there is one.
func restore(f *Frame, h *unix.Tpacket3Hdr) {
	f.TPID, f.TCI = defaultTPID, uint16(h.Hv1.Vlan_tci)
	if h.Status&unix.TP_STATUS_VLAN_TPID_VALID != 0 {
		f.TPID = h.Hv1.Vlan_tpid
	}
	f.WireLen += strippedLen
}

// judgeStamp checks the network card's time with TimestampAuto: it must be within maxStampError of
// the possible receive times, since many cards count international atomic time, or time since they
// were switched on. Otherwise the block's first frame gets the earliest possible time, and the
// others follow at the card's intervals.
func (c *cursor) judgeStamp(f *Frame, t *batchTally) {
	t.hardware++
	if c.read == 0 {
		c.read = time.Now().UnixNano()
		c.from, c.firstStamp = min(max(c.opened, c.quiet), c.read), f.TimeNS
	}
	if early, late := c.from-f.TimeNS, f.TimeNS-c.read; c.stamps == TimestampAuto && max(early, late) > int64(maxStampError) {
		f.TimeNS = min(c.from+max(f.TimeNS-c.firstStamp, 0), c.read)
		t.restamped++
	}
	c.compare(f.TimeNS)
}

// compare updates the lead of the frames' clock over the system's. A frame is read after it is
// received, so each time gives a lower bound of the lead. The highest bound comes from the frame
// that waited least, until a block shows that the clock was set back.
func (c *stampClock) compare(ns int64) {
	least, most := ns-c.read, ns-c.from
	if !c.measured || c.ahead > most {
		c.measured, c.ahead = true, least
	}
	c.ahead = max(c.ahead, least)
}
