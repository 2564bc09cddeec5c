package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query/rest"
	"github.com/csigscope/csigscope/aggregate/query/wire"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/ingest/edge"
)

// Names of server-sent events, each with a message as its data.
const (
	eventSnapshot  = "snapshot"  // wire.CellsResponse: all cells
	eventSynced    = "synced"    // wire.Synced: all later events are changes
	eventWindow    = "window"    // wire.WindowEvent
	eventDurable   = "durable"   // wire.Durable: windows that are on disk now
	eventHeartbeat = "heartbeat" // wire.Heartbeat
	eventGap       = "gap"       // wire.Gap: the revision to resume from is no longer available
	eventLagging   = "lagging"   // wire.Gap: the watcher was too slow
	eventInitial   = "initial"   // wire.ChangeSet: the whole present state
	eventChanges   = "changes"   // wire.ChangeSet
)

// streamRequest is a pointer to the request of a stream.
type streamRequest[Q any] interface {
	message[Q]
	GetSignal() string
	GetAfter() string
	GetHeartbeat() *durationpb.Duration
}

// opener checks a request before its stream begins.
type opener[P any] func(ctx context.Context, s *table.State, in P) (*subscription, error)

// serveStream answers requests with server-sent events, until the reader leaves.
func serveStream[Q any, P streamRequest[Q]](a *API, open opener[P]) http.HandlerFunc {
	return func(out http.ResponseWriter, r *http.Request) {
		in := P(new(Q))
		if err := a.schema.Parse(r.URL.Query(), in); err != nil {
			a.refuse(r.Context(), out, err)
			return
		}
		// Browsers send the id of the last event when they reconnect.
		w, leave, err := begin(r.Context(), a, in, cmp.Or(r.Header.Get("Last-Event-ID"), in.GetAfter()), open)
		if err != nil {
			a.refuse(r.Context(), out, err)
			return
		}
		defer leave()
		w.serve(r, out)
	}
}

// begin opens a stream, and reserves room for it until leave. seen is the revision to resume
// after, empty for none.
func begin[Q any, P streamRequest[Q]](ctx context.Context, a *API, in P, seen string, open opener[P]) (w *subscription, leave func(), err error) {
	m, err := a.memoryOf(in)
	if err != nil {
		return nil, nil, err
	}
	s := m.State()
	if w, err = open(ctx, s, in); err != nil {
		return nil, nil, notYet(err, seen, s)
	}
	w.api, w.memory, w.signal, w.filter, w.heartbeat, w.sent = a, m, in.GetSignal(), filterOf(in), in.GetHeartbeat().AsDuration(), time.Now()
	if w.watcher, err = w.resume(s, seen); err != nil {
		return nil, nil, err
	}
	leave, err = a.enter(ctx)
	return w, leave, err
}

// notYet makes a reader of an earlier process try again if the server does not know a name in its
// question: without a fabric file, the names of groups and locations come with their rows; the unit of a type_N
// always does.
func notYet(err error, seen string, s *table.State) error {
	epoch, _, resumes := parseToken(seen, s.Epoch)
	if _, unknown := errors.AsType[unknownName](err); !unknown || !resumes || epoch == s.Epoch {
		return err
	}
	return &refused{status: http.StatusServiceUnavailable, detail: "since the server's restart, " + err.Error(), retryAfter: retryAfter}
}

// filterOf is a request as text, without the position and time of the stream: it is equal for
// streams with the same events.
func filterOf(in proto.Message) string {
	of := proto.Clone(in)
	for _, name := range []protoreflect.Name{"after", "heartbeat"} {
		of.ProtoReflect().Clear(of.ProtoReflect().Descriptor().Fields().ByName(name))
	}
	return questionOf(of)
}

