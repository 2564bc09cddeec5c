package edge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csigscope/csigscope/ingest/retry"
)

// TestOpen: resources without data are served with any credential or none, within the limits of
// the address, but not with credentials in the URL. The response does not name the client.
func TestOpen(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /file.js", func(http.ResponseWriter, *http.Request) {})
	f := newFixture(t, Settings{Limits: Limits{Requests: 1, Burst: 70}}, mux)
	for range failureBurst + 1 {
		f.ask("GET", "/api/v1/cells", "192.0.2.1", "hunter2")
	}
	for _, tc := range []struct {
		target, who string
		code        int
	}{
		{"/file.js", "", 200},
		{"/file.js", "hunter2", 200},
		{"/file.js?token=hunter3", "", 400},
		{"/api/v1/admin/clients", "hunter2", 429},
		{"/api/v1/admin/clients", "", 403},
	} {
		if w := f.ask("GET", tc.target, "192.0.2.1", tc.who); w.Code != tc.code {
			t.Errorf("%s as %q: %d, want %d", tc.target, tc.who, w.Code, tc.code)
		}
	}
	if log := f.log.String(); strings.Contains(log, "path=/file.js status=200") {
		t.Errorf("log %s", log)
	}
	limited := 0
	for range 100 {
		if f.ask("GET", "/file.js", "192.0.2.1", "te").Code == 429 {
			limited++
		}
	}
	if limited != 100-68 {
		t.Errorf("%d of 100 requests too many, want 32", limited)
	}
	if log := f.log.String(); strings.Contains(log, "who=te") || strings.Contains(log, "hunter") {
		t.Errorf("log %s", log)
	}
}

// TestOpenAtATime: a browser requests all files of a page at once; none is refused or counts as
// a running request.
func TestOpenAtATime(t *testing.T) {
	const files = 40
	var inside, answered sync.WaitGroup
	inside.Add(files + 1)
	f := newFixture(t, Settings{Limits: Limits{Concurrent: 1}}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		inside.Done()
		inside.Wait()
	}))
	for i := range files + 1 {
		target := "/file.js"
		if i == files {
			target = "/api/v1/cells"
		}
		answered.Go(func() {
			if w := f.ask("GET", target, "192.0.2.1", ""); w.Code != 200 {
				t.Errorf("%s: %d", target, w.Code)
				inside.Done()
			}
		})
	}
	answered.Wait()
}

// newNamed makes a server that admits clients whose token is a name in the file, and clients
// without a token as anonymous readers.
func newNamed(t testing.TB, c Config, names map[string]Role) (s *Server, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "clients")
	writeNames(t, file, names)
	c.Auth = &Auth{Clients: file, Anonymous: Peer{Name: "anonymous", Role: Read}}
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s, file
}

func writeNames(t testing.TB, file string, names map[string]Role) {
	t.Helper()
	text := ""
	for name, role := range names {
		text += line(name, string(role), name, "")
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// fixture is a server's guard in front of a handler, with a fake clock and a captured log.
type fixture struct {
	*Server
	http.Handler
	now time.Time
	log bytes.Buffer
	mu  sync.Mutex
}

func newFixture(t *testing.T, s Settings, next http.Handler) *fixture {
	t.Helper()
	f := &fixture{now: time.Unix(1e9, 0)}
	f.Server, _ = newNamed(t, Config{
		Access: &Access{Settings: s, Open: func(r *http.Request) bool { return r.URL.Path == "/file.js" }, Admin: map[string]http.Handler{
			"DELETE things/{name...}": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.PathValue("name")) }),
		}},
		Refused: func(Reason, ...slog.Attr) {},
		Now:     func() time.Time { return f.now },
		Logger:  slog.New(slog.NewTextHandler(f, nil)),
	}, map[string]Role{"te": Read, "noc": Admin})
	f.Handler = f.Guard(next)
	return f
}

// Write appends to the captured log.
func (f *fixture) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.log.Write(b)
}

// ask sends a request from an address with the token who and further headers.
func (f *fixture) ask(method, target, from, who string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	r.RemoteAddr = from + ":1234"
	if who != "" {
		r.Header.Set("Authorization", "Bearer "+who)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	return w
}

func hello() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/cells", func(w http.ResponseWriter, r *http.Request) {
		BudgetOf(r.Context()).ChargeRows(7)
		fmt.Fprint(w, "{}")
	})
	mux.HandleFunc("POST /change", func(http.ResponseWriter, *http.Request) {})
	return mux
}

