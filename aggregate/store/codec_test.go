package store

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode/csig"
)

// secondOfRack is one second of data from the tap of one rack of 64: some cells of each of two
// signals, with realistic noise in every number. Ids are hashes.
func secondOfRack(rng *rand.Rand, rack, window int) *aggregate.Block {
	const hash = 0x9e3779b97f4a7c15
	b := &aggregate.Block{
		Source: aggregate.Source{Producer: uint64(rack+1) * hash, Incarnation: 0xfeedbeefcafe, Epoch: hash}, Seq: uint64(window),
		Resolution: int64(time.Second), WindowStart: testStart.Add(2*time.Minute).UnixNano() + int64(window)*int64(time.Second),
	}
	for _, signal := range []csig.Signal{csig.MinABWRatio, csig.MaxDelay} {
		for src := range uint64(64) {
			if rng.IntN(5) > 0 {
				continue
			}
			for range 1 + rng.IntN(2) {
				observations := 1 + uint64(rng.ExpFloat64()*60)
				trimmed := uint64(rng.IntN(50) / 49)
				measured := max(observations, trimmed) - trimmed
				low := uint64(rng.ExpFloat64() * 1e5)
				high := low + uint64(rng.ExpFloat64()*2e5)
				heavy := uint64(0)
				if rng.IntN(3) == 0 {
					heavy = measured / uint64(1+rng.IntN(4))
				}
				b.Signal = append(b.Signal, uint8(signal))
				b.Kind = append(b.Kind, 1)
				b.Encoding = append(b.Encoding, 3)
				b.SrcGroup = append(b.SrcGroup, (src+100)*hash)
				b.DstGroup = append(b.DstGroup, uint64(rack+100)*hash)
				b.Location = append(b.Location, (src%8*4+uint64(rng.IntN(3))+500)*hash)
				b.Observations = append(b.Observations, observations)
				b.Samples = append(b.Samples, measured)
				b.Unjudged = append(b.Unjudged, 0)
				b.Bytes = append(b.Bytes, observations*(64+rng.Uint64N(1400)))
				b.Sum = append(b.Sum, measured*(low+high)/2)
				b.Min = append(b.Min, low)
				b.Max = append(b.Max, high)
				b.Untouched = append(b.Untouched, 0)
				b.Trimmed = append(b.Trimmed, trimmed)
				b.Heavy = append(b.Heavy, heavy)
				b.HeavySum = append(b.HeavySum, heavy*low)
				b.Evidence = append(b.Evidence, uint8(src%8))
				code := uint16(rng.IntN(24))
				for left := measured; left > 0; code++ {
					n := 1 + rng.Uint64N(left)
					b.DistCode, b.DistCount = append(b.DistCode, code), append(b.DistCount, n)
					left -= n
				}
				b.DistEnd = append(b.DistEnd, uint32(len(b.DistCode)))
			}
		}
	}
	return b
}

type codecChoice struct{ name, times, counts, ids, dist string }

// codecs are the compared choices: by columns of times, counts, ids and the distribution. An
// empty one keeps the schema's codec.
var codecs = []codecChoice{
	{name: "schema"},
	{"T64, ZSTD", "Delta, ZSTD(1)", "T64, ZSTD(1)", "ZSTD(1)", "ZSTD(1)"},
	{"ZSTD", "ZSTD(1)", "ZSTD(1)", "ZSTD(1)", "ZSTD(1)"},
	{"DoubleDelta, Delta", "DoubleDelta, LZ4", "Delta, LZ4", "Delta, LZ4", "LZ4"},
	{"LZ4", "LZ4", "LZ4", "LZ4", "LZ4"},
	{"none", "NONE", "NONE", "NONE", "NONE"},
}

