package local

import (
	"context"
	"log/slog"
	"time"
)

const (
	// watchEvery is how often WatchTags looks.
	watchEvery = time.Second
	// silentFor and silentPackets are how long, and over how many packets, no CSIG is to be
	// seen before that is worth a word.
	silentFor     = 30 * time.Second
	silentPackets = 1000
)

// TagSource has the counts that WatchTags watches.
type TagSource struct {
	// Packets counts those that have passed the taps, also those that the kernel keeps from
	// them. It is called until it was said that there is no CSIG.
	Packets func() uint64
	// Seen counts decoded tags and reflections.
	Seen func() (tags, reflections uint64)
	// About says which taps these are.
	About func() []slog.Attr
}

// WatchTags says in the log, once, that packets come and none of them carries CSIG, and then
// when the first one does. It returns when ctx ends.
func WatchTags(ctx context.Context, of TagSource, logger *slog.Logger) {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for w := (tagWatch{}); !w.over; {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			var packets uint64
			if !w.told {
				packets = of.Packets()
			}
			tags, reflections := of.Seen()
			switch w.look(now, packets, tags+reflections) {
			case tagsMissing:
				logger.LogAttrs(ctx, slog.LevelWarn, "packets come, but none of them has a CSIG tag or reflection", append(of.About(),
					slog.String("hint", "tags of other TPIDs go into csig: tpids of --config; tap where tags pass: not behind a switch or a network card that strips them"))...)
			case tagsCame:
				logger.LogAttrs(ctx, slog.LevelWarn, "first CSIG tag or reflection seen", slog.Uint64("tags", tags), slog.Uint64("reflections", reflections))
			}
		}
	}
	<-ctx.Done()
}

// tagWatch finds out when to say so. Its zero value watches from the first look on.
type tagWatch struct {
	began time.Time
	from  uint64 // packets at that time
	told  bool   // that there is no CSIG
	over  bool   // it has come
}

// tagWord is the result of a look.
type tagWord uint8

const (
	tagsNothingNew tagWord = iota
	tagsMissing
	tagsCame
)

// look takes the number of packets and observations so far. Packets are ignored after
// tagsMissing.
func (w *tagWatch) look(now time.Time, packets, observations uint64) tagWord {
	switch {
	case w.over:
	case observations > 0:
		if w.over = true; w.told {
			return tagsCame
		}
	case w.told:
	case w.began.IsZero() || packets < w.from: // an interface that was made again counts from 0
		w.began, w.from = now, packets
	case now.Sub(w.began) >= silentFor && packets-w.from >= silentPackets:
		w.told = true
		return tagsMissing
	}
	return tagsNothingNew
}
