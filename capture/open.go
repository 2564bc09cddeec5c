package capture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// Open opens the capture at path and reads its file header. The path "-" is
// standard input. Compression and format are recognised by content, never by
// name.
//
// Errors: a *FormatError, a *CutError for a file that ends inside its header,
// one that wraps ErrDirectory, or the operating system's (fs.ErrNotExist).
func Open(path string, opts Options) (*Reader, error) {
	if path == "-" {
		return NewReader(os.Stdin, "standard input", opts)
	}
	f, size, err := openFile(path)
	if err != nil {
		return nil, err
	}
	r, err := NewReader(f, path, opts)
	if err != nil {
		_ = f.Close() // nothing was written: the error to report is the reader's
		return nil, err
	}
	r.size, r.closer = size, f
	if size >= 0 && r.inflated == nil {
		r.resumer.file, r.resumer.size = f, size
	}
	return r, nil
}

// openFile returns the file and its size, -1 where it is not a regular file.
func openFile(path string) (*os.File, int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, fmt.Errorf("open capture %q: %w", path, err)
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = ErrDirectory
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, 0, fmt.Errorf("open capture %q: %w", path, err)
	}
	if !info.Mode().IsRegular() {
		return f, -1, nil
	}
	return f, info.Size(), nil
}

// detect recognises the format and consumes the header of a classic file. A
// compressed stream is looked into once, and only where inflate allows it.
func (r *Reader) detect(inflate bool) error {
	if !r.win.fill(4) {
		if len(r.win.unread()) == 0 && errors.Is(r.win.err, io.EOF) {
			return &FormatError{File: r.name, What: "the file is empty"}
		}
		if !errors.Is(r.win.err, io.EOF) {
			return fmt.Errorf("open capture %q: read the file header: %w", r.name, r.win.err)
		}
		return r.notCapture("not a pcap or pcapng file, too short")
	}
	p := r.win.unread()
	if _, ok := classicMagic(p); ok {
		return r.openClassic()
	}
	switch {
	case binary.BigEndian.Uint32(p) == blockSection:
		return r.openBlocks()
	case inflate && compressionOf(p) != uncompressed:
		return r.openCompressed(compressionOf(p))
	}
	return r.notCapture("not a pcap or pcapng file")
}

func (r *Reader) notCapture(what string) error {
	first := r.win.unread()
	return &FormatError{File: r.name, First: bytes.Clone(first[:min(4, len(first))]), What: what}
}

func (r *Reader) openClassic() error {
	if !r.win.fill(classicFileHeader) {
		return r.ended(0, classicFileHeader, "pcap file header")
	}
	c, err := parseClassicHeader(r.win.unread(), r.name, r.opts.MaxFrame)
	if err != nil {
		return err
	}
	r.win.r += classicFileHeader
	r.classic = c
	r.ng.interfaces = []Interface{c.describe()}
	return nil
}

// openBlocks checks what makes the input a pcapng file; the section header
// itself is read with the blocks that follow it.
func (r *Reader) openBlocks() error {
	if !r.win.fill(12) {
		return r.ended(0, minSection, "section header block")
	}
	if _, ok := byteOrder(r.win.unread()[8:]); !ok {
		return r.notCapture("not a pcapng file, its section has no byte-order magic")
	}
	r.ng = newBlocks(r.opts)
	return nil
}