// TestWho: unknown clients are refused, and readers cannot do an admin's work. Credentials in a
// URL are not accepted, and none appears in the log.
func TestWho(t *testing.T) {
	f := newFixture(t, Settings{}, hello())
	for _, tc := range []struct {
		target, who string
		code        int
	}{
		{"/api/v1/cells", "te", 200},
		{"/api/v1/cells", "noc", 200},
		{"/api/v1/cells", "", 200},
		{"/api/v1/cells", "hunter2", 401},
		{"/api/v1/admin/clients", "te", 403},
		{"/api/v1/admin/clients", "", 403},
		{"/api/v1/admin/clients", "noc", 200},
		{"/api/v1/admin/other", "noc", 404},
		{"/api/v1/cells?access_token=hunter3", "", 400},
		{"/api/v1/cells?signal=x&%74oken=hunter4", "te", 400},
	} {
		w := f.ask("GET", tc.target, "192.0.2.1", tc.who)
		if w.Code != tc.code {
			t.Errorf("%s as %q: %d %s, want %d", tc.target, tc.who, w.Code, w.Body, tc.code)
		}
		if refused := w.Header().Get("Content-Type") == "application/problem+json"; refused != (tc.code >= 400) {
			t.Errorf("%s as %q: type %s", tc.target, tc.who, w.Header().Get("Content-Type"))
		}
		if challenge := w.Header().Get("WWW-Authenticate"); (challenge != "") != (tc.code == 401) {
			t.Errorf("%s as %q: challenge %q", tc.target, tc.who, challenge)
		}
	}
	log := f.log.String()
	if strings.Contains(log, "hunter") {
		t.Errorf("a credential is in the log: %s", log)
	}
	if !strings.Contains(log, "who=te role=read by=token address=192.0.2.1:1234 method=GET path=/api/v1/cells status=200 ms=0 query=\"\" rows=7") {
		t.Errorf("log %s", log)
	}
	s := f.Stats()
	if s.Refused["unauthenticated"] != 1 || s.Refused["forbidden"] != 2 || s.Refused["credential_in_url"] != 2 || s.Rows != 21 {
		t.Errorf("counted %+v", s)
	}
}

// TestAudit: local requests without a credential are not logged. Refused ones are sampled, with
// the number of suppressed lines.
func TestAudit(t *testing.T) {
	f := newFixture(t, Settings{}, hello())
	f.ask("GET", "/api/v1/cells", "127.0.0.1", "")
	if f.log.Len() > 0 {
		t.Errorf("logged %s", &f.log)
	}
	f.ask("GET", "/api/v1/cells", "127.0.0.1", "te")
	if n := strings.Count(f.log.String(), "who=te"); n != 1 {
		t.Errorf("%d lines of who showed a credential: %s", n, &f.log)
	}
	f.log.Reset()
	for range 30 {
		f.ask("GET", "/api/v1/cells", "192.0.2.1", "nobody")
	}
	f.now = f.now.Add(retry.DefaultEvery)
	f.ask("GET", "/api/v1/cells", "192.0.2.1", "nobody")
	if log := f.log.String(); strings.Count(log, "refused") != 2 || !strings.Contains(log, "reason=unauthenticated left_out=29") {
		t.Errorf("refusals: %s", log)
	}
}

// TestLeft: a client that leaves early has its own status, whatever the handler writes
// afterwards.
func TestLeft(t *testing.T) {
	for name, write := range map[string]func(http.ResponseWriter){
		"nothing": func(http.ResponseWriter) {}, "a failure": func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) },
		"a part": func(w http.ResponseWriter) { _, _ = w.Write([]byte("half")); panic(http.ErrAbortHandler) },
	} {
		ctx, leave := context.WithCancel(t.Context())
		f := newFixture(t, Settings{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			leave()
			write(w)
		}))
		r := httptest.NewRequestWithContext(ctx, "GET", "/api/v1/cells", nil)
		r.Header.Set("Authorization", "Bearer te")
		func() {
			defer func() { _ = recover() }()
			f.ServeHTTP(httptest.NewRecorder(), r)
		}()
		endpoints := f.Stats().Endpoints
		if len(endpoints) != 1 || endpoints[0].Codes[StatusCanceled] != 1 || len(endpoints[0].Codes) != 1 || !strings.Contains(f.log.String(), "status=499") {
			t.Errorf("%s: %+v, logged %s", name, endpoints, &f.log)
		}
	}
}

