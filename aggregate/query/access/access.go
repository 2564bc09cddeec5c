package access

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/csigscope/csigscope/aggregate/query"
)

// Role is what somebody may do.
type Role string

// The roles. Admin may do what Read may, and see who else asks and end what they asked.
const (
	Read  Role = "read"
	Admin Role = "admin"
)

// AdminPath begins the paths that need the role Admin.
const AdminPath = "/api/v1/admin/"

// Peer is who the other end is.
type Peer struct {
	Name string
	Role Role
	// How the name was proved, such as "token"; empty where nobody had to.
	How string
}

// Authenticator tells who a request comes from. An error is that nobody is known who may
// come; what it says is told. A request that waits or watches is asked about every few seconds,
// and ends when it has become another's, or nobody's. It is safe for concurrent use.
type Authenticator interface {
	Identify(*http.Request) (Peer, error)
}

// Config configures New.
type Config struct {
	Who      Authenticator
	Settings Settings
	// Check refuses requests that are not to come to this address at all, before anything is
	// known of them; nil: none.
	Check func(*http.Request) error
	// Open tells which requests are let in without a credential, since what they ask for holds
	// no data, such as the files of a page; nil: none. Their limits are those of the address.
	Open   func(*http.Request) bool
	Logger *slog.Logger     // the audit log; nil: none
	Now    func() time.Time // nil: time.Now
}

// Settings may change while requests are served; see Control.Use.
type Settings struct {
	Limits Limits
	// Origins are the web sites, such as "https://te.example", whose scripts may ask; none
	// by default.
	Origins []string
}

// Control is the access to a server's answers. It is safe for concurrent use.
type Control struct {
	who      Authenticator
	check    func(*http.Request) error
	open     func(*http.Request) bool
	logger   *slog.Logger
	now      func() time.Time
	settings atomic.Pointer[settings]
	running  running
	counts   counts
	audit    audit
}

// settings are Settings that are in use.
type settings struct {
	limits  Limits
	origins origins
	named   table // askers with a credential
	places  table // the others, by address
}

// New makes the control. Its error names the setting that is wrong.
func New(c Config) (*Control, error) {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Check == nil {
		c.Check = func(*http.Request) error { return nil }
	}
	if c.Open == nil {
		c.Open = func(*http.Request) bool { return false }
	}
	a := &Control{who: c.Who, check: c.Check, open: c.Open, logger: c.Logger, now: c.Now}
	a.audit.logger = c.Logger
	return a, a.Use(c.Settings)
}

// Use puts other settings in force, for requests that come from now on. What askers have used
// up of their limits is forgotten.
func (a *Control) Use(s Settings) error {
	limits, err := s.Limits.withDefaults()
	if err != nil {
		return err
	}
	allowed, err := newOrigins(s.Origins)
	if err != nil {
		return err
	}
	next := &settings{limits: limits, origins: allowed}
	next.named.init(limits)
	next.places.init(limits)
	a.settings.Store(next)
	return nil
}

// Guard lets requests pass to next as far as they may.
func (a *Control) Guard(next http.Handler) http.Handler {
	mux := http.NewServeMux()
	a.registerAdmin(mux)
	mux.Handle("/", next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { a.serve(mux, w, r) })
}

func (a *Control) serve(next http.Handler, out http.ResponseWriter, r *http.Request) {
	w := &writer{ResponseWriter: out}
	q := &request{began: a.now(), from: addressOf(r)}
	// The patterns that muxes find are written to the request that they are given.
	ctx, cancel := context.WithCancel(query.WithAsker(r.Context(), q))
	defer cancel()
	inner := r.WithContext(ctx)
	q.cancel = cancel
	defer func() { a.settle(q, w, inner) }()
	if !a.admit(q, w, inner) {
		return
	}
	defer a.running.add(q, inner)()
	defer q.recheck()()
	next.ServeHTTP(w, inner)
}

// admit answers by itself what is not to pass.
func (a *Control) admit(q *request, w http.ResponseWriter, r *http.Request) bool {
	s := a.settings.Load()
	if err := a.check(r); err != nil {
		return a.refuse(q, w, http.StatusForbidden, foreignOrigin, err.Error())
	}
	if s.origins.preflight(w, r) {
		q.reason.Store(uint32(preflight))
		return false
	}
	if err := s.origins.check(r); err != nil {
		return a.refuse(q, w, http.StatusForbidden, foreignOrigin, err.Error())
	}
	if name := credentialIn(r.URL.RawQuery); name != "" {
		return a.refuse(q, w, http.StatusBadRequest, credentialInURL,
			"parameter \""+name+"\": credentials do not belong in URLs, which are logged: send the header Authorization: Bearer TOKEN")
	}
	if a.open(r) {
		q.peer, q.open, q.known = Peer{Name: "anonymous", Role: Read}, true, func() bool { return true }
	} else if !a.identify(q, s, w, r) {
		return false
	}
	who := q.peer
	if who.Role != Admin && (who.Role != Read || strings.HasPrefix(r.URL.Path, AdminPath)) {
		return a.refuse(q, w, http.StatusForbidden, forbidden, "this needs the role admin: ask with a credential that has it")
	}
	key, among := who.Name, &s.named
	if who.How == "" {
		key, among = q.from, &s.places
	}
	q.client, q.limits, q.now = among.get(key, a.now()), s.limits, a.now
	q.client.asked.Add(1)
	q.client.role.Store(&who.Role)
	var limited *limitedError
	if err := q.client.begin(a.now(), &s.limits); errors.As(err, &limited) {
		return a.limit(q, w, limited.reason, limited.detail, limited.retry)
	}
	q.begun = true
	return true
}

// identify finds out who a request comes from. Requests with wrong credentials are held back by
// address, and those with a good one never are, whoever shares the address: tokens are too
// long to be guessed, and looking at one costs less than refusing it.
func (a *Control) identify(q *request, s *settings, w http.ResponseWriter, r *http.Request) bool {
	who, err := a.who.Identify(r)
	if err != nil {
		place := s.places.get(q.from, a.now())
		defer place.done()
		if wait := place.failures.pass(a.now()); wait > 0 {
			return a.limit(q, w, failures, "too many requests without a valid credential came from this address", wait)
		}
		w.Header().Set("WWW-Authenticate", `Bearer realm="csigscope"`)
		return a.refuse(q, w, http.StatusUnauthorized, unauthenticated, err.Error())
	}
	q.peer = who
	q.known = func() bool {
		now, err := a.who.Identify(r)
		return err == nil && now == who
	}
	return true
}

// limit refuses a request that may come later.
func (a *Control) limit(q *request, w http.ResponseWriter, r Reason, detail string, retry time.Duration) bool {
	limited := query.Limited{Detail: detail, Retry: retry}
	w.Header().Set("Retry-After", limited.RetryAfter())
	return a.refuse(q, w, http.StatusTooManyRequests, r, detail)
}

func (a *Control) refuse(q *request, w http.ResponseWriter, code int, r Reason, detail string) bool {
	q.reason.Store(uint32(r))
	writeProblem(w, code, detail)
	return false
}

// settle takes stock when a request has been answered.
func (a *Control) settle(q *request, w *writer, r *http.Request) {
	took, code := a.now().Sub(q.began), w.code()
	if r.Context().Err() != nil && !q.stayed.Load() {
		code = query.StatusCanceled // whatever was written last, the client has not read it all
	}
	if q.begun {
		q.end()
	}
	if q.client != nil {
		if q.why() != none {
			q.client.limited.Add(1)
		}
		defer q.client.done()
	}
	a.counts.count(q, code, r, took)
	a.audit.write(q, code, r, took, a.now())
}
