// Package persist stores a replay: its configuration, its captures as runs, its rows, tap counts,
// findings, and the names of groups and locations.
//
// It knows the store's records of a replay and their order. It must never know SQL, or how captures
// are read.
package persist

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/replay"
)

// Network is the configuration under which rows are made.
type Network struct {
	Epoch  uint64
	Text   string // the epoch is its hash
	Fabric *fabric.Fabric
}

// Recorder is a replay that writes its blocks to sinks and, in Store, also to a store.
type Recorder struct {
	*replay.Replay
	network Network
	sinks   aggregate.Sinks
	db      *store.Store // nil until Store is called

	naming    sync.Mutex
	groups    uint64 // position for fabric.Fabric.GroupsSince
	locations map[aggregate.LocationID]bool
}

// New checks the files of a replay (see replay.New) and sends its blocks to sinks. It sets the
// configuration's Sink and Taps.
func New(c replay.Config, n Network, sinks ...aggregate.Sink) (*Recorder, error) {
	r := &Recorder{network: n, sinks: sinks, locations: make(map[aggregate.LocationID]bool)}
	c.Sink, c.Taps = r, r.writeTaps
	var err error
	r.Replay, err = replay.New(c)
	return r, err
}

// WriteBlock implements aggregate.Sink. It stores names before the first rows that need them, so
// that a running replay can be queried.
func (r *Recorder) WriteBlock(ctx context.Context, b *aggregate.Block) error {
	if r.db != nil {
		if err := r.writeNames(ctx, b.Location); err != nil {
			return err
		}
	}
	return r.sinks.WriteBlock(ctx, b)
}

// writeNames stores the groups found since the last call and, if ids has a new location, all
// locations.
func (r *Recorder) writeNames(ctx context.Context, ids []uint64) error {
	r.naming.Lock()
	defer r.naming.Unlock()
	groups, met := r.network.Fabric.GroupsSince(r.groups)
	if err := r.db.WriteGroups(ctx, groups); err != nil {
		return err
	}
	r.groups = met
	if !slices.ContainsFunc(ids, func(id uint64) bool { return !r.locations[aggregate.LocationID(id)] }) {
		return nil
	}
	list := slices.DeleteFunc(r.network.Fabric.Locations(), func(l fabric.Location) bool { return r.locations[l.ID] })
	if err := r.db.WriteLocations(ctx, list); err != nil {
		return err
	}
	for i := range list {
		r.locations[list[i].ID] = true
	}
	for _, id := range ids {
		r.locations[aggregate.LocationID(id)] = true // includes 0, which is no location
	}
	return nil
}

// Store calls run, which must run the replay, and stores the rows. Until all rows are stored, an
// earlier replay of the same captures remains visible. Store must be called once.
func (r *Recorder) Store(ctx context.Context, db *store.Store, run func(context.Context) error) error {
	if err := db.WriteEpoch(ctx, r.network.Epoch, r.network.Text); err != nil {
		return err
	}
	for _, s := range r.Sources() {
		if err := db.BeginRun(ctx, runOf(s)); err != nil {
			return err
		}
	}
	r.db = db
	r.sinks = append(r.sinks, db)
	if err := run(ctx); err != nil {
		return err
	}
	if err := db.Flush(ctx); err != nil {
		return err
	}
	// All names again, since some belong to no row, such as the flows' groups and the findings'
	// locations.
	if err := db.WriteGroups(ctx, r.network.Fabric.Groups()); err != nil {
		return err
	}
	if err := db.WriteLocations(ctx, r.network.Fabric.Locations()); err != nil {
		return err
	}
	for _, s := range r.Sources() {
		if err := db.EndRun(ctx, runOf(s)); err != nil {
			return err
		}
	}
	return nil
}

func runOf(s replay.Source) store.Run {
	return store.Run{Source: s.Source, Mode: store.RunReplay, Name: filepath.Base(s.File)}
}

// Interrupted returns the captures of an interrupted replay that are stored in part, and those of
// which an earlier replay remains visible. Of the others nothing is visible.
func (r *Recorder) Interrupted(ctx context.Context, db *store.Store) (partial, earlier []string, err error) {
	shown, err := db.PartialRuns(ctx)
	if err != nil {
		return nil, nil, err
	}
	var producers []uint64
	for _, s := range r.Sources() {
		producers = append(producers, s.Producer)
	}
	complete, err := db.Replayed(ctx, producers)
	if err != nil {
		return nil, nil, err
	}
	for _, s := range r.Sources() {
		run := runOf(s)
		if slices.ContainsFunc(shown, func(p store.PartialRun) bool { return p.Source == run.Source }) {
			partial = append(partial, run.Name)
		} else if complete[run.Producer] {
			earlier = append(earlier, run.Name)
		}
	}
	return partial, earlier, nil
}

// writeTaps stores the tap counts and findings of a chunk.
func (r *Recorder) writeTaps(ctx context.Context, list []replay.TapCounts) error {
	if r.db == nil {
		return nil
	}
	rows := make([]store.TapRow, len(list))
	var found []store.FindingRow
	for i := range list {
		t := &list[i]
		rows[i] = TapRow(t)
		for k := range t.Findings {
			found = append(found, store.NewFindingRow(&t.Findings[k], t.Source, t.Seq))
		}
	}
	return errors.Join(r.db.WriteTaps(ctx, rows), r.db.WriteFindings(ctx, found))
}

// TapRow returns the stored form of a tap's counts in a chunk.
func TapRow(t *replay.TapCounts) store.TapRow {
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
