// Package taps holds the taps of a process open: interfaces, and addresses that switches
// mirror frames to, of which each session is a tap of its own.
//
// It knows which of them go on over a reload, what each counts as, and which session a
// mirrored frame is of. It must never know what becomes of frames, or what a configuration
// looks like.
package taps

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/filter"
	"github.com/csigscope/csigscope/ingest/local"
)

// Config is what Open opens. Names of interfaces and mirrors differ from each other.
type Config struct {
	Interfaces []Interface
	Mirrors    []Mirror
	// Decode is how frames are decoded: the kernel lets pass what can have CSIG then.
	Decode decode.Config
	Logger *slog.Logger
}

// Interface is a network interface to capture from.
type Interface struct {
	Name string
	At   window.Tap
	// Capture is how, but for Filter, Fanout and Logger. A SnapLen of 0 is what decoding
	// needs.
	Capture capture.TapConfig
	// Unfiltered takes in frames without CSIG as well.
	Unfiltered bool
}

// Tap is a place to capture at, which is open. Its methods are safe for concurrent use.
type Tap struct {
	name string
	from string // interface or address
	how  any    // how frames are captured: equal for taps that need not be opened anew
	// fixed is that it cannot be opened anew while it is open from the same place.
	fixed bool
	open  func() error
	feed  window.Tap

	sources  []local.Source // of each ring, once it is open
	state    func() capture.LinkState
	count    func() capture.TapCounters
	mirror   *MirrorReader // nil unless there are sessions
	sessions func(session string) local.SessionTap
	earlier  capture.TapCounters // of taps of the same name that were closed
}

// Set is the taps of a process, by name. It does not change.
type Set map[string]*Tap

// Open opens what cfg names, but for taps of a set before, nil for none, that are captured
// in the same way: they go on in both sets. When it fails, it leaves those of before open
// and no others.
func Open(cfg Config, before Set) (Set, error) {
	taps := make(Set, len(cfg.Interfaces)+len(cfg.Mirrors))
	var opened []*Tap
	for i := range len(cfg.Interfaces) + len(cfg.Mirrors) {
		var t *Tap
		var err error
		if i < len(cfg.Interfaces) {
			t, err = newInterface(&cfg.Interfaces[i], &cfg)
		} else {
			t, err = newMirror(&cfg.Mirrors[i-len(cfg.Interfaces)])
		}
		if err == nil {
			var anew bool
			if anew, err = t.goOn(before[t.name]); anew {
				opened = append(opened, t)
			}
		}
		if err != nil {
			return nil, errors.Join(err, closeTaps(opened))
		}
		taps[t.name] = t
	}
	return taps, nil
}

// goOn takes over what the tap of the name had open, or opens anew.
func (t *Tap) goOn(old *Tap) (anew bool, err error) {
	switch {
	case old == nil:
		err = t.open()
		return err == nil, err
	case reflect.DeepEqual(old.how, t.how):
		t.sources, t.state, t.count, t.mirror, t.earlier = old.sources, old.state, old.count, old.mirror, old.earlier
		return false, nil
	case t.fixed && old.fixed && old.from == t.from:
		return false, fmt.Errorf("mirror %q: changing its kind, buffer, clocks or max_sessions takes a restart", t.name)
	}
	if err := t.open(); err != nil {
		return false, err
	}
	t.earlier = old.Counters()
	return true, nil
}

func newInterface(c *Interface, of *Config) (*Tap, error) {
	cfg := c.Capture
	program := filter.Config{Decode: of.Decode, VXLANPort: c.At.Mirrors.VXLAN, TZSPPort: c.At.Mirrors.TZSP, SnapLen: cfg.SnapLen}
	if cfg.SnapLen == 0 {
		cfg.SnapLen = filter.SnapLen(program)
	}
	var err error
	if !c.Unfiltered {
		if cfg.Filter, err = filter.New(program); err != nil {
			return nil, fmt.Errorf("tap %q: %w", c.Name, err)
		}
	}
	if cfg.Rings > 1 {
		if cfg.Fanout, err = filter.Fanout(program); err != nil {
			return nil, fmt.Errorf("tap %q: %w", c.Name, err)
		}
	}
	t := &Tap{name: c.Name, from: cfg.Interface, how: cfg, feed: c.At}
	cfg.Logger = of.Logger
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

// Name is what the tap is called.
func (t *Tap) Name() string { return t.name }

// State is that of the worst link of the tap's rings.
func (t *Tap) State() capture.LinkState { return t.state() }

// At is where the tap stands, or one of its sessions unless that is "", and what it is
// captured from: an interface, an address or the session.
func (t *Tap) At(session string) (at window.Tap, from string) {
	if session == "" {
		return t.feed, t.from
	}
	return t.sessions(session).Tap, session
}

// Counters are those of all taps of the name, from the first set on.
func (t *Tap) Counters() capture.TapCounters {
	sum, own := t.earlier, t.count()
	sum.Add(&own)
	return sum
}

// Session is what came of a session; false where there is none of that name.
func (t *Tap) Session(name string) (c local.SessionCounters, ok bool) {
	if t.mirror == nil {
		return c, false
	}
	return t.mirror.Session(name)
}

// Mirror is what reads the sessions of a mirror; nil for an interface.
func (t *Tap) Mirror() *MirrorReader { return t.mirror }

// SessionName is what the tap of a session is called; t is one with a Mirror.
func (t *Tap) SessionName(session string) string { return t.sessions(session).Name }

func closeTaps(list []*Tap) error {
	var failed []error
	for _, t := range list {
		for _, s := range t.sources {
			failed = append(failed, s.Close())
		}
	}
	return errors.Join(failed...)
}

// Rings are what a pipeline runs; the sources of those that it runs already, since they
// were open in the set before, are left out.
func (s Set) Rings(before Set) (list []local.Ring) {
	for _, t := range s {
		old := before[t.name]
		for i, source := range t.sources {
			ring := local.Ring{Name: t.name, Ring: i, Tap: t.feed, Source: source, Sessions: t.sessions}
			if old != nil && old.sources[0] == t.sources[0] {
				ring.Source = nil
			}
			list = append(list, ring)
		}
	}
	return list
}

// Up is nil while the links of all taps are up: a dead tap is no quiet one.
func (s Set) Up() error {
	for _, t := range s {
		if state := t.state(); state != capture.LinkUp {
			return fmt.Errorf("tap %s: interface %s is %s", t.name, t.from, state)
		}
	}
	return nil
}

// String lists the taps.
func (s Set) String() string {
	var list []string
	for name, t := range s {
		if name != t.from {
			name += " (" + t.from + ")"
		}
		list = append(list, name)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// Close closes all taps, for a set that no pipeline has.
func (s Set) Close() error { return closeTaps(slices.Collect(maps.Values(s))) }
