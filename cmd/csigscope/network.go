package main

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/cespare/xxhash/v2"
	"github.com/spf13/pflag"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/ingest/local/journal"
)

// network is what the configuration and the fabric file say together: the domain,
// the topology, and the epoch that rows made under them name.
type network struct {
	config config
	domain *csig.Domain
	decode decode.Config
	fabric *fabric.Fabric
	epoch  uint64
	text   string // what the epoch is the hash of
}

// naming is how the numbers of rows that are made under the network have names.
func (n *network) naming() journal.Network {
	return journal.Network{Epoch: n.epoch, Text: n.text, Fabric: n.fabric}
}

// networkFlags are the flags of commands that need to know the network.
type networkFlags struct{ config, fabric string }

func (f *networkFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.config, "config", "", "configuration `FILE` (YAML)")
	flags.StringVar(&f.fabric, "fabric", "", "fabric `FILE` (YAML): topology, groups, locator layouts")
}

// openNetwork reads the configuration and the fabric file; both paths may be empty.
func openNetwork(configPath, fabricPath string) (*network, error) {
	if fabricPath == "" {
		return newNetwork(configPath, nil, "")
	}
	topology, err := fabric.Load(fabricPath)
	if err != nil {
		return nil, usageError{err}
	}
	return newNetwork(configPath, topology, fabricPath)
}

// newNetwork reads the configuration and takes the fabric, which may be nil, from the
// place of a name.
func newNetwork(configPath string, topology *fabric.Spec, name string) (*network, error) {
	c, err := loadConfig(configPath)
	if err != nil {
		return nil, err
	}
	n := &network{config: c.merge()}
	spec := csig.DefaultSpec()
	if topology != nil {
		spec = spec.Overlay(topology.CSIG)
	}
	n.domain, err = spec.Overlay(c.CSIG).Compile()
	if err != nil {
		return nil, usageError{fmt.Errorf("read csig section: %w", err)}
	}
	if topology == nil {
		n.fabric = fabric.None(n.domain)
	} else if n.fabric, err = fabric.New(topology, n.domain); err != nil {
		return nil, usageError{fmt.Errorf("read fabric %q: %w", name, err)}
	}
	if n.decode, err = n.config.Decode.decoder(n.domain); err != nil {
		return nil, usageError{fmt.Errorf("read configuration %q: %w", configPath, err)}
	}
	n.text = fmt.Sprintf("endpoints %s, inner tags %t, udp tunnels%s\n%s",
		n.config.Decode.Endpoints, n.config.Decode.InnerTags, n.config.Decode.UDPTunnels, n.fabric.Fingerprint())
	n.epoch = xxhash.Sum64String(n.text)
	return n, nil
}

// tapFlags say of taps what neither the configuration nor the fabric file does.
type tapFlags struct {
	place   string
	mirrors decode.Mirrors
}

func (f *tapFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.place, "place", "receiver", "where taps stand that neither the configuration nor the fabric file places: receiver, sender or mid; only receiver taps enter the heatmaps")
	f.addMirrors(flags)
}

func (f *tapFlags) addMirrors(flags *pflag.FlagSet) {
	flags.TextVar(&f.mirrors, "mirrors", decode.Mirrors{}, "`KINDS` of mirror sessions that frames come in, at taps of which neither the configuration nor the fabric file says so: erspan, gretap, vxlan, tzsp (default none: tags in mirror sessions are orphans)")
}

func (f *tapFlags) check() error {
	if slices.Contains(places, f.place) {
		return nil
	}
	return fmt.Errorf("--place %q: expected receiver, sender or mid", f.place)
}

// tap says how packets of a capture interface count: by the configuration, else by the
// fabric file, else by the flags.
func (n *network) tap(name string, flags tapFlags) window.Tap {
	spec, found := n.named(name)
	if !found {
		spec.Place = flags.place
	}
	tap := placedAs(spec)
	tap.Mirrors = cmp.Or(tap.Mirrors, flags.mirrors)
	return tap
}

// settings are what all streams of the network have in common.
func (n *network) settings() window.Settings {
	w := &n.config.Windows
	return window.Settings{
		Decode: n.decode, Resolver: n.fabric, Epoch: n.epoch, Finding: n.finding(),
		Resolutions: w.Resolutions, FineHeavyOnly: *w.FineHeavyOnly, MaxKeys: w.MaxKeys.int(),
		Flows: n.config.Flows.limits(), LocateUntouched: w.LocateUntouched,
	}
}

// named is what the configuration, else the fabric file, says of a tap.
func (n *network) named(name string) (spec fabric.TapSpec, found bool) {
	spec, found = n.fabric.Tap(name)
	for _, t := range n.config.Taps {
		if t.Name == name {
			spec, found = t, true
		}
	}
	return spec, found
}

// placedAs is how packets of a tap count.
func placedAs(spec fabric.TapSpec) window.Tap {
	tap := window.TapAt(spec.Place, uint64(max(spec.Weight, 1)))
	tap.Mirrors = spec.Mirrors
	return tap
}
