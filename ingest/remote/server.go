package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/ingest/edge"
	"github.com/csigscope/csigscope/ingest/wire"
)

// Sink receives exporters' blocks; store.Resendable is one. An exporter sends its blocks again until they
// are durable.
type Sink interface {
	// WriteBlock takes rows and copies those it keeps. An error concerns only this block. It is
	// called from several goroutines.
	WriteBlock(context.Context, *aggregate.Block) error
	// Sync returns nil once all earlier blocks are durable.
	Sync(context.Context) error
}

// ServerConfig configures a collector.
type ServerConfig struct {
	// Listen is the address of Run, such as "127.0.0.1:4319". Beyond loopback it requires TLS
	// and authentication.
	Listen string
	// DangerouslyExposed lets Run listen beyond loopback without them.
	DangerouslyExposed bool
	Auth               edge.Auth // Allows is set from the Admission
	Admission                    // at the start; see Use
	// Observations configures the aggregation of observations at the start; nil: they are refused.
	// Of Source only Epoch is used; SeqBase is not. The caller writes the groups and locations that
	// its resolver finds, at the latest when the sink's Sync is called.
	Observations *window.Config
	// Batches takes the rows of observations, which the server writes once; nil: the sink takes them. If an
	// exporter sends a batch again, the server only waits for its rows, so they must not be discarded. The
	// sink's Sync makes them durable.
	Batches aggregate.Sink
	// CommitEvery is the minimum time for which blocks are gathered for one Sync; 500 ms by
	// default. It adds to the delay until they can be queried; a longer time reduces the
	// store's work.
	CommitEvery time.Duration
	// Timeout is the time limit of a request, which may wait for the store; 30 s by default.
	Timeout time.Duration
	// Live receives the windows that peers share; nil: they are refused. It copies what it
	// keeps, and is called from several goroutines.
	Live aggregate.Sink
	// Provisional receives provisional rows of exporters, and LiveProvisional those that peers
	// share; nil: they are ignored.
	Provisional, LiveProvisional aggregate.ProvisionalSink

	Now    func() time.Time // nil: time.Now
	Logger *slog.Logger     // nil: silent
}

// Server is the collector's side. Its methods are safe for concurrent use.
type Server struct {
	cfg         ServerConfig
	limits      Limits // of all exporters together
	admitted    atomic.Pointer[admitted]
	sink        Sink
	now         func() time.Time
	logger      *slog.Logger
	edge        *edge.Server
	names       *registry
	kept        *keptWindows
	observer    atomic.Pointer[observer] // nil: none
	observing   chan struct{}            // a token for the request that aggregates observations
	commits     *group[struct{}]
	announces   *group[announcement]
	recordGroup *group[exporterRecords]
	ends        *group[ending]
	decoding    chan struct{} // a token for each request that may be decoded
	handler     http.Handler
	errors      *connect.ErrorWriter
	uniqueRows  sync.Pool
	bodies      sync.Pool
	buffered    atomic.Int64 // bytes of running requests

	reviewEvery time.Duration

	unauthenticated counts // unidentified clients

	mu        sync.Mutex
	exporters map[string]*exporter
	peers     map[string]*exporter // collectors that share their windows; at most as many as were ever listed
	owners    map[uint64]string    // exporter of each producer
	gone      Counts               // of forgotten exporters
	forgotten uint64
}

// NewServer makes a collector that writes blocks to the sink and their meaning to the
// directory. It reads credentials and registers with the directory (NotifyContested), and does
// nothing else before Run or Serve.
func NewServer(cfg ServerConfig, sink Sink, directory Directory) (*Server, error) {
	limits, err := cfg.Limits.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("configure collector: %w", err)
	}
	setDefault(&cfg.CommitEvery, 500*time.Millisecond)
	setDefault(&cfg.Timeout, 30*time.Second)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Batches == nil {
		cfg.Batches = sink
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	s := &Server{
		cfg: cfg, limits: limits, sink: sink, now: cfg.Now, logger: cfg.Logger,
		names:    newRegistry(directory, cfg.Logger),
		kept:     &keptWindows{windows: newFairCache[windowKey, *keptWindow](maxExporterWindows, maxCountedWindows)},
		decoding: make(chan struct{}, limits.MaxDecoding), observing: make(chan struct{}, 1),
		uniqueRows: sync.Pool{New: func() any { return new(uniqueRows) }},
		exporters:  map[string]*exporter{}, peers: map[string]*exporter{}, owners: map[uint64]string{}, reviewEvery: reviewEvery,
	}
	s.commits = newGroup(cfg.CommitEvery, cfg.Timeout, func(ctx context.Context, _ []struct{}) error { return sink.Sync(ctx) })
	s.announces = newGroup(0, cfg.Timeout, s.names.announce)
	directory.NotifyContested(s.contested)
	s.recordGroup = newGroup(cfg.CommitEvery, cfg.Timeout, recordWriter{directory}.write)
	s.ends = newGroup(cfg.CommitEvery, cfg.Timeout, recordWriter{directory}.end)
	if err := s.Use(cfg.Admission, cfg.Observations); err != nil {
		return nil, err
	}
	if s.edge, err = s.newEdge(); err != nil {
		return nil, fmt.Errorf("configure collector: %w", err)
	}
	options := s.options()
	_, s.handler = wire.NewIngestServiceHandler(service{s}, options...)
	s.errors = connect.NewErrorWriter(options...)
	return s, nil
}

