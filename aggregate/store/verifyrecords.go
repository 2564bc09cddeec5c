package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/csigscope/csigscope/aggregate"
)

// recordSource identifies a run in tables of records.
const recordSource = "(producer, incarnation, epoch)"

const recordExample = "'producer ', toString(producer), ', incarnation ', toString(incarnation), ', seq ', toString(seq)"

// records checks taps, findings, flows and gaps, apart from partials.
func (v *verifier) records(ctx context.Context) error {
	for _, check := range []func(context.Context) error{v.taps, v.findings, v.gaps} {
		if err := check(ctx); err != nil {
			return err
		}
	}
	days, err := v.slots(ctx, "flows", 24*time.Hour, "1")
	if err != nil {
		return err
	}
	for _, day := range days {
		if err := v.flows(ctx, day); err != nil {
			return err
		}
	}
	return nil
}

func (v *verifier) taps(ctx context.Context) error {
	of, example := Finding{Table: "taps"}, "concat('tap ', name, ', ', "+recordExample+")"
	err := v.each(ctx, of, example, "1", []check{
		{"observations not accounted for", "observations != toUInt128(stored) + overflow + late + arraySum(n -> toUInt128(n), mapValues(rejected))"},
		{"tags and reflections are not the observations", "toUInt128(tags) + reflections != observations"},
		{"untouched and trimmed above the stored observations", "toUInt128(untouched) + trimmed > toUInt128(stored) + overflow"},
		{"packets by reason are not all packets", "arraySum(n -> toUInt128(n), mapValues(frames)) != packets"},
		{"times in the wrong order", "time_from > time_to"},
	})
	if err != nil {
		return err
	}
	if err := v.refer(ctx, of, "1", referring{source: recordSource}); err != nil {
		return err
	}
	return v.identified(ctx, of, "1", recordSource, "seq")
}

func (v *verifier) findings(ctx context.Context) error {
	of, example := Finding{Table: "findings"}, "concat(kind, ', ', "+recordExample+")"
	err := v.each(ctx, of, example, "1", []check{
		{"finding of nothing", "count = 0"},
		{"more packets than findings", "length(packets) > count"},
		{"times in the wrong order", "time_from > time_to"},
	})
	if err != nil {
		return err
	}
	if err := v.refer(ctx, of, "1", referring{source: recordSource, location: "location"}); err != nil {
		return err
	}
	// A collector writes its own findings with seq 0. It counts them from zero after a restart.
	return v.identified(ctx, of, "1", recordSource, "seq, kind, id, if(seq = 0, time_from, toDateTime64(0, 9, 'UTC'))")
}

// gaps also reports missing rows: they are not a fault of the stored ones.
func (v *verifier) gaps(ctx context.Context) error {
	of := Finding{Table: "gaps"}
	example := "concat('producer ', toString(producer), ', incarnation ', toString(incarnation), ', ', reason, ', ', toString(window_from), ' to ', toString(window_to), if(log_class = '', '', concat(', class ', log_class)), if(last_seq = 0, '', concat(', records ', toString(first_seq), ' to ', toString(last_seq))))"
	err := v.each(ctx, of, example, "1", []check{
		{"times in the wrong order", "window_from > window_to"},
		{"gap with observations and no rows", "observations > 0 AND rows = 0 AND reason NOT IN " + neverTaken},
	})
	if err != nil {
		return err
	}
	if err := v.refer(ctx, of, "producer != 0", referring{source: recordSource}); err != nil {
		return err
	}
	of.Check, of.Info = "rows that were taken are not stored", true
	return v.report(ctx, of, fmt.Sprintf("SELECT %s, example FROM (SELECT sum(toUInt128(greatest(rows, 1))) AS n, any(%s) AS example FROM %s.current_gaps)", saturated("n"), example, v.database))
}

