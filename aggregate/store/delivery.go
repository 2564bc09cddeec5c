package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/store/outbox"
	"github.com/csigscope/csigscope/ingest/retry"
)

// gapsClass is the class of the outbox behind the tables of partials.
const gapsClass = numResolutionTables

const (
	// logEvery is how often a command that waits for the server may log that it waits.
	logEvery = 10 * time.Second
	// closePatience is how long Close waits for the remaining rows to be sent.
	closePatience = 10 * time.Second
)

// target is the destination of an outbox: the server.
type target interface {
	sendBatch(ctx context.Context, b *batch, token string) error
	sendGaps(ctx context.Context, list []gap) error
	namesTarget
	endRuns(ctx context.Context, e *ending) error
	present(ctx context.Context, class int, probes []rowSample) (map[rowSample]bool, error)
	keeps(ctx context.Context, class int) (time.Duration, error)
	trimmed(ctx context.Context, class int, list []lossExtent) ([]bool, error)
}

// delivery sends the records of one outbox, one at a time, and retries until each one succeeds.
type delivery struct {
	log    *outbox.Log
	beside []*delivery // all deliveries of the store, including this one
	to     target
	server *readiness // of target
	logger *slog.Logger
	keep   time.Duration
	limit  int64         // bytes of the outbox
	leave  int64         // bytes of acknowledged records left on disk when this process ends
	newer  int64         // maximum bytes kept for a newer version
	retry  time.Duration // how long to retry a failing disk
	now    func() time.Time

	interval time.Duration // how long rows wait for others
	hurried  atomic.Int32  // number of waiters for an empty outbox
	wake     chan struct{} // holds a token when a waiter arrived

	once    sync.Once
	started atomic.Bool
	cancel  context.CancelFunc
	ctx     context.Context
	done    chan struct{}

	live    atomic.Bool // rows cannot be read again: make room rather than wait
	closing atomic.Bool
	// discarded counts how often rows were left to their sender, which sends them again.
	discarded atomic.Uint64
	unlogged  atomic.Uint64 // see Store.Unlogged
	taking    encoder       // the writer's
	records   [][]byte
	gaps      sync.Mutex
	pending   []gap   // gaps that the disk did not take; guarded by gaps
	sending   encoder // the sender's, as all fields below
	batch     batch
	payload   []byte
	// Records that follow and are sent together; records up to apart, by class, are sent alone.
	more      batch
	following []byte
	apart     [numClasses]uint64
	waits     [numClasses]*wait // for a class whose next record is not due
	outage    bool              // a record could not be sent: verify the stored rows
	tidied    time.Time
	// sure reports, by class, whether the server took the previous record at the first attempt.
	// Until then a record may have been sent before, even by an earlier process.
	sure [numResolutionTables]bool

	waiting retry.LogThrottle // rows for the server
	full    retry.LogThrottle // the outbox

	mu      sync.Mutex
	failure error                       // why the last attempt failed; nil after a success
	changed chan struct{}               // closed and replaced when a record is done or failure changes
	sent    WriterStats                 // Rows, Batches, Retries and Throttled
	resent  uint64                      // batches that the server had lost
	checked bool                        // all kept records were verified
	lost    map[aggregate.Source]uint64 // rows, since the outbox was opened
	unknown uint64                      // lost records whose rows are unknown
	before  []uint64                    // position of the outbox when it was opened
	earlier []uint64                    // the same without ends of runs

	untaken   error // why the outbox did not take the last rows at once; nil if it did
	untakenAt time.Time
}

func newDelivery(log *outbox.Log, to target, ready *readiness, o *Outbox, retryFor time.Duration, logger *slog.Logger) *delivery {
	d := &delivery{
		interval: o.Interval, wake: make(chan struct{}, 1),
		log: log, to: to, server: ready, retry: retryFor, now: o.Now,
		keep:  max(cmp.Or(o.Keep, DefaultOutboxKeep), 0),
		limit: cmp.Or(o.MaxBytes, DefaultOutboxBytes), leave: cmp.Or(o.MaxBytes, DefaultOutboxBytes) / 16,
		newer:  cmp.Or(o.MaxBytes, DefaultOutboxBytes) / 16,
		logger: logger.With(slog.String("outbox", log.Dir())),
		done:   make(chan struct{}), changed: make(chan struct{}),
		lost: make(map[aggregate.Source]uint64), before: log.Mark(),
	}
	if d.now == nil {
		d.now = time.Now
	}
	d.earlier = slices.Clone(d.before)
	d.earlier[endsClass] = 0
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d
}

// start starts the sender, which runs until close.
func (d *delivery) start() {
	d.once.Do(func() {
		d.started.Store(true)
		if n := d.log.Stats().Waiting; n.Records > 0 {
			d.logger.Warn("sending rows that an earlier command left", slog.Uint64("rows", n.Weight))
		}
		go func() {
			defer close(d.done)
			d.run(d.ctx)
		}()
	})
}

