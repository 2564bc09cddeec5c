package credential

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// Handshakes is a listener that makes TLS connections and hands them on when they are
// made, so that those which fail are known: a server would only log them.
type Handshakes struct {
	net.Listener
	config   *tls.Config
	patience time.Duration
	failed   func(peer net.Addr, err error)

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

// NewHandshakes listens on ln for peers that have a while to shake hands. Failed is told of
// those that do not, from several goroutines; errors of the gate's own, of which its Refuse
// was told, are *Error.
func NewHandshakes(ln net.Listener, config *tls.Config, patience time.Duration, failed func(peer net.Addr, err error)) *Handshakes {
	h := &Handshakes{Listener: ln, config: config, patience: patience, failed: failed, accepted: make(chan accepted)}
	h.ctx, h.end = context.WithCancel(context.Background())
	return h
}

// Accept implements net.Listener.
func (h *Handshakes) Accept() (net.Conn, error) {
	h.start.Do(func() { h.work.Go(h.run) })
	select {
	case a := <-h.accepted:
		return a.conn, a.err
	case <-h.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. Handshakes that are under way end.
func (h *Handshakes) Close() error {
	h.end()
	err := h.Listener.Close()
	h.work.Wait()
	return err
}

// run accepts until the listener is closed.
func (h *Handshakes) run() {
	for h.ctx.Err() == nil {
		conn, err := h.Listener.Accept()
		if err != nil {
			h.give(accepted{err: err})
			continue
		}
		h.work.Go(func() { h.shake(tls.Server(conn, h.config)) })
	}
}

// give hands on what came, and tells whether anybody took it.
func (h *Handshakes) give(a accepted) bool {
	select {
	case h.accepted <- a:
		return true
	case <-h.ctx.Done():
		return false
	}
}

func (h *Handshakes) shake(conn *tls.Conn) {
	ctx, cancel := context.WithTimeout(h.ctx, h.patience)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		if h.ctx.Err() == nil {
			h.failed(conn.RemoteAddr(), err)
			answerClear(err)
		}
		conn.Close()
		return
	}
	if !h.give(accepted{conn: conn}) {
		conn.Close()
	}
}

// answerClear tells a peer that speaks HTTP in the clear what it did wrong.
func answerClear(err error) {
	var clear tls.RecordHeaderError
	if !errors.As(err, &clear) || clear.Conn == nil {
		return
	}
	switch string(clear.RecordHeader[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO", "PRI *":
		_, _ = io.WriteString(clear.Conn, "HTTP/1.0 400 Bad Request\r\n\r\nexpected https\n")
	}
}
