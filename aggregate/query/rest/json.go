package rest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Append appends a message as JSON: fields in the order and with the names of query.proto,
// numbers as numbers, times as RFC 3339, bytes in base64. Numbers that are not finite are null.
// Special characters of HTML are escaped, for answers opened in a browser.
func (s *Schema) Append(b []byte, m proto.Message) ([]byte, error) {
	b, err := s.object(append(b, '{'), m.ProtoReflect())
	if err != nil {
		return b, fmt.Errorf("encode %s: %w", m.ProtoReflect().Descriptor().Name(), err)
	}
	return append(b, '}'), nil
}

// object appends the fields of a message.
func (s *Schema) object(b []byte, m protoreflect.Message) ([]byte, error) {
	fields := s.messages[m.Descriptor().FullName()]
	var err error
	for i := range fields {
		f := &fields[i]
		if !f.written(m) {
			continue
		}
		if f.options.Inline {
			if b, err = s.object(b, m.Get(f.FieldDescriptor).Message()); err != nil {
				return b, err
			}
			continue
		}
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		b = append(b, f.key...)
		switch {
		case f.options.Rows:
			b, err = s.rows(b, f, m)
		case f.IsList():
			list := m.Get(f.FieldDescriptor).List()
			b, err = s.list(b, f, list, 0, list.Len())
		default:
			b, err = s.append(b, f, m.Get(f.FieldDescriptor))
		}
		if err != nil {
			return b, err
		}
	}
	return b, nil
}

// written reports whether JSON has the field.
func (f *field) written(m protoreflect.Message) bool {
	return m.Has(f.FieldDescriptor) || !f.HasPresence() && !f.options.OmitEmpty
}

func (s *Schema) list(b []byte, f *field, list protoreflect.List, from, to int) ([]byte, error) {
	b = append(b, '[')
	var err error
	for i := from; i < to; i++ {
		if i > from {
			b = append(b, ',')
		}
		if b, err = s.append(b, f, list.Get(i)); err != nil {
			return b, err
		}
	}
	return append(b, ']'), nil
}

// groupsName is the field with the names of rows and columns.
const groupsName = "groups"

// rows appends a list of groups by groups row by row.
func (s *Schema) rows(b []byte, f *field, m protoreflect.Message) ([]byte, error) {
	list, side := m.Get(f.FieldDescriptor).List(), m.Get(m.Descriptor().Fields().ByName(groupsName)).List().Len()
	if list.Len() != side*side {
		return b, fmt.Errorf("%s: %d values of %d groups", f.Name(), list.Len(), side)
	}
	b = append(b, '[')
	var err error
	for row := range side {
		if row > 0 {
			b = append(b, ',')
		}
		if b, err = s.list(b, f, list, row*side, (row+1)*side); err != nil {
			return b, err
		}
	}
	return append(b, ']'), nil
}

func (s *Schema) append(b []byte, f *field, v protoreflect.Value) ([]byte, error) {
	switch f.Kind() {
	case protoreflect.StringKind:
		if f.options.Rows && v.String() == "" {
			return append(b, "null"...), nil
		}
		text, err := json.Marshal(v.String())
		return append(b, text...), err
	case protoreflect.EnumKind:
		return append(append(append(b, '"'), f.word(v.Enum())...), '"'), nil
	case protoreflect.BoolKind:
		return strconv.AppendBool(b, v.Bool()), nil
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind:
		return strconv.AppendUint(b, v.Uint(), 10), nil
	case protoreflect.DoubleKind:
		return appendFloat(b, v.Float()), nil
	case protoreflect.BytesKind:
		return append(base64.StdEncoding.AppendEncode(append(b, '"'), v.Bytes()), '"'), nil
	case protoreflect.MessageKind:
		if t, ok := v.Message().Interface().(*timestamppb.Timestamp); ok {
			return append(t.AsTime().AppendFormat(append(b, '"'), time.RFC3339Nano), '"'), nil
		}
		b, err := s.object(append(b, '{'), v.Message())
		return append(b, '}'), err
	}
	return b, fmt.Errorf("%s: a field of kind %s has no form in JSON", f.Name(), f.Kind())
}

// appendFloat writes a number as encoding/json does.
func appendFloat(b []byte, v float64) []byte {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return append(b, "null"...)
	}
	if abs := math.Abs(v); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		b = strconv.AppendFloat(b, v, 'e', -1, 64)
		if n := len(b); n >= 4 && b[n-4] == 'e' && b[n-3] == '-' && b[n-2] == '0' {
			b[n-2] = b[n-1]
			b = b[:n-1]
		}
		return b
	}
	return strconv.AppendFloat(b, v, 'f', -1, 64)
}
