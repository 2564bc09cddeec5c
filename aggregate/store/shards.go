package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/cespare/xxhash/v2"
)

// On a cluster, all rows of one incarnation of a producer are on one shard: FINAL removes a
// duplicate row only within a shard. The table shards records the shard for all collectors, so
// that a shard added later splits no incarnation: it gets only those that begin afterwards.

// identity is the unit that is pinned to a shard.
type identity struct{ producer, incarnation uint64 }

// identities are a set, in insertion order.
type identities struct {
	list []identity
	seen map[identity]bool
}

func (s *identities) add(id identity) {
	if s.seen == nil {
		s.seen = make(map[identity]bool)
	}
	if !s.seen[id] {
		s.seen[id] = true
		s.list = append(s.list, id)
	}
}

// pins caches the shards of identities.
type pins struct {
	mu    sync.Mutex
	known map[identity]uint32
}

const (
	// maxPins bounds the memory of pins; further ones are read again.
	maxPins = 1 << 17
	// pinsAtOnce is the maximum number of identities in a query.
	pinsAtOnce = 1000
)

// errUnpinned is the error of pins that were written and cannot be read yet.
var errUnpinned = errors.New("the shard of new rows is not known yet")

// pinned returns the shard of each identity. New identities are pinned to a shard of the present
// cluster, and their pins are on disk when pinned returns.
func (s *Store) pinned(ctx context.Context, list []identity) (map[identity]uint32, error) {
	s.pins.mu.Lock()
	defer s.pins.mu.Unlock()
	if len(s.pins.known) > maxPins || s.pins.known == nil {
		s.pins.known = make(map[identity]uint32)
	}
	known := make(map[identity]uint32, len(list))
	var unknown []identity
	for _, id := range list {
		if n, ok := s.pins.known[id]; ok {
			known[id] = n
		} else {
			unknown = append(unknown, id)
		}
	}
	for part := range slices.Chunk(unknown, pinsAtOnce) {
		found, err := s.pin(ctx, part)
		if err != nil {
			return nil, err
		}
		for id, n := range found {
			known[id], s.pins.known[id] = n, n
		}
	}
	return known, nil
}

// pin reads the shards of identities, and records one for those that have none. If several
// collectors do so at once, the first one wins: the table drops further inserts with the same
// token. The losers read the winner's shard.
func (s *Store) pin(ctx context.Context, list []identity) (map[identity]uint32, error) {
	found, err := s.readPins(ctx, list)
	if err != nil || len(found) == len(list) {
		return found, err
	}
	if err := s.discover(ctx); err != nil {
		return nil, err
	}
	shards := s.shards(nil)
	for _, id := range list {
		if _, ok := found[id]; ok {
			continue
		}
		if err := s.writePin(ctx, id, rendezvous(id, shards)); err != nil {
			return nil, s.describe("pin a shard", err)
		}
	}
	if found, err = s.readPins(ctx, list); err == nil && len(found) < len(list) {
		err = errUnpinned // a replica that is behind
	}
	return found, err
}

func (s *Store) readPins(ctx context.Context, list []identity) (map[identity]uint32, error) {
	texts := make([]string, len(list))
	for i, id := range list {
		texts[i] = fmt.Sprintf("(%d, %d)", id.producer, id.incarnation)
	}
	query := fmt.Sprintf("SELECT producer, incarnation, argMin(shard, (at, shard)) FROM %s.%s WHERE (producer, incarnation) IN (%s) GROUP BY producer, incarnation",
		s.database, shardsTable, strings.Join(texts, ", "))
	found := make(map[identity]uint32, len(list))
	err := s.query(ctx, s.reader, "read shards", query, func(rows driver.Rows) error {
		var id identity
		var n uint32
		err := rows.Scan(&id.producer, &id.incarnation, &n)
		found[id] = n
		return err
	})
	return found, err
}

// writePin writes one insert for each identity, since its token stands for one.
func (s *Store) writePin(ctx context.Context, id identity, number uint32) error {
	settings := clickhouse.Settings{"async_insert": 0, "insert_deduplication_token": fmt.Sprintf("%d-%d", id.producer, id.incarnation)}
	to, err := s.names.PrepareBatch(s.inserting(ctx, settings), "INSERT INTO "+s.database+"."+shardsTable+" (producer, incarnation, shard)")
	if err != nil {
		return err
	}
	defer to.Close()
	if err := to.Append(id.producer, id.incarnation, number); err != nil {
		return err
	}
	return to.Send()
}

// rendezvous chooses the shard whose hash with the identity is highest: collectors that know the
// same shards make the same choice.
func rendezvous(id identity, shards []shard) (number uint32) {
	highest := uint64(0)
	for _, sh := range shards {
		var key [20]byte
		binary.LittleEndian.PutUint64(key[:], id.producer)
		binary.LittleEndian.PutUint64(key[8:], id.incarnation)
		binary.LittleEndian.PutUint32(key[16:], sh.number)
		if h := xxhash.Sum64(key[:]); number == 0 || h > highest {
			number, highest = sh.number, h
		}
	}
	return number
}

