package capture

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"time"
)

// BatchSize is the maximum number of frames in a Batch: large enough to spread the cost of a call,
// small enough to keep the batch in cache.
const BatchSize = 256

// Frame is one captured frame. The reader owns Data, which is valid until the next call of
// ReadBatch. It also owns the memory behind it up to its capacity: callers must not append.
type Frame struct {
	Data      []byte // captured bytes
	TimeNS    int64  // Unix time in ns, saturated at the range of int64; 0 with NoTime
	WireLen   uint32 // original length on the wire in bytes, including a stripped tag
	Interface uint32 // index into Interfaces()
	NoTime    bool   // simple packet block: no timestamp
	// TPID and TCI are the outermost tag, if a live tap's network card or kernel stripped it from
	// the frame; its position in Data was offset 12. TPID 0 means no stripped tag.
	TPID, TCI uint16
	Packet    uint64 // counts from 1 in the file (in the chunk with OpenChunk); only packet blocks count
	Offset    int64  // byte offset of the record in the file (in the inflated stream of a compressed file)
}

// strippedLen is the length of a stripped tag, tagOffset its original offset.
const (
	strippedLen = 4
	tagOffset   = 12
)

// Append appends the captured bytes as they were on the wire, including a stripped tag.
func (f *Frame) Append(b []byte) []byte {
	if f.TPID == 0 || len(f.Data) < tagOffset {
		return append(b, f.Data...)
	}
	b = append(b, f.Data[:tagOffset]...)
	b = binary.BigEndian.AppendUint16(b, f.TPID)
	b = binary.BigEndian.AppendUint16(b, f.TCI)
	return append(b, f.Data[tagOffset:]...)
}

// Batch is a caller-owned set of frames that ReadBatch fills. Callers should reuse it: Frames[:N]
// is valid, the rest is left over from earlier calls.
type Batch struct {
	Frames [BatchSize]Frame
	N      int
}

// Interface describes a capture interface. A classic pcap file has exactly one, without a name.
type Interface struct {
	Section     uint32   // number in the pcapng file, from 0: interfaces of sections before a packet's section have no more packets
	Name        string   // if_name, at most 256 bytes of valid UTF-8; empty when unknown
	Description string   // if_description, with the same limits as Name
	Link        LinkType // link-layer header type of the interface's frames
	SnapLen     uint32   // maximum number of captured bytes per frame; 0: unlimited

	// NanosPerTick is the resolution of the recorded timestamps in ns. It is the precision of
	// times; Frame.TimeNS is computed exactly, not from it.
	NanosPerTick float64
	// OffsetSeconds (if_tsoffset) is already included in Frame.TimeNS.
	OffsetSeconds int64
}

// Counters holds the totals of one Reader since it was opened.
type Counters struct {
	Packets        uint64 // frames delivered
	SkippedBlocks  uint64 // pcapng blocks without a packet: statistics, names, custom, unknown
	SaturatedTimes uint64 // timestamps beyond the range of int64 ns (before 1678, after 2262)
}

// Defaults of Options.
const (
	DefaultMaxFrame      = 256 << 10
	DefaultReadBuffer    = 256 << 10
	DefaultMaxInterfaces = 65536
	DefaultMaxInflation  = 1100
	DefaultPoll          = 200 * time.Millisecond
	DefaultMaxOpen       = 256
)

// Options bound a Reader. Zero values take the defaults.
type Options struct {
	// MaxFrame is the largest accepted captured length in bytes. A larger packet is a LimitError.
	// Default 256 KiB, the largest snapshot length of common capture tools; at most 1 GiB.
	MaxFrame int
	// ReadBuffer is the size of the read buffer in bytes. It grows to hold a larger record, up to
	// MaxFrame plus 128 KiB for options. Default 256 KiB.
	ReadBuffer int
	// MaxInterfaces bounds the interfaces of all sections of a pcapng file. Default 65536.
	MaxInterfaces int
	// MaxInflation is the maximum number of bytes to which one compressed byte of a gzip or zstd
	// file may expand, beyond the first 64 MiB; more is a LimitError. Default 1100, slightly more
	// than gzip's maximum; a zstd stream can expand 30 times further. At most 1,048,576.
	MaxInflation int
	// MaxInflated is the maximum inflated size of a gzip or zstd file in bytes; more is a
	// LimitError. Default 0: only MaxInflation limits it, since reading takes the same memory
	// whatever the size.
	MaxInflated int64
	// Resume makes the reader of a pcap or pcapng file skip damage. After a record that cannot be read,
	// it continues where a run of records, each with a plausible header that leads to the next, proves
	// the start of a record, or at the next boundary of [Chunks] with a size of Resume bytes, whichever
	// comes first. In a pcapng file, 4 blocks are a run, or fewer that end exactly at this boundary or
	// at the end of the file; in a pcap file, and in a pcapng file with more than 8192 damages plus one
	// per 64 KiB, at least 16 records and 64 KiB. After a pcapng block whose length is valid and whose
	// content is not, it continues with the next block. [Reader.Damage] describes the skipped bytes;
	// frames are numbered without them. If no such position follows, the rest of the file is skipped
	// too, unless the file just ends inside its last record. In that last case reading ends with the
	// error. It always does with 0, the default, and for followed files, compressed files and pipes, which
	// cannot be read from the middle. A negative value does not use the boundaries of Chunks.
	//
	// If the damage hides descriptions of interfaces, the numbers of later interfaces of the section
	// are unknown: the packets of all these interfaces are skipped. If an interface description
	// follows the damage, a section may have begun in it: all packets up to the next section are
	// skipped. A section that begins in the damage together with all of its descriptions is not
	// noticed: its packets count for the previous section.
	Resume int64
	// Poll is the interval at which [Follow] looks for more data at the end of a file. Default 200
	// ms; at least 1 ms.
	Poll time.Duration
	// MaxOpen is the maximum number of files that [MergeFiles] opens at a time. It bounds the
	// memory for merging: a read buffer and a Batch per file, and the window of each zstd stream.
	// Default 256.
	MaxOpen int
}

