package api_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/query/rest/resttest"
	"github.com/csigscope/csigscope/aggregate/query/wire"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/aggregate/table/tabletest"
	"github.com/csigscope/csigscope/decode/csig"
)

// seen are the observations of one cell in a producer's window: racks and port from 1, heavy of
// all.
type seen struct{ src, dst, port, heavy, all int }

// rows is a block of a window.
func rows(producer uint64, second int, list []seen) *aggregate.Block {
	b := &aggregate.Block{
		Source: aggregate.Source{Producer: producer}, Resolution: int64(time.Second), WindowStart: begin.Add(time.Duration(second) * time.Second).UnixNano(),
	}
	for _, one := range list {
		n, heavy := uint64(one.all), uint64(one.heavy)
		b.Signal, b.Kind, b.Encoding = append(b.Signal, uint8(csig.MinABWRatio)), append(b.Kind, uint8(wire.Kind_KIND_TAG)), append(b.Encoding, 0)
		b.SrcGroup, b.DstGroup = append(b.SrcGroup, uint64(tabletest.FirstGroup+one.src-1)), append(b.DstGroup, uint64(tabletest.FirstGroup+one.dst-1))
		b.Location = append(b.Location, uint64(tabletest.FirstLocation+one.port-1))
		b.Observations, b.Samples, b.Bytes = append(b.Observations, n), append(b.Samples, n), append(b.Bytes, n*1500)
		b.Sum, b.Min, b.Max = append(b.Sum, n*1000), append(b.Min, 1000), append(b.Max, 1000)
		b.Untouched, b.Trimmed, b.Unjudged, b.Evidence = append(b.Untouched, 0), append(b.Trimmed, 0), append(b.Unjudged, 0), append(b.Evidence, 0)
		b.Heavy, b.HeavySum = append(b.Heavy, heavy), append(b.HeavySum, heavy*1000)
		b.DistCode, b.DistCount = append(b.DistCode, 1), append(b.DistCount, n)
		b.DistEnd = append(b.DistEnd, uint32(len(b.DistCode)))
	}
	return b
}

// followed is a stream that runs in a bubble.
type followed struct {
	mu   sync.Mutex
	body bytes.Buffer
	end  context.CancelFunc
}

func (f *followed) Header() http.Header { return http.Header{} }
func (f *followed) WriteHeader(int)     {}
func (f *followed) Flush()              {}

// Write implements io.Writer.
func (f *followed) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.body.Write(b)
}

func follow(t *testing.T, s *served, parameters string) *followed {
	ctx, cancel := context.WithCancel(t.Context())
	f := &followed{end: cancel}
	go s.ServeHTTP(f, httptest.NewRequestWithContext(ctx, "GET", "/api/v1/changes?"+parameters, nil))
	synctest.Wait()
	return f
}

// events returns the events so far, and ends the stream.
func (f *followed) events(t *testing.T) (list []event) {
	t.Helper()
	synctest.Wait()
	f.end()
	synctest.Wait()
	return eventsIn(f.body.String())
}

// eventsIn returns the events in the text of a stream.
func eventsIn(body string) (list []event) {
	for _, text := range strings.Split(body, "\n\n") {
		var e event
		for _, line := range strings.Split(text, "\n") {
			switch name, value, _ := strings.Cut(line, ": "); name {
			case "event":
				e.name = value
			case "id":
				e.id = value
			case "data":
				e.data = value
			}
		}
		if e.name != "" {
			list = append(list, e)
		}
	}
	return list
}

// lines are the changes of events, each after the number of its revision.
func lines(t *testing.T, events []event) (list []string) {
	t.Helper()
	for _, e := range events {
		if e.name != "initial" && e.name != "changes" {
			continue
		}
		var set wire.ChangeSet
		if err := resttest.Read([]byte(e.data), &set); err != nil {
			t.Fatalf("%s: %v", e.data, err)
		}
		_, revision, _ := strings.Cut(set.Revision, "-")
		if e.name == "initial" {
			revision = "initial"
		} else if e.id != set.Revision || len(set.Changes) == 0 {
			t.Errorf("event %s of %v", e.id, &set)
		}
		for _, c := range set.Changes {
			list = append(list, revision+" "+line(c))
		}
	}
	return list
}

