package store

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/csigscope/csigscope/aggregate"
)

const (
	// maxBatchAge is the age at which a batch closes if it does not fill up.
	maxBatchAge = time.Second
	// maxBufferedRows bounds the memory of batches that are open, waiting or in flight; a row
	// takes some 300 bytes.
	maxBufferedRows = 4 * maxBatchRows
	// maxFreeBatches bounds the memory kept for the next batches.
	maxFreeBatches = 3
)

// WriterStats counts the writer's work since the store was opened.
type WriterStats struct {
	Rows    uint64 // written
	Batches uint64
	Retries uint64 // attempts after the first, and batches that the server had lost
	Lost    uint64 // rows given up after an error
	// Throttled counts refusals by the server because it had too many parts to merge.
	Throttled uint64
	Buffered  int    // rows not written yet, and not in the outbox
	Waiting   uint64 // rows in the outbox
}

// writer collects rows in batches of one partition and sends one batch at a time, or all at once
// to a log.
type writer struct {
	send    func(ctx context.Context, list []*batch, marks []byte) error
	grouped bool // send takes any number of batches, and marks
	logger  *slog.Logger
	retry   attempts
	wake    chan struct{} // holds a token when there may be a batch to send
	done    chan struct{} // closed when the sender has ended

	mu       sync.Mutex
	open     map[batchKey]*batch
	ready    []*batch
	marks    []byte // sent after all that is ready; nil for none
	marked   uint64 // number of marks so far: the last ones replace those that were not sent
	sending  uint64 // value of marked for the marks that are being sent
	sent     uint64 // the same for the last marks that were sent
	free     []*batch
	buffered int
	closing  bool
	err      error         // of the first batch that was given up; sticky
	changed  chan struct{} // closed and replaced when buffered shrinks
	stats    WriterStats
}

func newWriter(send func(context.Context, []*batch, []byte) error, grouped bool, r attempts) *writer {
	w := &writer{
		send:    send,
		grouped: grouped,
		logger:  r.logger,
		retry:   r,
		wake:    make(chan struct{}, 1),
		done:    make(chan struct{}),
		open:    make(map[batchKey]*batch),
		changed: make(chan struct{}),
	}
	w.retry.retried = w.retried
	return w
}

// start runs the sender until close. The sender has its own context: accepted rows are written
// even if their context has ended.
func (w *writer) start() {
	go func() {
		defer close(w.done)
		w.run(context.Background())
	}()
}

// WriteBlock accepts the rows of a closed window; it implements aggregate.Sink. It copies the
// rows, which are written within about a second; Flush waits for that. It blocks while the buffer
// is full. It refuses a block whose window has a length that no table holds, or a time outside of
// 1970 to 2105; later blocks are accepted. Once accepted rows could not be written, it fails for all
// further blocks. Rows of live taps that an outbox gives up, because it is full or its disk fails,
// are no such error: they are counted and leave a gap.
func (s *Store) WriteBlock(ctx context.Context, b *aggregate.Block) error {
	return s.writeBlock(ctx, b, false)
}

func (s *Store) writeBlock(ctx context.Context, b *aggregate.Block, resendable bool) error {
	if s.writer == nil {
		return ErrReadOnly
	}
	key, err := keyOf(b)
	if err != nil {
		return err
	}
	key.resendable = resendable
	return s.describe("write partials", s.writer.write(ctx, key, b))
}

// Resendable is the store for rows whose sender keeps them, and sends them again, until Sync returns
// nil. If the outbox's disk fails for 1 min, such rows are discarded without a gap, and a Sync
// that waits for them fails. A sender that has waited for so long has to send its rows again.
type Resendable struct{ *Store }

// WriteBlock is Store.WriteBlock.
func (r Resendable) WriteBlock(ctx context.Context, b *aggregate.Block) error {
	return r.writeBlock(ctx, b, true)
}

// Sync is Store.Sync, except that it fails if rows are discarded meanwhile.
func (r Resendable) Sync(ctx context.Context) error {
	if len(r.deliveries) == 0 {
		return r.Store.Sync(ctx)
	}
	d := r.deliveries[0]
	before := d.discarded.Load()
	err := r.Store.Sync(ctx)
	if err == nil && d.discarded.Load() != before {
		return fmt.Errorf("write partials: %w", ErrOutbox)
	}
	return err
}

