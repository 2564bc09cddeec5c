package access

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// running are the requests that are being answered. It is safe for concurrent use.
type running struct {
	mu   sync.Mutex
	next uint64
	list map[uint64]*runningRequest
}

type runningRequest struct {
	*request
	method, path string
}

// add lists a request until the function that it gives is called.
func (l *running) add(q *request, r *http.Request) func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.list == nil {
		l.list = make(map[uint64]*runningRequest)
	}
	l.next++
	id := l.next
	l.list[id] = &runningRequest{q, r.Method, limited(r.URL.Path)}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.list, id)
	}
}

func (l *running) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.list)
}

// registerAdmin serves who asks, what is being answered, and an end to it.
func (a *Control) registerAdmin(mux *http.ServeMux) {
	mux.HandleFunc("GET "+AdminPath+"askers", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, a.askers()) })
	mux.HandleFunc("GET "+AdminPath+"requests", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, a.requests()) })
	mux.HandleFunc("DELETE "+AdminPath+"requests/{id}", a.end)
	mux.HandleFunc(AdminPath, func(w http.ResponseWriter, _ *http.Request) {
		writeProblem(w, http.StatusNotFound, "no such resource: there are GET askers, GET requests and DELETE requests/ID")
	})
}

// Asker is what an admin is told of one asker.
type Asker struct {
	Name         string    `json:"name"` // or address
	Role         Role      `json:"role"`
	Last         time.Time `json:"last"`
	Requests     uint64    `json:"requests"`
	Limited      uint64    `json:"limited"` // of them
	Running      int64     `json:"running"`
	Watching     int64     `json:"watching"`
	Rows         uint64    `json:"rows"`
	StoreSeconds float64   `json:"store_s"`
}

func (a *Control) askers() map[string][]Asker {
	s := a.settings.Load()
	all := []Asker{}
	for _, c := range append(s.named.list(), s.places.list()...) {
		if c.asked.Load() == 0 {
			continue // an address that has shown credentials alone
		}
		all = append(all, Asker{
			Name: c.key, Role: *c.role.Load(), Last: time.Unix(0, c.last.Load()).UTC(), Requests: c.asked.Load(), Limited: c.limited.Load(),
			Running: max(c.running.Load(), 0), Watching: c.watching.Load(), Rows: c.rows.Load(), StoreSeconds: time.Duration(c.storeTime.Load()).Seconds(),
		})
	}
	return map[string][]Asker{"askers": all}
}

// Running is what an admin is told of a request that is being answered.
type Running struct {
	ID           uint64  `json:"id"`
	Asker        string  `json:"asker"`
	Method       string  `json:"method"`
	Path         string  `json:"path"`
	Seconds      float64 `json:"age_s"`
	Watching     bool    `json:"watching"`
	StoreSeconds float64 `json:"store_s"`
}

func (a *Control) requests() map[string][]Running {
	a.running.mu.Lock()
	defer a.running.mu.Unlock()
	all := []Running{}
	for id, q := range a.running.list {
		all = append(all, Running{
			ID: id, Asker: q.client.key, Method: q.method, Path: q.path, Seconds: a.now().Sub(q.began).Seconds(), Watching: q.watching.Load(),
			StoreSeconds: time.Duration(q.storeTime.Load()).Seconds(),
		})
	}
	slices.SortFunc(all, func(x, y Running) int { return cmp.Compare(x.ID, y.ID) })
	return map[string][]Running{"requests": all}
}

// end ends a request: its question to the store, its wait or its watch.
func (a *Control) end(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.ParseUint(r.PathValue("id"), 10, 64)
	a.running.mu.Lock()
	q := a.running.list[id]
	a.running.mu.Unlock()
	if err != nil || q == nil {
		writeProblem(w, http.StatusNotFound, "no such request is being answered: requests lists them")
		return
	}
	q.cancel()
	w.WriteHeader(http.StatusNoContent)
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(v)
}

// writeProblem refuses as RFC 9457 has it.
func writeProblem(w http.ResponseWriter, code int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]any{"title": http.StatusText(code), "status": code, "detail": detail})
}
