package frames

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// captureFile writes one capture: pcapng with one interface per tap, or classic pcap. Both use
// nanoseconds and little-endian order and may be compressed. Records go through its own buffer;
// nothing is allocated per packet.
type captureFile struct {
	path    string
	closers []io.Closer // innermost first
	out     *bufio.Writer
	record  []byte
	classic bool
}

const captureBuffer = 1 << 20

// newCapture starts a capture on w, which it closes. The taps' names become the interfaces' names
// in pcapng; classic pcap has none.
func newCapture(s *scenario.Scenario, w io.WriteCloser, path string, of []tap) (*captureFile, error) {
	c := &captureFile{path: path, classic: s.Classic, closers: []io.Closer{w}}
	to, err := c.compressor(w, s.Compress)
	if err != nil {
		w.Close()
		return nil, fmt.Errorf("create capture: %w", err)
	}
	c.out = bufio.NewWriterSize(to, captureBuffer)
	if c.classic {
		snapLen := 0
		for i := range of {
			snapLen = max(snapLen, of[i].CaptureLen)
		}
		c.record = classicHeader(c.record, snapLen)
	} else {
		c.record = sectionBlock(c.record, fmt.Sprintf("simulated: scenario %s, seed %d, %s", s.Name, s.Seed, s.Layout))
		for i := range of {
			c.record = interfaceBlock(c.record, &of[i])
		}
	}
	if err := c.write(c.record); err != nil {
		w.Close()
		return nil, err
	}
	return c, nil
}

// compressor puts a compressor before w. Equal input gives equal output.
func (c *captureFile) compressor(w io.Writer, how string) (io.Writer, error) {
	switch how {
	case scenario.Gzip:
		z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
		c.closers = append([]io.Closer{z}, c.closers...)
		return z, err
	case scenario.Zstd:
		z, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
		c.closers = append([]io.Closer{z}, c.closers...)
		return z, err
	}
	return w, nil
}

// Option codes of pcapng (draft-ietf-opsawg-pcapng).
const (
	optComment   = 1
	optUserAppl  = 4
	optIfName    = 2
	optTSResol   = 9
	linkEthernet = 1
)

func classicHeader(b []byte, snapLen int) []byte {
	le := binary.LittleEndian
	b = le.AppendUint32(b, 0xa1b23c4d)
	b = le.AppendUint16(b, 2)
	b = le.AppendUint16(b, 4)
	b = le.AppendUint64(b, 0)
	b = le.AppendUint32(b, uint32(snapLen))
	return le.AppendUint32(b, linkEthernet)
}

func sectionBlock(b []byte, comment string) []byte {
	le := binary.LittleEndian
	at := len(b)
	b = le.AppendUint32(b, 0x0a0d0d0a)
	b = le.AppendUint32(b, 0)
	b = le.AppendUint32(b, 0x1a2b3c4d)
	b = le.AppendUint16(b, 1)
	b = le.AppendUint16(b, 0)
	b = le.AppendUint64(b, ^uint64(0))
	b = option(b, optComment, []byte(comment))
	b = option(b, optUserAppl, []byte("csigscope emit"))
	return endBlock(option(b, 0, nil), at)
}

func interfaceBlock(b []byte, t *tap) []byte {
	le := binary.LittleEndian
	at := len(b)
	b = le.AppendUint32(b, 1)
	b = le.AppendUint32(b, 0)
	b = le.AppendUint16(b, linkEthernet)
	b = le.AppendUint16(b, 0)
	b = le.AppendUint32(b, uint32(t.CaptureLen))
	b = option(b, optIfName, []byte(t.Name))
	b = option(b, optComment, []byte(t.comment()))
	b = option(b, optTSResol, []byte{9})
	return endBlock(option(b, 0, nil), at)
}

// comment describes the frames that a tap sees.
func (t *tap) comment() string {
	what := fmt.Sprintf("frames on %d links in the middle", len(t.Links))
	switch t.Place {
	case scenario.PlaceReceiver:
		what = "frames delivered to the hosts of " + t.Name
		if !t.Racks {
			what = fmt.Sprintf("frames delivered over %d links", len(t.Links))
		}
	case scenario.PlaceSender:
		what = fmt.Sprintf("frames sent by %d hosts", len(t.Links))
	}
	if t.ERSPAN != 0 {
		what += fmt.Sprintf(", mirrored in ERSPAN type %d, session %d", t.ERSPAN, t.Session)
	}
	return what
}

func option(b []byte, code uint16, value []byte) []byte {
	b = binary.LittleEndian.AppendUint16(b, code)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(value)))
	b = append(b, value...)
	return append(b, zeros[:-len(value)&3]...)
}

// endBlock sets both length fields of the block that begins at b[at].
func endBlock(b []byte, at int) []byte {
	size := uint32(len(b) - at + 4)
	binary.LittleEndian.PutUint32(b[at+4:], size)
	return binary.LittleEndian.AppendUint32(b, size)
}

// begin starts a record that holds size bytes of a frame of the given length. ns is Unix time in
// nanoseconds. The caller appends the bytes and calls end.
func (c *captureFile) begin(ns int64, iface uint32, size, length int) []byte {
	le := binary.LittleEndian
	b := c.record[:0]
	if c.classic {
		b = le.AppendUint32(b, uint32(ns/1e9))
		b = le.AppendUint32(b, uint32(ns%1e9))
	} else {
		b = le.AppendUint32(b, 6)
		b = le.AppendUint32(b, 0)
		b = le.AppendUint32(b, iface)
		b = le.AppendUint32(b, uint32(ns>>32))
		b = le.AppendUint32(b, uint32(ns))
	}
	b = le.AppendUint32(b, uint32(size))
	return le.AppendUint32(b, uint32(length))
}

// end completes a record and returns it. It is valid until the next begin.
func (c *captureFile) end(b []byte, size int) []byte {
	if !c.classic {
		b = endBlock(append(b, zeros[:-size&3]...), 0)
	}
	c.record = b
	return b
}

func (c *captureFile) write(record []byte) error {
	if _, err := c.out.Write(record); err != nil {
		return fmt.Errorf("write capture %q: %w", c.path, err)
	}
	return nil
}

func (c *captureFile) close() error {
	errs := []error{c.out.Flush()}
	for _, closer := range c.closers {
		errs = append(errs, closer.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close capture %q: %w", c.path, err)
	}
	return nil
}
