package chdb

import (
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// routes serves every role, for the Unix socket. The root path is a reader's.
func (h *handler) routes(extra map[string]http.HandlerFunc) http.Handler {
	mux := http.NewServeMux()
	for pattern, handle := range extra {
		mux.HandleFunc(pattern, handle)
	}
	for role, path := range rolePaths {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) { h.serve(w, r, role) })
	}
	h.common(mux, RoleReader)
	return withDeadline(mux)
}

// readonlyClientRoutes serves only read-only clients, for a TCP address.
func (h *handler) readonlyClientRoutes() http.Handler {
	mux := http.NewServeMux()
	h.common(mux, roleReadonlyClient)
	return h.knownMethod(h.notFromPages(withDeadline(mux)))
}

// common registers the paths of a ClickHouse server that clients use.
func (h *handler) common(mux *http.ServeMux, role Role) {
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost && r.URL.RawQuery == "" {
			h.ping(w, r)
			return
		}
		h.serve(w, r, role)
	})
	mux.HandleFunc("/ping", h.ping)
	// There are no replicas that could lag behind.
	mux.HandleFunc("/replicas_status", h.ping)
}

// withDeadline gives every request a new write deadline; the previous request's deadline would
// otherwise still apply to the connection.
func withDeadline(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(stalledClient))
		next.ServeHTTP(w, r)
	})
}

// knownMethod refuses other methods, OPTIONS too: no web page should use this interface, so
// preflight requests get no answer.
func (h *handler) knownMethod(next http.Handler) http.Handler {
	known := []string{http.MethodGet, http.MethodHead, http.MethodPost}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !slices.Contains(known, r.Method) {
			h.tally.add(refusedMethod)
			w.Header().Set("Allow", strings.Join(known, ", "))
			http.Error(w, "method not allowed: send GET or POST", http.StatusMethodNotAllowed)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// notFromPages refuses requests that a web page made the browser send. It is stricter than
// edge.Server: a GET is a query here, and costs the engine even if the page cannot read the
// answer.
func (h *handler) notFromPages(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if foreignOrigin(r) {
			h.tally.add(refusedOrigin)
			http.Error(w, "forbidden: requests of web pages are not answered", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// foreignOrigin reports that a browser sent r for a page of another server.
func foreignOrigin(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
		return true
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}
	u, err := url.Parse(origin)
	return err != nil || !strings.EqualFold(u.Host, r.Host)
}

func (h *handler) ping(w http.ResponseWriter, _ *http.Request) {
	if h.stopping() {
		http.Error(w, "the engine is stopping", http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(w, "Ok.\n")
}
