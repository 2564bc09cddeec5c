package store

import (
	"context"
	"fmt"
	"time"
)

// sourceColumns identify a run in tables of partials.
const sourceColumns = "(producer, incarnation, config_epoch)"

// done are the sources of runs that came to their end: only of those are all rows and
// names there.
func (v *verifier) done() string {
	return fmt.Sprintf("%s IN (SELECT producer, incarnation, epoch FROM %s.runs WHERE state = 'done')", sourceColumns, v.database)
}

// runs checks what is said of runs, apart from their rows.
func (v *verifier) runs(ctx context.Context) error {
	const example = "concat('producer ', toString(producer), ', incarnation ', toString(incarnation), ', epoch ', toString(epoch), ', ', name)"
	passes := fmt.Sprintf(`SELECT producer, incarnation, epoch, any(mode) AS mode, any(name) AS name,
countIf(state = 'done') AS done, maxIf(at, state = 'started') AS started, max(started) OVER (PARTITION BY producer) AS latest
FROM %s.runs GROUP BY producer, incarnation, epoch`, v.database)
	// A live run is under way until its producer begins another.
	err := v.report(ctx, Finding{Check: "run never ended", Table: "runs"}, fmt.Sprintf(
		"SELECT count(), any(%s) FROM (%s) WHERE done = 0 AND started < '%s' AND (mode = 'replay' OR started < latest)",
		example, passes, stamp(v.options.Now.Add(-v.options.Grace))))
	if err != nil {
		return err
	}
	err = v.report(ctx, Finding{Check: "run ended that never began", Table: "runs"}, fmt.Sprintf(
		"SELECT count(), any(%s) FROM (%s) WHERE done > 0 AND toUnixTimestamp64Nano(started) = 0", example, passes))
	if err != nil {
		return err
	}
	err = v.report(ctx, Finding{Check: "run under an unknown configuration", Table: "runs"}, fmt.Sprintf(
		"SELECT count(), any(%s) FROM (%s) WHERE epoch NOT IN (SELECT epoch FROM %s.epochs)", example, passes, v.database))
	if err != nil {
		return err
	}
	return v.report(ctx, Finding{Check: "run superseded by a later one", Table: "runs", Info: true}, fmt.Sprintf(
		"SELECT count(), any(concat('producer ', toString(producer), ', incarnation ', toString(incarnation), ', epoch ', toString(epoch))) FROM %s.superseded", v.database))
}

// references checks that the ids in rows stand for something.
func (v *verifier) references(ctx context.Context, g int, day time.Time) error {
	table := grainAt(g).table()
	from, when := v.database+"."+table, during(g, day, 24*time.Hour)
	for _, c := range []struct{ name, example, ids, known string }{
		{
			"rows outside of a run", "concat('producer ', toString(id.1), ', incarnation ', toString(id.2), ', epoch ', toString(id.3))",
			"SELECT DISTINCT " + sourceColumns + " AS id FROM " + from + " WHERE " + when,
			"SELECT (producer, incarnation, epoch) FROM " + v.database + ".runs",
		},
		{
			"unknown configuration", "concat('epoch ', toString(id))",
			"SELECT DISTINCT config_epoch AS id FROM " + from + " WHERE " + when,
			"SELECT epoch FROM " + v.database + ".epochs",
		},
		{
			"group without a name", "concat('group ', toString(id))",
			"SELECT DISTINCT arrayJoin([src_group, dst_group]) AS id FROM " + from + " WHERE " + when + " AND " + v.done(),
			"SELECT id FROM " + v.database + ".groups",
		},
		{
			"location without a name", "concat('location ', toString(id))",
			"SELECT DISTINCT location AS id FROM " + from + " WHERE location > 1 AND " + when + " AND " + v.done(),
			"SELECT id FROM " + v.database + ".locations",
		},
	} {
		query := fmt.Sprintf("SELECT count(), any(%s) FROM (%s) WHERE id NOT IN (%s)", c.example, c.ids, c.known)
		if err := v.report(ctx, Finding{Check: c.name, Table: table, Day: day}, query); err != nil {
			return err
		}
	}
	return nil
}

// duplicates counts rows that were written again and are not merged yet. Answers count
// them once.
func (v *verifier) duplicates(ctx context.Context, g int, day time.Time) error {
	table, when := grainAt(g).table(), during(g, day, 24*time.Hour)
	query := fmt.Sprintf("SELECT (SELECT count() FROM %[1]s.%[2]s WHERE %[3]s) - (SELECT count() FROM %[1]s.%[2]s FINAL WHERE %[3]s) AS more, ''",
		v.database, table, when)
	query = "SELECT toUInt64(greatest(more, 0)), 'replaced when the server merges' FROM (" + query + ")"
	return v.report(ctx, Finding{Check: "rows written more than once", Table: table, Day: day, Info: true}, query)
}
