package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/store/checkpoint"
)

// blocksSection is the section of a checkpoint that holds blocks which were not handed
// to the store when it was taken.
const blocksSection = "blocks"

// Defaults of JournalOptions.
const (
	DefaultCheckpointEvery = 5 * time.Second
	DefaultHeldRows        = 100_000
	// maxHeld is how many times HeldRows are held while no checkpoint can be written.
	maxHeld = 4
)

// JournalOptions say when checkpoints are taken, and where they go.
type JournalOptions struct {
	File *checkpoint.File
	// Every is the time between checkpoints: how much a killed process has to do again
	// or, where packets do not come again, loses.
	Every time.Duration
	// HeldRows is how many rows are held back before a checkpoint is due early; a row
	// takes some 100 bytes.
	HeldRows int

	Now    func() time.Time // nil: time.Now
	Logger *slog.Logger     // nil: silent
}

// JournalStats is a snapshot of a journal.
type JournalStats struct {
	Taken   uint64 // checkpoints
	Failed  uint64 // checkpoints that could not be written
	GivenUp uint64 // times that blocks went on without a checkpoint, since too many were held
	Held    int    // rows
	Bytes   uint64 // of the last checkpoint
	Last    time.Time
	Took    time.Duration // the last checkpoint
}

// Journal stands between shards and the store and makes checkpoints of both, so that a
// process which is killed at any moment can be gone on from: no block is ever stored
// twice with different contents, and none is lost that a shard had written before the
// last checkpoint. It is an aggregate.Sink for all shards that are restored together.
//
// Blocks are held back until a checkpoint has them. A checkpoint waits until the store
// has made the blocks durable that were released before, then replaces the file by one
// with the state of all shards and the blocks held, and hands those to the store. A
// process that goes on from it hands them over again, which changes nothing since rows
// are identities.
//
// Who runs shards does this, for a live tap and a replay alike:
//
//	j := store.NewJournal(s, options)
//	saved, err := j.Resume(ctx)            // before anything is written
//	for each tap:                          // one section for each is a good choice
//	    shard, err = aggregate.RestoreShard(cfg, j, saved.Section(tap))
//	                                       // or NewShard, of a new incarnation, without saved
//	...
//	when j.Due():
//	    stop all shards at a barrier: nobody calls Add, AdvanceTo or Flush
//	    for each tap: section = shard.AppendState(nil)
//	    j.Commit(ctx, sections)
//	    go on
//	...
//	flush all shards; j.Release(ctx); store.EndRun; j.Finish()
//
// A live tap goes on with the incarnation of the checkpoint, which belongs into a section
// as well, and calls Store.WriteGap for each source with the reason GapRestart, from
// Saved.Time to the first packet of the new process. A replay skips what was read before
// the checkpoint. Whatever else follows from packets or blocks is a section too, taken at
// the same barrier: a table.Table, and what the fabric has met (Fabric.AppendMet),
// without which restored series have locations that nobody can name.
//
// When a checkpoint cannot be written, the one before stays, blocks are held on, and the
// next one is tried at its time. Once too many are held, the checkpoint on disk is
// removed and the blocks go to the store without one: a process that is killed then
// starts over, a live one under a new incarnation. The run ends only where the old
// checkpoint cannot be removed either, since going on from it would give blocks of other
// contents the same identities.
type Journal struct {
	store BlockStore
	o     JournalOptions

	mu    sync.Mutex
	held  []byte // encoded blocks, each after its length
	rows  int
	next  time.Time // when a checkpoint is due
	tried time.Time // the last time, unless it succeeded
	told  time.Time
	stats JournalStats
	block aggregate.Block
}

// BlockStore is what a journal needs of a Store: something in which the same block, written
// again with the same identity, counts once.
type BlockStore interface {
	aggregate.Sink
	// Sync returns nil when all blocks that were written before are durable.
	Sync(context.Context) error
}

// NewJournal makes a journal of what goes to the store.
func NewJournal(s BlockStore, o JournalOptions) *Journal {
	o.Every = defaultTo(o.Every, DefaultCheckpointEvery)
	o.HeldRows = defaultTo(o.HeldRows, DefaultHeldRows)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Journal{store: s, o: o, next: o.Now().Add(o.Every)}
}

// Resume gives the checkpoint that an earlier process left, nil for none, after it has
// handed the blocks in it to the store. One that is damaged or newer is none: the log
// says why.
func (j *Journal) Resume(ctx context.Context) (*checkpoint.Saved, error) {
	saved, err := j.o.File.Load()
	if err == nil && saved != nil {
		j.mu.Lock()
		err = j.handOver(ctx, saved.Section(blocksSection))
		j.mu.Unlock()
	}
	for _, useless := range [...]error{checkpoint.ErrDamaged, checkpoint.ErrNewer, aggregate.ErrState} {
		if errors.Is(err, useless) {
			j.o.Logger.Warn("checkpoint cannot be used: starting over", slog.String("error", err.Error()))
			return nil, nil
		}
	}
	if err != nil {
		return nil, err
	}
	return saved, nil
}

