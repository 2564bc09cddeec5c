package chdb

import (
	"cmp"
	"fmt"
	"unsafe"
)

// session is one connection to the engine. It runs one statement at a time and is not safe for
// concurrent use; the pool gives it to one request at a time.
type session struct {
	api      *capi
	role     Role
	tag      string   // log_comment of its queries, by which KILL QUERY finds them
	args     []string // of chdb_connect
	setup    []string // statements to run after connecting
	database string   // the current one, "" after connecting
	handle   unsafe.Pointer
	broken   bool  // the engine may hold state of a failed statement
	stats    stats // of the last statement that was not streamed
}

// ensure connects if needed. A session that a failed stream has left in an unknown state
// reconnects: leftovers of the failed result would otherwise precede the next one.
func (s *session) ensure() error {
	if s.broken {
		s.close()
	}
	if s.handle != nil {
		return nil
	}
	handle := s.api.open(s.args)
	if handle == nil {
		return newException(codeUnknown, "the engine refused a connection")
	}
	s.handle, s.database, s.broken = handle, "", false
	for _, sql := range s.setup {
		if err := s.exec(sql); err != nil {
			s.close()
			return fmt.Errorf("set up engine connection: %w", err)
		}
	}
	return nil
}

func (s *session) close() {
	if s.handle != nil {
		s.api.closeConn(s.handle)
	}
	s.handle, s.broken = nil, false
}

// conn is the connection itself; the handle is a pointer to it.
func (s *session) conn() unsafe.Pointer { return *(*unsafe.Pointer)(s.handle) }

// use makes database the current one of the connection.
func (s *session) use(database string) error {
	database = cmp.Or(database, "default")
	if database == s.database {
		return nil
	}
	if err := s.exec("USE " + quoteIdentifier(database)); err != nil {
		return err
	}
	s.database = database
	return nil
}

// exec runs a statement whose result does not matter.
func (s *session) exec(sql string) error {
	return s.query(sql, "TabSeparated", nil, func([]byte) error { return nil })
}

// params are bound parameters; values are escaped as TabSeparated fields.
type params struct{ names, values []string }

// query runs a statement to its end and passes the whole result to use, which must not keep it:
// it is memory of the engine.
func (s *session) query(sql, format string, p *params, use func(result []byte) error) error {
	handle := s.call(s.api.queryParams, sql, format, p)
	if handle != nil {
		defer s.api.resultDestroy(handle)
	}
	result, err := s.api.result(handle)
	if err != nil {
		return err
	}
	s.stats = s.api.stats(handle)
	return use(result)
}

type queryFunc = func(conn, sql unsafe.Pointer, sqlLen uintptr, format unsafe.Pointer, formatLen uintptr, names, nameLens, values, valueLens unsafe.Pointer, count uintptr) unsafe.Pointer

func (s *session) call(function queryFunc, sql, format string, p *params) unsafe.Pointer {
	if p == nil {
		p = new(params)
	}
	var pins cStrings
	defer pins.unpin()
	return function(s.conn(),
		pins.bytes(sql), uintptr(len(sql)), pins.bytes(format), uintptr(len(format)),
		pins.pointers(p.names), pins.lengths(p.names),
		pins.pointers(p.values), pins.lengths(p.values), uintptr(len(p.names)))
}

// resultStream yields a result piece by piece, so that memory does not bound its size.
type resultStream struct {
	session *session
	handle  unsafe.Pointer
	chunk   unsafe.Pointer
	ended   bool
}

// stream starts a query whose result is read chunk by chunk. Until close, the session runs
// nothing else.
func (s *session) stream(sql, format string, p *params) (*resultStream, error) {
	s.stats = stats{}
	handle := s.call(s.api.streamParams, sql, format, p)
	if handle == nil {
		return nil, newException(codeUnknown, "the engine started no stream")
	}
	if text := s.api.resultError(handle); text != "" {
		s.api.resultDestroy(handle)
		s.broken = true
		return nil, parseException(text)
	}
	return &resultStream{session: s, handle: handle}, nil
}

// next returns the next chunk, valid until the following call, or nil at the end.
func (r *resultStream) next() ([]byte, error) {
	r.freeChunk()
	if r.ended {
		return nil, nil
	}
	api := r.session.api
	r.chunk = api.streamFetch(r.session.conn(), r.handle)
	chunk, err := api.result(r.chunk)
	if err != nil {
		r.session.broken = true
	}
	if err != nil || len(chunk) == 0 {
		r.ended = true
		return nil, err
	}
	return chunk, nil
}

func (r *resultStream) freeChunk() {
	if r.chunk != nil {
		r.session.api.resultDestroy(r.chunk)
		r.chunk = nil
	}
}

// close frees the stream and cancels its unread part.
func (r *resultStream) close() {
	r.freeChunk()
	if !r.ended {
		r.session.api.streamCancel(r.session.conn(), r.handle)
		r.session.broken = true
	}
	r.session.api.resultDestroy(r.handle)
}

// insertStream takes the rows of one INSERT piece by piece. If done is not called, no row is
// stored, provided that all fit in one insert block of the engine.
type insertStream struct {
	session *session
	handle  unsafe.Pointer
}

// insert starts an INSERT; sql names the table and columns and has no FORMAT.
func (s *session) insert(sql, format string) (*insertStream, error) {
	var pins cStrings
	defer pins.unpin()
	handle := s.api.insertStart(s.conn(), pins.bytes(sql), uintptr(len(sql)), pins.bytes(format), uintptr(len(format)))
	if handle == nil {
		return nil, newException(codeUnknown, "the engine started no insert")
	}
	i := &insertStream{session: s, handle: handle}
	if text := s.api.insertError(handle); text != "" {
		i.close()
		return nil, parseException(text)
	}
	return i, nil
}

// append passes bytes to the engine, which copies them. It blocks while the engine is behind.
func (i *insertStream) append(data []byte) error {
	if len(data) == 0 {
		return nil
	}
	var pins cStrings
	defer pins.unpin()
	pins.pinner.Pin(&data[0])
	if i.session.api.insertAppend(i.handle, unsafe.Pointer(&data[0]), uintptr(len(data))) == 0 {
		return nil
	}
	if text := i.session.api.insertError(i.handle); text != "" {
		return parseException(text)
	}
	return newException(codeUnknown, "the engine refused the rows of an insert")
}

// done commits the rows.
func (i *insertStream) done() error {
	result := i.session.api.insertDone(i.handle)
	if result != nil {
		defer i.session.api.resultDestroy(result)
	}
	_, err := i.session.api.result(result)
	return err
}

// cancel drops the rows that are not yet committed.
func (i *insertStream) cancel() {
	i.session.api.insertCancel(i.handle)
	i.session.broken = true
}

func (i *insertStream) close() { i.session.api.insertDestroy(i.handle) }
