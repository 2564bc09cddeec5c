package main

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/csigscope/csigscope/aggregate/live"
	"github.com/csigscope/csigscope/capture"
)

// collectMirror is an address that switches send mirrored frames to. All sessions that
// arrive there stand at one place.
type collectMirror struct {
	// Listen is HOST:PORT for vxlan and tzsp, and HOST for erspan and gretap, which takes
	// CAP_NET_RAW.
	Listen word     `yaml:"listen"`
	Kind   word     `yaml:"kind"`           // erspan, gretap, vxlan or tzsp
	Name   word     `yaml:"name,omitempty"` // default the kind and the address
	Place  word     `yaml:"place,omitempty"`
	Weight quantity `yaml:"weight,omitempty"`
	Buffer byteSize `yaml:"buffer,omitempty"` // of packets that wait in the kernel
}

func (m *collectMirror) name() string {
	return cmp.Or(m.Name.text, m.Kind.text+" "+m.Listen.text)
}

func (m *collectMirror) check() error {
	if m.Kind.text == "" {
		return fmt.Errorf("mirror %q: expected a kind: erspan, gretap, vxlan or tzsp", m.Listen.text)
	}
	if err := checkWords(m.name(), []choice{{"kind", m.Kind, []string{"erspan", "gretap", "vxlan", "tzsp"}}, {"place", m.Place, places}}); err != nil {
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

// mirrorHow is how frames of a mirror are taken in.
type mirrorHow struct {
	socket  capture.MirrorSocketConfig
	mirrors capture.Mirrors
}

func newMirrorTap(m *collectMirror, n *network, place string) (*liveTap, error) {
	cfg, err := m.socket()
	if err != nil {
		return nil, err
	}
	how := mirrorHow{cfg, m.mirrors(cfg.Listen.Port())}
	t := &liveTap{name: m.name(), from: m.Listen.text, how: how, feed: n.placed(m.name(), place, m.Place, m.Weight)}
	socket, err := capture.NewMirrorSocket(cfg)
	if err != nil {
		return nil, err
	}
	t.open = func() error {
		if err := socket.Open(); err != nil {
			return fmt.Errorf("mirror %q: %w", t.name, err)
		}
		reader := capture.NewMirrorReader(socket, capture.MirrorConfig{Mirrors: how.mirrors})
		t.sources = []live.Source{reader}
		t.lost = func() uint64 { return reader.Counters().Lost }
		t.state = func() capture.LinkState { return capture.LinkUp }
		t.count = func() capture.TapCounters {
			c := socket.Counters()
			return capture.TapCounters{Frames: c.Packets, Received: c.Packets + c.Dropped, Dropped: c.Dropped}
		}
		return nil
	}
	return t, nil
}
