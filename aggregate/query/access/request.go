package access

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/csigscope/csigscope/aggregate/query"
)

// request is one request, and the query.Asker that whoever works on it knows.
type request struct {
	began  time.Time
	from   string // address
	peer   Peer
	open   bool          // holds no data, see Config.Open
	reason atomic.Uint32 // Reason why it was refused
	client *client
	limits Limits
	now    func() time.Time
	begun  bool // counts as running, or watching, at its client
	cancel context.CancelFunc
	known  func() bool // whether the credential still holds

	rows      atomic.Int64
	storeTime atomic.Int64 // ns
	watching  atomic.Bool
	stayed    atomic.Bool // has watched or waited
}

func (q *request) why() Reason { return Reason(q.reason.Load()) }

// Ask implements query.Asker. A request that has begun to ask may go on to its end: what is
// cut off half way would be asked for again, and never come to an end.
func (q *request) Ask() error {
	if q.storeTime.Load() > 0 {
		return nil
	}
	if wait := q.client.store.wait(q.now()); wait > 0 {
		q.reason.Store(uint32(storeTime))
		return &query.Limited{Retry: wait, Detail: fmt.Sprintf(
			"the store has worked for you for more than %s in a minute: take shorter ranges, or leave out from and to for what is in memory", q.limits.StoreTime)}
	}
	return nil
}

// Spent implements query.Asker.
func (q *request) Spent(d time.Duration) {
	q.storeTime.Add(int64(d))
	q.client.storeTime.Add(int64(d))
	q.client.store.take(q.now(), milliseconds(d))
}

// Told implements query.Asker.
func (q *request) Told(rows int) {
	q.rows.Add(int64(rows))
	q.client.rows.Add(uint64(rows))
}

// Stay implements query.Asker: the request counts among the watchers until leave.
func (q *request) Stay() (leave func(), err error) {
	if !enter(&q.client.watching, q.limits.Watchers) {
		q.reason.Store(uint32(watchers))
		return nil, &query.Limited{Retry: time.Second, Detail: fmt.Sprintf(
			"%d requests of yours wait or watch already: end one of them, or share a watch", q.limits.Watchers)}
	}
	q.watching.Store(true)
	q.stayed.Store(true)
	q.client.running.Add(-1)
	return func() {
		q.watching.Store(false)
		q.client.watching.Add(-1)
		q.client.running.Add(1) // there is something left to do, if only to end
	}, nil
}

// recheckEvery is how long a credential that held is taken to hold. With the second that files
// are not looked at, a revoked one is out within 5 s.
const recheckEvery = 3 * time.Second

// recheck ends the request when its credential holds no more, until the function that it gives
// is called. Requests that are answered sooner cost no more than a timer.
func (q *request) recheck() (stop func()) {
	var mu sync.Mutex
	var timer *time.Timer
	ended := false
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(recheckEvery, func() {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case ended:
		case q.known():
			timer.Reset(recheckEvery)
		default:
			q.reason.Store(uint32(revoked))
			q.cancel()
		}
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		ended = true
		timer.Stop()
	}
}

// end is called when the request has been answered.
func (q *request) end() { q.client.running.Add(-1) }

// loopback is the address of this machine.
const loopback = "loopback"

// addressOf is who a request comes from if it says nothing of that: this machine, an address
// of IPv4, or a /64 of IPv6, of which everybody has as many addresses as he likes.
func addressOf(r *http.Request) string {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return "unknown"
	}
	a := at.Addr().Unmap().WithZone("")
	switch {
	case a.IsLoopback():
		return loopback
	case a.Is4():
		return a.String()
	}
	p, err := a.Prefix(64)
	if err != nil {
		return "unknown"
	}
	return p.String()
}

// secretParameters are names that credentials go by (RFC 6750, section 2.3, and habit).
var secretParameters = []string{"access_token", "token", "authorization", "api_key", "apikey", "password", "secret"}

// credentialIn is the name of a parameter that holds a credential, empty for none.
func credentialIn(rawQuery string) string {
	for pair := range strings.SplitSeq(rawQuery, "&") {
		name, _, _ := strings.Cut(pair, "=")
		if plain, err := url.QueryUnescape(name); err == nil {
			name = plain
		}
		if at := slices.Index(secretParameters, strings.ToLower(name)); at >= 0 {
			return secretParameters[at]
		}
	}
	return ""
}

// writer notes the status of an answer.
type writer struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (w *writer) WriteHeader(status int) {
	if w.status == 0 && status >= 200 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *writer) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Flush implements http.Flusher, which some ask for by its type.
func (w *writer) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// Unwrap is for http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *writer) code() int {
	if w.status == 0 {
		return http.StatusOK // what net/http makes of an answer without anything
	}
	return w.status
}
