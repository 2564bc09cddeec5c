package capture

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// fullRing returns a ring of blocks full of frames with the given captured length, as the kernel
// leaves it.
func fullRing(blocks, blockSize, captured int) *cursor {
	words := make([]uint64, blocks*blockSize/8)
	ring := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), blocks*blockSize)
	const head, before = 48, 98 // block header; from a frame's header to its bytes, aligned for IP
	stride := (before + captured + 15) &^ 15
	for b := range blocks {
		block := ring[b*blockSize:][:blockSize]
		d := (*unix.TpacketBlockDesc)(unsafe.Pointer(&block[0]))
		h := (*unix.TpacketHdrV1)(unsafe.Pointer(&d.Hdr))
		h.Block_status, h.Offset_to_first_pkt = unix.TP_STATUS_USER, head
		for at := head; at+stride <= blockSize; at += stride {
			*(*unix.Tpacket3Hdr)(unsafe.Pointer(&block[at])) = unix.Tpacket3Hdr{
				Next_offset: uint32(stride), Sec: 1, Snaplen: uint32(captured), Len: uint32(captured), Mac: before,
			}
			h.Num_pkts++
		}
	}
	return &cursor{ring: ring, blockSize: blockSize, blocks: blocks, longest: 9000}
}

// BenchmarkRing measures walking over a frame and reading two cache lines of it, in a ring larger
// than the CPU caches.
func BenchmarkRing(b *testing.B) {
	c := fullRing(DefaultTapBlocks, DefaultTapBlockSize, 104)
	var batch Batch
	var tally batchTally
	sum := byte(0)
	b.ReportAllocs()
	for n := 0; n < b.N; n += batch.N {
		if c.left == 0 {
			first := c.block
			c.release()
			(&cursor{ring: c.ring, blockSize: c.blockSize, block: first}).header().Block_status = unix.TP_STATUS_USER
			if !c.acquire() {
				b.Fatal("no block")
			}
		}
		c.fill(&batch, 0, &tally)
		for i := range batch.N {
			f := &batch.Frames[i]
			sum += f.Data[0] ^ f.Data[len(f.Data)-1]
		}
	}
	if tally.bad > 0 || sum != 0 {
		b.Fatalf("%+v", tally)
	}
}
