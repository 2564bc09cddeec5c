package chdb

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// handler answers ClickHouse's HTTP interface over a pool of engine connections.
type handler struct {
	pool   *pool
	logger *slog.Logger
	tally  *tally // of read-only clients
	// stopping reports that new connections should wait for the next engine.
	stopping func() bool
}

func (h *handler) serve(w http.ResponseWriter, r *http.Request, role Role) {
	control := http.NewResponseController(w)
	// Deadlines are extended with every piece; a recorder in tests has none.
	_ = control.SetReadDeadline(time.Now().Add(stalledClient))
	body, limit := r.Body, int64(maxStatement)
	drain := int64(maxInsertBody)
	if role == roleReadonlyClient {
		limit, drain = maxReadonlyStatement, 2*maxReadonlyStatement
	}
	values := r.URL.Query()
	q, err := newQuery(r, values)
	h.headers(w, q)
	if err == nil {
		err = q.read(w, r, values, limit)
	}
	if err == nil && q.progress && r.Method != http.MethodHead && r.ProtoAtLeast(1, 1) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		r = r.WithContext(ctx)
		began := time.Now()
		p := newProgressWriter(w, q.interval, func() string { return h.pool.progress(ctx, q.running(), began) }, cancel)
		defer func() { p.close(err == nil || !errors.Is(err, errStarted) || ctx.Err() == nil && !isTooSlow(err)) }()
		w, control = p, http.NewResponseController(p)
	}
	if err == nil {
		err = h.run(w, r, role, q, control)
	}
	h.count(r.Context(), role, err)
	if err == nil || r.Context().Err() != nil {
		return // a client that has left reads no exception
	}
	h.logger.Debug("query failed", slog.String("role", role.String()), slog.Any("error", err))
	if errors.Is(err, errStarted) {
		return
	}
	// Leaving the rest of a body unread would close the connection while the client still sends,
	// and the client would never see the answer.
	_ = control.SetReadDeadline(time.Now().Add(stalledClient))
	_, _ = io.Copy(io.Discard, io.LimitReader(body, drain))
	_ = control.SetWriteDeadline(time.Now().Add(stalledClient))
	if p, ok := w.(*progressWriter); ok && p.headSent() {
		writeExceptionBelowHead(w, err, q.blocks)
		return
	}
	writeException(w, err, q.blocks)
}

func (h *handler) count(request context.Context, role Role, err error) {
	switch {
	case role != roleReadonlyClient:
	case err == nil:
		h.tally.add(answered)
	case request.Err() != nil && !isTooSlow(err):
		h.tally.add(left)
	case isTooSlow(err):
		h.tally.add(tooSlow)
	default:
		h.tally.add(failed)
	}
}

// headers sets the headers of every answer, of successful and failed queries.
func (h *handler) headers(w http.ResponseWriter, q *query) {
	header := w.Header()
	header.Set("X-ClickHouse-Server-Display-Name", headerSafe(h.pool.server.name))
	header.Set("X-ClickHouse-Timezone", headerSafe(h.pool.server.timezone))
	// Clients drop idle connections a little earlier than the engine does.
	header.Set("Keep-Alive", "timeout="+strconv.Itoa(int(readonlyIdle/time.Second)))
	if q.id == "" {
		q.id = newQueryID()
	}
	header.Set("X-ClickHouse-Query-Id", q.id)
}

func newQueryID() string {
	var id [16]byte
	_, _ = rand.Read(id[:])
	text := hex.EncodeToString(id[:])
	return text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-" + text[20:]
}

// errStarted reports an error after the first byte of a result: it is reported in the body, or
// the body is cut off.
var errStarted = errors.New("after the first byte of the result")

// run executes q and writes its result. After any error except errStarted nothing has been
// written yet.
func (h *handler) run(w http.ResponseWriter, r *http.Request, role Role, q *query, control *http.ResponseController) error {
	switch {
	case role.readOnly() && q.insert:
		return newException(codeReadonly, "a reader cannot insert. (READONLY)")
	// The engine's parser refuses these too, after seconds.
	case role.readOnly() && q.nesting > maxNesting:
		return newException(codeTooDeep, "brackets are nested %d deep, more than %d. (TOO_DEEP_RECURSION)", q.nesting, maxNesting)
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
	q.tag.Store(&s.tag)
	defer func() {
		// A killed stream can end without an error, and then the engine keeps the query until the
		// connection runs another one.
		s.broken = s.broken || ctx.Err() != nil
	}()
	// While rows still arrive, a lost client shows as a failed read instead.
	_ = control.SetReadDeadline(time.Time{})
	stop := h.pool.watch(ctx, s)
	defer stop()
	if err := s.use(q.database); err != nil {
		return err
	}
	if role.readOnly() {
		if err := h.pool.tables.guard(s, q.text, &q.params); err != nil {
			return err
		}
	}
	if q.insert {
		return insertRows(s, q)
	}
	return h.answer(ctx, s, q, newResponse(w, control, q, s), role)
}

// answer writes q's result, block by block if its format allows.
func (h *handler) answer(ctx context.Context, s *session, q *query, out *response, role Role) error {
	native := strings.EqualFold(q.format, nativeFormat)
	stream := q.isSelect && !q.whole && (role.readOnly() || readOnly(s, q.text))
	heading, pieces := streamHeading(q.format)
	var err error
	switch {
	case native && stream:
		err = streamNative(s, q, out)
	case pieces && stream:
		err = streamPieces(s, q, out, heading)
	case native && q.revision > 0:
		err = s.query(q.text, nativeFormat, &q.params, func(result []byte) error {
			return convertNative(out, bytes.NewReader(result), q.revision)
		})
	default:
		err = s.query(q.text, q.format, &q.params, func(result []byte) error {
			_, err := out.Write(result)
			return err
		})
	}
	switch {
	case err == nil:
		return out.finish()
	case !out.started:
		return err
	case ctx.Err() == nil && !isTooSlow(err):
		out.fail(err)
	}
	return errors.Join(errStarted, err)
}

// readOnly reports whether sql is one SELECT without INTO OUTFILE. The engine runs other
// statements as a whole.
func readOnly(s *session, sql string) bool {
	class, count := s.classify(sql)
	return class == classReadOnly && count == 1
}

// streamNative converts a result block by block.
func streamNative(s *session, q *query, out *response) error {
	stream, err := s.stream(q.text, nativeFormat, &q.params)
	if err != nil {
		return err
	}
	defer stream.close()
	in := &streamReader{stream: stream}
	if q.revision == 0 {
		_, err = io.Copy(out, in)
		return err
	}
	return convertNative(out, in, q.revision)
}

func streamPieces(s *session, q *query, out *response, h heading) error {
	stream, err := s.stream(q.text, q.format, &q.params)
	if err != nil {
		return err
	}
	defer stream.close()
	return copyPieces(out, stream, h)
}
