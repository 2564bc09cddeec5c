package config

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/ingest/local/journal"
	"github.com/csigscope/csigscope/ingest/local/taps"
)

// Network combines the configuration and the fabric file: the domain, the topology, and the
// epoch that rows refer to.
type Network struct {
	Config Config
	Domain *csig.Domain
	Decode decode.Config
	Fabric *fabric.Fabric
	Epoch  uint64
	Text   string // configuration whose hash is the epoch
	// Replaced names the lists in the fabric file's section csig with entries that the configuration replaces.
	Replaced []string
	// FileTaps are the taps of the fabric file, by name. They are no part of the epoch.
	FileTaps []fabric.TapSpec

	observationPoints map[string]uint32 // of taps in the middle of the fabric
}

// OpenNetwork reads the configuration and the fabric file; both paths may be empty.
func OpenNetwork(configPath, fabricPath string) (*Network, error) {
	if fabricPath == "" {
		return NewNetwork(configPath, nil, "")
	}
	topology, err := fabric.Load(fabricPath)
	if err != nil {
		return nil, err
	}
	return NewNetwork(configPath, topology, fabricPath)
}

// NewNetwork reads the configuration and combines it with the fabric, which may be nil; name
// appears in errors.
func NewNetwork(configPath string, topology *fabric.Spec, name string) (*Network, error) {
	c, err := Load(configPath)
	if err != nil {
		return nil, err
	}
	n := &Network{Config: c}
	spec := csig.DefaultSpec()
	if topology != nil {
		spec, n.Replaced = spec.Overlay(topology.CSIG), topology.CSIG.Replaced(c.CSIG)
	}
	n.Domain, err = spec.Overlay(c.CSIG).Compile()
	if err != nil {
		return nil, fmt.Errorf("read csig section: %w", err)
	}
	if topology == nil {
		n.Fabric = fabric.None(n.Domain)
	} else if n.Fabric, err = fabric.New(topology, n.Domain); err != nil {
		return nil, fmt.Errorf("read fabric %q: %w", name, err)
	} else {
		n.FileTaps = tapsOf(topology)
	}
	if err := n.placeTaps(); err != nil {
		return nil, err
	}
	if n.Decode, err = c.Decode.Decoder(n.Domain); err != nil {
		return nil, fmt.Errorf("read configuration %q: %w", configPath, err)
	}
	n.Text = c.Decode.fingerprint() + "\n" + n.Fabric.Fingerprint()
	n.Epoch = xxhash.Sum64String(n.Text)
	return n, nil
}

// tapsOf returns the taps of a fabric file, by name, with weights of at least 1.
func tapsOf(topology *fabric.Spec) []fabric.TapSpec {
	list := slices.Clone(topology.Taps)
	for i := range list {
		list[i].Weight = max(list[i].Weight, 1)
	}
	slices.SortFunc(list, func(x, y fabric.TapSpec) int { return cmp.Compare(x.Name, y.Name) })
	return list
}

// placeTaps numbers the observation points of taps in the middle of the fabric.
func (n *Network) placeTaps() error {
	n.observationPoints = make(map[string]uint32)
	for name, at := range n.tapsInside() {
		var err error
		if n.observationPoints[name], err = n.Fabric.ObservationPoint(at); err != nil {
			return fmt.Errorf("tap %q: at: %w", name, err)
		}
	}
	return nil
}

// tapsInside lists the taps with an observation point, and the devices and ports of it.
func (n *Network) tapsInside() iter.Seq2[string, []string] {
	return func(yield func(string, []string) bool) {
		for _, name := range n.TapNames() {
			if spec, _ := n.named(name); len(spec.At) > 0 && !yield(name, spec.At) {
				return
			}
		}
	}
}

// Continue takes over the fabric of the earlier network, which is in use, with the names that it has met, if epochs and
// observation points are equal. Otherwise it does nothing.
func (n *Network) Continue(earlier *Network) {
	if n.Epoch != earlier.Epoch || !maps.EqualFunc(maps.Collect(n.tapsInside()), maps.Collect(earlier.tapsInside()), slices.Equal) {
		return
	}
	n.Domain, n.Decode, n.Fabric, n.observationPoints = earlier.Domain, earlier.Decode, earlier.Fabric, earlier.observationPoints
}

// Naming returns the network that names the numbers in rows.
func (n *Network) Naming() journal.Network {
	return journal.Network{Epoch: n.Epoch, Text: n.Text, Fabric: n.Fabric}
}

// Settings returns the settings that all streams of the network share.
func (n *Network) Settings() window.Settings {
	w := &n.Config.Windows
	flows, _ := n.Config.Flows.limits() // checked before
	return window.Settings{
		Decode: n.Decode, Resolver: n.Fabric, Epoch: n.Epoch, Finding: n.Finding(),
		Resolutions: w.Lengths(), FineHeavyOnly: w.FineHeavyOnly, MaxSeries: cmp.Or(w.MaxKeys.Int(), window.DefaultMaxSeries),
		Flows: flows, LocateUntouched: w.LocateUntouched, UDPRepeat: time.Duration(w.UDPRepeat),
	}
}

