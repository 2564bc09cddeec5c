package chdb

import (
	"log/slog"
	"sync/atomic"
)

// outcome is how a guest's request or connection ended.
type outcome uint8

const (
	answered          outcome = iota
	failed                    // with an exception, of the engine or of a rule here
	refusedConnection         // more than maxGuests
	refusedOrigin             // sent by a web page, or to another name
	refusedMethod
	tooSlow // its result was cut off
	left    // the guest, before the end of its result
	outcomes
)

var outcomeNames = [outcomes]string{"answered", "failed", "connections_refused", "origins_refused", "methods_refused", "too_slow", "left"}

// tally counts outcomes. Safe for concurrent use.
type tally [outcomes]atomic.Uint64

func (t *tally) add(o outcome) { t[o].Add(1) }

// LogValue implements slog.LogValuer.
func (t *tally) LogValue() slog.Value {
	attrs := make([]slog.Attr, outcomes)
	for i := range attrs {
		attrs[i] = slog.Uint64(outcomeNames[i], t[i].Load())
	}
	return slog.GroupValue(attrs...)
}
