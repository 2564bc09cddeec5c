package chdb

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

const insertChunk = 1 << 20

// insertRows runs an INSERT; rows in the body go to the engine as they arrive.
func insertRows(s *session, q *query) (err error) {
	if q.dedupToken != "" {
		if err := s.exec("SET " + dedupTokenParam + " = " + quoteString(q.dedupToken)); err != nil {
			return err
		}
		defer func() {
			if resetErr := s.exec("SET " + dedupTokenParam + " = DEFAULT"); resetErr != nil {
				s.broken = true
			}
		}()
	}
	if q.body == nil && (q.statement.format != "" || q.values) {
		// Without rows ClickHouse does nothing.
		return nil
	}
	if q.body == nil {
		return s.query(q.text, q.format, &q.params, func([]byte) error { return nil })
	}
	if len(q.params.names) > 0 {
		return newException(codeNotImplemented, "an insert with rows in the body takes no query parameters")
	}
	stream, err := s.insert(q.text, q.format)
	if err != nil {
		return err
	}
	defer stream.close()
	chunk := make([]byte, insertChunk)
	for {
		n, readErr := fill(q.body, chunk)
		if err := stream.append(chunk[:n]); err != nil {
			stream.cancel()
			return err
		}
		if errors.Is(readErr, io.EOF) {
			return stream.done()
		}
		if readErr != nil {
			stream.cancel()
			return bodyError(fmt.Errorf("insert abandoned: %w", readErr))
		}
	}
}

// fill reads until chunk is full. Unlike io.ReadFull it distinguishes the end of the body from a
// cut body.
func fill(r io.Reader, chunk []byte) (int, error) {
	n := 0
	for n < len(chunk) {
		m, err := r.Read(chunk[n:])
		n += m
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// freshReader extends a client's deadline with every read, and removes it at the end: the server
// continues to watch the connection for a lost client.
type freshReader struct {
	io.Reader
	control *http.ResponseController
}

func (f *freshReader) Read(p []byte) (int, error) {
	_ = f.control.SetReadDeadline(time.Now().Add(stalledClient))
	n, err := f.Reader.Read(p)
	if err != nil {
		_ = f.control.SetReadDeadline(time.Time{})
	}
	return n, err
}
