package api

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/csigscope/csigscope/aggregate/query/model"
	"github.com/csigscope/csigscope/aggregate/query/rpc"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/decode/csig"
)

type watchInput struct {
	SignalInput
	FilterInput
	Windows   int    `query:"windows" default:"1" minimum:"1" maximum:"3600" doc:"how many of the last windows the snapshot adds up" example:"10"`
	After     string `query:"after" maxLength:"60" doc:"a revision that was seen: go on from there, without a snapshot" example:"0000000000000007-42"`
	LastID    string `header:"Last-Event-ID" maxLength:"60" doc:"the same, as browsers send it" example:"0000000000000007-42"`
	Heartbeat string `query:"heartbeat" default:"15s" maxLength:"20" doc:"longest silence, 1s to 60s" example:"10s"`
	Encoding  string `query:"encoding" default:"json" enum:"json,frames" doc:"of cells: json, or frames, a twelfth of the size: columns of little-endian numbers in base64, by the identities of groups and locations, as /api/v1/frames gives them" example:"frames"`
}

const watchDescription = `Server-sent events, each with the revision as its id: snapshot (model Cells), synced, and then a
window for each one that closed or changed (WindowEvent), in place of what was told of it before. heartbeat says that a
silent stream lives. gap says that the revision to go on from is not at hand, lagging that the reader was too slow; a
snapshot follows both, and synced. With encoding=frames a window that is not older than the newest one may hold only
what has changed since the window event before it; base says so. JSON comes in gzip where Accept-Encoding names that: a sixth
of the bytes, each event whole as soon as it is sent.`

func (a *API) registerWatch(h huma.API) {
	op := huma.Operation{
		OperationID: "watch", Method: http.MethodGet, Path: "/api/v1/watch", Summary: "Cells as they change", Description: watchDescription,
		Responses: responses(h, "text/event-stream", model.WindowEvent{}),
	}
	for _, sample := range []any{model.Cells{}, model.Synced{}, model.Heartbeat{}, model.Gap{}} {
		responses(h, "text/event-stream", sample) // described beside
	}
	huma.Register(h, op, func(ctx context.Context, in *watchInput) (*huma.StreamResponse, error) {
		w, err := a.newWatch(ctx, in)
		if err != nil {
			return nil, a.answerable(ctx, err)
		}
		leave, err := a.enter(ctx)
		if err != nil {
			return nil, err
		}
		if t := takenBy(ctx); t != nil {
			t.watch, t.leave = w, leave
			return &huma.StreamResponse{Body: func(huma.Context) {}}, nil
		}
		return &huma.StreamResponse{Body: func(ctx huma.Context) {
			defer leave()
			r, out := humago.Unwrap(ctx)
			w.serve(r, out)
		}}, nil
	})
}

// watch is what one reader is told of.
type watch struct {
	api       *API
	in        *watchInput
	key       viewKey
	watcher   *table.Watcher
	heartbeat time.Duration
	filter    string    // the filter as text
	newest    time.Time // end of the newest window that was told
	base      base
	told      func(*event) error
}

// event is one thing that a reader is told.
type event struct {
	name string // model.EventSnapshot and so on
	id   string // the revision that a reader who has got this far resumes from; empty for none
	content
	names uint64 // version of the names that cells were chosen under
	sent  *sent  // nil where nobody else is told the same
}

// sent is an event as it is sent, made once for all.
type sent struct {
	plain  lazily[[]byte]
	packed lazily[*packed]
	called lazily[*rpc.Event]
}

// sentBytes is about what a cell takes in memory beside its text, where an event is sent in all
// ways.
const sentBytes = 1200

// newWatch checks what can be wrong before the stream begins.
func (a *API) newWatch(ctx context.Context, in *watchInput) (*watch, error) {
	s, _, err := a.state(ctx, &WaitInput{})
	if err != nil {
		return nil, err
	}
	w := &watch{api: a, in: in, filter: fmt.Sprintf("%#v", in.FilterInput)}
	if w.heartbeat, err = time.ParseDuration(in.Heartbeat); err != nil || w.heartbeat < time.Second || w.heartbeat > time.Minute {
		return nil, wrong("heartbeat", in.Heartbeat, "expected a duration from 1s to 1m, such as 15s")
	}
	if w.key, err = in.key(in.Windows, s.Signals()); err != nil {
		return nil, err
	}
	n, err := a.names.get(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := in.filter(n, w.key.signal); err != nil {
		return nil, err
	}
	seen := cmp.Or(in.LastID, in.After)
	if seen == "" {
		w.watcher = a.Memory.Watch(a.MaxLag)
		return w, nil
	}
	epoch, revision, ok := parseToken(seen, s.Epoch)
	if !ok {
		return nil, wrong("after", seen, "expected a revision of an earlier event, such as %s", token(s))
	}
	if epoch == s.Epoch && revision > s.Revision {
		return nil, ahead(seen, s)
	}
	w.watcher = a.Memory.Resume(a.MaxLag, epoch, revision)
	return w, nil
}

// run tells of events until the reader goes, or takes too long for one.
func (w *watch) run(ctx context.Context, told func(*event) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.api.running, cancel)()
	w.told = told
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
		return w.changed(ctx, step)
	}
	gap := &model.Gap{Revision: token(step.State), Reason: "lagging", Missed: step.Missed}
	if step.Kind == table.Lagging {
		w.api.lagging.Add(1)
		return w.tell(model.EventLagging, "", gap)
	}
	gap.Reason = "expired"
	if step.Missed == 0 {
		gap.Reason = "restarted"
	}
	return w.tell(model.EventGap, "", gap)
}