// TestRate: a client beyond its rate gets a Retry-After, and other clients are not affected.
func TestRate(t *testing.T) {
	f := newFixture(t, Settings{Limits: Limits{Requests: 2, Burst: 3}}, hello())
	codes := func(n int, from, who string) (good int) {
		for range n {
			if w := f.ask("GET", "/api/v1/cells", from, who); w.Code == 200 {
				good++
			} else if w.Code != 429 || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), "ask less often") {
				t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
			}
		}
		return good
	}
	for _, tc := range []struct {
		from, who string
		want      int
	}{
		{"192.0.2.1", "", 3},
		{"192.0.2.1", "te", 3},
		{"192.0.2.2", "te", 0}, // one client from any address
		{"192.0.2.2", "", 3},
		{"[2001:db8::1]", "", 3},
		{"[2001:db8::2]", "", 0}, // same /64
		{"[2001:db8:0:1::1]", "", 3},
		{"[::ffff:192.0.2.2]", "", 0},
		{"127.0.0.1", "", 3},
		{"127.0.0.2", "", 0},
		{"[::1]", "", 0},
	} {
		if got := codes(5, tc.from, tc.who); got != tc.want {
			t.Errorf("%s %q: %d answered, want %d", tc.from, tc.who, got, tc.want)
		}
	}
	f.now = f.now.Add(time.Second)
	if got := codes(5, "192.0.2.1", "te"); got != 2 {
		t.Errorf("a second later %d", got)
	}
}

// TestFailures: an address that tries many credentials is blocked for a while, but a valid one
// from it never is.
func TestFailures(t *testing.T) {
	for _, from := range []string{"192.0.2.1", "127.0.0.1", "[2001:db8::1]"} {
		f := newFixture(t, Settings{}, hello())
		answered := map[int]int{}
		const seconds, each = 60, 20
		for n := range seconds * each {
			answered[f.ask("GET", "/api/v1/cells", from, fmt.Sprint("guess", n)).Code]++
			if n%10 == 0 {
				if w := f.ask("GET", "/api/v1/cells", from, "te"); w.Code != 200 {
					t.Fatalf("%s: a good credential after %d guesses: %d", from, n+1, w.Code)
				}
			}
			f.now = f.now.Add(time.Second / each)
		}
		if looked := answered[401]; looked > failureBurst+seconds*failureRate || looked+answered[429] != seconds*each {
			t.Errorf("%s: %v", from, answered)
		}
		f.ask("GET", "/api/v1/cells", from, "guess")
		if w := f.ask("GET", "/api/v1/cells", from, "guess"); w.Code != 429 || w.Header().Get("Retry-After") != "1" {
			t.Errorf("%s: %d %v, want to be told to come later", from, w.Code, w.Header())
		}
		if w := f.ask("GET", "/api/v1/cells", "192.0.2.2", "guess"); w.Code != 401 {
			t.Errorf("another address: %d", w.Code)
		}
		f.now = f.now.Add(time.Second)
		if w := f.ask("GET", "/api/v1/cells", from, "guess"); w.Code != 401 {
			t.Errorf("%s, a second later: %d", from, w.Code)
		}
	}
}

// TestManyClients: the number of remembered clients stays bounded with any number of addresses.
func TestManyClients(t *testing.T) {
	const most = 64
	f := newFixture(t, Settings{Limits: Limits{Clients: most, Requests: 1, Burst: 1}}, hello())
	for n := range 2000 {
		if w := f.ask("GET", "/api/v1/cells", fmt.Sprintf("[2001:db8:%x:%x::1]", n>>8, n&255), ""); w.Code != 200 {
			t.Fatalf("client %d: %d", n, w.Code)
		}
	}
	if s := f.Stats(); s.Clients != most || s.Forgotten != 2000-most {
		t.Errorf("%d remembered, %d forgotten", s.Clients, s.Forgotten)
	}
	// Accounts in use are not evicted: new clients then share one.
	in := f.control.settings.Load()
	for n := range most {
		in.addresses.get(fmt.Sprint("busy", n), f.now)
	}
	good := 0
	for n := range 20 {
		if f.ask("GET", "/api/v1/cells", fmt.Sprintf("198.51.100.%d", n), "").Code == 200 {
			good++
		}
	}
	if s := f.Stats(); good != 1 || s.Clients != most {
		t.Errorf("%d of 20 beyond the bound are answered, %d remembered", good, s.Clients)
	}
}

