package deploy_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/csigscope/csigscope/dashboards/typestest"
)

// folders are what is applied, and the workloads in each.
var folders = map[string][]string{
	"kubernetes": {
		"Deployment page", "Job schema", "StatefulSet clickhouse", "StatefulSet collect", "StatefulSet grafana", "StatefulSet prometheus",
	},
	"kubernetes/hosts": {"DaemonSet exporter"},
}

// modulesOf are the parts of kubernetes-types by group and version.
var modulesOf = map[string]string{
	"v1": "core/v1", "apps/v1": "apps/v1", "batch/v1": "batch/v1", "networking.k8s.io/v1": "networking/v1", "rbac.authorization.k8s.io/v1": "rbac/v1",
}

// typed writes each object as a constant of its type, for TypeScript to check.
func typed(t *testing.T, list []object) string {
	t.Helper()
	var b strings.Builder
	for i, o := range list {
		module := modulesOf[fmt.Sprint(o["apiVersion"])]
		if module == "" {
			t.Fatalf("%s is of the unknown version %v", name(o), o["apiVersion"])
		}
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "import type { %[1]s as T%[2]d } from \"kubernetes-types/%[3]s.js\";\nexport const c%[2]d: T%[2]d = %[4]s;\n", o["kind"], i, module, text)
	}
	return b.String()
}

// TestManifestTypes has TypeScript check all objects against the types of the API.
func TestManifestTypes(t *testing.T) {
	var all []object
	for _, dir := range slices.Sorted(maps.Keys(folders)) {
		all = append(all, build(t, dir)...)
	}
	if out := typestest.TypeErrors(t, typed(t, all)); out != "" {
		t.Error(out)
	}
	// The check finds what it is for.
	var wrong []object
	for _, mistake := range []func(spec object){
		func(spec object) { spec["hostNetworks"] = true },
		func(spec object) { spec["terminationGracePeriodSeconds"] = "60s" },
		func(spec object) { delete(items(spec["containers"])[0], "name") },
	} {
		list := build(t, "kubernetes/hosts")
		mistake(pods(list)["DaemonSet exporter"]["spec"].(object))
		wrong = append(wrong, list...)
	}
	out := typestest.TypeErrors(t, typed(t, wrong))
	for _, want := range []string{"hostNetworks", "not assignable to type 'number'", "'name' is missing"} {
		if !strings.Contains(out, want) {
			t.Errorf("nothing is said about %s:\n%s", want, out)
		}
	}
}

func TestWorkloads(t *testing.T) {
	for dir, want := range folders {
		if got := slices.Sorted(maps.Keys(pods(build(t, dir)))); !slices.Equal(got, want) {
			t.Errorf("%s: workloads %q, want %q", dir, got, want)
		}
	}
}

// TestReferences: every name that an object refers to is that of another one.
func TestReferences(t *testing.T) {
	made := secrets(t)
	for dir := range folders {
		list := build(t, dir)
		configs := make(map[string]object)
		for _, o := range list {
			key := fmt.Sprint(o["kind"], " ", name(o))
			if _, twice := configs[key]; twice {
				t.Errorf("%s: %s is there twice", dir, key)
			}
			configs[key], _ = o["data"].(object)
		}
		for what, pod := range pods(list) {
			checkLabels(t, list, what, pod)
			checkVolumes(t, list, what, pod, configs)
			for _, c := range containers(pod) {
				for _, e := range items(c["env"]) {
					ref := at(e, "valueFrom", "secretKeyRef")
					if ref == nil {
						continue
					}
					if at(ref, "name") != "csigscope-passwords" || !slices.Contains(made.variables, fmt.Sprint(at(ref, "key"))) {
						t.Errorf("%s: %v is of a secret that secrets.sh does not make", what, e)
					}
				}
			}
		}
	}
}

