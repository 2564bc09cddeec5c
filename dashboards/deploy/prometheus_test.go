package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPrometheus runs promtool on the configuration with the mounted rules and targets.
func TestPrometheus(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("promtool is not installed: run make deps")
		}
		t.Skip("SKIPPED: promtool is not installed: run make deps")
	}
	mounted, err := filepath.Abs("../metrics/alerts")
	if err != nil {
		t.Fatal(err)
	}
	targets, err := filepath.Abs("prometheus/targets")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("/etc/prometheus-rules", mounted, "/etc/prometheus/targets", targets).Replace(string(read(t, "prometheus/prometheus.yaml")))
	// The alerts use this job name.
	if !strings.Contains(text, "scrape_configs:\n- job_name: csigscope\n") {
		t.Error("scrapes no job csigscope first")
	}
	config := filepath.Join(t.TempDir(), "prometheus.yaml")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), promtool, "check", "config", config).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "rules found") {
		t.Errorf("%v\n%s", err, out)
	}
}
