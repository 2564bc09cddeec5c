package deploy_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

type object = map[string]any

// kustomization is what is used of a file that kubectl apply -k reads.
type kustomization struct {
	APIVersion string   `yaml:"apiVersion"`
	Kind       string   `yaml:"kind"`
	Namespace  string   `yaml:"namespace"`
	Resources  []string `yaml:"resources"`
	ConfigMaps []struct {
		Name  string   `yaml:"name"`
		Files []string `yaml:"files"`
	} `yaml:"configMapGenerator"`
	Images []struct {
		Name   string `yaml:"name"`
		NewTag string `yaml:"newTag"`
	} `yaml:"images"`
}

// decode reads YAML documents; keys that T has no field for are errors.
func decode[T any](t *testing.T, name string, text []byte) (list []T) {
	t.Helper()
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	for {
		var v T
		switch err := d.Decode(&v); {
		case errors.Is(err, io.EOF):
			return list
		case err != nil:
			t.Fatalf("%s: %v", name, err)
		}
		list = append(list, v)
	}
}

// build is what kubectl kustomize makes of a folder, but for the hashes at the ends of the
// names of ConfigMaps. Files that are missing, or are in the folder and used by nothing,
// are errors.
func build(t *testing.T, dir string) (list []object) {
	t.Helper()
	file := filepath.Join(dir, "kustomization.yaml")
	k := decode[kustomization](t, file, read(t, file))[0]
	if k.APIVersion != "kustomize.config.k8s.io/v1beta1" || k.Kind != "Kustomization" {
		t.Errorf("%s is a %s of %s", file, k.Kind, k.APIVersion)
	}
	used := map[string]bool{"kustomization.yaml": true}
	for _, resource := range k.Resources {
		used[resource] = true
		path := filepath.Join(dir, resource)
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			list = append(list, build(t, path)...)
			continue
		}
		list = append(list, decode[object](t, path, read(t, path))...)
	}
	for _, m := range k.ConfigMaps {
		data := object{}
		for _, source := range m.Files {
			key, path, named := strings.Cut(source, "=")
			if !named {
				key, path = filepath.Base(source), source
			}
			used[path] = true
			data[key] = string(read(t, filepath.Join(dir, path)))
		}
		list = append(list, object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": m.Name}, "data": data})
	}
	if entries, err := filepath.Glob(filepath.Join(dir, "*.yaml")); k.Namespace != "" {
		for _, entry := range entries {
			if !used[filepath.Base(entry)] {
				t.Errorf("%s is used by nothing (%v)", entry, err)
			}
		}
		for _, o := range list {
			if o["kind"] != "Namespace" {
				o["metadata"].(object)["namespace"] = k.Namespace
			}
		}
	}
	return list
}

// at walks down maps; what is not there is nil.
func at(v any, path ...string) any {
	for _, key := range path {
		m, _ := v.(object)
		v = m[key]
	}
	return v
}

// items are the objects of a list.
func items(v any) (list []object) {
	all, _ := v.([]any)
	for _, one := range all {
		if o, ok := one.(object); ok {
			list = append(list, o)
		}
	}
	return list
}

func name(o object) string { s, _ := at(o, "metadata", "name").(string); return s }

// pods are the templates of what runs containers, by kind and name.
func pods(list []object) map[string]object {
	found := make(map[string]object)
	for _, o := range list {
		if template, ok := at(o, "spec", "template").(object); ok {
			found[o["kind"].(string)+" "+name(o)] = template
		}
	}
	return found
}

// containers are all of a pod, those that begin it included.
func containers(pod object) []object {
	return append(items(at(pod, "spec", "initContainers")), items(at(pod, "spec", "containers"))...)
}
