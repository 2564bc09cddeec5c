package replay

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// Checkpoints keeps the state of a paced replay, so that another process can go on from
// it. Config.Sink has to hold back what it is given until a state is kept that follows
// from it, or take the same blocks twice.
type Checkpoints interface {
	// Due is how long it is until the next state is wanted, 0 or less for now. Blocks may
	// bring it closer.
	Due() time.Duration
	// Save keeps the state. No block is written until it returns. An error ends the
	// replay. The state is the replay's again afterwards.
	Save(ctx context.Context, state []byte) error
}

// ErrState is wrapped by the error for a state that this replay cannot go on from.
var ErrState = errors.New("not a state that can be resumed")

// stateVersion changes with the layout of a replay's state, and with how packets are
// counted.
const stateVersion = 4

// stateShape differs between programs that count other things.
var stateShape = [...]int{
	int(decode.NumReasons), int(aggregate.NumRejections), csig.NumSignals, csig.NumLayouts, len(window.Found{}[0][0]), decode.MaxObservations,
}

// savedState is the first part of a replay's state, as JSON after its length; the
// states of the shards follow, in the order of the lanes.
type savedState struct {
	Version int    `json:"version"`
	Shape   []int  `json:"shape"`
	Packets uint64 `json:"packets"` // progress, as are bytes
	Bytes   uint64 `json:"bytes"`

	Sources []savedSource `json:"sources"` // of all files that were begun
	Result  savedResult   `json:"result"`
	Cuts    []string      `json:"cuts"`
	Elapsed time.Duration `json:"elapsed"`
}

type savedSource struct {
	ID     aggregate.Source `json:"id"`
	Frames uint64           `json:"frames"` // that were read
	Ended  bool             `json:"ended"`

	// Of a file that has not ended, the chunk that is being read.
	Chunk   int                         `json:"chunk,omitempty"`
	Skipped map[capture.LinkType]uint64 `json:"skipped,omitempty"` // of interfaces without a lane
	Lanes   []savedLane                 `json:"lanes,omitempty"`
	// Before are runs of the chunks before it, by interface.
	Before map[uint32][]finding.Run `json:"before,omitempty"`
}

type savedLane struct {
	Interface uint32 `json:"interface"`
	Tap       string `json:"tap"`
	Link      uint64 `json:"link"`
	Size      int    `json:"size"` // of the shard's state, 0 where its frames cannot be read

	Of    capture.Interface `json:"of"`
	Tally window.Tally      `json:"tally"`

	Findings []finding.Finding `json:"findings,omitempty"`
	Passage  *finding.Passage  `json:"passage,omitempty"` // of which findings may come
}

// savedResult is what is counted of all chunks before. Links have a JSON of their own, for
// people.
type savedResult struct {
	Tally    window.Tally                `json:"tally"`
	Skipped  map[capture.LinkType]uint64 `json:"skipped"`
	Counts   aggregate.Counts            `json:"counts"`
	Damaged  Damage                      `json:"damaged"`
	Findings Findings                    `json:"findings,omitempty"`
}

// Identity identifies the work of the replay: the files and all that decides which rows
// they give, but neither their order nor the pace. A state is of use to replays of the
// same identity.
func (r *Replay) Identity() uint64 {
	sum := uint64(len(r.sources))
	for _, s := range r.sources {
		h := xxhash.New()
		fmt.Fprintln(h, s.id)
		sum += h.Sum64()
	}
	return sum
}

// appendState appends the state of a paced replay between two packets.
func (p *pacedRun) appendState(b []byte) ([]byte, error) {
	r := p.replay
	done := &r.result
	state := savedState{
		Version: stateVersion, Shape: stateShape[:], Packets: r.progress.packets.Load(), Bytes: r.progress.bytes.Load(),
		Result:  savedResult{done.Tally, done.SkippedLink, done.Counts, done.Damaged, done.Findings},
		Elapsed: r.elapsed(),
	}
	for _, cut := range r.result.Cuts {
		state.Cuts = append(state.Cuts, cut.Error())
	}
	p.shards = p.shards[:0]
	for i, s := range r.sources {
		if p.frames[i] == 0 && !p.ended[i] {
			continue
		}
		saved := savedSource{ID: s.id, Frames: p.frames[i], Ended: p.ended[i]}
		if f := p.files[i]; f != nil {
			saved.Before = f.follow.runs()
			saved.Chunk, saved.Skipped = f.worker.chunk, f.worker.result.SkippedLink
			var err error
			if saved.Lanes, p.shards, err = f.worker.appendLanes(p.shards); err != nil {
				return b, err
			}
		}
		state.Sources = append(state.Sources, saved)
	}
	text, err := json.Marshal(&state)
	if err != nil {
		return b, fmt.Errorf("encode state of the replay: %w", err)
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(len(text)))
	return append(append(b, text...), p.shards...), nil
}

