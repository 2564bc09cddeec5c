// Package taps keeps the taps of a process open: interfaces, and addresses to which switches
// mirror frames, each session of which is a tap of its own.
//
// It knows which taps continue over a reload, the place and weight of each, and the session of each
// mirrored frame. It must never know how frames are used, or the format of configurations.
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
	"github.com/csigscope/csigscope/ingest/local/bpf"
)

// Config lists the taps to open. Names of interfaces and mirrors are unique.
type Config struct {
	Interfaces []Interface
	Mirrors    []Mirror
	// Decode configures decoding: the kernel filter passes only frames that can have CSIG under
	// it.
	Decode decode.Config
	// Settings say how a program in the kernel counts, for interfaces that are read in that way.
	Settings *window.Settings
	Logger   *slog.Logger
}

// ReaderKind is the reader of an interface's packets.
type ReaderKind string

// ByRing has a ring take all that may have CSIG, ByKernel has a program in the kernel count it, and ByEither takes the program
// where the kernel and the settings allow that. The zero value is ByRing.
const (
	ByRing   ReaderKind = "ring"
	ByKernel ReaderKind = "ebpf"
	ByEither ReaderKind = "auto"
)

// Interface is a network interface to capture from.
type Interface struct {
	Name string
	At   window.Tap
	// Capture configures capturing, except for Filter, Fanout and Logger. A SnapLen of 0 means
	// the length that decoding needs.
	Capture capture.TapConfig
	// Unfiltered also captures frames without CSIG.
	Unfiltered bool
	By         ReaderKind
	// Odd has a ring take packets that the program in the kernel does not read.
	Odd bool
}

// Tap is an open capture point. Its methods are safe for concurrent use.
type Tap struct {
	name string
	from string // interface or address
	how  any    // capture settings: a tap with equal ones need not be opened again
	// fixed means that it cannot be reopened while it is open at the same place.
	fixed bool
	open  func() error
	feed  window.Tap

	sources  []local.Source // one for each ring, once it is open
	state    func() capture.LinkState
	count    func() capture.TapCounters
	mirror   *MirrorReader // nil without sessions
	expected Expected      // of mirror
	sessions func(session string) local.SessionTap
	replaces string                     // name of the earlier tap at the same place, if it differs
	before   func() capture.TapCounters // count of the tap that this one replaces, which goes on until its last frames are read; nil: none
	earlier  capture.TapCounters        // totals of taps before that one
}

// Set holds the taps of a process, by name. It does not change.
type Set map[string]*Tap