func line(c *wire.Change) string {
	text := c.Kind.Word()
	if c.Producer != "" {
		text += " " + c.Producer
		if c.AgeS != nil {
			text += fmt.Sprintf(" %gs", *c.AgeS)
		}
		return text
	}
	text += fmt.Sprintf(" %s>%s %s", c.Src, c.Dst, c.State.Word())
	if c.Since != nil {
		text += fmt.Sprintf(" since %d", int(c.Since.AsTime().Sub(begin).Seconds()))
	}
	if c.Kind == wire.ChangeKind_CHANGE_KIND_CLEARED {
		text += fmt.Sprintf(" for %gs", c.LastedS)
	}
	for i, name := range []string{c.LocationBefore, c.Location} {
		moved := c.Kind == wire.ChangeKind_CHANGE_KIND_MOVED
		if name == "" && moved {
			name = "unknown"
		}
		if name != "" {
			text += " " + name
		}
		if i == 0 && moved {
			text += " ->"
		}
	}
	if c.HeavyRatio != nil && c.Kind == wire.ChangeKind_CHANGE_KIND_ONSET {
		text += fmt.Sprintf(" %g", *c.HeavyRatio)
	}
	if len(c.SilentProducers) > 0 {
		text += " without " + strings.Join(c.SilentProducers, ",")
	}
	return text
}

// holds returns the state after lines.
func holds(list []string) []string {
	open := map[string]string{}
	for _, l := range list {
		f := strings.Fields(l)
		of := f[2]
		switch kind := f[1]; kind {
		case "onset":
			open["congested "+of] = f[6]
		case "moved":
			open["congested "+of] = f[8]
		case "cleared":
			delete(open, "congested "+of)
		case "tap_lost":
			open["tap "+of] = ""
		case "tap_back", "tap_forgotten":
			delete(open, "tap "+of)
		case "coverage_lost":
			open["coverage "+of] = f[len(f)-1]
		case "coverage_back":
			delete(open, "coverage "+of)
		}
	}
	var out []string
	for k, v := range open {
		out = append(out, k+" "+v)
	}
	slices.Sort(out)
	return out
}

// act is the data of producers 1 and 2 for a window, after which a revision is published.
type act struct {
	second      int
	a, b        []seen
	provisional bool
	forget      []uint64 // producers to forget before
}

var (
	quiet  = []seen{{1, 2, 1, 0, 100}}
	loaded = []seen{{1, 2, 1, 50, 100}}
	others = []seen{{2, 1, 1, 0, 100}}
)

