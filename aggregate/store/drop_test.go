package store

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestDrop(t *testing.T) {
	sequential(t)
	s := openStore(t)
	fillTables(t, s)
	c, err := s.Contents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Tables) != numResolutionTables+len(recordTables()) || !c.First.Equal(testStart) || !c.Last.Equal(testStart.Add(time.Minute)) || c.Bytes == 0 {
		t.Errorf("contents: %+v", c)
	}
	for _, table := range c.Tables {
		want := readStrings(t, s, fmt.Sprintf("SELECT toString(count()) FROM csigscope.%s", table.Name))[0]
		if got := fmt.Sprint(table.Rows); got != want || got == "0" {
			t.Errorf("%s: %s rows, want %s", table.Name, got, want)
		}
	}
	// After a killed drop the database can still be dropped.
	alive := s.migrator
	s.migrator = &mortal{alive, 20}
	if err := s.Drop(t.Context()); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	s.migrator = alive
	if _, err := s.Contents(t.Context()); err != nil {
		t.Errorf("contents of what is left: %v", err)
	}
	if err := s.Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := readStrings(t, s, "SELECT name FROM system.databases WHERE name = 'csigscope'"); len(left) != 0 {
		t.Error("the database is still there")
	}
	if err := s.Drop(t.Context()); !errors.Is(err, ErrNoSchema) {
		t.Errorf("a second time: %v, want ErrNoSchema", err)
	}
	if err := s.Migrate(t.Context()); err != nil {
		t.Errorf("and from the start: %v", err)
	}
}

func TestDropForeign(t *testing.T) {
	sequential(t)
	s := open(t, engineOptions(t))
	exec := func(statement string) {
		t.Helper()
		if err := s.migrator.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(when string, want error) {
		t.Helper()
		if err := s.Drop(t.Context()); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", when, err, want)
		}
		if _, err := s.Contents(t.Context()); !errors.Is(err, want) {
			t.Errorf("contents of %s: %v, want %v", when, err, want)
		}
	}
	refused("no database", ErrNoSchema)
	exec("CREATE DATABASE csigscope")
	exec("CREATE TABLE csigscope.wages (x UInt8) ENGINE = Memory")
	refused("somebody else's database", ErrForeign)
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	fillTables(t, s)
	refused("a table of somebody else's in ours", ErrForeign)
	if extent, err := s.Extent(t.Context()); err != nil || extent.Observations == 0 {
		t.Errorf("after the refusals: %d observations, %v", extent.Observations, err)
	}
	exec("DROP TABLE csigscope.wages")
	if err := s.apply(t.Context(), s.migrator, migration{Version: 9999, Name: "from_the_future", Statements: []string{"SELECT 1"}}); err != nil {
		t.Fatal(err)
	}
	refused("a newer schema", ErrNewerSchema)
}
