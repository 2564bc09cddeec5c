package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/querytest"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/aggregate/table/tabletest"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/ingest/edge"
)

// slowNames are names of a store that is slow, or fails.
type slowNames struct {
	tabletest.Names
	takes atomic.Int64 // ns
	fails atomic.Bool
	read  atomic.Int64
}

func (s *slowNames) wait(ctx context.Context) error {
	s.read.Add(1)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Duration(s.takes.Load())):
	}
	if s.fails.Load() {
		return fmt.Errorf("ask 10.0.0.1: %w", query.ErrUnavailable)
	}
	return nil
}

func (s *slowNames) Groups(ctx context.Context) ([]fabric.Group, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	return s.Names.Groups(ctx)
}

func (s *slowNames) Locations(ctx context.Context) ([]fabric.Location, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	return s.Names.Locations(ctx)
}

func windowsInMemory(t *testing.T, windows int) *table.Memory {
	t.Helper()
	memory := table.NewMemory(table.MemoryOptions{Ahead: -1}) // after a bubble's clock
	for i := range windows {
		b := tabletest.Block(rand.New(rand.NewPCG(1, uint64(i))), 1, time.Unix(1e9+int64(i), 0), 4, csig.MinABWRatio)
		if err := memory.WriteBlock(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	memory.Publish()
	return memory
}

// TestNamesOfSlowStore: once names were read, a slow or unreachable store does not lose them, and
// its later changes appear later. Before that, an unknown name may be one of the store's, so the
// client is not at fault.
func TestNamesOfSlowStore(t *testing.T) {
	for _, withFabric := range []bool{false, true} {
		t.Run(fmt.Sprintf("fabric=%t", withFabric), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testNamesOfSlowStore(t, withFabric) })
		})
	}
}

func testNamesOfSlowStore(t *testing.T, withFabric bool) {
	store := &slowNames{Names: tabletest.Names{Racks: 2}}
	names := Catalog(store)
	if withFabric {
		domain, err := csig.DefaultSpec().Compile()
		if err != nil {
			t.Fatal(err)
		}
		f := fabric.None(domain)
		names = &BothNames{Fabric: func() *fabric.Fabric { return f }, Stored: store}
	}
	a, err := New(Config{Memory: windowsInMemory(t, 2), Names: names, Reader: &querytest.Memory{}})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(when, target string, code int, says string) {
		t.Helper()
		w := httptest.NewRecorder()
		begin := time.Now()
		a.ServeHTTP(w, httptest.NewRequest("GET", target, nil))
		if w.Code != code || !strings.Contains(w.Body.String(), says) || (w.Header().Get("Retry-After") != "") != (code == 503) {
			t.Errorf("%s: %s: %d, Retry-After %q: %.300s", when, target, w.Code, w.Header().Get("Retry-After"), w.Body)
		}
		if took := time.Since(begin); took > 2*storePatience+time.Millisecond {
			t.Errorf("%s: %s took %s", when, target, took)
		}
	}
	store.takes.Store(int64(10 * time.Second))
	ask("never read", "/api/v1/cells?src=rack1", 503, "try again later")
	ask("never read", "/api/v1/path?src=rack1&dst=rack2", 503, "try again later")
	ask("never read", "/api/v1/cells?location=leaf1:up1", 503, "try again later")
	store.takes.Store(0)
	time.Sleep(11 * time.Second) // until running readings have ended
	synctest.Wait()
	ask("read", "/api/v1/cells?src=rack1", 200, `"rack1"`)
	ask("read", "/api/v1/cells?src=rack7", 422, "no such group")
	for name, disturb := range map[string]func(bool){
		"slow":    func(on bool) { store.takes.Store(map[bool]int64{true: int64(10 * time.Second)}[on]) },
		"failing": func(on bool) { store.fails.Store(on) },
	} {
		disturb(true)
		for range 5 {
			time.Sleep(2 * namesFresh)
			ask(name, "/api/v1/cells?src=rack1", 200, `"rack1"`)
			ask(name, "/api/v1/matrix", 200, `"rack2"`)
			ask(name, "/api/v1/fabric", 200, `"rack2"`)
			ask(name, "/api/v1/cells?src=rack7", 422, "no such group")
		}
		disturb(false)
		time.Sleep(12 * time.Second)
	}
	synctest.Wait() // the racks are not being read
	store.Racks = 9
	time.Sleep(namesFresh)
	ask("recovered", "/api/v1/cells?src=rack7", 200, `"cells":[]`)
	synctest.Wait()
}