// maxStoredSubjects is the maximum number of subjects per kind in one tap's findings.
const maxStoredSubjects = 512

// Finding returns the configuration of detection at taps, nil if it is off.
func (n *Network) Finding() *finding.Config {
	if !n.Config.Findings.Detect {
		return nil
	}
	return &finding.Config{
		Domain: n.Domain, Locator: n.Fabric, Senders: n.Config.Findings.Prefixes(), MaxSubjects: maxStoredSubjects,
	}
}

// TapDefaults apply to taps that neither the configuration nor the fabric file places.
type TapDefaults struct {
	Place   Place
	Mirrors decode.Mirrors
}

// Tap returns how packets of a capture interface count: by the configuration, else by the
// fabric file, else by the defaults.
func (n *Network) Tap(name string, defaults TapDefaults) window.Tap {
	spec, found := n.named(name)
	if !found {
		spec.Place = string(defaults.Place)
	}
	tap := n.placedAs(spec)
	tap.Mirrors = cmp.Or(tap.Mirrors, defaults.Mirrors)
	return tap
}

// TapNames returns the names of the taps in the fabric file and the configuration.
func (n *Network) TapNames() []string {
	var list []string
	for _, t := range slices.Concat(n.FileTaps, n.Config.Taps) {
		if !slices.Contains(list, t.Name) {
			list = append(list, t.Name)
		}
	}
	return list
}

// named returns the entry of a tap in the configuration, or else in the fabric file.
func (n *Network) named(name string) (spec fabric.TapSpec, found bool) {
	for _, list := range [][]fabric.TapSpec{n.Config.Taps, n.FileTaps} {
		if i := slices.IndexFunc(list, func(t fabric.TapSpec) bool { return t.Name == name }); i >= 0 {
			return list[i], true
		}
	}
	return spec, found
}

func (n *Network) placedAs(spec fabric.TapSpec) window.Tap {
	tap := window.TapAt(spec.Place, uint64(max(spec.Weight, 1)))
	tap.Mirrors, tap.ObservationPoint = spec.Mirrors, n.observationPoints[spec.Name]
	return tap
}

// Taps returns the interfaces and mirrors to capture from, for sections that have been checked.
func (n *Network) Taps(section *Capture, mirrors []Mirror, defaults TapDefaults) (taps.Config, error) {
	cfg := taps.Config{Decode: n.Decode}
	for i := range section.Taps {
		t := &section.Taps[i]
		at := n.Tap(t.TapName(), defaults).With(string(t.Place), uint64(t.Weight))
		at.Mirrors = cmp.Or(t.Mirrors, at.Mirrors)
		cfg.Interfaces = append(cfg.Interfaces, taps.Interface{
			Name: t.TapName(), At: at, Capture: t.config(), Unfiltered: t.Unfiltered,
			By: taps.ReaderKind(section.By), Odd: section.OddPackets == "ring",
		})
	}
	for i := range mirrors {
		m, err := n.mirror(&mirrors[i], defaults)
		if err != nil {
			return cfg, err
		}
		cfg.Mirrors = append(cfg.Mirrors, m)
	}
	return cfg, nil
}

// CheckCounting returns an error if a section has the kernel count a tap that no kernel can count.
func (n *Network) CheckCounting(defaults TapDefaults) error {
	settings := n.Settings()
	for _, c := range [...]struct {
		name    string
		section *Capture
	}{{"collect", &n.Config.Collect.Capture}, {"export", &n.Config.Export.Capture}} {
		if c.section.By != Choice[readers](taps.ByKernel) {
			continue
		}
		of, err := n.Taps(c.section, nil, defaults)
		for i := 0; err == nil && i < len(of.Interfaces); i++ {
			err = of.Interfaces[i].CheckCounting(&settings)
		}
		if err != nil {
			return fmt.Errorf("%s: capture: ebpf: %w", c.name, err)
		}
	}
	return nil
}

func (n *Network) mirror(m *Mirror, defaults TapDefaults) (taps.Mirror, error) {
	socket, err := m.socket()
	if err != nil {
		return taps.Mirror{}, err
	}
	sessions, err := m.sessions()
	return taps.Mirror{
		Name: m.name(), From: string(m.Listen), At: n.Tap(m.name(), defaults).With(string(m.Place), uint64(m.Weight)),
		Socket: socket, Kinds: m.kinds(socket.Listen.Port()), MaxSessions: m.maxSessions(), Clock: taps.Clock(m.Clock), Sessions: sessions,
		Placed: func(name string) (window.Tap, bool) {
			spec, ok := n.named(name)
			return n.placedAs(spec), ok
		},
	}, err
}
