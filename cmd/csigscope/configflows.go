package main

import (
	"fmt"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/csigscope/csigscope/aggregate/window"
)

// flowsConfig says how many flows windows name.
type flowsConfig struct {
	Top    flowCount `yaml:"top,omitempty"`    // of each signal and kind; 0 is none
	Budget flowCount `yaml:"budget,omitempty"` // that are remembered to find them
}

// defaultTopFlows is how many flows a window names unless told otherwise.
const defaultTopFlows = 100

// merge returns c with the defaults for what it leaves out.
func (c flowsConfig) merge() flowsConfig {
	if !c.Top.set {
		c.Top = flowCount{n: defaultTopFlows, set: true}
	}
	if limits, err := c.limits().WithDefaults(); err == nil && !c.Budget.set && limits.Top > 0 {
		c.Budget = flowCount{n: limits.Budget, set: true}
	}
	return c
}

// limits are those of shards.
func (c flowsConfig) limits() window.FlowLimits {
	return window.FlowLimits{Top: c.Top.n, Budget: c.Budget.n}
}

// check finds values out of bounds.
func (c flowsConfig) check() error {
	if c.Budget.set && c.Budget.n == 0 {
		return fmt.Errorf("%sflows: budget: expected at least 2; top: 0 names no flows", atLine(c.Budget.line))
	}
	m := c.merge()
	if _, err := m.limits().WithDefaults(); err != nil {
		return fmt.Errorf("%sflows: %w", atLine(max(c.Budget.line, c.Top.line)), err)
	}
	return nil
}

// flowCount is a whole number that may be 0.
type flowCount struct {
	n    int
	set  bool
	line int
}

// UnmarshalYAML implements yaml.Unmarshaler.
func (c *flowCount) UnmarshalYAML(n *yaml.Node) error {
	v, err := strconv.ParseUint(n.Value, 10, 31)
	if n.Kind != yaml.ScalarNode || err != nil {
		return fmt.Errorf("line %d: %q: expected a whole number such as 100", n.Line, n.Value)
	}
	*c = flowCount{int(v), true, n.Line}
	return nil
}

// MarshalYAML implements yaml.Marshaler.
func (c flowCount) MarshalYAML() (any, error) { return c.n, nil } //nolint:unparam // the interface has an error

// IsZero implements yaml.IsZeroer.
func (c flowCount) IsZero() bool { return !c.set }
