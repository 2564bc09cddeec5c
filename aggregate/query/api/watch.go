package api

import (
	"cmp"
	"context"
	"fmt"
	"time"
	"weak"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/wire"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/decode/csig"
)

// watch is a stream of cells.
type watch struct {
	*subscription
	in     *wire.WatchRequest
	newest time.Time // end of the newest window that was sent
	base   base
}

func (a *API) newWatch(ctx context.Context, s *table.State, in *wire.WatchRequest) (*subscription, error) {
	w := &watch{in: in, subscription: &subscription{encoding: in.GetEncoding()}}
	w.of = w
	var err error
	if w.key, err = stateKey(s, in, int(in.GetWindows())); err != nil {
		return nil, err
	}
	if in.GetFlows() > 0 && isFine(s) {
		return nil, wrong("flows", fmt.Sprint(in.GetFlows()), "windows of %s name none: leave out resolution", s.Resolution)
	}
	_, err = resolve(ctx, &a.names, func(n *names) error {
		_, wrongFilter := n.filter(in, w.key.signal)
		_, wrongLink := n.findLocations(nil, in.GetLink())
		return cmp.Or(wrongFilter, wrongLink)
	})
	return w.subscription, err
}

func (w *watch) snapshot(ctx context.Context, s *table.State) error {
	of := eventOf{name: eventSnapshot, revision: s.Revision, durable: s.Durable(s.Last(w.key.windows)), second: w.api.Now().Unix()}
	key, bytes, err := w.asks(ctx, of, s.Last(w.key.windows))
	if err != nil {
		return err
	}
	t, wait, ended := w.api.sends.enter(w.to.charge(key), bytes, w.to.stop)
	if t == nil { // a reader that waits must not keep the state: it takes a later one
		w.watcher = w.memory.Watch(w.api.lagOf(s))
		return untilEnded(ctx, wait, ended)
	}
	e, err := w.share(t, key, func() (*event, error) {
		v, f, err := w.filtered(w.api.view(ctx, s, w.key))
		if err != nil {
			return nil, err
		}
		chosen := v.chosen(f)
		value := &wire.CellsResponse{About: w.api.about(s, w.key), Total: uint64(len(chosen))}
		v.explainUnjudged(value.About, w.key.signal, chosen)
		// A reader that leaves before synced has not received all cells: only synced carries an
		// id.
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
	w.base, w.newest = base{}, time.Time{}
	if newest := s.Newest(); newest != nil {
		w.newest = newest.End
	}
	synced := token(s) // a slow reader must not keep the state
	if err := w.deliver(t, e); err != nil {
		return err
	}
	return w.deliverOwn(eventSynced, synced, &wire.Synced{Revision: synced})
}

// changed sends the windows that a revision changed, of which the last carries the id, or the
// starts of those that are now on disk.
func (w *watch) changed(ctx context.Context, step table.Step) error {
	if step.Kind == table.Durable {
		durable := &wire.Durable{}
		for _, window := range step.Windows {
			durable.WindowStarts = append(durable.WindowStarts, timestamppb.New(window.Start))
		}
		return w.deliverOwn(eventDurable, "", durable)
	}
	if w.newest.IsZero() && step.Before != nil { // resumed: the reader has the windows of the revision before
		if newest := step.Before.Newest(); newest != nil {
			w.newest = newest.End
		}
	}
	id, revision := token(step.State), step.State.Revision
	// A slow reader must keep neither the state nor windows.
	left := make([]weak.Pointer[table.Window], len(step.Windows))
	for i, window := range step.Windows {
		left[i] = weak.Make(window)
	}
	step = table.Step{}
	for i, window := range left {
		if found, err := w.windowChanged(ctx, id, revision, window, i == len(left)-1); err != nil {
			return err
		} else if !found {
			w.watcher.Lose()
			return nil
		}
	}
	return nil
}

// windowChanged sends a window, unless memory has dropped it before there was room.
func (w *watch) windowChanged(ctx context.Context, id string, revision uint64, at weak.Pointer[table.Window], last bool) (found bool, err error) {
	window := at.Value()
	if window == nil {
		return false, nil
	}
	of := eventOf{
		name: eventWindow, revision: revision, start: window.Start.UnixNano(), late: !window.End.After(w.newest), last: last, second: w.api.Now().Unix(),
	}
	current := !window.End.Before(w.newest)
	if current {
		of.base = w.base.is
	}
	key, bytes, err := w.asks(ctx, of, []*table.Window{window})
	if err != nil {
		return false, err
	}
	t, err := w.api.sends.begin(ctx, w.to.charge(key), bytes, w.to.stop)
	if err != nil {
		return false, err
	}
	kept := at.Value() // a variable of its own, so that nothing keeps the window in begin
	if kept == nil {
		w.api.sends.end(t)
		return false, nil
	}
	e, err := w.share(t, key, func() (*event, error) { return w.window(ctx, id, kept, of) })
	if err != nil {
		return true, err
	}
	if current {
		w.newest = kept.End
		if w.in.GetEncoding() == inFrames {
			w.base = baseOf(kept, e.names)
		}
	}
	return true, w.deliver(t, e)
}

func (w *watch) window(ctx context.Context, id string, window *table.Window, of eventOf) (*event, error) {
	v, f, err := w.filtered(w.api.windowView(ctx, window, w.key.signal, w.key.level))
	if err != nil {
		return nil, err
	}
	now := w.api.Now()
	value := &wire.WindowEvent{
		AsOf: timestamppb.New(now), AgeS: ageOf(window.Coverage, now),
		ExpectedProducers: uint32(window.Coverage.Expected), PresentProducers: uint32(window.Producers),
		Revision: id, WindowStart: timestamppb.New(window.Start), WindowEnd: timestamppb.New(window.End), Late: of.late,
		CompletenessRatio: window.Completeness(), Durable: window.Durable, Final: window.Final, Signal: csig.SignalNames([]csig.Signal{w.key.signal})[0],
	}
	if value.Flows, err = w.flows(window, v.names, f); err != nil {
		return nil, err
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

// flows returns the flows of a window that the watch asks for.
func (w *watch) flows(window *table.Window, n *names, f *filter) (list []*wire.Flow, err error) {
	most := int(w.in.GetFlows())
	if most == 0 {
		return nil, nil
	}
	q := query.FlowQuestion{Signal: w.key.signal, SrcGroups: f.src, DstGroups: f.dst, Limit: maxRecords}
	// Only by link: the watch's locations are at its own level.
	if q.Locations, err = n.findLocations(nil, w.in.GetLink()); err != nil {
		return nil, err
	}
	lift := n.at(w.key.level)
	rows, _ := query.FlowsOfWindows([]*table.Window{window}, q, nil)
	for i := range rows {
		at := rows[i].Location
		if lift != nil {
			at = lift(at)
		}
		if len(list) < most && (len(f.locations) == 0 || rows[i].LocationHeavy > 0 && among(f.locations, at)) {
			list = append(list, n.flow(w.key.signal, &rows[i]))
		}
	}
	return list, nil
}

// filtered returns a view, and the filter with the view's names.
func (w *watch) filtered(v *view, err error) (*view, *filter, error) {
	if err != nil {
		return nil, nil, err
	}
	f, err := v.names.filter(w.in, w.key.signal)
	return v, &f, err
}

// inFrames is the encoding of a watch whose cells are in the form of query.FramesHead.
const inFrames = "frames"

// asFrames encodes the cells of a window, or of several with that start and end, into an event.
func asFrames(cells []aggregate.CellStats, start, end *timestamppb.Timestamp, into *[]byte) (size int, err error) {
	from, to := start.AsTime(), end.AsTime()
	if *into, err = query.EncodeFrame(from.UnixNano(), int64(to.Sub(from)), cells); err != nil {
		return 0, fmt.Errorf("encode cells: %w", err)
	}
	return len(*into), nil
}

// only returns the chosen cells with observations.
func (v *view) only(chosen []int) []aggregate.CellStats {
	list := make([]aggregate.CellStats, 0, len(chosen))
	for _, i := range chosen {
		if v.cells[i].Observations > 0 {
			list = append(list, v.cells[i])
		}
	}
	return list
}

// base is the window in the last window event sent to a watcher, if it was the newest at that
// time. The zero value is none.
type base struct {
	window weak.Pointer[table.Window] // a slow reader must not keep it: nil once memory has dropped it
	is     baseIs
}

// baseIs identifies a base without keeping its window. names is the version of the names that the
// window was sent with.
type baseIs struct {
	revision uint64
	start    int64 // Unix ns
	names    uint64
}

func baseOf(w *table.Window, names uint64) base {
	return base{weak.Make(w), baseIs{w.Revision, w.Start.UnixNano(), names}}
}

// windowFrames puts the cells of a window into its event: only those that differ from the base,
// if there is one and at most half of the cells differ.
func (w *watch) windowFrames(ctx context.Context, into *wire.WindowEvent, v *view, f *filter, is baseIs) (content, error) {
	cells := v.only(v.chosen(f))
	// After a change of names, the cells could not be compared with those sent.
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

// changes returns the cells that have changed, and those that are gone, without observations; few
// is false if there are more than most. All are ordered by source and destination.
func changes(before, now []aggregate.CellStats, most int) (list []aggregate.CellStats, few bool) {
	for len(before) > 0 || len(now) > 0 {
		if len(list) > most {
			return nil, false
		}
		order := 1 // if before is empty
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
			if was, is := framed(before[0]), framed(now[0]); !was.Equal(&is) {
				list = append(list, now[0])
			}
			before, now = before[1:], now[1:]
		}
	}
	return list, len(list) <= most
}

// framed is the cell without the details of its state, which frames lack.
func framed(c aggregate.CellStats) aggregate.CellStats {
	c.Verdict, c.JudgedWindows, c.CongestedWindows = aggregate.Verdict{}, 0, 0
	return c
}
