package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"time"
	"weak"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/rest"
	"github.com/csigscope/csigscope/aggregate/query/wire"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/decode/csig"
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
)

// serveWatch answers a request with server-sent events, until the reader goes.
func (a *API) serveWatch(out http.ResponseWriter, r *http.Request) {
	in := &wire.WatchRequest{}
	if err := a.schema.Parse(r.URL.Query(), in); err != nil {
		a.refuse(r.Context(), out, err)
		return
	}
	// Browsers send the id of the last event when they come again.
	w, leave, err := a.newWatch(r.Context(), in, cmp.Or(r.Header.Get("Last-Event-ID"), in.GetAfter()))
	if err != nil {
		a.refuse(r.Context(), out, err)
		return
	}
	defer leave()
	w.serve(r, out)
}

// watch is what one reader is told of.
type watch struct {
	api       *API
	in        *wire.WatchRequest
	key       viewKey
	watcher   *table.Watcher
	heartbeat time.Duration
	filter    string    // the question as text
	newest    time.Time // end of the newest window that was told
	base      base
	to        recipient
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
	id   string // the revision that a reader who has got this far resumes from; empty for none
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

// newWatch checks what can be wrong before the stream begins, and makes room for it until
// leave. seen is the revision to go on from, empty for none.
func (a *API) newWatch(ctx context.Context, in *wire.WatchRequest, seen string) (w *watch, leave func(), err error) {
	s, _, err := a.state(ctx, &waiting{})
	if err != nil {
		return nil, nil, err
	}
	w = &watch{api: a, in: in, filter: cellsOf(in), heartbeat: in.GetHeartbeat().AsDuration()}
	if w.key, err = keyOf(in, int(in.GetWindows()), s.Signals()); err != nil {
		return nil, nil, err
	}
	n, err := a.names.get(ctx)
	if err != nil {
		return nil, nil, err
	}
	if _, err := n.filter(in, w.key.signal); err != nil {
		return nil, nil, err
	}
	if w.watcher, err = a.watcher(s, seen); err != nil {
		return nil, nil, err
	}
	leave, err = a.enter(ctx)
	return w, leave, err
}

// cellsOf identifies the cells that are watched: it is equal for watches that are told the same.
func cellsOf(in *wire.WatchRequest) string {
	cells, _ := proto.Clone(in).(*wire.WatchRequest)
	cells.After, cells.Heartbeat = "", nil
	return questionOf(cells)
}

// watcher follows the memory, from the revision that was seen on, if there is one.
func (a *API) watcher(s *table.State, seen string) (*table.Watcher, error) {
	if seen == "" {
		return a.Memory.Watch(a.MaxLag), nil
	}
	epoch, revision, ok := parseToken(seen, s.Epoch)
	if !ok {
		return nil, wrong("after", seen, "expected a revision of an earlier event, such as %s", token(s))
	}
	if epoch == s.Epoch && revision > s.Revision {
		return nil, ahead(seen, s)
	}
	return a.Memory.Resume(a.MaxLag, epoch, revision), nil
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
func (w *watch) run(ctx context.Context, to recipient) error {
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
func (w *watch) next(ctx context.Context) error {
	wait, cancel := context.WithTimeout(ctx, w.heartbeat)
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
		return w.snapshot(ctx, step.State)
	case table.Changed:
		return w.changed(ctx, step.State, step.Windows)
	case table.Durable:
		durable := &wire.Durable{}
		for _, window := range step.Windows {
			durable.WindowStarts = append(durable.WindowStarts, timestamppb.New(window.Start))
		}
		return w.tell(eventDurable, "", durable)
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

func (w *watch) snapshot(ctx context.Context, s *table.State) error {
	var t *turn
	var key askedEvent
	for {
		of := eventOf{name: eventSnapshot, revision: s.Revision, durable: s.Durable(s.Last(w.key.windows))}
		var bytes int
		var err error
		if key, bytes, err = w.asks(ctx, of, s.Last(w.key.windows)); err != nil {
			return err
		}
		var wait time.Duration
		var ended chan struct{}
		if t, wait, ended = w.api.sends.enter(key, bytes, w.to.stop); t != nil {
			break
		}
		s = nil // those that wait for room must not keep states
		if err := untilEnded(ctx, wait, ended); err != nil {
			return err
		}
		s = w.api.Memory.State()
		w.watcher = w.api.Memory.Resume(w.api.MaxLag, s.Epoch, s.Revision)
	}
	e, err := w.share(t, key, func() (*event, error) {
		v, f, err := w.filtered(w.api.view(ctx, s, w.key))
		if err != nil {
			return nil, err
		}
		chosen := v.chosen(f)
		value := &wire.CellsResponse{About: about(s, w.key), Total: uint64(len(chosen))}
		// A reader that goes away before synced has not got it all: only that carries an id.
		e := &event{name: eventSnapshot, content: content{value: value, view: v, chosen: chosen}}
		if w.in.GetEncoding() == inFrames {
			e.content = content{value: value}
			e.bytes, err = asFrames(v.only(chosen), value.About.GetFrom(), value.About.GetTo(), &value.Frames)
		}
		return e, err
	})
	if err != nil {
		return err
	}
	w.base = base{}
	if newest := s.Newest(); newest != nil {
		w.newest = newest.End
	}
	synced := token(s) // a reader that is slow must not keep the state
	if err := w.told(t, e); err != nil {
		return err
	}
	return w.tell(eventSynced, synced, &wire.Synced{Revision: synced})
}

// changed sends the windows that a revision changed. The last carries the id.
func (w *watch) changed(ctx context.Context, s *table.State, windows []*table.Window) error {
	id, revision := token(s), s.Revision
	left := slices.Clone(windows) // a reader that is slow must keep neither the state nor windows that it was sent
	for len(left) > 0 {
		window := left[0]
		left = slices.Delete(left, 0, 1)
		if err := w.windowChanged(ctx, id, revision, window, len(left) == 0); err != nil {
			return err
		}
	}
	return nil
}

func (w *watch) windowChanged(ctx context.Context, id string, revision uint64, window *table.Window, last bool) error {
	of := eventOf{
		name: eventWindow, revision: revision, start: window.Start.UnixNano(), late: !window.End.After(w.newest), last: last,
	}
	current := !window.End.Before(w.newest)
	if current {
		of.base = w.base.is
	}
	key, bytes, err := w.asks(ctx, of, []*table.Window{window})
	if err != nil {
		return err
	}
	t, err := w.api.sends.begin(ctx, key, bytes, w.to.stop)
	if err != nil {
		return err
	}
	e, err := w.share(t, key, func() (*event, error) { return w.window(ctx, id, window, of) })
	if err != nil {
		return err
	}
	if current {
		w.newest = window.End
		if w.in.GetEncoding() == inFrames {
			w.base = baseOf(window, e.names)
		}
	}
	return w.told(t, e)
}

func (w *watch) window(ctx context.Context, id string, window *table.Window, of eventOf) (*event, error) {
	v, f, err := w.filtered(w.api.windowView(ctx, window, w.key.signal, w.key.level))
	if err != nil {
		return nil, err
	}
	value := &wire.WindowEvent{
		Revision: id, WindowStart: timestamppb.New(window.Start), WindowEnd: timestamppb.New(window.End), Late: of.late,
		CompletenessRatio: window.Completeness(), Durable: window.Durable, Signal: csig.SignalNames([]csig.Signal{w.key.signal})[0],
	}
	e := &event{name: of.name, names: v.names.version}
	if w.in.GetEncoding() == inFrames {
		e.content, err = w.windowFrames(ctx, value, v, f, of.base)
	} else {
		e.content = content{value: value, view: v, chosen: v.chosen(f)}
	}
	if of.last {
		e.id = id
	}
	return e, err
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
func (w *watch) asks(ctx context.Context, of eventOf, windows []*table.Window) (key askedEvent, bytes int, err error) {
	n, err := w.api.names.get(ctx)
	if err != nil {
		return key, 0, err
	}
	for _, window := range windows {
		bytes += window.Rows.Len() * textBytes
	}
	return askedEvent{of, w.key, w.filter, w.in.GetEncoding(), n.version}, bytes, nil
}

// share makes an event once for all who watch the same cells, in a turn, which told ends.
func (w *watch) share(t *turn, key askedEvent, f func() (*event, error)) (*event, error) {
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
func (w *watch) tell(name, id string, value proto.Message) error {
	return w.told(nil, &event{name: name, id: id, content: content{value: value}})
}

// told sends an event and ends its turn.
func (w *watch) told(t *turn, e *event) error {
	defer w.api.sends.end(t)
	began := time.Now()
	err := w.to.send(t, e)
	if err != nil {
		w.api.sends.count(t, time.Since(began), w.api.SendTimeout)
	}
	return err
}

// filtered gives a view, and the filter under the names that it is made with.
func (w *watch) filtered(v *view, err error) (*view, *filter, error) {
	if err != nil {
		return nil, nil, err
	}
	f, err := v.names.filter(w.in, w.key.signal)
	return v, &f, err
}

func (w *watch) beat() error {
	s := w.api.Memory.State()
	now := w.api.Now()
	beat := &wire.Heartbeat{Revision: token(s), Time: timestamppb.New(now)}
	if newest := s.Newest(); newest != nil {
		age := now.Sub(newest.End).Seconds()
		beat.AgeS = &age
	}
	return w.tell(eventHeartbeat, "", beat)
}

// inFrames is the encoding of a watch whose cells come as query.FramesHead says.
const inFrames = "frames"

// asFrames puts cells of a window, or of several that begin then, into an event.
func asFrames(cells []aggregate.CellStats, start, end *timestamppb.Timestamp, into *[]byte) (size int, err error) {
	from, to := start.AsTime(), end.AsTime()
	if *into, err = query.EncodeFrame(from.UnixNano(), int64(to.Sub(from)), cells); err != nil {
		return 0, fmt.Errorf("encode cells: %w", err)
	}
	return len(*into), nil
}

// only are the chosen cells.
func (v *view) only(chosen []int) []aggregate.CellStats {
	if len(chosen) == len(v.cells) {
		return v.cells
	}
	list := make([]aggregate.CellStats, len(chosen))
	for n, i := range chosen {
		list[n] = v.cells[i]
	}
	return list
}

// base is the window that a watcher was told of last in an event of its own, of those that
// were the newest then. The zero value is none.
type base struct {
	window weak.Pointer[table.Window] // a reader that is slow must not keep it: nil once memory has forgotten it
	is     baseIs
}

// baseIs tells bases apart, without keeping their windows. names is the version of the names
// that the window was told under.
type baseIs struct {
	revision uint64
	start    int64 // Unix ns
	names    uint64
}

func baseOf(w *table.Window, names uint64) base {
	return base{weak.Make(w), baseIs{w.Revision, w.Start.UnixNano(), names}}
}

// windowFrames puts the cells of a window into its event: those that differ from the base,
// where it has one and that is less than all of them.
func (w *watch) windowFrames(ctx context.Context, into *wire.WindowEvent, v *view, f *filter, is baseIs) (content, error) {
	cells := v.only(v.chosen(f))
	// Under other names, cells would not be compared with what was told.
	if last := w.base.window.Value(); last != nil && w.base.is == is && is.names == v.names.version {
		before, err := w.api.windowView(ctx, last, w.key.signal, w.key.level)
		if err != nil {
			return content{}, err
		}
		changed, few := changes(before.only(before.chosen(f)), cells, len(cells)/2)
		if few && before.names == v.names {
			cells, into.Base = changed, timestamppb.New(last.Start)
		}
	}
	size, err := asFrames(cells, into.WindowStart, into.WindowEnd, &into.Frames)
	return content{value: into, bytes: size}, err
}

// changes are the cells that are not as they were before, and those that have gone, without
// observations; few is false where they are more than most. All are ordered by source and
// destination.
func changes(before, now []aggregate.CellStats, most int) (list []aggregate.CellStats, few bool) {
	for len(before) > 0 || len(now) > 0 {
		if len(list) > most {
			return nil, false
		}
		order := 1 // where there are none before any more
		if len(before) > 0 {
			order = -1
			if len(now) > 0 {
				order = cmp.Or(cmp.Compare(before[0].Src, now[0].Src), cmp.Compare(before[0].Dst, now[0].Dst))
			}
		}
		switch {
		case order < 0:
			gone := aggregate.CellStats{Src: before[0].Src, Dst: before[0].Dst, Signal: before[0].Signal, Kind: before[0].Kind}
			list, before = append(list, gone), before[1:]
		case order > 0:
			list, now = append(list, now[0]), now[1:]
		default:
			if before[0] != now[0] {
				list = append(list, now[0])
			}
			before, now = before[1:], now[1:]
		}
	}
	return list, len(list) <= most
}

// events sends a watch as server-sent events.
type events struct {
	body    io.Writer
	out     *http.ResponseController
	sends   *sends
	patient time.Duration // for one event
	packer  *packer       // nil where events are sent as they are
	schema  *rest.Schema
	stream  gzipStream // where they are not
}

// serve answers a request with the watch, until the reader goes.
func (w *watch) serve(r *http.Request, out http.ResponseWriter) {
	e := &events{body: out, out: http.NewResponseController(out), sends: w.api.sends, patient: w.api.SendTimeout, schema: w.api.schema}
	// The server's limits are those of short answers. A writer that knows none is a test's.
	_ = e.out.SetReadDeadline(time.Time{})
	h := out.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no")
	if w.in.GetEncoding() != inFrames { // numbers in base64 would hardly be shorter
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
	data, err := e.json(s)
	if err != nil {
		return nil, fmt.Errorf("encode event: %w", err)
	}
	b := make([]byte, 0, len(e.id)+len(e.name)+len(data)+len("id: \nevent: \ndata: \n\n"))
	if e.id != "" {
		b = append(append(append(b, "id: "...), e.id...), '\n')
	}
	b = append(append(append(b, "event: "...), e.name...), "\ndata: "...)
	return append(append(b, data...), "\n\n"...), nil
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