// TestStoreTime: a client that has used up its store time is refused store queries, and other
// requests still work.
func TestStoreTime(t *testing.T) {
	const each = 20 * time.Second
	f := newFixture(t, Settings{Limits: Limits{StoreTime: 30 * time.Second}}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := BudgetOf(r.Context())
		if r.URL.Query().Has("from") {
			var limited *LimitError
			if err := a.Check(); errors.As(err, &limited) {
				w.Header().Set("Retry-After", limited.RetryAfter())
				WriteProblem(w, http.StatusTooManyRequests, limited.Detail)
				return
			}
			a.ChargeTime(each / 2)
			if err := a.Check(); err != nil {
				t.Errorf("a request that has begun is cut off: %v", err)
			}
			a.ChargeTime(each / 2)
		}
	}))
	for n, want := range []int{200, 200, 429} {
		if w := f.ask("GET", "/?from=x", "192.0.2.1", "te"); w.Code != want {
			t.Errorf("question %d: %d %s, want %d", n, w.Code, w.Body, want)
		} else if want == 429 && (w.Header().Get("Retry-After") != "21" || !strings.Contains(w.Body.String(), "shorter ranges")) {
			t.Errorf("%v %s", w.Header(), w.Body)
		}
	}
	if w := f.ask("GET", "/", "192.0.2.1", "te"); w.Code != 200 {
		t.Errorf("what asks no store: %d", w.Code)
	}
	if w := f.ask("GET", "/?from=x", "192.0.2.1", "noc"); w.Code != 200 {
		t.Errorf("another client: %d", w.Code)
	}
	f.now = f.now.Add(21 * time.Second)
	if w := f.ask("GET", "/?from=x", "192.0.2.1", "te"); w.Code != 200 {
		t.Errorf("when it was told to come: %d", w.Code)
	}
	if s := f.Stats(); s.StoreTime != 4*each || s.Refused["store_time"] != 1 {
		t.Errorf("counted %s, %v", s.StoreTime, s.Refused)
	}
}

// TestAtATime: concurrent requests are limited, watchers separately. An admin sees requests and
// ends them.
func TestAtATime(t *testing.T) {
	var inside sync.WaitGroup
	f := newFixture(t, Settings{Limits: Limits{Concurrent: 2, Watchers: 3}}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/watch" {
			leave, err := BudgetOf(r.Context()).AcquireStream()
			if err != nil {
				w.WriteHeader(http.StatusTooManyRequests)
				return
			}
			defer leave()
		}
		inside.Done()
		<-r.Context().Done()
		w.WriteHeader(http.StatusGatewayTimeout)
	}))
	var answered sync.WaitGroup
	begin := func(target string, n int) {
		for range n {
			inside.Add(1)
			answered.Go(func() {
				if w := f.ask("GET", target, "192.0.2.1", "te"); w.Code != 504 {
					t.Errorf("%s: %d", target, w.Code)
				}
			})
		}
		inside.Wait()
	}
	begin("/watch", 3)
	begin("/work", 2)
	for _, target := range []string{"/watch", "/work"} {
		if w := f.ask("GET", target, "192.0.2.1", "te"); w.Code != 429 {
			t.Errorf("one more %s: %d", target, w.Code)
		}
	}
	var list struct{ Requests []requestStatus }
	if err := json.Unmarshal(f.ask("GET", AdminPath+"requests", "192.0.2.1", "noc").Body.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	ended, watching := 0, 0
	for _, q := range list.Requests {
		if q.Client != "te" {
			continue // this request itself
		}
		if q.Watching {
			watching++
		}
		target := fmt.Sprint(AdminPath, "requests/", q.ID)
		if w := f.ask("DELETE", target, "192.0.2.1", "te"); w.Code != 403 {
			t.Errorf("a reader ends a request: %d", w.Code)
		}
		if w := f.ask("DELETE", target, "192.0.2.1", "noc"); w.Code == 204 {
			ended++
		}
	}
	answered.Wait()
	if watching != 3 || ended != 5 {
		t.Errorf("%d watching, %d ended: %+v", watching, ended, list.Requests)
	}
	var clients struct{ Clients []clientStatus }
	if err := json.Unmarshal(f.ask("GET", AdminPath+"clients", "192.0.2.1", "noc").Body.Bytes(), &clients); err != nil {
		t.Fatal(err)
	}
	for _, a := range clients.Clients {
		if a.Name == "te" && (a.Running != 0 || a.Watching != 0 || a.Requests != 7 || a.Limited != 2) {
			t.Errorf("left behind: %+v", a)
		}
	}
	if w := f.ask("DELETE", AdminPath+"requests/1", "192.0.2.1", "noc"); w.Code != 404 {
		t.Errorf("a request that has ended: %d", w.Code)
	}
}

