package window

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/decode"
)

// Tap says how the packets of a capture interface count.
type Tap struct {
	// Tags seen here have passed the whole path, Reflections have arrived at the original
	// sender. Observations of other kinds are rejected.
	Tags, Reflections bool

	Weight uint64 // each packet stands for so many (1/N tagging, sampled mirrors); at most aggregate.MaxWeight
	Place  string // what it is called: receiver, sender (where tags have initial values) or mid
	// Mirrors are sessions that frames are taken out of. In others, tags are orphans.
	Mirrors decode.Mirrors
}

// The places that matter here.
const (
	receiver = "receiver" // at the end of all paths
	sender   = "sender"   // at the beginning
)

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

// Settings are what all streams of a replay or of a host have in common. Fields without a
// comment are as in Config.
type Settings struct {
	Decode   decode.Config
	Resolver aggregate.Resolver
	Epoch    uint64 // hash of the configuration that Decode and Resolver were made of

	Resolutions     []time.Duration
	FineHeavyOnly   bool
	MaxKeys         int
	Flows           FlowLimits
	LocateUntouched bool

	// Finding, unless nil, is what single observations are looked at for; see
	// finding.Watcher.
	Finding *finding.Config
}

// Equal reports whether rows and findings mean the same under both settings. Those of one
// epoch decode and resolve alike.
func (s *Settings) Equal(o *Settings) bool {
	return s.Epoch == o.Epoch && slices.Equal(s.Resolutions, o.Resolutions) && s.FineHeavyOnly == o.FineHeavyOnly &&
		s.MaxKeys == o.MaxKeys && s.Flows == o.Flows && s.LocateUntouched == o.LocateUntouched && sameFinding(s.Finding, o.Finding)
}

func sameFinding(a, b *finding.Config) bool {
	if a == nil || b == nil {
		return a == b
	}
	return slices.Equal(a.Senders, b.Senders) && a.MaxSubjects == b.MaxSubjects
}

// shard is the configuration of a tap's shard, and the watcher in it, nil for none.
func (s *Settings) shard(tap *Tap, from *Origin) (cfg Config, watch *finding.Watcher, err error) {
	cfg = Config{
		Domain: s.Decode.Domain, Resolver: s.Resolver, Source: from.Source, SeqBase: from.SeqBase,
		Resolutions: s.Resolutions, FineHeavyOnly: s.FineHeavyOnly, MaxKeys: s.MaxKeys, Flows: s.Flows,
		LocateUntouched: s.LocateUntouched, Tap: *tap,
	}
	cfg.Source.Epoch = s.Epoch
	if s.Finding == nil {
		return cfg, nil, nil
	}
	if watch, err = finding.NewWatcher(*s.Finding, from.File); err != nil {
		return cfg, nil, fmt.Errorf("watch tap: %w", err)
	}
	if from.InPieces {
		watch.InPieces()
	}
	cfg.Watch = watch
	return cfg, watch, nil
}
