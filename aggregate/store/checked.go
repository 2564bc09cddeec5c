package store

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"syscall"

	"github.com/ClickHouse/ch-go/compress"
	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/proto"
)

// ErrMalformedAnswer is the error of an answer that breaks the protocol, or that no question
// of this program has. None of it is decoded.
var ErrMalformedAnswer = errors.New("malformed answer")

// answerError is a checker's error. The client library wraps it in ever more text of its
// own, which describe leaves out.
type answerError struct {
	kind error
	text string
}

func (e *answerError) Error() string { return fmt.Sprintf("%v: %s", e.kind, e.text) }
func (e *answerError) Unwrap() error { return e.kind }

func malformed(format string, args ...any) error {
	return &answerError{ErrMalformedAnswer, fmt.Sprintf(format, args...) + ": is this the native port of a ClickHouse server?"}
}

// Bounds of one packet of an answer. A server cuts results into blocks of 65,409 rows, so
// maxPacket leaves 4 KiB to each.
const (
	maxPacket     = 256 << 20 // bytes, on the wire as well as decoded
	maxText       = 1 << 20   // bytes of an error message, and of other text beside the rows
	maxNested     = 16        // errors within one another
	maxColumns    = 4096
	maxColumnType = 4096 // bytes, as of names of columns
	maxTypeDepth  = 4
	columnBytes   = 1024     // of memory that an empty column takes, at most
	keptBuffer    = 4 << 20  // bytes that stay with a connection between packets
	maxLateError  = 32 << 10 // bytes of an error behind the blocks of an HTTP body
)

// checked wraps the options so that the client library only reads answers that were read
// and checked whole. The library allocates by the lengths that the server sends, before it
// reads as much, and it indexes by the numbers in an answer: without the check one packet of
// ten bytes ends the process, beyond what recover reaches.
func checked(o *clickhouse.Options) *clickhouse.Options {
	wrapped := *o
	if o.Protocol == clickhouse.HTTP {
		transport := o.TransportFunc
		wrapped.TransportFunc = func(t *http.Transport) (http.RoundTripper, error) {
			if transport == nil {
				return checkedTransport{t}, nil
			}
			inner, err := transport(t)
			return checkedTransport{inner}, err
		}
		return &wrapped
	}
	dialer := &net.Dialer{Timeout: o.DialTimeout}
	dial := dialer.DialContext
	if o.TLS != nil {
		dial = (&tls.Dialer{NetDialer: dialer, Config: o.TLS}).DialContext
	}
	compressed := o.Compression != nil && o.Compression.Method != clickhouse.CompressionNone
	wrapped.DialContext = func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := dial(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		return newCheckedConn(conn, compressed), nil
	}
	return &wrapped
}

// checkedConn is a connection to a server, over the native protocol.
type checkedConn struct {
	net.Conn
	answer *checker
}

func newCheckedConn(conn net.Conn, compressed bool) *checkedConn {
	c := newChecker(conn)
	c.blocks = &c.wire
	if compressed {
		c.blocks = bufio.NewReaderSize(compress.NewReader(&c.wire), 64<<10)
	}
	c.next = c.packet
	return &checkedConn{conn, c}
}

// Read closes a connection that is of no use any more: the library leaves one open that
// failed before the end of the hello.
func (c *checkedConn) Read(p []byte) (int, error) {
	n, err := c.answer.Read(p)
	if err != nil || !c.answer.greeted {
		c.Close()
	}
	return n, err
}

// SyscallConn lets the library see whether an idle connection was closed by the server.
func (c *checkedConn) SyscallConn() (syscall.RawConn, error) {
	conn := c.Conn
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	raw, ok := conn.(syscall.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return raw.SyscallConn()
}

// checkedTransport checks what HTTP answers with: blocks without packets around them.
type checkedTransport struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t checkedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.RoundTripper.RoundTrip(r)
	// The library reads no more than 64 KiB of an error.
	if err != nil || response.StatusCode != http.StatusOK {
		return response, err
	}
	c := newChecker(response.Body)
	c.blocks, c.next = &c.wire, c.part
	response.Body = &checkedBody{response.Body, c}
	return response, nil
}