// wiredStore is a store with the fabric of another process's configuration.
type wiredStore struct {
	querytest.Memory
	slowNames
	fabric *fabric.Fabric
}

func (s *wiredStore) Topology(ctx context.Context) (*fabric.Fabric, error) {
	return s.fabric, s.wait(ctx)
}

func (s *wiredStore) Groups(ctx context.Context) ([]fabric.Group, error) {
	return s.slowNames.Groups(ctx)
}

func (s *wiredStore) Locations(ctx context.Context) ([]fabric.Location, error) {
	return s.slowNames.Locations(ctx)
}

// TestTopologyOfSlowStore: answers from memory do not need the fabric of a store that is slow or
// away. Once it was read, it stays.
func TestTopologyOfSlowStore(t *testing.T) {
	domain, err := csig.DefaultSpec().Compile()
	if err != nil {
		t.Fatal(err)
	}
	spec, err := fabric.Parse(strings.NewReader("{version: 1, devices: [{name: leaf1, stage: leaf, ports: [{name: up1, orientation: up, speed: 1Gbps}]}]}"), "fabric.yaml")
	if err != nil {
		t.Fatal(err)
	}
	wired, err := fabric.New(spec, domain)
	if err != nil {
		t.Fatal(err)
	}
	for name, disturb := range map[string]func(*wiredStore, bool){
		"slow":    func(s *wiredStore, on bool) { s.takes.Store(map[bool]int64{true: int64(10 * time.Second)}[on]) },
		"failing": func(s *wiredStore, on bool) { s.fails.Store(on) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &wiredStore{slowNames: slowNames{Names: tabletest.Names{Racks: 2}}, fabric: wired}
				a, err := New(Config{Memory: windowsInMemory(t, 2), Names: &BothNames{Fabric: func() *fabric.Fabric { return fabric.None(domain) }}, Reader: store})
				if err != nil {
					t.Fatal(err)
				}
				ask := func(target string, code int, says string) {
					t.Helper()
					w, begin := httptest.NewRecorder(), time.Now()
					a.ServeHTTP(w, httptest.NewRequest("GET", "/api/v1/"+target, nil))
					if took := time.Since(begin); w.Code != code || !strings.Contains(w.Body.String(), says) || took > storePatience+time.Millisecond {
						t.Errorf("%s: %d after %s: %.300s", target, w.Code, took, w.Body)
					}
				}
				disturb(store, true)
				ask("verdict", 200, `"source":"memory"`)
				ask("links", 200, `"source":"memory"`)
				ask("topology", 503, "try again later")
				disturb(store, false)
				time.Sleep(11 * time.Second) // until running readings have ended
				ask("topology", 200, `"leaf1:up1"`)
				disturb(store, true)
				ask("topology", 200, `"leaf1:up1"`)
				ask("links", 200, `"leaf1:up1"`)
				time.Sleep(time.Minute)
			})
		})
	}
}

// blocking is a store that works on a question until its context ends, and then fails like a
// client library: with an error without the reason.
type blocking struct {
	querytest.Memory
	begun chan struct{}
	err   error // nil: the context's
}

func (b *blocking) block(ctx context.Context) error {
	select {
	case b.begun <- struct{}{}:
	default:
	}
	<-ctx.Done()
	if b.err != nil {
		return b.err
	}
	return fmt.Errorf("ask: %w", ctx.Err())
}

func (b *blocking) Extent(ctx context.Context) (query.Extent, error) {
	return query.Extent{}, b.block(ctx)
}

func (b *blocking) Signals(ctx context.Context, _ query.Question) ([]csig.Signal, error) {
	return nil, b.block(ctx)
}

func (b *blocking) Groups(ctx context.Context) ([]fabric.Group, error) { return nil, b.block(ctx) }

func (b *blocking) Locations(ctx context.Context) ([]fabric.Location, error) {
	return nil, b.block(ctx)
}