// flows checks the windows of flows of one day. Flows add up to no more than the partials of
// their windows, and to exactly as much if there is a row for all others.
func (v *verifier) flows(ctx context.Context, day time.Time) error {
	of := Finding{Table: "flows", Day: day}
	example := "concat('window ', toString(window_start), ' of ', toString(resolution_ns), ' ns, ', " + recordExample + ", ', ', toString(src), ' to ', toString(dst))"
	when := flowsDuring(day, 24*time.Hour)
	err := v.each(ctx, of, example, when, []check{
		{"min above max", "min > max"},
		{"heavy above observations", "heavy > observations"},
		{"measured above observations", "measured > observations"},
		{"location named more often than the flow was heavy", "location_heavy > heavy"},
		{"more samples than heavy observations", "NOT (" + unnamed + ") AND sampled > heavy"},
		{"sum outside of min and max", "measured > 0 AND (toUInt128(sum) < toUInt128(min) * measured OR toUInt128(sum) > toUInt128(max) * measured)"},
		{"window is not a multiple of its length", "resolution_ns = 0 OR toUnixTimestamp64Nano(window_start) % toInt64(resolution_ns) != 0"},
	})
	if err != nil {
		return err
	}
	if err := v.refer(ctx, of, when, referring{source: sourceColumns, groups: "arrayJoin([src_group, dst_group])", location: "location"}); err != nil {
		return err
	}
	// A flow belongs to one cell, and past the budget of keys to the overflow's; the sum of all
	// other flows may be divided by cell.
	apart := fmt.Sprintf("%s OR src_group = %d", unnamed, aggregate.OverflowGroup)
	identity := fmt.Sprintf("resolution_ns, window_start, signal, source_kind, src, dst, src_port, dst_port, proto, seq, if(%[1]s, src_group, 0), if(%[1]s, dst_group, 0)", apart)
	if err := v.identified(ctx, of, when, sourceColumns, identity); err != nil {
		return err
	}
	pieces, err := v.slots(ctx, "flows", time.Hour, when)
	if err != nil {
		return err
	}
	of.Check = "flows are not those of their window"
	for _, g := range []int{secondTable, minuteTable} {
		for _, from := range pieces {
			if err := v.report(ctx, of, v.flowWindows(g, from)); err != nil {
				return err
			}
		}
	}
	return nil
}

func flowsDuring(from time.Time, length time.Duration) string {
	to := from.Add(length)
	return fmt.Sprintf("window_start >= '%[1]s' AND window_start < '%[2]s' AND indexHint(toStartOfHour(window_start) >= toStartOfHour(toDateTime64('%[1]s', 9, 'UTC')), toStartOfHour(window_start) <= toStartOfHour(toDateTime64('%[2]s', 9, 'UTC')))",
		stamp(from), stamp(to))
}

// flowWindows is the query for windows of an hour whose flows differ from their partials. It
// leaves out windows with missing rows, and hours with missing rows of unknown runs.
func (v *verifier) flowWindows(g int, from time.Time) string {
	const key = "window_start, signal, source_kind, producer, incarnation, config_epoch"
	length := resolutionTableAt(g).Length.Nanoseconds()
	return fmt.Sprintf(`SELECT count(), any(concat('window ', toString(window_start), ' of %[2]d ns, producer ', toString(producer), ', signal ', toString(signal), ': ', toString(named), ' observations of flows, ', toString(there), ' in partials'))
FROM
(
SELECT %[1]s, sumIf(n, side = 0) AS named, sumIf(n, side = 1) AS there, sumIf(h, side = 0) AS named_heavy, sumIf(h, side = 1) AS there_heavy, max(rest) AS whole, countIf(side = 0) AS flows, min(stored_at) AS oldest
FROM
(
SELECT 0 AS side, %[1]s, toUInt128(observations) AS n, toUInt128(heavy) AS h, %[10]s AS rest, stored_at FROM %[3]s.flows FINAL WHERE resolution_ns = %[2]d AND %[4]s AND %[5]s
UNION ALL
SELECT 1, %[1]s, observations, heavy, 0, stored_at FROM %[3]s.%[6]s FINAL WHERE %[7]s AND %[5]s
)
GROUP BY %[1]s
)
WHERE flows > 0 AND (named > there OR named_heavy > there_heavy OR whole AND (named, named_heavy) != (there, there_heavy)) AND oldest > '%[8]s'
AND (producer, incarnation, config_epoch) NOT IN (SELECT producer, incarnation, epoch FROM %[3]s.current_gaps WHERE reason NOT IN %[9]s)
AND toUInt64(0) NOT IN (SELECT producer FROM %[3]s.current_gaps WHERE window_to > '%[11]s' AND window_from < '%[12]s')`,
		key, length, v.database, flowsDuring(from, time.Hour), v.done(), resolutionTableAt(g).table(), resolutionTableAt(g).during(from, from.Add(time.Hour)), v.outlived(g), neverTaken, unnamed,
		stamp(from), stamp(from.Add(time.Hour)))
}

// outlived is the time of storing before which rows of a table may have expired.
func (v *verifier) outlived(g int) string {
	return v.options.Now.Add(-v.expiry[g] + expiryMargin).UTC().Format(time.DateTime)
}

// identified checks that no two different records have the same identity: a repeated record is
// equal, so that it replaces itself.
func (v *verifier) identified(ctx context.Context, of Finding, where, source, seq string) error {
	columns := strings.Trim(source, "()") + ", " + seq
	of.Check = "two records of one identity"
	err := v.report(ctx, of, fmt.Sprintf("SELECT count(), any(concat(%s)) FROM (SELECT %s FROM %s.%s FINAL WHERE %s GROUP BY %[2]s HAVING count() > 1)",
		recordExample, columns, v.database, of.Table, where))
	if err != nil {
		return err
	}
	return v.duplicates(ctx, of, where)
}
