// Package window turns frames and observations into windows: a Stream decodes one tap's frames and
// passes the observations to its Shard, which resolves them, counts them at every level (one for
// each length of windows) and closes windows as time passes.
//
// It knows observations, levels, watermarks and flows, and lets findings watch them. It must never
// know where frames come from, where windows go, SQL, sockets or files.
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

// maxPending is the number of observations that a stream collects before it passes them to its
// shard, which counts up to 256 at a time.
const maxPending = 256 - decode.MaxObservations

// Origin is the source of a Stream's frames, and the identity of its rows.
type Origin struct {
	Link    decode.Link      // how frames start
	Source  aggregate.Source // written with every row; the Epoch of the Settings replaces its own
	SeqBase uint64           // number of the first block

	Name     string // of the tap, for findings about live ones
	File     string // in which packets are numbered; empty for live ones, which have no numbers
	InPieces bool   // the file is read in several pieces: findings need the Passage of each
}

// Stream turns one tap's frames into rows: decoder, shard, watcher and counts. One goroutine uses it.
// Errors of Add, Pass, AdvanceTo and Flush are the sink's and final, as for Shard.Add.
type Stream struct {
	settings Settings
	tap      Tap
	origin   Origin

	decoder *decode.Decoder
	shard   *Shard           // nil if frames cannot be read, like the decoder
	watch   *finding.Watcher // nil for none
	found   []finding.Finding
	dedup   *capture.Dedup  // nil unless live and watched
	decoded decode.Counters // by earlier decoders
	tally   Tally

	result decode.Result
	// The shard reads obs[:n], which are decoded. There is always room for the observations of one more frame.
	obs    *[pendingItems + decode.MaxObservations]decode.Observation
	n      int
	survey survey // of obs[:n]
}

// NewStream makes a stream that writes its rows to the sink. Frames of a link type that is not
// Known are counted and skipped. It fails if the settings are invalid.
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
	l.obs = new([pendingItems + decode.MaxObservations]decode.Observation)
	l.survey.reset()
	return l, nil
}

// setWatch makes the stream show live frames to its watcher.
func (l *Stream) setWatch(w *finding.Watcher) {
	if l.watch, l.dedup = w, nil; w != nil && l.origin.File == "" {
		l.dedup = capture.NewDedup(capture.DefaultDedup)
	}
}

// Reset prepares a flushed stream with a known link type for other frames of its tap, as
// Shard.Reset does. Its tally and findings restart from nothing.
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

