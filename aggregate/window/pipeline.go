// Package window makes windows of frames and observations: a Pipeline decodes the frames of
// one goroutine, a Stream carries one tap's observations into its Shard, which resolves
// them, counts them at every resolution and closes windows as time passes.
//
// It knows observations, levels, watermarks and flows. It must never know where frames
// come from, where windows go, SQL, sockets or files.
package window

import (
	"cmp"
	"context"
	"fmt"

	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
)

// Tap says how the packets of a capture interface count.
type Tap struct {
	Tags        bool   // tags seen here have passed the whole path
	Reflections bool   // reflections seen here have arrived at the original sender
	Weight      uint64 // each packet stands for so many; at least 1
	Place       string // what it is called: receiver, sender or mid
	// Mirrors are sessions that frames are taken out of. In others, tags are orphans.
	Mirrors decode.Mirrors
}

// TapAt is how packets of a tap at a place count, "" for a receiver: each for weight, at
// least 1. Only whole paths may enter the heatmaps: a tap at the receiver sees tags that
// have passed every hop and reflections that have arrived.
func TapAt(place string, weight uint64) Tap {
	return Tap{Weight: 1}.With(cmp.Or(place, receiver), weight)
}

// With is the tap at another place or with another weight; "" and 0 change nothing.
func (t Tap) With(place string, weight uint64) Tap {
	if place != "" {
		terminal := place == receiver
		t.Tags, t.Reflections, t.Place = terminal, terminal, place
	}
	t.Weight = cmp.Or(weight, t.Weight)
	return t
}

// receiver is the place at the end of all paths.
const receiver = "receiver"

// Tally is what a Pipeline counts.
type Tally struct {
	Packets, WireBytes uint64
	Skipped            Links                     // packets of link types that are not read
	Frames             [decode.NumReasons]uint64 // by what decoding them came to
	Found              Found                     // observations, by what they are
}

// Merge adds what another Pipeline counted.
func (t *Tally) Merge(o *Tally) {
	t.Packets += o.Packets
	t.WireBytes += o.WireBytes
	t.Skipped.Merge(o.Skipped)
	for i, n := range o.Frames {
		t.Frames[i] += n
	}
	t.Found.Merge(&o.Found)
}

// Pipeline decodes the frames of one goroutine, by which alone it is used. Its Tally may
// be read and reset between calls.
type Pipeline struct {
	Tally
	decoder *decode.Decoder
	result  decode.Result
}

// New makes a Pipeline. It fails where decode.New does.
func NewPipeline(cfg decode.Config) (*Pipeline, error) {
	d, err := decode.New(cfg)
	if err != nil {
		return nil, err
	}
	return &Pipeline{decoder: d}, nil
}

// Decoded is what the decoder has counted since New.
func (f *Pipeline) Decoded() decode.Counters { return f.decoder.Counters() }

// maxPending is how many observations a stream holds before they go to its shard, which
// counts up to 256 at a time.
const maxPending = 256 - decode.MaxObservations

// A Stream is the way of one tap's observations into its shard. They are decoded where
// the shard reads them: obs[:n] are there already, and there is always room for those
// of one more frame.
type Stream struct {
	framing decode.Framing
	shard   *Shard
	obs     []decode.Observation
	n       int
	seen    Seen
}

// NewStream makes a stream of frames of the link type, at a tap that holds mirrors. Where the
// link type is not Known the shard is nil, and frames are counted and skipped.
func NewStream(link decode.Link, holds decode.Mirrors, shard *Shard) *Stream {
	l := &Stream{framing: decode.Framing{Link: link, Mirrors: holds}, shard: shard}
	if shard != nil {
		l.obs = make([]decode.Observation, maxPending+decode.MaxObservations)
	}
	return l
}

// Shard is where the stream leads; nil where its frames cannot be read.
func (l *Stream) Shard() *Shard { return l.shard }

// Renew gives an empty stream to frames of another link type.
func (l *Stream) Renew(link decode.Link) { l.framing.Link, l.seen = link, Seen{} }

// Seen is what the stream has counted.
func (l *Stream) Seen() *Seen { return &l.seen }

// Pending is how many observations wait in the stream.
func (l *Stream) Pending() int { return l.n }

// Add puts what a frame says behind what waits in the stream, and passes that on when it
// is enough. It keeps nothing of the frame and does not allocate.
func (f *Pipeline) Add(ctx context.Context, l *Stream, frame *capture.Frame) error {
	l.seen.count(frame)
	if l.shard == nil {
		l.seen.Frames[decode.UnknownLink]++
		f.Skipped.Add(capture.LinkType(l.framing.Link), 1)
		return nil
	}
	f.WireBytes += uint64(frame.WireLen)
	r := &f.result
	r.Obs = l.obs[l.n : l.n+decode.MaxObservations]
	in := FrameOf(frame)
	wireLen := f.decoder.DecodeFrame(l.framing, &in, r)
	f.Frames[r.Reason]++
	l.seen.Frames[r.Reason]++
	for i := range r.Obs[:r.N] {
		o := &r.Obs[i]
		Stamp(o, frame, wireLen)
		l.seen.Kinds[(o.Kind-decode.Tag)&1]++
		f.Found.add(o)
	}
	l.n += r.N
	if l.n < maxPending {
		return nil
	}
	return l.Pass(ctx)
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
