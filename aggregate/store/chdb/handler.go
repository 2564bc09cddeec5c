package chdb

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"
)

// A client that neither sends nor takes anything for this long loses its
// request, since it holds an engine connection.
const stalledClient = 60 * time.Second

// handler answers ClickHouse's HTTP interface over a pool of engine
// connections.
type handler struct {
	pool   *pool
	logger *slog.Logger
	// stopping says that new connections should wait for the next engine.
	stopping func() bool
}

// routes serves every role, for the Unix socket. The root path is a reader's.
func (h *handler) routes(extra map[string]http.HandlerFunc) http.Handler {
	mux := http.NewServeMux()
	for pattern, handle := range extra {
		mux.HandleFunc(pattern, handle)
	}
	for role, path := range rolePaths {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) { h.serve(w, r, role) })
	}
	mux.HandleFunc("/{$}", h.root)
	mux.HandleFunc("/ping", h.ping)
	return withDeadline(mux)
}

// readOnlyRoutes serves readers alone, for a TCP address.
func (h *handler) readOnlyRoutes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/{$}", h.root)
	mux.HandleFunc("/ping", h.ping)
	return localHostOnly(withDeadline(mux))
}

// withDeadline gives every request a write deadline of its own; the one of the
// previous request on the connection would still stand.
func withDeadline(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(stalledClient))
		next.ServeHTTP(w, r)
	})
}

// localHostOnly refuses requests that a web page made the browser send to a
// name of its own that resolves to this machine.
func localHostOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if !isLoopback(host) {
			http.Error(w, "forbidden: name the engine by its loopback address", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func isLoopback(host string) bool {
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (h *handler) ping(w http.ResponseWriter, _ *http.Request) {
	if h.stopping() {
		http.Error(w, "the engine is stopping", http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(w, "Ok.\n")
}

func (h *handler) root(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet && r.URL.RawQuery == "" {
		h.ping(w, r)
		return
	}
	h.serve(w, r, RoleReader)
}

func (h *handler) serve(w http.ResponseWriter, r *http.Request, role Role) {
	control := http.NewResponseController(w)
	// Deadlines are refreshed with every piece; a recorder in tests has none.
	_ = control.SetReadDeadline(time.Now().Add(stalledClient))
	q, err := readQuery(w, r)
	if err == nil {
		err = h.run(w, r, role, q, control)
	}
	if err == nil {
		return
	}
	h.logger.Debug("query failed", slog.String("role", role.String()), slog.Any("error", err))
	// A body left unread would close the connection under a client that is
	// still sending, which would then never see the answer.
	_ = control.SetReadDeadline(time.Now().Add(stalledClient))
	_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, maxInsertBody))
	_ = control.SetWriteDeadline(time.Now().Add(stalledClient))
	writeException(w, err)
}

// run executes q and writes its result. An error means that nothing has been
// written yet.
func (h *handler) run(w http.ResponseWriter, r *http.Request, role Role, q *query, control *http.ResponseController) error {
	if role == RoleReader && q.insert {
		return newException(codeReadonly, "a reader cannot insert. (READONLY)")
	}
	if q.body != nil {
		body := bufio.NewReaderSize(&freshReader{q.body, control}, insertChunk)
		if _, err := body.Peek(1); errors.Is(err, io.EOF) {
			q.body = nil
		} else if err != nil {
			return bodyError(err)
		} else {
			q.body = body
		}
	}
	ctx := r.Context()
	s, err := h.pool.acquire(ctx, role)
	if err != nil {
		return err
	}
	defer h.pool.release(s)
	// While rows still arrive, a lost client shows as a failed read instead.
	_ = control.SetReadDeadline(time.Time{})
	stop := h.pool.watch(ctx, s)
	defer stop()
	if err := s.use(q.database); err != nil {
		return err
	}
	if q.id != "" {
		w.Header().Set("X-ClickHouse-Query-Id", headerSafe(q.id))
	}
	if role == RoleReader {
		if err := guard(s, q.text, &q.params); err != nil {
			return err
		}
	}
	if q.insert {
		return insertRows(s, q)
	}
	out := &response{w: w, control: control, format: q.format, tag: exceptionTag()}
	native := strings.EqualFold(q.format, nativeFormat)
	switch {
	case native && q.isSelect && (role == RoleReader || readOnly(s, q.text)):
		return streamNative(ctx, s, q, out)
	case native && q.revision > 0:
		err = s.query(q.text, nativeFormat, &q.params, func(result []byte) error {
			return convertNative(out, bytes.NewReader(result), q.revision)
		})
	default:
		err = s.query(q.text, q.format, &q.params, out.whole)
	}
	if out.started {
		return nil
	}
	return err
}

// readOnly tells a SELECT from one that writes INTO OUTFILE and from several
// statements, which the engine runs as a whole.
func readOnly(s *session, sql string) bool {
	class, count := s.classify(sql)
	return class == classReadOnly && count == 1
}

// streamNative converts a result block by block. A failure before the first
// block is an error; a later one goes into the body, behind the blocks.
func streamNative(ctx context.Context, s *session, q *query, out *response) error {
	stream, err := s.stream(q.text, nativeFormat, &q.params)
	if err != nil {
		return err
	}
	defer stream.close()
	in := &streamReader{stream: stream}
	if q.revision == 0 {
		_, err = io.Copy(out, in)
	} else {
		err = convertNative(out, in, q.revision)
	}
	if err == nil || !out.started {
		return err
	}
	if ctx.Err() == nil {
		writeLateException(out, out.tag, err)
	}
	return nil
}

// response writes a result, and its head before the first byte.
type response struct {
	w       http.ResponseWriter
	control *http.ResponseController
	format  string
	tag     string
	started bool
}

func (o *response) Write(p []byte) (int, error) {
	if !o.started {
		o.started = true
		header := o.w.Header()
		header.Set("Content-Type", contentType(o.format))
		header.Set("X-ClickHouse-Format", headerSafe(o.format))
		header.Set("X-ClickHouse-Exception-Tag", o.tag)
	}
	_ = o.control.SetWriteDeadline(time.Now().Add(stalledClient))
	return o.w.Write(p)
}

// whole writes a result that came in one piece, in pieces with a deadline each.
func (o *response) whole(result []byte) error {
	const piece = 1 << 20
	for len(result) > 0 {
		n := min(piece, len(result))
		if _, err := o.Write(result[:n]); err != nil {
			return err
		}
		result = result[n:]
	}
	return nil
}

func contentType(format string) string {
	switch {
	case strings.HasPrefix(format, "JSON"):
		return "application/json; charset=UTF-8"
	case strings.HasPrefix(format, "CSV"):
		return "text/csv; charset=UTF-8; header=absent"
	case strings.EqualFold(format, nativeFormat), strings.HasPrefix(format, "RowBinary"):
		return "application/octet-stream"
	}
	return "text/plain; charset=UTF-8"
}

// headerSafe drops what cannot stand in a header.
func headerSafe(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, s)
}
