package local

import (
	"context"
	"log/slog"
	"time"
)

const (
	// watchEvery is the interval between checks of WatchTags.
	watchEvery = time.Second
	// silentFor and silentPackets are the time and the number of packets without CSIG after
	// which WatchTags warns.
	silentFor     = 30 * time.Second
	silentPackets = 1000
)

// TagSource supplies the counts for WatchTags.
type TagSource struct {
	// Packets returns the number of packets that passed the taps, including those that the
	// kernel filtered out. It is called until the warning is logged.
	Packets func() uint64
	// Seen returns the numbers of decoded tags and reflections.
	Seen func() (tags, reflections uint64)
	// About describes the taps for the log.
	About func() []slog.Attr
}

// WatchTags warns once if packets arrive without CSIG, and then logs the first one that has it.
// It returns when ctx ends.
func WatchTags(ctx context.Context, of TagSource, logger *slog.Logger) {
	tick := time.Tick(watchEvery)
	for w := (tagWatch{}); !w.over; {
		select {
		case <-ctx.Done():
			return
		case now := <-tick:
			var packets uint64
			if !w.warned {
				packets = of.Packets()
			}
			tags, reflections := of.Seen()
			switch w.evaluate(now, packets, tags+reflections) {
			case tagsMissing:
				logger.LogAttrs(ctx, slog.LevelWarn, "packets come, but none of them has a CSIG tag or reflection", append(of.About(),
					slog.String("hint", "list other TPIDs under csig: tpids in the file of --config, and tap where packets still have tags: not behind a switch or a network card that strips them"))...)
			case tagsCame:
				logger.LogAttrs(ctx, slog.LevelWarn, "first CSIG tag or reflection seen", slog.Uint64("tags", tags), slog.Uint64("reflections", reflections))
			}
		}
	}
	<-ctx.Done()
}

// tagWatch decides when to log. Its zero value is ready.
type tagWatch struct {
	began  time.Time
	from   uint64 // packets at that time
	warned bool   // the warning was logged
	over   bool   // CSIG was seen
}

// tagWord is a result of evaluate.
type tagWord uint8

const (
	tagsNothingNew tagWord = iota
	tagsMissing
	tagsCame
)

// evaluate compares the numbers of packets and observations so far. It ignores packets after
// tagsMissing.
func (w *tagWatch) evaluate(now time.Time, packets, observations uint64) tagWord {
	switch {
	case w.over:
	case observations > 0:
		if w.over = true; w.warned {
			return tagsCame
		}
	case w.warned:
	case w.began.IsZero() || packets < w.from: // the counter of a re-created interface restarts at 0
		w.began, w.from = now, packets
	case now.Sub(w.began) >= silentFor && packets-w.from >= silentPackets:
		w.warned = true
		return tagsMissing
	}
	return tagsNothingNew
}
