package remote

import (
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
)

// lastingBlocks are what a process that is restored writes: large ones, some of them late
// for windows that others were of.
func lastingBlocks(t *testing.T, now time.Time) (blocks []*aggregate.Block) {
	rows := []int{30, partRows + 5, 40, 3, 60, 2*partRows + 1, 20}
	for i, n := range rows {
		start := now.Add(time.Duration(i/2-len(rows)) * time.Second)
		b := testBlock(newRand(t, uint64(i)), start, n)
		b.Incarnation, b.Seq = 7, uint64(i+1)
		blocks = append(blocks, b)
	}
	return blocks
}

// TestLasting: an exporter that is killed at any block, and goes on from an earlier one,
// hands in the same rows as one that lives. What it had handed over already counts once,
// although the collector folds what is beyond a limit and has forgotten what it saw.
func TestLasting(t *testing.T) {
	now := time.Now()
	blocks := lastingBlocks(t, now)
	run := func(from, killed int) *ledger {
		l := newLedger()
		cfg := testConfig(t)
		cfg.Limits.MaxWindowRows, cfg.Limits.MaxWindowFlows = 50, 20
		client := clientConfig(t, startCollector(t, cfg, l, "").url)
		write := func(c *exporterUnderTest, list []*aggregate.Block) {
			t.Helper()
			s, err := c.Lasting("eth0", 7)
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range list {
				if err := s.WriteBlock(t.Context(), b); err != nil {
					t.Fatal(err)
				}
			}
			c.flush(t)
		}
		first := startClient(t, client)
		write(first, blocks[:from])
		state := first.AppendStreams(nil)
		write(first, blocks[from:killed])
		first.stop()
		client.Collectors = []string{startCollector(t, cfg, l, "").url}
		second := startClient(t, client)
		if err := second.ResumeStreams(state); err != nil {
			t.Fatal(err)
		}
		write(second, blocks[from:])
		if l.changed {
			t.Errorf("from block %d, killed at %d: rows came again with other values", from, killed)
		}
		second.stop()
		return l
	}
	want := run(0, 0)
	for from := range blocks {
		killed := min(from+3, len(blocks))
		got := run(from, killed)
		if len(got.rows) != len(want.rows) || got.totals()[Producer("tester", "eth0")] != totalsOf(blocks...) {
			t.Errorf("from block %d, killed at %d: %d rows with %+v, want %d with %+v", from, killed, len(got.rows), got.totals(), len(want.rows), totalsOf(blocks...))
		}
		if !maps.Equal(got.flows, want.flows) || len(want.flows) < 50 {
			t.Errorf("from block %d, killed at %d: %d rows of flows, want the same %d", from, killed, len(got.flows), len(want.flows))
		}
		for id, v := range want.rows {
			if got.rows[id] != v {
				t.Fatalf("from block %d, killed at %d: row %+v is %+v, want %+v", from, killed, id, got.rows[id], v)
			}
		}
	}
}

// TestStreamsState: a state comes back as it was, and nothing else is taken for one.
func TestStreamsState(t *testing.T) {
	client := clientConfig(t, "http://127.0.0.1:1")
	client.Logger = nil
	c := startClient(t, client)
	for _, name := range []string{"b/1", "a/0"} {
		s, err := c.Lasting(name, 9)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range lastingBlocks(t, time.Now()) {
			if err := s.WriteBlock(t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.stream(t, "passing")
	gone, err := c.Lasting("gone", 1)
	if err != nil {
		t.Fatal(err)
	}
	gone.Forget()
	state := c.AppendStreams(nil)
	c.stop()
	again := startClient(t, client)
	for n := range state {
		if err := again.ResumeStreams(state[:n]); !errors.Is(err, ErrStreams) {
			t.Fatalf("%d of %d bytes: %v", n, len(state), err)
		}
	}
	if err := again.ResumeStreams(state); err != nil {
		t.Fatal(err)
	}
	if got := again.AppendStreams(nil); string(got) != string(state) || len(again.streams) != 2 {
		t.Errorf("%d streams, state %x, want %x", len(again.streams), got, state)
	}
	for _, wrong := range []string{"", "\x01", "\x02\x01\x00\x01\x00\x00", "\x02\x01\x01a\x00\x00\x00", "\x02\x01\x01a\x01\x00\xff\xff\xff\xff\x0f", "\x02\x00\x00"} {
		if err := again.ResumeStreams([]byte(wrong)); !errors.Is(err, ErrStreams) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
	if _, err := again.Lasting("eth0", 0); err == nil {
		t.Error("a stream without an incarnation")
	}
}