// appendLanes appends the states of the worker's shards to b. Nothing waits in lanes.
func (w *worker) appendLanes(b []byte) (lanes []savedLane, _ []byte, err error) {
	for i, l := range w.lanes {
		if l == nil {
			continue
		}
		at := len(b)
		if l.Shard() != nil {
			if b, err = l.Shard().AppendState(b); err != nil {
				return nil, b, w.failed(err)
			}
		}
		lanes = append(lanes, savedLane{uint32(i), l.name, uint64(l.Origin().Link), len(b) - at, l.of, *l.Tally(), l.Findings(), l.Passage()})
	}
	return lanes, b, nil
}

// CheckpointTo makes a paced replay save its state now and then. Only before Run; at no
// pace a replay has no states.
func (r *Replay) CheckpointTo(c Checkpoints) { r.checkpoints = c }

// Resume makes Run go on from a state that was saved of a replay of the same Identity,
// and gives the number of packets that are not read again but for skipping them. Only
// before Run, and only with a pace. After an error, an ErrState, Run begins at the start.
func (r *Replay) Resume(state []byte) (packets uint64, err error) {
	p, err := r.restore(state)
	if err != nil {
		return 0, fmt.Errorf("resume replay: %w", err)
	}
	r.resumed = p
	return r.progress.packets.Load(), nil
}

func (r *Replay) restore(b []byte) (*pacedRun, error) {
	if r.cfg.Pace <= 0 {
		return nil, fmt.Errorf("%w: only a paced replay has one", ErrState)
	}
	if len(b) < 8 || binary.LittleEndian.Uint64(b) > uint64(len(b)-8) {
		return nil, fmt.Errorf("%w: it is cut", ErrState)
	}
	size := binary.LittleEndian.Uint64(b)
	text, shards := b[8:8+size], b[8+size:]
	var state savedState
	if err := json.Unmarshal(text, &state); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrState, err)
	}
	if state.Version != stateVersion || fmt.Sprint(state.Shape) != fmt.Sprint(stateShape) {
		return nil, fmt.Errorf("%w: it is of another version", ErrState)
	}
	byID := make(map[aggregate.Source]int)
	for i, s := range r.sources {
		byID[s.id] = i
	}
	p := newPacedRun(r)
	for i := range state.Sources {
		saved := &state.Sources[i]
		at, ok := byID[saved.ID]
		if !ok {
			return nil, fmt.Errorf("%w: it is of other files or settings", ErrState)
		}
		delete(byID, saved.ID)
		p.frames[at], p.ended[at] = saved.Frames, saved.Ended
		if saved.Ended {
			continue
		}
		w, rest, err := r.restoreWorker(r.sources[at], saved, shards)
		if err != nil {
			return nil, err
		}
		shards = rest
		f := newPacedFile(&r.cfg, r.sources[at], w)
		if err := f.follow.resume(saved.Before); err != nil {
			return nil, err
		}
		p.files[at] = f
	}
	if len(shards) > 0 {
		return nil, fmt.Errorf("%w: %d bytes too many", ErrState, len(shards))
	}
	r.clear()
	r.result.Elapsed = state.Elapsed
	r.result.add(&Result{
		Tally: state.Result.Tally, SkippedLink: state.Result.Skipped, Counts: state.Result.Counts,
		Damaged: state.Result.Damaged, Findings: state.Result.Findings,
	})
	for _, cut := range state.Cuts {
		r.result.Cuts = append(r.result.Cuts, errors.New(cut))
	}
	r.progress.packets.Store(state.Packets)
	r.progress.bytes.Store(state.Bytes)
	return p, nil
}

// restoreWorker makes the worker of a file that was being read. left is what is left of
// the shards' states.
func (r *Replay) restoreWorker(src *source, saved *savedSource, shards []byte) (w *worker, left []byte, err error) {
	if saved.Chunk < 0 || saved.Chunk >= len(src.chunks) {
		return nil, nil, fmt.Errorf("%w: chunk %d of %d", ErrState, saved.Chunk, len(src.chunks))
	}
	w = newWorker(&r.cfg)
	w.begin(src, saved.Chunk)
	for link, n := range saved.Skipped {
		w.result.skip(link, n)
	}
	for _, l := range saved.Lanes {
		if l.Interface >= maxTaps || l.Size < 0 || l.Size > len(shards) {
			return nil, nil, fmt.Errorf("%w: tap %d with %d bytes", ErrState, l.Interface, l.Size)
		}
		if err := w.restoreLane(&l, shards[:l.Size]); err != nil {
			return nil, nil, err
		}
		shards = shards[l.Size:]
	}
	return w, shards, nil
}

func (w *worker) restoreLane(saved *savedLane, state []byte) error {
	from := w.origin(decode.Link(saved.Link), saved.Interface)
	if !from.Link.Known() && len(state) > 0 {
		return fmt.Errorf("%w: tap %q: link type %d", ErrState, saved.Tap, saved.Link)
	}
	s, err := window.NewStream(&w.cfg.Settings, w.tap(saved.Tap), from, w.cfg.Sink, state)
	if err != nil {
		return fmt.Errorf("%w: tap %q: %w", ErrState, saved.Tap, err)
	}
	s.Resume(saved.Findings, saved.Passage)
	*s.Tally() = saved.Tally
	w.place(&lane{Stream: s}, saved.Interface, saved.Tap, saved.Of)
	return nil
}