// subscription is the sequence of events for one reader: the loop over revisions, for any kind of
// event.
type subscription struct {
	of        follower
	api       *API
	memory    *table.Memory // the memory to follow
	key       viewKey
	signal    string // its name in the question
	filter    string // the question as text
	encoding  string // of cells
	watcher   *table.Watcher
	heartbeat time.Duration
	sent      time.Time // when the last event was sent to the reader
	passed    string    // the revision from which heartbeats let a reader resume; empty for none
	resumable uint64    // first revision to resume after, of those in memory
	to        recipient
}

// follower makes the events of a stream.
type follower interface {
	// snapshot sends the state.
	snapshot(context.Context, *table.State) error
	// changed sends a step of the kind Changed or Durable.
	changed(context.Context, table.Step) error
}

// recipient receives events.
type recipient interface {
	// send sends an event, in a turn that is nil for small ones. While the reader is slow, it
	// keeps only the bytes being written.
	send(*turn, *event) error
	// charge is the key of sends for an event: equal keys share the event's bytes.
	charge(askedEvent) any
	// stop makes the current send fail. It may be called at any time until send has returned.
	stop()
}

// event is one event of a stream.
type event struct {
	name string // eventSnapshot and so on
	id   string // a reader resumes after this revision; empty if it cannot
	content
	names uint64 // version of the names that the cells were selected with

	// The encodings, each made once for all readers.
	plain  lazily[[]byte]
	gzip   lazily[*packed]
	inCall lazily[*calledEvent]
}

// sentBytes is the approximate memory of a cell beside its text, for an event that is sent in all
// encodings.
const sentBytes = 1200

// lagOf is how many revisions a watcher may be behind: the same time for every length of windows.
func (a *API) lagOf(s *table.State) int {
	return a.MaxLag * max(int(aggregate.LiveResolution/s.Resolution), 1)
}

// resume follows the memory, after the revision in seen, if any: from the beginning if that is before
// the first resumable one, or if the question's signal may have been another one then.
func (w *subscription) resume(s *table.State, seen string) (*table.Watcher, error) {
	lag := w.api.lagOf(s)
	if seen == "" {
		return w.memory.Watch(lag), nil
	}
	epoch, revision, ok := parseToken(seen, s.Epoch)
	if !ok {
		return nil, wrong("after", seen, "expected a revision of an earlier event, such as %s", token(s))
	}
	if epoch == s.Epoch && revision > s.Revision {
		return nil, ahead(seen, s)
	}
	if epoch == s.Epoch {
		before, known := s.At(revision)
		if revision < w.resumable || known && !w.meant(before) {
			return w.memory.Watch(lag), nil
		}
	}
	return w.memory.Resume(lag, epoch, revision), nil
}

// meant reports whether the question meant the same signal in an earlier state. If it meant none then, readers may
// still hold cells of one before that.
func (w *subscription) meant(before *table.State) bool {
	found, err := findSignal(w.signal, before.Signals())
	return err == nil && found == w.key.signal
}

// enter reserves a slot for a watcher, until leave.
func (a *API) enter(ctx context.Context) (leave func(), err error) {
	gone, err := edge.BudgetOf(ctx).AcquireStream()
	if err != nil {
		return nil, err
	}
	if a.watchers.Add(1) > int64(a.Watchers) {
		a.watchers.Add(-1)
		gone()
		return nil, &refused{
			status:     http.StatusServiceUnavailable,
			detail:     fmt.Sprintf("%d watchers are served already: try again later, or share one watch", a.Watchers),
			retryAfter: retryAfter,
		}
	}
	return func() {
		a.watchers.Add(-1)
		gone()
	}, nil
}

// run sends events until the reader leaves, or takes too long for one.
func (w *subscription) run(ctx context.Context, to recipient) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.api.running, cancel)()
	w.to = to
	for {
		if err := w.next(ctx); err != nil {
			return err
		}
	}
}

