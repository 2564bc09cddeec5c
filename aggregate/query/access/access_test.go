package access

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/query"
)

// names lets in who says a known name in the header Authorization, and everybody who says
// nothing as an anonymous reader.
type names map[string]Role

func (n names) Identify(r *http.Request) (Peer, error) {
	name, said := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !said {
		return Peer{Name: "anonymous", Role: n[""]}, nil
	}
	if role, ok := n[name]; ok {
		return Peer{Name: name, Role: role, How: "token"}, nil
	}
	return Peer{}, errors.New("no valid credential")
}

// fixture is a control before a handler, with a clock of its own and its log.
type fixture struct {
	*Control
	http.Handler
	now time.Time
	log bytes.Buffer
	mu  sync.Mutex
}

func newFixture(t *testing.T, s Settings, next http.Handler) *fixture {
	t.Helper()
	f := &fixture{now: time.Unix(1e9, 0)}
	var err error
	f.Control, err = New(Config{
		Who: names{"": Read, "te": Read, "noc": Admin}, Settings: s, Open: func(r *http.Request) bool { return r.URL.Path == "/file.js" }, Logger: slog.New(slog.NewTextHandler(f, nil)),
		Now: func() time.Time { return f.now },
	})
	if err != nil {
		t.Fatal(err)
	}
	f.Handler = f.Guard(next)
	return f
}

// Write takes the log in.
func (f *fixture) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.log.Write(b)
}

// ask comes from an address, as somebody, with further headers.
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
		query.AskerOf(r.Context()).Told(7)
		fmt.Fprint(w, "{}")
	})
	mux.HandleFunc("POST /change", func(http.ResponseWriter, *http.Request) {})
	return mux
}

// TestWho: who is not known is refused, and readers may not do what takes an admin. No
// credential is taken from a URL, and none comes into the log.
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
		{"/api/v1/admin/askers", "te", 403},
		{"/api/v1/admin/askers", "", 403},
		{"/api/v1/admin/askers", "noc", 200},
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
	if !strings.Contains(log, "who=te role=read by=token peer=192.0.2.1:1234 method=GET path=/api/v1/cells status=200 ms=0 query=\"\" rows=7") {
		t.Errorf("log %s", log)
	}
	s := f.Stats()
	if s.Refused["unauthenticated"] != 1 || s.Refused["forbidden"] != 2 || s.Refused["credential_in_url"] != 2 || s.Rows != 21 {
		t.Errorf("counted %+v", s)
	}
}

// TestAudit: this machine's requests without a credential are not logged; refused ones are
// sampled, with how many were left out.
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
	f.now = f.now.Add(sayEvery)
	f.ask("GET", "/api/v1/cells", "192.0.2.1", "nobody")
	if log := f.log.String(); strings.Count(log, "refused") != 2 || !strings.Contains(log, "reason=unauthenticated unsaid=29") {
		t.Errorf("refusals: %s", log)
	}
}

// TestLeft: a client that leaves while its answer is made has an outcome of its own, whatever
// is written for nobody to read, or cut off.
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
		if len(endpoints) != 1 || endpoints[0].Codes[query.StatusCanceled] != 1 || len(endpoints[0].Codes) != 1 || !strings.Contains(f.log.String(), "status=499") {
			t.Errorf("%s: %+v, logged %s", name, endpoints, &f.log)
		}
	}
}

// TestRate: beyond its rate an asker is told when to come again, and nobody else is.
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
		{"192.0.2.2", "te", 0}, // one asker, wherever it comes from
		{"192.0.2.2", "", 3},
		{"[2001:db8::1]", "", 3},
		{"[2001:db8::2]", "", 0}, // of the same /64
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

// TestFailures: an address that tries credentials is held back for a while, and whoever shows
// a good one from there never is.
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

// TestManyAskers: however many addresses come, so many are remembered.
func TestManyAskers(t *testing.T) {
	const most = 64
	f := newFixture(t, Settings{Limits: Limits{Askers: most, Requests: 1, Burst: 1}}, hello())
	for n := range 2000 {
		if w := f.ask("GET", "/api/v1/cells", fmt.Sprintf("[2001:db8:%x:%x::1]", n>>8, n&255), ""); w.Code != 200 {
			t.Fatalf("asker %d: %d", n, w.Code)
		}
	}
	if s := f.Stats(); s.Askers != most || s.Forgotten != 2000-most {
		t.Errorf("%d remembered, %d forgotten", s.Askers, s.Forgotten)
	}
	// Those at work are not forgotten: who comes then shares what one has.
	in := f.settings.Load()
	for n := range most {
		in.places.get(fmt.Sprint("busy", n), f.now)
	}
	good := 0
	for n := range 20 {
		if f.ask("GET", "/api/v1/cells", fmt.Sprintf("198.51.100.%d", n), "").Code == 200 {
			good++
		}
	}
	if s := f.Stats(); good != 1 || s.Askers != most {
		t.Errorf("%d of 20 beyond the bound are answered, %d remembered", good, s.Askers)
	}
}

