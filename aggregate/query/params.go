package query

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/csigscope/csigscope/aggregate/fabric"

	"github.com/csigscope/csigscope/decode/csig"
)

// maxParameter bounds the length of one parameter: the longest sensible value
// lists every signal.
const maxParameter = 512

// readOptions reads the parameters of a bundle request into a copy of base.
// Unknown and repeated parameters are refused: a misspelt bound must not widen the
// answer in silence.
func readOptions(values url.Values, base Options) (Options, error) {
	known := []string{"signal", "from", "to", "step", "level"}
	for name, v := range values {
		if !slices.Contains(known, name) {
			return base, fmt.Errorf("%w: unknown parameter %q: expected %s", ErrInvalid, name, strings.Join(known, ", "))
		}
		if len(v) > 1 || len(v[0]) > maxParameter {
			return base, fmt.Errorf("%w: parameter %s is given twice or longer than %d bytes", ErrInvalid, name, maxParameter)
		}
	}
	var err error
	if base.Named, err = readList(values.Get("signal"), signalName); err != nil {
		return base, fmt.Errorf("%w: signal: %w", ErrInvalid, err)
	}
	if base.Levels, err = readList(values.Get("level"), fabric.ParseLevel); err != nil {
		return base, fmt.Errorf("%w: level: %w", ErrInvalid, err)
	}
	if base.From, err = readTime(values.Get("from")); err != nil {
		return base, fmt.Errorf("%w: from: %w", ErrInvalid, err)
	}
	if base.To, err = readTime(values.Get("to")); err != nil {
		return base, fmt.Errorf("%w: to: %w", ErrInvalid, err)
	}
	if base.Step, err = readStep(values.Get("step")); err != nil {
		return base, fmt.Errorf("%w: step: %w", ErrInvalid, err)
	}
	return base, nil
}

// signalName checks a name, which only what is stored gives a meaning.
func signalName(name string) (string, error) {
	_, err := csig.ParseSignal(name)
	return name, err
}

// readList reads names separated by commas, each at most once.
func readList[T comparable](text string, parse func(string) (T, error)) ([]T, error) {
	if text == "" {
		return nil, nil
	}
	var out []T
	for name := range strings.SplitSeq(text, ",") {
		v, err := parse(strings.TrimSpace(name))
		if err != nil {
			return nil, err
		}
		if slices.Contains(out, v) {
			return nil, fmt.Errorf("read %q: listed twice", name)
		}
		out = append(out, v)
	}
	return out, nil
}

// readTime reads RFC 3339 or Unix ns. Times that do not fit into Unix ns are
// refused: window arithmetic would wrap.
func readTime(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ns, err := strconv.ParseInt(text, 10, 64); err == nil {
		return checkTime(time.Unix(0, ns))
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("read time %q: expected RFC 3339 such as 2026-01-31T12:00:00Z, or Unix ns", text)
	}
	return checkTime(t)
}

func checkTime(t time.Time) (time.Time, error) {
	if t.Year() < 1970 || t.Year() > 2105 {
		return time.Time{}, fmt.Errorf("read time: year %d is out of range, expected 1970 to 2105", t.Year())
	}
	return t, nil
}

func readStep(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	step, err := time.ParseDuration(text)
	if err != nil || step < 100*time.Microsecond || step > 366*24*time.Hour {
		return 0, fmt.Errorf("read step %q: expected a duration from 100us to 8784h, such as 10s", text)
	}
	return step, nil
}
