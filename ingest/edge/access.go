package edge

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Role says which requests a client may make.
type Role string

// The roles. An admin may also see and end the requests of other clients.
const (
	Read  Role = "read"
	Admin Role = "admin"
)

// allRoles returns all roles.
func allRoles() []Role { return []Role{Read, Admin} }

// AdminPath is the prefix of the paths that need the role Admin.
const AdminPath = "/api/v1/admin/"

// Access enforces roles and budgets of identified clients.
type Access struct {
	Settings
	// Open reports whether a request needs no credential because its response contains no data,
	// such as the files of a page; nil: none. It counts against the budget of the client's
	// address.
	Open func(*http.Request) bool
	// Admin holds further resources below AdminPath, keyed by their pattern without it, such as
	// "DELETE producers/{name...}".
	Admin map[string]http.Handler
}

// Settings may change while the server runs; see Server.Use.
type Settings struct {
	Limits Limits
	// Origins lists the web sites, such as "https://te.example", whose scripts may send
	// requests; none by default.
	Origins []string
}

// Check validates the settings. Its error names the setting.
func (s *Settings) Check() error {
	_, err := s.inUse()
	return err
}

func (s *Settings) inUse() (*settings, error) {
	limits, err := s.Limits.withDefaults()
	if err != nil {
		return nil, err
	}
	allowed, err := newOrigins(s.Origins)
	if err != nil {
		return nil, err
	}
	in := &settings{limits: limits, origins: allowed}
	in.named.init(limits)
	in.addresses.init(limits)
	return in, nil
}

// settings are validated Settings with the accounts of their clients.
type settings struct {
	limits    Limits
	origins   origins
	named     table // clients with a credential
	addresses table // clients without one
}

// control admits or refuses requests before a handler sees them. It is safe for concurrent use.
type control struct {
	gate     *gate
	check    func(*http.Request) error // refuses requests before they are identified
	open     func(*http.Request) bool
	admin    map[string]http.Handler
	now      func() time.Time
	settings atomic.Pointer[settings]
	running  running
	counts   counts
	audit    audit
}

func newControl(s *Server) (*control, error) {
	a := &control{gate: s.gate, check: s.checkHost, open: s.cfg.Access.Open, admin: s.cfg.Access.Admin, now: s.cfg.Now}
	if a.open == nil {
		a.open = func(*http.Request) bool { return false }
	}
	a.audit.logger = s.cfg.Logger
	return a, a.use(s.cfg.Access.Settings)
}

func (a *control) use(s Settings) error {
	next, err := s.inUse()
	if err == nil {
		a.settings.Store(next)
	}
	return err
}

// request is one running request and its share of the client's budget.
type request struct {
	Budget
	began    time.Time
	address  string
	peer     Peer
	open     bool // see Access.Open
	counted  bool // counts as running or watching in its client's account
	cancel   context.CancelFunc
	stillHas func() bool // reports whether the credential is still valid
}

func (a *control) guard(next http.Handler) http.Handler {
	mux := http.NewServeMux()
	a.registerAdmin(mux)
	mux.Handle("/", next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { a.serve(mux, w, r) })
}

func (a *control) serve(next http.Handler, out http.ResponseWriter, r *http.Request) {
	w := &StatusWriter{ResponseWriter: out}
	q := &request{began: a.now(), address: addressOf(r)}
	// A mux writes its pattern to the request it receives, so all code below uses inner.
	ctx, cancel := context.WithCancel(context.WithValue(r.Context(), budgetKey{}, &q.Budget))
	defer cancel()
	inner := r.WithContext(ctx)
	q.cancel = cancel
	defer func() { a.finish(q, w, inner) }()
	if !a.admit(q, w, inner) {
		return
	}
	defer a.running.add(q, inner)()
	defer q.recheck()()
	next.ServeHTTP(w, inner)
}

