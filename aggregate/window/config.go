package window

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// Limits of a Config.
const (
	// MinResolution is the shortest window: below it the error of capture clocks
	// exceeds the window.
	MinResolution = 100 * time.Microsecond
	// MaxResolution is the longest window.
	MaxResolution = 24 * time.Hour
	// DefaultMaxSeries is the default of Config.MaxSeries.
	DefaultMaxSeries = 1 << 20
	// MaxSeriesBudget bounds Config.MaxSeries.
	MaxSeriesBudget = 1 << 21
	// DefaultUDPRepeat is longer than the interval between copies of a packet. It is so short that
	// few measurements of a path within it need to be separate.
	DefaultUDPRepeat = 10 * time.Microsecond
	// MaxUDPRepeat bounds Config.UDPRepeat.
	MaxUDPRepeat = time.Minute

	// maxLateWindows bounds the number of windows that a lateness keeps open.
	maxLateWindows = 10000
	// maxDuration bounds the horizon and the distance ahead of the watermark.
	maxDuration = 366 * MaxResolution
	// fineBelow is the resolution below which FineHeavyOnly applies.
	fineBelow = time.Second
)

// Config is the configuration of a Shard. The zero value of a field with a default means that
// default.
type Config struct {
	Domain   *csig.Domain       // required
	Resolver aggregate.Resolver // required
	Source   aggregate.Source   // copied into every block
	SeqBase  uint64             // Block.Seq of the first block

	// Resolutions are the lengths of the windows, ascending, each a divisor of the
	// next, from MinResolution to MaxResolution. Default: 1 s and 1 min.
	Resolutions []time.Duration
	// FineHeavyOnly reduces the volume of resolutions below 1 s: their blocks hold only rows of
	// cells (source group, destination group, signal, kind) that had a heavy observation in the
	// block. Coarser resolutions remain complete, and one of them has to be configured.
	FineHeavyOnly bool
	// Lateness is how long windows of each resolution stay open after their end, by the watermark;
	// not descending. Default: two windows, at least 50 ms.
	Lateness []time.Duration
	// Horizon is the largest distance behind the watermark at which an observation still counts, as
	// a delta of a closed window. Default: 5 min.
	Horizon time.Duration
	// MaxAhead is the largest distance ahead of the watermark at which an observation is not
	// quarantined. Default: 1 min.
	MaxAhead time.Duration
	// MaxSeries is the number of series that a shard holds; further ones go to overflow rows.
	// Default: 1<<20, at most MaxSeriesBudget.
	MaxSeries int
	// Flows is the number of flows that the blocks of windows of 1 s and longer name. Default:
	// none.
	Flows FlowLimits

	// Watch, unless nil, gets the unusual observations. It changes no window.
	Watch Watch

	Tap // how observations count; its Weight is 1 by default, and its mirrors are ignored
	// LocateUntouched keeps the locator metadata of untouched tags as their location,
	// for fabrics whose first hop may write the initial value
	// (draft-tian-ccwg-ibcs-datapath-processing-00). They never count as heavy.
	LocateUntouched bool
	// UDPRepeat is the time within which a reflection without an acknowledgement number is a repeat
	// of one of its flow with the same fields; 0 for none, at most MaxUDPRepeat.
	UDPRepeat time.Duration
}