// Unlogged returns how often rows that were accepted did not reach the outbox: they left a gap, or their sender
// has to send them again.
func (s *Store) Unlogged() uint64 {
	if len(s.deliveries) == 0 {
		return 0
	}
	return s.deliveries[0].unlogged.Load()
}

// keyOf is the partition of a block's rows.
func keyOf(b *aggregate.Block) (batchKey, error) {
	g, err := resolutionTableOf(time.Duration(b.Resolution))
	if err != nil {
		return batchKey{}, fmt.Errorf("write block: %w", err)
	}
	if b.WindowStart < 0 || b.WindowStart >= aggregate.EndOfTime {
		return batchKey{}, fmt.Errorf("write block: window at %d ns: expected a time in 1970 to 2105, check the capture's clock", b.WindowStart)
	}
	return batchKey{table: g, partition: partition(g, b.WindowStart)}, nil
}

// Flush waits until all accepted rows, names and ends of runs are written. With an outbox it also
// waits for the records of earlier stores, and as long as the server is unreachable.
func (s *Store) Flush(ctx context.Context) error {
	if s.writer == nil {
		return nil
	}
	err := s.writer.flush(ctx, nil)
	for _, d := range s.deliveries { // records of one outbox may wait for the others
		d.start()
		defer d.hurry()()
	}
	for _, d := range s.deliveries {
		if err == nil {
			err = d.flush(ctx)
		}
	}
	return s.describe("write partials", err)
}

// Sync waits until all accepted rows are durable: in the outbox or, without one, at the server.
// It does not wait for rows that were given up and left a gap.
func (s *Store) Sync(ctx context.Context) error {
	if s.writer == nil {
		return nil
	}
	return s.describe("write partials", s.writer.flush(ctx, nil))
}

// Commit is a Sync that also makes marks durable, in place of the previous marks, never before the
// rows. Rows that fill a batch, wait for a second, or have more bytes than one append takes, are
// written earlier: after a crash they may be in the outbox without the marks. Without an outbox
// marks are dropped. One goroutine at a time may call it.
func (s *Store) Commit(ctx context.Context, marks []byte) error {
	if s.writer == nil {
		return nil
	}
	if !s.writer.grouped {
		marks = nil
	}
	return s.describe("write partials", s.writer.flush(ctx, marks))
}

// WriterStats returns a snapshot of the writer's counts.
func (s *Store) WriterStats() WriterStats {
	if s.writer == nil {
		return WriterStats{}
	}
	s.writer.mu.Lock()
	defer s.writer.mu.Unlock()
	st := s.writer.stats
	st.Buffered = s.writer.buffered
	if len(s.deliveries) > 0 {
		st.Rows, st.Batches = 0, 0 // the writer's go to the outbox
	}
	for _, d := range s.deliveries {
		d.mu.Lock()
		st.Rows += d.sent.Rows
		st.Batches += d.sent.Batches
		st.Retries += d.sent.Retries
		st.Throttled += d.sent.Throttled
		d.mu.Unlock()
		logged := d.log.Stats()
		st.Waiting += logged.Waiting.Weight
		for _, n := range logged.Lost {
			st.Lost += n.Weight
		}
	}
	return st
}

func (w *writer) write(ctx context.Context, key batchKey, block *aggregate.Block) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for from := 0; from < block.Len(); {
		if err := w.waitFor(ctx, func() bool { return w.buffered < maxBufferedRows }); err != nil {
			return err
		}
		if w.closing {
			return ErrClosed
		}
		b := w.open[key]
		if b == nil {
			b = w.take()
			b.reset(key, time.Now())
			w.open[key] = b
			w.signal()
		}
		to := min(block.Len(), from+maxBatchRows-b.rows())
		b.add(block, from, to)
		w.buffered += to - from
		if from == 0 {
			w.buffered += b.addFlows(block)
		}
		from = to
		if b.all() >= maxBatchRows {
			w.shut(b)
		}
	}
	return w.err
}