// run waits for the server, then sends until the context ends.
func (d *delivery) run(ctx context.Context) {
	if d.server.wait(ctx) != nil {
		return
	}
	d.outage = true // the server may have lost rows in the meantime
	d.tidied = time.Now()
	d.boundNewer()
	backoff := newBackoff()
	for ctx.Err() == nil {
		if !d.outage && time.Since(d.tidied) >= d.tidyEvery() { // records may come without a pause
			d.tidy(ctx)
		}
		e, ok, wait, err := d.next()
		switch {
		case err != nil:
			d.fail(err)
			backoff.Wait(ctx)
			continue
		case ok:
			if e.Payload != nil {
				d.payload = e.Payload[:0]
			}
			d.handle(ctx, &e)
		case wait > 0:
			d.rest(ctx, wait)
			continue
		default:
			d.idle(ctx)
		}
		backoff.Reset()
	}
}

// next returns the next entry to send, skipping classes that are not due or held back. If there
// is none, wait is the time until a held entry is due.
func (d *delivery) next() (e outbox.Entry, ok bool, wait time.Duration, err error) {
	passing := d.notDue()
	for {
		e, ok, err = d.log.Next(d.payload, passing...)
		if err != nil || !ok {
			return e, ok, wait, err
		}
		held := d.hold(&e)
		if held <= 0 {
			return e, true, 0, nil
		}
		wait = held
		passing = append(passing, e.Class)
	}
}

// handle sends or drops one entry, and retries until that is done.
func (d *delivery) handle(ctx context.Context, e *outbox.Entry) {
	defer d.note(func() {})
	if e.Lost != "" {
		d.report(e.Lost, e)
		d.log.Ack(e)
		return
	}
	class, payload := e.Class, e.Payload
	if class == newerClass {
		class, payload = d.unwrapNewer(payload)
	}
	first := e.Last
	var err error
	switch {
	case class < numResolutionTables:
		err = d.sendRows(ctx, e, class, payload)
	case class == endsClass:
		err = d.sendEnds(ctx, e, payload)
	default:
		err = d.sendFew(ctx, e, class, payload)
	}
	if e.Last > first && err != nil && refused(err) {
		d.apart[e.Class] = e.Last // send them one by one, to find the refused one
		return
	}
	if errors.Is(err, errNewerBatch) {
		err = d.keepNewer(e)
	}
	d.finish(ctx, e, err)
}

// sendRows sends a batch together with those that follow it, and verifies that the server has it.
func (d *delivery) sendRows(ctx context.Context, e *outbox.Entry, class int, payload []byte) error {
	if err := d.sending.decode(payload, &d.batch); err != nil {
		return err
	}
	probes := parseLabel(e.Label).Probes
	if class == e.Class {
		probes = d.gatherRows(e)
	}
	token := e.Token()
	err := d.deliver(ctx, e, func(ctx context.Context) error { return d.to.sendBatch(ctx, &d.batch, token) })
	if err == nil && !d.sure[class] {
		err = d.deliver(ctx, e, func(ctx context.Context) error { return d.confirmStored(ctx, e, class, probes) })
		d.sure[class] = err == nil
	}
	return err
}

// sendFew sends a record that is not a batch; flow records are sent with those that follow.
func (d *delivery) sendFew(ctx context.Context, e *outbox.Entry, class int, payload []byte) error {
	if class != flowsClass || class != e.Class {
		send, err := d.recordSender(class, payload)
		if err != nil {
			return err
		}
		return d.deliver(ctx, e, send)
	}
	in, err := decodeRecords(class, payload)
	if err != nil {
		return err
	}
	in = d.gatherFlows(e, in)
	return d.deliver(ctx, e, func(ctx context.Context) error { return d.to.sendRecords(ctx, in) })
}

// finish acknowledges a sent entry, or gives up one that can never be sent.
func (d *delivery) finish(ctx context.Context, e *outbox.Entry, err error) {
	switch {
	case errors.Is(err, errHeld), errors.Is(err, errNotDue):
	case err == nil:
		if e.Class < numResolutionTables { // counted first, so that waiters for the acknowledgement see the count
			d.note(func() {
				d.sent.Rows += e.Weight
				d.sent.Batches++
			})
		}
		d.log.Ack(e)
	case ctx.Err() != nil || errors.Is(err, errDropped):
	case errors.Is(err, errNewerBatch):
		d.fail(err) // until the disk has room for it
		retry.Sleep(ctx, longestPause)
	default:
		d.logger.Error("rows lost: the server refused them", slog.String("error", oneLine(err)))
		d.report(lostRefused, e)
		d.log.Lose(e, lostRefused)
	}
}

// errDropped is the error of a record that was dropped for room while it was being sent.
var errDropped = errors.New("dropped from the outbox")

