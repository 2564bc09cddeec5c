package edge

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"
)

// listener accepts connections as long as there are places and completes their TLS handshake, so
// that those that fail are counted by reason: net/http would only log them.
type listener struct {
	net.Listener
	tls       *tls.Config // nil: in the clear
	handshake time.Duration
	refused   func(Reason, ...slog.Attr)
	places    *places

	start    sync.Once
	ctx      context.Context // ends with Close
	end      context.CancelFunc
	work     sync.WaitGroup
	accepted chan accepted
}

type accepted struct {
	conn net.Conn
	err  error
}

func newListener(l net.Listener, s *Server) *listener {
	wrapped := &listener{
		Listener: l, tls: s.gate.tlsConfig(), handshake: s.cfg.Header, refused: s.refusedConn,
		places: newPlaces(s.cfg.MaxConns, s.gate), accepted: make(chan accepted),
	}
	wrapped.ctx, wrapped.end = context.WithCancel(context.Background())
	return wrapped
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	if l.tls == nil {
		return l.accept()
	}
	l.start.Do(func() { l.work.Go(l.run) })
	select {
	case a := <-l.accepted:
		return a.conn, a.err
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. It ends handshakes that are under way.
func (l *listener) Close() error {
	l.end()
	err := l.Listener.Close()
	l.work.Wait()
	return err
}

// accept returns the next connection that there is a place for. Others are answered and closed:
// waiting, they would hold a descriptor and their client would not learn why.
func (l *listener) accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		placed, displaced, why := l.places.take(c)
		if displaced != nil {
			l.refused(DisplacedConn, slog.String("peer", displaced.RemoteAddr().String()))
			displaced.Conn.Close()
		}
		if placed != nil {
			return placed, nil
		}
		l.refused(why, slog.String("peer", c.RemoteAddr().String()))
		if l.tls == nil {
			_ = c.SetDeadline(time.Now().Add(time.Second))
			_, _ = io.WriteString(c, "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\nRetry-After: 1\r\n\r\n")
		}
		c.Close()
	}
}

// run accepts until the listener is closed.
func (l *listener) run() {
	for l.ctx.Err() == nil {
		conn, err := l.accept()
		if err != nil {
			l.deliver(accepted{err: err})
			continue
		}
		l.work.Go(func() { l.shake(tls.Server(conn, l.tls)) })
	}
}

// deliver passes a on to Accept, and reports whether it did before the end.
func (l *listener) deliver(a accepted) bool {
	select {
	case l.accepted <- a:
		return true
	case <-l.ctx.Done():
		return false
	}
}

func (l *listener) shake(conn *tls.Conn) {
	ctx, cancel := context.WithTimeout(l.ctx, l.handshake)
	defer cancel()
	err := conn.HandshakeContext(ctx)
	if err != nil && l.ctx.Err() == nil {
		l.refuse(conn.RemoteAddr(), err)
	}
	if err != nil || !l.deliver(accepted{conn: conn}) {
		conn.Close()
	}
}

// refuse reports a handshake that failed. The gate has reported its own refusals,
// and accept the connections that were displaced.
func (l *listener) refuse(peer net.Addr, err error) {
	_, reported := errors.AsType[*refusedPeer](err)
	switch {
	case reported, errors.Is(err, net.ErrClosed): // the latter gave its place to another
	case errors.Is(err, io.EOF): // the health check of a balancer connects and says nothing
		l.refused(Handshake)
	default:
		l.refused(Handshake, slog.String("peer", peer.String()), slog.String("error", Limited(err.Error())))
	}
	// Tell a client that speaks HTTP in the clear what is wrong.
	inClear, ok := errors.AsType[tls.RecordHeaderError](err)
	if !ok || inClear.Conn == nil {
		return
	}
	switch string(inClear.RecordHeader[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO", "PRI *":
		_, _ = io.WriteString(inClear.Conn, "HTTP/1.0 400 Bad Request\r\n\r\nexpected https\n")
	}
}
