// Command sbom lists the parts of a csigscope package as CycloneDX 1.6: the Go modules in the
// binary's build information, and the embedded engine from the npm lock file. Tools that list Go
// modules do not know the engine, which is the largest part.
//
//	sbom BINARY LIBRARY PACKAGE-LOCK
//
// Equal files give equal bytes.
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

type document struct {
	Format       string       `json:"bomFormat"`
	Spec         string       `json:"specVersion"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type     string    `json:"type"`
	Ref      string    `json:"bom-ref"`
	Name     string    `json:"name"`
	Version  string    `json:"version,omitempty"`
	URL      string    `json:"purl"`
	Hashes   []hash    `json:"hashes,omitempty"`
	Licenses []license `json:"licenses,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type license struct {
	Expression string `json:"expression"`
}

type dependency struct {
	Ref string   `json:"ref"`
	On  []string `json:"dependsOn"`
}

func run(args []string, out io.Writer) error {
	if len(args) != 3 {
		return errors.New("usage: sbom BINARY LIBRARY PACKAGE-LOCK")
	}
	binary, err := buildinfo.ReadFile(args[0])
	if err != nil {
		return fmt.Errorf("read modules of %s: %w", args[0], err)
	}
	main := module("application", binary.Main.Path, binary.Main.Version)
	main.Licenses = []license{{"Apache-2.0"}}
	if main.Hashes, err = hashes(args[0]); err != nil {
		return err
	}
	parts := []component{module("library", "stdlib", binary.GoVersion)}
	for _, m := range binary.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		parts = append(parts, module("library", m.Path, m.Version))
	}
	engine, err := locked(args[2])
	if err != nil {
		return err
	}
	if engine.Hashes, err = hashes(args[1]); err != nil {
		return err
	}
	parts = append(parts, engine)
	d := document{Format: "CycloneDX", Spec: "1.6", Version: 1, Metadata: metadata{main}, Components: parts, Dependencies: []dependency{{Ref: main.Ref}}}
	for _, p := range parts {
		d.Dependencies[0].On = append(d.Dependencies[0].On, p.Ref)
	}
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(d)
}

func module(kind, path, version string) component {
	url := "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
	return component{Type: kind, Ref: url, Name: path, Version: version, URL: url}
}

// locked returns the only package in a lock file.
func locked(path string) (component, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return component{}, fmt.Errorf("read lock file: %w", err)
	}
	var lock struct {
		Packages map[string]struct{ Version, License string }
	}
	if err := json.Unmarshal(text, &lock); err != nil {
		return component{}, fmt.Errorf("read lock file %s: %w", path, err)
	}
	delete(lock.Packages, "") // the root package
	folders := slices.Collect(maps.Keys(lock.Packages))
	if len(folders) != 1 {
		return component{}, fmt.Errorf("read lock file %s: expected one package, the engine, got %q", path, slices.Sorted(slices.Values(folders)))
	}
	name, p := strings.TrimPrefix(folders[0], "node_modules/"), lock.Packages[folders[0]]
	url := "pkg:npm/" + strings.Replace(name, "@", "%40", 1) + "@" + p.Version
	return component{Type: "library", Ref: url, Name: name, Version: p.Version, URL: url, Licenses: []license{{p.License}}}, nil
}

func hashes(path string) ([]hash, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("hash: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return nil, fmt.Errorf("hash %s: %w", path, err)
	}
	return []hash{{"SHA-256", hex.EncodeToString(h.Sum(nil))}}, nil
}
