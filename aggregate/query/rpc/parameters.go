package rpc

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// parameters are the fields of a request that are set, as parameters of the same names.
func parameters(request proto.Message) (url.Values, error) {
	if len(request.ProtoReflect().GetUnknown()) > 0 {
		return nil, errors.New("the request has a parameter that this server does not know: leave it out, or ask a server of a later version")
	}
	values := url.Values{}
	var failed error
	request.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		name := string(f.Name())
		if !f.IsList() {
			var text string
			text, failed = parameter(f, v)
			values.Set(name, text)
			return failed == nil
		}
		for i := range v.List().Len() {
			var text string
			if text, failed = parameter(f, v.List().Get(i)); failed != nil {
				return false
			}
			values.Add(name, text)
		}
		return true
	})
	return values, failed
}

func parameter(f protoreflect.FieldDescriptor, v protoreflect.Value) (string, error) {
	switch f.Kind() {
	case protoreflect.StringKind:
		return v.String(), nil
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind:
		return strconv.FormatUint(v.Uint(), 10), nil
	case protoreflect.DoubleKind:
		return strconv.FormatFloat(v.Float(), 'g', -1, 64), nil
	case protoreflect.MessageKind:
		switch m := v.Message().Interface().(type) {
		case *timestamppb.Timestamp:
			if err := m.CheckValid(); err != nil {
				return "", fmt.Errorf("%s: %w", f.Name(), err)
			}
			return m.AsTime().Format(time.RFC3339Nano), nil
		case *durationpb.Duration:
			if err := m.CheckValid(); err != nil {
				return "", fmt.Errorf("%s: %w", f.Name(), err)
			}
			return m.AsDuration().String(), nil
		}
	}
	return "", fmt.Errorf("%s: a field of kind %s is no parameter", f.Name(), f.Kind())
}