const (
	// packetOverhead is the maximum size of a packet block without its captured bytes: fixed fields
	// and options. One option is at most 64 KiB.
	packetOverhead = 128 << 10
	// largestMaxFrame keeps every sum of lengths far from overflow.
	largestMaxFrame = 1 << 30
	// minReadBuffer keeps the fixed part of every header inside the buffer.
	minReadBuffer = 4 << 10
	// largestMaxInflation leaves MaxInflated as the only limit.
	largestMaxInflation = 1 << 20
	minPoll             = time.Millisecond
)

func (o Options) withDefaults() Options {
	if o.MaxFrame <= 0 {
		o.MaxFrame = DefaultMaxFrame
	}
	if o.ReadBuffer <= 0 {
		o.ReadBuffer = DefaultReadBuffer
	}
	o.MaxFrame = min(o.MaxFrame, largestMaxFrame)
	o.ReadBuffer = max(o.ReadBuffer, minReadBuffer)
	if o.MaxInterfaces <= 0 {
		o.MaxInterfaces = DefaultMaxInterfaces
	}
	if o.MaxInflation <= 0 {
		o.MaxInflation = DefaultMaxInflation
	}
	o.MaxInflation = min(o.MaxInflation, largestMaxInflation)
	if o.Poll <= 0 {
		o.Poll = DefaultPoll
	}
	o.Poll = max(o.Poll, minPoll)
	if o.MaxOpen <= 0 {
		o.MaxOpen = DefaultMaxOpen
	}
	return o
}

// maxRecord returns the size of the largest record or packet block held in memory.
func (o Options) maxRecord() int { return o.MaxFrame + packetOverhead }

// LinkType is a link-layer header type: the registered LINKTYPE_ number of
// draft-ietf-opsawg-pcaplinktype. The FCS bits that share the field in classic pcap are masked off.
type LinkType uint16

// Link types that start with, or stand for, an Ethernet header.
const (
	// LinkEthernet is LINKTYPE_ETHERNET: frames start with the destination MAC.
	LinkEthernet LinkType = 1
	// LinkSLL is LINKTYPE_LINUX_SLL: a 16-byte cooked header that ends with the EtherType, as in
	// captures of Linux' "any" interface.
	LinkSLL LinkType = 113
	// LinkSLL2 is LINKTYPE_LINUX_SLL2: a 20-byte cooked header that starts with
	// the EtherType.
	LinkSLL2 LinkType = 276
)

// Numbered returns the usual name of a link type with its number, for error messages: raw IP (link
// type 101).
func (l LinkType) Numbered() string {
	if name, ok := linkNames[l]; ok {
		return fmt.Sprintf("%s (link type %d)", name, l)
	}
	return l.String()
}

// String returns the usual name of a link type, or its number if this package has no name for it.
func (l LinkType) String() string {
	if name, ok := linkNames[l]; ok {
		return name
	}
	return "link type " + strconv.Itoa(int(l))
}

// linkNames has the link types that occur in captures of hosts and switches.
var linkNames = map[LinkType]string{
	0:            "BSD loopback",
	LinkEthernet: "Ethernet",
	6:            "Token Ring",
	8:            "SLIP",
	9:            "PPP",
	10:           "FDDI",
	12:           "raw IP",
	14:           "raw IP",
	50:           "PPP over serial lines",
	51:           "PPPoE",
	101:          "raw IP",
	104:          "Cisco HDLC",
	105:          "IEEE 802.11",
	107:          "Frame Relay",
	108:          "OpenBSD loopback",
	LinkSLL:      "Linux SLL",
	117:          "OpenBSD pflog",
	119:          "IEEE 802.11 Prism",
	127:          "IEEE 802.11 radiotap",
	163:          "IEEE 802.11 AVS",
	187:          "Bluetooth HCI",
	189:          "Linux USB",
	192:          "PPI",
	195:          "IEEE 802.15.4",
	197:          "Endace ERF",
	201:          "Bluetooth HCI",
	220:          "Linux USB",
	227:          "SocketCAN",
	228:          "raw IPv4",
	229:          "raw IPv6",
	239:          "Linux netfilter log",
	247:          "InfiniBand",
	249:          "USBPcap",
	253:          "Linux netlink",
	271:          "Linux vsock",
	LinkSLL2:     "Linux SLL2",
}
