package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// ErrLimit is the error of questions that exceed a limit.
var ErrLimit = errors.New("the query costs more than its limit")

// Limits bound the server's resources for one question. They are sent as settings, if the
// server's user may change these and if they are stricter than the user's own limits. The
// embedded engine has limits of its own and takes none.
type Limits struct {
	Time       time.Duration // 30 s unless set
	ReadRows   uint64        // rows read from tables, 4e9 unless set
	Memory     uint64        // bytes, 4 GiB unless set
	ResultRows uint64        // 1<<20 unless set
}

func (l Limits) withDefaults() Limits {
	return Limits{
		Time:       cmp.Or(max(l.Time, 0), 30*time.Second),
		ReadRows:   cmp.Or(l.ReadRows, 4e9),
		Memory:     cmp.Or(l.Memory, 4<<30),
		ResultRows: cmp.Or(l.ResultRows, 1<<20),
	}
}

// The settings for limits. Exceeding one is an error, unless the server is configured otherwise.
const (
	settingTime       = "max_execution_time"
	settingReadRows   = "max_rows_to_read"
	settingMemory     = "max_memory_usage"
	settingResultRows = "max_result_rows"
	settingReadOnly   = "readonly"
)

// overflow names, for each limit, the setting that makes exceeding it an error.
var overflow = map[string]string{
	settingTime:       "timeout_overflow_mode",
	settingReadRows:   "read_overflow_mode",
	settingResultRows: "result_overflow_mode",
}

// meanings are settings that have to be off: with them, outer joins and aggregates of nothing give
// NULL. Views switch them off by themselves.
var meanings = []string{"join_use_nulls", "aggregate_functions_null_for_empty"}

func (l Limits) settings() map[string]uint64 {
	return map[string]uint64{
		settingTime:       uint64(math.Ceil(l.Time.Seconds())),
		settingReadRows:   l.ReadRows,
		settingMemory:     l.Memory,
		settingResultRows: l.ResultRows,
	}
}

// probed is one setting of the server's user.
type probed struct {
	value    string
	min, max *string // constraints; nil without
	fixed    bool    // the user may not change it
}

// constrained returns the settings to send, limits and meanings. Settings that the user may not change
// keep the administrator's values: sending them would be refused. It fails if such a value changes the
// results.
func (l Limits) constrained(server map[string]probed) (clickhouse.Settings, error) {
	send := clickhouse.Settings{}
	changeable := func(name string) bool {
		p, known := server[name]
		return known && !p.fixed && server[settingReadOnly].value != "1"
	}
	for name, want := range l.settings() {
		p := server[name]
		if has := number(p.value); !changeable(name) || has > 0 && has <= want {
			continue
		}
		if p.max != nil {
			want = min(want, cmp.Or(number(*p.max), want))
		}
		if p.min != nil {
			want = max(want, number(*p.min))
		}
		send[name] = want
		if mode := overflow[name]; mode != "" && changeable(mode) && server[mode].value != "throw" {
			send[mode] = "throw"
		}
	}
	for _, name := range meanings {
		switch {
		case number(server[name].value) == 0:
		case !changeable(name):
			return nil, fmt.Errorf("use the settings of the server's user: %s = %s, which makes results wrong and which the user may not change: set it to 0 in the user's profile", name, server[name].value)
		default:
			send[name] = uint64(0)
		}
	}
	return send, nil
}

// number parses a setting's value; text that is not a number gives 0, which is no limit.
func number(text string) uint64 {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || !(f >= 0) || f >= math.MaxUint64 {
		return 0
	}
	return uint64(math.Ceil(f))
}

// limitQuestions asks once which settings the reader's user may change.
func (s *Store) limitQuestions(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.limits.Time)
	defer cancel()
	server, err := s.probeSettings(ctx, s.reader)
	if err != nil {
		return err
	}
	s.settings, err = s.limits.constrained(server)
	return err
}

// probeSettings reads the settings and constraints of a connection's user.
func (s *Store) probeSettings(ctx context.Context, conn driver.Conn) (map[string]probed, error) {
	names := append([]string{settingReadOnly}, meanings...)
	for name := range s.limits.settings() {
		names = append(names, name)
	}
	for _, mode := range overflow {
		names = append(names, mode)
	}
	query := fmt.Sprintf("SELECT name, value, min, max, readonly FROM system.settings WHERE name IN ('%s') LIMIT 100", strings.Join(names, "', '"))
	settings := map[string]probed{}
	rows, err := conn.Query(undated{ctx}, query)
	if err != nil {
		return nil, s.describe("read settings", err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		var p probed
		var fixed uint8
		if err := rows.Scan(&name, &p.value, &p.min, &p.max, &fixed); err != nil {
			return nil, s.describe("read settings", err)
		}
		p.fixed = fixed != 0
		settings[name] = p
	}
	return settings, s.describe("read settings", rows.Err())
}

// undated is a context with a deadline that Deadline does not report: the client would send the
// deadline as max_execution_time, which a constrained user may not change.
type undated struct{ context.Context }

// Deadline implements context.Context.
func (undated) Deadline() (time.Time, bool) { return time.Time{}, false }

// within applies the limits and meanings to a question, as far as the server's user may set them.
func (s *Store) within(ctx context.Context) context.Context {
	return clickhouse.Context(undated{ctx}, clickhouse.WithSettings(s.settings))
}

// listing is within without the limit of an answer's rows.
func (s *Store) listing(ctx context.Context) context.Context {
	settings := maps.Clone(s.settings)
	delete(settings, settingResultRows)
	return clickhouse.Context(undated{ctx}, clickhouse.WithSettings(settings))
}

// describeQuestion is describe for questions, which have limits.
func (s *Store) describeQuestion(what string, err error) error {
	switch exceptionCode(err) {
	case codeTooManyRows, codeTimeout, codeTooSlow, codeMemoryLimit:
		return fmt.Errorf("%s at %s: %w: ask for a shorter range or a longer step (%w)", what, s.host, ErrLimit, &flat{err})
	}
	return s.describe(what, err)
}
