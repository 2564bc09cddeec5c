package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/csigscope/csigscope/aggregate/query/model"
)

// Event is one event of a watch: what belongs to its name is there, the rest is nil.
type Event struct {
	Name      string // model.EventSnapshot and so on
	Snapshot  *model.Cells
	Synced    *model.Synced
	Window    *model.WindowEvent
	Heartbeat *model.Heartbeat
	Gap       *model.Gap // of gap and lagging
}

const (
	// maxEvent bounds an event, in bytes.
	maxEvent = 64 << 20
	// maxRetry bounds the wait before a stream is opened again.
	maxRetry = 30 * time.Second
)

// Watch calls handle for each event, until ctx ends, handle fails, or the server refuses the
// question. A stream that breaks off is opened again and goes on where it was; what cannot be
// gone on with begins with a gap and a snapshot. Parameters are those of /api/v1/watch.
func (c *Client) Watch(ctx context.Context, parameters url.Values, handle func(*Event) error) error {
	seen := ""
	for wait := c.retry; ; {
		began := seen
		err := c.stream(ctx, parameters, &seen, handle)
		var refused *Error
		var stop *handlerError
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &stop):
			return stop.error
		case errors.As(err, &refused) && refused.Status < 500:
			return err
		}
		if seen != began {
			wait = c.retry
		}
		if c.Retrying != nil {
			c.Retrying(err, wait)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
		wait = min(2*wait, maxRetry)
		if seen != "" { // goes by a header, which comes before what the question began with
			parameters = clone(parameters)
			parameters.Del("after")
		}
	}
}

// handlerError is an error of the caller's own.
type handlerError struct{ error }

// stream reads one stream to its end. seen is the revision up to which all was handled.
func (c *Client) stream(ctx context.Context, parameters url.Values, seen *string, handle func(*Event) error) error {
	response, err := c.open(ctx, "watch", parameters, *seen)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	lines := bufio.NewReaderSize(response.Body, 64<<10)
	var name, id string
	var data []byte
	for {
		line, err := readLine(lines)
		if err != nil {
			return fmt.Errorf("read events: %w", err)
		}
		field, value, _ := bytes.Cut(line, []byte(": "))
		switch {
		case len(line) == 0:
			if name != "" {
				if err := deliver(name, data, handle); err != nil {
					return err
				}
			}
			if id != "" {
				*seen = id
			}
			name, id, data = "", "", nil
		case string(field) == "event":
			name = string(value)
		case string(field) == "id":
			id = string(value)
		case string(field) == "data":
			data = value
		}
	}
}

func deliver(name string, data []byte, handle func(*Event) error) error {
	e := &Event{Name: name}
	var to any
	switch name {
	case model.EventSnapshot:
		e.Snapshot = &model.Cells{}
		to = e.Snapshot
	case model.EventSynced:
		e.Synced = &model.Synced{}
		to = e.Synced
	case model.EventWindow:
		e.Window = &model.WindowEvent{}
		to = e.Window
	case model.EventHeartbeat:
		e.Heartbeat = &model.Heartbeat{}
		to = e.Heartbeat
	case model.EventGap, model.EventLagging:
		e.Gap = &model.Gap{}
		to = e.Gap
	default:
		return nil // of a later version
	}
	if err := json.Unmarshal(data, to); err != nil {
		return fmt.Errorf("read event %s: %w", name, err)
	}
	if err := handle(e); err != nil {
		return &handlerError{err}
	}
	return nil
}

// readLine reads a line of bounded length, without its end.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return line[:len(line)-1], nil
		case !errors.Is(err, bufio.ErrBufferFull):
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		case len(line) > maxEvent:
			return nil, fmt.Errorf("event is longer than %d bytes", maxEvent)
		}
	}
}
