package main

import (
	"io"
	"path/filepath"
	"strings"
	"testing"
)

// TestExposedListenWarning: an address that collect takes with a flag alone is no mistake,
// and is warned of.
func TestExposedListenWarning(t *testing.T) {
	t.Parallel()
	var warnings strings.Builder
	root := newRoot()
	root.SetOut(io.Discard)
	root.SetErr(&warnings)
	root.SetArgs([]string{"config", "check", "--config", writeFile(t, filepath.Join(t.TempDir(), "config.yaml"), "collect: {ingest: {listen: \"0.0.0.0:4319\", tokens: file}}\n")})
	if err := root.ExecuteContext(t.Context()); err != nil || !strings.Contains(warnings.String(), "without --ingest-dangerously-exposed") {
		t.Errorf("%v: %q", err, warnings.String())
	}
}