type checkedBody struct {
	io.ReadCloser
	answer *checker
}

func (b *checkedBody) Read(p []byte) (int, error) { return b.answer.Read(p) }

// checker hands on an answer packet by packet, each once it has been read whole and found
// sound: every length in it is bounded and stands before as many bytes, every type is one
// that questions have, every index points at something. Its first error stays.
type checker struct {
	wire   recordingReader
	blocks source // decompressed
	next   func() error
	err    error

	given   int // bytes of the packet in wire that were handed on
	left    int // bytes of memory that the rest of the packet may take
	limit   int
	greeted bool
}

func newChecker(r io.Reader) *checker {
	c := &checker{limit: maxPacket}
	c.wire = recordingReader{in: bufio.NewReaderSize(r, 64<<10), limit: &c.limit}
	return c
}

// Read hands on bytes of sound packets only.
func (c *checker) Read(p []byte) (int, error) {
	for len(p) > 0 && c.given == len(c.wire.kept) {
		if c.err != nil {
			return 0, c.err
		}
		if c.wire.kept = c.wire.kept[:0]; cap(c.wire.kept) > keptBuffer {
			c.wire.kept = nil
		}
		c.given, c.left = 0, c.limit
		if c.err = c.next(); c.err != nil {
			c.wire.kept = nil
		}
	}
	n := copy(p, c.wire.kept[c.given:])
	c.given += n
	return n, nil
}

// source is what packets and blocks are read from.
type source interface {
	io.Reader
	io.ByteReader
	Discard(n int) (int, error)
}

// recordingReader keeps the bytes of a packet while they are read. It grows by what has arrived.
type recordingReader struct {
	in    *bufio.Reader
	kept  []byte
	limit *int
}

func (r *recordingReader) add(b []byte) error {
	if len(r.kept)+len(b) > *r.limit {
		return malformed("a packet beyond %d bytes", *r.limit)
	}
	r.kept = append(r.kept, b...)
	return nil
}

func (r *recordingReader) Read(p []byte) (int, error) {
	n, err := r.in.Read(p)
	if failed := r.add(p[:n]); failed != nil {
		return 0, failed
	}
	return n, err
}

func (r *recordingReader) ReadByte() (byte, error) {
	b, err := r.in.ReadByte()
	if err == nil {
		err = r.add([]byte{b})
	}
	return b, err
}

func (r *recordingReader) Discard(n int) (int, error) {
	for done := 0; done < n; {
		chunk, err := r.in.Peek(min(n-done, r.in.Size()))
		if err == nil {
			err = r.add(chunk)
		}
		if err != nil {
			return done, err
		}
		_, _ = r.in.Discard(len(chunk))
		done += len(chunk)
	}
	return n, nil
}

// whole makes the end of the connection an error where a packet is not over yet, and tells
// failures of the connection from bytes that cannot be read.
func whole(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return io.ErrUnexpectedEOF
	}
	_, known := errors.AsType[*answerError](err)
	if known || err == nil || connectionLost(err) || errors.Is(err, context.Canceled) {
		return err
	}
	return malformed("%v", err)
}

