package main

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/ingest/local/taps"
)

// collectMirror is an address that switches send mirrored frames to. Each session that
// arrives there is a tap of its own.
type collectMirror struct {
	// Listen is HOST:PORT for vxlan and tzsp, and HOST for erspan and gretap, which takes
	// CAP_NET_RAW.
	Listen word                `yaml:"listen"`
	Kind   choice[mirrorKinds] `yaml:"kind"`
	Name   word                `yaml:"name,omitempty"` // default the kind and the address
	Place  place               `yaml:"place,omitempty"`
	Weight quantity            `yaml:"weight,omitempty"`
	Buffer byteSize            `yaml:"buffer,omitempty"` // of packets that wait in the kernel
	// Clock says whose times frames have: collector, or switch where it sends them in a
	// clock that can be compared.
	Clock choice[clocks] `yaml:"clock,omitempty"`
	// Sessions are by session, switch or both: 77, 192.0.2.1 or 192.0.2.1/77.
	Sessions    map[string]mirrorSession `yaml:"sessions,omitempty"`
	MaxSessions quantity                 `yaml:"max_sessions,omitempty"` // further ones count together
}

type (
	mirrorKinds struct{}
	clocks      struct{}
)

func (mirrorKinds) words() []string { return []string{"erspan", "gretap", "vxlan", "tzsp"} }
func (clocks) words() []string {
	return []string{string(taps.ClockCollector), string(taps.ClockSwitch)}
}

func (m *collectMirror) name() string {
	return cmp.Or(m.Name.text, m.Kind.text+" "+m.Listen.text)
}

func (m *collectMirror) check() error {
	if m.Kind.text == "" {
		return fmt.Errorf("mirror %q: expected a kind: erspan, gretap, vxlan or tzsp", m.Listen.text)
	}
	if err := checkTap(m.name(), m.Weight); err != nil {
		return err
	}
	if _, err := m.sessions(); err != nil {
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
			return cfg, fmt.Errorf("%s: listen %q: expected IP:PORT such as 192.0.2.1:%d", m.name(), m.Listen.text, decode.DefaultVXLANPort)
		}
	}
	return cfg, nil
}

// mirrors are the sessions that are expected.
func (m *collectMirror) mirrors(port uint16) (kinds decode.Mirrors) {
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

// mirrorSession is how frames of one session of a mirror count. What it leaves out is as
// the mirror has it.
type mirrorSession struct {
	Place  place          `yaml:"place,omitempty"`
	Weight quantity       `yaml:"weight,omitempty"`
	Clock  choice[clocks] `yaml:"clock,omitempty"`
}

const (
	// defaultMaxSessions is how many sessions of a mirror are taps of their own.
	defaultMaxSessions = 64
	largestMaxSessions = 1024
)

func (m *collectMirror) maxSessions() int { return int(cmp.Or(m.MaxSessions.n, defaultMaxSessions)) }

// sessions are those that the section names. An error tells of values out of bounds.
func (m *collectMirror) sessions() (map[taps.SessionMatch]taps.Session, error) {
	if n := m.MaxSessions.n; n > largestMaxSessions {
		return nil, fmt.Errorf("%s: max_sessions %d: expected at most %d", m.name(), n, largestMaxSessions)
	}
	if n, most := len(m.Sessions), m.maxSessions(); n > most {
		return nil, fmt.Errorf("%s: %d sessions: expected at most max_sessions, %d", m.name(), n, most)
	}
	kind, err := decode.ParseMirrorKind(m.Kind.text)
	if err != nil {
		return nil, err
	}
	sessions := make(map[taps.SessionMatch]taps.Session, len(m.Sessions))
	for _, text := range slices.Sorted(maps.Keys(m.Sessions)) {
		match, err := taps.ParseSession(kind, text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.name(), err)
		}
		s := m.Sessions[text]
		if err := checkTap(m.name()+"/"+text, s.Weight); err != nil {
			return nil, err
		}
		sessions[match] = taps.Session{Place: s.Place.text, Weight: s.Weight.n, Clock: taps.Clock(s.Clock.text)}
	}
	return sessions, nil
}
