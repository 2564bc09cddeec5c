package emitter

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"go.yaml.in/yaml/v3"

	"github.com/csigscope/csigscope/decode/csig"
)

// maxScenarioFile bounds the size of a scenario file.
const maxScenarioFile = 1 << 20

// scenarioFile is a scenario as users write it.
type scenarioFile struct {
	// Base names a scenario of the package that the file changes. Lists replace
	// those of the base, rack_uplink_speed adds to it.
	Base     string   `yaml:"base,omitempty"`
	Format   string   `yaml:"format,omitempty"`
	Profile  string   `yaml:"profile,omitempty"`
	Signals  []string `yaml:"signals,omitempty,flow"`
	Scenario `yaml:",inline"`
}

// Load reads a scenario file: the fields of Scenario in YAML, with speeds as
// "100Gbps" and times as "10ms". Unknown keys are errors with line numbers.
func Load(path string) (Scenario, error) {
	f, err := os.Open(path)
	if err != nil {
		return Scenario{}, fmt.Errorf("load scenario: %w", err)
	}
	defer f.Close()
	return Parse(f, path)
}

// Parse reads a scenario file from r; name stands for it in errors, and a fabric file
// that is named relatively is looked for in its folder.
func Parse(r io.Reader, name string) (Scenario, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxScenarioFile+1))
	if err != nil {
		return Scenario{}, fmt.Errorf("load scenario %q: %w", name, err)
	}
	if len(text) > maxScenarioFile {
		return Scenario{}, fmt.Errorf("load scenario %q: is larger than %d bytes", name, maxScenarioFile)
	}
	s, err := parse(text)
	if err == nil {
		if s.FabricFile != "" && !filepath.IsAbs(s.FabricFile) {
			s.FabricFile = filepath.Join(filepath.Dir(name), s.FabricFile)
		}
		s = s.withDefaults()
		err = s.check()
	}
	if err != nil {
		return Scenario{}, fmt.Errorf("load scenario %q: %w", name, err)
	}
	return s, nil
}

func parse(text []byte) (Scenario, error) {
	var base struct {
		Base string `yaml:"base"`
	}
	if err := yaml.Unmarshal(text, &base); err != nil {
		return Scenario{}, err
	}
	var f scenarioFile
	if base.Base != "" {
		s, err := Named(base.Base)
		if err != nil {
			return Scenario{}, fmt.Errorf("base: %w", err)
		}
		f.Scenario = s
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	f.Locator = ""
	if err := d.Decode(&f); err != nil && !errors.Is(err, io.EOF) {
		return Scenario{}, err
	}
	return f.scenario()
}

// scenario reads the fields whose names stand for numbers.
func (f *scenarioFile) scenario() (Scenario, error) {
	s := f.Scenario
	layout := s.withDefaults().Layout
	var err error
	if f.Format != "" {
		if layout.Format, err = csig.ParseFormat(f.Format); err != nil {
			return s, fmt.Errorf("format: %w", err)
		}
	}
	if f.Profile != "" {
		if layout.Profile, err = csig.ParseProfile(f.Profile); err != nil {
			return s, fmt.Errorf("profile: %w", err)
		}
	}
	if f.Signals != nil {
		s.Signals = nil
	}
	if f.Format != "" || f.Profile != "" {
		s = s.WithLayout(layout)
	}
	if f.Locator != "" {
		s.Locator = f.Locator
	}
	for _, name := range f.Signals {
		signal, err := csig.ParseSignal(name)
		if err != nil {
			return s, fmt.Errorf("signals: %w", err)
		}
		s.Signals = append(s.Signals, signal)
	}
	return s, nil
}
