package api

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/decode/csig"
)

// optional is a parameter that may be left out.
type optional[T any] struct {
	value T
	set   bool
	text  T // what huma reads into
}

// Schema implements huma.SchemaProvider.
func (optional[T]) Schema(r huma.Registry) *huma.Schema {
	return huma.SchemaFromType(r, reflect.TypeFor[T]())
}

// Receiver implements huma.ParamWrapper.
func (o *optional[T]) Receiver() reflect.Value { return reflect.ValueOf(&o.text).Elem() }

// OnParamSet implements huma.ParamReactor.
func (o *optional[T]) OnParamSet(set bool, _ any) { o.value, o.set = o.text, set }

// SignalInput chooses what is asked about.
type SignalInput struct {
	Signal string `query:"signal" default:"min_abw_ratio" maxLength:"40" doc:"min_abw, min_abw_ratio, max_delay, max_nqd or type_N; type_N:AGGREGATION:UNIT where a type has several meanings" example:"min_abw"`
	Level  string `query:"level" default:"location" enum:"location,set,device,stage" doc:"that locations are named at" example:"device"`
}

// TimesInput chooses history.
type TimesInput struct {
	From string `query:"from" maxLength:"40" doc:"RFC 3339: asks the store for history from then on, in whole seconds" example:"2026-01-20T09:00:00Z"`
	To   string `query:"to" maxLength:"40" doc:"RFC 3339: end of the history, exclusive; with from" example:"2026-01-20T10:00:00Z"`
}

// RangeInput chooses when.
type RangeInput struct {
	TimesInput
	Windows int `query:"windows" default:"1" minimum:"1" maximum:"3600" doc:"how many of the last windows in memory are added up" example:"10"`
}

// WaitInput waits for a revision.
type WaitInput struct {
	After string `query:"after" maxLength:"60" doc:"a revision: wait for a later one" example:"0000000000000007-42"`
	Wait  string `query:"wait" maxLength:"20" doc:"how long at most, such as 30s, up to 60s; then the answer is 304" example:"30s"`
	None  string `header:"If-None-Match" maxLength:"200" doc:"an ETag: the answer is 304 where nothing has changed" example:"\"0000000000000007-42\""`
}

// GroupInput chooses cells by their ends.
type GroupInput struct {
	Src []string `query:"src,explode" maxItems:"64" doc:"source groups, or groups above them" example:"rack1"`
	Dst []string `query:"dst,explode" maxItems:"64" doc:"destination groups, or groups above them" example:"rack2"`
}

// FilterInput chooses cells.
type FilterInput struct {
	GroupInput
	Location     []string          `query:"location,explode" maxItems:"64" doc:"limiting locations, at the level" example:"leaf3:up1"`
	State        []string          `query:"state,explode" maxItems:"4" enum:"congested,clear,too_few" doc:"states" example:"congested"`
	MinHeavy     float64           `query:"min_heavy_ratio" minimum:"0" maximum:"1" doc:"least share of heavily loaded observations" example:"0.1"`
	MinRoomBPS   optional[float64] `query:"min_room_bps" doc:"least mean of min_abw, bit/s" example:"1e9"`
	MaxRoomBPS   optional[float64] `query:"max_room_bps" doc:"most mean of min_abw, bit/s" example:"40e9"`
	MinRoomRatio optional[float64] `query:"min_room_ratio" doc:"least mean of min_abw_ratio, 0 to 1" example:"0.1"`
	MaxRoomRatio optional[float64] `query:"max_room_ratio" doc:"most mean of min_abw_ratio, 0 to 1" example:"0.2"`
}