// shardConn is the connection to a shard with pinned rows.
func (s *Store) shardConn(number uint32) (driver.Conn, error) {
	for _, sh := range s.shards(nil) {
		if sh.number == number {
			return sh.conn, nil
		}
	}
	return nil, fmt.Errorf("send rows of shard %d: %w: system.clusters has no such shard of %s: a shard that has rows keeps its number", number, ErrCluster, s.layout.cluster)
}

// server is the target of outboxes. One batch is in flight at a time.
type server struct {
	*Store
	sending sync.Mutex
	parts   map[uint32]*batch // reused: the rows of each shard
}

// sendBatch writes a batch, on a cluster each shard's rows to that shard. A batch that fails in
// part may be sent again.
func (s *server) sendBatch(ctx context.Context, b *batch, token string) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	err := s.sendParts(ctx, b, token)
	if err == nil {
		s.latency.taken(b, time.Now())
	}
	return err
}

func (s *server) sendParts(ctx context.Context, b *batch, token string) error {
	if !s.layout.clustered() {
		return s.insertBatch(ctx, s.names, b, token)
	}
	if err := s.divide(ctx, b); err != nil {
		return err
	}
	for number, part := range s.parts {
		if part.rows() == 0 {
			continue
		}
		conn, err := s.shardConn(number)
		if err != nil {
			return err
		}
		of := token
		if of != "" {
			of = fmt.Sprintf("%s-%d", token, number)
		}
		if err := s.insertBatch(ctx, conn, part, of); err != nil {
			return err
		}
	}
	return nil
}

// divide divides the rows of a batch into parts, by shard.
func (s *server) divide(ctx context.Context, b *batch) error {
	producer, incarnation := b.words[producerColumn], b.words[incarnationColumn]
	at := func(i int) identity { return identity{producer[i], incarnation[i]} }
	var ids identities
	for i := range producer {
		if i == 0 || at(i) != at(i-1) {
			ids.add(at(i))
		}
	}
	pinned, err := s.pinned(ctx, ids.list)
	if err != nil {
		return err
	}
	if s.parts == nil {
		s.parts = make(map[uint32]*batch)
	}
	for _, part := range s.parts {
		part.reset(b.batchKey, b.opened)
	}
	for from := 0; from < b.rows(); {
		to := from + 1
		for to < b.rows() && at(to) == at(from) {
			to++
		}
		number := pinned[at(from)]
		if s.parts[number] == nil {
			s.parts[number] = &batch{batchKey: b.batchKey}
		}
		s.parts[number].copyRows(b, from, to)
		from = to
	}
	return nil
}

// sendRecords writes rows once. Rows of a split table go to their shards.
func (s *Store) sendRecords(ctx context.Context, in insertion) error {
	if !s.layout.clustered() || !split(in.table()) {
		return s.insertRecords(ctx, s.names, in)
	}
	shards, err := s.divideRecords(ctx, in)
	if err != nil {
		return err
	}
	for number, of := range shards {
		conn, err := s.shardConn(number)
		if err != nil {
			return err
		}
		of.into = s.layout.local(in.table()) + strings.TrimPrefix(in.into, in.table())
		if err := s.insertRecords(ctx, conn, of); err != nil {
			return err
		}
	}
	return nil
}

// divideRecords makes an insertion for each shard.
func (s *Store) divideRecords(ctx context.Context, in insertion) (map[uint32]insertion, error) {
	var ids identities
	for _, one := range in.singles() {
		for _, p := range one.parts() {
			ids.add(identity{p.Producer, p.Incarnation})
		}
	}
	pinned, err := s.pinned(ctx, ids.list)
	if err != nil {
		return nil, err
	}
	shards := make(map[uint32]insertion)
	for _, number := range pinned {
		shards[number] = insertion{into: in.into}
	}
	for _, one := range in.singles() {
		parts := one.parts()
		others := make([]bool, len(parts))
		for number, so := range shards {
			for i, p := range parts {
				others[i] = pinned[identity{p.Producer, p.Incarnation}] != number
			}
			if left := one.without(others); left.rows > 0 {
				shards[number] = so.join(left)
			}
		}
	}
	return shards, nil
}

func (s *Store) insertRecords(ctx context.Context, conn driver.Conn, in insertion) error {
	to, err := conn.PrepareBatch(s.inserting(ctx, nil), "INSERT INTO "+s.database+"."+in.into)
	if err != nil {
		return err
	}
	defer to.Close()
	if err := in.fill(to); err != nil {
		return err
	}
	return to.Send()
}
