package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// ErrLimit is the error of questions that cost more than they may.
var ErrLimit = errors.New("the question costs more than its limit")

// Limits are what a server may spend on one question. They travel as settings, where
// the server's user may change those, and only where they are stricter than what the
// user has anyway. The embedded engine has limits of its own and takes none.
type Limits struct {
	Time       time.Duration // 30 s unless set
	ReadRows   uint64        // rows read from tables, 4e9 unless set
	Memory     uint64        // bytes, 4 GiB unless set
	ResultRows uint64        // 1<<20 unless set
}

func (l Limits) withDefaults() Limits {
	return Limits{
		Time:       defaultTo(max(l.Time, 0), 30*time.Second),
		ReadRows:   defaultTo(l.ReadRows, 4e9),
		Memory:     defaultTo(l.Memory, 4<<30),
		ResultRows: defaultTo(l.ResultRows, 1<<20),
	}
}

// The settings that limits travel as. What happens beyond them is an error, which
// servers can be told otherwise.
const (
	settingTime       = "max_execution_time"
	settingReadRows   = "max_rows_to_read"
	settingMemory     = "max_memory_usage"
	settingResultRows = "max_result_rows"
	settingReadOnly   = "readonly"
)

// overflow says of each limit which setting makes it an error.
var overflow = map[string]string{
	settingTime:       "timeout_overflow_mode",
	settingReadRows:   "read_overflow_mode",
	settingResultRows: "result_overflow_mode",
}

func (l Limits) settings() map[string]uint64 {
	return map[string]uint64{
		settingTime:       uint64(math.Ceil(l.Time.Seconds())),
		settingReadRows:   l.ReadRows,
		settingMemory:     l.Memory,
		settingResultRows: l.ResultRows,
	}
}

// probed is what a server says of one setting of its user.
type probed struct {
	value    string
	min, max *string // constraints; nil without
	fixed    bool    // the user may not change it
}

// constrained gives the settings to send: a user that may not change one has what the
// server's administrator gave it, and is not refused for asking.
func (l Limits) constrained(server map[string]probed) clickhouse.Settings {
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
			want = min(want, defaultTo(number(*p.max), want))
		}
		if p.min != nil {
			want = max(want, number(*p.min))
		}
		send[name] = want
		if mode := overflow[name]; mode != "" && changeable(mode) && server[mode].value != "throw" {
			send[mode] = "throw"
		}
	}
	return send
}

// number reads a setting's value; 0, which is no limit, where it is no number.
func number(text string) uint64 {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || !(f >= 0) || f >= math.MaxUint64 {
		return 0
	}
	return uint64(math.Ceil(f))
}

// limitQuestions asks once what the reader's user may change.
func (s *Store) limitQuestions(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.limits.Time)
	defer cancel()
	server, err := s.probeSettings(ctx, s.reader)
	if err != nil {
		return err
	}
	s.settings = s.limits.constrained(server)
	return nil
}

// probeSettings asks what the user of a connection may change.
func (s *Store) probeSettings(ctx context.Context, conn driver.Conn) (map[string]probed, error) {
	names := []string{settingReadOnly}
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

// undated is a context that ends in time without telling when: the client would send
// that as max_execution_time, which a constrained user may not change.
type undated struct{ context.Context }

// Deadline implements context.Context.
func (undated) Deadline() (time.Time, bool) { return time.Time{}, false }

// within bounds a question by the limits, as far as the server's user may.
func (s *Store) within(ctx context.Context) context.Context {
	return clickhouse.Context(undated{ctx}, clickhouse.WithSettings(s.settings))
}

// describeQuestion is describe for questions, which have limits.
func (s *Store) describeQuestion(what string, err error) error {
	switch exceptionCode(err) {
	case codeTooManyRows, codeTimeout, codeTooSlow, codeMemoryLimit:
		return fmt.Errorf("%s at %s: %w: ask for a shorter range or a longer step (%w)", what, s.host, ErrLimit, &flat{err})
	}
	return s.describe(what, err)
}
