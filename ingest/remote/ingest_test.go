package remote

import (
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
)

// TestHandIn: exported items are stored once, with their names, under the identity of the
// credential.
func TestHandIn(t *testing.T) {
	l := newLedger()
	s := startCollector(t, testConfig(t), l, "")
	c := startClient(t, clientConfig(t, s.url))
	st := c.stream(t, "eth0")
	rng, now := newRand(t, 1), time.Now()
	var blocks []*aggregate.Block
	for i := range 20 {
		b := testBlock(rng, now.Add(time.Duration(i-20)*time.Second), 200)
		blocks = append(blocks, b)
		if err := st.WriteBlock(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	c.flush(t)
	totals := l.totals()
	if got, want := totals[Producer("tester", "eth0")], totalsOf(blocks...); got != want || len(totals) != 1 {
		t.Errorf("stored %+v, want %+v", got, want)
	}
	d := testDescription()
	if l.epochs[d.Epoch()] != testText || l.groups[d.Groups[0].ID].Name != "rack1" || l.locations[d.Locations[0].ID].Name != "leaf1:up1" {
		t.Errorf("described %v %v %v", l.epochs, l.groups, l.locations)
	}
	run := Run{aggregate.Source{Producer: Producer("tester", "eth0"), Incarnation: c.incarnation, Epoch: d.Epoch()}, "tester", "eth0"}
	if l.runs[run] != 1 || len(l.runs) != 1 {
		t.Errorf("runs %v, want one of %+v", l.runs, run)
	}
	checkConservation(t, s.Stats().Total)
	if got := c.Stats(); got.Stored != 20 || got.Waiting != 0 || len(got.Refused) != 0 || len(got.Lost) != 0 {
		t.Errorf("%+v, want 20 stored", got)
	}
}

func checkConservation(t testing.TB, c Counts) {
	t.Helper()
	if c.Items != c.StoredItems+c.RepeatedItems+c.UndescribedItems+c.RetriedItems+c.RefusedItems {
		t.Errorf("%+v: items do not add up", c)
	}
}

// TestLargeBlock: a large block is cut into parts that add up to it.
func TestLargeBlock(t *testing.T) {
	l := newLedger()
	s := startCollector(t, testConfig(t), l, "")
	c := startClient(t, clientConfig(t, s.url))
	b := testBlock(newRand(t, 2), time.Now(), 3*partRows+17)
	if err := c.stream(t, "eth0").WriteBlock(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	c.flush(t)
	if got, want := l.totals()[Producer("tester", "eth0")], totalsOf(b); got != want || len(l.rows) != b.Len() {
		t.Errorf("stored %+v in %d rows, want %+v in %d", got, len(l.rows), want, b.Len())
	}
}