// Reconfigure continues with other settings and at another place. If rows or findings change their
// meaning, all windows close. Counts and findings continue. After an error the stream is unusable.
func (l *Stream) Reconfigure(ctx context.Context, s *Settings, tap Tap) error {
	if l.shard == nil || l.settings.Equal(s) && l.tap == tap {
		return nil
	}
	if err := l.Suspend(ctx); err != nil {
		return err
	}
	cfg, watch, err := s.shard(&tap, &l.origin)
	if err != nil {
		return err
	}
	shard, err := l.shard.Reconfigure(cfg)
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

// Add decodes frames into the stream's pending observations, and passes those on when there are
// enough. It keeps no reference to the frames and does not allocate.
func (l *Stream) Add(ctx context.Context, frames []capture.Frame) error {
	l.tally.count(frames)
	if l.shard == nil {
		l.tally.Frames[decode.UnknownLink] += uint64(len(frames))
		return nil
	}
	common := l.origin.Link == decode.Ethernet && l.tap.Mirrors == decode.Mirrors{}
	refused := uint(l.shard.refused[decode.Tag])
	for i := range frames {
		f := &frames[i]
		if l.dedup != nil && !f.NoTime {
			l.look(f)
		}
		obs := (*[decode.MaxObservations]decode.Observation)(l.obs[l.n&(pendingItems-1):])
		n, reason, is := 0, decode.OK, decode.NotPlain
		if common && f.TPID == 0 {
			n, reason, is = l.decoder.DecodePlain(f.Data, f.WireLen, obs)
		}
		if is == decode.TagAlone {
			o := &obs[0]
			SetCaptureFields(o, f)
			l.survey.addTag(o, refused)
			l.tally.Found.add(o)
			l.tally.Frames[decode.OK]++
			l.n++
		} else {
			l.addOdd(f, obs, n, reason, is)
		}
		if l.n < maxPending {
			continue
		}
		if err := l.Pass(ctx); err != nil {
			return err
		}
	}
	return nil
}

// addOdd adds a frame that has not just a tag. The last three are the results of DecodePlain; addOdd
// decodes a frame that is NotPlain.
func (l *Stream) addOdd(f *capture.Frame, obs *[decode.MaxObservations]decode.Observation, n int, reason decode.Reason, is decode.Plainness) {
	if is == decode.NotPlain {
		r, in := &l.result, FrameOf(f)
		r.Obs = obs[:]
		l.decoder.DecodeFrame(decode.Framing{Link: l.origin.Link, Mirrors: l.tap.Mirrors}, &in, r)
		n, reason = r.N, r.Reason
		if r.Carrier > 0 && l.shard.refused[decode.Tag] != 0 {
			n = l.refuseCarrier(obs[:n], r.Carrier)
		}
	}
	l.tally.Frames[reason]++
	for i := range obs[:n] {
		o := &obs[i]
		SetCaptureFields(o, f)
		l.survey.add(l.n+i, o, &l.shard.refused)
		l.tally.Found.add(o)
	}
	l.n += n
}

// refuseCarrier rejects the tags of the packet that carries a mirrored frame, which come first in obs. The tap does not
// see whole paths: its place is where the switch mirrors the inner frame, and says nothing about the carrier. It returns the number of
// the observations that it leaves in obs.
func (l *Stream) refuseCarrier(obs []decode.Observation, tags int) (n int) {
	for i := range obs {
		if i < tags && obs[i].Flags&decode.Orphan == 0 {
			l.tally.Found.add(&obs[i])
			l.shard.refusePlace()
			continue
		}
		obs[n] = obs[i]
		n++
	}
	return n
}

// Frames are compared with those shortly before them during 2 ms of each 537 ms. The comparison
// reads all their bytes, so this keeps its average cost negligible.
const (
	compareShift = 21  // duration of a comparison: 2^21 ns
	compareEach  = 256 // one in this many intervals
)

// look shows a live frame to the watcher.
func (l *Stream) look(f *capture.Frame) {
	l.watch.ObserveTime(f.TimeNS)
	if f.TimeNS>>compareShift%compareEach == 0 {
		repeated := l.dedup.Seen(f)
		l.watch.ObserveContent(f.TimeNS, l.dedup.Content(), repeated)
	}
}

// Pass passes the stream's observations to its shard.
func (l *Stream) Pass(ctx context.Context) error {
	if l.n == 0 {
		return nil
	}
	err := l.shard.addDecoded(ctx, l.obs[:l.n], &l.survey)
	l.n = 0
	l.survey.reset()
	if err != nil {
		return fmt.Errorf("aggregate observations: %w", err)
	}
	return nil
}

// RejectAfter rejects observations of frames after a time (Unix ns), as Shard.RejectAfter does.
func (l *Stream) RejectAfter(ns int64) {
	if l.shard != nil {
		l.shard.RejectAfter(ns)
	}
}

// AdvanceTo adds all pending observations and closes the windows that are due by a time (Unix ns),
// as Shard.AdvanceTo does.
func (l *Stream) AdvanceTo(ctx context.Context, ns int64) error {
	if err := l.Pass(ctx); err != nil || l.shard == nil {
		return err
	}
	return l.shard.AdvanceTo(ctx, ns)
}

// WriteProvisional gives the sink provisional rows, as Shard.WriteProvisional does. Call it after
// AdvanceTo.
func (l *Stream) WriteProvisional(to aggregate.ProvisionalSink) {
	if l.shard != nil {
		l.shard.WriteProvisional(to)
	}
}

// NextLive returns the time of the next useful AdvanceTo and WriteProvisional; see Shard.NextLive.
func (l *Stream) NextLive(from int64) int64 {
	if l.shard == nil {
		return math.MaxInt64
	}
	return l.shard.NextLive(from)
}

// Flush adds all pending observations and closes all windows.
func (l *Stream) Flush(ctx context.Context) error {
	if err := l.Pass(ctx); err != nil || l.shard == nil {
		return err
	}
	return l.shard.Flush(ctx)
}

// Suspend adds all pending observations and closes all windows, as Shard.Suspend does.
func (l *Stream) Suspend(ctx context.Context) error {
	if err := l.Pass(ctx); err != nil || l.shard == nil {
		return err
	}
	return l.shard.Suspend(ctx)
}

// Restart adds all pending observations, closes all windows and forgets the watermark, as Shard.Restart
// does.
func (l *Stream) Restart(ctx context.Context) error {
	if err := l.Pass(ctx); err != nil || l.shard == nil {
		return err
	}
	return l.shard.Restart(ctx)
}

// Shard returns the stream's shard; nil if its frames cannot be read.
func (l *Stream) Shard() *Shard { return l.shard }

// Tap returns the stream's tap.
func (l *Stream) Tap() Tap { return l.tap }

// Origin returns the origin of its frames.
func (l *Stream) Origin() Origin { return l.origin }

// Tally returns the stream's counts of frames. It may be set between calls.
func (l *Stream) Tally() *Tally { return &l.tally }

// Decoded returns the counts of all its decoders since NewStream.
func (l *Stream) Decoded() decode.Counters {
	c := l.decoded
	if l.decoder != nil {
		now := l.decoder.Counters()
		c.Add(&now)
	}
	return c
}

// Counts returns the shard's counts.
func (l *Stream) Counts() aggregate.Counts {
	if l.shard == nil {
		return aggregate.Counts{}
	}
	return l.shard.Counts()
}

// Findings returns the findings since NewStream or Reset, with those of Resume.
func (l *Stream) Findings() []finding.Finding {
	if l.watch == nil {
		return l.found
	}
	return l.watch.Findings()
}

// Passage returns a file piece's contribution to findings over several pieces, nil if nothing is
// checked. Only with Origin.InPieces.
func (l *Stream) Passage() *finding.Passage {
	if l.watch == nil {
		return nil
	}
	return l.watch.Passage()
}

// Resume adds the findings of an earlier stream of the tap. It keeps the list.
func (l *Stream) Resume(found []finding.Finding) {
	l.found = found
	if l.watch != nil {
		l.watch.Resume(found)
	}
}

// LinkOf returns the link type of a capture interface; ok is false for one that the decoder cannot
// read.
func LinkOf(interfaces []capture.Interface, index uint32) (link decode.Link, ok bool) {
	link = decode.Link(interfaces[index].Link)
	return link, link.Known()
}

// FrameOf returns the decoder's view of a captured frame.
func FrameOf(f *capture.Frame) decode.Frame {
	return decode.Frame{Data: f.Data, WireLen: f.WireLen, TPID: f.TPID, TCI: f.TCI}
}

// SetCaptureFields sets the fields of an observation that come from the capture.
func SetCaptureFields(o *decode.Observation, f *capture.Frame) {
	o.TimeNS, o.Packet = f.TimeNS, f.Packet
	if f.NoTime {
		o.Flags |= decode.NoTime
	}
}
