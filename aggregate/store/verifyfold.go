package store

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// counters add up from one resolution to the next.
var counters = []string{"observations", "bytes", "measured", "sum", "untouched", "trimmed", "heavy", "heavy_sum", "samples", "unjudged"}

// folds compares the windows of a table with those of the next coarser one. Fine rows may exist
// for congested cells only, so they may add up to less than their second; seconds add up to
// minutes exactly.
func (v *verifier) folds(ctx context.Context, g int, day time.Time) error {
	// Few enough windows at once for their cells to fit in memory.
	piece, check := time.Hour, "seconds do not fold into minutes"
	if resolutionTableAt(g).Fine() {
		piece, check = 5*time.Minute, "fine windows exceed their second"
	}
	table := resolutionTableAt(g).table()
	pieces, err := v.slots(ctx, table, piece, resolutionTableAt(g).during(day, day.Add(24*time.Hour)))
	if err != nil {
		return err
	}
	if g == secondTable {
		more, err := v.slots(ctx, resolutionTableAt(minuteTable).table(), piece, resolutionTableAt(minuteTable).during(day, day.Add(24*time.Hour)))
		if err != nil {
			return err
		}
		pieces = merged(pieces, more)
	}
	total := Finding{Check: check, Table: table, Day: day}
	found := v.found
	defer func() { v.found = found }()
	v.found = func(f Finding) error {
		total.Count += f.Count
		total.Example = f.Example
		return nil
	}
	for _, from := range pieces {
		if err := v.report(ctx, total.only(), v.fold(g, from, piece)); err != nil {
			return err
		}
	}
	if total.Count == 0 {
		return nil
	}
	return found(total)
}

// only returns the finding without count and example.
func (f Finding) only() Finding {
	f.Count, f.Example = 0, ""
	return f
}

// merged merges two ascending lists without duplicates.
func merged(a, b []time.Time) []time.Time {
	var list []time.Time
	for len(a) > 0 || len(b) > 0 {
		next := &a
		if len(a) == 0 || len(b) > 0 && b[0].Before(a[0]) {
			next = &b
		}
		if t := (*next)[0]; len(list) == 0 || !list[len(list)-1].Equal(t) {
			list = append(list, t)
		}
		*next = (*next)[1:]
	}
	return list
}

