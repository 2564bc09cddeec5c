package remote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/ingest/credential"
	"github.com/csigscope/csigscope/ingest/wire"
)

// Sink takes what exporters handed in; *store.Store is one.
type Sink interface {
	// WriteBlock takes rows; it copies what it keeps. An error concerns this block alone.
	// It is called from several goroutines.
	WriteBlock(context.Context, *aggregate.Block) error
	// Sync returns nil when all that WriteBlock took before is durable.
	Sync(context.Context) error
}

// ServerConfig is what a collector needs to know.
type ServerConfig struct {
	// Listen is the address of Run, such as "127.0.0.1:4319". Beyond loopback it takes
	// TLS and authentication.
	Listen string
	// DangerouslyExposed lets Run listen beyond loopback without them.
	DangerouslyExposed bool
	Auth               Auth
	Admission          // at the start; see Use
	// CommitEvery is how long blocks are gathered for one Sync, at least; 500 ms unless
	// set. It is part of the time until they can be asked for; a store has less to do
	// where it is longer.
	CommitEvery time.Duration
	// Timeout is how long a request may take, for the store to be slow; 30 s unless set.
	Timeout time.Duration
	// Known are descriptions that the caller writes to the directory: exporters that were
	// configured alike need not hand them in, and cannot change what they name.
	Known []Description
	// Waiting is where names and runs wait for a directory that is away; nil: exporters wait.
	Waiting Keeper
	// Observations is how observations are aggregated; nil: they are refused. Source,
	// SeqBase and Sink are not used, but for Source.Epoch. The groups and locations that
	// its resolver finds are the caller's to write.
	Observations *window.Config

	Now    func() time.Time // nil: time.Now
	Logger *slog.Logger     // nil: silent
}

// Server is the collector's side. Its methods are safe for concurrent use.
type Server struct {
	cfg       ServerConfig
	limits    Limits // of all exporters together
	admitted  atomic.Pointer[admitted]
	local     bool // this machine alone reaches the listener; set before serving
	pages     *http.CrossOriginProtection
	sink      Sink
	now       func() time.Time
	logger    *slog.Logger
	gate      *credential.Gate
	names     *registry
	backlog   *backlog
	observer  *observer // nil: none
	commits   *group[struct{}]
	announces *group[announcement]
	tellings  *group[telling]
	ends      *ender
	decoding  chan struct{} // a token for each request that may be decoded
	handler   http.Handler
	errors    *connect.ErrorWriter
	folders   sync.Pool
	bodies    sync.Pool
	buffered  atomic.Int64 // bytes of requests under way

	reviewEvery time.Duration

	strangers counts // of peers that are nobody

	mu        sync.Mutex
	exporters map[string]*exporter
	owners    map[uint64]string // of producers
	gone      Counts            // of exporters that were forgotten
	forgotten uint64
}

// NewServer makes a collector that gives what it takes to the sink, and what it means to
// the directory. It reads credentials and what waits, and does nothing else before Run or
// Serve.
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
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		cfg: cfg, limits: limits, pages: http.NewCrossOriginProtection(), sink: sink, now: cfg.Now, logger: cfg.Logger,
		names:     newRegistry(directory, cfg.Logger),
		decoding:  make(chan struct{}, limits.MaxDecoding),
		exporters: map[string]*exporter{}, owners: map[uint64]string{}, reviewEvery: reviewEvery,
	}
	s.commits = newGroup(cfg.CommitEvery, cfg.Timeout, func(ctx context.Context, _ []struct{}) error { return sink.Sync(ctx) })
	s.backlog = &backlog{
		names: s.names, keeper: cfg.Waiting, logger: cfg.Logger, patience: directoryPatience,
		disputed: s.disputeLater, wake: make(chan struct{}, 1),
	}
	s.announces = newGroup(0, cfg.Timeout, s.backlog.announce)
	s.tellings = newGroup(cfg.CommitEvery, cfg.Timeout, teller{directory}.write)
	s.ends = newEnder(directory, cfg.CommitEvery, cfg.Now, cfg.Logger, s.giveUpEnds)
	if err := s.Use(cfg.Admission); err != nil {
		return nil, err
	}
	allows := func(name string) bool { return s.admitted.Load().of(name) != nil }
	if s.gate, err = newGate(&cfg.Auth, allows, cfg.Now, cfg.Logger, s.refuseStranger); err != nil {
		return nil, fmt.Errorf("configure collector: %w", err)
	}
	if cfg.Observations != nil {
		if s.observer, err = newObserver(*cfg.Observations); err != nil {
			return nil, fmt.Errorf("configure collector: %w", err)
		}
	}
	s.names.adopt(cfg.Known)
	s.backlog.load()
	options := s.options()
	_, s.handler = wire.NewIngestServiceHandler(service{s}, options...)
	s.errors = connect.NewErrorWriter(options...)
	return s, nil
}