func (w *watch) snapshot(ctx context.Context, s *table.State) error {
	e, err := w.share(ctx, eventOf{name: model.EventSnapshot, revision: s.Revision}, func() (*event, error) {
		v, f, err := w.view(ctx, func() (*view, error) { return w.api.view(ctx, s, w.key) })
		if err != nil {
			return nil, err
		}
		chosen := v.chosen(f)
		value := &model.Cells{About: about(s, w.key), Total: len(chosen)}
		// A reader that goes away before synced has not got it all: only that carries an id.
		e := &event{name: model.EventSnapshot, content: content{value: value, view: v, chosen: chosen}}
		if w.in.Encoding == inFrames {
			value.Values = []model.Cell{} // which are in the frames
			e.content = content{value: value}
			e.bytes, err = asFrames(v.only(chosen), value.From, value.To, &value.Frames)
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
	if err := w.told(e); err != nil {
		return err
	}
	return w.tell(model.EventSynced, token(s), &model.Synced{Revision: token(s)})
}

// changed sends the windows that a revision changed. The last carries the id.
func (w *watch) changed(ctx context.Context, step table.Step) error {
	for i, window := range step.Windows {
		of := eventOf{
			name: model.EventWindow, revision: step.State.Revision, start: window.Start.UnixNano(),
			late: !window.End.After(w.newest), last: i == len(step.Windows)-1,
		}
		current := !window.End.Before(w.newest)
		if current {
			of.base = w.base.is
		}
		e, err := w.share(ctx, of, func() (*event, error) { return w.window(ctx, step.State, window, of) })
		if err != nil {
			return err
		}
		if current {
			w.newest = window.End
			if w.in.Encoding == inFrames {
				w.base = baseOf(window, e.names)
			}
		}
		if err := w.told(e); err != nil {
			return err
		}
	}
	return nil
}

func (w *watch) window(ctx context.Context, s *table.State, window *table.Window, of eventOf) (*event, error) {
	v, f, err := w.view(ctx, func() (*view, error) { return w.api.windowView(ctx, window, w.key.signal, w.key.level) })
	if err != nil {
		return nil, err
	}
	value := &model.WindowEvent{
		Revision: token(s), Start: window.Start, End: window.End, Late: of.late,
		Completeness: window.Completeness(), Signal: csig.SignalNames([]csig.Signal{w.key.signal})[0],
	}
	e := &event{name: of.name, names: v.names.version}
	if w.in.Encoding == inFrames {
		e.content, err = w.windowFrames(ctx, value, v, f, of.base)
	} else {
		e.content = content{value: value, view: v, chosen: v.chosen(f)}
	}
	if of.last {
		e.id = token(s)
	}
	return e, err
}

// eventOf says which event it is, among those of watches with the same question.
type eventOf struct {
	name     string
	revision uint64
	start    int64 // of the window, Unix ns
	late     bool
	last     bool   // of its revision
	base     baseIs // that it may tell the changes of
}

// share makes an event once for all who watch the same cells.
func (w *watch) share(ctx context.Context, of eventOf, f func() (*event, error)) (*event, error) {
	n, err := w.api.names.get(ctx)
	if err != nil {
		return nil, w.api.answerable(ctx, err)
	}
	type asked struct {
		eventOf
		view     viewKey
		filter   string
		encoding string
		names    uint64
	}
	return once(w.api.made, asked{of, w.key, w.filter, w.in.Encoding, n.version}, func() (*event, int, error) {
		e, err := f()
		if err != nil {
			return nil, 0, err
		}
		e.sent = &sent{}
		return e, e.size() + sentBytes*len(e.chosen), nil
	})
}

// tell tells what is for this reader alone.
func (w *watch) tell(name, id string, value any) error {
	return w.told(&event{name: name, id: id, content: content{value: value}})
}

// view gives a view, and the filter under the names that it is made with.
func (w *watch) view(ctx context.Context, get func() (*view, error)) (*view, *filter, error) {
	v, err := get()
	if err != nil {
		return nil, nil, w.api.answerable(ctx, err)
	}
	f, err := w.in.filter(v.names, w.key.signal)
	return v, &f, err
}

func (w *watch) beat() error {
	s := w.api.Memory.State()
	beat := &model.Heartbeat{Revision: token(s), Time: w.api.Now().UTC()}
	if newest := s.Newest(); newest != nil {
		age := beat.Time.Sub(newest.End).Seconds()
		beat.AgeSeconds = &age
	}
	return w.tell(model.EventHeartbeat, "", beat)
}