// admit reports whether q may proceed, and answers it otherwise.
func (a *control) admit(q *request, w *StatusWriter, r *http.Request) bool {
	s := a.settings.Load()
	if err := a.check(r); err != nil {
		return a.refuse(q, w, r, http.StatusForbidden, foreignOrigin, err.Error())
	}
	if s.origins.preflight(w, r) {
		q.refusal.Store(uint32(preflight))
		return false
	}
	if err := s.origins.check(r); err != nil {
		return a.refuse(q, w, r, http.StatusForbidden, foreignOrigin, err.Error())
	}
	if name := credentialIn(r.URL.RawQuery); name != "" {
		return a.refuse(q, w, r, http.StatusBadRequest, credentialInURL,
			"parameter \""+name+"\": credentials do not belong in URLs, which are logged: send the header Authorization: Bearer TOKEN")
	}
	if a.open(r) {
		q.peer, q.open, q.stillHas = Peer{Name: "anonymous", Role: Read}, true, func() bool { return true }
	} else if !a.identify(q, s, w, r) {
		return false
	}
	if p := q.peer; p.Role != Admin && (p.Role != Read || strings.HasPrefix(r.URL.Path, AdminPath)) {
		return a.refuse(q, w, r, http.StatusForbidden, forbidden, "this needs the role admin: use a credential with that role")
	}
	key, among := q.peer.Name, &s.named
	if q.peer.Credential == "" {
		key, among = q.address, &s.addresses
	}
	q.account, q.limits, q.now = among.get(key, a.now()), s.limits, a.now
	q.account.role.Store(&q.peer.Role) // first: clients reads it of accounts with requests
	q.account.requests.Add(1)
	if why, limited := q.account.begin(a.now(), &s.limits, q.open); limited != nil {
		return a.limit(q, w, r, why, limited)
	}
	q.counted = !q.open
	return true
}

// identify determines the client of a request. Requests with wrong credentials are limited by
// address. Requests with a valid one never are, whoever shares the address: tokens are too long
// to guess, and checking one costs less than refusing it.
func (a *control) identify(q *request, s *settings, w *StatusWriter, r *http.Request) bool {
	peer, err := a.gate.Identify(r)
	if err != nil {
		account := s.addresses.get(q.address, a.now())
		defer account.release()
		if wait := take(account.failures, a.now()); wait > 0 {
			return a.limit(q, w, r, failures, &LimitError{Detail: "too many requests without a valid credential came from this address", Retry: wait})
		}
		w.Header().Set("WWW-Authenticate", `Bearer realm="csigscope"`)
		return a.refuse(q, w, r, http.StatusUnauthorized, unauthenticated, err.Error())
	}
	q.peer = peer
	q.stillHas = func() bool {
		now, err := a.gate.Identify(r)
		return err == nil && now == peer
	}
	return true
}

// limit refuses a request that may be retried later.
func (a *control) limit(q *request, w *StatusWriter, r *http.Request, why refusal, l *LimitError) bool {
	w.Header().Set("Retry-After", l.RetryAfter())
	return a.refuse(q, w, r, http.StatusTooManyRequests, why, l.Detail)
}

func (a *control) refuse(q *request, w *StatusWriter, r *http.Request, code int, why refusal, detail string) bool {
	q.refusal.Store(uint32(why))
	w.Status = code // as counted and logged: the status of a refused gRPC call is 200
	refuse(w, r, code, detail)
	return false
}

// StatusCanceled is the status of a request whose client left before the response. RFC 9110
// defines none; servers and proxies commonly log this one.
const StatusCanceled = 499

// finish counts and logs a finished request.
func (a *control) finish(q *request, w *StatusWriter, r *http.Request) {
	took, code := a.now().Sub(q.began), cmp.Or(w.Status, http.StatusOK) // net/http's status of an empty response
	if r.Context().Err() != nil && !q.streamed.Load() {
		code = StatusCanceled // whatever was written last, the client has not read it all
	}
	if q.account != nil {
		if q.counted {
			q.account.running.Add(-1)
		}
		if q.why() != none {
			q.account.refused.Add(1)
		}
		defer q.account.release()
	}
	a.counts.count(q, code, r, took)
	a.audit.write(q, code, r, took, a.now())
}

// recheckEvery is the interval between checks of a credential. Since files are checked at most
// once a second, the requests of a revoked credential end within 5 s.
const recheckEvery = 3 * time.Second

// recheck ends the request when its credential is no longer valid, until stop is called. A
// request that finishes earlier costs only a timer.
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
		case q.stillHas():
			timer.Reset(recheckEvery)
		default:
			q.refusal.Store(uint32(revoked))
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

// loopback is the address of clients on this machine.
const loopback = "loopback"

// addressOf returns the key of a client without a credential: loopback, an IPv4 address, or an
// IPv6 /64.
func addressOf(r *http.Request) string {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return "unknown"
	}
	switch a := at.Addr().Unmap(); {
	case a.IsLoopback():
		return loopback
	case a.Is4():
		return a.String()
	}
	return networkOf(at.Addr()).String()
}

