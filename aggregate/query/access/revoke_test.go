package access

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csigscope/csigscope/aggregate/query"
)

// tokens lets in whoever has a name in it, which may change.
type tokens struct{ atomic.Pointer[names] }

// Identify implements Authenticator.
func (k *tokens) Identify(r *http.Request) (Peer, error) { return k.Load().Identify(r) }

// TestRevoked: a watch or a long answer ends soon after its credential is revoked or loses
// rights. Clients with a good credential stay, and so do those without one where none is needed.
func TestRevoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		who, log := &tokens{}, &bytes.Buffer{}
		who.Store(&names{"": Read, "te": Read, "noc": Admin, "spy": Read, "ops": Admin, "slow": Read})
		control, err := New(Config{Who: who, Logger: slog.New(slog.NewTextHandler(log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		h := control.Guard(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/watch" {
				leave, err := query.AskerOf(r.Context()).Stay()
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
		who.Store(&names{"": Read, "te": Read, "noc": Admin, "ops": Read}) // spy and slow are gone, ops is no admin any more
		time.Sleep(recheckEvery)
		check("after the change", "te", "noc", "")
		for _, end := range ends {
			end()
		}
		check("all have gone")
		if n := control.Stats().Refused["revoked"]; n != 3 || !strings.Contains(log.String(), "reason=revoked") {
			t.Errorf("%d counted, and the log says %s", n, log)
		}
	})
}
