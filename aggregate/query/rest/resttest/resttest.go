// Package resttest parses answers over HTTP into the messages that they were written from.
//
// It knows the differences between both forms of JSON. It must never be used outside of tests.
package resttest

import (
	"bytes"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/csigscope/csigscope/aggregate/query/rest"
	"github.com/csigscope/csigscope/aggregate/query/wire"
)

// Read sets m to an answer. A field that m does not have is an error.
func Read(text []byte, m proto.Message) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v map[string]any
	if err := d.Decode(&v); err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	whole, err := json.Marshal(nested(m.ProtoReflect().Descriptor(), v))
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	if err := protojson.Unmarshal(whole, m); err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	return nil
}

// nested converts an object to the JSON form of messages.
func nested(m protoreflect.MessageDescriptor, v map[string]any) map[string]any {
	fields := m.Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		name := string(f.Name())
		switch o := rest.OptionsOf(f); {
		case o.Inline:
			inner := map[string]any{}
			for n := range f.Message().Fields().Len() {
				field := string(f.Message().Fields().Get(n).Name())
				if value, ok := v[field]; ok {
					inner[field] = value
					delete(v, field)
				}
			}
			v[name] = nested(f.Message(), inner)
		case o.Rows:
			v[name] = valuesOf(f, flat(f, v[name]))
		case f.Enum() != nil && v[name] != nil:
			v[name] = valuesOf(f, v[name])
		case f.Message() != nil:
			switch value := v[name].(type) {
			case map[string]any:
				v[name] = nested(f.Message(), value)
			case []any:
				for n := range value {
					if o, ok := value[n].(map[string]any); ok {
						value[n] = nested(f.Message(), o)
					}
				}
			}
		}
	}
	return v
}

// valuesOf converts words to the names of an enum's values; other fields stay unchanged.
func valuesOf(f protoreflect.FieldDescriptor, v any) any {
	if list, ok := v.([]any); ok {
		for i := range list {
			list[i] = valuesOf(f, list[i])
		}
		return list
	}
	for i := 0; f.Enum() != nil && i < f.Enum().Values().Len(); i++ {
		if value := f.Enum().Values().Get(i); wire.Word(value) == v {
			return string(value.Name())
		}
	}
	return v
}

// flat joins a list of rows into one list.
func flat(f protoreflect.FieldDescriptor, v any) []any {
	list := []any{}
	rows, _ := v.([]any)
	for _, row := range rows {
		values, _ := row.([]any)
		for _, value := range values {
			if value == nil {
				value = ""
				if f.Kind() == protoreflect.DoubleKind {
					value = "NaN"
				}
			}
			list = append(list, value)
		}
	}
	return list
}
