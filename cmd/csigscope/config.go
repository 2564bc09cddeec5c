package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// maxConfigBytes bounds a configuration file.
const maxConfigBytes = 4 << 20

// config is the configuration file. Every part is optional: what it leaves out
// comes from the fabric file, and then from the defaults.
type config struct {
	// CSIG says what TPIDs mean, how values are quantized and what locator metadata
	// holds.
	CSIG csig.Spec `yaml:"csig,omitempty"`
	// Decode says how frames with tunnels are read.
	Decode decodeConfig `yaml:"decode,omitempty"`
	// Windows says what observations are added up over.
	Windows windowsConfig `yaml:"windows,omitempty"`
	// Flows says how many flows windows name. It is no part of the epoch.
	Flows flowsConfig `yaml:"flows,omitempty"`
	// Findings says what is looked for while windows are made. It is no part of the epoch.
	Findings findingsConfig `yaml:"findings,omitempty"`
	// Taps places capture interfaces by name.
	Taps []fabric.TapSpec `yaml:"taps,omitempty"`
	// Store says where rows go. It is no part of the epoch.
	Store storeConfig `yaml:"store,omitempty"`
	// Collect says what the command collect captures. It is no part of the epoch.
	Collect collectConfig `yaml:"collect,omitempty"`
	// Export says what the command export captures, and whom it hands that to.
	Export exportConfig `yaml:"export,omitempty"`
	// API says who may ask the query API and the page. It is no part of the epoch.
	API apiConfig `yaml:"api,omitempty"`
}

type decodeConfig struct {
	Endpoints string `yaml:"endpoints,omitempty"`  // IP header that names the ends of a path: outer or inner
	InnerTags bool   `yaml:"inner_tags,omitempty"` // tags inside tunnels are expected, and no orphans

	UDPTunnels udpTunnels `yaml:"udp_tunnels,flow"` // by destination port; given ones replace all of the defaults
}

type windowsConfig struct {
	Resolutions   []time.Duration `yaml:"resolutions,omitempty,flow"`
	FineHeavyOnly *bool           `yaml:"fine_heavy_only,omitempty"`
	MaxKeys       int             `yaml:"max_keys,omitempty"`
	// LocateUntouched lets locator metadata stand where S is the initial value: for
	// fabrics whose first hop may write that.
	LocateUntouched bool `yaml:"locate_untouched"`
}

// defaultConfig is what an empty configuration file means.
func defaultConfig() config {
	heavyOnly := true
	return config{
		CSIG:   csig.DefaultSpec(),
		Decode: decodeConfig{Endpoints: "outer", UDPTunnels: decode.DefaultUDPTunnels()},
		Windows: windowsConfig{
			Resolutions:   []time.Duration{time.Second, time.Minute},
			FineHeavyOnly: &heavyOnly,
			MaxKeys:       1 << 20,
		},
		Flows:    flowsConfig{}.merge(),
		Findings: findingsConfig{}.merge(),
		Store:    defaultStoreConfig(),
		Collect:  defaultCollectConfig(),
		Export:   defaultExportConfig(),
		API:      defaultAPIConfig(),
	}
}

// loadConfig reads a configuration file; an empty path is the empty configuration.
func loadConfig(path string) (config, error) {
	var c config
	if path == "" {
		return c, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return c, usageError{fmt.Errorf("read configuration: %w", err)}
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxConfigBytes+1))
	if err != nil {
		return c, usageError{fmt.Errorf("read configuration: %w", err)}
	}
	if len(text) > maxConfigBytes {
		return c, usageError{fmt.Errorf("read configuration %q: larger than %d bytes", path, maxConfigBytes)}
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return c, usageError{fmt.Errorf("read configuration %q: %s", path, plainYAMLError(err, "config dump"))}
	}
	if c.Decode.Endpoints != "" {
		if _, err := decode.ParseEndpoints(c.Decode.Endpoints); err != nil {
			return c, usageError{fmt.Errorf("read configuration %q: decode: %w", path, err)}
		}
	}
	if err := errors.Join(c.Flows.check(), c.Store.check(), c.Collect.check(), c.Export.check(), c.API.check()); err != nil {
		return c, usageError{fmt.Errorf("read configuration %q: %w", path, err)}
	}
	// Alone, so that an error counts the tables of this file.
	if _, err := c.CSIG.Compile(); err != nil {
		return c, usageError{fmt.Errorf("read configuration %q: csig: %w", path, err)}
	}
	return c, nil
}

// merge returns c with the defaults for what it leaves out.
func (c config) merge() config {
	d := defaultConfig()
	d.CSIG = d.CSIG.Overlay(c.CSIG)
	d.Taps = c.Taps
	d.Flows = c.Flows.merge()
	d.Findings = c.Findings.merge()
	d.Store = c.Store.merge()
	d.Collect = c.Collect.merge()
	d.Export = c.Export.merge()
	d.API = c.API.merge()
	d.Decode.InnerTags = c.Decode.InnerTags
	if c.Decode.Endpoints != "" {
		d.Decode.Endpoints = c.Decode.Endpoints
	}
	if c.Decode.UDPTunnels != nil {
		d.Decode.UDPTunnels = c.Decode.UDPTunnels
	}
	if len(c.Windows.Resolutions) > 0 {
		d.Windows.Resolutions = c.Windows.Resolutions
	}
	if c.Windows.FineHeavyOnly != nil {
		d.Windows.FineHeavyOnly = c.Windows.FineHeavyOnly
	}
	d.Windows.LocateUntouched = c.Windows.LocateUntouched
	if c.Windows.MaxKeys > 0 {
		d.Windows.MaxKeys = c.Windows.MaxKeys
	}
	return d
}
