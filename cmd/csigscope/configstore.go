package main

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/csigscope/csigscope/aggregate/store"
)

// storeConfig is where rows go, for the commands with --store. Their flags, and the
// environment variables of those, come before it.
type storeConfig struct {
	DSN       storeTarget     `yaml:"dsn,omitempty"`
	Limits    limitsConfig    `yaml:"limits,omitempty"`
	Retention retentionConfig `yaml:"retention,omitempty"`
	MaxDisk   byteSize        `yaml:"max_disk,omitempty"`   // budget that long-running commands trim to
	TrimEvery interval        `yaml:"trim_every,omitempty"` // how often they look
	Outbox    outboxConfig    `yaml:"outbox,omitempty"`
}

// limitsConfig bounds each question; see store.Limits. What the target says itself
// comes first.
type limitsConfig struct {
	Time       interval `yaml:"time,omitempty"`
	ReadRows   quantity `yaml:"read_rows,omitempty"`
	Memory     byteSize `yaml:"memory,omitempty"`
	ResultRows quantity `yaml:"result_rows,omitempty"`
}

// retentionConfig is how long rows are kept after they were written. What is left out
// stays as the database has it.
type retentionConfig struct {
	Fine   interval `yaml:"fine,omitempty"`
	Second interval `yaml:"1s,omitempty"`
	Minute interval `yaml:"1m,omitempty"`
}

type outboxConfig struct {
	Dir  string   `yaml:"dir,omitempty"` // or none
	Size byteSize `yaml:"size,omitempty"`
	Keep interval `yaml:"keep,omitempty"`
}

// defaultStoreConfig is what an empty section means; a retention holds in new databases.
func defaultStoreConfig() storeConfig {
	const day = 24 * time.Hour
	return storeConfig{
		DSN: storeTarget{text: store.KindEmbedded},
		Limits: limitsConfig{
			Time: intervalOf(30 * time.Second), ReadRows: quantity{n: 4e9}, Memory: byteSize{n: 4 << 30}, ResultRows: quantity{n: 1 << 20},
		},
		Retention: retentionConfig{Fine: intervalOf(6 * time.Hour), Second: intervalOf(14 * day), Minute: intervalOf(400 * day)},
		TrimEvery: intervalOf(store.DefaultTrimEvery),
		Outbox:    outboxConfig{Size: byteSize{n: store.DefaultOutboxBytes}, Keep: intervalOf(store.DefaultOutboxKeep)},
	}
}

// merge returns c with the defaults for what it leaves out.
func (c storeConfig) merge() storeConfig {
	d := defaultStoreConfig()
	return storeConfig{
		DSN: cmp.Or(c.DSN, d.DSN),
		Limits: limitsConfig{
			Time: cmp.Or(c.Limits.Time, d.Limits.Time), ReadRows: cmp.Or(c.Limits.ReadRows, d.Limits.ReadRows),
			Memory: cmp.Or(c.Limits.Memory, d.Limits.Memory), ResultRows: cmp.Or(c.Limits.ResultRows, d.Limits.ResultRows),
		},
		Retention: retentionConfig{
			Fine: cmp.Or(c.Retention.Fine, d.Retention.Fine), Second: cmp.Or(c.Retention.Second, d.Retention.Second),
			Minute: cmp.Or(c.Retention.Minute, d.Retention.Minute),
		},
		MaxDisk: c.MaxDisk, TrimEvery: cmp.Or(c.TrimEvery, d.TrimEvery),
		Outbox: outboxConfig{
			Dir: c.Outbox.Dir, Size: cmp.Or(c.Outbox.Size, d.Outbox.Size), Keep: cmp.Or(c.Outbox.Keep, d.Outbox.Keep),
		},
	}
}

// check finds values out of bounds.
func (c *storeConfig) check() error {
	for _, i := range []struct {
		key   string
		value interval
		check func(time.Duration) error
	}{
		{"limits: time", c.Limits.Time, atLeast(time.Millisecond)},
		{"retention: fine", c.Retention.Fine, store.CheckRetention},
		{"retention: 1s", c.Retention.Second, store.CheckRetention},
		{"retention: 1m", c.Retention.Minute, store.CheckRetention},
		{"trim_every", c.TrimEvery, atLeast(time.Second)},
		{"outbox: keep", c.Outbox.Keep, checkOutboxKeep},
	} {
		if !i.value.set {
			continue
		}
		if err := i.check(i.value.d); err != nil {
			return fmt.Errorf("%sstore: %s: %s: %w", atLine(i.value.line), i.key, i.value.d, err)
		}
	}
	if size := c.Outbox.Size; !size.IsZero() {
		if err := checkOutboxSize(int64(size.n)); err != nil {
			return fmt.Errorf("%sstore: outbox: size: %d: %w", atLine(size.line), size.n, err)
		}
	}
	return nil
}

func atLeast(least time.Duration) func(time.Duration) error {
	return func(d time.Duration) error {
		if d < least {
			return fmt.Errorf("expected at least %s", least)
		}
		return nil
	}
}

