package chdb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/csigscope/csigscope/ingest/credential"
)

// port is the TCP address on which guests ask the engine: programs of this
// machine that csigscope knows nothing of. At most one address is open, and as
// long as one of those who asked for it is attached. Safe for concurrent use.
type port struct {
	handler http.Handler
	logger  *slog.Logger
	tally   *tally
	// attached says whether a client may own the address.
	attached func(id string) bool

	mu       sync.Mutex
	listener net.Listener
	server   *http.Server
	owners   map[string]bool
	closed   bool
	closing  sync.WaitGroup
}

// resident owns an address that stays open as long as the engine.
const resident = ""

// errElsewhere says that the engine has a TCP address already, another one.
var errElsewhere = errors.New("the engine already answers ClickHouse clients elsewhere")

// ErrAddress says that an address is not one to listen on for guests.
var ErrAddress = errors.New("want a loopback address such as 127.0.0.1:8123")

// checkLoopback gives address with a numeric host. There is neither TLS nor a
// password, so an address that other machines reach is refused.
func checkLoopback(address string) (string, error) {
	host, number, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf("listen on %q: %w", address, ErrAddress)
	}
	if !credential.IsLoopback(host) {
		return "", fmt.Errorf("listen on %q: %w: there is no password and no TLS, so reach it from elsewhere by a tunnel", address, ErrAddress)
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, number), nil
}

// open makes owner one of those for whom address is open, and opens it if it is
// not. It returns the address with the port that was chosen for port 0.
func (p *port) open(owner, address string) (string, error) {
	address, err := checkLoopback(address)
	if err != nil {
		return "", err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || owner != resident && !p.attached(owner) {
		return "", errors.New("listen for clients: not attached to the engine")
	}
	if p.listener == nil {
		if err := p.listen(address); err != nil {
			return "", err
		}
	}
	open := p.listener.Addr().String()
	if _, number, _ := net.SplitHostPort(address); address != open && number != "0" {
		return "", fmt.Errorf("listen on %s: %w: at %s. Use that address, or end the command that opened it", address, errElsewhere, open)
	}
	p.owners[owner] = true
	return open, nil
}

func (p *port) listen(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listen for clients: %w", err)
	}
	server := newServer(p.handler, p.logger)
	server.IdleTimeout = guestIdle
	server.MaxHeaderBytes = maxGuestHead
	p.listener, p.server, p.owners = listener, server, make(map[string]bool)
	p.closing.Go(func() {
		if err := server.Serve(&boundedListener{Listener: listener, tally: p.tally}); !errors.Is(err, http.ErrServerClosed) {
			p.logger.Error("serve clients failed", slog.String("address", address), slog.Any("error", err))
		}
	})
	return nil
}

// leave closes the address when owner was the last one.
func (p *port) leave(owner string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.owners[owner] {
		return
	}
	delete(p.owners, owner)
	if len(p.owners) == 0 {
		p.shut()
	}
}

// shut frees the address at once; requests that run may finish.
func (p *port) shut() {
	p.logger.Info("address closed to clients", slog.String("address", p.listener.Addr().String()), slog.Any("tally", p.tally))
	p.listener.Close()
	server := p.server
	p.listener, p.server, p.owners = nil, nil, nil
	p.closing.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), shutdownPatience)
		defer cancel()
		// Queries that outlast the wait are cut off; their clients see it.
		if server.Shutdown(ctx) != nil {
			_ = server.Close()
		}
	})
}

// close ends every owner's address and waits for its requests.
func (p *port) close() {
	p.mu.Lock()
	p.closed = true
	if p.listener != nil {
		p.shut()
	}
	p.mu.Unlock()
	p.closing.Wait()
}

// listenAnswer is what the engine says to POST /listen.
type listenAnswer struct {
	Address string `json:"address,omitempty"`
	Error   string `json:"error,omitempty"`
}

// serveListen is the request of an attached client to open an address.
func (p *port) serveListen(w http.ResponseWriter, r *http.Request) {
	values := r.URL.Query()
	var answer listenAnswer
	var err error
	if id := values.Get("id"); id == resident {
		err = errors.New("listen for clients: no attachment named")
	} else {
		answer.Address, err = p.open(id, values.Get("address"))
	}
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		answer.Error = err.Error()
		w.WriteHeader(http.StatusConflict)
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// Bounds of what guests can hold.
const (
	maxGuests    = 128 // connections
	maxGuestHead = 256 << 10
	guestIdle    = 30 * time.Second
)

// boundedListener turns connections away beyond maxGuests, so that they hold
// neither descriptors nor memory.
type boundedListener struct {
	net.Listener
	tally *tally
	open  atomic.Int64
}

// Accept implements net.Listener.
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.open.Add(1) <= maxGuests {
			return &countedConn{Conn: conn, open: &l.open}, nil
		}
		l.open.Add(-1)
		l.tally.add(refusedConnection)
		_ = conn.SetDeadline(time.Now().Add(time.Second))
		_, _ = io.WriteString(conn, "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\nRetry-After: 1\r\n\r\n")
		conn.Close()
	}
}

type countedConn struct {
	net.Conn
	open   *atomic.Int64
	closed atomic.Bool
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	if !c.closed.Swap(true) {
		c.open.Add(-1)
	}
	return c.Conn.Close()
}
