package capture

import (
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const testBlockSize = 4096

// madeBlock returns a block of frames with the given headers, as the kernel leaves it.
func madeBlock(frames ...unix.Tpacket3Hdr) []byte {
	words := make([]uint64, testBlockSize/8) // headers must be aligned
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

func cursorOver(ring []byte, stamps TimestampSource) *cursor {
	return &cursor{ring: ring, blockSize: testBlockSize, blocks: 1, longest: 1500 + 46, stamps: stamps}
}

// TestHardwareStamps checks the network card's times against the possible receive times: from when
// the kernel opened the block, or from the last idle poll, until the block is read. A backlog in
// the ring keeps its times and order.
func TestHardwareStamps(t *testing.T) {
	const hardware, atomicTime = unix.TP_STATUS_TS_RAW_HARDWARE, 37 * time.Second
	now := time.Now()
	for _, test := range []struct {
		name          string
		opened, quiet time.Duration // before now
		stamps        []time.Duration
		want          []time.Duration // nil: unchanged
		restamped     uint64
		least, most   time.Duration // bounds of Ahead, depending on the time of reading
	}{
		{name: "read at once", opened: time.Millisecond, quiet: time.Minute, stamps: []time.Duration{-time.Millisecond, 0}, most: 0},
		{name: "a backlog", opened: time.Minute, quiet: 2 * time.Minute, stamps: []time.Duration{-59 * time.Second, -30 * time.Second}, least: -30 * time.Second, most: -30 * time.Second},
		{
			name: "atomic time", opened: time.Millisecond, quiet: time.Minute, stamps: []time.Duration{atomicTime, atomicTime + time.Microsecond},
			want: []time.Duration{-time.Millisecond, -999 * time.Microsecond}, restamped: 2, least: -time.Millisecond, most: -999 * time.Microsecond,
		},
		{
			name: "a backlog of a card that is behind", opened: 10 * time.Second, quiet: time.Minute,
			stamps: []time.Duration{-time.Hour, -time.Hour + 2*time.Second, -time.Hour + 20*time.Second},
			want:   []time.Duration{-10 * time.Second, -8 * time.Second, 0}, restamped: 3,
		},
		{
			name: "behind, in a block that was long empty", opened: time.Hour, quiet: 60 * time.Millisecond, stamps: []time.Duration{-10 * time.Minute},
			want: []time.Duration{-60 * time.Millisecond}, restamped: 1, least: -60 * time.Millisecond, most: -60 * time.Millisecond,
		},
		{name: "half a second off", opened: time.Millisecond, quiet: time.Minute, stamps: []time.Duration{-500 * time.Millisecond}, least: -500 * time.Millisecond, most: -500 * time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			const slow = time.Minute // time that a busy machine may take to read the block
			var headers []unix.Tpacket3Hdr
			for _, d := range test.stamps {
				ts := now.Add(d)
				headers = append(headers, unix.Tpacket3Hdr{Sec: uint32(ts.Unix()), Nsec: uint32(ts.Nanosecond()), Status: hardware, Len: 60})
			}
			for _, stamps := range []TimestampSource{TimestampAuto, TimestampHardware} {
				c := cursorOver(madeBlock(headers...), stamps)
				opened := now.Add(-test.opened)
				c.header().Ts_first_pkt = unix.TpacketBDTS{Sec: uint32(opened.Unix()), Usec: uint32(opened.Nanosecond())}
				c.quiet = now.Add(-test.quiet).UnixNano()
				b, tally := readBlock(t, c)
				want, restamped := test.stamps, uint64(0)
				if stamps == TimestampAuto && test.want != nil {
					want, restamped = test.want, test.restamped
				}
				for i, d := range want {
					got := time.Duration(b.Frames[i].TimeNS - now.UnixNano())
					if got != d && (d != 0 || restamped == 0 || got < 0 || got > slow) {
						t.Errorf("%s: frame %d is of %s, want %s", stamps, i, got, d)
					}
				}
				if tally.hardware != uint64(len(want)) || tally.restamped != restamped {
					t.Errorf("%s: %+v, want %d restamped", stamps, tally, restamped)
				}
				if ahead := time.Duration(c.ahead); stamps == TimestampAuto && (ahead < test.least-slow || ahead > test.most) {
					t.Errorf("the clock of frames is ahead by %s, want %s to %s", ahead, test.least, test.most)
				}
			}
		})
	}
}

// The lead of the frames' clock is at least that of the frame that waited least, until a frame
// cannot have been received so early.
func TestClockComparison(t *testing.T) {
	var c stampClock
	for i, block := range []struct{ from, read, stamp, want int64 }{
		{0, 100, 1050, 950},        // 1000 ahead, read 50 after reception
		{100, 5000, 1200, 950},     // a backlog gives a lower bound only
		{5000, 5100, 6090, 990},    // read 10 after reception
		{5100, 5200, 6190, 990},    // the same again
		{5200, 5300, 5299, -1},     // the clock was set back to the correct time
		{5300, 9000, 5400, -1},     // a backlog
		{9000, 9100, 12_100, 3000}, // ahead again
	} {
		c.from, c.read = block.from, block.read
		if c.compare(block.stamp); c.ahead != block.want {
			t.Errorf("block %d: ahead by %d, want %d", i, c.ahead, block.want)
		}
	}
}

// TestTagFlags checks that the flags decide whether there is a tag, whatever its bits are.
func TestTagFlags(t *testing.T) {
	const valid, withTPID = unix.TP_STATUS_VLAN_VALID, unix.TP_STATUS_VLAN_TPID_VALID
	tag := unix.TpacketHdrVariant1{Vlan_tci: 0xe005, Vlan_tpid: 0x88a8}
	b, tally := readBlock(t, cursorOver(madeBlock(
		unix.Tpacket3Hdr{Len: 60, Status: valid | withTPID, Hv1: tag},
		unix.Tpacket3Hdr{Len: 60, Status: valid | withTPID, Hv1: unix.TpacketHdrVariant1{Vlan_tpid: 0x8100}},
		unix.Tpacket3Hdr{Len: 60, Status: valid, Hv1: unix.TpacketHdrVariant1{Vlan_tci: 7}},
		unix.Tpacket3Hdr{Len: 60, Hv1: tag},
	), TimestampSoftware))
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

// TestSuperFrames checks that super-frames are recognized by the kernel's mark, and by a length
// that the link cannot carry.
func TestSuperFrames(t *testing.T) {
	_, tally := readBlock(t, cursorOver(madeBlock(
		unix.Tpacket3Hdr{Len: 1500, Status: unix.TP_STATUS_GSO_TCP},
		unix.Tpacket3Hdr{Len: 1546},
		unix.Tpacket3Hdr{Len: 1547},
	), TimestampSoftware))
	if tally.supers != 2 {
		t.Errorf("%+v, want 2 super-frames", tally)
	}
}

// TestMalformedRings checks that reading stays inside the block and continues with the next one.
func TestMalformedRings(t *testing.T) {
	many := make([]unix.Tpacket3Hdr, 50) // more than fit
	for _, block := range [][]byte{madeBlock(many...), madeBlock(unix.Tpacket3Hdr{Snaplen: testBlockSize})} {
		c := cursorOver(block, TimestampSoftware)
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

// TestBlocksOutliveBatches checks that a block is returned only after all its frames were
// delivered.
func TestBlocksOutliveBatches(t *testing.T) {
	c := cursorOver(madeBlock(unix.Tpacket3Hdr{}, unix.Tpacket3Hdr{}), TimestampSoftware)
	c.acquire()
	c.left++ // as in the middle of a block
	c.release()
	if !c.held {
		t.Error("a block with frames left was given back")
	}
}

// BenchmarkTap reads frames of 112 bytes from a ring of 64 MiB that is always full: the cost of
// receiving without the kernel.
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
			sum ^= batch.Frames[i].Data[12] // like a decoder
		}
	}
	if sum != 0 || tally.bad != 0 {
		b.Fatal("frames are not where they were put")
	}
}
