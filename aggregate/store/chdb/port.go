package chdb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/csigscope/csigscope/ingest/edge"
)

// port is the TCP address for read-only clients: programs of this machine unknown to csigscope. At
// most one address is open, and as long as one of its owners is attached. Safe for concurrent use.
type port struct {
	handler http.Handler
	logger  *slog.Logger
	tally   *tally
	// attached reports whether a client may own the address.
	attached func(id string) bool

	mu      sync.Mutex
	server  *edge.Server // nil: no address is open
	stop    context.CancelFunc
	owners  map[string]bool
	closed  bool
	closing sync.WaitGroup
}

// resident owns an address that stays open as long as the engine.
const resident = ""

// errElsewhere reports that the engine already has another TCP address.
var errElsewhere = errors.New("the engine already answers ClickHouse clients elsewhere")

// ErrAddress reports an address on which read-only clients must not be answered.
var ErrAddress = errors.New("expected a loopback address such as 127.0.0.1:8123")

// checkLoopback returns address with a numeric host. There is neither TLS nor a password, so it
// refuses an address that other machines can reach.
func checkLoopback(address string) (string, error) {
	host, number, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf("listen on %q: %w", address, ErrAddress)
	}
	if !edge.IsLoopback(host) {
		return "", fmt.Errorf("listen on %q: %w: there is no password and no TLS, so reach it from elsewhere by a tunnel", address, ErrAddress)
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, number), nil
}

// open adds owner to the owners of address, and opens it if it is closed. It returns the address
// with the port that was chosen for port 0.
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
	if p.server == nil {
		if err := p.listen(address); err != nil {
			return "", err
		}
	}
	open := p.server.Addr().String()
	if _, number, _ := net.SplitHostPort(address); address != open && number != "0" {
		return "", fmt.Errorf("listen on %s: %w: at %s. Use that address, or end the command that opened it", address, errElsewhere, open)
	}
	p.owners[owner] = true
	return open, nil
}

func (p *port) listen(address string) error {
	server, err := edge.New(edge.Config{
		MaxConns: maxReadonlyClients, MaxHeader: maxReadonlyHead, Read: -1, Write: -1, Idle: readonlyIdle, Grace: shutdownPatience, Logger: p.logger,
		Refused: func(why edge.Reason, _ ...slog.Attr) {
			if why == edge.TooManyConns {
				p.tally.add(refusedConnection)
			} else {
				p.tally.add(refusedOrigin)
			}
		},
	})
	if err != nil {
		return err
	}
	if err := server.Listen(context.Background(), address, "--clickhouse-listen"); err != nil {
		return fmt.Errorf("listen for clients: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	p.server, p.stop, p.owners = server, stop, make(map[string]bool)
	p.closing.Go(func() {
		if err := server.Serve(ctx, p.handler); err != nil {
			p.logger.Error("cannot serve ClickHouse clients", slog.String("address", address), slog.Any("error", err))
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

// shut frees the address at once; running requests may finish.
func (p *port) shut() {
	p.logger.Info("no longer listening for ClickHouse clients", slog.String("address", p.server.Addr().String()), slog.Any("tally", p.tally))
	p.stop()
	p.server.Close()
	p.server, p.stop, p.owners = nil, nil, nil
}

// close closes the address for all owners and waits for its requests.
func (p *port) close() {
	p.mu.Lock()
	p.closed = true
	if p.server != nil {
		p.shut()
	}
	p.mu.Unlock()
	p.closing.Wait()
}

// listenAnswer is the engine's answer to POST /listen.
type listenAnswer struct {
	Address string `json:"address,omitempty"`
	Error   string `json:"error,omitempty"`
}

// serveListen handles an attached client's request to open an address.
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

// Limits of read-only clients.
const (
	maxReadonlyClients = 128 // connections
	maxReadonlyHead    = 256 << 10
	readonlyIdle       = 30 * time.Second
)
