package store

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"

	"github.com/csigscope/csigscope/aggregate/store/outbox"
)

// errHeld is the error of a record that waits for a newer csigscope.
var errHeld = errors.New("held for a newer csigscope")

// keepNewer moves a record that this version cannot read aside, so that those behind it
// are sent. The record waits for a newer version, among at most d.newer bytes.
func (d *delivery) keepNewer(e *outbox.Entry) error {
	if e.Class == newerClass {
		d.log.Hold(newerClass)
		return errHeld
	}
	payload := append([]byte(className(e.Class)+"\n"), e.Payload...)
	err := d.log.Append(newerClass, e.Weight, e.Extent, e.Label, payload)
	if errors.Is(err, outbox.ErrTooLarge) {
		return err
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errNewerBatch, err)
	}
	d.log.Ack(e)
	d.log.Hold(newerClass)
	d.logger.Warn("the outbox has rows of a newer csigscope: keeping them for it",
		slog.String("class", className(e.Class)), slog.Uint64("rows", e.Weight))
	d.boundNewer()
	return errHeld
}

// unwrapNewer gives the class and the payload of a record that was moved aside; a class
// that this version does not know is numClasses.
func (d *delivery) unwrapNewer(payload []byte) (class int, rest []byte) {
	name, rest, _ := bytes.Cut(payload, []byte("\n"))
	for class := range newerClass {
		if className(class) == string(name) {
			return class, rest
		}
	}
	return numClasses, nil
}

// boundNewer gives up the oldest rows that wait for a newer version, down to a bound.
func (d *delivery) boundNewer() {
	for {
		s, bytes := d.log.Held()
		if bytes <= d.newer || !d.drop(s, lostNewer) {
			return
		}
	}
}