func (b *blocking) EachCellWindow(ctx context.Context, _ query.Question, _ int, _ func(*aggregate.CellWindow) error) (bool, error) {
	return false, b.block(ctx)
}

// Cells is never called before Extent.
func (b *blocking) Cells(ctx context.Context, _ query.Question) ([]aggregate.CellStats, error) {
	return nil, b.block(ctx)
}

// logged keeps logged errors.
type logged struct {
	slog.Handler
	mu    sync.Mutex
	lines []string
}

func (l *logged) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

func (l *logged) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, r.Message)
	return nil
}

// TestCanceled: a client that leaves while the store works is no failure of the server, whatever
// error the store returns; a timeout is reported as such.
func TestCanceled(t *testing.T) {
	const past = "from=2026-01-20T09:00:00Z&to=2026-01-20T10:00:00Z"
	targets := []string{
		"/api/v1/bundle", "/api/v1/frames?signal=max_delay", "/api/v1/extent", "/api/v1/fabric",
		"/api/v1/export?format=csv&" + past, "/api/v1/export?format=parquet&table=windows&" + past,
		"/api/v1/export/flows?format=csv&" + past, "/api/v1/export/findings?format=csv&" + past,
	}
	for _, name := range []string{"cells", "matrix", "locations", "timeline", "flows", "findings"} {
		targets = append(targets, "/api/v1/"+name+"?"+past)
	}
	targets = append(targets, "/api/v1/path?src=rack1&dst=rack2&"+past)
	for _, target := range targets {
		for _, failure := range []error{nil, errors.New("attempted reading on closed connection")} {
			t.Run(fmt.Sprintf("%s %v", target, failure), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := &blocking{begun: make(chan struct{}, 1), err: failure}
					log := &logged{Handler: slog.DiscardHandler}
					a, err := New(Config{Reader: store, Logger: slog.New(log)})
					if err != nil {
						t.Fatal(err)
					}
					ctx, cancel := context.WithCancel(t.Context())
					w := httptest.NewRecorder()
					var asking sync.WaitGroup
					asking.Go(func() { a.ServeHTTP(w, httptest.NewRequest("GET", target, nil).WithContext(ctx)) })
					<-store.begun
					cancel()
					asking.Wait()
					if w.Code != edge.StatusCanceled || len(log.lines) > 0 {
						t.Errorf("%d %s; logged %q", w.Code, w.Body, log.lines)
					}
					time.Sleep(time.Minute) // until names are no longer read
				})
			})
		}
	}
}

// TestOutcomes: every protocol maps errors to the same outcomes.
func TestOutcomes(t *testing.T) {
	alive := t.Context()
	left, leave := context.WithCancel(alive)
	leave()
	late, end := context.WithTimeout(alive, -1)
	defer end()
	lost := errors.New("attempted reading on closed connection")
	for _, c := range []struct {
		name string
		ctx  context.Context
		err  error
		code int
	}{
		{"left", left, context.Canceled, 499},
		{"left, and the store says something else", left, lost, 499},
		{"left, and the store is away", left, fmt.Errorf("%w: %w", query.ErrUnavailable, lost), 499},
		{"late", late, context.DeadlineExceeded, 504},
		{"late, and the store says something else", late, lost, 504},
		{"deadline of the store", alive, fmt.Errorf("%w: %w", query.ErrUnavailable, context.DeadlineExceeded), 504},
		{"away", alive, fmt.Errorf("%w: %w", query.ErrUnavailable, lost), 503},
		{"the server stops", alive, context.Canceled, 503},
		{"limited", alive, &edge.LimitError{}, 429},
		{"wrong", alive, query.ErrInvalid, 422},
		{"too large", alive, query.ErrTooLarge, 422},
		{"nothing", alive, query.ErrNoData, 404},
		{"broken", alive, lost, 500},
	} {
		a, err := New(Config{Names: tabletest.Names{}})
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		a.refuse(c.ctx, w, c.err)
		if w.Code != c.code || (w.Header().Get("Retry-After") != "") != (c.code == 503 || c.code == http.StatusTooManyRequests) {
			t.Errorf("%s: %d, Retry-After %q", c.name, w.Code, w.Header().Get("Retry-After"))
		}
	}
}
