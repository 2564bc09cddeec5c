package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/window"
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
	MaxKeys       quantity        `yaml:"max_keys,omitempty"`
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
			MaxKeys:       quantity{n: window.DefaultMaxKeys},
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
	if err := c.parse(text); err != nil {
		return c, usageError{fmt.Errorf("read configuration %q: %w", path, err)}
	}
	return c, nil
}

// parse reads and validates a configuration. Its error is one line, and names lines and keys.
func (c *config) parse(text []byte) error {
	var tree yaml.Node
	_ = yaml.Unmarshal(text, &tree) // the decoder reports bad YAML
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	switch err := d.Decode(c); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return errors.New(nameKeys(plainYAMLError(err, "config dump"), &tree))
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return errors.New("more than one YAML document: expected one")
	}
	var wrong []string
	for _, err := range c.validate() {
		for text := range strings.SplitSeq(err.Error(), "\n") {
			if !yamlLine.MatchString(text) {
				text = atLine(lineOf(&tree, text)) + text
			}
			wrong = append(wrong, text)
		}
	}
	if wrong != nil {
		return errors.New(strings.Join(wrong, "; "))
	}
	return nil
}

// validate says what is wrong with values, by the functions that commands make things with:
// what it lets pass, no command refuses because of its value. What YAML can tell of one value
// is part of the value's type, and what needs the fabric file is newNetwork's. Errors begin
// with the keys of the value, or with its line.
func (c *config) validate() (wrong []error) {
	m := c.merge()
	for _, err := range []error{
		checkCSIG(c.CSIG, m.Decode), m.Windows.check(), fabric.CheckTaps(c.Taps),
		c.Flows.check(), c.Store.check(), c.Collect.check(), c.Export.check(), c.API.check(),
	} {
		if err != nil {
			wrong = append(wrong, err)
		}
	}
	return wrong
}

// checkCSIG checks a section csig alone, so that an error counts the tables of this file, and
// then with the defaults that it is laid over.
func checkCSIG(s csig.Spec, decoding decodeConfig) error {
	if _, err := s.Compile(); err != nil {
		return fmt.Errorf("csig: %s", strings.TrimPrefix(err.Error(), "compile "))
	}
	domain, err := csig.DefaultSpec().Overlay(s).Compile()
	if err != nil {
		return fmt.Errorf("csig: %w", err)
	}
	_, err = decoding.decoder(domain)
	return err
}

// check finds values out of bounds. Each resolution has to have a table in stores.
func (c *windowsConfig) check() error {
	if err := window.CheckMaxKeys(c.MaxKeys.int()); err != nil {
		return fmt.Errorf("windows: max_keys: %w", err)
	}
	if err := window.CheckResolutions(c.Resolutions, *c.FineHeavyOnly); err != nil {
		return fmt.Errorf("windows: resolutions: %w", err)
	}
	for _, r := range c.Resolutions {
		if err := store.CheckResolution(r); err != nil {
			return fmt.Errorf("windows: resolutions: %w", err)
		}
	}
	return nil
}

// decoder is how frames are decoded, in a domain.
func (c *decodeConfig) decoder(domain *csig.Domain) (d decode.Config, err error) {
	d = decode.Config{Domain: domain, InnerTags: c.InnerTags, UDPTunnels: c.UDPTunnels}
	if d.Endpoints, err = decode.ParseEndpoints(c.Endpoints); err == nil {
		_, err = decode.New(d) // ports may have two meanings
	}
	if err != nil {
		return d, fmt.Errorf("decode: %w", err)
	}
	return d, nil
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
	d.Windows.MaxKeys = cmp.Or(c.Windows.MaxKeys, d.Windows.MaxKeys)
	return d
}
