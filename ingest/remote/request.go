package remote

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/time/rate"

	"github.com/csigscope/csigscope/ingest/edge"
	"github.com/csigscope/csigscope/ingest/wire"
)

// retryAfter is the header that says when to retry, in milliseconds.
const retryAfter = "retry-after-ms"

// call is one request at the collector.
type call struct {
	exporter *exporter
	body     *bytes.Buffer
	bytes    int64  // that it holds: the buffer of its body, later its items that wait for the disk
	release  func() // gives the decoding token back
	leave    func() // lets the exporter's next request work
	decoded  bool
}

type callKey struct{}

// errRole is the error for peers that export, and for exporters that share.
var errRole = errors.New("an exporter pushes, and a collector that is listed as a peer shares")

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// ServeHTTP implements http.Handler: it identifies the client, enforces its limits, and passes
// the request on. It works while Serve runs, behind its edge.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	client, err := s.edge.Identify(r)
	if err != nil {
		s.fail(w, r, unauthenticated(err))
		return
	}
	in := s.admitted.Load()
	limits, peer := in.of(client.Name), slices.Contains(in.peers, client.Name)
	if peer {
		limits = &in.peer
	}
	if limits == nil { // removed from the list a moment ago
		s.fail(w, r, unauthenticated(fmt.Errorf("%w: %q", edge.ErrNotListed, client.Name)))
		return
	}
	e := s.client(client.Name, limits, peer)
	if e == nil {
		s.refuseUnauthenticated(ReasonExporters, slog.String("exporter", client.Name), slog.String("address", r.RemoteAddr))
		s.fail(w, r, later(time.Minute, ""))
		return
	}
	defer e.inFlight.Add(-1)
	if e.peer != (r.URL.Path == wire.IngestServiceShareProcedure) {
		s.refuse(e, ReasonRole, slog.String("path", edge.Truncated(r.URL.Path)))
		s.fail(w, r, connect.NewError(connect.CodePermissionDenied, errRole))
		return
	}
	e.clock.observe(r.Header, s.now())
	if err := s.serve(w, r, e); err != nil {
		s.fail(w, r, err)
	}
}

// unauthenticated returns the answer to a client that Identify refused.
func unauthenticated(err error) error {
	if errors.Is(err, edge.ErrNotListed) {
		err = fmt.Errorf("%w: collect.ingest of the collector needs it among exporters or peers", err)
	}
	return connect.NewError(connect.CodeUnauthenticated, err)
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, e *exporter) error {
	c := &call{exporter: e}
	defer s.hold(c, 0)
	most := int64(s.limits.MaxMessage)
	if r.ContentLength >= 0 {
		most = min(most, r.ContentLength)
	}
	if why, ok := s.hold(c, requestBytes+most); !ok {
		s.refuse(e, why)
		return later(time.Second+rand.N(time.Second), e.ownLimit(why)) // not all at once again
	}
	if err := s.spend(e, e.requests, 1, ReasonRequestRate); err != nil {
		return err
	}
	body := s.buffer(c, int(most))
	if err := s.readBody(w, r, e, body); err != nil {
		return err
	}
	body = s.fit(c, body)
	c.body = body
	ctx, cancel := context.WithTimeout(r.Context(), s.cfg.Timeout)
	defer cancel()
	var ok bool
	if c.leave, ok = takeToken(ctx, e.working); !ok {
		why := ReasonInFlight
		if r.Context().Err() != nil {
			why = ReasonLeft
		}
		s.refuse(e, why)
		return connect.NewError(connect.CodeUnavailable, errBusy)
	}
	defer c.leave()
	if c.release, ok = takeToken(ctx, s.decoding); !ok {
		return connect.NewError(connect.CodeUnavailable, errBusy)
	}
	defer c.release()
	// A credential may be revoked during a slow request.
	if peer, err := s.edge.Identify(r); err != nil || peer.Name != e.name {
		return unauthenticated(cmp.Or(err, edge.ErrNotListed))
	}
	r = r.WithContext(context.WithValue(ctx, callKey{}, c))
	r.Body, r.ContentLength = io.NopCloser(body), int64(body.Len())
	watched := &edge.StatusWriter{ResponseWriter: w}
	s.handler.ServeHTTP(watched, r)
	if !c.decoded {
		s.refuse(e, reasonOfAnswer(watched), slog.String("address", r.RemoteAddr), slog.Int("status", watched.Status))
	}
	s.reuse(body) // not deferred: after a panic the handler may still read it
	return nil
}

// takeToken waits for a token, and returns a function that gives it back.
func takeToken(ctx context.Context, tokens chan struct{}) (back func(), ok bool) {
	select {
	case tokens <- struct{}{}:
		return sync.OnceFunc(func() { <-tokens }), true
	case <-ctx.Done():
		return nil, false
	}
}

// hold sets the number of bytes that a request holds. If its exporter's requests, or all, would hold too
// many, it changes nothing and returns the reason.
func (s *Server) hold(c *call, n int64) (why Reason, ok bool) {
	e, more := c.exporter, n-c.bytes
	if most := int64(e.limits.Load().MaxInFlight) * int64(requestBytes+s.limits.MaxMessage); e.held.Add(more) > most && more > 0 {
		e.held.Add(-more)
		return ReasonInFlight, false
	}
	if s.buffered.Add(more) > int64(s.limits.MaxBuffered) && more > 0 {
		e.held.Add(-more)
		s.buffered.Add(-more)
		return ReasonBuffered, false
	}
	c.bytes = n
	return 0, true
}

// rest lets the exporter's next request work while this one waits for the disk with n bytes of items.
// Without room for them it counts as working.
func (s *Server) rest(c *call, n int64) {
	if _, ok := s.hold(c, requestBytes+n); !ok {
		return
	}
	c.body.Reset()
	body := bytes.NewBuffer(c.body.Bytes())
	*c.body = bytes.Buffer{} // the protocol's library may look for more
	s.reuse(body)
	c.leave()
}

