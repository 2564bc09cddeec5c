package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/csigscope/csigscope/ingest/credential"
)

const (
	headerTime    = 10 * time.Second // to read a request's head, or its body
	idleTime      = 3 * time.Minute  // of a connection
	shutdownTime  = 10 * time.Second // for requests that are under way at the end
	maxHeader     = 16 << 10
	maxConnStream = 16 // requests at a time on a connection
	receiveBuffer = 256 << 10
)

// Run listens and serves until the context ends.
func (s *Server) Run(ctx context.Context) error {
	if err := s.cfg.Auth.checkListen(s.cfg.Listen, s.cfg.DangerouslyExposed); err != nil {
		return fmt.Errorf("run collector: %w", err)
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", s.cfg.Listen)
	if err != nil {
		return fmt.Errorf("run collector: %w", err)
	}
	return s.Serve(ctx, ln)
}

// Serve serves a listener until the context ends, and closes it. Whoever calls it
// instead of Run has checked that the address is safe. It may be called once.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	var working sync.WaitGroup
	working.Go(func() { s.work(work) })
	defer working.Wait()
	defer stop()
	host, _, _ := net.SplitHostPort(ln.Addr().String()) // of a socket that has no port: not loopback
	s.local = credential.IsLoopback(host)
	server := s.httpServer()
	failed := make(chan error, 1)
	ln = &limitedListener{Listener: ln, free: make(chan struct{}, s.limits.MaxConns), full: s.refuseConnection}
	s.logger.Info("collector listens", slog.String("address", ln.Addr().String()), slog.Bool("tls", server.TLSConfig != nil))
	if server.TLSConfig != nil {
		ln = credential.NewHandshakes(ln, server.TLSConfig, headerTime, s.refuseHandshake)
	}
	go func() { failed <- server.Serve(ln) }()
	select {
	case err := <-failed:
		return fmt.Errorf("run collector: %w", err)
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(work, shutdownTime)
	defer cancel()
	if err := server.Shutdown(end); err != nil {
		s.logger.Warn("requests are cut off", slog.String("error", err.Error()))
		server.Close()
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("run collector: %w", err)
	}
	return nil
}

// work does what requests wait for, until the context ends.
func (s *Server) work(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { s.commits.run(ctx) })
	all.Go(func() { s.announces.run(ctx) })
	all.Go(func() { s.backlog.run(ctx) })
	all.Go(func() { s.tellings.run(ctx) })
	all.Go(func() { s.ends.run(ctx) })
	all.Go(func() { s.review(ctx) })
	all.Go(func() { s.gate.Run(ctx) })
	all.Wait()
}

func (s *Server) httpServer() *http.Server {
	server := &http.Server{
		Handler: s, TLSConfig: s.gate.TLS(), ConnState: s.gate.ConnState,
		ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		ErrorLog:  slog.NewLogLogger(s.logger.Handler(), slog.LevelDebug),
		Protocols: new(http.Protocols),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxConnStream, MaxReceiveBufferPerConnection: receiveBuffer, MaxReceiveBufferPerStream: receiveBuffer,
		},
	}
	server.Protocols.SetHTTP1(true)
	if server.TLSConfig != nil {
		server.Protocols.SetHTTP2(true)
	} else {
		server.Protocols.SetUnencryptedHTTP2(true)
	}
	return server
}

// refuseHandshake counts a connection that did not come about. The gate has told of those
// whose certificate it refused.
func (s *Server) refuseHandshake(peer net.Addr, err error) {
	var refused *credential.Error
	switch {
	case errors.As(err, &refused):
	case errors.Is(err, io.EOF): // as the checks of balancers, which go without a word
		s.strangers.refused[ReasonHandshake].Add(1)
	default:
		s.refuseStranger(ReasonHandshake, slog.String("peer", peer.String()), slog.String("error", credential.Limited(err.Error())))
	}
}

func (s *Server) refuseConnection(peer net.Addr) {
	s.refuseStranger(ReasonConnections, slog.String("peer", peer.String()))
}

// limitedListener accepts no more connections than there is room for.
type limitedListener struct {
	net.Listener
	free chan struct{}
	full func(peer net.Addr) // is told of those there is no room for
}

// Accept implements net.Listener. Beyond the limit it takes connections and closes them,
// so that whoever comes learns of it.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.free <- struct{}{}:
			return &limitedConn{Conn: c, free: l.free}, nil
		default:
			l.full(c.RemoteAddr())
			c.Close()
		}
	}
}

type limitedConn struct {
	net.Conn
	once sync.Once
	free chan struct{}
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	c.once.Do(func() { <-c.free })
	return c.Conn.Close()
}
