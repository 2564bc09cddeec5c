package alto_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/query/alto"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/aggregate/table/tabletest"
	"github.com/csigscope/csigscope/decode/csig"
)

// TestSilence: costs include their age and producers, and are empty once they are too old. The
// tag depends only on the costs.
func TestSilence(t *testing.T) {
	s := newServed(t)
	begin := time.Unix(1e9, 0)
	now := begin
	clock := func() time.Time { return now }
	s.memory = table.NewMemory(table.MemoryOptions{Now: clock})
	s.Handler = alto.New(alto.Config{Memory: s.memory, Groups: tabletest.Names{Racks: racks}.Groups, Now: clock})
	s.memory.Expect([]table.Producer{{ID: 2, Name: "eth0"}, {ID: 9, Name: "eth9"}}, nil)
	for second := range 4 {
		now = begin.Add(time.Duration(second+1) * time.Second)
		b := tabletest.Block(rand.New(rand.NewPCG(1, uint64(second))), 1, begin.Add(time.Duration(second)*time.Second), racks*racks, csig.MinABWRatio)
		if err := s.memory.WriteBlock(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		s.memory.Publish()
	}
	tag := ""
	for _, test := range []struct {
		after   time.Duration
		pairs   int
		present int
	}{{0, racks, 1}, {2 * time.Second, racks, 1}, {3 * time.Second, 0, 0}, {3 * time.Minute, 0, 0}} {
		now = begin.Add(4*time.Second + test.after)
		s.memory.Publish()
		w := s.ask("GET", "/alto/costmap/num-routingcost", "", "")
		if same := w.Header().Get("ETag") == tag; same != (test.after == 2*time.Second || test.after == 3*time.Minute) {
			t.Errorf("%s later: the same tag: %v", test.after, same)
		}
		tag = w.Header().Get("ETag")
		got := document[costMap](t, w, prefix+"costmap"+suffix)
		f := got.Meta.Freshness
		if len(got.Map) != test.pairs || f.Present != test.present || f.Expected != 2 || f.Age == nil || *f.Age != test.after.Seconds() || !f.AsOf.Equal(now) {
			t.Errorf("%s later: %d sources, %+v", test.after, len(got.Map), f)
		}
	}
}
