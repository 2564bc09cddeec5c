// Package window makes windows of frames and observations: a Stream decodes one tap's frames
// and carries the observations into its Shard, which resolves them, counts them at every
// resolution and closes windows as time passes.
//
// It knows observations, levels, watermarks and flows, and has findings watch them. It must
// never know where frames come from, where windows go, SQL, sockets or files.
package window

import (
	"context"
	"fmt"
	"math"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
)

// maxPending is how many observations a stream holds before they go to its shard, which
// counts up to 256 at a time.
const maxPending = 256 - decode.MaxObservations

// Origin is where the frames of a Stream come from, and how its rows are identified.
type Origin struct {
	Link    decode.Link      // how frames start
	Source  aggregate.Source // written with every row; the Epoch of the Settings replaces its own
	SeqBase uint64           // number of the first block

	Name     string // of the tap, which findings about live ones name
	File     string // that packets are numbered in; empty for live ones, which have no numbers
	InPieces bool   // the file is read in several pieces: findings need the Passage of each
}

// Stream carries one tap's frames into rows: decoder, shard, watcher and counts. Observations
// are decoded where the shard reads them: obs[:n] are there already, and there is always room
// for those of one more frame. One goroutine uses it.
type Stream struct {
	settings Settings
	tap      Tap
	origin   Origin

	decoder *decode.Decoder
	shard   *Shard           // nil where frames cannot be read, as is the decoder
	watch   *finding.Watcher // nil for none
	found   []finding.Finding
	dedup   *capture.Dedup  // nil unless live and watched
	decoded decode.Counters // by decoders before the one at hand
	tally   Tally

	result decode.Result
	obs    []decode.Observation
	n      int
}

// NewStream makes a stream that writes its rows to the sink. Frames of a link type that is not
// Known are counted and skipped.
func NewStream(s *Settings, tap Tap, from Origin, sink aggregate.Sink) (*Stream, error) {
	l := &Stream{settings: *s, tap: tap, origin: from}
	if !from.Link.Known() {
		return l, nil
	}
	var err error
	if l.decoder, err = decode.New(s.Decode); err != nil {
		return nil, err
	}
	cfg, watch, err := s.shard(&tap, &from)
	if err != nil {
		return nil, err
	}
	if l.shard, err = NewShard(cfg, sink); err != nil {
		return nil, err
	}
	l.setWatch(watch)
	l.obs = make([]decode.Observation, maxPending+decode.MaxObservations)
	return l, nil
}

// setWatch makes the stream show live frames to its watcher.
func (l *Stream) setWatch(w *finding.Watcher) {
	if l.watch, l.dedup = w, nil; w != nil && l.origin.File == "" {
		l.dedup = capture.NewDedup(capture.DefaultDedup)
	}
}

// Reset gives a flushed stream of a link type that is read to other frames of its tap, as
// Shard.Reset does. Its tally and what was found begin at nothing.
func (l *Stream) Reset(from Origin) error {
	l.origin, l.tally, l.found = from, Tally{}, nil
	if l.watch != nil {
		l.watch.Begin(from.File)
		if from.InPieces {
			l.watch.InPieces()
		}
	}
	return l.shard.Reset(from.Source, from.SeqBase)
}

// Reconfigure goes on under other settings and at another place. Where rows or findings mean
// something else from then on, all windows close. Counts and findings go on. After an error
// the stream is of no use.
func (l *Stream) Reconfigure(ctx context.Context, s *Settings, tap Tap) error {
	if l.shard == nil || l.settings.Equal(s) && l.tap == tap {
		return nil
	}
	if err := l.Flush(ctx); err != nil {
		return err
	}
	cfg, watch, err := s.shard(&tap, &l.origin)
	if err != nil {
		return err
	}
	shard, err := l.shard.Succeed(cfg)
	if err != nil {
		return err
	}
	decoder, err := decode.New(s.Decode)
	if err != nil {
		return err
	}
	found := l.Findings()
	if l.watch != nil && watch != nil {
		watch.ResumeRuns(l.watch.Runs())
	}
	l.decoded = l.Decoded()
	l.settings, l.tap, l.decoder, l.shard = *s, tap, decoder, shard
	l.setWatch(watch)
	l.Resume(found)
	return nil
}

