package api_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/query/wire"
	"github.com/csigscope/csigscope/aggregate/table"
)

const fineLength = 100 * time.Millisecond

// fineRows is a block of a window of 100 ms, by its number after begin.
func fineRows(producer uint64, number int, list []seen) *aggregate.Block {
	b := rows(producer, 0, list)
	b.Resolution, b.WindowStart, b.Seq = int64(fineLength), begin.Add(time.Duration(number)*fineLength).UnixNano(), uint64(number)+1
	return b
}

// newFine has a window of 1 s with 9 cells, and one of 100 ms after it with one of them.
func newFine(t *testing.T) (s *served, fine *table.Memory) {
	now := begin.Add(1100 * time.Millisecond)
	clock := func() time.Time { return now }
	s = newServed(t, 9, func(c *api.Config) {
		c.Memory, c.Now = table.NewMemory(table.MemoryOptions{Epoch: 7, Log: 16, Now: clock}), clock
		fine = table.NewFineMemory(c.Memory, fineLength, 2*fineLength, 1<<16)
		c.Fine = fine
	})
	s.window(t, 0)
	if err := fine.WriteBlock(t.Context(), fineRows(1, 10, []seen{{1, 2, 3, 4, 20}})); err != nil {
		t.Fatal(err)
	}
	fine.Publish()
	return s, fine
}

// TestFine: questions about short windows are answered from them, with the states and the
// coverage of the windows of 1 s, whatever was asked about the others before.
func TestFine(t *testing.T) {
	s, _ := newFine(t)
	start := begin.Add(time.Second)
	for range 2 {
		all := read[wire.CellsResponse](t, s.get(t, "/api/v1/cells?resolution=1s"))
		if len(all.Cells) != 9 || !all.About.To.AsTime().Equal(start) {
			t.Fatalf("windows of 1 s: %d cells up to %s", len(all.Cells), all.About.To.AsTime())
		}
		short := read[wire.CellsResponse](t, s.get(t, "/api/v1/cells?resolution=100ms&windows=5"))
		a := short.About
		if len(short.Cells) != 1 || !a.To.AsTime().Equal(start.Add(fineLength)) || a.ExpectedProducers != 2 || a.PresentProducers != 2 || a.CompletenessRatio != 1 || *a.AgeS != 0 {
			t.Fatalf("%d cells about %+v", len(short.Cells), a)
		}
		c, want := short.Cells[0], all.Cells[1] // rack1 to rack2
		if c.Src != want.Src || c.Dst != want.Dst || c.Observations != 20 || c.Heavy != 4 || c.Mode.GetLocation() == "" {
			t.Errorf("cell %+v", c)
		}
		if c.State != want.State || c.State != wire.State_STATE_CONGESTED || !c.Since.AsTime().Equal(begin) || c.ExpectedProducers != 2 {
			t.Errorf("%s since %s of %d producers, want %s since %s of 2", c.State, c.Since.AsTime(), c.ExpectedProducers, want.State, begin)
		}
	}
	if l := read[wire.LocationsResponse](t, s.get(t, "/api/v1/locations?resolution=0.1s")); len(l.Locations) != 1 || l.Locations[0].Heavy != 4 {
		t.Errorf("locations %+v", l.Locations)
	}
	line := read[wire.TimelineResponse](t, s.get(t, "/api/v1/timeline?resolution=100ms&src=rack1&dst=rack2"))
	if m := line.Timeline; len(m) != 1 || line.StepS != 0.1 || !line.HeavyOnly || m[0].Congested != 1 || m[0].Cell.GetObservations() != 20 {
		t.Errorf("timeline %+v", line)
	}
	if called := call(t, caller(t, s).Cells, &wire.CellsRequest{Resolution: durationpb.New(fineLength)}); len(called.Cells) != 1 || called.Cells[0].Observations != 20 {
		t.Errorf("called: %+v", called)
	}
	for target, want := range map[string]string{
		"cells?resolution=10ms": "no such windows are in memory here: expected 1s or 100ms",
		"cells?resolution=1s&from=2026-01-20T09:00:00Z&to=2026-01-20T09:00:10Z": "applies only to windows in memory: leave it out, or from and to",
		"watch?resolution=100ms&flows=3":                                        "windows of 100ms name none",
		"watch?resolution=1m":                                                   "expected 1s or 100ms",
	} {
		if w := s.get(t, "/api/v1/"+target); w.Code != 422 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: status %d, %s: want %q", target, w.Code, w.Body, want)
		}
	}
}

// TestFineWatch: a watch follows the windows of its length, and watches of other lengths get no
// events from them.
func TestFineWatch(t *testing.T) {
	s, fine := newFine(t)
	url := listen(t, s) + "/api/v1/watch?heartbeat=60s"
	short, long := open(t, url+"&resolution=100ms"), open(t, url)
	if n := len(decode[wire.CellsResponse](t, short.next(t), "snapshot").Cells); n != 1 {
		t.Errorf("snapshot of %d cells, want 1", n)
	}
	if n := len(decode[wire.CellsResponse](t, long.next(t), "snapshot").Cells); n != 9 {
		t.Errorf("snapshot of %d cells of 1 s, want 9", n)
	}
	synced := decode[wire.Synced](t, short.next(t), "synced")
	long.next(t)
	late := fineRows(2, 10, []seen{{1, 2, 3, 1, 10}, {2, 1, 3, 1, 10}})
	if err := fine.WriteBlock(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	fine.Publish()
	e := decode[wire.WindowEvent](t, short.next(t), "window")
	if len(e.Cells) != 2 || e.Cells[0].Observations != 30 || e.WindowEnd.AsTime().Sub(e.WindowStart.AsTime()) != fineLength {
		t.Errorf("window %+v", e)
	}
	if again := decode[wire.WindowEvent](t, open(t, url+"&resolution=100ms&after="+synced.Revision).next(t), "window"); len(again.Cells) != 2 {
		t.Errorf("resumed with %+v", again)
	}
	if gap := decode[wire.Gap](t, open(t, url+"&after="+synced.Revision).next(t), "gap"); gap.Reason != "restarted" {
		t.Errorf("the revision of other windows: %+v", gap)
	}
	s.window(t, 1)
	if e := decode[wire.WindowEvent](t, long.next(t), "window"); e.WindowEnd.AsTime().Sub(e.WindowStart.AsTime()) != time.Second {
		t.Errorf("window %+v", e)
	}
}
