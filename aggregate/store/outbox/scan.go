package outbox

import (
	"bytes"
	"errors"
	"hash/crc32"
	"io"
)

// scanner finds the records of one segment, and those that follow damage.
type scanner struct {
	file  File
	id    uint64 // of the log; 0: any
	end   int64  // end of reading
	head  [headerSize]byte
	chunk []byte // for searching; made when it is needed
}

const chunkSize = 64 << 10

// found is a record with a valid header.
type found struct {
	header
	offset int64
	cut    bool // the segment ends before the record
}

func (f *found) next() int64 { return f.offset + f.size() }

// at finds the record that begins at an offset or, if there is none, the first one behind it;
// skipped reports that bytes lie between. At the end it returns io.EOF.
func (s *scanner) at(offset int64) (f found, skipped bool, err error) {
	if offset >= s.end {
		return found{}, false, io.EOF
	}
	n, err := s.read(s.head[:], offset)
	if err != nil {
		return found{}, false, err
	}
	f, err = s.parse(s.head[:n], offset)
	if !errors.Is(err, errNoHeader) {
		return f, false, err
	}
	f, err = s.search(offset + 1)
	return f, true, err
}

// search looks for the next valid header.
func (s *scanner) search(offset int64) (found, error) {
	if s.chunk == nil {
		s.chunk = make([]byte, chunkSize)
	}
	for s.end-offset >= headerSize {
		n, err := s.read(s.chunk, offset)
		if err != nil {
			return found{}, err
		}
		b := s.chunk[:n]
		for at := 0; ; at++ {
			i := bytes.Index(b[at:], []byte(magic))
			if i < 0 {
				offset += int64(max(1, len(b)-len(magic)+1))
				break
			}
			at += i
			if at > 0 && len(b)-at < headerSize {
				offset += int64(at)
				break
			}
			f, err := s.parse(b[at:], offset+int64(at))
			if !errors.Is(err, errNoHeader) {
				return f, err
			}
		}
	}
	return found{}, io.EOF
}

func (s *scanner) parse(b []byte, offset int64) (found, error) {
	h, err := parseHeader(b, offset)
	if err != nil {
		return found{}, err
	}
	if s.id != 0 && h.id != s.id {
		return found{}, errNoHeader
	}
	return found{header: h, offset: offset, cut: offset+h.size() > s.end}, nil
}

// read fills b up to the end of the segment.
func (s *scanner) read(b []byte, offset int64) (int, error) {
	n := int(min(int64(len(b)), s.end-offset))
	if n <= 0 {
		return 0, nil
	}
	n, err := s.file.ReadAt(b[:n], offset)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

// label returns the record's label, nil if it is damaged.
func (s *scanner) label(f *found) ([]byte, error) {
	return s.part(nil, f.offset+headerSize, f.labelSize, f.labelCRC)
}

// payload reads the record's payload into buf, which grows as needed; it is nil if it is damaged.
func (s *scanner) payload(buf []byte, f *found) ([]byte, error) {
	return s.part(buf, f.offset+headerSize+int64(f.labelSize), f.payloadSize, f.payloadCRC)
}

func (s *scanner) part(buf []byte, offset int64, length, sum uint32) ([]byte, error) {
	if offset+int64(length) > s.end {
		return nil, nil
	}
	if int(length) > cap(buf) || buf == nil {
		buf = make([]byte, length)
	}
	buf = buf[:length]
	n, err := s.read(buf, offset)
	if err != nil {
		return nil, err
	}
	if n < len(buf) || crc32.Checksum(buf, castagnoli) != sum {
		return nil, nil
	}
	return buf, nil
}
