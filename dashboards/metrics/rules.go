package metrics

import (
	_ "embed"
	"fmt"

	"go.yaml.in/yaml/v3"
)

//go:embed alerts/csigscope.rules.yaml
var rulesFile []byte

// RuleGroup is a group of alert rules in Prometheus' form.
type RuleGroup struct {
	Name  string `yaml:"name"`
	Rules []Rule `yaml:"rules"`
}

// Rule is one alert.
type Rule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"` // PromQL; the alert fires for each series in the result
	For         string            `yaml:"for"`  // duration such as 5m; empty: at once
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"` // with Prometheus templates
}

// Rules returns the alert rules of csigscope in order.
func Rules() ([]RuleGroup, error) {
	var file struct {
		Groups []RuleGroup `yaml:"groups"`
	}
	if err := yaml.Unmarshal(rulesFile, &file); err != nil {
		return nil, fmt.Errorf("read alert rules: %w", err)
	}
	return file.Groups, nil
}
