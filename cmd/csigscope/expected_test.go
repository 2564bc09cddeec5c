package main

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/table"
)

// TestDownProducers: taps without a link and streams of gone exporters are down, but no tap is
// because an exporter shares its name.
func TestDownProducers(t *testing.T) {
	silent := []table.Producer{
		{ID: 1, Name: "eth0"}, {ID: 2, Name: "eth1"}, {ID: 3, Name: "host1/p0"}, {ID: 4, Name: "host2/p0"}, {ID: 5, Name: "host2"}, {ID: 6, Name: "host3"}, {ID: 7, Name: "eth0"}, {ID: 8, Name: "spiffe://dc/host4/p0/0"},
	}
	got := downProducers(silent, map[uint64]bool{1: true, 2: false}, map[string]bool{"eth0": false, "eth1": true, "host1": false, "host2": true, "spiffe://dc/host4": true, "host": true})
	if want := []string{"eth1", "host2/p0", "host2", "spiffe://dc/host4/p0/0"}; !slices.Equal(got, want) {
		t.Errorf("%v are down, want %v", got, want)
	}
	if got := downProducers(silent[:1], map[uint64]bool{1: true}, map[string]bool{"eth0": true}); got != nil {
		t.Errorf("%v are down, want none", got)
	}
}

// TestExpectedProducers: each producer of the configuration, the fabric file and the store is
// expected once, until it is forgotten.
func TestExpectedProducers(t *testing.T) {
	taps := []table.Producer{{ID: 1, Name: "eth0"}, {ID: 2, Name: "eth1"}}
	for _, test := range []struct {
		name            string
		known           []store.Producer
		silent, planned []string
		want            []string
	}{
		{"nothing ever wrote", nil, []string{"host1", "host2"}, []string{"eth1", "tor"}, []string{"eth0", "eth1", "host1", "host2", "tor"}},
		{"all wrote", []store.Producer{
			{ID: 1, Name: "eth0"}, {ID: 2, Name: "eth1"}, {ID: 3, Name: "host1/p0"}, {ID: 4, Name: "host1/p1"}, {ID: 5, Name: "host2/tor"},
		}, []string{"host1", "host2"}, []string{"tor"}, []string{"eth0", "eth1", "host1/p0", "host1/p1", "host2/tor"}},
		{"rings of exporters", []store.Producer{
			{ID: 3, Name: "host1/tor/0"}, {ID: 4, Name: "fleet/host2/eth7/1"}, {ID: 5, Name: "fleet/host3/eth8/0"},
		}, []string{"host1", "fleet"}, []string{"tor", "eth7", "fleet/host3/eth8"}, []string{"eth0", "eth1", "fleet/host2/eth7/1", "fleet/host3/eth8/0", "host1/tor/0"}},
		{"one host of several", []store.Producer{
			{ID: 3, Name: "host1/eth7/0"}, {ID: 4, Name: "host1/eth7/1"},
		}, nil, []string{"eth7", "host1/eth7", "host2/eth7"}, []string{"eth0", "eth1", "host1/eth7/0", "host1/eth7/1", "host2/eth7"}},
		{"named by a URI", []store.Producer{
			{ID: 3, Name: "spiffe://dc/host1/eth7/0"},
		}, []string{"spiffe://dc/host1", "spiffe://dc/host2"}, []string{"eth7"}, []string{"eth0", "eth1", "spiffe://dc/host1/eth7/0", "spiffe://dc/host2"}},
		{"of another host", []store.Producer{{ID: 9, Name: "eth0"}}, nil, nil, []string{"eth0", "eth0", "eth1"}},
		{"forgotten", []store.Producer{
			{ID: 2, Name: "eth1", Forgotten: true},
			{ID: 3, Name: "host1/p0", Forgotten: true},
			{ID: 4, Name: "host2/p0", Forgotten: true},
			{ID: 5, Name: "host2/p1"},
			{ID: 6, Name: "tor", Forgotten: true},
		}, []string{"host1"}, []string{"tor"}, []string{"eth0", "host2/p1"}},
	} {
		ids := map[uint64]bool{}
		var got []string
		for _, p := range expectedProducers(test.known, taps, test.silent, test.planned) {
			got = append(got, p.Name)
			if ids[p.ID] {
				t.Errorf("%s: %s is expected twice", test.name, p.Name)
			}
			ids[p.ID] = true
		}
		slices.Sort(got)
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

// TestSleepUntil: the pause ends when an exporter is heard, when it is over, or with the command.
func TestSleepUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		after := func(d time.Duration) func() bool { return func() bool { return time.Since(began) >= d } }
		for _, test := range []struct {
			pause, heard, want time.Duration
		}{
			{time.Minute, 2500 * time.Millisecond, 3 * time.Second},
			{time.Minute, time.Hour, time.Minute},
			{1500 * time.Millisecond, time.Hour, 1500 * time.Millisecond},
		} {
			began = time.Now()
			if slept := sleepUntil(t.Context(), test.pause, after(test.heard)); !slept || time.Since(began) != test.want {
				t.Errorf("slept %t for %s, want %s", slept, time.Since(began), test.want)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if sleepUntil(ctx, time.Minute, after(0)) {
			t.Error("slept after the end")
		}
	})
}
