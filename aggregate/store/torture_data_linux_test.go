package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode/csig"
)

// tortureBlocks is the number of blocks of each producer in the fault runs.
const tortureBlocks = 6

// tortureSignals are measured by the producers of the fault runs.
var tortureSignals = []csig.Signal{csig.MinABWRatio, csig.MaxDelay}

// life is the data of one producer: the same blocks each time, as in a replay. Each block has a
// seq of its own.
type life struct {
	producer uint64
	blocks   [][]row
}

// newLife draws the blocks of a producer, of all resolutions in turn. Producers lie a minute
// apart, so that reading one does not read them all.
func newLife(producer uint64) *life { return newLifeOf(producer, tortureBlocks) }

func newLifeOf(producer, blocks uint64) *life {
	l := &life{producer: producer}
	for seq := range blocks {
		resolution := [...]time.Duration{10 * time.Millisecond, time.Second, time.Minute}[seq%3]
		g := traffic{resolution: resolution, groups: 3, locations: 5}
		rng := rand.New(rand.NewPCG(producer, seq))
		var rows []row
		for len(rows) == 0 {
			for src := range g.groups {
				for dst := range g.groups {
					rows = append(rows, g.cell(rng, l.source(), seq, 0, tortureSignals[rng.IntN(2)], src, dst)...)
				}
			}
		}
		for i := range rows {
			rows[i].window += int64(producer) * int64(time.Minute)
		}
		l.blocks = append(l.blocks, rows)
	}
	return l
}

func (l *life) source() aggregate.Source {
	return aggregate.Source{Producer: l.producer, Incarnation: l.producer % 3, Epoch: l.producer % 2}
}

// sum is the key of a total: one block's part of a cell and location, in one table.
type sum struct {
	source             aggregate.Source
	seq                uint64
	signal, kind       uint8
	src, dst, location uint64
}

// total is the sum for a key.
type total struct{ rows, observations, bytes, sum, min, max, untouched, trimmed, heavy, heavySum uint64 }

// totals is the oracle: the totals that the store must have for one block.
func (l *life) totals(seq uint64) map[sum]total {
	totals := map[sum]total{}
	for _, r := range l.blocks[seq] {
		key := sum{source: l.source(), seq: seq, signal: r.signal, kind: r.kind, src: r.src, dst: r.dst, location: r.location}
		t, ok := totals[key]
		if !ok {
			t.min = r.min
		}
		totals[key] = total{
			t.rows + 1, t.observations + r.observations, t.bytes + r.bytes, t.sum + r.sum, min(t.min, r.min), max(t.max, r.max),
			t.untouched + r.untouched, t.trimmed + r.trimmed, t.heavy + r.heavy, t.heavySum + r.heavySum,
		}
	}
	return totals
}

// stored is the stored data of one producer.
type stored struct {
	blocks   map[uint64]map[sum]total // by seq, with FINAL
	final    uint64                   // rows with FINAL
	distinct uint64                   // identities
	raw      uint64
}

// storedOf reads the stored data of a producer.
func storedOf(ctx context.Context, s *Store, producer uint64) (stored, error) {
	st := stored{blocks: map[uint64]map[sum]total{}}
	const keys = "producer, incarnation, config_epoch, seq, signal, source_kind, src_group, dst_group, location"
	err := s.query(ctx, s.reader, "read totals", ofLife(s, producer, "SELECT "+keys+", "+
		"count(), sum(observations), sum(bytes), sum(sum), min(min), max(max), sum(untouched), sum(trimmed), sum(heavy), sum(heavy_sum)"+
		" FROM %s FINAL WHERE %s GROUP BY "+keys), func(rows driver.Rows) error {
		var k sum
		var t total
		err := rows.Scan(&k.source.Producer, &k.source.Incarnation, &k.source.Epoch, &k.seq, &k.signal, &k.kind, &k.src, &k.dst, &k.location,
			&t.rows, &t.observations, &t.bytes, &t.sum, &t.min, &t.max, &t.untouched, &t.trimmed, &t.heavy, &t.heavySum)
		if st.blocks[k.seq] == nil {
			st.blocks[k.seq] = map[sum]total{}
		}
		st.blocks[k.seq][k] = t
		return err
	})
	if err != nil {
		return stored{}, err
	}
	const identity = "window_start, signal, source_kind, src_group, dst_group, location, encoding, config_epoch, producer, incarnation, seq"
	count := "SELECT count(), uniqExact(" + identity + "), (SELECT count() FROM %[1]s WHERE %[2]s) FROM %[1]s FINAL WHERE %[2]s"
	err = s.query(ctx, s.reader, "count rows", ofLife(s, producer, count), func(rows driver.Rows) error {
		var final, distinct, raw uint64
		err := rows.Scan(&final, &distinct, &raw)
		st.final, st.distinct, st.raw = st.final+final, st.distinct+distinct, st.raw+raw
		return err
	})
	return st, err
}

// ofLife runs a query over the minute of a producer in all tables: %s or %[1]s is the table, the
// second the condition.
func ofLife(s *Store, producer uint64, question string) string {
	from := testStart.UnixNano() + int64(producer)*int64(time.Minute)
	where := fmt.Sprintf("window_start >= fromUnixTimestamp64Nano(toInt64(%d), 'UTC') AND window_start < fromUnixTimestamp64Nano(toInt64(%d), 'UTC') AND producer = %d",
		from, from+int64(time.Minute), producer)
	var all []string
	for g := range numResolutionTables {
		all = append(all, fmt.Sprintf(question, s.database+"."+resolutionTableAt(g).table(), where))
	}
	return strings.Join(all, " UNION ALL ")
}

// compare compares the stored data of a life with the oracle: every needed block must be
// complete, and others, lost in a crash before they were confirmed, complete or absent.
func (l *life) compare(ctx context.Context, s *Store, needed func(seq uint64) bool) error {
	st, err := storedOf(ctx, s, l.producer)
	if err != nil {
		return err
	}
	rows := uint64(0)
	for seq := range uint64(len(l.blocks)) {
		got := st.blocks[seq]
		if len(got) == 0 && !needed(seq) {
			continue
		}
		rows += uint64(len(l.blocks[seq]))
		if diff := cmp.Diff(l.totals(seq), got, cmp.AllowUnexported(sum{}, total{})); diff != "" {
			return fmt.Errorf("producer %d, block %d of %d, of which %d are there (-want +got):\n%.800s", l.producer, seq, len(l.blocks), len(st.blocks), diff)
		}
	}
	if st.final != rows || st.distinct != rows || st.raw < rows || len(st.blocks) > len(l.blocks) {
		return fmt.Errorf("producer %d: %d rows with FINAL of %d identities, %d without, want %d", l.producer, st.final, st.distinct, st.raw, rows)
	}
	return nil
}

func always(uint64) bool { return true }

// write writes the blocks from a seq on.
func (l *life) write(ctx context.Context, s *Store, from uint64) error {
	for _, rows := range l.blocks[min(from, uint64(len(l.blocks))):] {
		if err := s.WriteBlock(ctx, blockOf(rows)); err != nil {
			return err
		}
	}
	return nil
}
