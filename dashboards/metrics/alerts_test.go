package metrics_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/csigscope/csigscope/dashboards/metrics"
)

const (
	rulesFile = "alerts/csigscope.rules.yaml"
	testsFile = "alerts/csigscope.tests.yaml"
)

// rules is the rules file as Prometheus parses it.
type rules struct {
	Groups []struct {
		Name  string  `yaml:"name"`
		Rules []*rule `yaml:"rules"`
	} `yaml:"groups"`
}

type rule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for,omitempty"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

func readYAML[T any](t *testing.T, file string) T {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var v T
	if err := yaml.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// promtool runs Prometheus' own checks. If promtool is missing, the test fails in CI.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("promtool is not installed: run make deps")
		}
		t.Skip("SKIPPED: promtool is not installed: run make deps")
	}
	if out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// TestAlerts runs the alerts' unit tests. They compare labels and summaries; runbooks are removed
// first, since promtool would require them in every expectation.
func TestAlerts(t *testing.T) {
	promtool(t, "check", "rules", rulesFile)
	all := readYAML[rules](t, rulesFile)
	for _, g := range all.Groups {
		for _, r := range g.Rules {
			delete(r.Annotations, "runbook")
			delete(r.Annotations, "runbook_url")
		}
	}
	text, err := yaml.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	tests, err := os.ReadFile(testsFile)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{filepath.Base(rulesFile): text, filepath.Base(testsFile): tests} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	promtool(t, "test", "rules", filepath.Join(dir, filepath.Base(testsFile)))
}

// TestAlertsComplete checks that alerts use existing metrics, say what to do, and are each tested
// firing and not firing.
func TestAlertsComplete(t *testing.T) {
	known := map[string]bool{}
	for _, f := range metrics.All() {
		known[f.Name] = true
		if f.Type == metrics.Histogram {
			known[f.Name+"_bucket"], known[f.Name+"_sum"], known[f.Name+"_count"] = true, true, true
		}
	}
	exist := func(where, text string) {
		for _, name := range regexp.MustCompile(`csigscope_[a-z0-9_]+`).FindAllString(text, -1) {
			if !known[name] {
				t.Errorf("%s: %s does not exist", where, name)
			}
		}
	}
	type tested struct {
		Tests []struct {
			Series []struct {
				Series string `yaml:"series"`
			} `yaml:"input_series"`
			Alerts []struct {
				Name string `yaml:"alertname"`
				Exp  []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		} `yaml:"tests"`
	}
	fires, quiet := map[string]bool{}, map[string]bool{}
	for _, test := range readYAML[tested](t, testsFile).Tests {
		for _, s := range test.Series {
			exist(testsFile, s.Series)
		}
		for _, a := range test.Alerts {
			if len(a.Exp) > 0 {
				fires[a.Name] = true
			} else {
				quiet[a.Name] = true
			}
		}
	}
	for _, g := range readYAML[rules](t, rulesFile).Groups {
		for _, r := range g.Rules {
			exist(r.Alert, r.Expr+r.Annotations["runbook"])
			severity := r.Labels["severity"]
			if severity != "warning" && severity != "critical" {
				t.Errorf("%s: severity %q", r.Alert, severity)
			}
			if len(r.Annotations["summary"]) < 20 || len(r.Annotations["runbook"]) < 80 {
				t.Errorf("%s: has no summary or no runbook", r.Alert)
			}
			if url := r.Annotations["runbook_url"]; !strings.HasSuffix(url, "/dashboards/metrics/ALERTS.md#"+r.Alert) {
				t.Errorf("%s: runbook_url is %q", r.Alert, url)
			}
			if !fires[r.Alert] || !quiet[r.Alert] {
				t.Errorf("%s: is not tested in both directions", r.Alert)
			}
		}
	}
}
