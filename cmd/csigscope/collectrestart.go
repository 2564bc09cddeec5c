package main

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// settings are values by where they stand in the configuration, such as store.dsn.
type settings map[string]string

// settingsOf are those of a section that is written as YAML is.
func settingsOf(section any) (settings, error) {
	text, err := yaml.Marshal(section)
	if err != nil {
		return nil, fmt.Errorf("write settings: %w", err)
	}
	var tree map[string]any
	if err := yaml.Unmarshal(text, &tree); err != nil {
		return nil, fmt.Errorf("read settings: %w", err)
	}
	s := make(settings)
	s.add("", tree)
	return s, nil
}

func (s settings) add(at string, value any) {
	below, ok := value.(map[string]any)
	if !ok {
		s[at] = fmt.Sprint(value)
		return
	}
	for key, v := range below {
		s.add(strings.TrimPrefix(at+"."+key, "."), v)
	}
}

// differ are the places of what is not the same in both, in order.
func (s settings) differ(o settings) []string {
	list := make(map[string]bool)
	for _, side := range [...]settings{s, o} {
		for key := range side {
			if s[key] != o[key] {
				list[key] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(list))
}

// fixedSettings are those of collect that a reload does not take over. What flags say does
// not change with the files.
func (c *collector) fixedSettings(n *network, config *collectConfig) (settings, error) {
	own := *config
	own.Taps, own.Mirrors, own.Ingest.Exporters, own.Ingest.Limits.exporterLimits = nil, nil, nil, exporterLimits{}
	s, err := settingsOf(map[string]any{"store": n.config.Store, "collect": own})
	if err != nil {
		return nil, err
	}
	s["store.dsn"] = n.config.Store.DSN.text // with its password, which is not written
	for flag, key := range map[string]string{"store": "dsn", "outbox": "outbox.dir", "outbox-size": "outbox.size", "outbox-keep": "outbox.keep"} {
		if c.cmd.Flags().Changed(flag) {
			delete(s, "store."+key)
		}
	}
	return s, nil
}

// tellFixed warns of what a reload has not taken over.
func (c *capturing) tellFixed(n *network, config *collectConfig) {
	now, err := c.fixed(n, config)
	if err != nil {
		c.logger.Warn("changed settings may need a restart", slog.String("error", err.Error()))
		return
	}
	if list := c.started.differ(now); len(list) > 0 {
		c.logger.Warn("changed settings need a restart", slog.String("settings", strings.Join(list, " ")))
	}
}
