package api_test

import (
	"context"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/query/wire"
	"github.com/csigscope/csigscope/aggregate/table"
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
