package main

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/csigscope/csigscope/aggregate/live"
	"github.com/csigscope/csigscope/capture"
)

// collectMirror is an address that switches send mirrored frames to. Each session that
// arrives there is a tap of its own.
type collectMirror struct {
	// Listen is HOST:PORT for vxlan and tzsp, and HOST for erspan and gretap, which takes
	// CAP_NET_RAW.
	Listen word     `yaml:"listen"`
	Kind   word     `yaml:"kind"`           // erspan, gretap, vxlan or tzsp
	Name   word     `yaml:"name,omitempty"` // default the kind and the address
	Place  word     `yaml:"place,omitempty"`
	Weight quantity `yaml:"weight,omitempty"`
	Buffer byteSize `yaml:"buffer,omitempty"` // of packets that wait in the kernel
	// Clock says whose times frames have: collector, or switch where it sends them in a
	// clock that can be compared.
	Clock word `yaml:"clock,omitempty"`
	// Sessions are by session, switch or both: 77, 192.0.2.1 or 192.0.2.1/77.
	Sessions    map[string]mirrorSession `yaml:"sessions,omitempty"`
	MaxSessions quantity                 `yaml:"max_sessions,omitempty"` // further ones count together
}

var clocks = []string{"collector", clockSwitch}

func (m *collectMirror) name() string {
	return cmp.Or(m.Name.text, m.Kind.text+" "+m.Listen.text)
}

func (m *collectMirror) check() error {
	if m.Kind.text == "" {
		return fmt.Errorf("mirror %q: expected a kind: erspan, gretap, vxlan or tzsp", m.Listen.text)
	}
	if err := checkWords(m.name(), []choice{{"kind", m.Kind, []string{"erspan", "gretap", "vxlan", "tzsp"}}, {"place", m.Place, places}, {"clock", m.Clock, clocks}}); err != nil {
		return err
	}
	if err := m.checkSessions(); err != nil {
		return err
	}
	cfg, err := m.socket()
	if err != nil {
		return err
	}
	_, err = capture.NewMirrorSocket(cfg)
	return err
}

// socket is where the mirror's packets arrive.
func (m *collectMirror) socket() (capture.MirrorSocketConfig, error) {
	cfg := capture.MirrorSocketConfig{Buffer: int(min(m.Buffer.n, 1<<31))}
	var err error
	switch m.Kind.text {
	case "erspan", "gretap":
		var host netip.Addr
		if host, err = netip.ParseAddr(m.Listen.text); err != nil {
			return cfg, fmt.Errorf("%s: listen %q: expected an IP address, without a port: GRE has none", m.name(), m.Listen.text)
		}
		cfg.Listen = netip.AddrPortFrom(host, 0)
	default:
		if cfg.Listen, err = netip.ParseAddrPort(m.Listen.text); err != nil || cfg.Listen.Port() == 0 {
			return cfg, fmt.Errorf("%s: listen %q: expected IP:PORT such as 192.0.2.1:%d", m.name(), m.Listen.text, capture.DefaultVXLANPort)
		}
	}
	return cfg, nil
}

// mirrors are the sessions that are expected.
func (m *collectMirror) mirrors(port uint16) (kinds capture.Mirrors) {
	switch m.Kind.text {
	case "erspan":
		kinds.ERSPAN = true
	case "gretap":
		kinds.GRETAP = true
	case "vxlan":
		kinds.VXLAN = port
	case "tzsp":
		kinds.TZSP = port
	}
	return kinds
}

// mirrorHow is how frames of a mirror are taken in. It is as it was at the start: what a
// running socket brings cannot be had twice.
type mirrorHow struct {
	socket   capture.MirrorSocketConfig
	mirrors  capture.Mirrors
	sessions int
	switched map[string]string // clocks, by session of the configuration
}

// how also tells clocks apart.
func (m *collectMirror) how(cfg capture.MirrorSocketConfig) mirrorHow {
	how := mirrorHow{cfg, m.mirrors(cfg.Listen.Port()), m.maxSessions(), map[string]string{"": m.Clock.text}}
	for text, s := range m.Sessions {
		if s.Clock.text != "" {
			how.switched[text] = s.Clock.text
		}
	}
	return how
}

func newMirrorTap(m *collectMirror, n *network, place string) (*liveTap, error) {
	cfg, err := m.socket()
	if err != nil {
		return nil, err
	}
	how, table := m.how(cfg), m.table()
	t := &liveTap{name: m.name(), from: m.Listen.text, how: how, fixed: true, feed: n.placed(m.name(), place, m.Place, m.Weight)}
	t.sessions = m.sessions(n, t.feed)
	socket, err := capture.NewMirrorSocket(cfg)
	if err != nil {
		return nil, err
	}
	t.open = func() error {
		if err := socket.Open(); err != nil {
			return fmt.Errorf("mirror %q: %w", t.name, err)
		}
		t.mirror = capture.NewMirrorReader(socket, capture.MirrorConfig{
			Mirrors: how.mirrors, MaxSessions: how.sessions, Reserved: len(table),
			Known:      func(k capture.SessionKey) bool { _, known := table.find(k); return known },
			SwitchTime: func(k capture.SessionKey) bool { return m.switched(table, k) },
		})
		t.sources = []live.Source{t.mirror}
		t.state = func() capture.LinkState { return capture.LinkUp }
		t.count = func() capture.TapCounters {
			c := socket.Counters()
			return capture.TapCounters{Frames: c.Packets, Received: c.Packets + c.Dropped, Dropped: c.Dropped}
		}
		return nil
	}
	return t, nil
}
