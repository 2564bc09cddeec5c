package page_test

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"github.com/csigscope/csigscope/dashboards/page"
	"github.com/csigscope/csigscope/dashboards/page/pagetest"
	"github.com/csigscope/csigscope/ingest/edge"
	"github.com/csigscope/csigscope/ingest/edge/edgetest"
)

// sesame requires a token, which can change, and records requests.
type sesame struct {
	next    http.Handler
	clients string       // token file
	ahead   atomic.Int64 // ns, of the server's clock

	mu      sync.Mutex
	asked   []string // addresses with their referrers
	resumed int      // streams resumed after an event
}

// ServeHTTP implements http.Handler.
func (s *sesame) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked = append(s.asked, r.URL.String()+" "+r.Referer())
	if r.URL.Path == "/api/v1/watch" && r.Header.Get("Last-Event-ID") != "" {
		s.resumed++
	}
	s.mu.Unlock()
	s.next.ServeHTTP(w, r)
}

// use replaces the token in the file and advances the server's clock, so that it reads the file
// again.
func (s *sesame) use(t *testing.T, token string) {
	t.Helper()
	edgetest.WriteTokens(t, s.clients, edgetest.TokenLine("te", "read", token, ""))
	s.ahead.Add(int64(time.Minute))
}

// behindToken returns the page and the API, protected by a token.
func behindToken(t *testing.T, f feed) (*sesame, *httptest.Server) {
	t.Helper()
	s := &sesame{clients: filepath.Join(t.TempDir(), "clients")}
	s.use(t, "open-sesame")
	guard, err := edge.New(edge.Config{
		Auth: &edge.Auth{Clients: s.clients}, Access: &edge.Access{Open: page.IsFile},
		Now: func() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) },
	})
	if err != nil {
		t.Fatal(err)
	}
	s.next = guard.Guard(served(t, stored(t, liveRacks), f.Memory))
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	return s, server
}

const dialogOpen = "document.getElementById('token')?.open === true"

// TestToken checks that the page loads without a token, asks for one, says if it is refused, and
// shows data with the right one, live data included. The token stays in the tab and never appears
// in an address.
func TestToken(t *testing.T) {
	f := newFeed(liveRacks)
	s, server := behindToken(t, f)
	v := pagetest.Enter(t, server.URL+"/#signal=max_delay&live=1", "dark", "Failed to load resource") // for a 401 or a closed connection
	v.Wait(dialogOpen + " && document.activeElement.id === 'token-text'")
	v.Press("open sesame", kb.Enter)
	v.Says("token-wrong", "A token has letters, digits and signs, and no spaces.")
	v.Press(kb.Backspace, "wrong", kb.Enter)
	v.Says("token-wrong", "The server refused this token.")
	if pagetest.Evaluate[bool](v, pagetest.Drawn) {
		t.Error("the page has drawn without a token")
	}
	v.Screenshot("refused")
	v.Press(kb.Backspace, "open-sesame", kb.Enter)
	v.Wait(pagetest.Drawn)
	cells := f.close(t)
	v.Wait(cellIs(cells))
	v.Says("age", "live")
	checkLive(t, v, cells)

	server.CloseClientConnections()
	v.Wait("document.getElementById('age').textContent.startsWith('no connection')")
	cells = f.close(t)
	v.Says("age", "live")
	v.Wait(cellIs(cells))
	checkLive(t, v, cells)

	v.Open(server.URL + "/#signal=max_delay")
	if pagetest.Evaluate[bool](v, dialogOpen) {
		t.Error("the tab has forgotten the token")
	}
	kept := pagetest.Evaluate[[]string](v, "[JSON.stringify(sessionStorage), JSON.stringify(localStorage), document.cookie, location.href]")
	for i, text := range kept {
		if strings.Contains(text, "open-sesame") != (i == 0) {
			t.Errorf("%d of session storage, local storage, cookies and address: %s", i, text)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, asked := range s.asked {
		if strings.Contains(asked, "sesame") {
			t.Errorf("asked for %s", asked)
		}
	}
	if s.resumed == 0 {
		t.Error("the stream did not go on where it was")
	}
}

// TestTokenGone checks that the page asks again if a token is refused later, that it says that a
// token is required if the user gives none, and that a forgotten token leaves no traces.
func TestTokenGone(t *testing.T) {
	s, server := behindToken(t, newFeed(liveRacks))
	v := pagetest.Enter(t, server.URL+"/#signal=max_delay", "light", "status of 401")
	v.Wait(dialogOpen)
	v.Press("open-sesame", kb.Enter)
	v.Wait(pagetest.Drawn)
	s.use(t, "other")
	v.Click("#reload")
	v.Wait(dialogOpen)
	v.Says("token-wrong", "The server no longer accepts the token.")
	v.Press(kb.Escape)
	v.Says("banner", "This server requires a token.")
	v.Click("#reload")
	v.Wait("!(" + dialogOpen + ")")
	v.Says("token-forget", "Give token")
	v.Click("#token-forget")
	v.Wait(dialogOpen)
	v.Press("other", kb.Enter)
	v.Says("token-forget", "Forget token")
	v.Says("banner", "")
	v.Reload(func() { v.Click("#token-forget") })
	v.Wait(dialogOpen + " && !window.csigscope && sessionStorage.length === 0 && document.getElementById('main').hidden")
}
