package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/capture"
)

const (
	// silentFor and silentPackets are how long, and over how many packets, no CSIG is to be
	// seen before that is worth a word.
	silentFor     = 30 * time.Second
	silentPackets = 1000
)

// tagWatch tells once that packets come and none of them carries CSIG, and then when the
// first one does. Its zero value watches from the first look on.
type tagWatch struct {
	began time.Time
	from  uint64 // packets at that time
	told  bool   // that there is no CSIG
	over  bool   // it has come
}

// tagWord is what a look comes to.
type tagWord uint8

const (
	tagsNothingNew tagWord = iota
	tagsMissing
	tagsCame
)

// look is told how many packets and observations there have been by now. Packets mean
// nothing any more once they were told of.
func (w *tagWatch) look(now time.Time, packets, observations uint64) tagWord {
	switch {
	case w.over:
	case observations > 0:
		if w.over = true; w.told {
			return tagsCame
		}
	case w.told:
	case w.began.IsZero() || packets < w.from: // an interface that was made anew counts anew
		w.began, w.from = now, packets
	case now.Sub(w.began) >= silentFor && packets-w.from >= silentPackets:
		w.told = true
		return tagsMissing
	}
	return tagsNothingNew
}

// watchTags tells who watches the log that there is no CSIG, until some comes or ctx ends.
func (c *capturing) watchTags(ctx context.Context) error {
	ticker := time.NewTicker(pulse)
	defer ticker.Stop()
	for w := (tagWatch{}); !w.over; {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			var packets uint64
			if !w.told {
				packets = c.passed()
			}
			switch d := c.live.Stats().Decoded(); w.look(now, packets, d.Tags+d.Reflections) {
			case tagsMissing:
				c.logger.Warn("packets come, but none of them has a CSIG tag or reflection",
					slog.String("tpids", tpidList(c.using.Load().domain)), slog.String("taps", c.open.Load().String()),
					slog.String("hint", "tags of other TPIDs go into csig: tpids of --config; tap where tags pass: not behind a switch or a network card that strips them"))
			case tagsCame:
				c.logger.Warn("CSIG comes now", slog.Uint64("tags", d.Tags), slog.Uint64("reflections", d.Reflections))
			}
		}
	}
	<-ctx.Done()
	return nil
}

// passed is how many packets have passed the taps. Most of those without CSIG the kernel
// keeps from them, so that interfaces are asked.
func (c *capturing) passed() (packets uint64) {
	if len(*c.open.Load()) == 0 {
		return 0 // a collector of exporters alone, which systemd may keep from asking
	}
	passed, err := capture.Passed()
	if err != nil {
		c.logger.Debug("interfaces are not asked", slog.String("error", err.Error()))
	}
	for _, t := range *c.open.Load() {
		_, from := t.At("")
		packets += max(passed[from], t.Counters().Frames) // a mirror's address is no interface
	}
	return packets
}

// prefixWatch finds out when to say that there is no room for prefixes of addresses. Its zero
// value watches from the first look on.
type prefixWatch struct {
	of   *fabric.Fabric
	said fabric.Counts
	at   time.Time
}

// sayPrefixes is how often there is a word about prefixes, at most.
const sayPrefixes = time.Minute

// look is given the counts of the fabric in use, and returns what came since it said something
// last; ok is false when there is nothing to say, or not yet.
func (w *prefixWatch) look(now time.Time, f *fabric.Fabric, n fabric.Counts) (unknown, forgotten uint64, ok bool) {
	if w.of != f {
		w.of, w.said = f, fabric.Counts{}
	}
	unknown, forgotten = n.GroupFallbacks-w.said.GroupFallbacks, n.GroupsForgotten-w.said.GroupsForgotten
	if unknown+forgotten == 0 || !w.at.IsZero() && now.Sub(w.at) < sayPrefixes {
		return 0, 0, false
	}
	w.said, w.at = n, now
	return unknown, forgotten, true
}

// watchPrefixes says in the log when there is no room for prefixes of addresses, or idle ones
// are forgotten for others, until ctx ends.
func (c *capturing) watchPrefixes(ctx context.Context) error {
	ticker := time.NewTicker(pulse)
	defer ticker.Stop()
	for w := (prefixWatch{}); ; {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			f := c.using.Load().fabric
			if unknown, forgotten, ok := w.look(now, f, f.Counts()); ok {
				c.logger.Warn("too many prefixes of addresses: new ones are in the group unknown until they go on talking",
					slog.Uint64("addresses_looked_up_in_vain", unknown), slog.Uint64("idle_prefixes_forgotten", forgotten),
					slog.String("hint", "a fabric file with groups (--fabric) has no such bound; many sources that come once are made up"))
			}
		}
	}
}