// changeCases are windows, and the changes that they cause.
var changeCases = []struct {
	name string
	acts []act
	want []string
}{
	{"onset and cleared", []act{{second: 0, a: quiet}, {second: 1, a: loaded}, {second: 2, a: loaded}, {second: 3, a: quiet}}, []string{
		"3 onset rack1>rack2 congested since 1 leaf1:up1 0.5",
		"5 cleared rack1>rack2 brief since 1 for 2s leaf1:up1",
	}},
	{"between the shares", []act{
		{second: 0, a: []seen{{1, 2, 1, 4, 100}}}, {second: 1, a: loaded}, {second: 2, a: []seen{{1, 2, 1, 4, 100}}}, {second: 3, a: []seen{{1, 2, 1, 2, 100}}}, {second: 4, a: []seen{{1, 2, 1, 1, 100}}},
	}, []string{
		"3 onset rack1>rack2 congested since 1 leaf1:up1 0.5",
		"6 cleared rack1>rack2 brief since 1 for 3s leaf1:up1",
	}},
	{"moved", []act{{second: 0, a: loaded}, {second: 1, a: []seen{{1, 2, 2, 50, 100}}}, {second: 2, a: []seen{{1, 2, 2, 60, 100}, {1, 2, 1, 40, 100}}}}, []string{
		"initial onset rack1>rack2 congested since 0 leaf1:up1 0.5",
		"3 moved rack1>rack2 congested since 0 leaf1:up1 -> leaf2:up2",
	}},
	{"moved in a window without rows", []act{{second: 0, a: append(others[:1:1], loaded...)}, {second: 1, a: others}, {second: 2, a: append(others[:1:1], seen{1, 2, 2, 50, 100})}}, []string{
		"initial onset rack1>rack2 congested since 0 leaf1:up1 0.5",
		"4 moved rack1>rack2 congested since 0 leaf1:up1 -> leaf2:up2",
	}},
	{"final as provisional", []act{{second: 0, a: quiet}, {second: 1, a: loaded, provisional: true}, {second: 1, a: loaded}, {second: 2, a: loaded, provisional: true}, {second: 2, a: quiet}}, []string{
		"3 onset rack1>rack2 congested since 1 leaf1:up1 0.5",
		"6 cleared rack1>rack2 brief since 1 for 1s leaf1:up1",
	}},
	{"a tap of two", []act{
		{second: 0, a: quiet, b: quiet}, {second: 1, a: loaded, b: loaded}, {second: 2, a: loaded}, {second: 3, a: quiet}, {second: 4, a: quiet}, {second: 5, a: quiet}, {second: 6, a: quiet, b: quiet},
	}, []string{
		"3 onset rack1>rack2 congested since 1 leaf1:up1 0.5",
		"6 tap_lost eth1 3s",
		"6 coverage_lost rack1>rack2 brief without eth1",
		"6 cleared rack1>rack2 brief since 1 for 3s leaf1:up1 without eth1",
		"8 tap_back eth1 5s",
		"8 coverage_back rack1>rack2 brief",
	}},
	{"the only tap of a congested cell", []act{
		{second: 0, a: others, b: loaded}, {second: 1, a: others}, {second: 2, a: others}, {second: 3, a: others}, {second: 5, a: others}, {second: 6, a: others, b: []seen{{1, 2, 2, 50, 100}}}, {second: 7, a: others, b: quiet},
	}, []string{
		"initial onset rack1>rack2 congested since 0 leaf1:up1 0.5",
		"5 tap_lost eth1 3s",
		"5 coverage_lost rack1>rack2 no_data since 0 leaf1:up1 without eth1",
		"7 tap_back eth1 6s",
		"7 coverage_back rack1>rack2 congested since 0 leaf2:up2",
		"7 moved rack1>rack2 congested since 0 leaf1:up1 -> leaf2:up2",
		"8 cleared rack1>rack2 brief since 0 for 7s leaf2:up2",
	}},
	{"the only tap of a congested cell is away for longer than memory", []act{
		{second: 0, a: others, b: loaded}, {second: 1, a: others}, {second: 2, a: others}, {second: 3, a: others}, {second: 70, a: others}, {second: 71, a: others, b: []seen{{1, 2, 2, 50, 100}}},
	}, []string{
		"initial onset rack1>rack2 congested since 0 leaf1:up1 0.5",
		"5 tap_lost eth1 3s",
		"5 coverage_lost rack1>rack2 no_data since 0 leaf1:up1 without eth1",
		"6 moved rack1>rack2 no_data since 0 leaf1:up1 -> unknown without eth1",
		"7 tap_back eth1 71s",
		"7 coverage_back rack1>rack2 congested since 0 leaf2:up2",
		"7 moved rack1>rack2 congested since 0 unknown -> leaf2:up2",
	}},
	{"a tap that is forgotten", []act{
		{second: 0, a: quiet, b: others}, {second: 1, a: quiet}, {second: 2, a: quiet}, {second: 3, a: quiet}, {second: 4, a: quiet, forget: []uint64{2}},
	}, []string{
		"5 tap_lost eth1 3s",
		"5 coverage_lost rack2>rack1 no_data without eth1",
		"6 tap_forgotten eth1 4s",
		"6 coverage_back rack2>rack1 no_data",
	}},
	{"a tap that never writes", []act{{second: 0, b: quiet}, {second: 1, b: quiet}}, []string{"initial tap_lost eth0"}},
	{"the tap of a cell whose traffic has ended", []act{
		{second: 0, a: others, b: append(quiet[:1:1], seen{3, 2, 1, 50, 100})},
		{second: 1, a: others, b: quiet},
		{second: 2, a: others, b: quiet},
		{second: 3, a: others, b: quiet},
		{second: 4, a: others},
		{second: 5, a: others},
		{second: 6, a: others},
		{second: 7, a: others, b: quiet},
	}, []string{
		"initial onset rack3>rack2 congested since 0 leaf1:up1 0.5",
		"5 cleared rack3>rack2 no_data since 0 for 3s leaf1:up1",
		"8 tap_lost eth1 3s",
		"8 coverage_lost rack1>rack2 no_data without eth1",
		"8 coverage_lost rack3>rack2 no_data without eth1",
		"9 tap_back eth1 4s",
		"9 coverage_back rack1>rack2 clear",
		"9 coverage_back rack3>rack2 no_data",
	}},
	{"the traffic of a congested cell ends", []act{{second: 0, a: append(others[:1:1], loaded...)}, {second: 1, a: others}, {second: 2, a: others}, {second: 3, a: others}, {second: 4, a: others}}, []string{
		"initial onset rack1>rack2 congested since 0 leaf1:up1 0.5",
		"5 cleared rack1>rack2 no_data since 0 for 3s leaf1:up1",
	}},
}