const (
	messageFrame = 5 // header of a gRPC message
	// bodyRoom is the part of a buffer beyond the message, so that reading never enlarges it. It is
	// among the requestBytes.
	bodyRoom = messageFrame + bytes.MinRead
)

// heldBy returns the bytes that a request with this buffer holds.
func heldBy(body *bytes.Buffer) int64 { return requestBytes + int64(max(body.Cap()-bodyRoom, 0)) }

// buffer returns an empty buffer for a message of at most n bytes, which the request already holds. One
// that was in use before may be twice as large, if the request may hold that.
func (s *Server) buffer(c *call, n int) *bytes.Buffer {
	n += bodyRoom
	if body, _ := s.bodies.Get().(*bytes.Buffer); body != nil {
		if body.Cap() >= n && body.Cap() <= 2*n {
			if _, ok := s.hold(c, heldBy(body)); ok {
				body.Reset()
				return body
			}
		}
		s.bodies.Put(body)
	}
	return bytes.NewBuffer(make([]byte, 0, n))
}

// fit returns the body in a buffer that is not much larger: one whose length was unknown is copied.
func (s *Server) fit(c *call, body *bytes.Buffer) *bytes.Buffer {
	if body.Cap() > 2*(body.Len()+bodyRoom) {
		large := body
		body = bytes.NewBuffer(bytes.Clone(large.Bytes()))
		s.reuse(large)
	}
	s.hold(c, heldBy(body))
	return body
}

// reuse keeps the memory of a body for another request.
func (s *Server) reuse(body *bytes.Buffer) {
	if body.Cap() <= s.limits.MaxMessage+bodyRoom {
		s.bodies.Put(body)
	}
}

// readBody reads a request within limits of time and size.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request, e *exporter, into *bytes.Buffer) error {
	most := int64(s.limits.MaxMessage + messageFrame)
	tooLarge := connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("message larger than %d bytes", s.limits.MaxMessage))
	if r.ContentLength > most {
		s.refuse(e, ReasonOversized, slog.Int64("bytes", r.ContentLength), slog.String("address", r.RemoteAddr))
		return tooLarge
	}
	control := http.NewResponseController(w)
	// Test recorders have no deadlines.
	_ = control.SetReadDeadline(time.Now().Add(headerTime))
	n, err := into.ReadFrom(http.MaxBytesReader(w, r.Body, most))
	_ = control.SetReadDeadline(time.Time{})
	e.counts.add(func(c *Counts) {
		c.Requests++
		c.Bytes += uint64(n)
	})
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		s.refuse(e, ReasonOversized, slog.Int64("limit", large.Limit), slog.String("address", r.RemoteAddr))
		return tooLarge
	}
	if err != nil {
		return connect.NewError(connect.CodeUnavailable, fmt.Errorf("read request: %w", err))
	}
	return s.spend(e, e.bytes, int(n), ReasonByteRate)
}

// spend takes from an exporter's budget, or returns an error that says when there will be
// enough.
func (s *Server) spend(e *exporter, from *rate.Limiter, n int, r Reason) error {
	now := s.now()
	booked := from.ReserveN(now, n)
	if !booked.OK() {
		s.refuse(e, r, slog.Int("needs", n))
		return later(time.Minute, e.ownLimit(r))
	}
	wait := booked.DelayFrom(now)
	if wait == 0 {
		return nil
	}
	booked.CancelAt(now)
	s.refuse(e, r, slog.Int("needs", n))
	return later(wait, e.ownLimit(r))
}

// ownLimit names a limit of one exporter. It is empty for the limits of the collector, and for peers.
func (e *exporter) ownLimit(r Reason) string {
	if e.peer {
		return ""
	}
	switch r {
	case ReasonInFlight:
		return "the size of all requests of this exporter at a time"
	case ReasonRequestRate:
		return "the rate of this exporter (requests in collect.ingest)"
	case ReasonByteRate:
		return "the rate of this exporter (bytes in collect.ingest)"
	case ReasonRowRate:
		return "the rate of this exporter (rows in collect.ingest)"
	case ReasonNames:
		return "the names that this exporter may describe in an hour"
	}
	return ""
}

// later returns an error that makes the exporter retry after wait, because of a limit; empty if the
// collector is busy.
func later(wait time.Duration, limit string) error {
	cause := errBusy
	if limit != "" {
		cause = fmt.Errorf("beyond %s: send it again after the milliseconds in the header %s", limit, retryAfter)
	}
	err := connect.NewError(connect.CodeResourceExhausted, cause)
	err.Meta().Set(retryAfter, strconv.FormatInt(max(wait, time.Millisecond).Milliseconds(), 10))
	return err
}

func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	if !s.errors.IsSupported(r) {
		http.Error(w, http.StatusText(http.StatusBadRequest), http.StatusBadRequest)
		return
	}
	if err := s.errors.Write(w, r, err); err != nil {
		s.logger.Debug("answer not delivered", slog.String("address", r.RemoteAddr), slog.String("error", err.Error()))
	}
}

// reasonOfAnswer derives from the response why the protocol's library refused a request.
func reasonOfAnswer(w *edge.StatusWriter) Reason {
	exhausted := strconv.Itoa(int(connect.CodeResourceExhausted))
	for _, h := range []string{"Grpc-Status", http.TrailerPrefix + "Grpc-Status"} {
		if w.Header().Get(h) == exhausted {
			return ReasonOversized
		}
	}
	if w.Status == http.StatusTooManyRequests {
		return ReasonOversized
	}
	return ReasonMalformed
}
