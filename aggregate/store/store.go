package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/store/native"
	"github.com/csigscope/csigscope/ingest/retry"
)

// Options describe how to reach a server or the embedded engine. Writer, Migrator and Reader may
// be the same; the embedded engine has a connection for each, so that a slow query does not delay
// writes.
type Options struct {
	Writer   *clickhouse.Options // nil: the store is read-only
	Migrator *clickhouse.Options // nil: as Writer, or else Reader
	Reader   *clickhouse.Options // nil: as Writer

	Database string // empty: DefaultDatabase

	// Cluster names the entry in the server's system.clusters over which the database is sharded;
	// empty: the database is on that server alone. With a cluster, Reader only finds the servers,
	// and At connects to them for everything else.
	Cluster string
	// At returns the options for a server of the cluster, at host:port; required with Cluster.
	At func(address string) (*clickhouse.Options, error)
	// unreplicated is for tests, see layout.
	unreplicated bool

	Logger *slog.Logger // nil: silent

	// ToDrop also opens databases from before version 1. Only Contents and Drop work on them.
	ToDrop bool

	// Thresholds say when cells are congested; zero: aggregate.DefaultThresholds.
	Thresholds aggregate.Thresholds

	// Limits bound each question.
	Limits Limits
	// retryFor is how long to retry a batch while the server is unreachable. Only tests set it; 0 means 1 min.
	// Rows wait in memory meanwhile, and WriteBlock blocks when that is full.
	retryFor time.Duration
	// Outbox keeps batches on disk until the server has them, however long that takes; nil: in
	// memory, for at most 1 min.
	Outbox *Outbox
	// Later opens a store with an Outbox while its server is unreachable; nil: Open then fails.
	Later *Later
}

// Store writes to and reads from one database. It is safe for concurrent use.
//
// Errors of questions wrap ErrQuestion (invalid), ErrLimit and ErrTooManyRows (beyond a limit),
// ErrNotReady (the server was not reached yet), ErrBusy and ErrUnreachable (try again later),
// ErrDenied or ErrNoSchema; other errors of the server have its text. Writing to a store without a
// writer is ErrReadOnly.
type Store struct {
	database string
	layout   layout
	host     string
	schema   []migration // in the order of application
	logger   *slog.Logger
	limits   Limits
	settings clickhouse.Settings // the limits and meanings that the reader's user may set
	maxRows  int

	thresholds aggregate.Thresholds

	dialing   sync.Mutex
	conns     []driver.Conn // guarded by dialing
	migrator  driver.Conn
	reader    driver.Conn
	names     driver.Conn // of the writer
	fleet     *fleet      // the servers of the cluster; nil without one
	pins      pins
	writer    *writer // nil without a writer
	retry     attempts
	latency   latency
	contested atomic.Pointer[func(refused, held fabric.Name)]

	server        readiness
	stopPreparing func() // nil without Later

	deliveries []*delivery // of outboxes, the own one first; none without
	left       uint64      // in them after Close
	trims      trimCounts

	unlisted    map[string]*atomic.Uint64 // names that the last list of a table left out
	unlistedLog retry.LogThrottle
}

// Open connects, and refuses servers before 24.8 (ErrOldServer) and databases from before version
// 1 of the schema (ErrEarlierSchema). It changes nothing: Migrate creates the schema. The caller
// closes the store.
//
// With Later, Open does not need the server. Rows go into the outbox at once, and the store
// connects and migrates in the background, with retries until it succeeds. Until then questions
// fail with ErrNotReady. If the server answers in time and refuses the store, Open returns the
// same error as without Later.
func Open(ctx context.Context, o Options) (*Store, error) {
	s := &Store{
		database:   cmp.Or(o.Database, DefaultDatabase),
		logger:     o.Logger,
		limits:     o.Limits.withDefaults(),
		thresholds: cmp.Or(o.Thresholds, aggregate.DefaultThresholds()),
		unlisted:   map[string]*atomic.Uint64{groupNames: {}, locationNames: {}},
	}
	s.layout = layout{database: s.database, cluster: o.Cluster, unreplicated: o.unreplicated}
	s.maxRows = int(min(s.limits.ResultRows, math.MaxInt32))
	if !databaseName.MatchString(s.database) {
		return nil, fmt.Errorf("open store: database %q: expected letters, digits and _, at most 64", s.database)
	}
	if o.Cluster != "" {
		if err := CheckCluster(o.Cluster); err != nil {
			return nil, fmt.Errorf("open store: %w", err)
		}
		if o.At == nil {
			return nil, errors.New("open store: expected how the servers of the cluster are reached")
		}
	}
	s.logger = cmp.Or(s.logger, slog.New(slog.DiscardHandler))
	if o.Reader == nil {
		o.Reader = o.Writer
	}
	if o.Reader == nil {
		return nil, errors.New("open store: expected a writer or a reader")
	}
	if o.Migrator == nil {
		o.Migrator = cmp.Or(o.Writer, o.Reader)
	}
	s.host = strings.Join(o.Reader.Addr, ",")
	if err := s.connect(ctx, &o); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Store) connect(ctx context.Context, o *Options) error {
	var err error
	if s.reader, err = s.dial(o.Reader); err != nil {
		return err
	}
	if s.layout.clustered() {
		s.openFleet(s.reader, o)
		s.reader, s.migrator = s.fleet.any, s.fleet.any
	} else if s.migrator, err = s.dial(o.Migrator); err != nil {
		return err
	}
	if o.Later != nil {
		return s.openLater(ctx, o)
	}
	if err := s.meet(ctx, o); err != nil {
		return err
	}
	if o.Writer == nil {
		return nil
	}
	return s.openWriter(o)
}

