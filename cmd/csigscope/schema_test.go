package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestSchemaDrop deletes a store in the ways that it may and may not be.
func TestSchemaDrop(t *testing.T) {
	env := engineEnv(t)
	dir := filepath.Join(t.TempDir(), "store")
	store := "--store=embedded:" + dir
	mustRun(t, env, "replay", "--scenario", "demo", "--duration", "1s", store)
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{store}, 2, "--yes"},
		{[]string{"--store=none", "--yes"}, 2, "nothing to drop"},
		{[]string{"--store=embedded:" + dir + "-absent", "--yes"}, 1, "no such file"},
		{[]string{store, "--yes"}, 0, "dropped"},
		{[]string{store, "--yes"}, 1, "no schema"},
	} {
		r := runBinary(t, env, append([]string{"schema", "drop"}, tt.args...)...)
		if text := r.stdout + r.stderr; r.code != tt.code || !strings.Contains(text, tt.want) {
			t.Errorf("%v: exit code %d, want %d and %q: %s", tt.args, r.code, tt.code, tt.want, text)
		}
		if tt.code == 0 && (!strings.Contains(r.stdout, " rows\n") || !strings.Contains(r.stdout, "windows from 20") || strings.Contains(r.stdout, "partials_1s 0 rows")) {
			t.Errorf("what will be lost: %s", r.stdout)
		}
	}
}

func TestConfirm(t *testing.T) {
	for answer, want := range map[string]bool{
		"csigscope\n": true, "csigscope \r\n": true, "csigscope": true,
		"": false, "\n": false, "y\n": false, "csigscop\n": false, strings.Repeat("csigscope", 1000): false,
	} {
		if err := confirm(strings.NewReader(answer), "csigscope"); (err == nil) != want {
			t.Errorf("%.20q: %v, want accepted %t", answer, err, want)
		}
	}
}
