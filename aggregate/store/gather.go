package store

import (
	"context"
	"time"

	"github.com/csigscope/csigscope/aggregate/store/outbox"
)

// A server makes a part of each insert, and later has to merge the parts. So rows of one
// partition are sent together, and wait a while for others.

// Defaults of Outbox.Interval.
const (
	ServerInterval   = 10 * time.Second
	EmbeddedInterval = time.Second
)

// hold is how long an entry waits to be sent together with others. The wait ends when the oldest
// entry has waited for an interval, a batch is full, or a caller waits for all to be sent.
func (d *delivery) hold(e *outbox.Entry) time.Duration {
	if e.Lost != "" || e.Class >= numResolutionTables && e.Class != flowsClass || d.hurried.Load() > 0 {
		return 0
	}
	waiting := d.log.Stats()
	if waiting.Waiting.Weight >= maxBatchRows {
		return 0
	}
	age := d.now().Sub(waiting.Oldest)
	if age < 0 {
		return 0 // by a clock that was ahead
	}
	return d.interval - age
}

// hurry stops holding back records until the returned function is called.
func (d *delivery) hurry() (done func()) {
	d.hurried.Add(1)
	select {
	case d.wake <- struct{}{}:
	default:
	}
	return func() { d.hurried.Add(-1) }
}

// rest waits until held records are due, or until a caller hurries. It also ends when new records
// arrive, since their class may not be held.
func (d *delivery) rest(ctx context.Context, wait time.Duration) {
	select {
	case <-time.After(wait):
	case <-d.wake:
	case <-d.log.Ready():
	case <-ctx.Done():
	}
}

// gatherRows adds the records that follow an entry to its decoded batch, as long as they belong
// to the same partition and fit. The entry then stands for all of them. After the server refused
// a joint batch, its records are sent one by one.
func (d *delivery) gatherRows(e *outbox.Entry) (probes []rowSample) {
	probes = parseLabel(e.Label).Probes
	for e.Last > d.apart[e.Class] {
		next, ok, err := d.log.After(e, d.following)
		if err != nil || !ok || next.Lost != "" {
			break
		}
		d.following = next.Payload[:0]
		if d.sending.decode(next.Payload, &d.more) != nil || d.more.batchKey != d.batch.batchKey || d.batch.rows()+d.more.rows() > maxBatchRows {
			break
		}
		d.batch.copyRows(&d.more, 0, d.more.rows())
		probes = append(probes, parseLabel(next.Label).Probes...)
		e.Join(&next)
	}
	return probes
}

// gatherFlows is gatherRows for flow rows.
func (d *delivery) gatherFlows(e *outbox.Entry, in insertion) insertion {
	for e.Last > d.apart[e.Class] {
		next, ok, err := d.log.After(e, d.following)
		if err != nil || !ok || next.Lost != "" {
			break
		}
		d.following = next.Payload[:0]
		more, err := decodeRecords(e.Class, next.Payload)
		if err != nil || more.of != in.of || in.rows+more.rows > maxBatchRows {
			break
		}
		in = in.join(more)
		e.Join(&next)
	}
	return in
}
