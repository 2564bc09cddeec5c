package main

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/csigscope/csigscope/aggregate/feed"
	"github.com/csigscope/csigscope/aggregate/live"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode/filter"
)

// liveTap is a place to capture at.
type liveTap struct {
	name string
	from string // interface or address
	how  any    // how frames are captured: equal for taps that need not be opened anew
	// fixed is that it cannot be opened anew while it is open from the same place.
	fixed bool
	open  func() error
	feed  feed.Tap

	sources  []live.Source // of each ring, once it is open
	state    func() capture.LinkState
	count    func() capture.TapCounters
	mirror   *capture.MirrorReader // nil unless there are sessions
	sessions func(session string) live.SessionTap
	earlier  capture.TapCounters // of taps of the same name that were closed
}

// liveTaps are the taps of a process, by name.
type liveTaps map[string]*liveTap

// openTaps opens the taps of a configuration, but for those that are open already and
// captured in the same way.
func openTaps(c *collectConfig, n *network, place string, open liveTaps, logger *slog.Logger) (liveTaps, error) {
	taps := make(liveTaps, len(c.Taps))
	var opened []*liveTap
	for i := range len(c.Taps) + len(c.Mirrors) {
		var t *liveTap
		var err error
		if i < len(c.Taps) {
			t, err = newLiveTap(&c.Taps[i], n, place, logger)
		} else {
			t, err = newMirrorTap(&c.Mirrors[i-len(c.Taps)], n, place)
		}
		if err != nil {
			return nil, errors.Join(err, closeTaps(opened))
		}
		if old := open[t.name]; old != nil && reflect.DeepEqual(old.how, t.how) {
			t.sources, t.state, t.count, t.mirror, t.earlier = old.sources, old.state, old.count, old.mirror, old.earlier
		} else {
			if old != nil && t.fixed && old.fixed && old.from == t.from {
				return nil, errors.Join(fmt.Errorf("mirror %q: changing its kind, buffer, clocks or max_sessions takes a restart", t.name), closeTaps(opened))
			}
			if err := t.open(); err != nil {
				return nil, errors.Join(err, closeTaps(opened))
			}
			opened = append(opened, t)
			if old != nil {
				t.earlier = old.Counters()
			}
		}
		taps[t.name] = t
	}
	return taps, nil
}

// placed is how packets of a tap count.
func (n *network) placed(name, place string, own word, weight quantity) feed.Tap {
	return withOwn(n.tap(name, place), own, weight)
}

// withOwn is a tap with what its own section says.
func withOwn(t feed.Tap, own word, weight quantity) feed.Tap {
	if own.text != "" {
		terminal := own.text == "receiver"
		t.Tags, t.Reflections, t.Place = terminal, terminal, own.text
	}
	if weight.n > 0 {
		t.Weight = weight.n
	}
	return t
}

func newLiveTap(c *collectTap, n *network, place string, logger *slog.Logger) (*liveTap, error) {
	cfg := c.capture()
	program := filter.Config{Decode: n.decode, Mirrors: true, SnapLen: cfg.SnapLen}
	if cfg.SnapLen == 0 {
		cfg.SnapLen = filter.SnapLen(program)
	}
	var err error
	if !c.Unfiltered {
		if cfg.Filter, err = filter.New(program); err != nil {
			return nil, fmt.Errorf("tap %q: %w", c.name(), err)
		}
	}
	if cfg.Rings > 1 {
		if cfg.Fanout, err = filter.Fanout(program); err != nil {
			return nil, fmt.Errorf("tap %q: %w", c.name(), err)
		}
	}
	t := &liveTap{name: c.name(), from: cfg.Interface, how: cfg, feed: n.placed(c.name(), place, c.Place, c.Weight)}
	cfg.Logger = logger
	tap, err := capture.NewTap(cfg)
	if err != nil {
		return nil, err
	}
	t.open = func() error {
		if err := tap.Open(); err != nil {
			return err
		}
		rings := tap.Rings()
		for _, r := range rings {
			t.sources = append(t.sources, r)
		}
		t.state = func() capture.LinkState {
			state := capture.LinkUp
			for _, r := range rings {
				state = min(state, r.State())
			}
			return state
		}
		t.count = tap.Counters
		return nil
	}
	return t, nil
}

// At implements journal.Tap.
func (t *liveTap) At(session string) (at feed.Tap, from string) {
	if session == "" {
		return t.feed, t.from
	}
	return t.sessions(session).Tap, session
}

// Session implements journal.Tap.
func (t *liveTap) Session(name string) (c capture.SessionCounters, ok bool) {
	if t.mirror == nil {
		return c, false
	}
	return t.mirror.Session(name)
}

// Counters implements journal.Tap: those of all taps of the name.
func (t *liveTap) Counters() capture.TapCounters {
	sum, own := t.earlier, t.count()
	sum.Add(&own)
	return sum
}

func closeTaps(list []*liveTap) error {
	var failed []error
	for _, t := range list {
		for _, s := range t.sources {
			failed = append(failed, s.Close())
		}
	}
	return errors.Join(failed...)
}

// plan is what the pipeline does with the taps. Those that were open in the plan before
// go on.
func (taps liveTaps) plan(n *network, before liveTaps) live.Plan {
	p := live.Plan{
		Decode: n.decode, Resolver: n.fabric, Epoch: n.epoch,
		Resolutions: n.config.Windows.Resolutions, FineHeavyOnly: *n.config.Windows.FineHeavyOnly,
		MaxKeys: n.config.Windows.MaxKeys, Flows: n.config.Flows.limits(), LocateUntouched: n.config.Windows.LocateUntouched,
	}
	for _, t := range taps {
		old := before[t.name]
		for i, source := range t.sources {
			ring := live.Tap{Name: t.name, Ring: i, Tap: t.feed, Source: source, Sessions: t.sessions}
			if old != nil && old.sources[0] == t.sources[0] {
				ring.Source = nil
			}
			p.Taps = append(p.Taps, ring)
		}
	}
	return p
}

// plan is that of the taps, and of what they look for.
func (c *capturing) plan(n *network, taps, before liveTaps) live.Plan {
	p := taps.plan(n, before)
	p.Finding = n.finding()
	return p
}

// String lists the taps.
func (taps liveTaps) String() string {
	var list []string
	for name, t := range taps {
		if name != t.from {
			name += " (" + t.from + ")"
		}
		list = append(list, name)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

func (taps liveTaps) close() error { return closeTaps(slices.Collect(maps.Values(taps))) }
