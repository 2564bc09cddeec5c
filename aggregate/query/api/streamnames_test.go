package api_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/query/wire"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/aggregate/table/tabletest"
	"github.com/csigscope/csigscope/decode/csig"
)

// newClocked is a newServed by a clock that the test moves.
func newClocked(t *testing.T, o table.MemoryOptions, now *time.Time, names api.Catalog) *served {
	t.Helper()
	o.Epoch, o.Now = 7, func() time.Time { return *now }
	return newServed(t, 9, func(c *api.Config) {
		if c.Memory, c.Now = table.NewMemory(o), o.Now; names != nil {
			c.Names = names
		}
	})
}

// TestStreamsOfType: streams of a type_N that begin before its first rows, such as after a restart,
// have these rows. If a reload gives the type another meaning, they begin again once memory has
// no rows of the earlier one.
func TestStreamsOfType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := begin
		s := newClocked(t, table.MemoryOptions{Windows: 2}, &now, nil)
		ctx, cancel := context.WithCancel(t.Context())
		watched := &followed{end: cancel}
		go s.ServeHTTP(watched, httptest.NewRequestWithContext(ctx, "GET", "/api/v1/watch?signal=type_4", nil))
		changes := follow(t, s, "signal=type_4")
		for second := range 6 {
			now = now.Add(time.Second)
			b := rows(1, second, loaded)
			b.Signal[0] = uint8(csig.ConfiguredSignal(4, csig.Ratio, csig.AggregateMin))
			if second >= 2 {
				b.Signal[0] = uint8(csig.ConfiguredSignal(4, csig.Nanosecond, csig.AggregateMax))
			}
			s.writeBlock(t, b)
			s.memory.Publish()
			synctest.Wait()
		}
		want := []string{
			"initial onset rack1>rack2 congested since 0 leaf1:up1 0.5",
			"initial onset rack1>rack2 congested since 2 leaf1:up1 0.5",
		}
		if diff := cmp.Diff(want, lines(t, changes.events(t))); diff != "" {
			t.Errorf("changes (-want +got):\n%s", diff)
		}
		var got []string
		for _, e := range watched.events(t) {
			var cells []*wire.Cell
			switch e.name {
			case "snapshot":
				cells = decode[wire.CellsResponse](t, e, e.name).Cells
			case "window":
				cells = decode[wire.WindowEvent](t, e, e.name).Cells
			default:
				continue
			}
			one := e.name
			for _, c := range cells {
				switch {
				case c.GetMean().GetNs() > 0:
					one += " ns"
				case c.GetMean().GetRatio() > 0:
					one += " ratio"
				}
			}
			got = append(got, one)
		}
		want = []string{"snapshot", "snapshot ratio", "window ratio", "window", "snapshot ns", "window ns", "window ns"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("events of the watch (-want +got):\n%s", diff)
		}
	})
}

// TestResumeOfType: a reader that resumes after a revision in which its type_N had another meaning, or no rows, begins
// again.
func TestResumeOfType(t *testing.T) {
	for _, pause := range []int{0, 9} { // seconds without rows of the type; memory has 5
		synctest.Test(t, func(t *testing.T) {
			now := begin
			s := newClocked(t, table.MemoryOptions{Windows: 5, Log: 64}, &now, nil)
			changes := follow(t, s, "signal=type_4")
			for second := range 8 + pause {
				now = now.Add(time.Second)
				b := rows(1, second, loaded)
				switch {
				case second < 2:
					b.Signal[0] = uint8(csig.ConfiguredSignal(4, csig.Ratio, csig.AggregateMin))
				case second < 2+pause:
					b = rows(2, second, quiet)
				default:
					b = rows(3, second, quiet)
					b.Signal[0] = uint8(csig.ConfiguredSignal(4, csig.Nanosecond, csig.AggregateMax))
				}
				s.writeBlock(t, b)
				s.memory.Publish()
				synctest.Wait()
			}
			events := changes.events(t)
			first := slices.IndexFunc(events, func(e event) bool { return e.id == "0000000000000007-1" }) + 1
			if got := holdsNow(t, events[:first:first]); !slices.Equal(got, []string{"congested rack1>rack2 leaf1:up1"}) {
				t.Fatalf("a reader of the first meaning holds %q", got)
			}
			want := holdsNow(t, follow(t, s, "signal=type_4").events(t))
			for revision := 1; revision < 3+pause; revision++ { // heartbeats name those without events
				rest := follow(t, s, fmt.Sprintf("signal=type_4&after=%d", revision)).events(t)
				if got := holdsNow(t, append(events[:first:first], rest...)); !slices.Equal(got, want) {
					t.Errorf("pause of %d s: a reader that resumes after %d holds %q, want %q, by %q", pause, revision, got, want, lines(t, rest))
				}
			}
		})
	}
}

// nameless is a catalog without a name until it has all of them.
type nameless struct {
	tabletest.Names
	named *bool
}

func (n nameless) Groups(ctx context.Context) ([]fabric.Group, error) {
	if !*n.named {
		return nil, nil
	}
	return n.Names.Groups(ctx)
}

func (n nameless) Locations(ctx context.Context) ([]fabric.Location, error) {
	if !*n.named {
		return nil, nil
	}
	return n.Names.Locations(ctx)
}

