package chdb

import (
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	// linger bridges the gap between one client that leaves and the next.
	linger = 2 * time.Second
	// firstClient is how long a new child waits for its first client.
	firstClient = 30 * time.Second
)

// clients keeps a child alive while any client is attached. An attachment is a request that stays
// open, so a client that dies has left too. Safe for concurrent use.
type clients struct {
	stop    func()          // ends the server
	left    func(id string) // called at least once for a client that leaves, and done when its release is answered
	managed bool            // the server ends with its last client

	mu       sync.Mutex
	attached map[string]bool
	idle     *time.Timer
	stopping bool
	closed   chan struct{}
}

func newClients(managed bool, stop func(), left func(id string)) *clients {
	c := &clients{stop: stop, left: left, managed: managed, attached: make(map[string]bool), closed: make(chan struct{})}
	if managed {
		c.idle = time.AfterFunc(firstClient, c.stopIfIdle)
	}
	return c
}

// attach keeps the request open until its client leaves or the server ends.
func (c *clients) attach(w http.ResponseWriter, r *http.Request) {
	id := r.URL.Query().Get("id")
	if id == "" || !c.enter(id) {
		http.Error(w, "the engine is stopping", http.StatusServiceUnavailable)
		return
	}
	defer c.leave(id)
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Time{})
	_, _ = io.WriteString(w, "attached\n")
	if control.Flush() != nil {
		return
	}
	select {
	case <-r.Context().Done():
	case <-c.closed:
	}
}

// releaseAnswer reports whether the child ends because its last client has left.
type releaseAnswer struct {
	Stopping bool `json:"stopping"`
}

// release lets a client leave without the lingering.
func (c *clients) release(w http.ResponseWriter, r *http.Request) {
	c.leave(r.URL.Query().Get("id"))
	c.mu.Lock()
	stopping := c.managed && len(c.attached) == 0
	c.stopping = c.stopping || stopping
	c.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(releaseAnswer{Stopping: stopping})
	if stopping {
		c.stop()
	}
}

func (c *clients) enter(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopping {
		return false
	}
	c.attached[id] = true
	if c.idle != nil {
		c.idle.Stop()
	}
	return true
}

func (c *clients) leave(id string) {
	c.mu.Lock()
	was := c.attached[id]
	delete(c.attached, id)
	if was && c.managed && len(c.attached) == 0 && !c.stopping {
		c.idle.Reset(linger)
	}
	c.mu.Unlock()
	// Also for a client that has left already: the end of its attachment may not be done with this, and release
	// answers when it is.
	if id != resident {
		c.left(id)
	}
}

func (c *clients) has(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.attached[id]
}

func (c *clients) stopIfIdle() {
	c.mu.Lock()
	idle := len(c.attached) == 0
	c.stopping = c.stopping || idle
	c.mu.Unlock()
	if idle {
		c.stop()
	}
}

func (c *clients) isStopping() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stopping
}

// close ends every attachment and returns how many there were. It may be called more than once.
func (c *clients) close() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopping = true
	if c.idle != nil {
		c.idle.Stop()
	}
	select {
	case <-c.closed:
	default:
		close(c.closed)
	}
	return len(c.attached)
}
