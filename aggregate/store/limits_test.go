package store

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/aggregate/store/chdb"
	"github.com/csigscope/csigscope/aggregate/store/chdb/chdbtest"
)

func TestConstrained(t *testing.T) {
	limits := Limits{Time: 30 * time.Second, ReadRows: 1000, Memory: 2000, ResultRows: 10}
	text := func(s string) *string { return &s }
	free := func(change map[string]probed) map[string]probed {
		m := map[string]probed{
			"readonly": {value: "0"}, "max_execution_time": {value: "0"}, "max_rows_to_read": {value: "0"},
			"max_memory_usage": {value: "0"}, "max_result_rows": {value: "0"},
			"timeout_overflow_mode": {value: "throw"}, "read_overflow_mode": {value: "throw"}, "result_overflow_mode": {value: "throw"},
			"join_use_nulls": {value: "0"}, "aggregate_functions_null_for_empty": {value: "0"},
		}
		for name, p := range change {
			m[name] = p
		}
		return m
	}
	all := func(change clickhouse.Settings) clickhouse.Settings {
		m := clickhouse.Settings{"max_execution_time": uint64(30), "max_rows_to_read": uint64(1000), "max_memory_usage": uint64(2000), "max_result_rows": uint64(10)}
		for name, v := range change {
			m[name] = v
			if v == nil {
				delete(m, name)
			}
		}
		return m
	}
	for name, tt := range map[string]struct {
		server map[string]probed
		want   clickhouse.Settings
	}{
		"no limits":              {free(nil), all(nil)},
		"readonly 2":             {free(map[string]probed{"readonly": {value: "2", fixed: true}}), all(nil)},
		"readonly 1":             {free(map[string]probed{"readonly": {value: "1"}}), clickhouse.Settings{}},
		"nothing known":          {nil, clickhouse.Settings{}},
		"stricter already":       {free(map[string]probed{"max_execution_time": {value: "12.5"}}), all(clickhouse.Settings{"max_execution_time": nil})},
		"weaker so far":          {free(map[string]probed{"max_rows_to_read": {value: "1001"}}), all(nil)},
		"one fixed":              {free(map[string]probed{"max_memory_usage": {value: "0", fixed: true}}), all(clickhouse.Settings{"max_memory_usage": nil})},
		"at most":                {free(map[string]probed{"max_execution_time": {value: "0", max: text("20")}}), all(clickhouse.Settings{"max_execution_time": uint64(20)})},
		"at least":               {free(map[string]probed{"max_result_rows": {value: "0", min: text("50"), max: text("60")}}), all(clickhouse.Settings{"max_result_rows": uint64(50)})},
		"cut instead of refused": {free(map[string]probed{"result_overflow_mode": {value: "break"}}), all(clickhouse.Settings{"result_overflow_mode": "throw"})},
		"cut, and fixed":         {free(map[string]probed{"result_overflow_mode": {value: "break", fixed: true}}), all(nil)},
		"NULL in joins":          {free(map[string]probed{"join_use_nulls": {value: "1"}}), all(clickhouse.Settings{"join_use_nulls": uint64(0)})},
		"NULL of nothing, fixed": {free(map[string]probed{"aggregate_functions_null_for_empty": {value: "1", fixed: true}}), nil},
		"no number":              {free(map[string]probed{"max_memory_usage": {value: "auto(5)"}}), all(nil)},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := limits.constrained(tt.server)
			if diff := cmp.Diff(tt.want, got); diff != "" || (err != nil) != (tt.want == nil) {
				t.Error(err, diff)
			}
		})
	}
}

// TestProbe has one user that may not change settings, the engine's reader, and one that may.
func TestProbe(t *testing.T) {
	engine := chdbtest.Start(t)
	for _, tt := range []struct {
		role chdb.Role
		want bool
	}{{chdb.RoleReader, false}, {chdb.RoleMigrator, true}} {
		s := open(t, Options{Reader: engine.ClickHouseOptions(tt.role)})
		server, err := s.probeSettings(t.Context(), s.reader)
		if err != nil || len(server) != 1+len(meanings)+len(s.limits.settings())+len(overflow) {
			t.Fatalf("%d settings, %v", len(server), err)
		}
		if got := len(s.settings) > 0; got != tt.want {
			t.Errorf("%s: settings %v are sent, want any %t", tt.role, s.settings, tt.want)
		}
	}
}

// TestLimitError: the engine refuses a question that is too expensive.
func TestLimitError(t *testing.T) {
	sequential(t)
	s := openStore(t)
	fillTables(t, s)
	for _, setting := range []string{"max_rows_to_read = 1", "max_memory_usage = 1000"} {
		err := s.query(t.Context(), s.migrator, "read", "SELECT max(sum), min(seq) FROM csigscope.partials_1s WHERE bytes > 5 SETTINGS "+setting, nil)
		if !errors.Is(err, ErrLimit) || exceptionCode(err) == 0 {
			t.Errorf("%s: %v, want ErrLimit", setting, err)
		}
	}
}

func TestUndated(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	hidden := undated{ctx}
	if _, dated := hidden.Deadline(); dated {
		t.Error("a deadline shows")
	}
	<-hidden.Done()
	if !errors.Is(hidden.Err(), context.DeadlineExceeded) {
		t.Error(hidden.Err())
	}
}
