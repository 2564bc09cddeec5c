package emitter

import (
	"fmt"
	"io"
	"os"

	"github.com/cespare/xxhash/v2"
	"go.yaml.in/yaml/v3"
)

// Dump writes a scenario as the file that Parse reads it back from, complete and
// without a base.
func Dump(w io.Writer, s Scenario) error {
	s = s.withDefaults()
	f := scenarioFile{Format: s.Layout.Format.String(), Profile: s.Layout.Profile.String(), Scenario: s}
	for _, signal := range s.Signals {
		f.Signals = append(f.Signals, signal.String())
	}
	e := yaml.NewEncoder(w)
	e.SetIndent(2)
	if err := e.Encode(&f); err != nil {
		return fmt.Errorf("dump scenario %q: %w", s.Name, err)
	}
	if err := e.Close(); err != nil {
		return fmt.Errorf("dump scenario %q: %w", s.Name, err)
	}
	return nil
}

// ID identifies what a scenario emits: equal ones give equal bytes. It is a hash of
// the scenario's file, and of the fabric file if the scenario names one.
func (s Scenario) ID() (uint64, error) {
	h := xxhash.New()
	if err := Dump(h, s); err != nil {
		return 0, err
	}
	if s.FabricFile != "" {
		text, err := os.ReadFile(s.FabricFile)
		if err != nil {
			return 0, fmt.Errorf("identify scenario %q: %w", s.Name, err)
		}
		_, _ = h.Write(text)
	}
	return h.Sum64(), nil
}
