package query

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"

	"github.com/csigscope/csigscope/decode/csig"
)

// maxParameter bounds the length of one parameter: the longest sensible value
// lists every signal.
const maxParameter = 512

// readOptions reads the parameters of a request, those of bundles and the further ones
// named, into a copy of base. Unknown and repeated parameters are refused: a misspelt
// bound must not widen the answer in silence.
func readOptions(values url.Values, base Options, further ...string) (Options, error) {
	known := append([]string{"signal", "from", "to", "step", "level"}, further...)
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
	if base.TotalsOnly, err = readChoice(values.Get("cells"), "windows", "total"); err != nil {
		return base, fmt.Errorf("%w: cells: %w", ErrInvalid, err)
	}
	if base.Src, err = readGroup(values.Get("src")); err != nil {
		return base, fmt.Errorf("%w: src: %w", ErrInvalid, err)
	}
	if base.Dst, err = readGroup(values.Get("dst")); err != nil {
		return base, fmt.Errorf("%w: dst: %w", ErrInvalid, err)
	}
	return base, nil
}

// readChoice tells whether a parameter has its second value; the first is what it has
// when it is left out.
func readChoice(text, first, second string) (bool, error) {
	if text != "" && text != first && text != second {
		return false, fmt.Errorf("read %q: expected %s or %s", text, first, second)
	}
	return text == second, nil
}

// readGroup reads a group's identifier, nil where there is none.
func readGroup(text string) (*aggregate.GroupID, error) {
	if text == "" {
		return nil, nil
	}
	id, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("read group %q: expected an id of a bundle's groups", text)
	}
	group := aggregate.GroupID(id)
	return &group, nil
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
