package deploy_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/csigscope/csigscope/dashboards/typestest"
)

// TestDaemonSet type-checks the manifest with TypeScript against the types of the Kubernetes API,
// which reject unknown fields.
func TestDaemonSet(t *testing.T) {
	errorsOf := func(document object) string {
		text, err := json.Marshal(document)
		if err != nil {
			t.Fatal(err)
		}
		return typestest.TypeErrors(t, `import type { DaemonSet } from "kubernetes-types/apps/v1.js";`+"\nexport const manifest: DaemonSet = "+string(text)+";\n")
	}
	load := func() (document, pod, container object) {
		document = decode(t, "daemonset.yaml")
		pod = at(document, "spec", "template", "spec").(object)
		return document, pod, pod["containers"].([]any)[0].(object)
	}
	document, pod, container := load()
	if out := errorsOf(document); out != "" {
		t.Error(out)
	}
	// The types do not cover a selector that misses its own pods, or privileges beyond the one
	// capability.
	for key, value := range at(document, "spec", "selector", "matchLabels").(object) {
		if at(document, "spec", "template", "metadata", "labels", key) != value {
			t.Errorf("the selector wants %s: %v, which the pods lack", key, value)
		}
	}
	security, err := json.Marshal(at(container, "securityContext", "capabilities"))
	if err != nil || string(security) != `{"add":["NET_RAW"],"drop":["ALL"]}` || at(pod, "securityContext", "runAsNonRoot") != true {
		t.Errorf("capabilities %s, pod %v (%v)", security, pod["securityContext"], err)
	}
	// The check must find errors of each kind.
	for want, mistake := range map[string]func(pod, container object){
		"hostNetworks":                    func(pod, _ object) { pod["hostNetworks"] = true },
		"not assignable to type 'number'": func(pod, _ object) { pod["terminationGracePeriodSeconds"] = "60s" },
		"'name' is missing":               func(_, container object) { delete(container, "name") },
	} {
		document, pod, container := load()
		mistake(pod, container)
		if out := errorsOf(document); !strings.Contains(out, want) {
			t.Errorf("the check does not report %q:\n%s", want, out)
		}
	}
}
