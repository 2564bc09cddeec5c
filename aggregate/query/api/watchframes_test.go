package api_test

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/query/querytest"
	"github.com/csigscope/csigscope/aggregate/query/wire"
	"github.com/csigscope/csigscope/aggregate/table/tabletest"
	"github.com/csigscope/csigscope/decode/csig"
)

type cellKey struct{ src, dst string }

// watchedFrames applies a stream of frames, as a reader does.
type watchedFrames struct {
	t     *testing.T
	names [2]map[uint64]string // groups and locations
	cells map[cellKey]querytest.FrameRow
	start time.Time // of the newest window in an event
	rows  int       // of the last event
}

func newWatchedFrames(t *testing.T, racks int) *watchedFrames {
	t.Helper()
	w := &watchedFrames{t: t, names: [2]map[uint64]string{{}, {}}}
	groups, err := tabletest.Names{Racks: racks}.Groups(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range groups {
		w.names[0][uint64(g.ID)] = g.Name
	}
	locations, err := tabletest.Names{Racks: racks}.Locations(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range locations {
		w.names[1][uint64(l.ID)] = l.Name
	}
	return w
}

// take replaces the known cells by frames, or changes them.
func (w *watchedFrames) take(frames []byte, start time.Time, change bool) {
	w.t.Helper()
	if !change {
		w.cells = map[cellKey]querytest.FrameRow{}
	}
	_, rows := querytest.ReadFrames(w.t, frames)
	for _, r := range rows {
		if r.Start != start.UnixNano() {
			w.t.Errorf("a row of the window %d, want %d", r.Start, start.UnixNano())
		}
		key := cellKey{w.names[0][uint64(r.Src)], w.names[0][uint64(r.Dst)]}
		if delete(w.cells, key); r.Observations > 0 {
			w.cells[key] = r
		}
	}
	w.rows = len(rows)
}

// window applies an event, whose base must be the previous window.
func (w *watchedFrames) window(e event) *wire.WindowEvent {
	w.t.Helper()
	told := decodeFrames[wire.WindowEvent](w.t, e, "window")
	if told.Base != nil && !told.Base.AsTime().Equal(w.start) {
		w.t.Errorf("changes of the window at %s, the last one began at %s", told.Base, w.start)
	}
	w.take(told.Frames, told.WindowStart.AsTime(), told.Base != nil)
	w.start = told.WindowStart.AsTime()
	return told
}

// holds compares the known cells with cells in JSON.
func (w *watchedFrames) holds(list []*wire.Cell) {
	w.t.Helper()
	value := func(m *wire.Measure) float64 {
		if v, _, ok := m.Number(); ok {
			return v
		}
		return math.NaN()
	}
	// Frames have only cells with observations.
	list = slices.DeleteFunc(slices.Clone(list), func(c *wire.Cell) bool { return c.Observations == 0 })
	if len(w.cells) != len(list) {
		w.t.Errorf("%d cells, want %d", len(w.cells), len(list))
	}
	for _, c := range list {
		r, ok := w.cells[cellKey{c.Src, c.Dst}]
		if !ok {
			w.t.Errorf("no cell from %s to %s", c.Src, c.Dst)
			continue
		}
		got := &wire.Cell{
			Src: c.Src, Dst: c.Dst, Kind: wire.Kind(r.Kind), State: wire.Parse[wire.State](r.State.String()),
			Observations: r.Observations, Samples: r.Samples, Untouched: r.Untouched, Trimmed: r.Trimmed, Heavy: r.Heavy,
		}
		want := c
		if diff := cmp.Diff([]float64{value(c.Mean), value(c.Min), value(c.Max)}, []float64{r.Mean, r.Min, r.Max}, cmpopts.EquateApprox(5e-6, 0)); diff != "" {
			w.t.Errorf("%s to %s: %s", c.Src, c.Dst, diff)
		}
		if c.Mode != nil {
			got.Mode = &wire.Bottleneck{Location: w.names[1][uint64(r.Mode)], Heavy: r.ModeCount, Evidence: slices.Collect(r.ModeBy.Words)}
		}
		if c.RunnerUp != nil {
			got.RunnerUp = &wire.Bottleneck{Location: w.names[1][uint64(r.RunnerUp)], Heavy: r.RunnerUpCount, Evidence: slices.Collect(r.RunnerUpBy.Words)}
		}
		if diff := cmp.Diff(want, got, protocmp.Transform(), withoutCoverage(),
			protocmp.IgnoreFields(&wire.Cell{}, "mean", "mean_error", "min", "max", "trend", "heavy_ratio", "since", "sustained_s", "congested_ratio", "unjudged", "candidates", "probabilities"), protocmp.IgnoreFields(&wire.Bottleneck{}, "share_ratio", "mean")); diff != "" {
			w.t.Errorf("%s to %s: %s", c.Src, c.Dst, diff)
		}
	}
}

// decodeFrames is decode for values with frames, whose cells are null.
func decodeFrames[T any, P interface {
	*T
	proto.Message
}](t *testing.T, e event, name string) P {
	t.Helper()
	if !strings.HasSuffix(e.data, `"cells":[]}`) {
		t.Errorf("%s has cells beside its frames: %.300s", e.name, e.data)
	}
	return decode[T, P](t, e, name)
}

// TestWatchFrames: frames carry the same data as JSON, whole or as changes, in a tenth of the
// bytes.
func TestWatchFrames(t *testing.T) {
	s := newServed(t, 400, nil)
	url := listen(t, s) + "/api/v1/watch?signal=max_delay&level=device&state=congested&state=clear&encoding="
	s.window(t, 0)
	known := newWatchedFrames(t, 20)
	frames, plain := open(t, url+"frames"), open(t, url+"json")
	first := frames.next(t)
	whole := plain.next(t)
	snapshot, want := decodeFrames[wire.CellsResponse](t, first, "snapshot"), decode[wire.CellsResponse](t, whole, "snapshot")
	known.take(snapshot.Frames, snapshot.About.From.AsTime(), false)
	known.holds(want.Cells)
	if len(first.data)*8 > len(whole.data) || snapshot.Total != want.Total {
		t.Errorf("%d of %d cells in %d bytes, as JSON in %d", snapshot.Total, want.Total, len(first.data), len(whole.data))
	}
	frames.next(t)
	plain.next(t)
	for _, step := range []struct {
		name   string
		second int
		cells  int // of one producer; 0: all of two
		change bool
	}{
		{"the first after a snapshot is whole", 1, 0, false},
		{"all are different", 2, 0, false},
		{"late cells of the newest", 2, 25, true},
		{"again", 2, 3, true},
		{"of an older window", 1, 3, false},
		{"the next", 3, 0, false},
	} {
		if step.cells == 0 {
			s.write(t, step.second)
		} else {
			b := tabletest.Block(rand.New(rand.NewPCG(9, 9)), 0, begin.Add(time.Duration(step.second)*time.Second), step.cells, csig.MaxDelay)
			s.writeBlock(t, b)
		}
		s.memory.Publish()
		e, want := frames.next(t), decode[wire.WindowEvent](t, plain.next(t), "window")
		if step.second == 1 && step.cells > 0 {
			if late := decodeFrames[wire.WindowEvent](t, e, "window"); late.Base != nil || !late.Late {
				t.Errorf("%s: %s", step.name, late.Base)
			}
			continue
		}
		told := known.window(e)
		if (told.Base != nil) != step.change || step.change && known.rows > step.cells {
			t.Errorf("%s: %d cells, as changes of %v", step.name, known.rows, told.Base)
		}
		known.holds(want.Cells)
	}
}

// TestWatchFramesGone: cells that are gone are reported as such.
func TestWatchFramesGone(t *testing.T) {
	s := newServed(t, 16, nil)
	write := func(second, cells int) {
		t.Helper()
		b := tabletest.Block(rand.New(rand.NewPCG(3, 3)), 0, begin.Add(time.Duration(second)*time.Second), cells, csig.MaxDelay)
		s.writeBlock(t, b)
		s.memory.Publish()
	}
	write(0, 16)
	w := open(t, listen(t, s)+"/api/v1/watch?signal=max_delay&encoding=frames")
	w.next(t)
	w.next(t)
	known := newWatchedFrames(t, 4)
	write(1, 16)
	known.window(w.next(t))
	write(2, 12)
	if told := known.window(w.next(t)); told.Base == nil || known.rows != 4 {
		t.Errorf("%d cells, as changes of %v; want the 4 that have gone", known.rows, told.Base)
	}
	page := read[wire.CellsResponse](t, s.get(t, "/api/v1/cells?signal=max_delay"))
	known.holds(page.Cells)
}

// moving are names whose locations move to another device at some time.
type moving struct {
	tabletest.Names
	moved atomic.Bool
}

func (m *moving) Locations(ctx context.Context) ([]fabric.Location, error) {
	list, err := m.Names.Locations(ctx)
	if m.moved.Load() {
		for i := range list {
			list[i].DeviceLoc = list[0].ID
		}
	}
	return list, err
}

// TestWatchFramesRenamed: when locations move to other devices, even cells that have not changed
// otherwise are sent.
func TestWatchFramesRenamed(t *testing.T) {
	names, now := &moving{Names: tabletest.Names{Racks: 6}}, atomic.Int64{}
	s := newServed(t, 36, func(c *api.Config) {
		c.Names, c.Now = names, func() time.Time { return begin.Add(time.Duration(now.Load())) }
	})
	s.window(t, 0)
	w := open(t, listen(t, s)+"/api/v1/watch?signal=max_delay&level=device&encoding=frames")
	w.next(t)
	w.next(t)
	known := newWatchedFrames(t, 6)
	s.window(t, 1)
	known.window(w.next(t))
	names.moved.Store(true)
	now.Store(int64(time.Minute))
	b := tabletest.Block(rand.New(rand.NewPCG(9, 9)), 0, begin.Add(time.Second), 2, csig.MaxDelay)
	s.writeBlock(t, b)
	s.memory.Publish()
	if told := known.window(w.next(t)); told.Base != nil {
		t.Errorf("changes of %s", told.Base)
	}
	known.holds(read[wire.CellsResponse](t, s.get(t, "/api/v1/cells?signal=max_delay&level=device")).Cells)
}

// TestCallFrames: a call has the same frames as bytes.
func TestCallFrames(t *testing.T) {
	s := newServed(t, 16, nil)
	s.window(t, 0)
	w := open(t, listen(t, s)+"/api/v1/watch?encoding=frames")
	want := decodeFrames[wire.CellsResponse](t, w.next(t), "snapshot")
	stream := watch(t, caller(t, s), &wire.WatchRequest{Encoding: "frames"})
	if !stream.Receive() {
		t.Fatal(stream.Err())
	}
	got := stream.Msg().GetSnapshot()
	if string(got.GetFrames()) != string(want.Frames) || len(want.Frames) == 0 || len(got.GetCells()) > 0 {
		t.Errorf("%d bytes of frames and %d cells, want %d bytes", len(got.GetFrames()), len(got.GetCells()), len(want.Frames))
	}
	if code := s.get(t, "/api/v1/watch?encoding=xml").Code; code != 422 {
		t.Errorf("another encoding: %d", code)
	}
}
