package answers

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/csigscope/csigscope/aggregate/query/rest"
	"github.com/csigscope/csigscope/aggregate/query/tabular"
	"github.com/csigscope/csigscope/aggregate/query/wire"
	"github.com/csigscope/csigscope/decode/csig"
)

// column is a field of a message, or of a message in it.
type column struct {
	name string
	path []protoreflect.FieldDescriptor
}

// columnsOf returns the columns of a message: inner fields are named by their path, joined by _.
// A measure has only the field of the unit.
func columnsOf(head []string, path []protoreflect.FieldDescriptor, d protoreflect.MessageDescriptor, unit string) (list []column) {
	if fields := d.Fields(); d.Name() == measureName {
		at := fields.ByName(protoreflect.Name(unitField(unit)))
		if at == nil {
			return nil
		}
		return []column{{strings.Join(append(slices.Clone(head), string(at.Name())), "_"), append(slices.Clone(path), at)}}
	}
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		name, to := append(slices.Clone(head), string(f.Name())), append(slices.Clone(path), f)
		switch {
		case f.Kind() == protoreflect.BytesKind: // frames are for programs
		case f.Message() == nil, f.Message().FullName() == timestampName:
			list = append(list, column{strings.Join(name, "_"), to})
		case rest.OptionsOf(f).Inline:
			list = append(list, columnsOf(head, to, f.Message(), unit)...)
		default:
			list = append(list, columnsOf(name, to, f.Message(), unit)...)
		}
	}
	return list
}

var (
	measureName   = (&wire.Measure{}).ProtoReflect().Descriptor().Name()
	timestampName = (&timestamppb.Timestamp{}).ProtoReflect().Descriptor().FullName()
)

// unitField is the field of a measure in the unit, empty for none.
func unitField(unit string) string {
	switch unit {
	case csig.BitPerSecond.String():
		return "bps"
	case csig.Ratio.String():
		return "ratio"
	case csig.Nanosecond.String():
		return "ns"
	case csig.Count.String():
		return "count"
	}
	return ""
}

func shortName(name string) string {
	for _, unit := range []string{"_bps", "_ratio", "_ns", "_count"} {
		if short, ok := strings.CutSuffix(name, unit); ok {
			return short
		}
	}
	return name
}

func namesOf(columns []column) []string {
	list := make([]string, len(columns))
	for i := range columns {
		list[i] = columns[i].name
	}
	return list
}

// value is the column's value in a line of a message, nil if JSON has none.
func (c *column) value(m protoreflect.Message, line int) any {
	for i, f := range c.path {
		if f.IsList() && f.Message() != nil {
			list := m.Get(f).List()
			if line >= list.Len() {
				return nil
			}
			m = list.Get(line).Message()
			continue
		}
		if i == len(c.path)-1 {
			return valueOf(m, f)
		}
		if !m.Has(f) {
			return nil
		}
		m = m.Get(f).Message()
	}
	return nil
}

// order is the column's value by which rows are sorted. Times as text sort wrongly, since they have as
// many digits as they need.
func (c *column) order(m protoreflect.Message) any {
	v := c.value(m, 0)
	if f := c.path[len(c.path)-1]; v == nil || f.Message() == nil || f.Message().FullName() != timestampName {
		return v
	}
	t, err := time.Parse(time.RFC3339Nano, fmt.Sprint(v))
	if err != nil {
		return v
	}
	return t
}

// linesOf is the number of lines for a message: one for each message in the longest list among
// the columns, at least one.
func linesOf(m protoreflect.Message, columns []column) int {
	lines := 1
	for i := range columns {
		if f := columns[i].path[0]; f.IsList() && f.Message() != nil {
			lines = max(lines, m.Get(f).List().Len())
		}
	}
	return lines
}

func valueOf(m protoreflect.Message, f protoreflect.FieldDescriptor) any {
	if !m.Has(f) && (f.HasPresence() || rest.OptionsOf(f).OmitEmpty) {
		return nil
	}
	v := m.Get(f)
	if f.IsList() {
		list := []string{}
		for i := range v.List().Len() {
			list = append(list, v.List().Get(i).String())
		}
		return OrNil(strings.Join(list, " "))
	}
	switch f.Kind() {
	case protoreflect.EnumKind:
		if e := f.Enum().Values().ByNumber(v.Enum()); e != nil {
			return OrNil(wire.Word(e))
		}
		return nil
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind:
		return v.Uint()
	case protoreflect.DoubleKind:
		return number(v.Float())
	case protoreflect.MessageKind:
		if t, ok := v.Message().Interface().(*timestamppb.Timestamp); ok {
			return stamp(t.AsTime())
		}
	case protoreflect.StringKind:
		return OrNil(v.String())
	}
	return v.Interface()
}

// newListing is a listing without rows; brief are the columns of the format table, without units.
func newListing(columns, brief []string) *tabular.Listing {
	t := &tabular.Listing{Columns: columns, Show: show}
	for _, name := range brief {
		for _, c := range columns {
			if c == name || shortName(c) == name && !slices.Contains(columns, name) {
				t.Brief = append(t.Brief, c)
			}
		}
	}
	return t
}

// show formats a value for people: three digits, with a unit according to the column's name.
func show(name string, v any) string {
	f, ok := v.(float64)
	switch {
	case !ok:
		if text, isText := v.(string); isText {
			return showTime(text)
		}
		return fmt.Sprint(v)
	case strings.HasSuffix(name, "_bps"):
		return siPrefixed(f)
	case strings.HasSuffix(name, "_ns"):
		return threeDigits(f/1000) + "us"
	case strings.HasSuffix(name, "_s"):
		return showSeconds(f)
	}
	return threeDigits(f)
}

// showTime cuts times to milliseconds.
func showTime(text string) string {
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return t.Format("2006-01-02T15:04:05.999Z07:00")
	}
	return text
}

// showSeconds formats a duration such as 1.25s or 3h2m0s.
func showSeconds(v float64) string {
	if math.Abs(v) < 100 {
		return threeDigits(v) + "s"
	}
	return time.Duration(v * float64(time.Second)).Round(time.Second).String()
}

// siPrefixed formats a rate in bit/s, such as 41.2G.
func siPrefixed(v float64) string {
	for _, p := range []struct {
		of   float64
		name string
	}{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if math.Abs(v) >= p.of {
			return threeDigits(v/p.of) + p.name
		}
	}
	return threeDigits(v)
}

// threeDigits rounds to three significant digits, and to whole numbers from 100 on.
func threeDigits(v float64) string {
	if math.Abs(v) >= 100 {
		return strconv.FormatFloat(math.Round(v), 'f', -1, 64)
	}
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 3, 64), 64)
	if err != nil {
		return fmt.Sprint(v)
	}
	return strconv.FormatFloat(rounded, 'f', -1, 64)
}

// number returns v, or nil if it is not finite.
func number(v float64) any {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return v
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// stampOrNil is a time, or nil for none.
func stampOrNil(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return stamp(t)
}

// OrNil returns text, or nil, no value, for the empty string.
func OrNil(text string) any {
	if text == "" {
		return nil
	}
	return text
}
