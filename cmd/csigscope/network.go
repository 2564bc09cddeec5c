package main

import (
	"fmt"
	"slices"

	"github.com/spf13/pflag"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/cmd/csigscope/internal/config"
	"github.com/csigscope/csigscope/decode"
)

// network combines the configuration and the fabric file.
type network = config.Network

// networkFlags are the flags of commands that use the network.
type networkFlags struct{ config, fabric string }

func (f *networkFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.config, "config", "", "configuration `FILE` (YAML)")
	flags.StringVar(&f.fabric, "fabric", "", "fabric `FILE` (YAML): topology, groups, locator layouts")
}

// openNetwork reads the configuration and the fabric file; both paths may be empty.
func openNetwork(configPath, fabricPath string) (*network, error) {
	return orUsage(config.OpenNetwork(configPath, fabricPath))
}

// newNetwork reads the configuration and combines it with the fabric, which may be nil; name
// appears in errors.
func newNetwork(configPath string, topology *fabric.Spec, name string) (*network, error) {
	return orUsage(config.NewNetwork(configPath, topology, name))
}

// loadConfig reads a configuration file; an empty path means an empty configuration.
func loadConfig(path string) (config.Config, error) { return orUsage(config.Load(path)) }

// orUsage marks an error as a mistake in a file.
func orUsage[T any](v T, err error) (T, error) {
	if err != nil {
		err = usageError{err}
	}
	return v, err
}

// tapFlags describe taps that neither the configuration nor the fabric file places.
type tapFlags struct {
	place   string
	mirrors decode.Mirrors
}

func (f *tapFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.place, "place", "receiver", "place of taps that neither the configuration nor the fabric file places: receiver, sender or mid; of tags, only those at receiver taps enter the heatmaps")
	f.addMirrors(flags)
}

func (f *tapFlags) addMirrors(flags *pflag.FlagSet) {
	flags.TextVar(&f.mirrors, "mirrors", decode.Mirrors{}, "`KINDS` of mirror sessions to unwrap, at taps for which neither the configuration nor the fabric file names any: erspan, gretap, vxlan, tzsp (default none: tags in mirror sessions are orphans)")
}

func (f *tapFlags) check() error {
	if slices.Contains(fabric.TapPlaces, f.place) {
		return nil
	}
	return fmt.Errorf("--place %q: expected receiver, sender or mid", f.place)
}

// defaults converts the flags for the network.
func (f tapFlags) defaults() config.TapDefaults {
	return config.TapDefaults{Place: config.Place(f.place), Mirrors: f.mirrors}
}
