package edge

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"
)

// listener accepts connections while slots are free and completes their TLS handshake. It
// counts failed handshakes by reason; net/http would only log them.
type listener struct {
	net.Listener
	tls       *tls.Config // nil: plain HTTP
	handshake time.Duration
	refused   func(Reason, ...slog.Attr)
	slots     *connSlots

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
		slots: newConnSlots(s.cfg.MaxConns, s.gate), accepted: make(chan accepted),
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

// Close implements net.Listener. It aborts running handshakes.
func (l *listener) Close() error {
	l.end()
	err := l.Listener.Close()
	l.work.Wait()
	return err
}

// accept returns the next connection that gets a slot. It closes the others, in plain HTTP after a 503: a
// waiting connection would hold a descriptor, and its client would not learn the reason.
func (l *listener) accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		conn, displaced, why := l.slots.take(c)
		if displaced != nil {
			l.refused(DisplacedConn, slog.String("address", displaced.RemoteAddr().String()))
			displaced.Conn.Close()
		}
		if conn != nil {
			return conn, nil
		}
		l.refused(why, slog.String("address", c.RemoteAddr().String()))
		if l.tls == nil {
			_ = c.SetDeadline(time.Now().Add(time.Second))
			_, _ = io.WriteString(c, "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\nRetry-After: 1\r\n\r\n")
		}
		c.Close()
	}
}

// run accepts connections until the listener is closed.
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

// deliver passes a to Accept. It returns false if the listener closes first.
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

// expectedHTTPS answers a client without TLS.
const expectedHTTPS = "expected https"

// refuse reports a failed handshake. The gate has reported its own refusals, and accept has
// reported displaced connections.
func (l *listener) refuse(peer net.Addr, err error) {
	_, reported := errors.AsType[*refusedPeer](err)
	if refusesCertificate(err) {
		err = fmt.Errorf("%w: the client does not accept the certificate of this server: its log has the reason", err)
	}
	switch {
	case reported, errors.Is(err, net.ErrClosed): // the latter was displaced by another
	case errors.Is(err, io.EOF): // health checks of load balancers connect and send nothing
		l.refused(Handshake)
	default:
		l.refused(Handshake, slog.String("address", peer.String()), slog.String("error", Truncated(err.Error())))
	}
	// Answer a plain-HTTP client with the cause.
	inClear, ok := errors.AsType[tls.RecordHeaderError](err)
	if !ok || inClear.Conn == nil {
		return
	}
	switch string(inClear.RecordHeader[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO", "PRI *":
		_, _ = io.WriteString(inClear.Conn, "HTTP/1.0 400 Bad Request\r\n\r\n"+expectedHTTPS+"\n")
	}
}