func (s *Server) refuseStranger(r Reason, attrs ...slog.Attr) {
	s.strangers.refuse(s.logger, s.now(), r, attrs...)
}

// refuse counts and logs what an exporter may not do.
func (s *Server) refuse(e *exporter, r Reason, attrs ...slog.Attr) {
	e.counts.refuse(s.logger, s.now(), r, append([]slog.Attr{slog.String("exporter", e.name)}, attrs...)...)
}

// HoldNames replaces the descriptions that are Known by another one of the collector's own.
func (s *Server) HoldNames(d Description) { s.names.adopt([]Description{d}) }

// giveUpEnds counts runs of an exporter that are not ended.
func (s *Server) giveUpEnds(exporter string, runs uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.exporters[exporter]; e != nil {
		e.counts.refused[ReasonEnds].Add(runs)
		return
	}
	s.gone.Refused[ReasonEnds] += runs
}

// exporter finds or remembers an exporter under its limits; nil where there are too many that
// are busy.
func (s *Server) exporter(name string, l *Limits) *exporter {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.exporters[name]
	if e == nil {
		if len(s.exporters) >= s.limits.MaxExporters && !s.forget() {
			return nil
		}
		e = newExporter(name, l)
		s.exporters[name] = e
	}
	e.use(l, s.now())
	e.last.Store(s.now().UnixNano())
	e.inFlight.Add(1)
	return e
}

// forget drops the exporter that was silent for longest, and is not at work. The caller
// holds mu.
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
	c := oldest.counts.snapshot()
	s.gone.Merge(&c)
	s.forgotten++
	return true
}

// owns tells whether a producer is the exporter's, or nobody's so far.
func (s *Server) owns(e *exporter, producer uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	owner, taken := s.owners[producer]
	if !taken && len(s.owners) < s.limits.MaxExporters*s.limits.MaxStreams {
		s.owners[producer] = e.name
	}
	return !taken || owner == e.name
}

// ExporterStats is what became of one exporter's blocks.
type ExporterStats struct {
	Name string
	Last time.Time // of its last request; the zero Time for one that has not come
	// ClockOffset is how far its clock is ahead of the collector's, less the delay of the
	// fastest of its requests in the last minutes; 0 where that is not known.
	ClockOffset time.Duration
	Counts
}

// ServerStats is a snapshot of a collector's counts.
type ServerStats struct {
	Total     Counts // of all exporters, those too that were forgotten
	Strangers Counts // of peers that are nobody: Refused alone
	Exporters []ExporterStats
	Forgotten uint64
}

// Stats is a snapshot of the collector's counts, by exporter in the order of names. Exporters
// whose name is listed, or has a token, are there before they come.
func (s *Server) Stats() ServerStats {
	s.mu.Lock()
	st := ServerStats{Total: s.gone, Forgotten: s.forgotten, Strangers: s.strangers.snapshot()}
	list := slices.Collect(maps.Values(s.exporters))
	s.mu.Unlock()
	now, came := s.now(), make(map[string]bool, len(list))
	for _, e := range list {
		c := e.counts.snapshot()
		st.Total.Merge(&c)
		st.Exporters = append(st.Exporters, ExporterStats{e.name, time.Unix(0, e.last.Load()), e.clock.ahead(now), c})
		came[e.name] = true
	}
	in := s.admitted.Load()
	for _, name := range slices.Concat(in.named, s.gate.Names()) {
		if !came[name] && in.of(name) != nil {
			st.Exporters = append(st.Exporters, ExporterStats{Name: name})
			came[name] = true
		}
	}
	slices.SortFunc(st.Exporters, func(a, b ExporterStats) int { return strings.Compare(a.Name, b.Name) })
	return st
}

// errBusy says that an exporter has to come again.
var errBusy = errors.New("come again later")
