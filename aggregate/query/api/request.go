package api

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/wire"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/decode/csig"
)

// Common parts of requests, by the names of their fields.
type (
	// subject is a signal, and the level of its locations.
	subject interface {
		GetSignal() string
		GetLevel() string
	}
	// times are a range of history; without one, memory answers.
	times interface {
		GetFrom() *timestamppb.Timestamp
		GetTo() *timestamppb.Timestamp
	}
	// ranged is a subject in time.
	ranged interface {
		subject
		times
		GetWindows() uint32
	}
	// resolved asks for windows in memory of a length, nil for those of 1 s.
	resolved interface {
		GetResolution() *durationpb.Duration
	}
	// ends are source and destination groups.
	ends interface {
		GetSrc() []string
		GetDst() []string
	}
	// conditions are filters of cells, except the bounds of the available bandwidth.
	conditions interface {
		GetLocation() []string
		GetState() []wire.State
		GetMinHeavyRatio() float64
	}
)

// questionOf identifies a question without its page: it is equal only for equal questions.
func questionOf(in proto.Message) string {
	whole := proto.Clone(in).ProtoReflect()
	for _, name := range []string{"limit", "cursor"} {
		if f := whole.Descriptor().Fields().ByName(protoreflect.Name(name)); f != nil {
			whole.Clear(f)
		}
	}
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(whole.Interface())
	if err != nil {
		return fmt.Sprint(in) // invalid UTF-8, which equals no name
	}
	return string(text)
}

// questionHash is a hash of questionOf.
func questionHash(in proto.Message) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(questionOf(in)))
	return h.Sum64()
}

// optional is a bound that may be left out.
type optional struct {
	value float64
	set   bool
}

// filter resolves the names of a request's filter of cells. Fields that the request does not have
// match all.
func (n *names) filter(in proto.Message, s csig.Signal) (f filter, err error) {
	if e, ok := in.(ends); ok {
		if f.src, err = n.findGroups("src", e.GetSrc()); err != nil {
			return f, err
		}
		if f.dst, err = n.findGroups("dst", e.GetDst()); err != nil {
			return f, err
		}
	}
	c, ok := in.(conditions)
	if !ok {
		return f, nil
	}
	if f.locations, err = n.findLocations(c.GetLocation(), nil); err != nil {
		return f, err
	}
	for _, state := range c.GetState() {
		f.states = append(f.states, aggregate.State(state-wire.State_STATE_NO_DATA))
	}
	f.minHeavy = c.GetMinHeavyRatio()
	return f, f.bound(in.ProtoReflect(), s)
}

// bound reads the bounds of the available bandwidth, each for signals of one unit.
func (f *filter) bound(in protoreflect.Message, s csig.Signal) error {
	for _, room := range []struct {
		name protoreflect.Name
		unit csig.Unit
		to   *optional
	}{
		{"min_room_bps", csig.BitPerSecond, &f.minRoom},
		{"max_room_bps", csig.BitPerSecond, &f.maxRoom},
		{"min_room_ratio", csig.Ratio, &f.minRoom},
		{"max_room_ratio", csig.Ratio, &f.maxRoom},
	} {
		field := in.Descriptor().Fields().ByName(room.name)
		if !in.Has(field) {
			continue
		}
		v := in.Get(field).Float()
		if s.Unit() != room.unit || s.Aggregation() != csig.AggregateMin {
			err := wrong(string(room.name), fmt.Sprint(v), "does not apply to %s: use min_room_bps and max_room_bps with signal=min_abw, min_room_ratio and max_room_ratio with signal=min_abw_ratio", s)
			if !s.HasValue() {
				return unknownName{err} // rows may show that it does
			}
			return err
		}
		*room.to = optional{v, true}
	}
	return nil
}

// findGroups returns the groups with those names, and all groups below them.
func (n *names) findGroups(parameter string, list []string) (ids []aggregate.GroupID, err error) {
	for _, name := range list {
		found, ok := n.ids[name]
		if !ok {
			return nil, n.unknown(parameter, name, "group")
		}
		ids = append(ids, found...)
	}
	return ordered(ids), nil
}

// ordered sorts ids and removes duplicates: names may be repeated, or be below one another.
func ordered[T cmp.Ordered](ids []T) []T {
	slices.Sort(ids)
	return slices.Compact(ids)
}

// unknown is the error for an unknown name of a kind: group, location or link. Before the store's
// names have been read, it may be one of them.
func (n *names) unknown(parameter, name, kind string) error {
	if n.lacking != nil {
		return n.lacking
	}
	if kind == "group" {
		return unknownName{wrong(parameter, name, "no such group %q: csigscope query cells names those with traffic, /api/v1/fabric all of them", name)}
	}
	return unknownName{wrong(parameter, name, "no such %s %q: csigscope query %ss and /api/v1/fabric list them", kind, name, kind)}
}

// unknownName is an error for a name in a question that a server may know later, or for a bound of a signal that it may
// know later.
type unknownName struct{ error }

// Unwrap returns the refusal of the question.
func (e unknownName) Unwrap() error { return e.error }