// fold is the query for the windows of a piece that differ. It leaves out rows that may have
// expired in either table, runs that have not ended, and coarser windows of which a gap, perhaps of
// an unknown run, has rows in either table. Gaps of finer windows that were open when a process was
// killed excuse nothing: the coarser windows are rebuilt from those that had closed. Past a producer's
// key budget a cell may be separate in one resolution and part of the overflow in the other: then only
// the totals are compared.
func (v *verifier) fold(g int, from time.Time, piece time.Duration) string {
	length := resolutionTableAt(g + 1).Length.Nanoseconds()
	side := func(n, g int, resolution string) string {
		return fmt.Sprintf(`SELECT %d AS side, %s AS step, intDiv(toUnixTimestamp64Nano(window_start), %d) AS slot, producer, incarnation, config_epoch, signal, source_kind, src_group, dst_group, stored_at, min, max, %s
FROM %s.%s FINAL WHERE %s AND %s`,
			n, resolution, length, strings.Join(counters, ", "), v.database, resolutionTableAt(g).table(), resolutionTableAt(g).during(from, from.Add(piece)), v.done())
	}
	finer, coarser := side(0, g, "toUInt64(0)"), side(1, g+1, "toUInt64(0)")
	if resolutionTableAt(g).Fine() {
		// Each length of fine windows is compared with the same second.
		finer = side(0, g, "resolution_ns")
		coarser = fmt.Sprintf("SELECT side, arrayJoin((SELECT groupUniqArray(%d)(resolution_ns) FROM %s.%s WHERE %s)) AS step, * EXCEPT (side, step) FROM (%s)",
			maxFineResolutions, v.database, resolutionTableAt(g).table(), resolutionTableAt(g).during(from, from.Add(piece)), coarser)
	}
	comparison := "!="
	if resolutionTableAt(g).Fine() {
		comparison = ">"
	}
	var sums, differ []string
	for _, c := range counters {
		sums = append(sums, fmt.Sprintf("sumIf(toUInt128(%s), side = 0) AS f_%[1]s, sumIf(toUInt128(%[1]s), side = 1) AS c_%[1]s", c))
		differ = append(differ, fmt.Sprintf("f_%s %s c_%[1]s", c, comparison))
	}
	if !resolutionTableAt(g).Fine() {
		sums = append(sums, "minIf(min, side = 0 AND measured > 0) AS f_min, minIf(min, side = 1 AND measured > 0) AS c_min, maxIf(max, side = 0) AS f_max, maxIf(max, side = 1) AS c_max")
		differ = append(differ, "f_min != c_min", "f_max != c_max")
	}
	overflow := fmt.Sprintf("(slot, producer, incarnation, config_epoch) IN (%s UNION DISTINCT %s)",
		v.overflown(g, length, from, piece), v.overflown(g+1, length, from, piece))
	given := fmt.Sprintf(`SELECT arrayJoin(range(intDiv(toUnixTimestamp64Nano(greatest(window_from, toDateTime64('%[1]s', 9, 'UTC'))) AS first, %[3]d),
greatest(intDiv(toUnixTimestamp64Nano(least(window_to, toDateTime64('%[2]s', 9, 'UTC'))) - 1, %[3]d), intDiv(first, %[3]d)) + 1)), producer, incarnation, epoch
FROM %[4]s.current_gaps WHERE reason NOT IN %[5]s AND (resolution_ns BETWEEN if(reason = '%[7]s', %[3]d, %[6]d) AND %[3]d OR producer = 0 AND resolution_ns = 0) AND (window_to > '%[1]s' OR window_from = '%[1]s') AND window_from < '%[2]s'`,
		stamp(from), stamp(from.Add(piece)), length, v.database, neverTaken, max(resolutionTableAt(g).Length.Nanoseconds(), 1), GapOpen)
	return fmt.Sprintf(`SELECT count(), any(concat('window ', toString(fromUnixTimestamp64Nano(toInt64(slot) * %[1]d, 'UTC')), ', producer ', toString(producer), ', incarnation ', toString(incarnation), ', signal ', toString(signal), ', kind ', toString(source_kind),
', cell ', toString(src), ' to ', toString(dst), ': ', toString(f_observations), ' observations in the finer windows, ', toString(c_observations), ' in the coarser one'))
FROM
(
SELECT step, slot, producer, incarnation, config_epoch, signal, source_kind, if(%[2]s, 0, src_group) AS src, if(%[2]s, 0, dst_group) AS dst, min(stored_at) AS oldest,
%[3]s
FROM (%[4]s UNION ALL %[5]s)
GROUP BY step, slot, producer, incarnation, config_epoch, signal, source_kind, src, dst
)
WHERE oldest > '%[6]s' AND (%[7]s) AND (slot, producer, incarnation, config_epoch) NOT IN (%[8]s) AND (slot, toUInt64(0), toUInt64(0), toUInt64(0)) NOT IN (%[8]s)`,
		length, overflow, strings.Join(sums, ",\n"), finer, coarser, v.expired(g), strings.Join(differ, " OR "), given)
}

// overflown is the query for windows of producers past their key budget.
func (v *verifier) overflown(g int, length int64, from time.Time, piece time.Duration) string {
	return fmt.Sprintf("SELECT intDiv(toUnixTimestamp64Nano(window_start), %d), producer, incarnation, config_epoch FROM %s.%s WHERE src_group = 1 AND %s",
		length, v.database, resolutionTableAt(g).table(), resolutionTableAt(g).during(from, from.Add(piece)))
}

// expiryMargin is how long before its time a row counts as expired.
const expiryMargin = time.Hour
