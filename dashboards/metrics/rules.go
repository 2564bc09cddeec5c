package metrics

import (
	_ "embed"
	"fmt"

	"go.yaml.in/yaml/v3"
)

//go:embed alerts/csigscope.rules.yaml
var rulesFile []byte

// RuleGroup is a group of alert rules, as Prometheus reads them.
type RuleGroup struct {
	Name  string `yaml:"name"`
	Rules []Rule `yaml:"rules"`
}

// Rule is an alert that ships with csigscope.
type Rule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"` // in PromQL; it fires for each series of its answer
	For         string            `yaml:"for"`  // a time such as 5m; empty is at once
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"` // Prometheus' templates
}

// Rules are the alert rules that ship with csigscope, in their order.
func Rules() ([]RuleGroup, error) {
	var file struct {
		Groups []RuleGroup `yaml:"groups"`
	}
	if err := yaml.Unmarshal(rulesFile, &file); err != nil {
		return nil, fmt.Errorf("read alert rules: %w", err)
	}
	return file.Groups, nil
}
