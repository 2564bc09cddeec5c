package main

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/dashboards/report"
	"github.com/csigscope/csigscope/replay"
)

// reportTap is a tap with what it took in.
func reportTap(t *store.TapRow, weight uint64) report.Tap {
	one := report.Tap{
		Name: t.Name, Place: t.Place, Interface: t.Interface, Weight: cmp.Or(weight, 1),
		Packets: t.Packets, Frames: maps.Clone(t.Frames), Tags: t.Tags, Reflections: t.Reflections,
		Observations: t.Observations, Stored: t.Stored, Overflow: t.Overflow, Late: t.Late, Rejected: maps.Clone(t.Rejected),
		Untouched: t.Untouched, Trimmed: t.Trimmed,
	}
	if t.Packets > 0 {
		one.From, one.To = time.Unix(0, t.From).UTC(), time.Unix(0, t.To).UTC()
	}
	return one
}

// taps are the names of the taps of the fabric file and of the configuration.
func (n *network) taps() []string {
	var list []string
	for _, t := range slices.Concat(n.fabric.Taps(), n.config.Taps) {
		if !slices.Contains(list, t.Name) {
			list = append(list, t.Name)
		}
	}
	return list
}

// tapSums adds up what taps came to. It is safe for concurrent use.
type tapSums struct {
	mu   sync.Mutex
	list []report.Tap
}

// add takes what the taps of a chunk came to.
func (s *tapSums) add(_ context.Context, counts []replay.TapCounts) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range counts {
		row := tapRow(&counts[i])
		s.merge(reportTap(&row, counts[i].Tap.Weight))
	}
	return nil
}

func (s *tapSums) merge(t report.Tap) {
	at := slices.IndexFunc(s.list, func(o report.Tap) bool {
		return o.Name == t.Name && o.Place == t.Place && o.Interface == t.Interface
	})
	if at < 0 {
		s.list = append(s.list, t)
		return
	}
	o := &s.list[at]
	if t.Packets > 0 && (o.Packets == 0 || t.From.Before(o.From)) {
		o.From = t.From
	}
	if t.To.After(o.To) {
		o.To = t.To
	}
	for _, sum := range []struct{ to, n *uint64 }{
		{&o.Packets, &t.Packets},
		{&o.Tags, &t.Tags},
		{&o.Reflections, &t.Reflections},
		{&o.Observations, &t.Observations},
		{&o.Stored, &t.Stored},
		{&o.Overflow, &t.Overflow},
		{&o.Late, &t.Late},
		{&o.Untouched, &t.Untouched},
		{&o.Trimmed, &t.Trimmed},
	} {
		*sum.to += *sum.n
	}
	for reason, n := range t.Frames {
		o.Frames[reason] += n
	}
	for reason, n := range t.Rejected {
		o.Rejected[reason] += n
	}
}
