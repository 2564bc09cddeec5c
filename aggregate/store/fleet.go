package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/csigscope/csigscope/ingest/retry"
)

// fleet is the connections to the servers of a cluster. It is safe for concurrent use.
type fleet struct {
	entry driver.Conn // the configured server, which knows the others
	any   *replicas   // every server: the configured one until the others are known
	dial  func(address string) (driver.Conn, error)
	away  retry.LogThrottle // servers

	mu     sync.Mutex
	conns  map[string]driver.Conn // by address
	shards []shard                // ascending by number
}

// shard is the servers that hold the same rows. A store on one server is a single shard.
type shard struct {
	number  uint32 // shard_num in system.clusters; 0 on one server
	conn    driver.Conn
	members []member // none on one server
}

// member is one server of a cluster.
type member struct {
	address string
	conn    driver.Conn
}

// maxMembers bounds the servers of a cluster.
const maxMembers = 10_000

// openFleet sets up the fleet with the configured server; discover finds the others.
func (s *Store) openFleet(entry driver.Conn, o *Options) {
	s.fleet = &fleet{entry: entry, any: newReplicas([]driver.Conn{entry}), conns: make(map[string]driver.Conn)}
	s.fleet.dial = func(address string) (driver.Conn, error) {
		options, err := o.At(address)
		if err != nil {
			return nil, fmt.Errorf("open store at %s: %w", address, err)
		}
		return s.dial(options)
	}
}

// clusterServer is a row of system.clusters.
type clusterServer struct {
	shard   uint32
	address string
}

// discover finds the servers of the cluster. It asks the configured server or, if that is
// unreachable, any other.
func (s *Store) discover(ctx context.Context) error {
	list, here, err := s.clusterServers(ctx, s.fleet.entry)
	if errors.Is(err, ErrUnreachable) || errors.Is(err, ErrBusy) {
		list, here, err = s.clusterServers(ctx, s.fleet.any)
	}
	if err != nil {
		return err
	}
	return s.fleet.adopt(list, here)
}

// clusterServers are in the order of shards; here is the index of the server that answers.
func (s *Store) clusterServers(ctx context.Context, conn driver.Conn) (list []clusterServer, here int, err error) {
	what := "find cluster " + s.layout.cluster
	query := fmt.Sprintf("SELECT shard_num, host_name, port, is_local FROM system.clusters WHERE cluster = '%s' ORDER BY shard_num, replica_num LIMIT %d", s.layout.cluster, maxMembers)
	err = s.ask(ctx, conn, what, query, func(rows driver.Rows) error {
		var c clusterServer
		var host string
		var port uint16
		var local uint8
		if err := rows.Scan(&c.shard, &host, &port, &local); err != nil {
			return err
		}
		if local != 0 {
			here = len(list)
		}
		c.address = net.JoinHostPort(host, strconv.Itoa(int(port)))
		list = append(list, c)
		return nil
	})
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("%s at %s: %w: system.clusters has no such cluster: check store.cluster and the remote_servers of that server", what, s.host, ErrCluster)
	}
	return list, here, err
}

// adopt connects to the listed servers, and keeps existing connections.
func (f *fleet) adopt(list []clusterServer, here int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var shards []shard
	var all []driver.Conn
	for _, c := range list {
		conn, ok := f.conns[c.address]
		if !ok {
			var err error
			if conn, err = f.dial(c.address); err != nil {
				return err
			}
			f.conns[c.address] = conn
		}
		all = append(all, conn)
		if n := len(shards); n == 0 || shards[n-1].number != c.shard {
			shards = append(shards, shard{number: c.shard})
		}
		to := &shards[len(shards)-1]
		to.members = append(to.members, member{c.address, conn})
	}
	for i := range shards {
		shards[i].conn = f.shardConn(&shards[i])
	}
	f.shards = shards
	// Queries start at the configured server if it is part of the cluster.
	f.any.set(slices.Concat(all[here:], all[:here]))
	return nil
}

// shardConn keeps the shard's connection to a replica as long as the shard has the same servers.
func (f *fleet) shardConn(of *shard) driver.Conn {
	for _, known := range f.shards {
		if known.number == of.number && slices.Equal(known.members, of.members) {
			return known.conn
		}
	}
	var conns []driver.Conn
	for _, m := range of.members {
		conns = append(conns, m.conn)
	}
	return newReplicas(conns)
}

// shards are the cluster's shards, or for one server a single shard on conn.
func (s *Store) shards(conn driver.Conn) []shard {
	if s.fleet == nil {
		return []shard{{conn: conn}}
	}
	s.fleet.mu.Lock()
	defer s.fleet.mu.Unlock()
	return s.fleet.shards
}