// TestOrigins: scripts of web sites that are not listed are refused.
func TestOrigins(t *testing.T) {
	const site, other = "https://te.example", "https://evil.example"
	open, closed := newFixture(t, Settings{Origins: []string{"https://TE.example"}}, hello()), newFixture(t, Settings{}, hello())
	for _, f := range []*fixture{open, closed} {
		for _, origin := range []string{site, other} {
			listed := f == open && origin == site
			w := f.ask("OPTIONS", "/api/v1/cells", "192.0.2.1", "", "Origin", origin, "Access-Control-Request-Method", "GET")
			if allowed := w.Code == 204 && w.Header().Get("Access-Control-Allow-Origin") == origin; allowed != listed {
				t.Errorf("preflight of %s: %d %v", origin, w.Code, w.Header())
			}
			w = f.ask("GET", "/api/v1/cells", "192.0.2.1", "te", "Origin", origin, "Sec-Fetch-Site", "cross-site")
			if allowed := w.Header().Get("Access-Control-Allow-Origin") == origin; w.Code != 200 || allowed != listed {
				t.Errorf("question of %s: %d %v", origin, w.Code, w.Header())
			}
			if f == open && w.Header().Get("Vary") != "Origin" {
				t.Errorf("caches mix up answers: %v", w.Header())
			}
			w = f.ask("POST", "/change", "192.0.2.1", "te", "Origin", origin, "Sec-Fetch-Site", "cross-site")
			if allowed := w.Code == 200; allowed != listed {
				t.Errorf("change by %s: %d", origin, w.Code)
			}
		}
	}
	for _, bad := range []string{"te.example", "https://te.example/", "*", "null", "ftp://te.example", "https://user@te.example"} {
		s := Settings{Origins: []string{bad}}
		if s.Check() == nil {
			t.Errorf("origin %q is taken", bad)
		}
	}
}

