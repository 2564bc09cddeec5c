package capture

import (
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const testBlockSize = 4096

// madeBlock is a block with frames of the headers given, as the kernel leaves it.
func madeBlock(frames ...unix.Tpacket3Hdr) []byte {
	words := make([]uint64, testBlockSize/8) // headers have to be aligned
	b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), testBlockSize)
	d := (*unix.TpacketBlockDesc)(unsafe.Pointer(&b[0]))
	h := (*unix.TpacketHdrV1)(unsafe.Pointer(&d.Hdr))
	at := int(unsafe.Sizeof(*d))
	h.Block_status, h.Num_pkts, h.Offset_to_first_pkt = unix.TP_STATUS_USER, uint32(len(frames)), uint32(at)
	for i := range frames {
		f := frames[i]
		f.Mac, f.Next_offset = uint16(frameHeaderLen), uint32(frameHeaderLen)+64
		if f.Snaplen == 0 {
			f.Snaplen = 60
		}
		if at+frameHeaderLen <= len(b) {
			*(*unix.Tpacket3Hdr)(unsafe.Pointer(&b[at])) = f
		}
		at += int(f.Next_offset)
	}
	return b
}

func readBlock(t *testing.T, c *cursor) (*Batch, batchTally) {
	t.Helper()
	var b Batch
	var tally batchTally
	if !c.acquire() {
		t.Fatal("the block is not the reader's")
	}
	c.fill(&b, 10, &tally)
	return &b, tally
}

func cursorOver(ring []byte, stamps Stamp) *cursor {
	return &cursor{ring: ring, blockSize: testBlockSize, blocks: 1, longest: 1500 + 46, stamps: stamps}
}

// TestHardwareStamps judges the network card's times by the system's clock.
func TestHardwareStamps(t *testing.T) {
	now := time.Now()
	at := func(d time.Duration, status uint32) unix.Tpacket3Hdr {
		ts := now.Add(d)
		return unix.Tpacket3Hdr{Sec: uint32(ts.Unix()), Nsec: uint32(ts.Nanosecond()), Status: status, Len: 60}
	}
	const hardware, atomicTime = unix.TP_STATUS_TS_RAW_HARDWARE, 37 * time.Second
	block := func() []byte { return madeBlock(at(0, hardware), at(atomicTime, hardware), at(-time.Millisecond, 0)) }
	b, tally := readBlock(t, cursorOver(block(), StampAuto))
	if tally.hardware != 2 || tally.restamped != 1 || tally.frames != 3 {
		t.Errorf("%+v", tally)
	}
	if b.Frames[0].TimeNS != now.UnixNano() || b.Frames[2].TimeNS != now.Add(-time.Millisecond).UnixNano() {
		t.Errorf("times near the system's were changed: %d, %d", b.Frames[0].TimeNS, b.Frames[2].TimeNS)
	}
	if d := b.Frames[1].TimeNS - now.UnixNano(); d < 0 || d > int64(10*time.Second) {
		t.Errorf("a time 37 s ahead became one %s ahead", time.Duration(d))
	}
	b, tally = readBlock(t, cursorOver(block(), StampHardware))
	if tally.restamped != 0 || b.Frames[1].TimeNS != now.Add(atomicTime).UnixNano() {
		t.Errorf("the card's times were changed on their own: %+v", tally)
	}
}

// TestTagFlags takes a tag as there where the flags say so, whatever its bits are.
func TestTagFlags(t *testing.T) {
	const valid, withTPID = unix.TP_STATUS_VLAN_VALID, unix.TP_STATUS_VLAN_TPID_VALID
	tag := unix.TpacketHdrVariant1{Vlan_tci: 0xe005, Vlan_tpid: 0x88a8}
	b, tally := readBlock(t, cursorOver(madeBlock(
		unix.Tpacket3Hdr{Len: 60, Status: valid | withTPID, Hv1: tag},
		unix.Tpacket3Hdr{Len: 60, Status: valid | withTPID, Hv1: unix.TpacketHdrVariant1{Vlan_tpid: 0x8100}},
		unix.Tpacket3Hdr{Len: 60, Status: valid, Hv1: unix.TpacketHdrVariant1{Vlan_tci: 7}},
		unix.Tpacket3Hdr{Len: 60, Hv1: tag},
	), StampSoftware))
	want := []struct {
		tpid, tci uint16
		length    uint32
	}{{0x88a8, 0xe005, 64}, {0x8100, 0, 64}, {0x8100, 7, 64}, {0, 0, 60}}
	for i, w := range want {
		f := &b.Frames[i]
		if f.TPID != w.tpid || f.TCI != w.tci || f.WireLen != w.length || f.Packet != uint64(11+i) {
			t.Errorf("frame %d: %+v, want %+v", i, f, w)
		}
	}
	if tally.stripped != 3 {
		t.Errorf("%+v", tally)
	}
}

