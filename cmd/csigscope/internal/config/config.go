// Package config is the configuration file: its keys with their defaults, ranges and meaning,
// and the settings that it gives to other packages.
//
// A file is decoded over the defaults and checked once, as a whole. The tags of a field define
// its key: default and range are printed by the reference of the keys, and range is also
// enforced.
//
// It knows keys and values. It must never know commands: they choose the flags that override
// keys, and use the values.
package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// maxBytes is the maximum size of a configuration file.
const maxBytes = 4 << 20

// Config is the configuration file over the defaults.
type Config struct {
	// CSIG is the section of this file only: it is laid over the fabric file's section, and
	// both over csig.DefaultSpec.
	CSIG     csig.Spec        `yaml:"csig,omitempty" default:"below" help:"meaning of TPIDs, signal values and locator metadata, laid over the section csig of the fabric file; see the tables below"`
	Decode   Decode           `yaml:"decode"`
	Windows  Windows          `yaml:"windows"`
	States   States           `yaml:"states"`
	Flows    Flows            `yaml:"flows"`
	Findings Findings         `yaml:"findings"`
	Taps     []fabric.TapSpec `yaml:"taps,omitempty" help:"places of taps by name, as in the fabric file, over which they take precedence: each has name, place, at, weight and mirrors"`
	Store    Store            `yaml:"store"`
	Collect  Collect          `yaml:"collect"`
	Export   Export           `yaml:"export"`
	API      API              `yaml:"api"`
	// MemoryLimit is the limit that Config.Memory divides.
	MemoryLimit Bytes `yaml:"memory_limit,omitempty" range:"256MiB.." default:"90 % of the limit of the process's cgroup, else none" help:"memory of collect, export or query serve together with the embedded engine that it starts: the bounds of their parts add up to it. The environment variable GOMEMLIMIT, for the Go heap alone, takes precedence"`
}

// Default returns the configuration of an empty file.
func Default() Config {
	return Config{
		Decode: Decode{Endpoints: "outer", UDPTunnels: decode.DefaultUDPTunnels()}, Windows: defaultWindows(), States: defaultStates(), Flows: Flows{Top: 100}, Findings: Findings{Detect: true},
		Store: defaultStore(), Collect: defaultCollect(), Export: Export{Capture: defaultCapture(), Spool: Spool{Size: 1 << 30}}, API: defaultAPI(),
	}
}

// Load reads and checks a configuration file; an empty path means an empty file. Its errors are
// one line, and name the file, lines and keys.
func Load(path string) (Config, error) {
	if path == "" {
		return Default(), nil
	}
	f, err := os.Open(path)
	if err != nil {
		return Config{}, fmt.Errorf("read configuration: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return Config{}, fmt.Errorf("read configuration: %w", err)
	}
	if len(text) > maxBytes {
		return Config{}, fmt.Errorf("read configuration %q: larger than %d bytes", path, maxBytes)
	}
	c, err := Parse(text)
	if err != nil {
		return Config{}, fmt.Errorf("read configuration %q: %w", path, err)
	}
	return c, nil
}

// Parse decodes the text of a file over the defaults, and checks it.
func Parse(text []byte) (Config, error) {
	c := Default()
	tree, err := fabric.DecodeYAML(text, &c)
	switch {
	case errors.Is(err, io.EOF):
		return c, nil
	case err != nil:
		return c, errors.New(nameKeys(PlainYAMLError(err, reflect.TypeFor[Config]()), tree))
	}
	if c.Decode.UDPTunnels == nil { // null: the decoder takes the defaults, so the epoch and a dump have them too
		c.Decode.UDPTunnels = decode.DefaultUDPTunnels()
	}
	var wrong []string
	for _, err := range c.check() {
		for text := range strings.SplitSeq(err.Error(), "\n") {
			wrong = append(wrong, atLine(lineOf(tree, text))+text)
		}
	}
	if wrong != nil {
		return c, errors.New(strings.Join(wrong, "; "))
	}
	return c, nil
}

// check validates values, first by their ranges and then with the functions that commands use. It
// does not check values that depend on the fabric file, the machine or flags, such as the memory of a
// command. Errors begin with the keys of the value.
func (c *Config) check() (wrong []error) {
	if wrong = outOfRange(reflect.ValueOf(c).Elem()); wrong != nil {
		return wrong
	}
	for _, err := range []error{
		c.checkCSIG(), c.Windows.check(), c.States.check(), fabric.CheckTaps(c.Taps), c.Flows.check(),
		c.Store.check(), c.Collect.Check(), c.Export.Check(), c.API.check(),
	} {
		if err != nil {
			wrong = append(wrong, err)
		}
	}
	return wrong
}

// checkCSIG checks the section csig on its own, so that table numbers in errors are those of
// this file, and then laid over the defaults.
func (c *Config) checkCSIG() error {
	if _, err := c.CSIG.Compile(); err != nil {
		return fmt.Errorf("csig: %s", strings.TrimPrefix(err.Error(), "compile "))
	}
	domain, err := csig.DefaultSpec().Overlay(c.CSIG).Compile()
	if err != nil {
		return fmt.Errorf("csig: %w", err)
	}
	_, err = c.Decode.Decoder(domain)
	return err
}

// Dump writes the configuration, including defaults that depend on other keys. Default lists of csig are
// comments, since as keys they would replace those of the fabric file.
func (c Config) Dump(w io.Writer) error {
	if limits, err := c.Flows.limits(); err == nil {
		c.Flows.Budget = Quantity(limits.Budget)
	}
	unset := csig.DefaultSpec()
	if c.CSIG.TPIDs != nil {
		unset.TPIDs = nil
	}
	if c.CSIG.Reflections != nil {
		unset.Reflections = nil
	}
	if len(c.CSIG.Tables)+len(c.CSIG.Shipped) > 0 {
		unset.Tables = nil
	}
	own, err := asYAML(c)
	if err != nil {
		return err
	}
	if !unset.IsZero() {
		defaults, err := asYAML(map[string]csig.Spec{"csig": unset})
		if err != nil {
			return err
		}
		const first = "csig:\n"
		head := "csig: # lists in comments are defaults: set here, they replace those of the fabric file\n"
		if c.CSIG.IsZero() {
			head = "# " + head
		}
		for line := range strings.Lines(strings.TrimPrefix(defaults, first)) {
			head += "# " + line
		}
		own = head + strings.TrimPrefix(own, first)
	}
	_, err = io.WriteString(w, own)
	return err
}

// asYAML returns a value as YAML.
func asYAML(v any) (string, error) {
	var out strings.Builder
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	if err := e.Encode(v); err != nil {
		return "", fmt.Errorf("print configuration: %w", err)
	}
	return out.String(), nil
}