func (s *Server) refuseUnauthenticated(r Reason, attrs ...slog.Attr) {
	s.unauthenticated.refuse(s.logger, s.now(), "refused a client", r, attrs...)
}

// refuse counts and logs a refusal of an exporter.
func (s *Server) refuse(e *exporter, r Reason, attrs ...slog.Attr) {
	e.counts.refuse(s.logger, s.now(), "refused a request, windows or findings", r, append([]slog.Attr{slog.String("exporter", e.name)}, attrs...)...)
}

// HoldNames registers the collector's own description, in place of an earlier one. The caller writes
// it to the directory: exporters with the same configuration need not send it, and no exporter can
// change its names.
func (s *Server) HoldNames(d Description) { s.names.adopt(d) }

// client returns or adds an exporter, or a peer, under its limits; nil if there are too many busy
// exporters.
func (s *Server) client(name string, l *Limits, peer bool) *exporter {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.exporters
	if peer {
		known = s.peers
	}
	e := known[name]
	if e == nil {
		if !peer && len(known) >= s.limits.MaxExporters && !s.forget() {
			return nil
		}
		e = newExporter(name, l)
		e.peer = peer
		known[name] = e
	}
	e.arrive(l, s.now())
	return e
}

// forget evicts the idle exporter that has been silent for longest. The caller holds mu.
func (s *Server) forget() bool {
	var oldest *exporter
	for _, e := range s.exporters {
		if e.inFlight.Load() == 0 && (oldest == nil || e.last.Load() < oldest.last.Load()) {
			oldest = e
		}
	}
	if oldest == nil {
		return false
	}
	delete(s.exporters, oldest.name)
	maps.DeleteFunc(s.owners, func(_ uint64, name string) bool { return name == oldest.name })
	s.kept.forget(oldest.name)
	c := oldest.counts.snapshot()
	s.gone.Merge(&c)
	s.forgotten++
	return true
}

// enter is exporter.enter for an item whose producer is the exporter's own or free. Each stream of an
// exporter has an entry in owners. An outcome other than OUTCOME_STORED refuses the item, or says that
// its number is taken.
func (s *Server) enter(e *exporter, at blockID) wire.Outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	if owner, taken := s.owners[at.producer]; taken && owner != e.name {
		return wire.Outcome_OUTCOME_FOREIGN
	}
	o, gone := e.enter(at, s.now())
	for _, producer := range gone {
		delete(s.owners, producer)
	}
	if len(gone) > 0 {
		s.kept.forget(e.name, gone...)
	}
	if o != wire.Outcome_OUTCOME_STREAMS {
		s.owners[at.producer] = e.name
	}
	return o
}

// ExporterStats holds the outcomes of one exporter's items.
type ExporterStats struct {
	Name string
	Last time.Time // of its last request; zero if there was none
	// ClockOffset is how far its clock is ahead of the collector's, less the delay of its
	// fastest request in the last minutes; 0 if unknown.
	ClockOffset time.Duration
	Counts
}

// ServerStats is a snapshot of a collector's counters.
type ServerStats struct {
	Total           Counts          // of all exporters, including removed and forgotten ones
	Unauthenticated Counts          // of unidentified clients: only Refused
	Exporters       []ExporterStats // that may send
	Removed         []ExporterStats // that sent, and may no longer
	Peers           []ExporterStats // collectors that may share their windows; not in Total
	Forgotten       uint64
	Gone            Counts // of forgotten exporters
	// Names is the number of cached groups and locations of exporters, ForgottenNames that of
	// evicted ones. An evicted name that returns is passed to the directory again.
	Names          int
	ForgottenNames uint64
}

