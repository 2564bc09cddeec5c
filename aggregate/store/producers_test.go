package store

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode/csig"
)

// TestProducers: live producers are known by when they began and wrote last, until they are
// forgotten, and again once they write.
func TestProducers(t *testing.T) {
	s, ctx := openStore(t), t.Context()
	now := time.Now()
	begin := func(producer, incarnation uint64, mode RunMode, name string) aggregate.Source {
		t.Helper()
		r := Run{Source: aggregate.Source{Producer: producer, Incarnation: incarnation, Epoch: 1}, Mode: mode, Name: name}
		if err := s.BeginRun(ctx, r); err != nil {
			t.Fatal(err)
		}
		return r.Source
	}
	begin(1, 1, RunLive, "host1/eth0")
	wrote := begin(0xabc, 1, RunLive, "it's")
	begin(3, 1, RunReplay, "capture.pcap")
	begin(4, 1, RunLive, "eth0")
	begin(5, 1, RunLive, "eth0")
	if err := s.WriteBlock(ctx, blockOf([]row{{
		source: wrote, resolution: int64(time.Minute), window: now.Add(2 * time.Hour).Truncate(time.Minute).UnixNano(),
		signal: uint8(csig.MinABWRatio), kind: 1, src: 10, dst: 11, location: 5, observations: 1,
	}})); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	want := func(since time.Duration, want ...string) {
		t.Helper()
		list, err := s.Producers(ctx, now.Add(since))
		var got []string
		for _, p := range list {
			got = append(got, fmt.Sprintf("%x %s %t", p.ID, p.Name, p.Forgotten))
		}
		slices.Sort(got)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("since %s: %q, %v, want %q", since, got, err, want)
		}
	}
	forget := func(name string, want int) {
		t.Helper()
		if list, err := s.Forget(ctx, name); err != nil || len(list) != want {
			t.Errorf("forget %s: %+v, %v, want %d", name, list, err, want)
		}
	}
	want(-time.Hour, "1 host1/eth0 false", "4 eth0 false", "5 eth0 false", "abc it's false")
	want(time.Hour, "abc it's false")
	forget("host1/eth0", 1)
	forget("eth0", 2)
	forget("abc", 1) // which wrote since
	want(time.Hour, "1 host1/eth0 true", "4 eth0 true", "5 eth0 true", "abc it's false")
	begin(1, 2, RunLive, "host1/eth0")
	want(-time.Hour, "1 host1/eth0 false", "4 eth0 true", "5 eth0 true", "abc it's false")
	for _, name := range []string{"", "nobody", "capture.pcap", "3", "' OR 1"} {
		if _, err := s.Forget(ctx, name); !errors.Is(err, ErrNoProducer) {
			t.Errorf("forget %q: %v", name, err)
		}
	}
}
