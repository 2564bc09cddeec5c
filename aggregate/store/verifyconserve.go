package store

import (
	"context"
	"fmt"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/csigscope/csigscope/aggregate"
)

// holding accounts for the observations of an ended run: those that its taps counted as stored,
// and those found, by table; each capped at 2^64-1.
type holding struct {
	counted        uint64
	there, missing [numResolutionTables]uint64 // in partials, in gaps
	rows           [numResolutionTables]bool
	whole          [numResolutionTables]bool // no part of it has expired
}

// maxHoldings bounds the runs that are compared, the latest ones.
const maxHoldings = 100_000

// holdings reads the taps' counts of ended runs, and the observations missing in their gaps. It
// skips runs that may have lost tap rows, and runs whose open windows were given up, which cannot be
// compared; packets that were never accepted are in no row, and flows and findings are not compared.
// A live run that is still going has not ended. The gaps of unknown runs are those of the zero Source.
func (v *verifier) holdings(ctx context.Context) error {
	v.held = map[aggregate.Source]*holding{}
	query := fmt.Sprintf(`SELECT producer, incarnation, epoch, %[8]s, least(started, oldest) > '%[2]s', least(started, oldest) > '%[3]s' FROM
(SELECT producer, incarnation, epoch, sum(toUInt128(stored)) + sum(toUInt128(overflow)) AS counted, toDateTime64(min(stored_at), 9, 'UTC') AS oldest FROM %[1]s.taps FINAL GROUP BY producer, incarnation, epoch) AS t
INNER JOIN
(SELECT producer, incarnation, epoch, maxIf(at, state = 'started') AS started FROM %[1]s.runs GROUP BY producer, incarnation, epoch
HAVING countIf(state = 'done') > 0 AND (countIf(mode = 'live') = 0 OR maxIf(at, state = 'done') > started)) AS r
USING (producer, incarnation, epoch)
WHERE (producer, incarnation, epoch) NOT IN (SELECT producer, incarnation, epoch FROM %[1]s.current_gaps WHERE resolution_ns = 0 AND reason NOT IN %[5]s AND reason NOT IN %[7]s AND log_class NOT IN ('%[9]s', '%[10]s') OR reason = '%[6]s')
AND toUInt64(0) NOT IN (SELECT producer FROM %[1]s.current_gaps WHERE log_class = '%[11]s')
ORDER BY started DESC LIMIT %[4]d`, v.database, v.outlived(secondTable), v.outlived(minuteTable), maxHoldings, neverTaken, GapOpen, untouchedTaps, saturated("counted"), className(flowsClass), className(findingsClass), className(tapsClass))
	err := v.ask(ctx, query, func(rows driver.Rows) error {
		var s aggregate.Source
		var h holding
		var second, minute uint8
		if err := rows.Scan(&s.Producer, &s.Incarnation, &s.Epoch, &h.counted, &second, &minute); err != nil {
			return err
		}
		h.whole[secondTable], h.whole[minuteTable] = second != 0, minute != 0
		v.held[s] = &h
		return nil
	})
	if err != nil {
		return err
	}
	v.held[aggregate.Source{}] = &holding{}
	for _, g := range []int{secondTable, minuteTable} {
		query := fmt.Sprintf(`SELECT producer, incarnation, epoch, if(producer = 0 AND min(observations) = 0, 18446744073709551615, %s) FROM %s.current_gaps
WHERE resolution_ns = %d OR producer = 0 AND resolution_ns = 0 AND log_class IN ('', '%s', '%s') GROUP BY producer, incarnation, epoch LIMIT %d`,
			saturated("sum(toUInt128(observations))"), v.database, resolutionTableAt(g).Length.Nanoseconds(), className(g), className(gapsClass), maxHoldings)
		if err := v.add(ctx, query, func(h *holding, n uint64) { h.missing[g] = aggregate.AddSat(h.missing[g], n) }); err != nil {
			return err
		}
	}
	return nil
}

// hold adds the sums of a day's partials. Fine ones exist for some cells only.
func (v *verifier) hold(ctx context.Context, g int, day time.Time) error {
	if g == fineTable {
		return nil
	}
	query := fmt.Sprintf("SELECT producer, incarnation, config_epoch, %s FROM %s.%s FINAL WHERE %s GROUP BY producer, incarnation, config_epoch LIMIT %d",
		saturated("sum(toUInt128(observations))"), v.database, resolutionTableAt(g).table(), resolutionTableAt(g).during(day, day.Add(24*time.Hour)), maxVerifyRows)
	return v.add(ctx, query, func(h *holding, n uint64) {
		h.there[g] = aggregate.AddSat(h.there[g], n)
		h.rows[g] = true
	})
}

func (v *verifier) add(ctx context.Context, query string, to func(h *holding, n uint64)) error {
	return v.ask(ctx, query, func(rows driver.Rows) error {
		var s aggregate.Source
		var n uint64
		if err := rows.Scan(&s.Producer, &s.Incarnation, &s.Epoch, &n); err != nil {
			return err
		}
		if h := v.held[s]; h != nil {
			to(h, n)
		}
		return nil
	})
}

// conserved compares the taps' stored counts with the stored rows and the gaps. A run may have
// windows of only one length, but not of none.
func (v *verifier) conserved() error {
	for _, g := range []int{secondTable, minuteTable} {
		f := Finding{Check: "taps counted more or fewer observations than are stored", Table: resolutionTableAt(g).table()}
		for s, h := range v.held {
			// Gaps are recorded before rows are given up: there may be one too many.
			missing := aggregate.AddSat(h.missing[g], v.held[aggregate.Source{}].missing[g])
			fits := h.there[g] <= h.counted && h.counted <= aggregate.AddSat(h.there[g], missing)
			without := !h.rows[g] && missing == 0
			if !h.whole[g] || fits || without && h.rows[secondTable+minuteTable-g] {
				continue
			}
			f.Count++
			f.Example = fmt.Sprintf("producer %d, incarnation %d, epoch %d: taps counted %d, %d are there and %d in gaps",
				s.Producer, s.Incarnation, s.Epoch, h.counted, h.there[g], h.missing[g])
		}
		if f.Count == 0 {
			continue
		}
		if err := v.found(f); err != nil {
			return err
		}
	}
	return nil
}