// waitFor releases the lock until the condition holds.
func (w *writer) waitFor(ctx context.Context, condition func() bool) error {
	for w.err == nil && !condition() {
		changed := w.changed
		w.signal()
		w.mu.Unlock()
		var err error
		select {
		case <-changed:
		case <-ctx.Done():
			err = ctx.Err()
		}
		w.mu.Lock()
		if err != nil {
			return err
		}
	}
	return w.err
}

func (w *writer) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *writer) take() *batch {
	if n := len(w.free); n > 0 {
		b := w.free[n-1]
		w.free = w.free[:n-1]
		return b
	}
	return new(batch)
}

// shut moves a batch from open to ready.
func (w *writer) shut(b *batch) {
	delete(w.open, b.batchKey)
	w.ready = append(w.ready, b)
	w.signal()
}

func (w *writer) shutAll() {
	for _, b := range w.open {
		w.shut(b)
	}
}

func (w *writer) flush(ctx context.Context, marks []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shutAll()
	if marks != nil {
		w.marks = marks
		w.marked++
	}
	number := w.marked
	target := w.stats.Rows + w.stats.Lost + uint64(w.buffered)
	return w.waitFor(ctx, func() bool { return w.stats.Rows+w.stats.Lost >= target && (marks == nil || w.sent >= number) })
}

// close writes the remaining rows and stops the sender.
func (w *writer) close() error {
	w.mu.Lock()
	w.closing = true
	w.shutAll()
	w.mu.Unlock()
	w.signal()
	<-w.done
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func (w *writer) run(ctx context.Context) {
	for {
		list, marks, wait, end := w.next(time.Now())
		switch {
		case len(list) > 0 || marks != nil:
			w.finish(list, marks, w.deliver(ctx, list, marks))
		case end:
			return
		default:
			timer := time.NewTimer(wait)
			select {
			case <-w.wake:
			case <-timer.C:
			}
			timer.Stop()
		}
	}
}

// next returns the batches and marks to send now, or how long to wait for them.
func (w *writer) next(now time.Time) (list []*batch, marks []byte, wait time.Duration, end bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.ready) == 0 && w.marks == nil {
		wait = maxBatchAge
		if oldest := w.oldest(); oldest != nil {
			wait = oldest.opened.Add(maxBatchAge).Sub(now)
			if wait <= 0 || w.buffered >= maxBufferedRows {
				w.shut(oldest)
			}
		}
	}
	n := len(w.ready)
	if n == 0 && w.marks == nil {
		return nil, nil, wait, w.closing
	}
	if !w.grouped {
		n = 1
	}
	list = slices.Clone(w.ready[:n])
	w.ready = slices.Delete(w.ready, 0, n)
	marks, w.marks, w.sending = w.marks, nil, w.marked
	return list, marks, 0, false
}

func (w *writer) oldest() *batch {
	var oldest *batch
	for _, b := range w.open {
		if oldest == nil || b.opened.Before(oldest.opened) {
			oldest = b
		}
	}
	return oldest
}

// deliver sends batches, unless rows were given up before: no rows are written after a gap.
func (w *writer) deliver(ctx context.Context, list []*batch, marks []byte) error {
	if err := w.failed(); err != nil {
		return err
	}
	return w.retry.do(ctx, func(ctx context.Context) error { return w.send(ctx, list, marks) })
}

// retried counts a further attempt.
func (w *writer) retried() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stats.Retries++
}

func (w *writer) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// finish counts batches and recycles their memory.
func (w *writer) finish(list []*batch, marks []byte, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil && w.err == nil {
		w.err = err
		w.logger.Error("rows lost: the store did not take them", slog.String("error", oneLine(err)))
	}
	for _, b := range list {
		rows := b.all()
		if err == nil {
			w.stats.Rows += uint64(rows)
			w.stats.Batches++
		} else {
			w.stats.Lost += uint64(rows)
		}
		w.buffered -= rows
		if len(w.free) < maxFreeBatches {
			w.free = append(w.free, b)
		}
	}
	if marks != nil {
		w.sent = w.sending
	}
	close(w.changed)
	w.changed = make(chan struct{})
}
