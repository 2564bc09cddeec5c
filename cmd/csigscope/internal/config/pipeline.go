package config

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// Decode configures the decoding of frames with tunnels. It is part of the epoch.
type Decode struct {
	Endpoints  Choice[endpoints] `yaml:"endpoints" help:"IP header of a tunnel that names the ends of a path"`
	InnerTags  bool              `yaml:"inner_tags,omitempty" help:"accept tags inside tunnels, which are orphans otherwise"`
	UDPTunnels UDPTunnels        `yaml:"udp_tunnels,flow" help:"tunnels by UDP destination port: gtpu, geneve, psp, vxlan or vxlan-gpe; setting them replaces all of the defaults"`
}

type endpoints struct{}

func (endpoints) words() []string { return []string{"outer", "inner"} }

// fingerprint has all keys of the section, since all of them change rows: the epoch depends on it.
func (c *Decode) fingerprint() string {
	return fmt.Sprintf("endpoints %s, inner tags %t, udp tunnels%s", c.Endpoints, c.InnerTags, c.UDPTunnels)
}

// Decoder returns the decoder's configuration in a domain.
func (c *Decode) Decoder(domain *csig.Domain) (d decode.Config, err error) {
	d = decode.Config{Domain: domain, InnerTags: c.InnerTags, UDPTunnels: c.UDPTunnels}
	if d.Endpoints, err = decode.ParseEndpoints(string(c.Endpoints)); err == nil {
		_, err = decode.New(d) // ports may have two meanings
	}
	if err != nil {
		return d, fmt.Errorf("decode: %w", err)
	}
	return d, nil
}

// Windows configures the windows over which observations are aggregated.
type Windows struct {
	Resolutions     []Duration `yaml:"resolutions,flow" help:"lengths of windows, each a whole part of the next; below 1s at most one, of at least 100us; if it is at least 10ms, collect --api-listen serves its windows too"`
	FineHeavyOnly   bool       `yaml:"fine_heavy_only" help:"keep rows below 1s only where something was heavy"`
	MaxKeys         Quantity   `yaml:"max_keys,omitempty" range:"1..2097152" default:"1048576, fewer under a memory limit" help:"keys (combinations of source, destination, signal, kind, tag layout and location) that each stream of a tap counts at a time; untouched and trimmed observations have keys of their own. Observations of further keys go to overflow rows, which keep totals exact"`
	LocateUntouched bool       `yaml:"locate_untouched" help:"use locator metadata where S is the initial value: for fabrics whose first hop may write that value"`
	UDPRepeat       Duration   `yaml:"udp_repeat" range:"0s..1m" help:"time within which a reflection over UDP, which has no acknowledgement number, repeats the last counted one of its flow and signal if both have the same fields; 0s counts all"`
}

func defaultWindows() Windows {
	return Windows{Resolutions: []Duration{Duration(time.Second), Duration(time.Minute)}, FineHeavyOnly: true, UDPRepeat: Duration(window.DefaultUDPRepeat)}
}

// States configures when cells and links count as congested.
type States struct {
	Onset float64 `yaml:"onset" help:"share of heavy observations: a window of 1s with at least this share and at least 10 samples makes a cell or a link congested"`
	Clear float64 `yaml:"clear" help:"share of heavy observations: a window below it ends the congestion; at most onset"`
}

func defaultStates() States {
	t := aggregate.DefaultThresholds()
	return States{Onset: t.Onset, Clear: t.Clear}
}

// Thresholds returns the thresholds for package aggregate.
func (c *States) Thresholds() aggregate.Thresholds {
	return aggregate.Thresholds{Onset: c.Onset, Clear: c.Clear}
}

func (c *States) check() error {
	if err := c.Thresholds().Check(); err != nil {
		return fmt.Errorf("states: onset %g, clear %g: %w", c.Onset, c.Clear, err)
	}
	return nil
}

// Lengths returns the resolutions.
func (c *Windows) Lengths() (list []time.Duration) {
	for _, r := range c.Resolutions {
		list = append(list, time.Duration(r))
	}
	return list
}

// check validates the values. Each resolution needs a table in stores, which have one for all below 1 s.
func (c *Windows) check() error {
	lengths := c.Lengths()
	if err := window.CheckResolutions(lengths, c.FineHeavyOnly); err != nil {
		return fmt.Errorf("windows: resolutions: %w", err)
	}
	if len(lengths) > 1 && lengths[1] < time.Second {
		return fmt.Errorf("windows: resolutions: %s and %s: expected at most one below 1s", lengths[0], lengths[1])
	}
	for _, r := range lengths {
		if err := store.CheckResolution(r); err != nil {
			return fmt.Errorf("windows: resolutions: %w", err)
		}
	}
	return nil
}

// Flows configures the number of named flows in windows.
type Flows struct {
	Top    int      `yaml:"top" range:"0..10000" help:"flows that a window names for each signal and kind; 0 names none"`
	Budget Quantity `yaml:"budget,omitempty" default:"4 times top, at least 4096" help:"flows that a window counts to find the top ones; at least top and 2"`
}

// limits returns the limits for shards, including the default budget.
func (c *Flows) limits() (window.FlowLimits, error) {
	return window.FlowLimits{Top: c.Top, Budget: c.Budget.Int()}.WithDefaults()
}

func (c *Flows) check() error {
	if _, err := c.limits(); err != nil {
		return fmt.Errorf("flows: budget: %w", err)
	}
	return nil
}

// Findings configures detection during aggregation.
type Findings struct {
	Detect  bool     `yaml:"detect" help:"look for violations of the protocol and the configuration in packets and windows, and store them"`
	Senders []Prefix `yaml:"senders,omitempty,flow" default:"all" help:"prefixes of the hosts that may send tags"`
}

// Prefixes returns the senders; none if all hosts may send.
func (c *Findings) Prefixes() (list []netip.Prefix) {
	for _, p := range c.Senders {
		list = append(list, p.Prefix)
	}
	return list
}
