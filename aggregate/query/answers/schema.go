package answers

import (
	"context"
	"fmt"
	"time"

	"github.com/csigscope/csigscope/aggregate/query/tabular"
	"github.com/csigscope/csigscope/aggregate/store"
)

// Migrations lists the versions of the schema, and when a database got each.
func Migrations(status []store.MigrationStatus) *tabular.Listing {
	t := &tabular.Listing{Columns: []string{"version", "name", "applied", "current"}}
	for _, m := range status {
		row := []any{nil, m.Name, nil, m.Current}
		if m.Version > 0 {
			row[0] = m.Version
		}
		if !m.Applied.IsZero() {
			row[2] = m.Applied.UTC().Format(time.RFC3339)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// Verified lists the inconsistencies of a store, and counts the faults among them.
func Verified(ctx context.Context, db *store.Store, o store.VerifyOptions) (t *tabular.Listing, faults int, err error) {
	t = &tabular.Listing{Columns: []string{"kind", "check", "table", "day", "count", "example"}}
	err = db.Verify(ctx, o, func(f store.Finding) error {
		row := []any{"info", f.Check, f.Table, nil, f.Count, f.Example}
		if !f.Info {
			row[0] = "fault"
			faults++
		}
		if !f.Day.IsZero() {
			row[3] = f.Day.Format(time.DateOnly)
		}
		t.Rows = append(t.Rows, row)
		return nil
	})
	return t, faults, err
}

// Dropped lists deleted partitions.
func Dropped(list []store.Dropped) *tabular.Listing {
	t := &tabular.Listing{Columns: []string{"table", "partition", "rows", "bytes"}}
	for _, d := range list {
		t.Rows = append(t.Rows, []any{d.Table, d.Partition, d.Rows, d.Bytes})
	}
	return t
}

// Producers lists live producers, and whether they are forgotten.
func Producers(list []store.Producer) *tabular.Listing {
	t := &tabular.Listing{Columns: []string{"name", "id", "last", "forgotten"}}
	for _, p := range list {
		row := []any{p.Name, fmt.Sprintf("%016x", p.ID), nil, p.Forgotten}
		if !p.Last.IsZero() {
			row[2] = p.Last.UTC().Format(time.RFC3339)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// Unpinned lists names that accept their next description.
func Unpinned(list []store.UnpinnedName) *tabular.Listing {
	t := &tabular.Listing{Columns: []string{"kind", "name", "exporter", "pinned"}}
	for _, u := range list {
		t.Rows = append(t.Rows, []any{u.Kind, u.Name, u.Exporter, u.At.UTC().Format(time.RFC3339)})
	}
	return t
}
