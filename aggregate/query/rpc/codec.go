package rpc

import (
	"fmt"
	"math"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/csigscope/csigscope/aggregate/query/wire"
)

// codec is one of connect's encodings of messages, with events that are encoded once for all.
// In JSON it refuses names that no message has: a filter that was misspelled must not be passed
// over.
type codec struct {
	name string
	json bool
}

// inCodecs puts them in the place of connect's own, under all of their names. Events are not
// compressed: that would be done for each watcher again.
func inCodecs() connect.HandlerOption {
	return connect.WithHandlerOptions(
		connect.WithCodec(codec{"proto", false}), connect.WithCodec(codec{"json", true}), connect.WithCodec(codec{"json; charset=utf-8", true}),
		connect.WithConditionalHandlerOptions(func(call connect.Spec) []connect.HandlerOption {
			if call.Procedure != wire.QueryServiceWatchProcedure {
				return nil
			}
			return []connect.HandlerOption{connect.WithCompressMinBytes(math.MaxInt)}
		}),
	)
}

// Name implements connect.Codec.
func (c codec) Name() string { return c.name }

// Marshal implements connect.Codec.
func (c codec) Marshal(v any) ([]byte, error) { return c.MarshalAppend(nil, v) }

// MarshalAppend is what connect calls instead where there is a buffer. An event is copied: connect
// may write to what it is given.
func (c codec) MarshalAppend(b []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case *Event:
		whole, err := v.encoded(c)
		return append(b, whole...), err
	case proto.Message:
		return c.append(b, v)
	}
	return nil, fmt.Errorf("encode answer: %T is no message", v)
}

func (c codec) append(b []byte, m proto.Message) ([]byte, error) {
	if c.json {
		return protojson.MarshalOptions{}.MarshalAppend(b, m)
	}
	return proto.MarshalOptions{}.MarshalAppend(b, m)
}

// Unmarshal implements connect.Codec.
func (c codec) Unmarshal(data []byte, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("read request: %T is no message", v)
	}
	if c.json {
		return protojson.Unmarshal(data, m)
	}
	return proto.Unmarshal(data, m)
}
