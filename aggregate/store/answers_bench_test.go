package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode/csig"
)

// minuteOfCells is the sum of the 60 blocks of hourOfCells of one minute: 4096 rows.
func minuteOfCells(minute int) *aggregate.Block {
	type key struct{ src, dst, location uint64 }
	at := map[key]int{}
	var list []row
	for window := range 60 {
		b := hourOfCells(minute*60 + window)
		codes := uint32(0)
		for i := range b.Len() {
			k := key{b.SrcGroup[i], b.DstGroup[i], b.Location[i]}
			j, known := at[k]
			if !known {
				j, at[k] = len(list), len(list)
				list = append(list, row{
					source: b.Source, seq: uint64(minute), resolution: int64(time.Minute),
					window: testStart.Add(2*time.Minute).UnixNano() + int64(minute)*int64(time.Minute),
					signal: b.Signal[i], kind: b.Kind[i], encoding: b.Encoding[i], src: k.src, dst: k.dst, location: k.location, min: b.Min[i],
				})
			}
			r := &list[j]
			r.observations += b.Observations[i]
			r.samples += b.Samples[i]
			r.bytes += b.Bytes[i]
			r.sum += b.Sum[i]
			r.min, r.max = min(r.min, b.Min[i]), max(r.max, b.Max[i])
			r.untouched += b.Untouched[i]
			r.heavy += b.Heavy[i]
			r.heavySum += b.HeavySum[i]
			r.distCode = append(r.distCode, b.DistCode[codes:b.DistEnd[i]]...)
			r.distCount = append(r.distCount, b.DistCount[codes:b.DistEnd[i]]...)
			codes = b.DistEnd[i]
		}
	}
	return blockOf(list)
}

// Windows of 10 ms exist only for heavy traffic: 256 of the cells, each in 2 of 5 windows.
const (
	fineWindow  = 10 * time.Millisecond
	hotCells    = 256
	hotRows     = 100 // a window
	fineWindows = int(10 * time.Minute / fineWindow)
)

// hotWindow is one window of 10 ms.
func hotWindow(window int) *aggregate.Block {
	b := hourOfCells(window)
	b.Producer = 4
	b.Resolution = int64(fineWindow)
	b.WindowStart = testStart.Add(2*time.Minute).UnixNano() + int64(window)*int64(fineWindow)
	b.Signal, b.Kind, b.Encoding = b.Signal[:hotRows], b.Kind[:hotRows], b.Encoding[:hotRows]
	b.SrcGroup, b.DstGroup, b.Location = b.SrcGroup[:hotRows], b.DstGroup[:hotRows], b.Location[:hotRows]
	b.Observations, b.Bytes, b.Sum = b.Observations[:hotRows], b.Bytes[:hotRows], b.Sum[:hotRows]
	b.Min, b.Max, b.Untouched, b.Trimmed = b.Min[:hotRows], b.Max[:hotRows], b.Untouched[:hotRows], b.Trimmed[:hotRows]
	b.Samples, b.Unjudged, b.Heavy, b.HeavySum = b.Samples[:hotRows], b.Unjudged[:hotRows], b.Heavy[:hotRows], b.HeavySum[:hotRows]
	b.Evidence, b.DistEnd = b.Evidence[:hotRows], b.DistEnd[:hotRows]
	codes := b.DistEnd[hotRows-1]
	b.DistCode, b.DistCount = b.DistCode[:codes], b.DistCount[:codes]
	for i := range hotRows {
		cell := uint64(window*hotRows+i) % hotCells * 16
		b.SrcGroup[i], b.DstGroup[i] = cell/64*0x9e3779b97f4a7c15, cell%64*0x9e3779b97f4a7c15
		b.Location[i] = (cell*2654435761)>>7%128 + 2
	}
	return b
}