// Add puts what frames say behind what waits in the stream, and passes that on when it
// is enough. It keeps nothing of the frames and does not allocate.
func (l *Stream) Add(ctx context.Context, frames []capture.Frame) error {
	l.tally.count(frames)
	if l.shard == nil {
		l.tally.Frames[decode.UnknownLink] += uint64(len(frames))
		return nil
	}
	framing := decode.Framing{Link: l.origin.Link, Mirrors: l.tap.Mirrors}
	r := &l.result
	for i := range frames {
		f := &frames[i]
		r.Obs = l.obs[l.n : l.n+decode.MaxObservations]
		if l.dedup != nil && !f.NoTime {
			l.look(f)
		}
		in := FrameOf(f)
		l.decoder.DecodeFrame(framing, &in, r)
		l.tally.Frames[r.Reason]++
		for k := range r.Obs[:r.N] {
			o := &r.Obs[k]
			Stamp(o, f)
			l.tally.Found.add(o)
		}
		if l.n += r.N; l.n < maxPending {
			continue
		}
		if err := l.Pass(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Frames are compared with those shortly before them in 2 ms of each 537 ms, so that the
// comparison, which reads all their bytes, costs each of them next to nothing.
const (
	compareShift = 21  // 2^21 ns are compared
	compareEach  = 256 // one of so many times
)

// look shows a live frame to the watcher.
func (l *Stream) look(f *capture.Frame) {
	l.watch.Timed(f.TimeNS)
	if f.TimeNS>>compareShift%compareEach == 0 {
		repeated := l.dedup.Seen(f)
		l.watch.Compared(f.TimeNS, l.dedup.Content(), repeated)
	}
}

// Pass gives the stream's observations to its shard.
func (l *Stream) Pass(ctx context.Context) error {
	if l.n == 0 {
		return nil
	}
	n := l.n
	l.n = 0
	if err := l.shard.Add(ctx, l.obs[:n]); err != nil {
		return fmt.Errorf("aggregate observations: %w", err)
	}
	return nil
}

// RejectAfter has observations of frames after a time (Unix ns) rejected, as
// Shard.RejectAfter does.
func (l *Stream) RejectAfter(ns int64) {
	if l.shard != nil {
		l.shard.RejectAfter(ns)
	}
}

// AdvanceTo closes the windows that end before a time (Unix ns), with all that was added, as
// Shard.AdvanceTo does.
func (l *Stream) AdvanceTo(ctx context.Context, ns int64) error {
	if err := l.Pass(ctx); err != nil || l.shard == nil {
		return err
	}
	return l.shard.AdvanceTo(ctx, ns)
}

// WriteProvisional gives the sink provisional rows, as Shard.WriteProvisional does, after AdvanceTo.
func (l *Stream) WriteProvisional(to aggregate.ProvisionalSink) {
	if l.shard != nil {
		l.shard.WriteProvisional(to)
	}
}

// NextLive is when there is a reason for AdvanceTo and WriteProvisional again; see Shard.NextLive.
func (l *Stream) NextLive(from int64) int64 {
	if l.shard == nil {
		return math.MaxInt64
	}
	return l.shard.NextLive(from)
}

// Flush closes all windows, with all that was added.
func (l *Stream) Flush(ctx context.Context) error {
	if err := l.Pass(ctx); err != nil || l.shard == nil {
		return err
	}
	return l.shard.Flush(ctx)
}

// Shard is where the stream leads; nil where its frames cannot be read.
func (l *Stream) Shard() *Shard { return l.shard }

// Tap says how the stream's packets count.
func (l *Stream) Tap() Tap { return l.tap }

// Origin is where its frames come from.
func (l *Stream) Origin() Origin { return l.origin }

// Tally is what the stream has counted of frames. It may be set between calls.
func (l *Stream) Tally() *Tally { return &l.tally }

// Decoded is what decoders have counted since NewStream.
func (l *Stream) Decoded() decode.Counters {
	c := l.decoded
	if l.decoder != nil {
		now := l.decoder.Counters()
		c.Add(&now)
	}
	return c
}

// Counts returns those of the shard.
func (l *Stream) Counts() aggregate.Counts {
	if l.shard == nil {
		return aggregate.Counts{}
	}
	return l.shard.Counts()
}

// Findings are what was found since NewStream or Reset, with those of Resume.
func (l *Stream) Findings() []finding.Finding {
	if l.watch == nil {
		return l.found
	}
	return l.watch.Findings()
}

// Passage is what a piece of a file leaves for findings over several pieces, nil where nothing
// is looked for. Only with Origin.InPieces.
func (l *Stream) Passage() *finding.Passage {
	if l.watch == nil {
		return nil
	}
	return l.watch.Passage()
}

// Resume adds to the Findings of an earlier stream of the tap. It keeps the list.
func (l *Stream) Resume(found []finding.Finding) {
	l.found = found
	if l.watch != nil {
		l.watch.Resume(found)
	}
}

// LinkOf returns the link type of a capture interface; ok is false for one that the
// decoder cannot read.
func LinkOf(interfaces []capture.Interface, index uint32) (link decode.Link, ok bool) {
	if int(index) >= len(interfaces) {
		return decode.Ethernet, true
	}
	link = decode.Link(interfaces[index].Link)
	return link, link.Known()
}

// FrameOf is what a decoder reads of a captured frame.
func FrameOf(f *capture.Frame) decode.Frame {
	return decode.Frame{Data: f.Data, WireLen: f.WireLen, TPID: f.TPID, TCI: f.TCI}
}

// Stamp sets what the capture knows of an observation.
func Stamp(o *decode.Observation, f *capture.Frame) {
	o.TimeNS, o.Packet = f.TimeNS, f.Packet
	if f.NoTime {
		o.Flags |= decode.NoTime
	}
}