// stateKey resolves the signal and the level of a question to a state of memory.
func stateKey(s *table.State, in subject, windows int) (viewKey, error) {
	k, err := keyOf(in, windows, s.Signals())
	k.length = s.Resolution
	return k, err
}

// keyOf resolves the signal and the level of a question to memory.
func keyOf(in subject, windows int, among []csig.Signal) (viewKey, error) {
	s, err := findSignal(in.GetSignal(), among)
	if err != nil {
		return viewKey{}, err
	}
	level, err := fabric.ParseLevel(in.GetLevel())
	if err != nil {
		return viewKey{}, wrong("level", in.GetLevel(), "%v", err)
	}
	return viewKey{signal: s, level: level, windows: windows}, nil
}

func findSignal(name string, among []csig.Signal) (csig.Signal, error) {
	s, err := csig.FindSignal(name, among)
	if err != nil {
		return s, wrong("signal", name, "%v", err)
	}
	return s, nil
}

// historyOf is the range of a question to the store; ok is false for a question to memory.
func historyOf(in times) (from, to time.Time, ok bool, err error) {
	if in.GetFrom() == nil && in.GetTo() == nil {
		return from, to, false, nil
	}
	if in.GetFrom() == nil || in.GetTo() == nil {
		return from, to, true, wrong("from", "", "from and to go together: give both, or neither for the windows in memory")
	}
	// The store answers in whole seconds.
	from, to = in.GetFrom().AsTime().Truncate(time.Second), in.GetTo().AsTime()
	if end := to.Truncate(time.Second); end.Before(to) {
		to = end.Add(time.Second)
	}
	if !from.Before(to) {
		return from, to, true, wrong("from", from.Format(time.RFC3339Nano), "is not before to: give an earlier one")
	}
	return from, to, true, nil
}

// token identifies a revision, with the state's epoch, so that revisions of different processes
// differ.
func token(s *table.State) string { return fmt.Sprintf("%016x-%d", s.Epoch, s.Revision) }

// parseToken parses a token; a number alone is a revision of the given epoch.
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

// etag is the ETag of a state's answers. It is weak, since ages change.
func etag(s *table.State) string { return `W/"` + token(s) + `"` }

// maxWait bounds a wait; query.proto states the same limit.
const maxWait = time.Minute

// waiting are the options of a question over HTTP: to wait for a revision, and to skip one that
// the client has. The zero value waits for nothing.
type waiting struct {
	*wire.WaitRequest             // nil for no wait
	client            http.Header // with If-None-Match
}

// memoryOf is the memory that answers a request: the one with windows of the requested length.
func (a *API) memoryOf(in proto.Message) (*table.Memory, error) {
	if a.Memory == nil {
		detail := "this server has no live windows: ask a collector (csigscope collect --api-listen)"
		if _, ok := in.(times); ok {
			detail += ", or give from and to for stored windows"
		}
		return nil, &refused{status: http.StatusNotFound, detail: detail}
	}
	r, ok := in.(resolved)
	if !ok || r.GetResolution() == nil {
		return a.Memory, nil
	}
	var lengths []string
	asked := r.GetResolution().AsDuration()
	for _, m := range []*table.Memory{a.Memory, a.Fine} {
		if m == nil {
			continue
		}
		if length := m.State().Resolution; length != asked {
			lengths = append(lengths, length.String())
			continue
		}
		return m, nil
	}
	return nil, wrong("resolution", asked.String(), "no such windows are in memory here: expected %s", strings.Join(lengths, " or "))
}

// isFine reports whether windows are shorter than those that decide states. They may hold only
// cells with heavy observations.
func isFine(s *table.State) bool { return s.Resolution < aggregate.LiveResolution }

// state returns the state of a memory, after any requested wait; fresh is false if the client has
// it already.
func (a *API) state(ctx context.Context, m *table.Memory, in *waiting) (s *table.State, fresh bool, err error) {
	s = m.State()
	if in.GetWait() != nil && in.GetAfter() == "" {
		return s, false, wrong("wait", "", "there is nothing to wait for: give after as well, the revision of an earlier answer")
	}
	if in.GetAfter() != "" {
		epoch, revision, ok := parseToken(in.GetAfter(), s.Epoch)
		if !ok {
			return s, false, wrong("after", in.GetAfter(), "expected a revision of an earlier answer, such as %s", token(s))
		}
		if s.Epoch == epoch && revision >= s.Revision {
			if revision > s.Revision {
				return s, false, ahead(in.GetAfter(), s)
			}
			if s, fresh, err = a.wait(ctx, m, revision, in.GetWait().AsDuration()); err != nil || !fresh {
				return s, false, err
			}
		}
	}
	return s, !query.Unchanged(in.client, etag(s)), nil
}

// ahead is the error for a revision that does not exist yet.
func ahead(after string, s *table.State) error {
	return wrong("after", after, "is ahead of the present revision %s: give that of an earlier answer", token(s))
}

func (a *API) wait(ctx context.Context, m *table.Memory, after uint64, wait time.Duration) (*table.State, bool, error) {
	leave, err := a.enter(ctx)
	if err != nil {
		return nil, false, err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	defer context.AfterFunc(a.running, cancel)()
	s, later := m.Wait(ctx, m.State().Epoch, after)
	return s, later, nil
}