// withDefaults returns the configuration with defaults filled in, or an error.
func (c Config) withDefaults() (Config, error) {
	if c.Domain == nil || c.Resolver == nil {
		return c, errors.New("domain and resolver: both are required")
	}
	c.Resolutions = slices.Clone(resolutionsOf(c.Resolutions))
	if err := CheckResolutions(c.Resolutions, c.FineHeavyOnly); err != nil {
		return c, err
	}
	if c.Lateness == nil {
		for _, r := range c.Resolutions {
			c.Lateness = append(c.Lateness, defaultLateness(r))
		}
	}
	c.Lateness = slices.Clone(c.Lateness)
	if err := c.checkLateness(); err != nil {
		return c, err
	}
	c.Horizon = cmp.Or(c.Horizon, 5*time.Minute)
	c.MaxAhead = cmp.Or(c.MaxAhead, time.Minute)
	c.MaxSeries = cmp.Or(c.MaxSeries, DefaultMaxSeries)
	c.Weight = cmp.Or(c.Weight, 1)
	var err error
	if c.Flows, err = c.Flows.WithDefaults(); err != nil {
		return c, err
	}
	if c.Horizon < 0 || c.MaxAhead < 0 {
		return c, fmt.Errorf("horizon %s, max ahead %s: expected no negative duration", c.Horizon, c.MaxAhead)
	}
	if c.Horizon > maxDuration || c.MaxAhead > maxDuration {
		return c, fmt.Errorf("horizon %s, max ahead %s: expected at most %s", c.Horizon, c.MaxAhead, maxDuration)
	}
	if c.UDPRepeat < 0 || c.UDPRepeat > MaxUDPRepeat {
		return c, fmt.Errorf("udp repeat %s: expected 0 to %s", c.UDPRepeat, MaxUDPRepeat)
	}
	return c, errors.Join(aggregate.CheckWeight(c.Weight), checkMaxSeries(c.MaxSeries))
}

// Check returns the error for a configuration that NewShard refuses.
func (c Config) Check() error {
	_, err := c.withDefaults()
	return err
}

// resolutionsOf returns the resolutions, or the default ones.
func resolutionsOf(list []time.Duration) []time.Duration {
	if len(list) > 0 {
		return list
	}
	return []time.Duration{time.Second, time.Minute}
}

// MinLateness is the least default lateness of windows.
const MinLateness = 50 * time.Millisecond

func defaultLateness(resolution time.Duration) time.Duration { return max(2*resolution, MinLateness) }

// LatenessOf returns how long windows of a resolution stay open after their end.
func (s *Settings) LatenessOf(resolution time.Duration) time.Duration {
	lateness := defaultLateness(resolution)
	switch live := cmp.Or(s.Lateness, defaultLateness(aggregate.LiveResolution)); {
	case resolution < aggregate.LiveResolution:
		return min(lateness, live)
	case resolution > aggregate.LiveResolution:
		return max(lateness, live)
	default:
		return live
	}
}

// checkMaxSeries returns an error for a Config.MaxSeries out of range.
func checkMaxSeries(n int) error {
	if n < 1 || n > MaxSeriesBudget {
		return fmt.Errorf("%d series: expected 1 to %d", n, MaxSeriesBudget)
	}
	return nil
}

// CheckResolutions checks the Resolutions, at least one, and FineHeavyOnly of a Config.
func CheckResolutions(list []time.Duration, fineHeavyOnly bool) error {
	if len(list) == 0 {
		return errors.New("expected at least one length of windows")
	}
	for i, r := range list {
		if r < MinResolution || r > MaxResolution {
			return fmt.Errorf("resolution %s: expected %s to %s", r, MinResolution, MaxResolution)
		}
		if i > 0 && (r <= list[i-1] || r%list[i-1] != 0) {
			return fmt.Errorf("resolution %s: expected a multiple of the finer one, %s", r, list[i-1])
		}
	}
	if coarsest := list[len(list)-1]; fineHeavyOnly && coarsest < fineBelow {
		return fmt.Errorf("resolution %s: heavy cells only would leave no complete resolution; add one of at least %s", coarsest, fineBelow)
	}
	return nil
}

func (c *Config) checkLateness() error {
	if len(c.Lateness) != len(c.Resolutions) {
		return fmt.Errorf("lateness: %d given for %d resolutions", len(c.Lateness), len(c.Resolutions))
	}
	for i, l := range c.Lateness {
		if l < 0 || l > maxLateWindows*c.Resolutions[i] {
			return fmt.Errorf("lateness %s at resolution %s: expected 0 to %d windows", l, c.Resolutions[i], maxLateWindows)
		}
		if i > 0 && l < c.Lateness[i-1] {
			return fmt.Errorf("lateness %s at resolution %s: below that of the finer one, %s", l, c.Resolutions[i], c.Lateness[i-1])
		}
	}
	return nil
}