// BenchmarkAnswers asks for one hour of 64 x 64 cells from 6 million 1 s rows, from their 1 min rows
// and, where the last of these is open, from both, and for 10 minutes of one cell from 6 million 10 ms rows. The names contain the goals
// on two idle cores; rows is the length of the answer, read-rows the rows read according to the
// query's plan, and B/row the table's bytes per row on disk.
func BenchmarkAnswers(b *testing.B) {
	s := openStore(b)
	fill := func(blocks int, block func(int) *aggregate.Block) {
		b.Helper()
		for i := range blocks {
			if err := s.WriteBlock(b.Context(), block(i)); err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := s.BeginRun(b.Context(), Run{Source: hourOfCells(0).Source, Mode: RunLive}); err != nil {
		b.Fatal(err)
	}
	fill(3600, hourOfCells)
	fill(59, minuteOfCells) // the last minute is open
	fill(fineWindows, hotWindow)
	if err := s.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	waitForMerges(b, s)
	from := testStart.Add(2 * time.Minute)
	seconds := Question{Signal: csig.MinABWRatio, From: from, To: from.Add(time.Hour), Resolution: time.Second, Step: time.Minute}
	minutes, either := seconds, seconds
	minutes.Resolution, either.Resolution = time.Minute, 0
	zero := aggregate.GroupID(0)
	hot := seconds
	hot.To, hot.Resolution, hot.Step, hot.Src, hot.Dst = from.Add(10*time.Minute), fineWindow, fineWindow, &zero, &zero
	one := hot
	one.Resolution, one.Step = time.Second, time.Second
	coarse := hot
	coarse.Step = time.Second
	for _, bb := range []struct {
		name  string
		query Question
		view  string
		what  string // columns; empty: the store's own question
	}{
		{"mode-matrix/1s/200ms", seconds, "cells", "src_group, dst_group, mode_location, " + saturated("mode_count, heavy, observations")},
		{"mode-matrix/1m/100ms", minutes, "cells", "src_group, dst_group, mode_location, " + saturated("mode_count, heavy, observations")},
		{"mean-matrix/1s/200ms", seconds, "cells", "src_group, dst_group, mean"},
		{"mean-matrix/1m/100ms", minutes, "cells", "src_group, dst_group, mean"},
		{"both-matrices/1s/200ms", seconds, "cells", ""},
		{"both-matrices/1m/100ms", minutes, "cells", ""},
		{"both-matrices/either/200ms", either, "cells", ""},
		{"time-x-location/1s/200ms", seconds, "location_windows", ""},
		{"time-x-location/1m/100ms", minutes, "location_windows", ""},
		{"time-x-location/either/100ms", either, "location_windows", ""},
		{"one-cell-10min/10ms/100ms", hot, "cell_windows", ""},
		{"one-cell-10min/10ms-by-1s/100ms", coarse, "cell_windows", ""},
		{"one-cell-10min/1s/100ms", one, "cell_windows", ""},
		{"matrices-over-time/1s", seconds, "cell_windows", ""},
		{"matrices-over-time/1m", minutes, "cell_windows", ""},
		{"top-locations/1s/200ms", seconds, "top_locations", ""},
		{"cell-locations/1s", seconds, "cell_locations", ""},
		{"cell-locations/either", either, "cell_locations", ""},
		{"extent", seconds, "", ""},
	} {
		b.Run(bb.name, func(b *testing.B) {
			rows := 0
			for b.Loop() {
				var err error
				if rows, err = ask(b, s, bb.query, bb.view, bb.what); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(rows), "rows")
			b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms")
			if bb.view == "" || bb.query.Resolution == 0 {
				return
			}
			b.ReportMetric(float64(readRows(b, s, bb.query, bb.view)), "read-rows")
			b.ReportMetric(bytesPerRow(b, s, bb.query.Resolution), "B/row")
		})
	}
}

// waitForMerges waits for the merges that follow from filling tables within seconds. In production rows
// arrive slowly, and hours pass before that many merges.
func waitForMerges(b *testing.B, s *Store) {
	b.Helper()
	for quiet := 0; quiet < 4; time.Sleep(time.Second) {
		var merges uint64
		if err := s.migrator.QueryRow(b.Context(), "SELECT count() FROM system.merges").Scan(&merges); err != nil {
			b.Fatal(err)
		}
		quiet++
		if merges > 0 {
			quiet = 0
		}
	}
}

// ask asks one question and counts the rows of its answer.
func ask(b *testing.B, s *Store, q Question, view, columns string) (int, error) {
	switch {
	case columns != "":
		n := 0
		query := fmt.Sprintf("SELECT %s FROM %s", columns, q.view(s.database, view, false, judgedBy(s.thresholds)))
		return n, s.query(b.Context(), s.reader, "ask", query, func(driver.Rows) error { n++; return nil })
	case view == "cells":
		r, err := s.Cells(b.Context(), q)
		return len(r), err
	case view == "cell_windows":
		r, err := s.CellWindows(b.Context(), q)
		return len(r), err
	case view == "location_windows":
		r, err := s.LocationWindows(b.Context(), q)
		return len(r), err
	case view == "top_locations":
		r, err := s.TopLocations(b.Context(), q, 20)
		return len(r), err
	case view == "cell_locations":
		r, err := s.CellLocations(b.Context(), q)
		return len(r), err
	}
	e, err := s.Extent(b.Context())
	return len(e.Signals), err
}

// readRows is the number of rows of partials that a question reads, according to its plan.
func readRows(b *testing.B, s *Store, q Question, view string) uint64 {
	windowed := view == "cell_windows" || view == "location_windows"
	query := fmt.Sprintf("EXPLAIN ESTIMATE SELECT * FROM %s WHERE %s", q.view(s.database, view, windowed, judgedBy(s.thresholds)), q.cells())
	switch view {
	case "location_windows", "top_locations":
		query = fmt.Sprintf("EXPLAIN ESTIMATE SELECT * FROM %s", q.view(s.database, view, windowed))
	case "cell_locations":
		query = fmt.Sprintf("EXPLAIN ESTIMATE SELECT * FROM %s", q.call(s.database, view, q.signalArgs(), q.spanArgs()))
	}
	sum := uint64(0)
	err := s.query(b.Context(), s.reader, "explain", query, func(rows driver.Rows) error {
		var database, table string
		var parts, n, marks uint64
		if err := rows.Scan(&database, &table, &parts, &n, &marks); err != nil {
			return err
		}
		sum += n
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	return sum
}

// bytesPerRow is a table's bytes per row on disk.
func bytesPerRow(b *testing.B, s *Store, resolution time.Duration) float64 {
	g, err := resolutionTableOf(resolution)
	if err != nil {
		b.Fatal(err)
	}
	var per float64
	query := fmt.Sprintf("SELECT sum(bytes_on_disk) / sum(rows) FROM system.parts WHERE active AND database = '%s' AND table = '%s'", s.database, resolutionTableAt(g).table())
	if err := s.migrator.QueryRow(b.Context(), query).Scan(&per); err != nil {
		b.Fatal(err)
	}
	return per
}
