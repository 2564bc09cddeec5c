package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/csigscope/csigscope/aggregate"
)

// Finding is an inconsistency in a database.
type Finding struct {
	Check   string    // the broken rule
	Table   string    // where
	Day     time.Time // of the windows, UTC; zero if it does not apply
	Count   uint64    // number of occurrences
	Example string    // one of them
	Info    bool      // informational, not a fault
}

// VerifyOptions are exceptions for Verify.
type VerifyOptions struct {
	// Grace is how long a run may take before it counts as one that never ended; 1 h unless set.
	Grace time.Duration
	// Now is the time, by which rows expire.
	Now time.Time
}

// Verify checks the rules that hold for all rows, and calls found for each violation: each
// observation of a tap is stored, late, rejected, overflow or in a gap; each resolution is the
// exact sum of the finer one if the run has ended and neither has expired; the numbers of a row
// are consistent; no two records share an identity; and ids have names, runs and configurations.
// It reads every row a few times, in pieces of a day or less, so that memory does not grow with
// the store. It may miss rows that arrive meanwhile.
func (s *Store) Verify(ctx context.Context, o VerifyOptions, found func(Finding) error) error {
	o.Grace = cmp.Or(o.Grace, time.Hour)
	status, err := s.Status(ctx)
	if err != nil {
		return err
	}
	for _, m := range status {
		if !m.Current {
			return fmt.Errorf("verify database %s at %s: migration %d, %s: %w", s.database, s.host, m.Version, m.Name, ErrOldSchema)
		}
	}
	v := &verifier{Store: s, options: o, found: found}
	if err := v.prepare(ctx); err != nil {
		return err
	}
	if err := v.runs(ctx); err != nil {
		return err
	}
	if err := v.partial(ctx); err != nil {
		return err
	}
	if err := v.records(ctx); err != nil {
		return err
	}
	if err := v.holdings(ctx); err != nil {
		return err
	}
	if err := v.placement(ctx); err != nil {
		return err
	}
	var days [numResolutionTables][]time.Time
	for g := range numResolutionTables {
		if days[g], err = v.slots(ctx, resolutionTableAt(g).table(), 24*time.Hour, "1"); err != nil {
			return err
		}
	}
	for g := range numResolutionTables {
		for _, day := range days[g] {
			if err := v.day(ctx, g, day); err != nil {
				return err
			}
		}
	}
	if err := v.conserved(); err != nil {
		return err
	}
	for _, day := range days[fineTable] {
		if err := v.folds(ctx, fineTable, day); err != nil {
			return err
		}
	}
	for _, day := range merged(days[secondTable], days[minuteTable]) {
		check := v.folds
		if !slices.Contains(days[secondTable], day) {
			check = v.wholeDay
		}
		if err := check(ctx, secondTable, day); err != nil {
			return err
		}
	}
	return nil
}

// wholeDay reports a day whose finer windows are all gone before their time: they were deleted to
// fit a disk, or by hand.
func (v *verifier) wholeDay(ctx context.Context, g int, day time.Time) error {
	table := resolutionTableAt(g + 1).table()
	query := fmt.Sprintf("SELECT countIf(stored_at > '%s'), anyIf(%s, stored_at > '%[1]s') FROM %[3]s.%[4]s WHERE %[5]s",
		v.expired(g), rowExample(g+1), v.database, table, resolutionTableAt(g+1).during(day, day.Add(24*time.Hour)))
	return v.report(ctx, Finding{Check: "finer windows of the whole day are gone", Table: table, Day: day, Info: true}, query)
}

// expired is the time of storing before which rows may have expired in a table or in the next
// coarser one.
func (v *verifier) expired(g int) string {
	return v.options.Now.Add(-min(v.expiry[g], v.expiry[g+1]) + expiryMargin).UTC().Format(time.DateTime)
}

// verifier is one pass over a database.
type verifier struct {
	*Store
	options  VerifyOptions
	found    func(Finding) error
	settings clickhouse.Settings
	spill    string // clause that bounds the memory of groups, if it may be set
	expiry   Retention
	held     map[aggregate.Source]*holding // by ended runs with rows of taps
}

// Limits of a query of Verify. Its purpose is to read all rows.
const (
	verifyTime  = 10 * time.Minute
	verifySpill = 512 << 20
)

func (v *verifier) prepare(ctx context.Context) error {
	server, err := v.probeSettings(ctx, v.migrator)
	if err != nil {
		return err
	}
	v.settings, err = Limits{Time: verifyTime, ReadRows: 1 << 62, Memory: v.limits.Memory, ResultRows: maxVerifyRows}.constrained(server)
	if err != nil {
		return err
	}
	if server[settingReadOnly].value != "1" {
		v.spill = fmt.Sprintf("\nSETTINGS do_not_merge_across_partitions_select_final = 1, max_bytes_before_external_group_by = %d", verifySpill)
		if v.layout.clustered() {
			v.spill += ", distributed_product_mode = 'global'"
		}
	}
	v.expiry, err = v.Retention(ctx)
	return err
}

// maxVerifyRows bounds the slots of a table: days of three centuries, or pieces of a day.
const maxVerifyRows = 100_000