// filter resolves names.
func (in *FilterInput) filter(n *names, s csig.Signal) (f filter, err error) {
	if f.src, err = n.findGroups("src", in.Src); err != nil {
		return f, err
	}
	if f.dst, err = n.findGroups("dst", in.Dst); err != nil {
		return f, err
	}
	for _, name := range in.Location {
		ids, ok := n.placeIDs[name]
		if !ok {
			return f, n.unknown("location", name, "location")
		}
		f.locations = append(f.locations, ids...)
	}
	for _, name := range in.State {
		for state := aggregate.TooFew; state <= aggregate.Congested; state++ {
			if state.String() == name {
				f.states = append(f.states, state)
			}
		}
	}
	f.minHeavy = in.MinHeavy
	for _, room := range []struct {
		name string
		in   optional[float64]
		unit csig.Unit
		to   *optional[float64]
	}{
		{"min_room_bps", in.MinRoomBPS, csig.BitPerSecond, &f.minRoom},
		{"max_room_bps", in.MaxRoomBPS, csig.BitPerSecond, &f.maxRoom},
		{"min_room_ratio", in.MinRoomRatio, csig.Ratio, &f.minRoom},
		{"max_room_ratio", in.MaxRoomRatio, csig.Ratio, &f.maxRoom},
	} {
		if !room.in.set {
			continue
		}
		most := math.MaxFloat64
		if room.unit == csig.Ratio {
			most = 1
		}
		if v := room.in.value; !(v >= 0 && v <= most) { // NaN is neither, and no problem can tell it as a number
			return f, wrong(room.name, fmt.Sprint(v), "expected a finite number from 0 to %g", most)
		}
		if s.Unit() != room.unit || s.Aggregation() != csig.AggregateMin {
			return f, wrong(room.name, room.in.value, "is not about %s: ask with signal=min_abw for bit/s, signal=min_abw_ratio for ratios", s)
		}
		*room.to = room.in
	}
	return f, nil
}

// findGroups are the groups of those names, and all below them.
func (n *names) findGroups(parameter string, list []string) (ids []aggregate.GroupID, err error) {
	for _, name := range list {
		found, ok := n.ids[name]
		if !ok {
			return nil, n.unknown(parameter, name, "group")
		}
		ids = append(ids, found...)
	}
	return ids, nil
}

// unknown is the answer to a name that is not among the names: as long as those of the store
// have not been read, it may be one of them.
func (n *names) unknown(parameter, name, kind string) error {
	if n.lacking != nil {
		return n.lacking
	}
	return wrong(parameter, name, "no such %s: /api/v1/fabric lists them", kind)
}

// key is what is asked for of memory.
func (in *SignalInput) key(windows int, among []csig.Signal) (viewKey, error) {
	s, err := csig.FindSignal(in.Signal, among)
	if err != nil {
		return viewKey{}, wrong("signal", in.Signal, "%v", err)
	}
	level, err := fabric.ParseLevel(in.Level)
	if err != nil {
		return viewKey{}, wrong("level", in.Level, "%v", err)
	}
	return viewKey{s, level, windows}, nil
}

// history is a question to the store; ok is false where memory is asked.
func (in *TimesInput) history() (from, to time.Time, ok bool, err error) {
	if in.From == "" && in.To == "" {
		return from, to, false, nil
	}
	if in.From == "" || in.To == "" {
		return from, to, true, wrong("from", in.From, "from and to go together: give both, or neither for what is in memory")
	}
	if from, err = parseTime("from", in.From); err != nil {
		return from, to, true, err
	}
	if to, err = parseTime("to", in.To); err != nil {
		return from, to, true, err
	}
	// The store answers in whole seconds.
	from = from.Truncate(time.Second)
	if end := to.Truncate(time.Second); end.Before(to) {
		to = end.Add(time.Second)
	}
	if !from.Before(to) {
		return from, to, true, wrong("from", in.From, "is not before to: give an earlier one")
	}
	return from, to, true, nil
}

func parseTime(parameter, text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || t.Year() < 1970 || t.Year() > 2104 {
		return t, wrong(parameter, text, "expected a time of RFC 3339 from 1970 to 2104, such as 2026-01-31T12:00:00Z, with + escaped as %%2B")
	}
	return t.UTC(), nil
}

// token names a revision: of a state's epoch, so that those of different lives differ.
func token(s *table.State) string { return fmt.Sprintf("%016x-%d", s.Epoch, s.Revision) }

