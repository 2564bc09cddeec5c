package deploy_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/csigscope/csigscope/dashboards/typestest"
)

type object = map[string]any

// decode reads a YAML document.
func decode(t *testing.T, file string) (document object) {
	t.Helper()
	if err := yaml.Unmarshal(read(t, file), &document); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return document
}

// at returns the value at a path of map keys, or nil.
func at(v any, path ...string) any {
	for _, key := range path {
		m, _ := v.(object)
		v = m[key]
	}
	return v
}

func services(t *testing.T) map[string]object {
	t.Helper()
	list := make(map[string]object)
	for key, s := range decode(t, "compose.yaml")["services"].(object) {
		list[key] = s.(object)
	}
	return list
}

// TestComposeSchema validates the file with the schema of the Compose specification.
func TestComposeSchema(t *testing.T) {
	errorsOf := func(document object) string {
		text, err := json.Marshal(document)
		if err != nil {
			t.Fatal(err)
		}
		return typestest.ComposeErrors(t, text)
	}
	document := decode(t, "compose.yaml")
	if out := errorsOf(document); out != "" {
		t.Error(out)
	}
	// The validator must find errors.
	document["services"].(object)["page"].(object)["readonly"] = true
	document["services"].(object)["collect"].(object)["cap_drop"] = "ALL"
	out := errorsOf(document)
	for _, want := range []string{"readonly", "/services/collect/cap_drop"} {
		if !strings.Contains(out, want) {
			t.Errorf("nothing is said about %s: %s", want, out)
		}
	}
}

// TestComposeReferences checks that all referenced services, volumes and files exist, and that
// variables without a default are set by secrets.sh.
func TestComposeReferences(t *testing.T) {
	made := secrets(t)
	all := services(t)
	volumes := decode(t, "compose.yaml")["volumes"].(object)
	used := make(map[string]bool)
	for what, s := range all {
		checkImage(t, fmt.Sprint(s["image"]))
		switch list := s["depends_on"].(type) {
		case []any:
			for _, other := range list {
				if all[other.(string)] == nil {
					t.Errorf("%s depends on %v", what, other)
				}
			}
		case object:
			for other := range list {
				if all[other] == nil {
					t.Errorf("%s depends on %v", what, other)
				}
			}
		}
		mounts, _ := s["volumes"].([]any)
		for _, m := range mounts {
			source, _, _ := strings.Cut(m.(string), ":")
			if strings.HasPrefix(source, ".") {
				dir := "."
				if strings.HasPrefix(source, "./secrets/") {
					dir = made.dir
				}
				if _, err := os.Stat(filepath.Join(dir, source)); err != nil {
					t.Errorf("%s: %v", what, err)
				}
				continue
			}
			used[source] = true
			if _, known := volumes[source]; !known {
				t.Errorf("%s: no volume %s", what, source)
			}
		}
	}
	for v := range volumes {
		if !used[v] {
			t.Errorf("volume %s is used by nobody", v)
		}
	}
	for _, m := range regexp.MustCompile(`\$\{(\w+)(:\?|:-)`).FindAllStringSubmatch(string(read(t, "compose.yaml")), -1) {
		if m[2] == ":?" && !slices.Contains(made.variables, m[1]) {
			t.Errorf("secrets.sh makes no %s", m[1])
		}
	}
}

// TestComposeSecurity checks that csigscope's own images run with minimal privileges, that the file
// holds no secrets, and that only the exporters' port is open to other machines.
func TestComposeSecurity(t *testing.T) {
	for what, s := range services(t) {
		if strings.HasPrefix(fmt.Sprint(s["image"]), "csigscope") {
			add := "<nil>"
			if what == "tap" {
				add = "[NET_RAW]"
			}
			if s["read_only"] != true || fmt.Sprint(s["cap_drop"]) != "[ALL]" || fmt.Sprint(s["cap_add"]) != add ||
				(fmt.Sprint(s["security_opt"]) == "[no-new-privileges:true]") == (what == "tap") {
				t.Errorf("%s: read only %v, capabilities -%v +%v, %v", what, s["read_only"], s["cap_drop"], s["cap_add"], s["security_opt"])
			}
		}
		if s["privileged"] != nil || s["user"] == "root" {
			t.Errorf("%s is privileged", what)
		}
		environment, _ := s["environment"].(object)
		for variable, value := range environment {
			if secretName(variable) && !strings.HasPrefix(fmt.Sprint(value), "${") {
				t.Errorf("%s: %s is in the file", what, variable)
			}
		}
		ports, _ := s["ports"].([]any)
		for _, p := range ports {
			if !strings.HasPrefix(p.(string), "127.0.0.1:") {
				t.Errorf("%s: other machines reach %v", what, p)
			}
		}
	}
}

// secretName reports whether a variable holds a secret, not the path of one.
func secretName(variable string) bool {
	return strings.Contains(variable, "PASSWORD") || strings.HasSuffix(variable, "TOKEN") || strings.HasSuffix(variable, "SECRET")
}

// checkImage requires a version of images that are not built here.
func checkImage(t *testing.T, image string) {
	t.Helper()
	repository, tag, versioned := strings.Cut(image, ":")
	built := repository == "csigscope" || repository == "csigscope-tap"
	if built == versioned || tag == "latest" {
		t.Errorf("image %s: expected a version, but of what is built here none", image)
	}
}