// packet checks one packet of the native protocol, in the revision that the library asks
// for: 54460, which every server that ErrOldServer does not refuse knows.
func (c *checker) packet() error {
	kind, err := c.wire.ReadByte()
	if err != nil {
		return err // between packets a server may leave
	}
	if !c.greeted && kind != proto.ServerHello && kind != proto.ServerException {
		return malformed("packet %d before the server's hello", kind)
	}
	switch kind {
	case proto.ServerHello:
		err = c.hello()
	case proto.ServerException:
		err = c.exception()
	case proto.ServerPong, proto.ServerEndOfStream:
	case proto.ServerProgress, proto.ServerProfileInfo:
		err = c.numbers(6)
	case proto.ServerTableColumns:
		err = c.texts(maxText, maxText)
	case proto.ServerData, proto.ServerTotals, proto.ServerExtremes:
		if err = c.texts(maxColumnType); err == nil {
			err = c.block(c.blocks)
		}
	case proto.ServerLog, proto.ServerProfileEvents:
		if err = c.texts(maxColumnType); err == nil {
			err = c.block(&c.wire)
		}
	default:
		err = malformed("packet of the unknown kind %d", kind)
	}
	return whole(err)
}

func (c *checker) hello() error {
	if c.greeted {
		return malformed("a second hello")
	}
	if err := c.texts(maxColumnType); err != nil {
		return err
	}
	if err := c.numbers(2); err != nil {
		return err
	}
	revision, err := binary.ReadUvarint(&c.wire)
	if err != nil {
		return err
	}
	if revision < proto.DBMS_TCP_PROTOCOL_VERSION {
		return &answerError{ErrOldServer, fmt.Sprintf("it speaks revision %d of the protocol: need ClickHouse %s or later, or --store embedded", revision, oldestServer)}
	}
	if err := c.texts(maxColumnType, maxColumnType); err != nil { // time zone, name
		return err
	}
	c.greeted = true
	return c.numbers(1)
}

func (c *checker) exception() error {
	for range maxNested {
		if _, err := c.wire.Discard(4); err != nil {
			return err
		}
		if err := c.texts(maxText, maxText, maxText); err != nil {
			return err
		}
		nested, err := c.wire.ReadByte()
		if err != nil {
			return err
		}
		if nested == 0 {
			return nil
		}
	}
	return malformed("more than %d errors within one another", maxNested)
}

// numbers checks so many numbers, or truth values, which the library refuses beyond 1.
func (c *checker) numbers(n int) error {
	for range n {
		if _, err := binary.ReadUvarint(&c.wire); err != nil {
			return err
		}
	}
	return nil
}