// target reads the DSN, with the files that it names.
func (c *storeConfig) target() (store.Target, error) {
	t, err := store.ParseDSN(c.DSN.text)
	switch {
	case err == nil:
		return t, nil
	case c.DSN.line > 0:
		return t, fmt.Errorf("read configuration: line %d: store: dsn: %w", c.DSN.line, err)
	}
	return t, fmt.Errorf("--store: %w", err)
}

// limits are those of a target, and for what it leaves open those of the section.
func (c *storeConfig) limits(of store.Limits) store.Limits {
	return store.Limits{
		Time: cmp.Or(of.Time, c.Limits.Time.d), ReadRows: cmp.Or(of.ReadRows, c.Limits.ReadRows.n),
		Memory: cmp.Or(of.Memory, c.Limits.Memory.n), ResultRows: cmp.Or(of.ResultRows, c.Limits.ResultRows.n),
	}
}

// retention is zero for what the file leaves out.
func (c *storeConfig) retention() store.Retention {
	return store.Retention{c.Retention.Fine.d, c.Retention.Second.d, c.Retention.Minute.d}
}

// The scalars of the section know their line, for errors that only show later. Line 0
// was never written.

// storeTarget is the text of a target as --store takes it.
type storeTarget struct {
	text string
	line int
}

// UnmarshalYAML implements yaml.Unmarshaler.
func (s *storeTarget) UnmarshalYAML(n *yaml.Node) error {
	err := store.ErrTarget
	if n.Kind == yaml.ScalarNode {
		err = store.CheckDSN(n.Value)
	}
	if err != nil {
		return fmt.Errorf("line %d: %w", n.Line, err)
	}
	*s = storeTarget{n.Value, n.Line}
	return nil
}

// MarshalYAML implements yaml.Marshaler. Passwords are not printed.
func (s storeTarget) MarshalYAML() (any, error) { //nolint:unparam // the interface has an error
	text, held := store.WithoutPassword(s.text)
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: text}
	if held {
		n.LineComment = "# the password is left out: password_file=FILE names a file with it, " + store.PasswordVariable + " holds it"
	}
	return n, nil
}

// IsZero implements yaml.IsZeroer.
func (s storeTarget) IsZero() bool { return s.text == "" }

// interval is a time such as 90s, 6h or 14d.
type interval struct {
	d    time.Duration
	set  bool // 0 is a value
	line int
}

func intervalOf(d time.Duration) interval { return interval{d: d, set: true} }

// UnmarshalYAML implements yaml.Unmarshaler.
func (i *interval) UnmarshalYAML(n *yaml.Node) error {
	d, err := parseDays(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil || d < 0 {
		return fmt.Errorf("line %d: %q: expected a time such as 90s, 6h or 14d", n.Line, n.Value)
	}
	*i = interval{d, true, n.Line}
	return nil
}

// MarshalYAML implements yaml.Marshaler.
func (i interval) MarshalYAML() (any, error) { //nolint:unparam // the interface has an error
	if i.d >= 24*time.Hour && i.d%(24*time.Hour) == 0 {
		return fmt.Sprintf("%dd", i.d/(24*time.Hour)), nil
	}
	text := i.d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text, nil
}

// IsZero implements yaml.IsZeroer.
func (i interval) IsZero() bool { return !i.set }

// byteSize is a size such as 50GB or 4GiB.
type byteSize struct {
	n    uint64
	line int
}

// UnmarshalYAML implements yaml.Unmarshaler.
func (b *byteSize) UnmarshalYAML(n *yaml.Node) error {
	size, err := parseBytes(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil {
		return fmt.Errorf("line %d: %w", n.Line, cmp.Or(err, errSize))
	}
	*b = byteSize{size, n.Line}
	return nil
}

// MarshalYAML implements yaml.Marshaler.
func (b byteSize) MarshalYAML() (any, error) { //nolint:unparam // the interface has an error
	for _, u := range byteUnits {
		if n := uint64(u.size); n > 1 && b.n%n == 0 && b.n/n < 1<<10 {
			return fmt.Sprintf("%d%s", b.n/n, u.name), nil
		}
	}
	return b.n, nil
}

// IsZero implements yaml.IsZeroer.
func (b byteSize) IsZero() bool { return b.n == 0 }

// quantity is a number above 0, such as 1048576 or 4e9.
type quantity struct {
	n    uint64
	line int
}

var (
	errSize     = errors.New("expected a size such as 50GB")
	errQuantity = errors.New("expected a whole number above 0, such as 1000000 or 4e9")
)

// UnmarshalYAML implements yaml.Unmarshaler.
func (q *quantity) UnmarshalYAML(n *yaml.Node) error {
	v, err := strconv.ParseFloat(n.Value, 64)
	if n.Kind != yaml.ScalarNode || err != nil || !(v >= 1) || v > 1<<53 || v != float64(uint64(v)) {
		return fmt.Errorf("line %d: %q: %w", n.Line, n.Value, errQuantity)
	}
	*q = quantity{uint64(v), n.Line}
	return nil
}

// MarshalYAML implements yaml.Marshaler.
func (q quantity) MarshalYAML() (any, error) { return q.n, nil } //nolint:unparam // the interface has an error

// IsZero implements yaml.IsZeroer.
func (q quantity) IsZero() bool { return q.n == 0 }