// WriteBlock holds a block back; it implements aggregate.Sink. It never blocks, and
// refuses what the store would.
func (j *Journal) WriteBlock(_ context.Context, b *aggregate.Block) error {
	if _, err := keyOf(b); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	const room = 8
	at := len(j.held)
	held, err := b.AppendBinary(append(j.held, make([]byte, room)...))
	if err != nil {
		return fmt.Errorf("hold block: %w", err)
	}
	binary.LittleEndian.PutUint64(held[at:], uint64(len(held)-at-room))
	j.held = held
	j.rows += b.Len() + len(b.Flows)
	return nil
}

// Due is how long it is until the next checkpoint is to be taken, 0 or less for now.
// Blocks that are written bring it closer.
func (j *Journal) Due() time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.rows >= j.o.HeldRows && j.tried.IsZero() {
		return 0
	}
	return j.next.Sub(j.o.Now())
}

// Commit takes a checkpoint of the sections, which hold the state of all shards that
// write to the journal at this moment: nobody writes a block until it returns. It is nil
// when the checkpoint could not be written and the run may go on.
func (j *Journal) Commit(ctx context.Context, sections ...checkpoint.Section) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	begun := j.o.Now()
	if err := j.store.Sync(ctx); err != nil {
		return err
	}
	j.next = begun.Add(j.o.Every)
	sections = append(sections[:len(sections):len(sections)], checkpoint.Section{Name: blocksSection, Data: j.held})
	if err := j.o.File.Save(sections); err != nil {
		j.tried = begun
		return j.failed(ctx, err)
	}
	j.tried = time.Time{}
	j.stats.Taken++
	j.stats.Last, j.stats.Bytes = begun, 0
	for i := range sections {
		j.stats.Bytes += uint64(len(sections[i].Data))
	}
	err := j.release(ctx)
	j.stats.Took = j.o.Now().Sub(begun)
	return err
}

// failed decides what becomes of what is held.
func (j *Journal) failed(ctx context.Context, err error) error {
	j.stats.Failed++
	tell := j.stats.Failed == 1 || j.o.Now().Sub(j.told) >= tellEvery
	if tell {
		j.told = j.o.Now()
		j.o.Logger.Error("checkpoint cannot be written: the one before stays", slog.String("error", err.Error()),
			slog.Uint64("failures", j.stats.Failed), slog.Int("held_rows", j.rows))
	}
	if j.rows < maxHeld*j.o.HeldRows {
		return nil
	}
	if removed := j.o.File.Remove(); removed != nil {
		return fmt.Errorf("%d rows held: %w", j.rows, errors.Join(err, removed))
	}
	j.stats.GivenUp++
	if tell {
		j.o.Logger.Error("too many rows held: going on without a checkpoint, until one can be written", slog.Int("rows", j.rows))
	}
	return j.release(ctx)
}

// Release hands all that is held to the store and waits until it is durable there, as
// after the last block of a run. Until Finish the checkpoint stays.
func (j *Journal) Release(ctx context.Context) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.release(ctx); err != nil {
		return err
	}
	return j.store.Sync(ctx)
}

// Finish removes the checkpoint of a run that has ended: there is nothing to go on from.
func (j *Journal) Finish() error { return j.o.File.Remove() }

func (j *Journal) release(ctx context.Context) error {
	if err := j.handOver(ctx, j.held); err != nil {
		return err
	}
	j.held, j.rows = j.held[:0], 0
	return nil
}

// handOver gives encoded blocks to the store.
func (j *Journal) handOver(ctx context.Context, blocks []byte) error {
	for len(blocks) > 0 {
		n := uint64(0)
		if len(blocks) >= 8 {
			n = binary.LittleEndian.Uint64(blocks)
			blocks = blocks[8:]
		}
		if n == 0 || n > uint64(len(blocks)) {
			return fmt.Errorf("hand blocks over: %w", checkpoint.ErrDamaged)
		}
		if err := j.block.UnmarshalBinary(blocks[:n]); err != nil {
			return fmt.Errorf("hand blocks over: %w", err)
		}
		blocks = blocks[n:]
		if err := j.store.WriteBlock(ctx, &j.block); err != nil {
			return err
		}
	}
	return nil
}

// Stats is a snapshot.
func (j *Journal) Stats() JournalStats {
	j.mu.Lock()
	defer j.mu.Unlock()
	st := j.stats
	st.Held = j.rows
	return st
}