// texts checks texts that are no longer than these.
func (c *checker) texts(longest ...int) error {
	for _, most := range longest {
		n, err := c.length(&c.wire, most)
		if err == nil {
			_, err = c.wire.Discard(n)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// length reads how much follows, at most so much.
func (c *checker) length(r source, most int) (int, error) {
	n, err := binary.ReadUvarint(r)
	if err != nil {
		return 0, err
	}
	if n > uint64(most) {
		return 0, malformed("a length of %d, at most %d is expected here", n, most)
	}
	return int(n), nil
}

// charge accounts for memory that the decoded packet takes.
func (c *checker) charge(n int) error {
	if n > c.left {
		return malformed("a packet beyond %d bytes", c.limit)
	}
	c.left -= n
	return nil
}

// part checks one block of an HTTP body, or hands on the error behind the last: the library
// sees by its first two bytes that it is no block.
func (c *checker) part() error {
	start, err := c.wire.in.Peek(2)
	if err != nil {
		if len(start) > 0 {
			return whole(err)
		}
		return err
	}
	if text := string(start); text == "\r\n" || text == "__" {
		_, err := io.Copy(io.Discard, io.LimitReader(&c.wire, maxLateError))
		return err
	}
	return whole(c.block(&c.wire))
}

// block checks the rows of one block, column by column.
func (c *checker) block(r source) error {
	// Two fields, of one and four bytes, and the end of fields.
	var info [8]byte
	if _, err := io.ReadFull(r, info[:]); err != nil {
		return err
	}
	if info[0] != 1 || info[1] > 1 || info[2] != 2 || info[7] != 0 {
		return malformed("a block begins with % x", info)
	}
	columns, err := c.length(r, maxColumns)
	if err != nil {
		return err
	}
	rows, err := c.length(r, c.left)
	if err != nil {
		return err
	}
	for range columns {
		if err := c.charge(columnBytes); err != nil {
			return err
		}
		if err := c.column(r, rows); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) column(r source, rows int) error {
	var text [2]string // name and type
	for i := range text {
		n, err := c.length(r, maxColumnType)
		if err != nil {
			return err
		}
		b := make([]byte, n)
		if _, err := io.ReadFull(r, b); err != nil {
			return err
		}
		text[i] = string(b)
	}
	kind, err := parseColumnType(text[1], maxTypeDepth)
	if err != nil {
		return err
	}
	custom, err := r.ReadByte()
	if err != nil {
		return err
	}
	if custom != 0 {
		return malformed("column %.64q is serialized in a way of its own", text[0])
	}
	if rows == 0 {
		return nil
	}
	if err := c.prefix(r, kind); err != nil {
		return err
	}
	return c.cells(r, kind, rows)
}

// columnType is a type of columns as the protocol writes it.
type columnType struct {
	base  string
	width int // bytes of a cell; 0 where they differ
	of    []columnType
}

// What types other than these come to in an answer is unknown, so they are refused.
var (
	cellWidths = map[string]int{
		"Bool": 1, "UInt8": 1, "UInt16": 2, "UInt32": 4, "UInt64": 8, "Int8": 1, "Int16": 2, "Int32": 4, "Int64": 8,
		"Float32": 4, "Float64": 8, "Date": 2, "DateTime": 4, "IPv4": 4, "IPv6": 16, "UUID": 16,
		"Enum8": 1, "Enum16": 2, "DateTime64": 8, "String": 0,
	}
	// The library indexes into parameters without looking how many there are.
	typeParameters = map[string]*regexp.Regexp{
		"DateTime":   regexp.MustCompile(`^'[\w/+-]{1,64}'$`),
		"DateTime64": regexp.MustCompile(`^\d(, '[\w/+-]{1,64}')?$`),
		"Enum8":      regexp.MustCompile(`^'[^'\\]*' = -?\d{1,3}(, '[^'\\]*' = -?\d{1,3})*$`),
		"Enum16":     regexp.MustCompile(`^'[^'\\]*' = -?\d{1,5}(, '[^'\\]*' = -?\d{1,5})*$`),
	}
	containers = map[string]int{"Array": 1, "Map": 2, "Nullable": 1, "LowCardinality": 1}
)

func parseColumnType(text string, depth int) (columnType, error) {
	base, within, parameters := strings.Cut(text, "(")
	unknown := malformed("a column of type %.64q", text)
	if parameters {
		var closed bool
		if within, closed = strings.CutSuffix(within, ")"); !closed {
			return columnType{}, unknown
		}
	}
	t := columnType{base: base}
	width, simple := cellWidths[base]
	pattern := typeParameters[base]
	switch {
	case simple && !parameters && (pattern == nil || base == "DateTime"),
		simple && parameters && pattern != nil && pattern.MatchString(within):
		t.width = width
		return t, nil
	case simple || containers[base] == 0 || !parameters || depth == 0:
		return t, unknown
	}
	for _, inner := range splitTypes(within) {
		of, err := parseColumnType(inner, depth-1)
		if err != nil {
			return t, unknown
		}
		t.of = append(t.of, of)
	}
	if len(t.of) != containers[base] || base == "LowCardinality" && t.of[0].base != "String" || base == "Nullable" && t.of[0].of != nil {
		return t, unknown
	}
	return t, nil
}

// splitTypes cuts at the commas that stand in no brackets.
func splitTypes(text string) []string {
	var parts []string
	depth, from := 0, 0
	for i, b := range []byte(text) {
		switch {
		case b == '(':
			depth++
		case b == ')':
			depth--
		case b == ',' && depth == 0:
			parts = append(parts, text[from:i])
			from = i + 1
		}
	}
	parts = append(parts, text[from:])
	for i := range parts {
		parts[i] = strings.TrimPrefix(parts[i], " ")
	}
	return parts
}

// prefix checks what stands before the cells of a column.
func (c *checker) prefix(r source, t columnType) error {
	if t.base == "LowCardinality" {
		return eachNumber(r, 8, 1, func(version uint64) error {
			if version != 1 {
				return malformed("a dictionary of version %d", version)
			}
			return nil
		})
	}
	for _, of := range t.of {
		if err := c.prefix(r, of); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) cells(r source, t columnType, rows int) error {
	if rows == 0 {
		return nil
	}
	if rows > c.left {
		return malformed("%d rows in a packet of at most %d bytes", rows, c.limit)
	}
	switch t.base {
	case "String":
		return c.strings(r, rows)
	case "LowCardinality":
		return c.dictionary(r, t, rows)
	case "Array", "Map":
		if err := c.charge(8 * rows); err != nil {
			return err
		}
		last := uint64(0)
		err := eachNumber(r, 8, rows, func(end uint64) error {
			if end < last || end > uint64(c.limit) {
				return malformed("the end of an array at %d after %d", end, last)
			}
			last = end
			return nil
		})
		if err != nil {
			return err
		}
		rows = int(last)
	case "Nullable":
		if err := c.skip(r, rows); err != nil {
			return err
		}
	default:
		return c.skip(r, t.width*rows)
	}
	for _, of := range t.of {
		if err := c.cells(r, of, rows); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) skip(r source, n int) error {
	if err := c.charge(n); err != nil {
		return err
	}
	_, err := r.Discard(n)
	return err
}

// strings accounts for them as the library does, which makes room for all other rows too
// when it meets a short one.
func (c *checker) strings(r source, rows int) error {
	const position, short = 16, 128
	if err := c.charge(position * rows); err != nil {
		return err
	}
	room, end := 0, 0
	for i := range rows {
		n, err := c.length(r, c.limit)
		if err != nil {
			return err
		}
		if end += n; room < end {
			grow := n
			if n < short {
				grow *= rows - i
			}
			if err := c.charge(grow); err != nil {
				return err
			}
			room += grow
		}
		if _, err := r.Discard(n); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) dictionary(r source, t columnType, rows int) error {
	var head [2]uint64 // flags, number of entries
	i := 0
	err := eachNumber(r, 8, len(head), func(v uint64) error { head[i] = v; i++; return nil })
	if err != nil {
		return err
	}
	key, entries := head[0]&0xff, head[1]
	if key > 3 || entries == 0 || entries > uint64(c.left) {
		return malformed("a dictionary of %d entries with flags %#x", entries, head[0])
	}
	if err := c.cells(r, t.of[0], int(entries)); err != nil {
		return err
	}
	err = eachNumber(r, 8, 1, func(n uint64) error {
		if n != uint64(rows) {
			return malformed("%d keys of a dictionary for %d rows", n, rows)
		}
		return nil
	})
	if err != nil {
		return err
	}
	width := 1 << key
	if err := c.charge(width * rows); err != nil {
		return err
	}
	return eachNumber(r, width, rows, func(k uint64) error {
		if k >= entries {
			return malformed("key %d of a dictionary of %d entries", k, entries)
		}
		return nil
	})
}

// eachNumber calls f for n little-endian numbers of so many bytes.
func eachNumber(r source, width, n int, f func(uint64) error) error {
	var buffer [512]byte
	for n > 0 {
		b := buffer[:min(n*width, len(buffer))]
		if _, err := io.ReadFull(r, b); err != nil {
			return err
		}
		for ; len(b) > 0; b = b[width:] {
			var v uint64
			for i := width - 1; i >= 0; i-- {
				v = v<<8 | uint64(b[i])
			}
			if err := f(v); err != nil {
				return err
			}
			n--
		}
	}
	return nil
}
