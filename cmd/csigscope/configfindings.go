package main

import (
	"fmt"
	"net/netip"

	"go.yaml.in/yaml/v3"

	"github.com/csigscope/csigscope/aggregate/finding"
)

// findingsConfig says what observations are looked at for while they are added up.
type findingsConfig struct {
	Detect  *bool        `yaml:"detect,omitempty"`       // false stores no findings
	Senders []prefixText `yaml:"senders,omitempty,flow"` // that may send tags; all where none is given
}

// merge returns c with the defaults for what it leaves out.
func (c findingsConfig) merge() findingsConfig {
	if c.Detect == nil {
		detect := true
		c.Detect = &detect
	}
	return c
}

// senders are those that may send tags.
func (c findingsConfig) senders() (list []netip.Prefix) {
	for _, p := range c.Senders {
		list = append(list, p.Prefix)
	}
	return list
}

// prefixText is a prefix such as 10.0.0.0/8.
type prefixText struct{ netip.Prefix }

// UnmarshalYAML implements yaml.Unmarshaler.
func (p *prefixText) UnmarshalYAML(n *yaml.Node) error {
	prefix, err := netip.ParsePrefix(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil {
		return fmt.Errorf("line %d: %q: expected a prefix such as 10.0.0.0/8", n.Line, n.Value)
	}
	p.Prefix = prefix.Masked()
	return nil
}

// MarshalYAML implements yaml.Marshaler.
func (p prefixText) MarshalYAML() (any, error) { return p.String(), nil } //nolint:unparam // the interface has an error

// maxStoredSubjects bounds the subjects of a kind that one tap's findings tell apart.
const maxStoredSubjects = 512

// finding is what taps look for, nil for nothing.
func (n *network) finding() *finding.Config {
	if !*n.config.Findings.Detect {
		return nil
	}
	return &finding.Config{
		Domain: n.domain, Locator: n.fabric, Senders: n.config.Findings.senders(), MaxSubjects: maxStoredSubjects,
	}
}