// next sends the next step, or a heartbeat after a while without one.
func (w *subscription) next(ctx context.Context) error {
	wait, cancel := context.WithDeadline(ctx, w.sent.Add(w.heartbeat))
	defer cancel()
	step, err := w.watcher.Next(wait)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return w.beat()
	}
	other, err := w.findSignal(step.State)
	switch {
	case err != nil:
		return err
	case step.Kind == table.Snapshot, step.Kind == table.Changed && other:
		return w.of.snapshot(ctx, step.State)
	case step.Kind == table.Changed, step.Kind == table.Durable:
		return w.of.changed(ctx, step)
	}
	gap := &wire.Gap{Revision: token(step.State), Reason: "lagging", MissedRevisions: step.Missed}
	if step.Kind == table.Lagging {
		w.api.lagging.Add(1)
		return w.deliverOwn(eventLagging, "", gap)
	}
	gap.Reason = "expired"
	if step.Missed == 0 {
		gap.Reason = "restarted"
	}
	return w.deliverOwn(eventGap, "", gap)
}

// findSignal finds the signal of the question in a state, and reports whether it is another one. Only
// rows tell which signal a type_N is: a stream may begin before the first of them, such as after a
// restart, and a reload may give the type another meaning.
func (w *subscription) findSignal(s *table.State) (other bool, err error) {
	found, err := findSignal(w.signal, s.Signals())
	switch {
	case err != nil && !w.key.signal.HasValue():
		return false, err
	case err != nil || !found.HasValue() || found == w.key.signal:
		return false, nil
	}
	w.key.signal = found
	return true, nil
}

// eventOf identifies an event among those of watches with the same question.
type eventOf struct {
	name     string
	revision uint64
	start    int64 // of the window, Unix ns
	durable  bool  // of a snapshot
	second   int64 // in which a snapshot or window event was made: its age soon becomes wrong
	late     bool
	last     bool   // of its revision
	base     baseIs // the base that its changes refer to
}

// askedEvent identifies an event among all that are sent.
type askedEvent struct {
	eventOf
	view     viewKey
	filter   string
	encoding string
	names    uint64
}

// asks identifies an event of windows, and returns its approximate maximum size in bytes.
func (w *subscription) asks(ctx context.Context, of eventOf, windows []*table.Window) (key askedEvent, bytes int, err error) {
	n, err := w.api.names.get(ctx)
	if err != nil {
		return key, 0, err
	}
	for _, window := range windows {
		bytes += window.Rows.Len() * textBytes
	}
	return askedEvent{of, w.key, w.filter, w.encoding, n.version}, bytes, nil
}

// share makes an event once for all streams with the same filter, in a turn, which deliver ends.
func (w *subscription) share(t *turn, key askedEvent, f func() (*event, error)) (e *event, err error) {
	defer func() {
		if e == nil { // also after a panic
			w.api.sends.end(t)
		}
	}()
	return getOrCompute(w.api.cache, key, func() (*event, int, error) {
		e, err := f()
		if err != nil {
			return nil, 0, err
		}
		return e, e.size() + sentBytes*len(e.chosen), nil
	})
}

// deliverOwn sends an event that is for this reader only.
func (w *subscription) deliverOwn(name, id string, value proto.Message) error {
	return w.deliver(nil, &event{name: name, id: id, content: content{value: value}})
}

// deliver sends an event and ends its turn.
func (w *subscription) deliver(t *turn, e *event) error {
	defer w.api.sends.end(t)
	began := time.Now()
	err := w.to.send(t, e)
	w.sent = time.Now()
	if err != nil {
		w.api.sends.count(t, w.sent.Sub(began), sendTimeout)
	}
	return err
}

func (w *subscription) beat() error {
	s := w.memory.State()
	now := w.api.Now()
	beat := &wire.Heartbeat{Revision: token(s), Time: timestamppb.New(now), AgeS: ageOf(s.Coverage, now)}
	return w.deliverOwn(eventHeartbeat, w.passed, beat)
}