// TestChangesNamed: rows can come before the store has the names of their groups, locations and
// producers, such as after a restart. Readers that know a cell or a producer by another name get
// the present state again, also those that resume.
func TestChangesNamed(t *testing.T) {
	type step struct {
		list  []seen // of producer 1
		other []seen // of producer 2
		named bool   // the catalog and the memory know the names from here on
	}
	for name, steps := range map[string][]step{
		"cells":     {{list: quiet}, {list: loaded}, {list: loaded, named: true}, {list: loaded}, {list: quiet}, {list: loaded}},
		"producers": {{list: quiet, other: others}, {list: quiet}, {list: quiet}, {list: quiet}, {list: quiet, named: true}, {list: quiet}, {list: quiet, other: others}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				now, named := begin, false
				s := newClocked(t, table.MemoryOptions{Log: 16}, &now, nameless{tabletest.Names{Racks: 3}, &named})
				f := follow(t, s, "heartbeat=60s")
				for second, one := range steps {
					now = now.Add(time.Second)
					if named = named || one.named; named {
						s.memory.Expect([]table.Producer{{ID: 1, Name: "eth0"}, {ID: 2, Name: "eth1"}}[:1+min(len(steps[0].other), 1)], nil)
					}
					s.writeBlock(t, rows(1, second, one.list))
					if one.other != nil {
						s.writeBlock(t, rows(2, second, one.other))
					}
					s.memory.Publish()
					synctest.Wait()
				}
				events := f.events(t)
				want := holds(lines(t, follow(t, s, "").events(t)))
				if got := holdsNow(t, events); !slices.Equal(got, want) {
					t.Errorf("a reader holds %q, want %q, by %q", got, want, lines(t, events))
				}
				for i, e := range events {
					if e.id == "" {
						continue
					}
					rest := follow(t, s, "after="+e.id).events(t)
					if got := holdsNow(t, append(events[:i+1:i+1], rest...)); !slices.Equal(got, want) {
						t.Errorf("a reader that resumes after %s holds %q, want %q, by %q", e.id, got, want, lines(t, rest))
					}
				}
			})
		})
	}
}

// pods is a catalog whose racks can change to the other pod.
type pods struct {
	tabletest.Names
	other *bool
}

func (n pods) Groups(ctx context.Context) ([]fabric.Group, error) {
	list, err := n.Names.Groups(ctx)
	for i := range list {
		if *n.other && list[i].Parent != "" {
			list[i].Parent = map[string]string{"pod1": "pod2", "pod2": "pod1"}[list[i].Parent]
		}
	}
	return list, err
}

// TestChangesRegrouped: a reader of a group begins again if a reload moves a cell that it knows to another group, or
// one that it does not know to this group.
func TestChangesRegrouped(t *testing.T) {
	for _, pod := range []string{"pod1", "pod2"} {
		t.Run(pod, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				now, other := begin, false
				s := newClocked(t, table.MemoryOptions{Log: 16}, &now, pods{tabletest.Names{Racks: 3}, &other})
				f := follow(t, s, "heartbeat=60s&src="+pod)
				for second := range 12 {
					now = now.Add(time.Second)
					other = second >= 4
					s.writeBlock(t, rows(1, second, loaded))
					s.memory.Publish()
					synctest.Wait()
				}
				events := f.events(t)
				want := holds(lines(t, follow(t, s, "src="+pod).events(t)))
				if got := holdsNow(t, events); !slices.Equal(got, want) {
					t.Errorf("a reader holds %q, want %q, by %q", got, want, lines(t, events))
				}
			})
		})
	}
}

// TestStreamsOfUnknownNames: without a fabric file, a server knows names only with their rows, and never before them which
// bounds apply to a type_N. Readers of an earlier process are told to try again; for all others the name or the bound is
// wrong, unless it has just become known.
func TestStreamsOfUnknownNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now, named := begin, false
		s := newClocked(t, table.MemoryOptions{}, &now, nameless{tabletest.Names{Racks: 3}, &named})
		codes := func(want ...int) {
			t.Helper()
			for _, stream := range []string{"watch?src=rack1", "changes?src=rack1", "watch?signal=type_4&min_room_ratio=0.1"} {
				var got []int
				for _, after := range []string{"", "0000000000000007-0", "0000000000000008-5"} {
					ctx, cancel := context.WithCancel(t.Context())
					w := httptest.NewRecorder()
					go s.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/api/v1/"+stream+"&after="+after, nil))
					synctest.Wait()
					cancel()
					synctest.Wait()
					if got = append(got, w.Code); w.Code == 503 && w.Header().Get("Retry-After") == "" {
						t.Errorf("%s: no Retry-After: %s", stream, w.Body)
					}
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s: status %d, want %d", stream, got, want)
				}
			}
		}
		codes(422, 422, 503)
		named, now = true, now.Add(time.Second)
		b := rows(1, 0, quiet)
		b.Signal[0] = uint8(csig.ConfiguredSignal(4, csig.Ratio, csig.AggregateMin))
		s.writeBlock(t, b)
		s.memory.Publish()
		codes(200, 200, 200)
	})
}

// holdsNow returns what a reader of events holds: an initial event replaces all before it.
func holdsNow(t *testing.T, events []event) []string {
	t.Helper()
	from := 0
	for i, e := range events {
		if e.name == "initial" {
			from = i
		}
	}
	return holds(lines(t, events[from:]))
}