// Tap says how the packets of a capture interface count.
type Tap struct {
	// Tags admits tags: they have passed the whole path here. Reflections admits reflections: they
	// measure whole paths wherever they are captured. Observations of other kinds are rejected.
	Tags, Reflections bool

	Weight uint64 // number of packets for which one observation stands (1/N tagging, sampled mirrors); at most aggregate.MaxWeight
	Place  string // its name: receiver, sender (where tags have initial values) or mid
	// ObservationPoint is the number of the point in the middle of the fabric where flows are seen
	// for aggregate.PathResolver; 0: none.
	ObservationPoint uint32
	// Mirrors are the sessions that are decapsulated. Tags in other sessions are orphans.
	Mirrors decode.Mirrors
}

// The places that matter here.
const (
	receiver = "receiver" // at the end of all paths
	sender   = "sender"   // at the beginning
)

// TapAt returns the Tap for a place, "" for a receiver, with a weight of at least 1. Only whole
// paths may enter the heatmaps: reflections, and tags at the receiver.
func TapAt(place string, weight uint64) Tap {
	return Tap{Weight: 1}.With(cmp.Or(place, receiver), weight)
}

// With returns the tap at another place or with another weight; "" and 0 change nothing.
func (t Tap) With(place string, weight uint64) Tap {
	if place != "" {
		t.Tags, t.Reflections, t.Place = place == receiver, true, place
	}
	t.Weight = cmp.Or(weight, t.Weight)
	return t
}

// Settings are shared by all streams of a replay or of a host. Fields without a comment are as in
// Config.
type Settings struct {
	Decode   decode.Config
	Resolver aggregate.Resolver
	Epoch    uint64 // hash of the configuration behind Decode and Resolver

	Resolutions []time.Duration
	// Lateness applies to windows of aggregate.LiveResolution; 0 is the default. It is an upper
	// bound for shorter windows and a lower bound for longer ones.
	Lateness        time.Duration
	FineHeavyOnly   bool
	MaxSeries       int
	Flows           FlowLimits
	LocateUntouched bool
	UDPRepeat       time.Duration

	// Finding, unless nil, configures the checks of single observations; see finding.Watcher.
	Finding *finding.Config
}

// Finest is the length of the shortest windows.
func (s *Settings) Finest() time.Duration { return resolutionsOf(s.Resolutions)[0] }

// Equal reports whether rows and findings have the same meaning under both settings, and the same resolver names
// them. Settings of one epoch decode alike.
func (s *Settings) Equal(o *Settings) bool {
	return s.Epoch == o.Epoch && s.Resolver == o.Resolver && slices.Equal(s.Resolutions, o.Resolutions) && s.Lateness == o.Lateness && s.FineHeavyOnly == o.FineHeavyOnly &&
		s.MaxSeries == o.MaxSeries && s.Flows == o.Flows && s.LocateUntouched == o.LocateUntouched &&
		s.UDPRepeat == o.UDPRepeat && sameFinding(s.Finding, o.Finding)
}

func sameFinding(a, b *finding.Config) bool {
	if a == nil || b == nil {
		return a == b
	}
	return slices.Equal(a.Senders, b.Senders) && a.MaxSubjects == b.MaxSubjects
}

// Config returns the configuration of a tap's shard, without a Watch.
func (s *Settings) Config(tap Tap) Config {
	cfg := Config{
		Domain: s.Decode.Domain, Resolver: s.Resolver, Source: aggregate.Source{Epoch: s.Epoch},
		Resolutions: s.Resolutions, FineHeavyOnly: s.FineHeavyOnly, MaxSeries: s.MaxSeries, Flows: s.Flows,
		LocateUntouched: s.LocateUntouched, UDPRepeat: s.UDPRepeat, Tap: tap,
	}
	for _, r := range resolutionsOf(s.Resolutions) {
		cfg.Lateness = append(cfg.Lateness, s.LatenessOf(r))
	}
	return cfg
}

// shard returns the configuration of a tap's shard, and its watcher, nil for none.
func (s *Settings) shard(tap *Tap, from *Origin) (cfg Config, watch *finding.Watcher, err error) {
	cfg = s.Config(*tap)
	cfg.Source, cfg.SeqBase = from.Source, from.SeqBase
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
	if from.File == "" {
		watch.Live(from.Name)
	}
	cfg.Watch = watch
	return cfg, watch, nil
}
