// Package api answers the query API: questions about cells, paths and locations, from recent
// windows in memory and from history in the store, and streams of changes. Questions and answers
// are the messages of package wire, as JSON over HTTP and in their own encoding in calls
// (Connect, gRPC).
//
// It knows questions and their limits. It must never know how windows got into memory or store,
// nor how answers are drawn.
package api

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/rest"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/ingest/edge"
)

// Limits of an API that Config does not set.
const (
	DefaultTimeout    = 10 * time.Second // for the work on one answer
	DefaultWatchers   = 256              // watches and waiting requests at a time
	DefaultMaxLag     = 16               // revisions that a watcher may be behind: a window has at least two
	DefaultCacheBytes = 256 << 20        // bytes of results that are computed once for all equal requests
	// exportLonger is the extra time for writing a table, compared with an answer, unless Config
	// sets it; with DefaultTimeout it stays below the store's own limit.
	exportLonger      = 15 * time.Second
	DefaultExportRows = 1_000_000 // in a table of cells
)

// Limits of every API.
const (
	concurrent  = 4                // answers worked on at a time
	maxExports  = 2                // tables written at a time
	sendTimeout = 30 * time.Second // for one event to a watcher
	// MaxExportRecords bounds a table of flows or findings, which are held in memory.
	MaxExportRecords = 100_000
)

// Config configures New. Memory or Reader may be missing, not both.
type Config struct {
	Memory *table.Memory // recent windows
	Fine   *table.Memory // shorter windows than Memory's; nil for none
	Reader query.Reader  // history
	Names  Catalog       // for memory's ids; nil: Reader
	Fabric string        // its name
	// Down returns the names of silent producers that are known to be down; nil: none is. It must
	// be safe for concurrent use.
	Down func(silent []table.Producer) []string
	// Thresholds decide the states of cells, in memory and in the store; zero:
	// aggregate.DefaultThresholds.
	Thresholds aggregate.Thresholds

	// Limits; 0 means the default constant of the same name.
	Timeout    time.Duration
	Watchers   int
	MaxLag     int
	CacheBytes int // bytes of answers and intermediate results kept for equal requests

	ExportTimeout time.Duration // 0: Timeout + 15 s
	ExportRows    int

	Logger *slog.Logger     // nil: discard
	Now    func() time.Time // nil: time.Now
}

// Catalog names groups and locations. It is safe for concurrent use.
type Catalog interface {
	Groups(context.Context) ([]fabric.Group, error)
	Locations(context.Context) ([]fabric.Location, error)
}

func (c Config) withDefaults() Config {
	c.Timeout = cmp.Or(max(c.Timeout, 0), DefaultTimeout)
	c.Watchers = cmp.Or(max(c.Watchers, 0), DefaultWatchers)
	c.MaxLag = cmp.Or(max(c.MaxLag, 0), DefaultMaxLag)
	c.CacheBytes = cmp.Or(max(c.CacheBytes, 0), DefaultCacheBytes)
	c.ExportTimeout = cmp.Or(max(c.ExportTimeout, 0), c.Timeout+exportLonger)
	c.ExportRows = cmp.Or(max(c.ExportRows, 0), DefaultExportRows)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Thresholds == (aggregate.Thresholds{}) {
		c.Thresholds = aggregate.DefaultThresholds()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Names == nil {
		c.Names = c.Reader
	}
	return c
}

// API answers questions. It is safe for concurrent use.
type API struct {
	Config
	handler  http.Handler
	slots    chan struct{} // held while an answer is worked on
	exports  chan struct{} // held while a table is written
	watchers atomic.Int64
	lagging  atomic.Uint64
	names    namesCache
	past     namesCache // of history, if memory has other names
	wired    remembered[*fabric.Fabric]
	patience time.Duration // how long a request waits for names and the fabric of the store
	lately   lately
	renamed  renamed
	kept     keptAnswers
	cache    *cache // from memory, and the producers of history
	sends    *sends
	packer   packer
	schema   *rest.Schema

	running context.Context // of waiting requests: ends with Run
	end     context.CancelFunc
}

// New makes an API. It fails if cfg has neither Names nor Reader.
func New(cfg Config) (*API, error) {
	cfg = cfg.withDefaults()
	if cfg.Names == nil {
		return nil, fmt.Errorf("make API: %w: neither names nor a reader is given", query.ErrInvalid)
	}
	a := &API{
		Config: cfg, slots: make(chan struct{}, concurrent), exports: make(chan struct{}, maxExports), cache: newCache(cfg.CacheBytes), sends: newSends(maxSending), schema: rest.NewSchema(),
	}
	a.running, a.end = context.WithCancel(context.Background())
	a.patience = storePatience
	if cfg.Memory == nil { // every answer needs the store
		a.patience = cfg.Timeout
	}
	a.names.catalog, a.names.now = remembering(cfg.Names, a.patience), cfg.Now
	a.past.catalog, a.past.now = remembering(cfg.Reader, a.patience), cfg.Now
	mux, calls := http.NewServeMux(), http.NewServeMux()
	a.register(mux, calls)
	a.registerExports(mux)
	for _, path := range []string{"/openapi.json", "/api/v1/openapi.json"} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/openapi+json")
			_, _ = w.Write(rest.Document) // a client that left reads no document
		})
	}
	if cfg.Reader != nil {
		page := query.NewHandler(query.HandlerConfig{Reader: cfg.Reader, Options: query.Options{Fabric: cfg.Fabric, Thresholds: cfg.Thresholds}, Logger: cfg.Logger})
		mux.Handle("/api/v1/bundle", page)
		mux.Handle("/api/v1/frames", page)
		mux.Handle("/api/v1/extent", page)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		edge.WriteProblem(w, http.StatusNotFound, "no such resource: /openapi.json lists them")
	})
	a.handler = query.SecurityHeaders(a.withCalls(calls, a.guard(mux)))
	return a, nil
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.handler.ServeHTTP(w, r) }

// Counts returns the number of present watchers and waiting requests, and how often watchers were
// notified that they lag.
func (a *API) Counts() (watchers int, lagging uint64) {
	return int(a.watchers.Load()), a.lagging.Load()
}

// Disconnects returns how many watchers were cut off: slow ones took longer than 30 s for an event,
// and crowded ones held memory that others waited for.
func (a *API) Disconnects() (slow, crowded uint64) {
	a.sends.mu.Lock()
	defer a.sends.mu.Unlock()
	return a.sends.slow, a.sends.crowded
}

// Run prepares frequently requested answers as soon as there is a revision, until ctx ends; then
// streams and waits end as well. Without it the API still works, but the first answer takes a
// little longer.
func (a *API) Run(ctx context.Context) error {
	defer a.end()
	if a.Memory == nil {
		<-ctx.Done()
		return nil
	}
	for s := a.Memory.State(); ; {
		next, later := a.Memory.Wait(ctx, s.Epoch, s.Revision)
		if !later {
			return nil
		}
		s = next
		a.prepare(ctx, s)
	}
}