// events sends a stream as server-sent events.
type events struct {
	body    io.Writer
	out     *http.ResponseController
	sends   *sends
	patient time.Duration // for one event
	packer  *packer       // nil if events are sent uncompressed
	schema  *rest.Schema
	stream  gzipStream // if they are compressed
}

// serve answers a request with the stream, until the reader leaves.
func (w *subscription) serve(r *http.Request, out http.ResponseWriter) {
	e := &events{body: out, out: http.NewResponseController(out), sends: w.api.sends, patient: sendTimeout, schema: w.api.schema}
	// The server's deadlines are for short answers. Only a test's writer has none.
	_ = e.out.SetReadDeadline(time.Time{})
	h := out.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no")
	if w.encoding != inFrames { // compressing numbers in base64 would save little
		h.Add("Vary", "Accept-Encoding")
		if takesGzip(r.Header) {
			h.Set("Content-Encoding", "gzip")
			e.packer = &w.api.packer
		}
	}
	out.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return
	}
	if err := e.begin(); err != nil {
		return
	}
	_ = w.run(r.Context(), e)
	if e.packer != nil { // fails if the reader has left
		_ = e.write(e.stream.end())
	}
}

// begin sends a comment, which makes proxies pass on the headers.
func (e *events) begin() error {
	comment := []byte(":\n\n")
	if e.packer == nil {
		return e.write(comment)
	}
	p, err := e.packer.pack(comment)
	if err != nil {
		return err
	}
	e.stream.add(p)
	return e.write(append(gzipHead[:len(gzipHead):len(gzipHead)], p.blocks...))
}

// send implements recipient.
func (e *events) send(t *turn, out *event) error {
	if e.packer == nil {
		b, err := out.sse(e.schema)
		if err != nil {
			return err
		}
		e.sends.weigh(t, len(b))
		return e.writeIn(t, b)
	}
	p, err := out.packed(e.packer, e.schema)
	if err != nil {
		return err
	}
	e.sends.weigh(t, len(p.blocks))
	if err := e.writeIn(t, p.blocks); err != nil {
		return err
	}
	e.stream.add(p)
	return nil
}

// charge implements recipient: all events are written from the same bytes.
func (e *events) charge(of askedEvent) any { return of }

// stop implements recipient.
func (e *events) stop() { _ = e.out.SetWriteDeadline(past) }

// past is a deadline at which every write fails.
var past = time.Unix(1, 0)

// sse is the event as bytes to send. The caller must not modify them.
func (e *event) sse(s *rest.Schema) ([]byte, error) {
	return e.plain.get(func() ([]byte, error) { return e.appendSSE(s) })
}

// packed is the same in its form in gzip streams.
func (e *event) packed(by *packer, s *rest.Schema) (*packed, error) {
	return e.gzip.get(func() (*packed, error) {
		b, err := e.sse(s)
		if err != nil {
			return nil, err
		}
		return by.pack(b)
	})
}

func (e *event) appendSSE(s *rest.Schema) ([]byte, error) {
	data, cells, err := e.json(s)
	if err != nil {
		return nil, fmt.Errorf("encode event: %w", err)
	}
	b := make([]byte, 0, len(e.id)+len(e.name)+len(data)+len(cells)+len("id: \nevent: \ndata: \n\n"))
	if e.id != "" {
		b = append(append(append(b, "id: "...), e.id...), '\n')
	}
	b = append(append(append(b, "event: "...), e.name...), "\ndata: "...)
	return append(append(append(b, data...), cells...), "\n\n"...), nil
}

func (e *events) write(b []byte) error { return e.writeIn(nil, b) }

// writeIn writes in a turn.
func (e *events) writeIn(t *turn, b []byte) error {
	if err := e.out.SetWriteDeadline(time.Now().Add(e.patient)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if e.sends.isCut(t) { // by stop, whose deadline was just replaced
		return os.ErrDeadlineExceeded
	}
	if _, err := e.body.Write(b); err != nil {
		return err
	}
	return e.out.Flush()
}
