// Package rest is the form of the query API's messages over HTTP: questions are parsed from the
// parameters of a URL, answers are written as JSON, and OpenAPI describes both. All of it follows
// from the messages in query.proto and their options.
//
// It knows the form of messages. It must never know their meaning, or who answers.
package rest

import (
	_ "embed"
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/csigscope/csigscope/aggregate/query/wire"
)

// Document is the description of the API: OpenAPI 3.1, as JSON. It is generated with package
// wire.
//
//go:embed openapi.json
var Document []byte

// Schema is the options of all messages. It never changes, and is safe for concurrent use.
type Schema struct {
	messages map[protoreflect.FullName][]field
}

// field is one field of a message with its options.
type field struct {
	protoreflect.FieldDescriptor
	options *wire.Rest
	key     string   // `"NAME":` in JSON
	oneOf   []string // the only valid values; empty for all
}

// NewSchema reads the options.
func NewSchema() *Schema {
	s := &Schema{messages: make(map[protoreflect.FullName][]field)}
	messages := wire.File_query_proto.Messages()
	for i := range messages.Len() {
		m := messages.Get(i)
		fields := make([]field, m.Fields().Len())
		for n := range fields {
			fd := m.Fields().Get(n)
			fields[n] = field{fd, OptionsOf(fd), `"` + string(fd.Name()) + `":`, OneOf(fd)}
		}
		s.messages[m.FullName()] = fields
	}
	return s
}

// OptionsOf returns a field's options, empty ones if it has none.
func OptionsOf(fd protoreflect.FieldDescriptor) *wire.Rest {
	if o, ok := proto.GetExtension(fd.Options(), wire.E_Rest).(*wire.Rest); ok && o != nil {
		return o
	}
	return &wire.Rest{}
}

// OneOf returns the names of a field's only valid values; empty for all.
func OneOf(fd protoreflect.FieldDescriptor) []string {
	words := OptionsOf(fd).OneOf
	if len(words) > 0 || fd.Enum() == nil {
		return words
	}
	for i := range fd.Enum().Values().Len() {
		if v := fd.Enum().Values().Get(i); v.Number() != 0 {
			words = append(words, wire.Word(v))
		}
	}
	return words
}

// Wrong lists the invalid parameters; empty if all are valid.
type Wrong []*wire.ProblemDetail

// Error implements error.
func (w Wrong) Error() string {
	var parts []string
	for _, d := range w {
		parts = append(parts, strings.TrimPrefix(d.Location, "query.")+": "+d.Message)
	}
	return strings.Join(parts, "; ")
}

func (w *Wrong) add(name, message, value string) {
	*w = append(*w, &wire.ProblemDetail{Message: message, Location: "query." + name, Value: value})
}

// has reports whether a parameter is in the list.
func (w Wrong) has(name string) bool {
	return slices.ContainsFunc(w, func(d *wire.ProblemDetail) bool { return d.Location == "query."+name })
}

// Parse sets the fields of requests to the parameters with their names, and checks the requests
// as Check does. A parameter with an empty value counts as missing. Its error is a Wrong, and
// also lists each parameter that no request has.
func (s *Schema) Parse(values url.Values, requests ...proto.Message) error {
	var wrong Wrong
	for _, name := range slices.Sorted(maps.Keys(values)) {
		known := false
		for _, m := range requests {
			fields := s.messages[m.ProtoReflect().Descriptor().FullName()]
			i := slices.IndexFunc(fields, func(f field) bool { return string(f.Name()) == name })
			if i < 0 {
				continue
			}
			known = true
			if n := len(values[name]); n > 1 && !fields[i].IsList() {
				wrong.add(name, fmt.Sprintf("is given %d times: give it once", n), "")
				continue
			}
			for _, text := range values[name] {
				if err := fields[i].parse(m.ProtoReflect(), text); err != nil {
					wrong.add(name, err.Error(), text)
				}
			}
		}
		if !known {
			wrong.add(name, "no such parameter: /openapi.json lists them", "")
		}
	}
	for _, m := range requests {
		s.check(m, &wrong)
	}
	if wrong != nil {
		return wrong
	}
	return nil
}

// parse sets the field of m to a value, or adds the value to its list.
func (f *field) parse(m protoreflect.Message, text string) error {
	if text == "" && !f.IsList() {
		return nil
	}
	v, err := f.value(text)
	if err != nil {
		return fmt.Errorf("expected %s", f.expected())
	}
	if f.IsList() {
		m.Mutable(f.FieldDescriptor).List().Append(v)
	} else {
		m.Set(f.FieldDescriptor, v)
	}
	return nil
}

// value parses a value of the field's kind.
func (f *field) value(text string) (protoreflect.Value, error) {
	switch f.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(strings.ToValidUTF8(text, "\ufffd")), nil
	case protoreflect.Uint32Kind:
		n, err := strconv.ParseUint(text, 10, 32)
		return protoreflect.ValueOfUint32(uint32(n)), err
	case protoreflect.Uint64Kind:
		n, err := strconv.ParseUint(text, 10, 64)
		return protoreflect.ValueOfUint64(n), err
	case protoreflect.DoubleKind:
		v, err := strconv.ParseFloat(text, 64)
		return protoreflect.ValueOfFloat64(v), err
	case protoreflect.EnumKind:
		for i := range f.Enum().Values().Len() {
			if v := f.Enum().Values().Get(i); wire.Word(v) == text {
				return protoreflect.ValueOfEnum(v.Number()), nil
			}
		}
		return protoreflect.Value{}, fmt.Errorf("no value of %s", f.Enum().Name())
	case protoreflect.MessageKind:
		if f.Message().FullName() == timestampName {
			t, err := time.Parse(time.RFC3339Nano, text)
			return protoreflect.ValueOfMessage(timestamppb.New(t).ProtoReflect()), err
		}
		d, err := time.ParseDuration(text)
		return protoreflect.ValueOfMessage(durationpb.New(d).ProtoReflect()), err
	}
	return protoreflect.Value{}, fmt.Errorf("a field of kind %s is no parameter", f.Kind())
}