// ask runs a query of the verification.
func (v *verifier) ask(ctx context.Context, query string, row func(driver.Rows) error) error {
	ctx, cancel := context.WithTimeout(ctx, verifyTime)
	defer cancel()
	rows, err := v.migrator.Query(clickhouse.Context(undated{ctx}, clickhouse.WithSettings(v.settings)), query+v.spill)
	if err != nil {
		return v.describe("verify", err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows); err != nil {
			return v.describe("verify", err)
		}
	}
	return v.describe("verify", rows.Err())
}

// slots are the starts of the pieces of time that hold windows of a table.
func (v *verifier) slots(ctx context.Context, table string, length time.Duration, where string) ([]time.Time, error) {
	var list []time.Time
	query := fmt.Sprintf("SELECT DISTINCT intDiv(toUnixTimestamp64Nano(window_start), %d) AS slot FROM %s.%s WHERE %s ORDER BY slot LIMIT %d",
		length.Nanoseconds(), v.database, table, where, maxVerifyRows)
	err := v.ask(ctx, query, func(rows driver.Rows) error {
		var slot int64
		if err := rows.Scan(&slot); err != nil {
			return err
		}
		list = append(list, time.Unix(0, slot*length.Nanoseconds()).UTC())
		return nil
	})
	return list, err
}

// report runs a query for a count and an example of a violation.
func (v *verifier) report(ctx context.Context, f Finding, query string) error {
	err := v.ask(ctx, query, func(rows driver.Rows) error { return rows.Scan(&f.Count, &f.Example) })
	if err != nil || f.Count == 0 {
		return err
	}
	return v.found(f)
}

// day checks the windows of one table on one day.
func (v *verifier) day(ctx context.Context, g int, day time.Time) error {
	if err := v.identities(ctx, g, day); err != nil {
		return err
	}
	if err := v.references(ctx, g, day); err != nil {
		return err
	}
	if err := v.hold(ctx, g, day); err != nil {
		return err
	}
	table := resolutionTableAt(g).table()
	return v.duplicates(ctx, Finding{Table: table, Day: day}, resolutionTableAt(g).during(day, day.Add(24*time.Hour)))
}

// rowExample is an expression that describes one row.
func rowExample(g int) string {
	length := "''"
	if resolutionTableAt(g).Fine() {
		length = "concat(' of ', toString(resolution_ns), ' ns')"
	}
	return "concat('window ', toString(window_start), " + length + `, ', producer ', toString(producer), ', incarnation ', toString(incarnation), ', seq ', toString(seq),
', signal ', toString(signal), ', kind ', toString(source_kind), ', cell ', toString(src_group), ' to ', toString(dst_group), ', location ', toString(location))`
}

// identities checks the rules within each row.
func (v *verifier) identities(ctx context.Context, g int, day time.Time) error {
	length := fmt.Sprint(resolutionTableAt(g).Length.Nanoseconds())
	if resolutionTableAt(g).Fine() {
		length = "resolution_ns"
	}
	return v.each(ctx, Finding{Table: resolutionTableAt(g).table(), Day: day}, rowExample(g), resolutionTableAt(g).during(day, day.Add(24*time.Hour)), []check{
		{"min above max", "min > max"},
		{"heavy above observations", "heavy > observations"},
		{"untouched and trimmed above observations", "toUInt128(untouched) + trimmed > observations"},
		{"samples and trimmed above observations", "toUInt128(samples) + trimmed > observations"},
		{"heavy and unjudged above measured", "signal NOT BETWEEN 16 AND 31 AND toUInt128(heavy) + unjudged > measured"},
		{"evidence that does not exist", fmt.Sprintf("evidence > %d", aggregate.AllEvidence)},
		{"measured and trimmed above observations", "toUInt128(measured) + trimmed > observations"},
		{"distribution does not match the measured observations", "signal NOT BETWEEN 16 AND 31 AND arraySum(n -> toUInt128(n), mapValues(dist)) != measured"},
		{"sum outside of min and max", "measured > 0 AND (toUInt128(sum) < toUInt128(min) * measured OR toUInt128(sum) > toUInt128(max) * measured)"},
		{"window is not a multiple of its length", length + " = 0 OR toUnixTimestamp64Nano(window_start) % toInt64(" + length + ") != 0"},
		{"values where nothing was measured", "measured = 0 AND (sum != 0 OR min != 0 OR max != 0)"},
	})
}

// check is a condition that no row may meet.
type check struct{ name, broken string }

// each reports, for each check, the number of violating rows and one example.
func (v *verifier) each(ctx context.Context, of Finding, example, where string, checks []check) error {
	columns := make([]string, 0, len(checks))
	for _, c := range checks {
		columns = append(columns, fmt.Sprintf("countIf(%s), anyIf(%s, %[1]s)", c.broken, example))
	}
	query := fmt.Sprintf("SELECT %s FROM %s.%s FINAL WHERE %s", strings.Join(columns, ",\n"), v.database, of.Table, where)
	counts, examples := make([]uint64, len(checks)), make([]string, len(checks))
	err := v.ask(ctx, query, func(rows driver.Rows) error {
		into := make([]any, 0, 2*len(checks))
		for i := range checks {
			into = append(into, &counts[i], &examples[i])
		}
		return rows.Scan(into...)
	})
	if err != nil {
		return err
	}
	for i, c := range checks {
		if counts[i] == 0 {
			continue
		}
		of.Check, of.Count, of.Example = c.name, counts[i], examples[i]
		if err := v.found(of); err != nil {
			return err
		}
	}
	return nil
}
