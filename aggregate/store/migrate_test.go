package store

import (
	"errors"
	"testing"
)

func TestMigrate(t *testing.T) {
	s := open(t, engineOptions(t))
	if _, err := s.Cells(t.Context(), testQuery()); !errors.Is(err, ErrNoSchema) {
		t.Errorf("question before migrating: %v, want ErrNoSchema", err)
	}
	for range 2 {
		if err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	status, err := s.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range status {
		if !m.Current || m.Applied.IsZero() || int(m.Version) != i+1 {
			t.Errorf("migration %d: %+v, want applied and current", i+1, m)
		}
	}
	if len(status) == 0 {
		t.Error("no migrations")
	}
	if rows, err := s.Cells(t.Context(), testQuery()); err != nil || len(rows) != 0 {
		t.Errorf("empty store: %d rows, %v", len(rows), err)
	}
}
