package api

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/flate"
)

// packed is a part of a stream as it travels in a gzip stream (RFC 1952): blocks of deflate (RFC
// 1951) that end at a byte and refer to nothing before them, so that each part is deflated once
// for all streams that it is in.
type packed struct {
	blocks []byte
	sum    uint32 // CRC-32 of the part
	shift  uint32 // what a sum of what comes before is multiplied with: x^(8*size)
	size   uint32 // of the part, in bytes, modulo 2^32
}

// packer deflates parts. It is safe for concurrent use; the zero value is ready.
type packer struct{ idle sync.Pool }

// pack deflates a part, at the level that takes least time: a sixth of cells is left.
func (p *packer) pack(part []byte) (*packed, error) {
	out := bytes.NewBuffer(make([]byte, 0, len(part)/4+64))
	w, _ := p.idle.Get().(*flate.Writer)
	if w == nil {
		var err error
		if w, err = flate.NewWriter(out, flate.BestSpeed); err != nil {
			return nil, fmt.Errorf("deflate event: %w", err)
		}
	} else {
		w.Reset(out)
	}
	if _, err := w.Write(part); err != nil {
		return nil, fmt.Errorf("deflate event: %w", err)
	}
	if err := w.Flush(); err != nil { // ends with an empty block, which makes readers give out what they have
		return nil, fmt.Errorf("deflate event: %w", err)
	}
	p.idle.Put(w)
	return &packed{out.Bytes(), crc32.ChecksumIEEE(part), shiftOf(len(part)), uint32(len(part))}, nil
}

// gzipHead is the header of a gzip stream: deflate, without a name or a time, of no known
// system (RFC 1952, section 2.3).
var gzipHead = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff}

// gzipStream is what parts of one stream have come to.
type gzipStream struct{ sum, size uint32 }

// add notes a part.
func (z *gzipStream) add(p *packed) {
	z.sum = multiply(p.shift, z.sum) ^ p.sum
	z.size += p.size
}

// end ends the stream: a last block, which is empty, the sum and the size.
func (z *gzipStream) end() []byte {
	b := []byte{3, 0}
	b = binary.LittleEndian.AppendUint32(b, z.sum)
	return binary.LittleEndian.AppendUint32(b, z.size)
}

// multiply is the product of polynomials over GF(2), modulo that of CRC-32, the highest bit
// being that of x^0.
func multiply(a, b uint32) (product uint32) {
	for ; a != 0; a <<= 1 {
		if a&(1<<31) != 0 {
			product ^= b
		}
		b = b>>1 ^ -(b&1)&crc32.IEEE
	}
	return product
}

// shiftOf is x^(8*bytes).
func shiftOf(bytes int) uint32 {
	power, square := uint32(1)<<31, uint32(1)<<(31-8)
	for n := bytes; n > 0; n >>= 1 {
		if n&1 != 0 {
			power = multiply(square, power)
		}
		square = multiply(square, square)
	}
	return power
}

// takesGzip tells whether who asks takes gzip (RFC 9110, section 12.5.3). Who takes anything,
// or says nothing, is sent what needs no unpacking.
func takesGzip(h http.Header) bool {
	for _, line := range h.Values("Accept-Encoding") {
		for choice := range strings.SplitSeq(line, ",") {
			coding, weight, _ := strings.Cut(choice, ";")
			coding = strings.TrimSpace(coding)
			if !strings.EqualFold(coding, "gzip") && !strings.EqualFold(coding, "x-gzip") {
				continue
			}
			name, value, given := strings.Cut(strings.TrimSpace(weight), "=")
			if !given || !strings.EqualFold(name, "q") {
				return true
			}
			q, err := strconv.ParseFloat(value, 64)
			return err == nil && q > 0
		}
	}
	return false
}
