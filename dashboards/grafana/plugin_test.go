package grafana_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/csigscope/csigscope/dashboards/grafana"
)

// inMatrix runs Node in the folder of the panel plugin. Without Node or the plugin's modules the
// test is skipped, or fails in CI.
func inMatrix(t *testing.T, args ...string) {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: runs Node")
	}
	node, err := exec.LookPath("node")
	if err == nil {
		_, err = os.Stat("matrix/node_modules/.installed")
	}
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("%v: run make deps", err)
		}
		t.Skipf("SKIPPED: %v: run make deps", err)
	}
	cmd := exec.CommandContext(t.Context(), node, args...)
	cmd.Dir = "matrix"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("node %q: %v\n%s", args, err, out)
	}
}

// TestPlugin checks that the plugin was built from its present sources.
func TestPlugin(t *testing.T) {
	dir := t.TempDir()
	inMatrix(t, "build.mjs", dir)
	files, err := grafana.Files(grafana.DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, f := range files {
		if filepath.Dir(f.Path) != "plugins/"+grafana.MatrixPanelID {
			continue
		}
		found++
		made, err := os.ReadFile(filepath.Join(dir, filepath.Base(f.Path)))
		if err != nil || !bytes.Equal(made, f.Content) {
			t.Errorf("%s is not what matrix/src makes now: run make generate (%v)", f.Path, err)
		}
	}
	if found != 3 {
		t.Errorf("%d files of the plugin, want 3", found)
	}
}

// TestPluginTypes checks the plugin's types against Grafana's packages and the page's matrix.
func TestPluginTypes(t *testing.T) { inMatrix(t, "node_modules/typescript/bin/tsc", "--noEmit") }

// TestPluginParts runs the tests of the plugin's parts that need no browser.
func TestPluginParts(t *testing.T) { inMatrix(t, "test/run.mjs") }