// BenchmarkCodecs stores an hour of 64 racks under several codecs and logs, with -v, the bytes
// per row of each column, and the time to scan all columns. Each is run once, with -benchtime 1x.
func BenchmarkCodecs(b *testing.B) {
	s, rng := openStore(b), rand.New(rand.NewPCG(1, 2))
	for window := range 3600 {
		for rack := range 64 {
			if rng.IntN(4) > 0 {
				continue
			}
			if err := s.WriteBlock(b.Context(), secondOfRack(rng, rack, window)); err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := s.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	compareCodecs(b, s, "partials_1s", codecs)
}

// compareCodecs logs the size of a table under each choice.
func compareCodecs(b *testing.B, s *Store, from string, choices []codecChoice) {
	b.Helper()
	columns := storedColumns(b, s, from)
	sizes := map[string][]float64{}
	head := fmt.Sprintf("%-15s", "bytes a row")
	scans := fmt.Sprintf("%-15s", "scan, ms")
	for i, c := range choices {
		table := fmt.Sprintf("codecs_%d", i)
		b.Run(from+"/"+strings.ReplaceAll(c.name, ", ", "+"), func(b *testing.B) {
			for b.Loop() {
				recode(b, s, from, table, func(column string) string { return codecOf(columns, column, c.times, c.counts, c.ids, c.dist) })
			}
		})
		head += fmt.Sprintf("%20s", c.name)
		bytesOf(b, s, table, sizes)
		scans += fmt.Sprintf("%20d", scan(b, s, table, columns).Milliseconds())
	}
	var report strings.Builder
	for _, column := range append(columns, "all") {
		fmt.Fprintf(&report, "%-15s", column)
		for _, size := range sizes[column] {
			fmt.Fprintf(&report, "%20.2f", size)
		}
		report.WriteByte('\n')
	}
	b.Logf("\n%s\n%s%s", head, report.String(), scans)
}

// codecOf is the choice for a column; all columns before observations are ids.
func codecOf(columns []string, column, times, counts, ids, dist string) string {
	switch {
	case column == "window_start" || column == "stored_at" || strings.HasPrefix(column, "time_"):
		return times
	case column == "dist" || column == "frames" || column == "rejected":
		return dist
	case slices.Index(columns, column) >= slices.Index(columns, "observations"):
		return counts
	case column == "signal" || column == "source_kind" || column == "encoding":
		return "" // bytes, all the same
	}
	return ids
}

// BenchmarkRecordCodecs is BenchmarkCodecs for an hour of the 20 worst of 4000 flows a second,
// from 16 producers, and for the taps of 1000 producers over an hour, in periods of 10 s. Numbers
// and addresses are hashes, so as random as real ones.
func BenchmarkRecordCodecs(b *testing.B) {
	s := openStore(b)
	for _, statement := range []string{
		`INSERT INTO csigscope.flows (resolution_ns, window_start, signal, source_kind, src_group, dst_group, src, dst, src_port, dst_port, proto, config_epoch, producer, incarnation, seq,
observations, bytes, measured, sum, min, max, heavy, heavy_sum, location, location_heavy)
WITH intDiv(number, 320) AS second, number % 16 AS tap, cityHash64(number) AS h, tap * 250 + h % 250 AS flow, cityHash64(flow) AS f, 1 + h % 97 AS n, cityHash64(h) % 100000 AS low
SELECT 1000000000, toDateTime64('2026-01-05 00:00:00', 9, 'UTC') + second, 1 + h % 2, 1, cityHash64(f % 64), cityHash64(tap), toIPv6(IPv4NumToString(toUInt32(167772160 + f % 65536))),
toIPv6(IPv4NumToString(toUInt32(167837696 + tap * 256 + flow % 16))), 32768 + f % 28000, 4791, 17, 77777777777777777, cityHash64(tap), 88888888888888888, second,
n, n * (64 + h % 1400), n, n * low, low, low + h % 3000, intDiv(n, 1 + h % 4) AS heavy, heavy * low, cityHash64(f % 48), intDiv(heavy, 2) FROM numbers(3600 * 320)`,
		`INSERT INTO csigscope.taps (name, time_from, time_to, place, interface, link, timestamps, tick_ns, epoch, producer, incarnation, seq, packets, bytes, frames,
tags, reflections, observations, stored, overflow, late, rejected, untouched, trimmed, kernel_drops, freezes, lost, skew_ns)
WITH intDiv(number, 1000) AS period, number % 1000 AS tap, cityHash64(number) AS h, toDateTime64('2026-01-05 00:00:00', 9, 'UTC') + period * 10 AS start, h % 900000 AS n
SELECT concat('host', toString(tap)), start + toIntervalNanosecond(h % 1000000), start + 9 + toIntervalNanosecond(h % 999999999), 'receiver', 'eth0', 'Ethernet', 'software', 1, 7777777777777777, cityHash64(tap), 8888888888888888, period,
n, n * 700, map('ok', n - h % 100, 'no-csig', h % 100), n - h % 100, h % 100, n, n - h % 7, 0, h % 3, map('repeat', h % 4), h % 1000, h % 10, 0, 0, 0, toInt64(h % 1000) - 500 FROM numbers(360 * 1000)`,
	} {
		if err := s.migrator.Exec(b.Context(), statement); err != nil {
			b.Fatal(err)
		}
	}
	// Some of their ids are not numbers.
	choices := slices.DeleteFunc(slices.Clone(codecs), func(c codecChoice) bool { return strings.Contains(c.ids, "Delta") })
	compareCodecs(b, s, "flows", choices)
	compareCodecs(b, s, "taps", choices)
}

// recode copies the rows of a table to a new one with other codecs.
func recode(b *testing.B, s *Store, from, table string, codec func(column string) string) {
	b.Helper()
	exec := func(statement string) {
		if err := s.migrator.Exec(b.Context(), statement); err != nil {
			b.Fatalf("%s: %v", statement, err)
		}
	}
	exec("DROP TABLE IF EXISTS csigscope." + table + " SYNC")
	exec("CREATE TABLE csigscope." + table + " AS csigscope." + from)
	columns := storedColumns(b, s, from)
	for _, column := range columns {
		if c := codec(column); c != "" {
			exec(fmt.Sprintf("ALTER TABLE csigscope.%s MODIFY COLUMN %s CODEC(%s)", table, column, c))
		}
	}
	list := strings.Join(columns, ", ")
	exec(fmt.Sprintf("INSERT INTO csigscope.%s (%s) SELECT %s FROM csigscope.%s", table, list, list, from))
	exec("OPTIMIZE TABLE csigscope." + table + " FINAL")
}

// bytesOf appends the compressed bytes per row of each column, and of all.
func bytesOf(b *testing.B, s *Store, table string, sizes map[string][]float64) {
	b.Helper()
	query := fmt.Sprintf(`SELECT name, data_compressed_bytes / (SELECT count() FROM csigscope.%[1]s) FROM system.columns
WHERE database = 'csigscope' AND table = '%[1]s'`, table)
	all := 0.0
	err := s.query(b.Context(), s.migrator, "read sizes", query, func(rows driver.Rows) error {
		var name string
		var size float64
		if err := rows.Scan(&name, &size); err != nil {
			return err
		}
		sizes[name] = append(sizes[name], size)
		all += size
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	sizes["all"] = append(sizes["all"], all)
}

// scan reads every column three times, and returns the shortest time.
func scan(b *testing.B, s *Store, table string, columns []string) time.Duration {
	b.Helper()
	best := time.Hour
	for range 3 {
		started := time.Now()
		readStrings(b, s, fmt.Sprintf("SELECT toString(sum(cityHash64(%s))) FROM csigscope.%s", strings.Join(columns, ", "), table))
		best = min(best, time.Since(started))
	}
	return best
}