// TestUse: new settings apply from the next request on; invalid ones change nothing.
func TestUse(t *testing.T) {
	f := newFixture(t, Settings{Limits: Limits{Requests: 1, Burst: 1}}, hello())
	want := func(code int) {
		t.Helper()
		if w := f.ask("GET", "/api/v1/cells", "192.0.2.1", "te"); w.Code != code {
			t.Errorf("%d, want %d", w.Code, code)
		}
	}
	want(200)
	want(429)
	for _, bad := range []Limits{{Requests: -1}, {Concurrent: -1}, {Watchers: 1 << 30}, {StoreTime: time.Hour + 1}, {Requests: 1e7}} {
		if err := f.Use(Settings{Limits: bad}); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
	want(429)
	if err := f.Use(Settings{Limits: Limits{Requests: 10}}); err != nil {
		t.Fatal(err)
	}
	want(200)
	want(200)
}

// TestEndpoints: endpoints are distinguished by handler, not by path.
func TestEndpoints(t *testing.T) {
	f := newFixture(t, Settings{}, hello())
	for n := range 200 {
		f.ask("GET", fmt.Sprint("/made/up/", n), "192.0.2.1", "te")
		f.now = f.now.Add(20 * time.Millisecond)
	}
	f.ask("GET", "/api/v1/cells", "192.0.2.1", "te")
	s := f.Stats()
	if len(s.Endpoints) != 2 || s.Endpoints[0].Name != "/api/v1/cells" || s.Endpoints[1].Codes[404] != 200 || s.Endpoints[0].Took[0] != 1 {
		t.Errorf("endpoints %+v", s.Endpoints)
	}
}

// TestAbort: an aborted response is counted too.
func TestAbort(t *testing.T) {
	f := newFixture(t, Settings{Limits: Limits{Concurrent: 1}}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	for range 3 {
		func() {
			defer func() {
				if p := recover(); p != http.ErrAbortHandler { //nolint:errorlint // a panic's value is this one
					t.Errorf("panic %v", p)
				}
			}()
			f.ask("GET", "/", "192.0.2.1", "te")
		}()
	}
}

// TestRevoked: a watch or a long response ends soon after its credential is revoked or loses
// rights. Clients with a valid credential stay, and so do those without one where none is
// needed.
func TestRevoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &bytes.Buffer{}
		s, file := newNamed(t, Config{Access: &Access{}, Logger: slog.New(slog.NewTextHandler(log, nil))},
			map[string]Role{"te": Read, "noc": Admin, "spy": Read, "ops": Admin, "slow": Read})
		h := s.Guard(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/watch" {
				leave, err := BudgetOf(r.Context()).AcquireStream()
				if err != nil {
					t.Error(err)
					return
				}
				defer leave()
			}
			<-r.Context().Done()
		}))
		watching := map[string]*atomic.Bool{}
		ends := map[string]func(){}
		for _, name := range []string{"te", "noc", "spy", "ops", "slow", ""} {
			path := "/watch"
			if name == "slow" {
				path = "/export"
			}
			r, here := httptest.NewRequest("GET", path, nil), &atomic.Bool{}
			ctx, end := context.WithCancel(t.Context())
			r = r.WithContext(ctx)
			if name != "" {
				r.Header.Set("Authorization", "Bearer "+name)
			}
			here.Store(true)
			watching[name], ends[name] = here, end
			go func() {
				h.ServeHTTP(httptest.NewRecorder(), r)
				here.Store(false)
			}()
		}
		check := func(when string, want ...string) {
			t.Helper()
			synctest.Wait()
			for name, still := range watching {
				if got := still.Load(); got != slices.Contains(want, name) {
					t.Errorf("%s: %q watches: %t", when, name, got)
				}
			}
		}
		time.Sleep(time.Minute)
		check("nothing happened", "te", "noc", "spy", "ops", "slow", "")
		writeNames(t, file, map[string]Role{"te": Read, "noc": Admin, "ops": Read}) // spy and slow are removed, ops is no longer an admin
		time.Sleep(recheckEvery)
		check("after the change", "te", "noc", "")
		for _, end := range ends {
			end()
		}
		check("all have gone")
		if n := s.Stats().Refused["revoked"]; n != 3 || !strings.Contains(log.String(), "api answer cut short") || !strings.Contains(log.String(), "reason=revoked") {
			t.Errorf("%d counted, and the log says %s", n, log)
		}
	})
}

// BenchmarkGuard measures the overhead of Guard per request.
func BenchmarkGuard(b *testing.B) {
	s, _ := newNamed(b, Config{Access: &Access{Settings: Settings{Limits: Limits{Requests: 1e6}}}}, map[string]Role{"te": Read})
	h := s.Guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	r := httptest.NewRequestWithContext(context.Background(), "GET", "/api/v1/cells?signal=min_abw", nil)
	r.Header.Set("Authorization", "Bearer te")
	w := httptest.NewRecorder()
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(w, r)
	}
}

// TestAdmin: further resources are for admins only, and with their method only.
func TestAdmin(t *testing.T) {
	f := newFixture(t, Settings{}, hello())
	for _, tc := range []struct {
		method, who string
		code        int
		body        string
	}{
		{"DELETE", "noc", 200, "host1/eth0"}, {"DELETE", "te", 403, ""}, {"DELETE", "", 403, ""}, {"GET", "noc", 404, "DELETE things"},
	} {
		w := f.ask(tc.method, "/api/v1/admin/things/host1/eth0", "192.0.2.1", tc.who)
		if w.Code != tc.code || !strings.Contains(w.Body.String(), tc.body) {
			t.Errorf("%s as %q: %d %s, want %d with %q", tc.method, tc.who, w.Code, w.Body, tc.code, tc.body)
		}
	}
}
