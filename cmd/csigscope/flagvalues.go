package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/spf13/pflag"
)

// flagTypes is what the values of a flag look like, by the type that pflag has for it.
var flagTypes = map[string]string{
	"bool":     "true or false",
	"duration": "a time with a unit, such as 500ms, 10s or 1h30m",
	"float64":  "a number",
	"int":      "a whole number",
	"uint64":   "a whole number of at least 0",
}

// plainFlagError says what a flag's value should look like, in place of the parser's words.
func plainFlagError(err error) error {
	wrong, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	expected, ok := flagTypes[wrong.GetFlag().Value.Type()]
	if !ok {
		return fmt.Errorf("--%s: %w", wrong.GetFlag().Name, wrong.Unwrap())
	}
	return fmt.Errorf("--%s %q: expected %s", wrong.GetFlag().Name, wrong.GetValue(), expected)
}

// byteCount is a flag that is a size in bytes: 0, or a number with or without a unit.
type byteCount int64

// Set implements pflag.Value.
func (b *byteCount) Set(text string) error {
	if text == "0" {
		*b = 0
		return nil
	}
	n, err := parseBytes(text)
	if err == nil {
		*b = byteCount(min(n, math.MaxInt64))
	}
	return err
}

// String implements pflag.Value.
func (b *byteCount) String() string {
	const mib, gib = 1 << 20, 1 << 30
	switch n := int64(*b); {
	case n != 0 && n%gib == 0:
		return fmt.Sprintf("%dGiB", n/gib)
	case n != 0 && n%mib == 0:
		return fmt.Sprintf("%dMiB", n/mib)
	default:
		return strconv.FormatInt(n, 10)
	}
}

// Type implements pflag.Value.
func (b *byteCount) Type() string { return "bytes" }

// addByteFlag adds a flag for a size in bytes, which begins as what n is.
func addByteFlag(flags *pflag.FlagSet, n *int64, name string, value int64, usage string) {
	*n = value
	flags.Var((*byteCount)(n), name, usage)
}
