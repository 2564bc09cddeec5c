package chdb

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
)

const (
	dialPatience = 15 * time.Second
	dialInterval = 20 * time.Millisecond
	// answerPatience is well beyond the time limit of a reader's query.
	answerPatience = 15 * time.Minute
)

var errClosed = errors.New("engine is closed")

// ClickHouseOptions returns options for clickhouse.Open to use the engine's connection for role.
// The caller owns the result and may change pool sizes and the database. Settings are ignored,
// except insert_deduplication_token of an insert.
func (e *Engine) ClickHouseOptions(role Role) *clickhouse.Options {
	const connections = 4
	return &clickhouse.Options{
		Protocol:    clickhouse.HTTP,
		Addr:        []string{"csigscope-engine"},
		HttpUrlPath: rolePaths[role],
		Auth:        clickhouse.Auth{Database: "default"},
		// One transport for all clients, so that one failure closes every idle connection.
		TransportFunc:   func(*http.Transport) (http.RoundTripper, error) { return e.transport, nil },
		Compression:     &clickhouse.Compression{Method: clickhouse.CompressionNone},
		MaxOpenConns:    connections,
		MaxIdleConns:    connections,
		DialTimeout:     dialPatience,
		ReadTimeout:     answerPatience,
		ConnMaxLifetime: time.Hour,
	}
}

// transport carries every client's requests over the socket. After a failure it closes its idle
// connections: the process behind them may be gone without any sign yet, and the next query must
// wait for the new one instead.
type transport struct{ *http.Transport }

func newTransport(dial func(context.Context) (net.Conn, error)) *transport {
	// No proxy is set: one from the environment must not see local queries.
	return &transport{&http.Transport{
		DialContext:           func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
		DisableCompression:    true,
		MaxIdleConnsPerHost:   8,
		IdleConnTimeout:       10 * time.Minute,
		ResponseHeaderTimeout: answerPatience,
	}}
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.Transport.RoundTrip(request)
	if err != nil {
		t.CloseIdleConnections()
		return nil, err
	}
	response.Body = &watchedBody{response.Body, t}
	return response, nil
}

type watchedBody struct {
	io.ReadCloser
	transport *transport
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.transport.CloseIdleConnections()
	}
	return n, err
}

// dial connects to the socket, and waits for an engine that is restarting.
func (e *Engine) dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialPatience)
	defer cancel()
	for {
		conn, err := e.dialAlive(ctx)
		if err == nil {
			return conn, nil
		}
		select {
		case <-time.After(dialInterval):
			continue
		case <-e.lifetime.Done():
			return nil, fmt.Errorf("dial engine: %w", errClosed)
		case <-ctx.Done():
		}
		e.mu.Lock()
		failure := e.failure
		e.mu.Unlock()
		return nil, fmt.Errorf("dial engine: %w", errors.Join(err, failure))
	}
}

// dialAlive returns a connection on which the engine has answered: the socket of a process that
// is being killed still accepts connections for a moment.
func (e *Engine) dialAlive(ctx context.Context) (_ net.Conn, err error) {
	conn, err := e.dialOnce(ctx, "", "")
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	defer func() {
		if !stop() && err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			conn.Close()
		}
	}()
	if _, err := io.WriteString(conn, "GET /ping HTTP/1.1\r\nHost: engine\r\n\r\n"); err != nil {
		return nil, err
	}
	// The engine sends nothing beyond this answer, so the buffer withholds nothing from the
	// connection's owner.
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ping engine: %s", response.Status)
	}
	return conn, nil
}
