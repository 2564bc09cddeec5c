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
	eventSnapshot  = "snapshot"  // wire.CellsResponse: everything
	eventSynced    = "synced"    // wire.Synced: what follows are changes
	eventWindow    = "window"    // wire.WindowEvent
	eventDurable   = "durable"   // wire.Durable: windows that are on disk now
	eventHeartbeat = "heartbeat" // wire.Heartbeat
	eventGap       = "gap"       // wire.Gap: what was to be resumed from is not at hand
	eventLagging   = "lagging"   // wire.Gap: the watcher was too slow
	eventInitial   = "initial"   // wire.ChangeSet: all that holds
	eventChanges   = "changes"   // wire.ChangeSet
)

// streamRequest is a pointer to the request of a stream.
type streamRequest[Q any] interface {
	message[Q]
	GetAfter() string
	GetHeartbeat() *durationpb.Duration
}

// opener checks a request before its stream begins.
type opener[P any] func(ctx context.Context, s *table.State, in P) (*stream, error)

// serveStream answers requests with server-sent events, until the reader goes.
func serveStream[Q any, P streamRequest[Q]](a *API, open opener[P]) http.HandlerFunc {
	return func(out http.ResponseWriter, r *http.Request) {
		in := P(new(Q))
		if err := a.schema.Parse(r.URL.Query(), in); err != nil {
			a.refuse(r.Context(), out, err)
			return
		}
		// Browsers send the id of the last event when they come again.
		w, leave, err := begin(r.Context(), a, in, cmp.Or(r.Header.Get("Last-Event-ID"), in.GetAfter()), open)
		if err != nil {
			a.refuse(r.Context(), out, err)
			return
		}
		defer leave()
		w.serve(r, out)
	}
}

// begin opens a stream, and makes room for it until leave. seen is the revision to resume after, empty
// for none.
func begin[Q any, P streamRequest[Q]](ctx context.Context, a *API, in P, seen string, open opener[P]) (w *stream, leave func(), err error) {
	m, err := a.memoryOf(in)
	if err != nil {
		return nil, nil, err
	}
	s := m.State()
	if w, err = open(ctx, s, in); err != nil {
		return nil, nil, err
	}
	w.api, w.memory, w.filter, w.heartbeat, w.sent = a, m, filterOf(in), in.GetHeartbeat().AsDuration(), time.Now()
	if w.watcher, err = a.watcher(m, s, seen); err != nil {
		return nil, nil, err
	}
	leave, err = a.enter(ctx)
	return w, leave, err
}

// filterOf is a request as text, apart from the place and time of the stream: it is equal for streams
// with the same events.
func filterOf(in proto.Message) string {
	of := proto.Clone(in)
	for _, name := range []protoreflect.Name{"after", "heartbeat"} {
		of.ProtoReflect().Clear(of.ProtoReflect().Descriptor().Fields().ByName(name))
	}
	return questionOf(of)
}

// stream is the events that one reader is sent: the loop over revisions, whatever they are about.
type stream struct {
	of        follower
	api       *API
	memory    *table.Memory // that it follows
	key       viewKey
	filter    string // the question as text
	encoding  string // of cells
	watcher   *table.Watcher
	heartbeat time.Duration
	sent      time.Time // when the reader was sent an event last
	passed    string    // the revision that heartbeats let a reader resume from; empty for none
	to        recipient
}

// follower makes the events of a stream.
type follower interface {
	// snapshot sends the state.
	snapshot(context.Context, *table.State) error
	// changed sends a step of the kind Changed or Durable.
	changed(context.Context, table.Step) error
}

// recipient is who events are sent to.
type recipient interface {
	// send sends an event, in a turn that is nil for small ones, and keeps nothing of it while the
	// reader is slow but what is written.
	send(*turn, *event) error
	// stop makes the present send fail. It may be called at any time until that has returned.
	stop()
}

// event is one thing that a reader is told.
type event struct {
	name string // eventSnapshot and so on
	id   string // a reader resumes after this revision; empty where it cannot
	content
	names uint64 // version of the names that cells were chosen under
	sent  *sent  // nil where nobody else is told the same
}

// sent is an event as it is sent, made once for all.
type sent struct {
	plain  lazily[[]byte]
	packed lazily[*packed]
	called lazily[*calledEvent]
}

// sentBytes is about what a cell takes in memory beside its text, where an event is sent in all
// ways.
const sentBytes = 1200

// lagOf is how many revisions a watcher may be behind: for the same time, whatever the length of windows.
func (a *API) lagOf(s *table.State) int {
	return a.MaxLag * max(int(aggregate.LiveResolution/s.Resolution), 1)
}

// watcher follows a memory, from the revision that was seen on, if there is one.
func (a *API) watcher(m *table.Memory, s *table.State, seen string) (*table.Watcher, error) {
	if seen == "" {
		return m.Watch(a.lagOf(s)), nil
	}
	epoch, revision, ok := parseToken(seen, s.Epoch)
	if !ok {
		return nil, wrong("after", seen, "expected a revision of an earlier event, such as %s", token(s))
	}
	if epoch == s.Epoch && revision > s.Revision {
		return nil, ahead(seen, s)
	}
	return m.Resume(a.lagOf(s), epoch, revision), nil
}

// enter makes room for a watcher, until it leaves.
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

