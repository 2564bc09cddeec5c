package outbox

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"time"
)

// Bounds of a record, in bytes.
const (
	MaxLabel   = 64 << 10
	MaxPayload = 64 << 20

	headerSize = 92
	version    = 3
)

const magic = "obx1"

// ErrNewer is the error of a log written by a newer program.
var ErrNewer = errors.New("was written by a newer csigscope: use that one")

var (
	errNoHeader = errors.New("no record header")
	castagnoli  = crc32.MakeTable(crc32.Castagnoli)
)

// Record is a record to append. Weight counts the items in it, and Extent is their time: both
// describe the record if it is lost.
type Record struct {
	Class          int
	Weight         uint64
	Extent         Extent
	Label, Payload []byte
}

// header is the fixed part of a record.
type header struct {
	class       uint8 // its ID
	more        bool  // the next record is of the same group
	labelSize   uint32
	payloadSize uint32
	id          uint64
	seq, prev   uint64
	written     int64 // Unix ns
	weight      uint64
	before      uint64 // weight of all confirmed records of the class before it
	extent      Extent
	labelCRC    uint32
	payloadCRC  uint32
}

func (h *header) size() int64 { return headerSize + int64(h.labelSize) + int64(h.payloadSize) }

func (h *header) time() time.Time { return time.Unix(0, h.written) }

// Extent is the time of the items in a record, Unix ns; the zero Extent if they have no time.
type Extent struct{ From, To int64 }

// Join returns the smallest extent that covers both.
func (e Extent) Join(o Extent) Extent {
	switch {
	case e == Extent{}:
		return o
	case o == Extent{}:
		return e
	}
	return Extent{min(e.From, o.From), max(e.To, o.To)}
}

// appendTo encodes the header of a record that begins at an offset of its file.
func (h *header) appendTo(b []byte, offset int64) []byte {
	from := len(b)
	le := binary.LittleEndian
	b = append(b, magic...)
	more := byte(0)
	if h.more {
		more = 1
	}
	b = append(b, version, h.class, more, 0)
	b = le.AppendUint32(b, h.labelSize)
	b = le.AppendUint32(b, h.payloadSize)
	for _, v := range [...]uint64{h.id, h.seq, h.prev, uint64(h.written), h.weight, h.before, uint64(h.extent.From), uint64(h.extent.To)} {
		b = le.AppendUint64(b, v)
	}
	b = le.AppendUint32(b, h.labelCRC)
	b = le.AppendUint32(b, h.payloadCRC)
	return le.AppendUint32(b, headerCRC(b[from:], offset))
}

// headerCRC is the checksum of the header without its checksum field.
func headerCRC(b []byte, offset int64) uint32 {
	var offsetBytes [8]byte
	binary.LittleEndian.PutUint64(offsetBytes[:], uint64(offset))
	return crc32.Update(crc32.Checksum(b, castagnoli), castagnoli, offsetBytes[:])
}

// parseHeader parses a header at an offset of its file. It keeps no reference to b.
func parseHeader(b []byte, offset int64) (header, error) {
	if len(b) < headerSize || string(b[:4]) != magic {
		return header{}, errNoHeader
	}
	le := binary.LittleEndian
	if le.Uint32(b[headerSize-4:]) != headerCRC(b[:headerSize-4], offset) {
		return header{}, errNoHeader
	}
	h := header{
		class: b[5], more: b[6] != 0, labelSize: le.Uint32(b[8:]), payloadSize: le.Uint32(b[12:]),
		id: le.Uint64(b[16:]), seq: le.Uint64(b[24:]), prev: le.Uint64(b[32:]),
		written: int64(le.Uint64(b[40:])), weight: le.Uint64(b[48:]), before: le.Uint64(b[56:]),
		extent:   Extent{int64(le.Uint64(b[64:])), int64(le.Uint64(b[72:]))},
		labelCRC: le.Uint32(b[80:]), payloadCRC: le.Uint32(b[84:]),
	}
	if b[4] > version {
		return header{}, ErrNewer
	}
	if b[4] != version || h.labelSize > MaxLabel || h.payloadSize > MaxPayload || h.seq == 0 || h.prev >= h.seq {
		return header{}, errNoHeader
	}
	return h, nil
}
