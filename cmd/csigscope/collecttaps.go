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

// liveTap is an open tap.
type liveTap struct {
	name    string
	cfg     capture.TapConfig
	tap     *capture.Tap
	feed    feed.Tap
	rings   []*capture.Ring
	earlier capture.TapCounters // of taps of the same name that were closed
}

// liveTaps are the taps of a process, by name.
type liveTaps map[string]*liveTap

// openTaps opens the taps of a configuration, but for those that are open already and
// captured in the same way.
func openTaps(c *collectConfig, n *network, place string, open liveTaps, logger *slog.Logger) (liveTaps, error) {
	taps := make(liveTaps, len(c.Taps))
	var opened []*liveTap
	for i := range c.Taps {
		t, err := newLiveTap(&c.Taps[i], n, place, logger)
		if err != nil {
			return nil, errors.Join(err, closeTaps(opened))
		}
		if old := open[t.name]; old != nil && old.same(t) {
			t.tap, t.rings, t.earlier = old.tap, old.rings, old.earlier
		} else {
			if err := t.tap.Open(); err != nil {
				return nil, errors.Join(err, closeTaps(opened))
			}
			t.rings = slices.Clone(t.tap.Rings())
			opened = append(opened, t)
			if old != nil {
				t.earlier = old.counters()
			}
		}
		taps[t.name] = t
	}
	return taps, nil
}

func newLiveTap(c *collectTap, n *network, place string, logger *slog.Logger) (*liveTap, error) {
	t := &liveTap{name: c.name(), cfg: c.capture(), feed: n.tap(c.name(), place)}
	if c.Place.text != "" {
		terminal := c.Place.text == "receiver"
		t.feed.Tags, t.feed.Reflections = terminal, terminal
	}
	if c.Weight.n > 0 {
		t.feed.Weight = c.Weight.n
	}
	program := filter.Config{Decode: n.decode, Mirrors: true, SnapLen: t.cfg.SnapLen}
	if t.cfg.SnapLen == 0 {
		t.cfg.SnapLen = filter.SnapLen(program)
	}
	var err error
	if !c.Unfiltered {
		if t.cfg.Filter, err = filter.New(program); err != nil {
			return nil, fmt.Errorf("tap %q: %w", t.name, err)
		}
	}
	if t.cfg.Rings > 1 {
		if t.cfg.Fanout, err = filter.Fanout(program); err != nil {
			return nil, fmt.Errorf("tap %q: %w", t.name, err)
		}
	}
	t.cfg.Logger = logger
	if t.tap, err = capture.NewTap(t.cfg); err != nil {
		return nil, err
	}
	return t, nil
}

// same tells whether frames are captured in the same way.
func (t *liveTap) same(o *liveTap) bool {
	a, b := t.cfg, o.cfg
	a.Logger, b.Logger = nil, nil
	return reflect.DeepEqual(a, b)
}

// counters are those of all taps of the name.
func (t *liveTap) counters() capture.TapCounters {
	sum := t.earlier
	for _, r := range t.rings {
		c := r.Counters()
		sum.Add(&c)
	}
	return sum
}

func closeTaps(list []*liveTap) error {
	var failed []error
	for _, t := range list {
		failed = append(failed, t.tap.Close())
	}
	return errors.Join(failed...)
}

// plan is what the pipeline does with the taps. Those that were open in the plan before
// go on.
func (taps liveTaps) plan(n *network, before liveTaps) live.Plan {
	p := live.Plan{
		Decode: n.decode, Resolver: n.fabric, Epoch: n.epoch,
		Resolutions: n.config.Windows.Resolutions, FineHeavyOnly: *n.config.Windows.FineHeavyOnly,
		MaxKeys: n.config.Windows.MaxKeys, LocateUntouched: n.config.Windows.LocateUntouched,
	}
	for _, t := range taps {
		old := before[t.name]
		for i, r := range t.rings {
			ring := live.Tap{Name: t.name, Ring: i, Tap: t.feed, Source: r}
			if old != nil && old.tap == t.tap {
				ring.Source = nil
			}
			p.Taps = append(p.Taps, ring)
		}
	}
	return p
}

// String lists the taps.
func (taps liveTaps) String() string {
	var list []string
	for name, t := range taps {
		if name != t.cfg.Interface {
			name += " (" + t.cfg.Interface + ")"
		}
		list = append(list, name)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

func (taps liveTaps) close() error { return closeTaps(slices.Collect(maps.Values(taps))) }