// deliver calls f until it succeeds or fails permanently, or the context ends. It returns the
// permanent error or the context's.
func (d *delivery) deliver(ctx context.Context, e *outbox.Entry, f func(context.Context) error) error {
	for backoff := newBackoff(); ; {
		if !d.log.Waits(e) {
			return errDropped
		}
		attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
		err := f(attempt)
		cancel()
		if err == nil {
			d.recovered()
			if d.outage {
				d.reverify(ctx)
			}
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if refused(err) {
			return err
		}
		d.outage = true
		if e.Class < numResolutionTables {
			d.sure[e.Class] = false
		}
		d.fail(err)
		if exceptionCode(err) == codeTooManyParts {
			backoff.Slow() // merging takes its time
			d.note(func() { d.sent.Throttled++ })
		}
		backoff.Wait(ctx)
		d.note(func() { d.sent.Retries++ })
	}
}

// fail records why nothing can be sent.
func (d *delivery) fail(err error) {
	d.note(func() { d.failure = err })
	d.logWaiting()
}

// logWaiting logs from time to time how much waits, and why.
func (d *delivery) logWaiting() {
	d.mu.Lock()
	why := "no answer yet"
	if d.failure != nil {
		why = oneLine(d.failure)
	}
	d.mu.Unlock()
	d.waiting.Warn(d.logger, time.Now(), "rows wait in the outbox until the server takes them",
		slog.Uint64("rows", d.log.Stats().Waiting.Weight), slog.String("error", why),
		slog.String("hint", "start the server; Ctrl-C keeps the rows for the next command that stores there"))
}

func (d *delivery) recovered() {
	d.mu.Lock()
	failed := d.failure != nil
	d.failure = nil
	d.mu.Unlock()
	if failed && d.waiting.Over() {
		d.logger.Warn("the server takes rows again", slog.Uint64("rows", d.log.Stats().Waiting.Weight))
	}
}

// note changes the shared state, and wakes all waiters.
func (d *delivery) note(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
	close(d.changed)
	d.changed = make(chan struct{})
}

// tidyEvery is how often kept records are looked at.
func (d *delivery) tidyEvery() time.Duration { return max(d.keep/10, time.Second) }

// idle waits for the next record, and maintains the kept records meanwhile.
func (d *delivery) idle(ctx context.Context) {
	if d.outage {
		d.reverify(ctx)
	}
	d.tidy(ctx)
	_ = d.appendPending() // logs its error, and is retried
	d.log.Save()
	wait := min(d.tidyEvery(), time.Minute)
	if len(d.notDue()) > 0 {
		wait = firstPause
	}
	select {
	case <-d.log.Ready():
	case <-time.After(wait):
	case <-ctx.Done():
	}
}

// flush waits until all records appended so far are sent, or are lost and their gaps are sent. It
// fails early if the server answers and refuses the rows, since waiting would not help.
func (d *delivery) flush(ctx context.Context) error {
	mark := d.log.Mark()
	for {
		d.mu.Lock()
		changed, failure := d.changed, d.failure
		d.mu.Unlock()
		if d.log.Reached(mark) {
			if err := d.appendPending(); err != nil {
				return fmt.Errorf("%w: %w", ErrOutbox, err)
			}
			if mark[gapsClass] = d.log.Mark()[gapsClass]; d.log.Reached(mark) {
				return nil
			}
		}
		if failure != nil && !transient(failure) {
			return fmt.Errorf("%w (%d rows wait in %s and are sent by the next command that stores there)", failure, d.log.Stats().Waiting.Weight, d.log.Dir())
		}
		if err := d.await(ctx, changed); err != nil {
			return err
		}
	}
}

// await waits for a change, and logs the waiting rows if none comes.
func (d *delivery) await(ctx context.Context, changed <-chan struct{}) error {
	select {
	case <-changed:
	case <-time.After(logEvery):
		d.logWaiting()
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// close gives the sender a moment to finish, stops it and closes the outbox. The next command
// sends the remaining rows.
func (d *delivery) close() (left uint64, err error) {
	d.once.Do(func() { close(d.done) })
	if d.started.Load() {
		ctx, cancel := context.WithTimeout(context.Background(), closePatience)
		d.drain(ctx)
		cancel()
	}
	d.cancel()
	<-d.done
	if n := d.log.Stats().Waiting; n.Records > 0 {
		d.logger.Warn("rows wait in the outbox for the next command that stores there", slog.Uint64("rows", n.Weight))
		left = n.Weight
	}
	d.trim(d.leave)
	return left, errors.Join(d.appendPending(), d.log.Close())
}

// drain is a flush that gives up as soon as the server is unreachable.
func (d *delivery) drain(ctx context.Context) {
	defer d.hurry()()
	mark := d.log.Mark()
	for {
		d.mu.Lock()
		changed, failure := d.changed, d.failure
		d.mu.Unlock()
		if failure != nil || d.log.Reached(mark) {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