// TestStoreTime: who has used up the store's time is refused what takes more of it, and may
// ask the rest.
func TestStoreTime(t *testing.T) {
	const each = 20 * time.Second
	f := newFixture(t, Settings{Limits: Limits{StoreTime: 30 * time.Second}}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := query.AskerOf(r.Context())
		if r.URL.Query().Has("from") {
			var limited *query.Limited
			if err := a.Ask(); errors.As(err, &limited) {
				w.Header().Set("Retry-After", limited.RetryAfter())
				writeProblem(w, http.StatusTooManyRequests, limited.Detail)
				return
			}
			a.Spent(each / 2)
			if err := a.Ask(); err != nil {
				t.Errorf("a request that has begun is cut off: %v", err)
			}
			a.Spent(each / 2)
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
		t.Errorf("another asker: %d", w.Code)
	}
	f.now = f.now.Add(21 * time.Second)
	if w := f.ask("GET", "/?from=x", "192.0.2.1", "te"); w.Code != 200 {
		t.Errorf("when it was told to come: %d", w.Code)
	}
	if s := f.Stats(); s.StoreTime != 4*each || s.Refused["store_time"] != 1 {
		t.Errorf("counted %s, %v", s.StoreTime, s.Refused)
	}
}

// TestAtATime: requests at a time are limited, watchers apart from them; an admin sees
// requests and ends them.
func TestAtATime(t *testing.T) {
	var inside sync.WaitGroup
	f := newFixture(t, Settings{Limits: Limits{Concurrent: 2, Watchers: 3}}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/watch" {
			leave, err := query.AskerOf(r.Context()).Stay()
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
	var list struct{ Requests []Running }
	if err := json.Unmarshal(f.ask("GET", AdminPath+"requests", "192.0.2.1", "noc").Body.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	ended, watching := 0, 0
	for _, q := range list.Requests {
		if q.Asker != "te" {
			continue // the question itself
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
	var askers struct{ Askers []Asker }
	if err := json.Unmarshal(f.ask("GET", AdminPath+"askers", "192.0.2.1", "noc").Body.Bytes(), &askers); err != nil {
		t.Fatal(err)
	}
	for _, a := range askers.Askers {
		if a.Name == "te" && (a.Running != 0 || a.Watching != 0 || a.Requests != 7 || a.Limited != 2) {
			t.Errorf("left behind: %+v", a)
		}
	}
	if w := f.ask("DELETE", AdminPath+"requests/1", "192.0.2.1", "noc"); w.Code != 404 {
		t.Errorf("a request that has ended: %d", w.Code)
	}
}

// TestOrigins: scripts of other web sites are kept out, but for those that are listed.
func TestOrigins(t *testing.T) {
	const site, other = "https://te.example", "https://evil.example"
	open, closed := newFixture(t, Settings{Origins: []string{site}}, hello()), newFixture(t, Settings{}, hello())
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
		if _, err := New(Config{Settings: Settings{Origins: []string{bad}}}); err == nil {
			t.Errorf("origin %q is taken", bad)
		}
	}
}

// TestUse: other settings hold from the next request on; wrong ones change nothing.
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

// TestEndpoints: endpoints are told apart by who answers, not by what is asked.
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

// TestAbort: an answer that is cut off is settled too.
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

var _ query.Asker = (*request)(nil)

// BenchmarkGuard is what a request costs beside its answer.
func BenchmarkGuard(b *testing.B) {
	a, err := New(Config{Who: names{"te": Read}, Settings: Settings{Limits: Limits{Requests: 1e6}}})
	if err != nil {
		b.Fatal(err)
	}
	h := a.Guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	r := httptest.NewRequestWithContext(context.Background(), "GET", "/api/v1/cells?signal=min_abw", nil)
	r.Header.Set("Authorization", "Bearer te")
	w := httptest.NewRecorder()
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(w, r)
	}
}