// Open opens the taps of cfg. Taps of the set before, which may be nil, continue in both sets if their
// capture settings are equal; Expect then gives them the sessions of the new set. A tap with another
// name at the same place replaces the earlier one. If Open fails, it closes the taps that it opened;
// earlier ones stay open.
func Open(cfg Config, before Set) (Set, error) {
	taps := make(Set, len(cfg.Interfaces)+len(cfg.Mirrors))
	var opened []*Tap
	places := make(map[string]string) // by name
	for i := range cfg.Interfaces {
		places[cfg.Interfaces[i].Name] = cfg.Interfaces[i].Capture.Interface
	}
	for i := range cfg.Mirrors {
		places[cfg.Mirrors[i].Name] = cfg.Mirrors[i].From
	}
	for i := range len(cfg.Interfaces) + len(cfg.Mirrors) {
		var t *Tap
		var err error
		if i < len(cfg.Interfaces) {
			t, err = newReader(&cfg.Interfaces[i], &cfg, before[cfg.Interfaces[i].Name])
		} else {
			t, err = newMirror(&cfg.Mirrors[i-len(cfg.Interfaces)])
		}
		if err == nil {
			var reopen bool
			if reopen, err = t.takeOver(before[t.name], before.renamed(t, places)); reopen {
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

// Expect makes the mirrors that continue from the set before expect the sessions of this set. Call it once
// nothing can refuse the set.
func (s Set) Expect() {
	for _, t := range s {
		if t.mirror != nil {
			t.mirror.Expect(t.expected)
		}
	}
}

// renamed returns the tap of the set at the place of t that has another name, unless the new set, whose places are listed
// by name, has a tap of that name there; nil: none.
func (s Set) renamed(t *Tap, places map[string]string) *Tap {
	if old := s[t.name]; old != nil && old.from == t.from {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(s)) {
		if s[name].from == t.from && places[name] != t.from {
			return s[name]
		}
	}
	return nil
}

// takeOver takes over the open sources of the old tap of the same name, or opens new ones, which replace those of the tap
// renamed, if there is one.
func (t *Tap) takeOver(old, renamed *Tap) (reopen bool, err error) {
	switch {
	case renamed != nil && t.fixed:
		return false, t.needsRestart()
	case renamed == nil && old != nil && reflect.DeepEqual(old.how, t.how):
		t.sources, t.state, t.count, t.mirror = old.sources, old.state, old.count, old.mirror
		t.before, t.earlier = old.before, old.earlier
		return false, nil
	case old != nil && t.fixed && old.fixed && old.from == t.from:
		return false, t.needsRestart()
	}
	if err := t.open(); err != nil {
		return false, err
	}
	if old != nil {
		t.before, t.earlier = old.count, old.replaced()
	}
	if renamed != nil {
		t.replaces = renamed.name
	}
	return true, nil
}

func (t *Tap) needsRestart() error {
	return fmt.Errorf("mirror %q: changing its name, kind, buffer, clocks or max_sessions takes a restart", t.name)
}

// newReader makes the tap of an interface for its configured reader; old is the one of its name, nil if there is none.
func newReader(c *Interface, of *Config, old *Tap) (*Tap, error) {
	if c.By != ByKernel && c.By != ByEither {
		return newInterface(c, of)
	}
	t, err := newCounting(c, of, old)
	if err == nil || c.By == ByKernel {
		return t, err
	}
	if of.Logger != nil {
		of.Logger.Warn("a ring takes packets, since the kernel cannot count them", slog.String("tap", c.Name), slog.String("error", err.Error()))
	}
	return newInterface(c, of)
}

// counting configures a tap counted in the kernel. Changed window.Settings need no new tap.
type counting struct{ bpf.Config }

// CheckCounting returns an error that wraps bpf.ErrUnsupported if no kernel can count the packets of the interface under the
// settings. The error names the key of the configuration.
func (c *Interface) CheckCounting(settings *window.Settings) error {
	for _, refused := range [...]struct {
		is  bool
		key string
	}{{c.Unfiltered, "unfiltered: true"}, {c.Capture.Outgoing, "direction: both"}, {c.Capture.Timestamps == capture.TimestampHardware, "timestamps: hardware"}} {
		if refused.is {
			return fmt.Errorf("tap %q: %s: %w", c.Name, refused.key, bpf.ErrUnsupported)
		}
	}
	if err := bpf.Check(settings, c.At); err != nil {
		return fmt.Errorf("tap %q: %w", c.Name, err)
	}
	return nil
}

// newCounting makes the tap of an interface whose packets the kernel counts. It fails where the kernel or the settings do not
// allow that, before anything is open. If the old tap continues, its interface may be gone at the moment.
func newCounting(c *Interface, of *Config, old *Tap) (*Tap, error) {
	if err := c.CheckCounting(of.Settings); err != nil {
		return nil, err
	}
	// The number of rings does not matter: each processor counts what it receives.
	cfg := bpf.Config{
		Interface: c.Capture.Interface, Odd: c.Odd, Blocks: c.Capture.Blocks, SnapLen: c.Capture.SnapLen, Promiscuous: c.Capture.Promiscuous,
	}
	if cfg.SnapLen == 0 {
		cfg.SnapLen = filter.SnapLen(filter.Config{Decode: of.Decode})
	}
	t := &Tap{name: c.Name, from: cfg.Interface, how: counting{cfg}, feed: c.At}
	cfg.Logger = of.Logger
	source, err := bpf.New(cfg)
	if err == nil {
		err = source.Try(of.Settings, c.At, old == nil || !reflect.DeepEqual(old.how, t.how))
	}
	if err != nil {
		return nil, fmt.Errorf("tap %q: %w", c.Name, err)
	}
	t.open = func() error {
		if err := source.Open(of.Settings, c.At); err != nil {
			return err
		}
		t.sources, t.state, t.count = []local.Source{source}, source.State, source.Counters
		if of.Logger != nil {
			of.Logger.Warn("packets are counted in the kernel: flows are named from samples, and single packets are not searched for findings", slog.String("tap", c.Name))
		}
		return nil
	}
	return t, nil
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

// Name returns the name of the tap.
func (t *Tap) Name() string { return t.name }

// State returns the worst link state of the tap's rings.
func (t *Tap) State() capture.LinkState { return t.state() }

// At returns the place of the tap, or of one of its sessions unless session is "", and where it
// captures from: an interface, an address or the session.
func (t *Tap) At(session string) (at window.Tap, from string) {
	if session == "" {
		return t.feed, t.from
	}
	return t.sessions(session).Tap, session
}

// Counters returns the totals of all taps of this name, from the first set on. Frames that both
// rings deliver while one replaces the other count for both.
func (t *Tap) Counters() capture.TapCounters {
	sum, own := t.replaced(), t.count()
	sum.Add(&own)
	return sum
}

// replaced returns the totals of the earlier taps of this name.
func (t *Tap) replaced() capture.TapCounters {
	sum := t.earlier
	if t.before != nil {
		last := t.before()
		sum.Add(&last)
	}
	return sum
}

// Session returns the totals of a session; false if there is none of that name.
func (t *Tap) Session(name string) (c local.SessionCounters, ok bool) {
	if t.mirror == nil {
		return c, false
	}
	return t.mirror.Session(name)
}

// Mirror returns the reader of a mirror's sessions; nil for an interface.
func (t *Tap) Mirror() *MirrorReader { return t.mirror }

// SessionName returns the name of a session's tap; t must have a Mirror.
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

// Rings returns the rings for a pipeline's plan. Rings that were open in the set before already
// run, so they have no Source.
func (s Set) Rings(before Set) (list []local.Ring) {
	for _, t := range s {
		old := before[t.name]
		for i, source := range t.sources {
			ring := local.Ring{Name: t.name, Ring: i, Tap: t.feed, Source: source, Before: t.replaces, Sessions: t.sessions}
			if old != nil && old.sources[0] == t.sources[0] {
				ring.Source = nil
			}
			list = append(list, ring)
		}
	}
	return list
}

// Up returns an error if the link of a tap is not up, since a dead tap looks like a quiet one.
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

// Close closes all taps. It is for a set that no pipeline uses.
func (s Set) Close() error { return closeTaps(slices.Collect(maps.Values(s))) }
