package store

import (
	"context"
	"fmt"
	"time"
)

// sourceColumns identify a run in tables of partials.
const sourceColumns = "(producer, incarnation, config_epoch)"

// done is the condition for rows of ended runs: only those have all rows and names.
func (v *verifier) done() string { return v.doneOf(sourceColumns) }

func (v *verifier) doneOf(source string) string {
	return fmt.Sprintf("%s IN (SELECT producer, incarnation, epoch FROM %s.runs WHERE state = 'done')", source, v.database)
}

// runs checks the entries of runs, apart from their rows.
func (v *verifier) runs(ctx context.Context) error {
	const example = "concat('producer ', toString(producer), ', incarnation ', toString(incarnation), ', epoch ', toString(epoch), ', ', name)"
	passes := fmt.Sprintf(`SELECT producer, incarnation, epoch, any(mode) AS mode, any(name) AS name,
countIf(state = 'done') AS done, maxIf(at, state = 'started') AS started, max(started) OVER (PARTITION BY producer) AS latest
FROM %s.runs GROUP BY producer, incarnation, epoch`, v.database)
	// A live run goes on until its producer begins another. Superseded runs are not visible.
	err := v.report(ctx, Finding{Check: "run never ended", Table: "runs"}, fmt.Sprintf(
		"SELECT count(), any(%s) FROM (%s) WHERE done = 0 AND started < '%s' AND (mode = 'replay' OR started < latest) AND (producer, incarnation, epoch) NOT IN %s.superseded",
		example, passes, stamp(v.options.Now.Add(-v.options.Grace)), v.database))
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

// placement checks that rows are on the shard that their run is pinned to: a duplicate row on
// another shard would count twice.
func (v *verifier) placement(ctx context.Context) error {
	if !v.layout.clustered() {
		return nil
	}
	for _, table := range []string{resolutionTableAt(fineTable).table(), resolutionTableAt(secondTable).table(), resolutionTableAt(minuteTable).table(), "flows"} {
		err := v.report(ctx, Finding{Check: "rows on another shard than their run", Table: table}, fmt.Sprintf(
			`SELECT count(), any(concat('producer ', toString(producer), ', incarnation ', toString(incarnation), ', on shard ', toString(shard)))
FROM (SELECT DISTINCT producer, incarnation, _shard_num AS shard FROM %[1]s.%[2]s)
WHERE (producer, incarnation, shard) NOT IN (SELECT producer, incarnation, argMin(shard, (at, shard)) FROM %[1]s.%[3]s GROUP BY producer, incarnation)`,
			v.database, table, shardsTable))
		if err != nil {
			return err
		}
	}
	return nil
}

// references checks that ids in rows have names, runs and configurations.
func (v *verifier) references(ctx context.Context, g int, day time.Time) error {
	return v.refer(ctx, Finding{Table: resolutionTableAt(g).table(), Day: day}, resolutionTableAt(g).during(day, day.Add(24*time.Hour)), referring{
		source: sourceColumns, groups: "arrayJoin([src_group, dst_group])", location: "location",
	})
}

// referring are the columns of a table that refer to others; empty if it has none.
type referring struct{ source, groups, location string }

func (v *verifier) refer(ctx context.Context, of Finding, where string, by referring) error {
	for _, c := range []struct{ name, id, example, where, known string }{
		{
			"rows outside of a run", by.source, "concat('producer ', toString(id.1), ', incarnation ', toString(id.2), ', epoch ', toString(id.3))",
			"1", "SELECT (producer, incarnation, epoch) FROM " + v.database + ".runs",
		},
		{
			"unknown configuration", by.source + ".3", "concat('epoch ', toString(id))",
			"1", "SELECT epoch FROM " + v.database + ".epochs",
		},
		{
			"group without a name", by.groups, "concat('group ', toString(id))",
			v.doneOf(by.source), "SELECT id FROM " + v.database + ".groups",
		},
		{
			"location without a name", by.location, "concat('location ', toString(id))",
			"id > 1 AND " + v.doneOf(by.source), "SELECT id FROM " + v.database + ".locations",
		},
	} {
		if c.id == "" {
			continue
		}
		query := fmt.Sprintf("SELECT count(), any(%s) FROM (SELECT DISTINCT %s AS id FROM %s.%s WHERE %s AND %s) WHERE id NOT IN (%s)",
			c.example, c.id, v.database, of.Table, where, c.where, c.known)
		of.Check = c.name
		if err := v.report(ctx, of, query); err != nil {
			return err
		}
	}
	return nil
}

// duplicates counts rows that were written again and are not merged yet. Answers count them once.
func (v *verifier) duplicates(ctx context.Context, of Finding, where string) error {
	query := fmt.Sprintf("SELECT (SELECT count() FROM %[1]s.%[2]s WHERE %[3]s) - (SELECT count() FROM %[1]s.%[2]s FINAL WHERE %[3]s) AS more, ''",
		v.database, of.Table, where)
	query = "SELECT toUInt64(greatest(more, 0)), 'replaced when the server merges' FROM (" + query + ")"
	of.Check, of.Info = "rows written more than once", true
	return v.report(ctx, of, query)
}
