package deploy_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestPrometheus has promtool check both configurations with the rules and targets that
// are mounted.
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
	for _, file := range []string{"prometheus/prometheus.yaml", "kubernetes/scrape.yaml"} {
		text := strings.NewReplacer("/etc/prometheus-rules", mounted, "/etc/prometheus/targets", targets).Replace(string(read(t, file)))
		document := decode[object](t, file, []byte(text))[0]
		jobs := items(document["scrape_configs"])
		// The alerts ask for this name.
		if jobs[0]["job_name"] != "csigscope" {
			t.Errorf("%s scrapes no job csigscope first", file)
		}
		withoutCluster(t, jobs[0])
		there, err := yaml.Marshal(document)
		if err != nil {
			t.Fatal(err)
		}
		config := filepath.Join(t.TempDir(), "prometheus.yaml")
		if err := os.WriteFile(config, there, 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), promtool, "check", "config", config).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "rules found") {
			t.Errorf("%s: %v\n%s", file, err, out)
		}
	}
}

// withoutCluster checks how pods are looked for, and takes it out: Debian's Prometheus is
// built without.
func withoutCluster(t *testing.T, job object) {
	t.Helper()
	for _, discovery := range items(job["kubernetes_sd_configs"]) {
		list, _ := at(discovery, "namespaces", "names").([]any)
		var want []any
		for _, dir := range slices.Sorted(maps.Keys(folders)) {
			for _, o := range build(t, dir) {
				if o["kind"] == "Namespace" {
					want = append(want, name(o))
				}
			}
		}
		if discovery["role"] != "pod" || !slices.Equal(list, want) {
			t.Errorf("looks for %v, want pods of %v", discovery, want)
		}
	}
	delete(job, "kubernetes_sd_configs")
}
