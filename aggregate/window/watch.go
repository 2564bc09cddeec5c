package window

import (
	"net/netip"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// Watch looks for unusual observations. For new sources and locations it chooses the observations
// to watch; then the shard passes it these observations and the closing windows. If nothing is
// unusual, it is hardly called. One shard uses it.
type Watch interface {
	// Suspicious reports whether to watch all observations of a source. A shard remembers the
	// result.
	Suspicious(src netip.Addr) bool
	// SourceBits returns the numbers of leading bits of an IPv4 and of an IPv6 address on which
	// Suspicious depends. They never change.
	SourceBits() (v4, v6 int)
	// WatchFrom returns the least watched code (csig.Table.Code) of values that name a location; 0
	// for all, aggregate.NotWatched for none. A shard remembers the result.
	WatchFrom(t *csig.Table, at aggregate.LocationID, capacity uint64) uint32
	// Watched takes observations. The list belongs to the shard again when it returns.
	Watched(list []aggregate.Watched)
	// Closed takes the rows of a closing window, in which each observation counts weight times. The
	// block belongs to the shard again when it returns.
	Closed(b *aggregate.Block, weight uint64)
}

// watching is a shard's state for its Watch.
type watching struct {
	sent    bool   // the tap is at a sender
	longest uint32 // length in bytes of the longest packet with a tag without D
	list    [2 * pendingItems]aggregate.Watched
	n       int
}

// notice adds an observation to the list.
func (s *Shard) notice(w aggregate.Watched) {
	l := s.watching
	if l.n == len(l.list) {
		s.flushWatched()
	}
	l.list[l.n] = w
	l.n++
}

// flushWatched passes the list to the Watch.
func (s *Shard) flushWatched() {
	if l := s.watching; l != nil && l.n > 0 {
		s.cfg.Watch.Watched(l.list[:l.n])
		l.n = 0
	}
}

// noticeTags lists the batch's observations with reserved bits, and the tags of packets that are
// the longest so far, or have D and are at least nine tenths as long.
func (s *Shard) noticeTags() {
	l := s.watching
	for i := range s.batch {
		o := &s.batch[i]
		if o.Tag.R == 0 && !o.Tag.D && o.Bytes <= l.longest || o.Flags&decode.Orphan != 0 || layoutIndex(o.Tag.Layout) >= csig.NumLayouts {
			continue
		}
		if o.Tag.R != 0 {
			s.notice(aggregate.Watched{Observation: o, Why: aggregate.WatchedReserved})
		}
		switch {
		case o.Kind != decode.Tag || !s.cfg.Tags:
		case o.Tag.D && 10*uint64(o.Bytes) >= 9*uint64(l.longest), !o.Tag.D && o.Bytes > l.longest:
			s.notice(aggregate.Watched{Observation: o, Why: aggregate.WatchedLength})
			if !o.Tag.D {
				l.longest = o.Bytes
			}
		}
	}
}

// noticeSent lists a tag seen at a sender if the sender wrote another value than the initial one.
func (s *Shard) noticeSent(o *decode.Observation) {
	if s.watching == nil || !s.watching.sent || o.Kind != decode.Tag {
		return
	}
	info := &s.signals[(layoutIndex(o.Tag.Layout)<<4|uint(o.Tag.T&15))&(numSignalInfos-1)]
	if info.table != nil && o.Tag.S != info.initial && !o.Tag.D {
		s.notice(aggregate.Watched{Observation: o, Why: aggregate.WatchedSent})
	}
}

// watchFrom returns the least watched code for a key.
func (s *Shard) watchFrom(k lookupKey, at aggregate.LocationID, capacity uint64) uint32 {
	switch {
	case s.watching == nil || k.src() == 0:
		return aggregate.NotWatched
	case s.endpoints.suspicious[k.src()]:
		return 0
	case k.class() == classValue && at != aggregate.NoLocation:
		return s.cfg.Watch.WatchFrom(s.signals[k.signalIndex()].table, at, capacity)
	}
	return aggregate.NotWatched
}

// noticeItem lists a pending item whose code is watched: for its source, and for its value.
func (s *Shard) noticeItem(it *pendingItem) {
	o := &s.batch[it.obs]
	if s.endpoints.suspicious[it.key.src()] {
		s.notice(aggregate.Watched{Observation: o, Why: aggregate.WatchedSource})
	}
	if it.key.class() != classValue {
		return
	}
	at := s.series.brief[it.series].loc
	if at == aggregate.OverflowLocation {
		src, dst := measured(o)
		at, _ = s.cfg.Resolver.Locate(o.Tag.Layout, o.Tag.T&15, o.Tag.LM, src, dst)
	}
	if at != aggregate.NoLocation {
		s.notice(aggregate.Watched{Observation: o, Why: aggregate.WatchedValue, Location: at})
	}
}