// run tells of events until the reader goes, or takes too long for one.
func (w *stream) run(ctx context.Context, to recipient) error {
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

// next sends the next step, or a heartbeat where there is none for so long.
func (w *stream) next(ctx context.Context) error {
	wait, cancel := context.WithDeadline(ctx, w.sent.Add(w.heartbeat))
	defer cancel()
	step, err := w.watcher.Next(wait)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return w.beat()
	}
	switch step.Kind {
	case table.Snapshot:
		return w.of.snapshot(ctx, step.State)
	case table.Changed, table.Durable:
		return w.of.changed(ctx, step)
	}
	gap := &wire.Gap{Revision: token(step.State), Reason: "lagging", MissedRevisions: step.Missed}
	if step.Kind == table.Lagging {
		w.api.lagging.Add(1)
		return w.tell(eventLagging, "", gap)
	}
	gap.Reason = "expired"
	if step.Missed == 0 {
		gap.Reason = "restarted"
	}
	return w.tell(eventGap, "", gap)
}

// eventOf says which event it is, among those of watches with the same question.
type eventOf struct {
	name     string
	revision uint64
	start    int64 // of the window, Unix ns
	durable  bool  // of a snapshot
	late     bool
	last     bool   // of its revision
	base     baseIs // that it may tell the changes of
}

// askedEvent identifies an event among all that are sent.
type askedEvent struct {
	eventOf
	view     viewKey
	filter   string
	encoding string
	names    uint64
}

// asks identifies an event of windows, and says about how many bytes it takes at most.
func (w *stream) asks(ctx context.Context, of eventOf, windows []*table.Window) (key askedEvent, bytes int, err error) {
	n, err := w.api.names.get(ctx)
	if err != nil {
		return key, 0, err
	}
	for _, window := range windows {
		bytes += window.Rows.Len() * textBytes
	}
	return askedEvent{of, w.key, w.filter, w.encoding, n.version}, bytes, nil
}

// share makes an event once for all streams with the same filter, in a turn, which told ends.
func (w *stream) share(t *turn, key askedEvent, f func() (*event, error)) (*event, error) {
	e, err := once(w.api.made, key, func() (*event, int, error) {
		e, err := f()
		if err != nil {
			return nil, 0, err
		}
		e.sent = &sent{}
		return e, e.size() + sentBytes*len(e.chosen), nil
	})
	if err != nil {
		w.api.sends.end(t)
	}
	return e, err
}

// tell tells what is for this reader alone.
func (w *stream) tell(name, id string, value proto.Message) error {
	return w.told(nil, &event{name: name, id: id, content: content{value: value}})
}

// told sends an event and ends its turn.
func (w *stream) told(t *turn, e *event) error {
	defer w.api.sends.end(t)
	began := time.Now()
	err := w.to.send(t, e)
	w.sent = time.Now()
	if err != nil {
		w.api.sends.count(t, w.sent.Sub(began), w.api.SendTimeout)
	}
	return err
}

func (w *stream) beat() error {
	s := w.memory.State()
	now := w.api.Now()
	beat := &wire.Heartbeat{Revision: token(s), Time: timestamppb.New(now)}
	beat.AgeS = ageOf(s, now)
	return w.tell(eventHeartbeat, w.passed, beat)
}

// events sends a stream as server-sent events.
type events struct {
	body    io.Writer
	out     *http.ResponseController
	sends   *sends
	patient time.Duration // for one event
	packer  *packer       // nil where events are sent as they are
	schema  *rest.Schema
	stream  gzipStream // where they are not
}

// serve answers a request with the stream, until the reader goes.
func (w *stream) serve(r *http.Request, out http.ResponseWriter) {
	e := &events{body: out, out: http.NewResponseController(out), sends: w.api.sends, patient: w.api.SendTimeout, schema: w.api.schema}
	// The server's limits are those of short answers. A writer that knows none is a test's.
	_ = e.out.SetReadDeadline(time.Time{})
	h := out.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no")
	if w.encoding != inFrames { // numbers in base64 would hardly be shorter
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
	if e.packer != nil { // where the reader has gone, this fails
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
func (e *events) send(t *turn, told *event) error {
	if e.packer == nil {
		b, err := told.sse(e.schema)
		if err != nil {
			return err
		}
		e.sends.weigh(t, len(b), false)
		return e.writeIn(t, b)
	}
	p, err := told.packed(e.packer, e.schema)
	if err != nil {
		return err
	}
	e.sends.weigh(t, len(p.blocks), false)
	if err := e.writeIn(t, p.blocks); err != nil {
		return err
	}
	e.stream.add(p)
	return nil
}

// stop implements recipient.
func (e *events) stop() { _ = e.out.SetWriteDeadline(past) }

// past is a time at which no write may go on.
var past = time.Unix(1, 0)

// sse is the event as it is sent. It is not to be written to.
func (e *event) sse(s *rest.Schema) ([]byte, error) {
	if e.sent != nil {
		return e.sent.plain.get(func() ([]byte, error) { return e.appendSSE(s) })
	}
	return e.appendSSE(s)
}

// packed is the same as parts of gzip streams have it.
func (e *event) packed(by *packer, s *rest.Schema) (*packed, error) {
	pack := func() (*packed, error) {
		b, err := e.sse(s)
		if err != nil {
			return nil, err
		}
		return by.pack(b)
	}
	if e.sent != nil {
		return e.sent.packed.get(pack)
	}
	return pack()
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
	if e.sends.isCut(t) { // by stop, whose deadline is gone
		return os.ErrDeadlineExceeded
	}
	if _, err := e.body.Write(b); err != nil {
		return err
	}
	return e.out.Flush()
}