// acted feeds windows to a stream, and returns its events.
func acted(t *testing.T, acts []act, parameters string) (*served, []event) {
	t.Helper()
	now := begin.Add(time.Second)
	clock := func() time.Time { return now }
	s := newServed(t, 9, func(c *api.Config) {
		c.Memory, c.Now = table.NewMemory(table.MemoryOptions{Epoch: 7, Log: 16, Now: clock}), clock
	})
	expected := []table.Producer{{ID: 1, Name: "eth0"}, {ID: 2, Name: "eth1"}}
	if !slices.ContainsFunc(acts, func(one act) bool { return len(one.b) > 0 }) {
		expected = expected[:1]
	}
	s.memory.Expect(expected, nil)
	var f *followed
	for i, one := range acts {
		now = begin.Add(time.Duration(one.second+1) * time.Second)
		if one.forget != nil {
			s.memory.Expect(expected[:1], one.forget)
		}
		for producer, list := range [][]seen{one.a, one.b} {
			if len(list) == 0 {
				continue
			}
			b := rows(uint64(producer+1), one.second, list)
			if one.provisional {
				s.memory.WriteProvisional((*aggregate.Provisional)(b))
			} else {
				s.writeBlock(t, b)
			}
		}
		s.memory.Publish()
		if i == 0 {
			f = follow(t, s, parameters)
		}
		synctest.Wait()
	}
	return s, f.events(t)
}

// TestChanges: each change is sent once, a reader that resumes gets the same ones, and together
// they lead to the initial state of a later stream.
func TestChanges(t *testing.T) {
	for _, tc := range changeCases {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, events := acted(t, tc.acts, "heartbeat=60s")
				got := lines(t, events)
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("changes (-want +got):\n%s", diff)
				}
				if now := lines(t, follow(t, s, "").events(t)); !slices.Equal(holds(now), holds(got)) {
					t.Errorf("a later stream begins with %q, want %q", holds(now), holds(got))
				}
				for i, e := range events {
					if e.id == "" {
						continue
					}
					rest := follow(t, s, "after="+e.id).events(t)
					if !slices.Equal(rest, events[i+1:]) {
						t.Errorf("resumed after %s with %q, want %q", e.id, rest, events[i+1:])
					}
				}
			})
		})
	}
}

// TestChangesOfBursts: bursts at one place, with long pauses of little traffic between them, do not move a cell.
func TestChangesOfBursts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		acts := []act{{a: loaded}}
		for second := 1; second < 30; second++ {
			acts = append(acts, act{second: second, a: []seen{{1, 2, 1, 0, 5}}})
		}
		_, events := acted(t, append(acts, act{second: 30, a: loaded}), "heartbeat=60s")
		if got := lines(t, events); !slices.Equal(got, []string{"initial onset rack1>rack2 congested since 0 leaf1:up1 0.5"}) {
			t.Errorf("%q", got)
		}
	})
}

// TestChangesOfOneKind: reflections in a window without tags do not move a cell of tags.
func TestChangesOfOneKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := begin
		clock := func() time.Time { return now }
		s := newServed(t, 9, func(c *api.Config) {
			c.Memory, c.Now = table.NewMemory(table.MemoryOptions{Epoch: 7, Log: 16, Now: clock}), clock
		})
		s.memory.Expect([]table.Producer{{ID: 1, Name: "eth0"}}, nil)
		var f *followed
		for second := range 5 {
			now = now.Add(time.Second)
			b := rows(1, second, loaded)
			switch {
			case second == 1:
				b = rows(1, second, slices.Concat([]seen{{1, 2, 2, 50, 100}}, others))
				b.Kind[0] = uint8(wire.Kind_KIND_REFLECTION)
			case second > 1: // tags that name no location, and do not end the congestion
				b = rows(1, second, quiet)
				b.Unjudged[0] = b.Observations[0]
			}
			s.writeBlock(t, b)
			s.memory.Publish()
			if second == 0 {
				f = follow(t, s, "windows=3")
			}
			synctest.Wait()
		}
		want := []string{"initial onset rack1>rack2 congested since 0 leaf1:up1 0.5"}
		if diff := cmp.Diff(want, lines(t, f.events(t))); diff != "" {
			t.Errorf("changes (-want +got):\n%s", diff)
		}
	})
}