// onServers calls f for each server: the migrator's, or all of the cluster. It skips unreachable
// servers, as long as one server of their shard answers.
func (s *Store) onServers(ctx context.Context, f func(driver.Conn) error) error {
	if s.fleet == nil {
		return f(s.migrator)
	}
	for _, sh := range s.shards(nil) {
		answered, away := false, error(nil)
		for _, m := range sh.members {
			switch err := f(m.conn); {
			case err == nil:
				answered = true
			case ctx.Err() == nil && (errors.Is(err, ErrUnreachable) || errors.Is(err, ErrBusy) || connectionLost(err)):
				s.fleet.away.Warn(s.logger, time.Now(), "a server of the cluster is away", slog.String("server", m.address), slog.String("error", oneLine(err)))
				away = cmp.Or(away, err)
			default:
				return fmt.Errorf("server %s of cluster %s: %w", m.address, s.layout.cluster, err)
			}
		}
		if !answered {
			return fmt.Errorf("shard %d of cluster %s: %w", sh.number, s.layout.cluster, away)
		}
	}
	return nil
}

// inserting is the context of an insert. On a cluster the insert returns once most replicas of a
// shard have the rows, so that they survive the loss of a server.
func (s *Store) inserting(ctx context.Context, settings clickhouse.Settings) context.Context {
	if settings == nil {
		settings = clickhouse.Settings{}
	}
	if s.layout.clustered() {
		settings["insert_quorum"] = "auto"
		settings["insert_quorum_parallel"] = 1 // or else no replica drops the last part of a partition
	}
	return clickhouse.Context(ctx, clickhouse.WithSettings(settings))
}

// replicas is a connection to any of several equivalent servers. It stays with a server until
// that one fails. It is safe for concurrent use.
type replicas struct {
	driver.Conn // the first, for methods that ask no server

	list atomic.Pointer[[]driver.Conn]
	at   atomic.Uint32 // modulo the length of list
}

func newReplicas(list []driver.Conn) *replicas {
	r := &replicas{Conn: list[0]}
	r.list.Store(&list)
	return r
}

// set replaces the servers, and switches to the first unless the list is unchanged.
func (r *replicas) set(list []driver.Conn) {
	if !slices.Equal(*r.list.Load(), list) {
		r.list.Store(&list)
		r.at.Store(0)
	}
}

// try calls f with one server after another until one does not fail.
func (r *replicas) try(ctx context.Context, f func(driver.Conn) error) (err error) {
	list := *r.list.Load()
	for range list {
		at := r.at.Load()
		err = f(list[int(at)%len(list)])
		if !serverFailed(err) || errors.Is(ctx.Err(), context.Canceled) {
			return err
		}
		r.at.CompareAndSwap(at, at+1)
		if ctx.Err() != nil {
			return err
		}
	}
	return err
}

// onOne calls f with one server behind conn, and starts over with the next if that one fails.
func onOne(ctx context.Context, conn driver.Conn, f func(driver.Conn) error) error {
	if r, ok := conn.(*replicas); ok {
		return r.try(ctx, f)
	}
	return f(conn)
}

// Query implements driver.Conn.
func (r *replicas) Query(ctx context.Context, query string, args ...any) (rows driver.Rows, err error) {
	err = r.try(ctx, func(c driver.Conn) error {
		rows, err = c.Query(ctx, query, args...)
		return err
	})
	return rows, err
}

// QueryRow implements driver.Conn.
func (r *replicas) QueryRow(ctx context.Context, query string, args ...any) (row driver.Row) {
	_ = r.try(ctx, func(c driver.Conn) error {
		row = c.QueryRow(ctx, query, args...)
		return row.Err()
	})
	return row
}

// Exec implements driver.Conn.
func (r *replicas) Exec(ctx context.Context, query string, args ...any) error {
	return r.try(ctx, func(c driver.Conn) error { return c.Exec(ctx, query, args...) })
}

// Ping implements driver.Conn.
func (r *replicas) Ping(ctx context.Context) error {
	return r.try(ctx, func(c driver.Conn) error { return c.Ping(ctx) })
}

// PrepareBatch implements driver.Conn. If sending a batch fails, the batch is not sent to another
// server, but the next batch is.
func (r *replicas) PrepareBatch(ctx context.Context, query string, options ...driver.PrepareBatchOption) (batch driver.Batch, err error) {
	var at uint32
	err = r.try(ctx, func(c driver.Conn) error {
		at = r.at.Load()
		batch, err = c.PrepareBatch(ctx, query, options...)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &replicaBatch{batch, func() { r.at.CompareAndSwap(at, at+1) }}, nil
}

type replicaBatch struct {
	driver.Batch
	leave func() // switches to the next server
}

// Send implements driver.Batch.
func (b *replicaBatch) Send() error {
	err := b.Batch.Send()
	if serverFailed(err) {
		b.leave()
	}
	return err
}
