package window

import (
	"net/netip"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// Watch looks for what is out of the ordinary. It says of what a shard meets for the first
// time whether that is, and is handed those observations and windows that close: where all
// is well a shard asks it next to nothing. One shard uses it.
type Watch interface {
	// Strange reports whether all observations of a source are to be watched. A shard
	// remembers the answer.
	Strange(src netip.Addr) bool
	// SourceBits are how many leading bits of an IPv4 and of an IPv6 address Strange depends on.
	// They never change.
	SourceBits() (v4, v6 int)
	// From is the least code (csig.Table.Code) from which values that name a location are
	// to be watched; 0 for all of them, aggregate.NotWatched for none. A shard remembers the answer.
	From(t *csig.Table, at aggregate.LocationID, capacity uint64) uint32
	// Watched takes observations. The list is the shard's again when it returns.
	Watched(list []aggregate.Watched)
	// Closed takes the rows of a window that closes, in which each observation counts weight
	// times. The block is the shard's again when it returns.
	Closed(b *aggregate.Block, weight uint64)
}

// watching is what a shard has to hand to its Watch.
type watching struct {
	sent    bool   // the tap is at senders
	longest uint32 // bytes of a packet with a tag without D
	list    [2 * pendingItems]aggregate.Watched
	n       int
}

// notice puts an observation on the list.
func (s *Shard) notice(w aggregate.Watched) {
	l := s.watching
	if l.n == len(l.list) {
		s.handOver()
	}
	l.list[l.n] = w
	l.n++
}

// handOver gives the list to the Watch.
func (s *Shard) handOver() {
	if l := s.watching; l != nil && l.n > 0 {
		s.cfg.Watch.Watched(l.list[:l.n])
		l.n = 0
	}
}

// noticeTags puts the batch's observations with reserved bits on the list, and the tags of
// packets that are the longest so far, or have D and are nine tenths as long.
func (s *Shard) noticeTags() {
	l := s.watching
	if l == nil {
		return
	}
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

// noticeSent puts a tag that a tap at a sender sees on the list if the sender wrote more
// than the initial value.
func (s *Shard) noticeSent(o *decode.Observation) {
	if s.watching == nil || !s.watching.sent || o.Kind != decode.Tag {
		return
	}
	tr := &s.traits[(layoutIndex(o.Tag.Layout)<<4|uint(o.Tag.T&15))&(numTraits-1)]
	if tr.table != nil && o.Tag.S != tr.initial && !o.Tag.D {
		s.notice(aggregate.Watched{Observation: o, Why: aggregate.WatchedSent})
	}
}

// watchFrom returns the least code from which observations of a key are noticed.
func (s *Shard) watchFrom(k lookupKey, at aggregate.LocationID, capacity uint64) uint32 {
	switch {
	case s.watching == nil || k.src() == 0:
		return aggregate.NotWatched
	case s.ends.strange[k.src()]:
		return 0
	case k.class() == classValue && at != aggregate.NoLocation:
		return s.cfg.Watch.From(s.traits[k.traits()].table, at, capacity)
	}
	return aggregate.NotWatched
}

// noticeItem puts a pending item on the list if its key is watched: for its source, and for its value.
func (s *Shard) noticeItem(it *pendingItem, key *keySeries) {
	if it.code&codeBits < key.watch {
		return
	}
	o := &s.batch[it.obs]
	if s.ends.strange[it.key.src()] {
		s.notice(aggregate.Watched{Observation: o, Why: aggregate.WatchedSource})
	}
	if it.key.class() != classValue {
		return
	}
	at := s.series.brief[key.series].loc
	if at == aggregate.OverflowLocation {
		src, dst := measured(o)
		at, _ = s.cfg.Resolver.Locate(o.Tag.Layout, o.Tag.T&15, o.Tag.LM, src, dst)
	}
	if at != aggregate.NoLocation {
		s.notice(aggregate.Watched{Observation: o, Why: aggregate.WatchedValue, Location: at})
	}
}
