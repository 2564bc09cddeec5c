package main

import (
	"context"
	"errors"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/replay"
)

// writeTaps stores what the taps of a chunk came to, and what was found there.
func (r *replayRun) writeTaps(ctx context.Context, list []replay.TapCounts) error {
	if r.store == nil {
		return nil
	}
	rows := make([]store.TapRow, len(list))
	var found []store.FindingRow
	for i := range list {
		t := &list[i]
		rows[i] = tapRow(t)
		for k := range t.Findings {
			found = append(found, store.NewFindingRow(&t.Findings[k], t.Source, t.Seq))
		}
	}
	return errors.Join(r.store.WriteTaps(ctx, rows), r.store.WriteFindings(ctx, found))
}

func tapRow(t *replay.TapCounts) store.TapRow {
	c, seen, kinds := &t.Counts, &t.Tally, t.Tally.Found.Kinds()
	row := store.TapRow{
		Source: t.Source, Seq: t.Seq, Name: t.Name, Place: t.Tap.Place, Interface: t.Interface.Name, Link: t.Interface.Link.String(),
		Timestamps: "file", TickNS: t.Interface.NanosPerTick, From: seen.First, To: seen.Last,
		Packets: seen.Packets, Bytes: seen.WireBytes, Frames: map[string]uint64{},
		Tags: kinds[0] * t.Tap.Weight, Reflections: kinds[1] * t.Tap.Weight, Observations: c.In, Stored: c.Stored, Overflow: c.Overflow, Late: c.Late,
		Rejected: map[string]uint64{}, Untouched: c.Untouched, Trimmed: c.Trimmed,
	}
	for i, n := range seen.Frames {
		if n > 0 {
			row.Frames[decode.Reason(i).String()] = n
		}
	}
	for i, n := range c.Rejected {
		if n > 0 {
			row.Rejected[aggregate.Rejection(i).String()] = n
		}
	}
	return row
}