// parseToken reads a token; a number alone is a revision of the epoch given.
func parseToken(text string, epoch uint64) (e, revision uint64, ok bool) {
	left, right, both := strings.Cut(text, "-")
	if !both {
		revision, err := strconv.ParseUint(text, 10, 64)
		return epoch, revision, err == nil
	}
	e, err1 := strconv.ParseUint(left, 16, 64)
	revision, err2 := strconv.ParseUint(right, 10, 64)
	return e, revision, err1 == nil && err2 == nil && len(left) == 16
}

// etag is what a state's answers carry. It is weak, since ages go on.
func etag(s *table.State) string { return `W/"` + token(s) + `"` }

// maxWait bounds a wait.
const maxWait = time.Minute

// timesOf is what an endpoint's input says of history.
func (in *TimesInput) timesOf() *TimesInput { return in }

// waitOf is the same of waiting.
func (in *WaitInput) waitOf() *WaitInput { return in }

// await is the state to answer from, nil where the store is asked. fresh is false where the
// asker has it already.
func (a *API) await(ctx context.Context, in any) (s *table.State, fresh bool, err error) {
	if r, ok := in.(interface{ timesOf() *TimesInput }); ok {
		if _, _, past, err := r.timesOf().history(); past || err != nil {
			return nil, true, err
		}
	}
	w, ok := in.(interface{ waitOf() *WaitInput })
	if !ok {
		return nil, true, nil
	}
	return a.state(ctx, w.waitOf())
}

// state is the state that somebody waits for.
func (a *API) state(ctx context.Context, in *WaitInput) (s *table.State, fresh bool, err error) {
	if a.Memory == nil {
		return nil, false, huma.NewError(404, "no windows are in memory here: give from and to for history, or ask a collector")
	}
	s = a.Memory.State()
	wait, err := in.duration()
	if err != nil {
		return s, false, err
	}
	if in.After != "" {
		epoch, revision, ok := parseToken(in.After, s.Epoch)
		if !ok {
			return s, false, wrong("after", in.After, "expected a revision of an earlier answer, such as %s", token(s))
		}
		if s.Epoch == epoch && revision >= s.Revision {
			if revision > s.Revision {
				return s, false, ahead(in.After, s)
			}
			if s, fresh, err = a.wait(ctx, revision, wait); err != nil || !fresh {
				return s, false, err
			}
		}
	}
	known := slices.ContainsFunc(strings.Split(in.None, ","), func(tag string) bool {
		return strings.TrimPrefix(strings.TrimSpace(tag), "W/") == `"`+token(s)+`"`
	})
	return s, !known, nil
}

// ahead is the answer to a revision that has yet to come.
func ahead(after string, s *table.State) error {
	return wrong("after", after, "is ahead of the present revision %s: give that of an earlier answer", token(s))
}

func (in *WaitInput) duration() (time.Duration, error) {
	if in.Wait == "" {
		return 0, nil
	}
	wait, err := time.ParseDuration(in.Wait)
	if err != nil || wait < 0 || wait > maxWait {
		return 0, wrong("wait", in.Wait, "expected a duration from 0s to %s, such as 30s", maxWait)
	}
	if in.After == "" {
		return 0, wrong("wait", in.Wait, "there is nothing to wait for: give after as well, the revision of an earlier answer")
	}
	return wait, nil
}

func (a *API) wait(ctx context.Context, after uint64, wait time.Duration) (*table.State, bool, error) {
	leave, err := a.enter(ctx)
	if err != nil {
		return nil, false, err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	defer context.AfterFunc(a.running, cancel)()
	s, later := a.Memory.Wait(ctx, a.Memory.State().Epoch, after)
	return s, later, nil
}

// enter makes room for a watcher, until it leaves.
func (a *API) enter(ctx context.Context) (leave func(), err error) {
	gone, err := query.AskerOf(ctx).Stay()
	if err != nil {
		return nil, a.answerable(ctx, err)
	}
	if a.watchers.Add(1) > int64(a.Watchers) {
		a.watchers.Add(-1)
		gone()
		return nil, huma.ErrorWithHeaders(huma.NewError(503, fmt.Sprintf("%d watchers are served already: try again later, or share one watch", a.Watchers)), retryLater)
	}
	return func() {
		a.watchers.Add(-1)
		gone()
	}, nil
}
