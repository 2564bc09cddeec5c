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

// secondOfRack is a second of what the tap of one rack of 64 sees: some cells of each
// of two signals, with the noise of traffic in every number. Ids are hashes.
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
				b.Bytes = append(b.Bytes, observations*(64+rng.Uint64N(1400)))
				b.Sum = append(b.Sum, measured*(low+high)/2)
				b.Min = append(b.Min, low)
				b.Max = append(b.Max, high)
				b.Untouched = append(b.Untouched, 0)
				b.Trimmed = append(b.Trimmed, trimmed)
				b.Heavy = append(b.Heavy, heavy)
				b.HeavySum = append(b.HeavySum, heavy*low)
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

// codecs are the choices that are compared: by columns of times, counts, ids and the
// distribution. An empty one leaves what the schema says.
var codecs = []struct{ name, times, counts, ids, dist string }{
	{name: "schema"},
	{"T64, ZSTD", "Delta, ZSTD(1)", "T64, ZSTD(1)", "ZSTD(1)", "ZSTD(1)"},
	{"ZSTD", "ZSTD(1)", "ZSTD(1)", "ZSTD(1)", "ZSTD(1)"},
	{"DoubleDelta, Delta", "DoubleDelta, LZ4", "Delta, LZ4", "Delta, LZ4", "LZ4"},
}

// BenchmarkCodecs stores an hour of 64 racks under several codecs and logs, with -v, the
// bytes a row of each column, and how long a scan of all columns takes. Each is run
// once, with -benchtime 1x.
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
	columns := storedColumns(b, s, "partials_1s")
	sizes := map[string][]float64{}
	head := fmt.Sprintf("%-14s", "bytes a row")
	scans := fmt.Sprintf("%-14s", "scan, ms")
	for i, c := range codecs {
		table := fmt.Sprintf("codecs_%d", i)
		b.Run(strings.ReplaceAll(c.name, ", ", "+"), func(b *testing.B) {
			for b.Loop() {
				recode(b, s, table, c.times, c.counts, c.ids, c.dist)
			}
		})
		head += fmt.Sprintf("%20s", c.name)
		bytesOf(b, s, table, sizes)
		scans += fmt.Sprintf("%20d", scan(b, s, table, columns).Milliseconds())
	}
	var report strings.Builder
	for _, column := range append(columns, "all") {
		fmt.Fprintf(&report, "%-14s", column)
		for _, size := range sizes[column] {
			fmt.Fprintf(&report, "%20.2f", size)
		}
		report.WriteByte('\n')
	}
	b.Logf("\n%s\n%s%s", head, report.String(), scans)
}

// recode copies the rows of seconds to a new table with other codecs.
func recode(b *testing.B, s *Store, table, times, counts, ids, dist string) {
	b.Helper()
	exec := func(statement string) {
		if err := s.migrator.Exec(b.Context(), statement); err != nil {
			b.Fatalf("%s: %v", statement, err)
		}
	}
	exec("DROP TABLE IF EXISTS csigscope." + table + " SYNC")
	exec("CREATE TABLE csigscope." + table + " AS csigscope.partials_1s")
	columns := storedColumns(b, s, "partials_1s")
	for i, column := range columns {
		codec := ids
		switch {
		case column == "window_start" || column == "stored_at":
			codec = times
		case column == "dist":
			codec = dist
		case i >= slices.Index(columns, "observations"):
			codec = counts
		case strings.HasPrefix(column, "s") && column != "src_group" && column != "seq" || column == "encoding":
			codec = "" // bytes, all the same
		}
		if codec != "" {
			exec(fmt.Sprintf("ALTER TABLE csigscope.%s MODIFY COLUMN %s CODEC(%s)", table, column, codec))
		}
	}
	list := strings.Join(columns, ", ")
	exec(fmt.Sprintf("INSERT INTO csigscope.%s (%s) SELECT %s FROM csigscope.partials_1s", table, list, list))
	exec("OPTIMIZE TABLE csigscope." + table + " FINAL")
}

// bytesOf adds the compressed bytes a row of each column, and of all.
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

// scan reads every column, three times, and gives the shortest time.
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