// checkLabels: a workload's selector and the service of its name choose its pods.
func checkLabels(t *testing.T, list []object, what string, pod object) {
	t.Helper()
	labels, _ := at(pod, "metadata", "labels").(object)
	chooses := func(selector any) bool {
		want, _ := selector.(object)
		for key, value := range want {
			if labels[key] != value {
				return false
			}
		}
		return len(want) > 0
	}
	if labels["app.kubernetes.io/part-of"] != "csigscope" {
		t.Errorf("%s is part of nothing", what)
	}
	ports := make(map[any]bool)
	for _, c := range containers(pod) {
		for _, p := range items(c["ports"]) {
			ports[p["name"]] = true
		}
	}
	for _, o := range list {
		kind, service := o["kind"].(string), at(o, "spec", "serviceName")
		switch {
		case kind+" "+name(o) == what && kind != "Job":
			if !chooses(at(o, "spec", "selector", "matchLabels")) {
				t.Errorf("%s does not choose its own pods", what)
			}
			if service != nil && service != name(o) {
				t.Errorf("%s is of the service %v", what, service)
			}
		case kind == "Service" && strings.HasSuffix(what, " "+name(o)):
			if !chooses(at(o, "spec", "selector")) {
				t.Errorf("service %s chooses no pods of %s", name(o), what)
			}
			for _, p := range items(at(o, "spec", "ports")) {
				if !ports[p["targetPort"]] {
					t.Errorf("service %s leads to the port %v, which no container has", name(o), p["targetPort"])
				}
			}
		}
	}
}

// checkVolumes: what is mounted is there, and of secrets and ConfigMaps that are made.
func checkVolumes(t *testing.T, list []object, what string, pod object, configs map[string]object) {
	t.Helper()
	there := make(map[any]bool)
	for _, v := range items(at(pod, "spec", "volumes")) {
		there[v["name"]] = true
		if m := at(v, "configMap", "name"); m != nil && configs[fmt.Sprint("ConfigMap ", m)] == nil {
			t.Errorf("%s: no ConfigMap %v", what, m)
		}
		if s := at(v, "secret", "secretName"); s != nil && secretFiles[s.(string)] == "" {
			t.Errorf("%s: no secret %v", what, s)
		}
	}
	for _, o := range list {
		if fmt.Sprint(o["kind"], " ", name(o)) == what {
			for _, claim := range items(at(o, "spec", "volumeClaimTemplates")) {
				there[name(claim)] = true
			}
		}
	}
	used := make(map[any]bool)
	for _, c := range containers(pod) {
		for _, m := range items(c["volumeMounts"]) {
			used[m["name"]] = true
		}
	}
	if !maps.Equal(there, used) {
		t.Errorf("%s: volumes %v, and mounted are %v", what, there, used)
	}
}

// TestPodSecurity: pods satisfy the standard "restricted"; the exporter is let off what
// capturing takes, and nothing else.
func TestPodSecurity(t *testing.T) {
	for dir := range folders {
		for what, pod := range pods(build(t, dir)) {
			exporter := what == "DaemonSet exporter"
			spec := pod["spec"].(object)
			security := spec["securityContext"]
			if at(security, "runAsNonRoot") != true || at(security, "runAsUser") == 0 || at(security, "seccompProfile", "type") != "RuntimeDefault" {
				t.Errorf("%s: security context %v", what, security)
			}
			if (spec["hostNetwork"] == true) != exporter || spec["hostPID"] != nil || spec["hostIPC"] != nil {
				t.Errorf("%s: sees the node's network, or not where it has to", what)
			}
			if spec["automountServiceAccountToken"] != false && spec["serviceAccountName"] != "prometheus" {
				t.Errorf("%s: has a token of the cluster", what)
			}
			for _, c := range containers(pod) {
				want := `{"drop":["ALL"]}`
				if exporter {
					want = `{"add":["NET_RAW"],"drop":["ALL"]}`
				}
				got, err := json.Marshal(at(c, "securityContext", "capabilities"))
				if err != nil || string(got) != want || at(c, "securityContext", "allowPrivilegeEscalation") != exporter || at(c, "securityContext", "privileged") != nil {
					t.Errorf("%s, %s: %v, want capabilities %s", what, c["name"], c["securityContext"], want)
				}
				checkImage(t, fmt.Sprint(c["image"]))
				for _, e := range items(c["env"]) {
					if secretName(fmt.Sprint(e["name"])) && e["value"] != nil {
						t.Errorf("%s: %v is in the file", what, e["name"])
					}
				}
			}
		}
	}
}

// secretName tells a variable that holds a secret, rather than the path of one.
func secretName(variable string) bool {
	return strings.Contains(variable, "PASSWORD") || strings.HasSuffix(variable, "TOKEN") || strings.HasSuffix(variable, "SECRET")
}

// checkImage wants a version of what is not built here.
func checkImage(t *testing.T, image string) {
	t.Helper()
	repository, tag, versioned := strings.Cut(image, ":")
	built := repository == "csigscope" || repository == "csigscope-tap"
	if built == versioned || tag == "latest" {
		t.Errorf("image %s: expected a version, but of what is built here none", image)
	}
}