// Stats returns a snapshot of the collector's counters, with exporters sorted by name. It
// includes exporters that are listed or have a token but have not connected yet.
func (s *Server) Stats() ServerStats {
	s.mu.Lock()
	st := ServerStats{Total: s.gone, Gone: s.gone, Forgotten: s.forgotten, Unauthenticated: s.unauthenticated.snapshot()}
	list := slices.Collect(maps.Values(s.exporters))
	peers := slices.Collect(maps.Values(s.peers))
	s.mu.Unlock()
	s.names.mu.Lock()
	st.Names, st.ForgottenNames = len(s.names.names.entries), s.names.names.evicted
	s.names.mu.Unlock()
	now, came := s.now(), make(map[string]bool, len(list))
	in, tokens := s.admitted.Load(), s.edge.Names()
	tokenOf := map[string]bool{s.cfg.Auth.Anonymous.Name: true}
	for _, name := range tokens {
		tokenOf[name] = true
	}
	for _, e := range list {
		one := e.stats(now)
		st.Total.Merge(&one.Counts)
		if in.of(e.name) == nil || s.cfg.Auth.TLS.CA == "" && !tokenOf[e.name] { // with an authority, it may have a certificate
			st.Removed = append(st.Removed, one)
			continue
		}
		st.Exporters = append(st.Exporters, one)
		came[e.name] = true
	}
	for _, e := range peers {
		if slices.Contains(in.peers, e.name) {
			st.Peers = append(st.Peers, e.stats(now))
		}
	}
	for _, name := range slices.Concat(in.named, tokens) {
		if !came[name] && in.of(name) != nil {
			st.Exporters = append(st.Exporters, ExporterStats{Name: name})
			came[name] = true
		}
	}
	byName := func(a, b ExporterStats) int { return strings.Compare(a.Name, b.Name) }
	slices.SortFunc(st.Exporters, byName)
	slices.SortFunc(st.Removed, byName)
	slices.SortFunc(st.Peers, byName)
	return st
}

func (e *exporter) stats(now time.Time) ExporterStats {
	return ExporterStats{e.name, time.Unix(0, e.last.Load()), e.clock.ahead(now), e.counts.snapshot()}
}

// errBusy makes an exporter retry, for a limit of the whole collector.
var errBusy = errors.New("the collector is busy: try again later")

const (
	headerTime    = 10 * time.Second // to read a request's header, or its body
	idleTime      = 3 * time.Minute  // of a connection
	shutdownTime  = 10 * time.Second // for running requests at the end
	maxConnStream = 16               // concurrent requests per connection
	receiveBuffer = 256 << 10
)

// newEdge makes the server that identifies exporters.
func (s *Server) newEdge() (*edge.Server, error) {
	auth := s.cfg.Auth
	auth.Allows = func(name string) bool { return s.admitted.Load().lets(name) }
	return edge.New(edge.Config{
		Auth: &auth, Exposed: s.cfg.DangerouslyExposed, MaxConns: s.limits.MaxConns,
		Header: headerTime, Read: -1, Write: -1, Idle: idleTime, Grace: shutdownTime, // bodies have a deadline of their own
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxConnStream, MaxReceiveBufferPerConnection: receiveBuffer, MaxReceiveBufferPerStream: receiveBuffer,
		},
		Refused: func(r edge.Reason, attrs ...slog.Attr) {
			if len(attrs) == 0 {
				s.unauthenticated.refused(Reason(r), 1)
				return
			}
			s.refuseUnauthenticated(Reason(r), attrs...)
		},
		Now: s.now, Logger: s.logger,
	})
}

// Run listens and serves until the context ends.
func (s *Server) Run(ctx context.Context) error {
	if err := s.edge.Listen(ctx, s.cfg.Listen, "--ingest-listen"); err != nil {
		return fmt.Errorf("run collector: %w", err)
	}
	return s.serveEdge(ctx)
}

// Serve serves a listener until the context ends, and closes it. The caller has to check that
// the address is safe. It may be called once.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	s.edge.ListenOn(ln)
	return s.serveEdge(ctx)
}

func (s *Server) serveEdge(ctx context.Context) error {
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	var working sync.WaitGroup
	working.Go(func() { s.work(work) })
	defer working.Wait()
	defer stop()
	s.logger.Info("collector listens", slog.String("url", s.edge.URL()))
	if err := s.edge.Serve(ctx, s); err != nil {
		return fmt.Errorf("run collector: %w", err)
	}
	return nil
}

// work runs the groups and loops that requests depend on, until the context ends.
func (s *Server) work(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { s.commits.run(ctx) })
	all.Go(func() { s.announces.run(ctx) })
	all.Go(func() { s.recordGroup.run(ctx) })
	all.Go(func() { s.ends.run(ctx) })
	all.Go(func() { s.review(ctx) })
	all.Wait()
}