var (
	timestampName = (&timestamppb.Timestamp{}).ProtoReflect().Descriptor().FullName()
	durationName  = (&durationpb.Duration{}).ProtoReflect().Descriptor().FullName()
)

// endOfTime is the latest time of a request, in seconds: the end of the last window that a store can
// have. It is aggregate.EndOfTime, which this package must not import; a test compares them.
const endOfTime = (136*365 + 33) * 24 * 60 * 60

// Check validates a request by the options of its fields, and sets unset fields to their
// defaults. Its error is a Wrong.
func (s *Schema) Check(request proto.Message) error {
	var wrong Wrong
	s.check(request, &wrong)
	if wrong != nil {
		return wrong
	}
	return nil
}

func (s *Schema) check(request proto.Message, wrong *Wrong) {
	m := request.ProtoReflect()
	fields := s.messages[m.Descriptor().FullName()]
	for i := range fields {
		f := &fields[i]
		switch {
		case f.IsList():
			f.checkList(m.Get(f.FieldDescriptor).List(), wrong)
		case m.Has(f.FieldDescriptor):
			if v := m.Get(f.FieldDescriptor); !f.takes(v) {
				wrong.add(string(f.Name()), "expected "+f.expected(), f.textOf(v))
			}
		case f.options.Required:
			if !wrong.has(string(f.Name())) { // it may be given, but invalid
				wrong.add(string(f.Name()), "required", "")
			}
		case f.options.Default != "":
			if v, err := f.value(f.options.Default); err == nil { // a test parses all of them
				m.Set(f.FieldDescriptor, v)
			}
		}
	}
}

func (f *field) checkList(list protoreflect.List, wrong *Wrong) {
	if most := int(f.options.MaxItems); most > 0 && list.Len() > most {
		wrong.add(string(f.Name()), fmt.Sprintf("expected at most %d values", most), "")
		return
	}
	for i := range list.Len() {
		if v := list.Get(i); !f.takes(v) {
			wrong.add(string(f.Name()), "expected "+f.expected(), f.textOf(v))
			return
		}
	}
}

// takes reports whether a value is within the bounds of the field.
func (f *field) takes(v protoreflect.Value) bool {
	o := f.options
	switch v := v.Interface().(type) {
	case string:
		return (o.MaxLength == 0 || len(v) <= int(o.MaxLength)) && (len(f.oneOf) == 0 || slices.Contains(f.oneOf, v))
	case protoreflect.EnumNumber:
		return slices.Contains(f.oneOf, f.word(v))
	case uint32:
		return f.within(float64(v))
	case uint64:
		return f.within(float64(v))
	case float64:
		return f.within(v)
	case protoreflect.Message:
		switch m := v.Interface().(type) {
		case *timestamppb.Timestamp:
			return m.CheckValid() == nil && m.Seconds >= 0 && !m.AsTime().After(time.Unix(endOfTime, 0))
		case *durationpb.Duration:
			return m.CheckValid() == nil && f.within(m.AsDuration().Seconds())
		}
	}
	return true
}

// within is also false for numbers that are not finite.
func (f *field) within(v float64) bool {
	o := f.options
	return (o.Minimum == nil || v >= *o.Minimum) && (o.Maximum == nil || v <= *o.Maximum) && !math.IsNaN(v) && !math.IsInf(v, 0)
}

// word is the value of an enum in JSON; the number of a value unknown to this version.
func (f *field) word(n protoreflect.EnumNumber) string {
	if v := f.Enum().Values().ByNumber(n); v != nil {
		return wire.Word(v)
	}
	return strconv.Itoa(int(n))
}

// textOf formats a value for a problem.
func (f *field) textOf(v protoreflect.Value) string {
	if n, ok := v.Interface().(protoreflect.EnumNumber); ok {
		return f.word(n)
	}
	if m, ok := v.Interface().(protoreflect.Message); ok {
		switch m := m.Interface().(type) {
		case *timestamppb.Timestamp:
			return m.AsTime().Format(time.RFC3339Nano)
		case *durationpb.Duration:
			return m.AsDuration().String()
		}
	}
	return v.String()
}

// expected describes the valid values of the field.
func (f *field) expected() string {
	o := f.options
	switch {
	case len(f.oneOf) > 0:
		return "one of " + strings.Join(f.oneOf, ", ")
	case o.MaxLength > 0:
		return fmt.Sprintf("at most %d bytes", o.MaxLength)
	}
	what, show := "a whole number", func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
	switch {
	case f.Kind() == protoreflect.DoubleKind:
		what = "a finite number without a unit"
	case f.Message() == nil:
	case f.Message().FullName() == timestampName:
		return fmt.Sprintf("a time of RFC 3339 in 1970 to 2105, such as %s, with + escaped as %%2B", o.Example)
	case f.Message().FullName() == durationName:
		what, show = "a duration", func(v float64) string { return time.Duration(v * float64(time.Second)).String() }
	}
	if o.Minimum != nil && o.Maximum != nil {
		what += " from " + show(*o.Minimum) + " to " + show(*o.Maximum)
	} else if o.Minimum != nil {
		what += " of at least " + show(*o.Minimum)
	}
	return what + ", such as " + o.Example
}
