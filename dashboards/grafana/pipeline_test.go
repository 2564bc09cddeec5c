package grafana_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/csigscope/csigscope/dashboards/grafana"
	"github.com/csigscope/csigscope/dashboards/metrics"
)

// expression is a panel's Prometheus query with its legend.
type expression struct{ panel, expr, legend string }

func expressions(t *testing.T) (list []expression) {
	t.Helper()
	for _, p := range decoded(t, grafana.DefaultOptions())["pipeline"]["panels"].([]any) {
		title := p.(map[string]any)["title"].(string)
		each(p.(map[string]any)["targets"], func(o map[string]any) {
			expr, ok := o["expr"].(string)
			if !ok {
				return
			}
			legend, _ := o["legendFormat"].(string)
			list = append(list, expression{title, expr, legend})
		})
	}
	if len(list) < 20 {
		t.Fatalf("%d expressions", len(list))
	}
	return list
}

// TestExpressions parses the panels' queries with Prometheus' own parser, as rules.
func TestExpressions(t *testing.T) {
	path, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("promtool is not installed: run make deps")
		}
		t.Skip("SKIPPED: promtool is not installed: run make deps")
	}
	type rule struct {
		Record string            `yaml:"record"`
		Expr   string            `yaml:"expr"`
		Labels map[string]string `yaml:"labels"`
	}
	var rules []rule
	for _, e := range expressions(t) {
		expr := strings.NewReplacer("$__rate_interval", "1m", "$job", ".*", "$instance", ".*").Replace(e.expr)
		if strings.Contains(expr, "$") {
			t.Errorf("%s: Grafana does not know what is in %s", e.panel, expr)
		}
		rules = append(rules, rule{"panel", expr, map[string]string{"panel": e.panel, "legend": e.legend}})
	}
	text, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "panels", "rules": rules}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), path, "check", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}

// TestExpressionNames checks that csigscope exports all metrics and labels in queries. A missing
// one would give an empty panel.
func TestExpressionNames(t *testing.T) {
	labels := map[string][]string{}
	for _, f := range metrics.All() {
		labels[f.Name] = f.Labels
		if f.Type == metrics.Histogram {
			labels[f.Name+"_bucket"] = append([]string{"le"}, f.Labels...)
		}
	}
	name := regexp.MustCompile(`\b(?:csigscope|process)_\w+`)
	by := regexp.MustCompile(`by \(([^)]*)\)`)
	used := regexp.MustCompile(`\{\{(\w+)\}\}`)
	for _, e := range expressions(t) {
		// Prometheus adds these to every series.
		known := map[string]bool{"job": true, "instance": true}
		for _, n := range name.FindAllString(e.expr, -1) {
			if _, exported := labels[n]; !exported && n != "process_resident_memory_bytes" {
				t.Errorf("%s: %s does not exist", e.panel, n)
			}
			for _, l := range labels[n] {
				known[l] = true
			}
		}
		for _, list := range by.FindAllStringSubmatch(e.expr, -1) {
			left := map[string]bool{}
			for l := range strings.SplitSeq(list[1], ", ") {
				if !known[l] {
					t.Errorf("%s: no series has the label %s", e.panel, l)
				}
				left[l] = true
			}
			known = left
		}
		for _, l := range used.FindAllStringSubmatch(e.legend, -1) {
			if !known[l[1]] {
				t.Errorf("%s: the legend names %s, which %s has not", e.panel, l[1], e.expr)
			}
		}
	}
}