// TestSuperFrames tells them by the kernel's mark, and by a length that no frame of
// the link has.
func TestSuperFrames(t *testing.T) {
	_, tally := readBlock(t, cursorOver(madeBlock(
		unix.Tpacket3Hdr{Len: 1500, Status: unix.TP_STATUS_GSO_TCP},
		unix.Tpacket3Hdr{Len: 1546},
		unix.Tpacket3Hdr{Len: 1547},
	), StampSoftware))
	if tally.supers != 2 {
		t.Errorf("%+v, want 2 super-frames", tally)
	}
}

// TestMalformedRings keeps reading inside of the block, and goes on behind it.
func TestMalformedRings(t *testing.T) {
	many := make([]unix.Tpacket3Hdr, 50) // more than fit
	for _, block := range [][]byte{madeBlock(many...), madeBlock(unix.Tpacket3Hdr{Snaplen: testBlockSize})} {
		c := cursorOver(block, StampSoftware)
		b, tally := readBlock(t, c)
		if tally.bad != 1 || int(tally.frames) != b.N || b.N >= len(many) {
			t.Errorf("%d frames, %+v", b.N, tally)
		}
		c.release()
		if c.held || c.acquire() {
			t.Error("the block was not given back")
		}
	}
}

// TestBlocksOutliveBatches gives a block back only when all of it was handed out.
func TestBlocksOutliveBatches(t *testing.T) {
	c := cursorOver(madeBlock(unix.Tpacket3Hdr{}, unix.Tpacket3Hdr{}), StampSoftware)
	c.acquire()
	c.left++ // as in the middle of a block
	c.release()
	if !c.held {
		t.Error("a block with frames left was given back")
	}
}

// BenchmarkTap reads frames of 112 bytes from a ring of 64 MiB that is always full:
// what receiving takes beside the kernel.
func BenchmarkTap(b *testing.B) {
	const blocks, blockSize, step, length = DefaultTapBlocks, DefaultTapBlockSize, 192, 112
	words := make([]uint64, blocks*blockSize/8)
	ring := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), blocks*blockSize)
	c := &cursor{ring: ring, blockSize: blockSize, blocks: blocks, longest: 1546}
	const first = 64
	for c.block = range blocks {
		h := c.header()
		h.Block_status, h.Num_pkts, h.Offset_to_first_pkt = unix.TP_STATUS_USER, (blockSize-first)/step, first
		for i := range int(h.Num_pkts) {
			*(*unix.Tpacket3Hdr)(unsafe.Pointer(&ring[c.block*blockSize+first+i*step])) = unix.Tpacket3Hdr{
				Next_offset: step, Sec: 1, Snaplen: length, Len: length, Mac: 82 - 14,
			}
		}
	}
	c.block = 0
	var batch Batch
	var tally batchTally
	sum := byte(0)
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; n += batch.N {
		if done := c.block; c.held && c.left == 0 {
			c.release()
			at := c.block
			c.block = done
			c.header().Block_status = unix.TP_STATUS_USER
			c.block = at
		}
		if c.left == 0 && !c.acquire() {
			b.Fatal("no block")
		}
		c.fill(&batch, uint64(n), &tally)
		for i := range batch.N {
			sum ^= batch.Frames[i].Data[12] // as a decoder does
		}
	}
	if sum != 0 || tally.bad != 0 {
		b.Fatal("frames are not where they were put")
	}
}