// meet reads the server's version and settings, and refuses servers and databases that this
// program cannot use.
func (s *Store) meet(ctx context.Context, o *Options) error {
	version, err := s.serverVersion(ctx)
	if err != nil {
		return err
	}
	if s.schema, err = migrations(s.layout, version); err != nil {
		return err
	}
	if s.layout.clustered() {
		if err := s.discover(ctx); err != nil {
			return err
		}
	}
	if err := s.limitQuestions(ctx); err != nil {
		return err
	}
	if o.ToDrop {
		return nil
	}
	return s.refuseOthers(ctx, s.migrator)
}

// openWriter accepts rows from now on.
func (s *Store) openWriter(o *Options) error {
	if s.fleet != nil {
		s.names = s.fleet.any
	} else {
		var err error
		if s.names, err = s.dial(o.Writer); err != nil {
			return err
		}
	}
	s.retry = attempts{limit: cmp.Or(o.retryFor, time.Minute), logger: s.logger}
	to := &server{Store: s}
	send := func(ctx context.Context, list []*batch, _ []byte) error {
		if err := to.sendBatch(ctx, list[0], ""); err != nil || len(list[0].flows) == 0 {
			return err
		}
		return s.sendRecords(ctx, flowTable.insertion(list[0].flows))
	}
	sending := s.retry
	if o.Outbox != nil {
		if err := s.openOutboxes(o.Outbox, to, s.retry.limit); err != nil {
			return err
		}
		send = s.deliveries[0].take
		// Names and ends must not be lost, so they wait on disk, and so may the rows that refer
		// to them.
		s.retry.limit = math.MaxInt64
		sending.limit = 0 // take itself limits how long it retries
	}
	s.writer = newWriter(send, o.Outbox != nil, sending)
	s.writer.start()
	return nil
}

// dial does not connect yet: connections are made when they are needed.
func (s *Store) dial(o *clickhouse.Options) (driver.Conn, error) {
	conn, err := clickhouse.Open(native.Checked(o))
	if err != nil {
		return nil, s.describe("open store", err)
	}
	s.dialing.Lock()
	defer s.dialing.Unlock()
	s.conns = append(s.conns, conn)
	return conn, nil
}

func (s *Store) serverVersion(ctx context.Context) (version, error) {
	ctx, cancel := context.WithTimeout(ctx, s.limits.Time)
	defer cancel()
	var text string
	if err := s.reader.QueryRow(undated{ctx}, "SELECT version()").Scan(&text); err != nil {
		return version{}, s.describe("open store", err)
	}
	return parseVersion(text)
}

// Close sends buffered rows, waits for them, and closes the connections. Its error reports rows
// that could not be written, which are lost. With an outbox it does not wait for an unreachable
// server: the next store that opens the outbox sends the remaining rows.
func (s *Store) Close() error {
	var failed error
	for _, d := range s.deliveries {
		d.closing.Store(true)
	}
	if s.writer != nil {
		failed = s.describe("write partials", s.writer.close())
	}
	for _, d := range s.deliveries {
		left, err := d.close()
		s.left += left
		failed = errors.Join(failed, err)
	}
	if s.stopPreparing != nil {
		s.stopPreparing()
	}
	s.deliveries = nil
	s.dialing.Lock()
	defer s.dialing.Unlock()
	for _, c := range s.conns {
		failed = errors.Join(failed, c.Close())
	}
	s.conns = nil
	return failed
}

// Left returns, after Close, how many rows wait in outboxes for the next command.
func (s *Store) Left() uint64 { return s.left }

// query runs a bounded query on a server that is ready, and calls row for each row of its answer.
func (s *Store) query(ctx context.Context, conn driver.Conn, what, query string, row func(driver.Rows) error) error {
	if err := s.server.err(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return s.read(s.within(ctx), conn, what, query, s.maxRows, row)
}

// queryRows returns the rows of an answer, as scan reads each of them.
func queryRows[T any](ctx context.Context, s *Store, what, query string, scan func(driver.Rows) (T, error)) (list []T, err error) {
	err = s.query(ctx, s.reader, what, query, func(rows driver.Rows) error {
		r, err := scan(rows)
		list = append(list, r)
		return err
	})
	return list, err
}

// list is query for the store's own lists, such as those of tables and parts. They bound their rows
// themselves: Limits.ResultRows is for answers.
func (s *Store) list(ctx context.Context, conn driver.Conn, what, query string, row func(driver.Rows) error) error {
	if err := s.server.err(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return s.ask(ctx, conn, what, query, row)
}

// ask is list for the preparation of the server, before it is ready.
func (s *Store) ask(ctx context.Context, conn driver.Conn, what, query string, row func(driver.Rows) error) error {
	return s.read(s.listing(ctx), conn, what, query, math.MaxInt, row)
}

func (s *Store) read(ctx context.Context, conn driver.Conn, what, query string, maxRows int, row func(driver.Rows) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.limits.Time)
	defer cancel()
	rows, err := conn.Query(undated{ctx}, query)
	if err != nil {
		return s.describeQuestion(what, err)
	}
	defer rows.Close()
	for n := 0; rows.Next(); n++ {
		if n >= maxRows {
			return fmt.Errorf("%s at %s: %w: more than %d, ask for a shorter range or a longer step", what, s.host, ErrTooManyRows, maxRows)
		}
		if err := row(rows); err != nil {
			return s.describe(what, err)
		}
	}
	return s.describeQuestion(what, rows.Err())
}