// secretParameters are common names of credential parameters (RFC 6750, section 2.3, and common
// practice).
var secretParameters = []string{"access_token", "token", "authorization", "api_key", "apikey", "password", "secret"}

// credentialIn returns the name of a parameter that holds a credential, empty if none does.
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

// running lists the running requests. It is safe for concurrent use.
type running struct {
	mu   sync.Mutex
	next uint64
	list map[uint64]*runningRequest
}

type runningRequest struct {
	*request
	method, path string
}

// add lists a request until remove is called.
func (l *running) add(q *request, r *http.Request) (remove func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.list == nil {
		l.list = make(map[uint64]*runningRequest)
	}
	l.next++
	id := l.next
	l.list[id] = &runningRequest{q, r.Method, Truncated(r.URL.Path)}
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

// registerAdmin serves the list of clients, the list of running requests, and their
// cancellation.
func (a *control) registerAdmin(mux *http.ServeMux) {
	mux.HandleFunc("GET "+AdminPath+"clients", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, a.clients()) })
	mux.HandleFunc("GET "+AdminPath+"requests", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, a.requests()) })
	mux.HandleFunc("DELETE "+AdminPath+"requests/{id}", a.end)
	known := "GET clients, GET requests and DELETE requests/ID"
	for _, pattern := range slices.Sorted(maps.Keys(a.admin)) {
		method, path, _ := strings.Cut(pattern, " ")
		mux.Handle(method+" "+AdminPath+path, a.admin[pattern])
		known += ", and " + pattern
	}
	mux.HandleFunc(AdminPath, func(w http.ResponseWriter, _ *http.Request) {
		WriteProblem(w, http.StatusNotFound, "no such resource: there are "+known)
	})
}

// clientStatus describes one client to an admin.
type clientStatus struct {
	Name         string    `json:"name"` // or address
	Role         Role      `json:"role"`
	Last         time.Time `json:"last"`
	Requests     uint64    `json:"requests"`
	Limited      uint64    `json:"limited"` // refused requests
	Running      int64     `json:"running"`
	Watching     int64     `json:"watching"`
	Rows         uint64    `json:"rows"`
	StoreSeconds float64   `json:"store_s"`
}

func (a *control) clients() map[string][]clientStatus {
	s := a.settings.Load()
	all := []clientStatus{}
	for _, c := range append(s.named.list(), s.addresses.list()...) {
		if c.requests.Load() == 0 {
			continue // an address from which only requests with credentials came, some of them wrong
		}
		all = append(all, clientStatus{
			Name: c.key, Role: *c.role.Load(), Last: time.Unix(0, c.last.Load()).UTC(), Requests: c.requests.Load(), Limited: c.refused.Load(),
			Running: max(c.running.Load(), 0), Watching: c.watching.Load(), Rows: c.rows.Load(), StoreSeconds: time.Duration(c.storeTime.Load()).Seconds(),
		})
	}
	return map[string][]clientStatus{"clients": all}
}

// requestStatus describes a running request to an admin.
type requestStatus struct {
	ID           uint64  `json:"id"`
	Client       string  `json:"client"`
	Method       string  `json:"method"`
	Path         string  `json:"path"`
	Seconds      float64 `json:"age_s"`
	Watching     bool    `json:"watching"`
	StoreSeconds float64 `json:"store_s"`
}

func (a *control) requests() map[string][]requestStatus {
	a.running.mu.Lock()
	defer a.running.mu.Unlock()
	all := []requestStatus{}
	for id, q := range a.running.list {
		all = append(all, requestStatus{
			ID: id, Client: q.account.key, Method: q.method, Path: q.path, Seconds: a.now().Sub(q.began).Seconds(), Watching: q.watching.Load(),
			StoreSeconds: time.Duration(q.storeTime.Load()).Seconds(),
		})
	}
	slices.SortFunc(all, func(x, y requestStatus) int { return cmp.Compare(x.ID, y.ID) })
	return map[string][]requestStatus{"requests": all}
}

// end cancels a request: its store query, its wait or its watch.
func (a *control) end(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.ParseUint(r.PathValue("id"), 10, 64)
	a.running.mu.Lock()
	q := a.running.list[id]
	a.running.mu.Unlock()
	if err != nil || q == nil {
		WriteProblem(w, http.StatusNotFound, "no such request is running: GET requests lists the running ones")
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
