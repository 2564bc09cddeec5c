// Package wire is the query API's messages and calls as generated from query.proto. It knows the
// messages. It must never know their meaning.
package wire

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

//go:generate protoc --plugin=../../../.cache/tools/protoc-gen-go --plugin=../../../.cache/tools/protoc-gen-connect-go --go_out=. --go_opt=paths=source_relative --connect-go_out=. --connect-go_opt=paths=source_relative,package_suffix= query.proto
//go:generate sh -c "protoc --include_source_info --descriptor_set_out=/dev/stdout query.proto | go run ../rest/openapi > ../rest/openapi.json"

// Number returns the value and its unit; ok is false without one.
func (m *Measure) Number() (v float64, unit string, ok bool) {
	switch v := m.GetValue().(type) {
	case *Measure_Bps:
		return v.Bps, "bit/s", true
	case *Measure_Ratio:
		return v.Ratio, "ratio", true
	case *Measure_Ns:
		return v.Ns, "ns", true
	case *Measure_Count:
		return v.Count, "count", true
	}
	return 0, "", false
}

// Word is the value of an enum in JSON over HTTP, CSV and Parquet: STATE_TOO_FEW is too_few. The
// value 0, which stands for none, is empty.
func Word(v protoreflect.EnumValueDescriptor) string {
	if v.Number() == 0 {
		return ""
	}
	prefix := snake(string(v.Parent().Name())) + "_"
	return strings.ToLower(strings.TrimPrefix(string(v.Name()), prefix))
}

// snake converts a name in upper camel case to the prefix of its values: LocationKind is
// LOCATION_KIND.
func snake(name string) string {
	var b strings.Builder
	for i, r := range name {
		if i > 0 && r >= 'A' && r <= 'Z' {
			b.WriteByte('_')
		}
		b.WriteRune(r)
	}
	return strings.ToUpper(b.String())
}

// word is Word of a number.
func word(e protoreflect.Enum) string {
	if v := e.Descriptor().Values().ByNumber(e.Number()); v != nil {
		return Word(v)
	}
	return ""
}

// Word returns the state in a word.
func (s State) Word() string { return word(s) }

// Word returns the kind in a word.
func (k Kind) Word() string { return word(k) }

// Word returns the kind in a word.
func (k LocationKind) Word() string { return word(k) }

// Word returns the kind in a word.
func (k ChangeKind) Word() string { return word(k) }

// Word returns the severity in a word.
func (s Severity) Word() string { return word(s) }

// Parse returns the value of an enum with that word, 0 for none.
func Parse[E interface {
	~int32
	protoreflect.Enum
}](text string) E {
	var e E
	for i := range e.Descriptor().Values().Len() {
		if v := e.Descriptor().Values().Get(i); Word(v) == text {
			return E(v.Number())
		}
	}
	return 0
}
