package main

import (
	"cmp"
	"log/slog"

	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/ingest/local"
	"github.com/csigscope/csigscope/ingest/local/taps"
)

// openTaps opens the taps of a configuration, but for those of a set before that go on.
// The flags say what nothing else does of a tap.
func openTaps(c *collectConfig, n *network, flags tapFlags, before taps.Set, logger *slog.Logger) (taps.Set, error) {
	cfg := taps.Config{Decode: n.decode, Logger: logger}
	for i := range c.Taps {
		t := &c.Taps[i]
		at := n.tap(t.name(), flags).With(t.Place.text, t.Weight.n)
		at.Mirrors = cmp.Or(t.Mirrors, at.Mirrors)
		cfg.Interfaces = append(cfg.Interfaces, taps.Interface{Name: t.name(), At: at, Capture: t.capture(), Unfiltered: t.Unfiltered})
	}
	for i := range c.Mirrors {
		m, err := c.Mirrors[i].mirror(n, flags)
		if err != nil {
			return nil, err
		}
		cfg.Mirrors = append(cfg.Mirrors, m)
	}
	return taps.Open(cfg, before)
}

// mirror is the mirror as it is opened, of a section that has been checked.
func (m *collectMirror) mirror(n *network, flags tapFlags) (taps.Mirror, error) {
	socket, err := m.socket()
	if err != nil {
		return taps.Mirror{}, err
	}
	sessions, err := m.sessions()
	return taps.Mirror{
		Name: m.name(), From: m.Listen.text, At: n.tap(m.name(), flags).With(m.Place.text, m.Weight.n),
		Socket: socket, Kinds: m.mirrors(socket.Listen.Port()), MaxSessions: m.maxSessions(), Clock: taps.Clock(m.Clock.text), Sessions: sessions,
		Placed: func(name string) (window.Tap, bool) {
			spec, ok := n.named(name)
			return placedAs(spec), ok
		},
	}, err
}

// plan is what the pipeline does with taps under a network, after those of before.
func (n *network) plan(set, before taps.Set) local.Plan {
	return local.Plan{Settings: n.settings(), Rings: set.Rings(before)}
}
