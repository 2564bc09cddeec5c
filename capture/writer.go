package capture

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// MaxComment is the maximum length of a comment in bytes: the capacity of a pcapng option, which
// fits a block with the largest frame.
const MaxComment = 65532

const (
	optComment     = 1
	optApplication = 4 // shb_userappl

	writeBuffer = 64 << 10
	nanoTicks   = 9 // if_tsresol
)

// Writer writes frames as one pcapng section (draft-ietf-opsawg-pcapng) in little-endian order.
// Each frame becomes an enhanced packet block with nanoseconds and an optional comment, which
// packet analyzers show. Equal calls give equal bytes.
//
// A copy loses everything that a Frame does not hold: other options of its block, such as an
// earlier comment, and blocks without packets. A frame from before 1970, which the format cannot
// express, gets time 0. So does a frame without time, because a simple packet block could have
// neither a comment nor another interface than the first.
//
// A Writer is not safe for concurrent use. It writes nothing before the first method call, and the
// last bytes only on Flush.
type Writer struct {
	out     *bufio.Writer
	first   []Interface // from NewWriter, until they are written
	begun   bool
	known   int // number of interfaces written
	packets uint64
	scratch []byte

	restored []byte // frame with its stripped tag
}

// NewWriter writes to w, which the caller closes. Frame.Interface indexes interfaces, followed by
// those that Declare adds.
func NewWriter(w io.Writer, interfaces ...Interface) *Writer {
	return &Writer{out: bufio.NewWriterSize(w, writeBuffer), first: interfaces, scratch: make([]byte, 0, 1024)}
}

// Declare adds interfaces. all must be the complete list, as [Reader.Interfaces] returns it. Known
// ones are skipped, so Declare can be called before each batch of a file whose interfaces appear
// later. The copy keeps name, description, link type and snapshot length; its times are in ns
// without offset.
func (w *Writer) Declare(all []Interface) error {
	err := w.begin()
	for ; err == nil && w.known < len(all); w.known++ {
		err = w.describe(&all[w.known])
	}
	return err
}

// begin writes the section header and the interfaces of NewWriter.
func (w *Writer) begin() error {
	if w.begun {
		return nil
	}
	w.begun = true
	w.start(blockSection)
	w.u32(byteOrderMagic)
	w.u32(1)          // version 1.0
	w.u32(^uint32(0)) // section length: unknown,
	w.u32(^uint32(0)) // 64 bits
	w.option(optApplication, "csigscope")
	w.u32(optEnd)
	if err := w.end(); err != nil {
		return err
	}
	return w.Declare(w.first)
}

// describe writes an interface description block.
func (w *Writer) describe(in *Interface) error {
	w.start(blockInterface)
	w.u32(uint32(in.Link))
	w.u32(in.SnapLen)
	w.option(optName, clip(in.Name, maxText))
	w.option(optDescription, clip(in.Description, maxText))
	w.option(optResolution, string([]byte{nanoTicks}))
	w.u32(optEnd)
	return w.end()
}

// Write appends a frame with a comment, or without one if it is empty. A comment longer than
// MaxComment bytes is truncated, and made valid UTF-8. Write copies the frame's Data, with a
// stripped tag restored. It returns errors of the destination, and an error for a frame that is
// longer than 1 GiB or whose interface has not been declared.
func (w *Writer) Write(f *Frame, comment string) error {
	if err := w.begin(); err != nil {
		return err
	}
	if uint64(f.Interface) >= uint64(w.known) {
		return fmt.Errorf("write packet %d: it is of interface %d, expected one of the %d declared; declare it first",
			w.packets+1, f.Interface, w.known)
	}
	if len(f.Data) > largestMaxFrame {
		return fmt.Errorf("write packet %d: it is %d bytes long, expected at most %d", w.packets+1, len(f.Data), largestMaxFrame)
	}
	data := f.Data
	if f.TPID != 0 {
		w.restored = f.Append(w.restored[:0])
		data = w.restored
	}
	comment = clip(comment, MaxComment)
	padding := -len(data) & 3
	total := packetHeader + len(data) + padding + blockTrailer
	if comment != "" {
		total += 4 + len(comment) + (-len(comment) & 3) + 4
	}
	ticks := uint64(max(0, f.TimeNS))
	if f.NoTime {
		ticks = 0
	}
	w.scratch = w.scratch[:0]
	for _, v := range [...]uint32{
		blockEnhanced, uint32(total), f.Interface,
		uint32(ticks >> 32), uint32(ticks), uint32(len(data)), f.WireLen,
	} {
		w.u32(v)
	}
	_ = w.emit()             // the buffer keeps its first error,
	_, _ = w.out.Write(data) // which is returned below
	w.zeros(padding)
	if comment != "" {
		w.option(optComment, comment)
		w.u32(optEnd)
	}
	w.u32(uint32(total))
	if err := w.emit(); err != nil {
		return fmt.Errorf("write packet %d: %w", w.packets+1, err)
	}
	w.packets++
	return nil
}

// Flush writes all buffered data to the destination, including the headers of a file without
// packets.
func (w *Writer) Flush() error {
	if err := w.begin(); err != nil {
		return err
	}
	if err := w.out.Flush(); err != nil {
		return fmt.Errorf("write capture: %w", err)
	}
	return nil
}

// start begins a block in the scratch buffer; end adds its lengths.
func (w *Writer) start(kind uint32) {
	w.scratch = w.scratch[:0]
	w.u32(kind)
	w.u32(0)
}

func (w *Writer) end() error {
	total := uint32(len(w.scratch) + blockTrailer)
	w.u32(total)
	binary.LittleEndian.PutUint32(w.scratch[4:], total)
	if err := w.emit(); err != nil {
		return fmt.Errorf("write capture: %w", err)
	}
	return nil
}

// emit writes the scratch buffer and empties it.
func (w *Writer) emit() error {
	_, err := w.out.Write(w.scratch)
	w.scratch = w.scratch[:0]
	return err
}

func (w *Writer) u32(v uint32) { w.scratch = binary.LittleEndian.AppendUint32(w.scratch, v) }

func (w *Writer) zeros(n int) { w.scratch = append(w.scratch, "\x00\x00\x00"[:n]...) }

// option appends an option, padded to 32 bits, unless it is empty.
func (w *Writer) option(code uint16, v string) {
	if v == "" {
		return
	}
	w.u32(uint32(len(v))<<16 | uint32(code))
	w.scratch = append(w.scratch, v...)
	w.zeros(-len(v) & 3)
}

// clip truncates s to valid UTF-8 of at most limit bytes.
func clip(s string, limit int) string {
	if len(s) > limit {
		for limit > 0 && !utf8.RuneStart(s[limit]) {
			limit--
		}
		s = s[:limit]
	}
	return strings.ToValidUTF8(s, "?") // does not lengthen it
}