// TestClearedUnknown: the end of a congestion without a known location does not name the location of later observations.
func TestClearedUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := begin
		s := newClocked(t, table.MemoryOptions{Log: 16}, &now, tabletest.Names{Racks: 3})
		all, link := follow(t, s, "heartbeat=60s"), follow(t, s, "heartbeat=60s&link=leaf2:up2")
		for second := range 2 {
			now = begin.Add(time.Duration(second+1) * time.Second)
			b := rows(1, second, []seen{{1, 2, 2, []int{50, 1}[second], 100}})
			if second == 0 {
				b.Location[0] = uint64(aggregate.NoLocation)
			}
			s.writeBlock(t, b)
			s.memory.Publish()
			synctest.Wait()
		}
		want := []string{"initial onset rack1>rack2 congested since 0 0.5", "2 cleared rack1>rack2 brief since 0 for 1s"}
		if diff := cmp.Diff(want, lines(t, all.events(t))); diff != "" {
			t.Errorf("changes (-want +got):\n%s", diff)
		}
		if got := lines(t, link.events(t)); len(got) > 0 {
			t.Errorf("changes at another link: %q", got)
		}
	})
}

// TestChangesOfSums: a cell that only a sum of windows shows as congested has the location of that sum, not that of an
// earlier window.
func TestChangesOfSums(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := begin
		s := newClocked(t, table.MemoryOptions{Log: 16}, &now, tabletest.Names{Racks: 3})
		f := follow(t, s, "windows=3&heartbeat=60s")
		for second := range 5 {
			now = begin.Add(time.Duration(second+1) * time.Second)
			b := rows(1, second, []seen{{1, 2, 1, 5, 5}}) // too few to judge
			if second > 0 {
				b.Location[0] = uint64(aggregate.NoLocation)
			}
			s.writeBlock(t, b)
			s.memory.Publish()
			synctest.Wait()
		}
		want := []string{"2 onset rack1>rack2 congested leaf1:up1 1", "4 moved rack1>rack2 congested leaf1:up1 -> unknown"}
		if diff := cmp.Diff(want, lines(t, f.events(t))); diff != "" {
			t.Errorf("changes (-want +got):\n%s", diff)
		}
	})
}

// TestChangesOfSeveral: a cell whose producers name different locations does not move back and forth while the rows of
// one of them are missing.
func TestChangesOfSeveral(t *testing.T) {
	for _, windows := range []string{"1", "10"} {
		synctest.Test(t, func(t *testing.T) {
			now := begin
			s := newClocked(t, table.MemoryOptions{Log: 16}, &now, tabletest.Names{Racks: 3})
			f := follow(t, s, "windows="+windows)
			for second := range 5 {
				now = begin.Add(time.Duration(second+1) * time.Second)
				for producer, ports := range [][]int{{1, 1, 1, 3, 3}, {2, 2, 2, 4, 4}} { // the second one has more heavy observations
					b := rows(uint64(producer+1), second, []seen{{1, 2, ports[second], 30 + 10*producer, 100}})
					s.memory.WriteProvisional((*aggregate.Provisional)(b))
					s.memory.Publish()
					synctest.Wait()
				}
			}
			want := []string{"initial onset rack1>rack2 congested since 0 leaf1:up1 0.3", "2 moved rack1>rack2 congested since 0 leaf1:up1 -> leaf2:up2"}
			if windows == "1" {
				want = append(want, "8 moved rack1>rack2 congested since 0 leaf2:up2 -> leaf2:up4")
			}
			if diff := cmp.Diff(want, lines(t, f.events(t))); diff != "" {
				t.Errorf("%s windows (-want +got):\n%s", windows, diff)
			}
		})
	}
}

