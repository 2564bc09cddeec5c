package emitter

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"os"
)

// captureFile writes one capture file: pcapng with an interface per tap, or classic
// pcap, both with nanoseconds and in little-endian order. It appends records to a
// buffer of its own and allocates nothing per packet.
type captureFile struct {
	path    string
	file    *os.File
	out     *bufio.Writer
	record  []byte
	classic bool
	snapLen int
}

const captureBuffer = 1 << 20

// createCapture starts a file. Names are those of its interfaces, which pcapng
// holds and classic pcap does not.
func createCapture(path string, classic bool, snapLen int, comment string, names []string) (*captureFile, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("create capture: %w", err)
	}
	c := &captureFile{
		path: path, file: file, out: bufio.NewWriterSize(file, captureBuffer),
		classic: classic, snapLen: snapLen,
	}
	if classic {
		c.record = classicHeader(c.record, snapLen)
	} else {
		c.record = sectionBlock(c.record, comment)
		for _, name := range names {
			c.record = interfaceBlock(c.record, name, snapLen)
		}
	}
	if _, err := c.out.Write(c.record); err != nil {
		file.Close()
		return nil, fmt.Errorf("write capture: %w", err)
	}
	return c, nil
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

func interfaceBlock(b []byte, name string, snapLen int) []byte {
	le := binary.LittleEndian
	at := len(b)
	b = le.AppendUint32(b, 1)
	b = le.AppendUint32(b, 0)
	b = le.AppendUint16(b, linkEthernet)
	b = le.AppendUint16(b, 0)
	b = le.AppendUint32(b, uint32(snapLen))
	b = option(b, optIfName, []byte(name))
	b = option(b, optComment, []byte("frames delivered to the hosts of "+name))
	b = option(b, optTSResol, []byte{9})
	return endBlock(option(b, 0, nil), at)
}

func option(b []byte, code uint16, value []byte) []byte {
	b = binary.LittleEndian.AppendUint16(b, code)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(value)))
	b = append(b, value...)
	return append(b, zeros[:-len(value)&3]...)
}

// endBlock sets both lengths of the block that begins at b[at].
func endBlock(b []byte, at int) []byte {
	size := uint32(len(b) - at + 4)
	binary.LittleEndian.PutUint32(b[at+4:], size)
	return binary.LittleEndian.AppendUint32(b, size)
}

// packet writes the headers of s and the start of its payload. Time is in Unix
// nanoseconds.
func (c *captureFile) packet(f *framer, s *segment, ns int64, iface uint32) error {
	if c.classic {
		c.classicRecord(f, s, ns)
	} else {
		c.packetBlock(f, s, ns, iface)
	}
	if _, err := c.out.Write(c.record); err != nil {
		return fmt.Errorf("write capture %q: %w", c.path, err)
	}
	return nil
}

func (c *captureFile) classicRecord(f *framer, s *segment, ns int64) {
	le := binary.LittleEndian
	b := le.AppendUint32(c.record[:0], uint32(ns/1e9))
	b = le.AppendUint32(b, uint32(ns%1e9))
	b = le.AppendUint32(b, uint32(min(s.length, c.snapLen)))
	b = le.AppendUint32(b, uint32(s.length))
	c.record = f.append(b, s, c.snapLen)
}

func (c *captureFile) packetBlock(f *framer, s *segment, ns int64, iface uint32) {
	le := binary.LittleEndian
	size := min(s.length, c.snapLen)
	b := le.AppendUint32(c.record[:0], 6)
	b = le.AppendUint32(b, 0)
	b = le.AppendUint32(b, iface)
	b = le.AppendUint32(b, uint32(ns>>32))
	b = le.AppendUint32(b, uint32(ns))
	b = le.AppendUint32(b, uint32(size))
	b = le.AppendUint32(b, uint32(s.length))
	b = f.append(b, s, c.snapLen)
	c.record = endBlock(append(b, zeros[:-size&3]...), 0)
}

func (c *captureFile) close() error {
	err := c.out.Flush()
	if closeErr := c.file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("close capture %q: %w", c.path, err)
	}
	return nil
}
