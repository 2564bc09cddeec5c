package rpc

import (
	"fmt"
	"sync"

	"github.com/csigscope/csigscope/aggregate/query/wire"
)

// Event is an event of a watch as calls have it, encoded once for all who are told of it. It is
// safe for concurrent use.
type Event struct {
	message      *wire.WatchResponse
	binary, json encoding
}

// encoding is an event in one encoding.
type encoding struct {
	once sync.Once
	b    []byte
	err  error
}

// NewEvent makes an event of a pointer to a value of package model, under the name that it has
// there, and with the revision to go on from, if it has one.
func NewEvent(name, id string, value any) (*Event, error) {
	message := watched(name, id, value)
	if message == nil {
		return nil, fmt.Errorf("tell %s: %T is no event", name, value)
	}
	return &Event{message: message}, nil
}

// encoded is the event in the codec's encoding. It is not to be written to.
func (e *Event) encoded(c codec) ([]byte, error) {
	in := &e.binary
	if c.json {
		in = &e.json
	}
	in.once.Do(func() { in.b, in.err = c.append(nil, e.message) })
	return in.b, in.err
}