// TestChangesFilter: filters select changes of cells by their state and location before and
// after, and never drop changes of producers.
func TestChangesFilter(t *testing.T) {
	acts := []act{
		{second: 0, a: quiet, b: others}, {second: 1, a: loaded, b: []seen{{2, 1, 3, 50, 100}}}, {second: 2, a: []seen{{1, 2, 2, 50, 100}}}, {second: 3, a: quiet}, {second: 4, a: quiet},
	}
	onset, other := "3 onset rack1>rack2 congested since 1 leaf1:up1 0.5", "3 onset rack2>rack1 congested since 1 leaf1:up3 0.5"
	moved, cleared := "4 moved rack1>rack2 congested since 1 leaf1:up1 -> leaf2:up2", "5 cleared rack1>rack2 brief since 1 for 2s leaf2:up2"
	tap, coverage := "6 tap_lost eth1 3s", "6 coverage_lost rack2>rack1 no_data since 1 leaf1:up3 without eth1"
	for parameters, want := range map[string][]string{
		"":                         {onset, other, moved, cleared, tap, coverage},
		"src=rack1":                {onset, moved, cleared, tap},
		"dst=rack1":                {other, tap, coverage},
		"src=rack3":                {tap},
		"link=leaf1:up1":           {onset, moved, tap},
		"link=leaf2:up2":           {moved, cleared, tap},
		"link=leaf1:up9":           {tap},
		"state=congested":          {onset, other, moved, cleared, tap, coverage},
		"state=brief":              {cleared, tap},
		"state=no_data&dst=rack1":  {tap, coverage},
		"signal=max_delay":         {tap},
		"src=rack1&link=leaf1:up3": {tap},
		"windows=3&src=rack1":      {strings.Replace(onset, "0.5", "0.25", 1), strings.Replace(cleared, "leaf2:up2", "leaf1:up1", 1), tap},
	} {
		synctest.Test(t, func(t *testing.T) {
			_, events := acted(t, acts, parameters)
			if diff := cmp.Diff(want, lines(t, events)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", parameters, diff)
			}
		})
	}
	for parameters, code := range map[string]int{
		"src=rack99": 422, "link=spine9:up1": 422, "state=well": 422, "after=x": 422, "after=0000000000000007-9": 422, "signal=speed": 422, "level=device": 422, "windows=0": 422,
	} {
		if got := newServed(t, 4, nil).get(t, "/api/v1/changes?"+parameters).Code; got != code {
			t.Errorf("%s: status %d, want %d", parameters, got, code)
		}
	}
}

// TestChangesOfCongested: readers of congested cells hear of the end of a congestion whose cell had no data meanwhile.
func TestChangesOfCongested(t *testing.T) {
	acts := []act{{second: 0, a: others, b: loaded}, {second: 1, a: others}, {second: 2, a: others}, {second: 3, a: others}, {second: 5, a: others}, {second: 6, a: others, b: quiet}}
	want := []string{
		"initial onset rack1>rack2 congested since 0 leaf1:up1 0.5",
		"5 tap_lost eth1 3s",
		"5 coverage_lost rack1>rack2 no_data since 0 leaf1:up1 without eth1",
		"7 tap_back eth1 6s",
		"7 coverage_back rack1>rack2 brief",
		"7 cleared rack1>rack2 brief since 0 for 6s leaf1:up1",
	}
	for _, parameters := range []string{"", "state=congested"} {
		synctest.Test(t, func(t *testing.T) {
			_, events := acted(t, acts, parameters)
			if diff := cmp.Diff(want, lines(t, events)); diff != "" {
				t.Errorf("%q (-want +got):\n%s", parameters, diff)
			}
		})
	}
}

// TestChangesMissed: a stream that cannot resume, and one that was too slow, restart with the
// whole state, after an event that reports it.
func TestChangesMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var acts []act
		for second := range 20 { // the log has 16 revisions
			acts = append(acts, act{second: second, a: [][]seen{quiet, loaded}[second%2]})
		}
		s, events := acted(t, acts, "")
		for _, after := range []string{events[1].id, "0000000000000003-2"} {
			names := []string{}
			list := follow(t, s, "after="+after).events(t)
			for _, e := range list {
				names = append(names, e.name)
			}
			if !slices.Equal(names, []string{"gap", "initial", "synced"}) {
				t.Errorf("after %s: %q", after, names)
			}
			if got := lines(t, list); !slices.Equal(got, []string{"initial onset rack1>rack2 congested since 19 leaf1:up1 0.5"}) {
				t.Errorf("after %s: %q", after, got)
			}
		}
	})
}

// TestChangesHeartbeat: while nothing changes, heartbeats let a reader resume from the present
// revision.
func TestChangesHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(begin.Add(time.Minute))) // memory refuses windows of the future
		s := newServed(t, 4, nil)
		f := follow(t, s, "heartbeat=10s")
		for second := range 4 {
			s.writeBlock(t, rows(1, second, quiet))
			s.memory.Publish()
			time.Sleep(4 * time.Second)
		}
		var got []string
		for _, e := range f.events(t) {
			got = append(got, strings.TrimSpace(e.name+" "+e.id))
		}
		if want := []string{"initial", "synced 0000000000000007-0", "initial", "synced 0000000000000007-1", "heartbeat 0000000000000007-3"}; !slices.Equal(got, want) {
			t.Errorf("events %q, want %q", got, want)
		}
	})
}
