// Package native reads the answers of a ClickHouse server, in the native protocol and in native
// blocks over HTTP, before the client library does. The library allocates by the lengths in an
// answer before it reads as many bytes, and indexes by the numbers in it: without the check one
// packet of ten bytes ends the process, and recover cannot prevent that.
//
// It knows the form of a valid answer. It must never know queries, tables or the meaning of an
// answer.
package native

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
	"syscall"

	"github.com/ClickHouse/ch-go/compress"
	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/proto"
)

// Errors of answers that are not decoded.
var (
	// ErrMalformed is the error of an answer that breaks the protocol, or that no query of this
	// program has.
	ErrMalformed = errors.New("malformed answer")
	// ErrOldRevision is the error of a server with a protocol older than the library requests.
	ErrOldRevision = errors.New("old revision of the protocol")
)

// Error is an error of an answer. The client library wraps it in text of its own.
type Error struct {
	kind error // ErrMalformed or ErrOldRevision
	text string
}

// Error implements error, in one line.
func (e *Error) Error() string { return fmt.Sprintf("%v: %s", e.kind, e.text) }

// Unwrap returns ErrMalformed or ErrOldRevision.
func (e *Error) Unwrap() error { return e.kind }

func malformed(format string, args ...any) error {
	return &Error{ErrMalformed, fmt.Sprintf(format, args...) + ": is this the native port of a ClickHouse server?"}
}

// Bounds of one packet of an answer. A server cuts results into blocks of 65,409 rows, so
// maxPacket allows 4 KiB for each row.
const (
	maxPacket     = 256 << 20 // bytes, on the wire and decoded
	maxText       = 1 << 20   // bytes of an error message, and of other text beside the rows
	maxNested     = 16        // errors within one another
	maxColumns    = 4096
	maxColumnType = 4096 // bytes, also for names of columns
	maxTypeDepth  = 4
	columnBytes   = 1024     // maximum memory of an empty column
	keptBuffer    = 4 << 20  // bytes that a connection keeps between packets
	maxLateError  = 32 << 10 // bytes of an error after the blocks of an HTTP body
)

// Checked returns a copy of the options with which the client library reads only completely
// received and checked packets of answers, of at most 256 MiB, on the wire and decoded.
func Checked(o *clickhouse.Options) *clickhouse.Options {
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

// Read closes a connection after an error: the library leaves one open that failed before the end
// of the hello.
func (c *checkedConn) Read(p []byte) (int, error) {
	n, err := c.answer.Read(p)
	if err != nil || !c.answer.greeted {
		c.Close()
	}
	return n, err
}

// SyscallConn lets the library detect that the server closed an idle connection.
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

// checkedTransport checks answers over HTTP: blocks without packets around them.
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

// checker forwards an answer packet by packet, each after it was read completely and found valid:
// every length is bounded and followed by as many bytes, every type is one that queries use, and
// every index points at an existing element. Its first error is final.
type checker struct {
	from   rememberingReader
	wire   recordingReader
	blocks source // decompressed
	next   func() error
	err    error

	given   int // forwarded bytes of the packet in wire
	left    int // bytes of memory allowed for the rest of the packet
	limit   int
	greeted bool
}

func newChecker(r io.Reader) *checker {
	c := &checker{limit: maxPacket, from: rememberingReader{Reader: r}}
	c.wire = recordingReader{in: bufio.NewReaderSize(&c.from, 64<<10), limit: &c.limit}
	return c
}

// rememberingReader separates errors of the connection from errors in its data.
type rememberingReader struct {
	io.Reader
	err error
}

func (r *rememberingReader) Read(p []byte) (n int, err error) {
	n, err = r.Reader.Read(p)
	if err != nil {
		r.err = err
	}
	return n, err
}

// Read returns bytes of valid packets only.
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

// source is the input for packets and blocks.
type source interface {
	io.Reader
	io.ByteReader
	Discard(n int) (int, error)
}

// recordingReader keeps the bytes of a packet while they are read. It grows only by received
// bytes.
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

// whole turns the end of the connection inside a packet into an error, and separates failures of
// the connection from invalid bytes.
func (c *checker) whole(err error) error {
	_, known := errors.AsType[*Error](err)
	switch {
	case known || err == nil:
		return err
	case c.from.err == nil:
		return malformed("%v", err)
	case errors.Is(c.from.err, io.EOF):
		return io.ErrUnexpectedEOF
	}
	return c.from.err
}

// packet checks one packet of the native protocol, in the revision that the library requests:
// 54460, which every server supports that ErrOldRevision does not refuse.
func (c *checker) packet() error {
	kind, err := c.wire.ReadByte()
	if err != nil {
		return err // between packets a server may close the connection
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
	return c.whole(err)
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
		return &Error{ErrOldRevision, fmt.Sprintf("the server speaks %d, expected at least %d", revision, proto.DBMS_TCP_PROTOCOL_VERSION)}
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

// numbers checks n numbers, or booleans, which the library refuses beyond 1.
func (c *checker) numbers(n int) error {
	for range n {
		if _, err := binary.ReadUvarint(&c.wire); err != nil {
			return err
		}
	}
	return nil
}

// texts checks texts with these maximum lengths.
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

// length reads a length and checks that it is at most most.
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

// charge accounts for memory of the decoded packet.
func (c *checker) charge(n int) error {
	if n > c.left {
		return malformed("a packet beyond %d bytes", c.limit)
	}
	c.left -= n
	return nil
}

// part checks one block of an HTTP body, or forwards the error after the last: the library
// recognizes by its first two bytes that it is not a block.
func (c *checker) part() error {
	start, err := c.wire.in.Peek(2)
	if err != nil {
		if len(start) > 0 {
			return c.whole(err)
		}
		return err
	}
	if text := string(start); text == "\r\n" || text == "__" {
		_, err := io.Copy(io.Discard, io.LimitReader(&c.wire, maxLateError))
		return err
	}
	return c.whole(c.block(&c.wire))
}
