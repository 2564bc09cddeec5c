package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/ingest/remote"
)

const deployment = "../../dashboards/deploy"

// deployed is a container that runs csigscope.
type deployed struct {
	where       string
	args        []string
	environment map[string]string
}

// deployedContainers returns the containers of the Compose file and of the DaemonSet.
func deployedContainers(t *testing.T) (list []deployed) {
	t.Helper()
	for _, file := range []string{"compose.yaml", "daemonset.yaml"} {
		text, err := os.ReadFile(filepath.Join(deployment, file))
		if err != nil {
			t.Fatal(err)
		}
		var tree any
		if err := yaml.Unmarshal(text, &tree); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		findContainers(file, tree, &list)
	}
	return list
}

// findContainers finds nodes with an image of this project and arguments.
func findContainers(where string, tree any, list *[]deployed) {
	switch v := tree.(type) {
	case []any:
		for _, one := range v {
			findContainers(where, one, list)
		}
	case map[string]any:
		image, _ := v["image"].(string)
		args, ok := v["args"].([]any)
		if !ok {
			args, _ = v["command"].([]any)
		}
		if strings.HasPrefix(image, "csigscope") && len(args) > 0 {
			d := deployed{where: fmt.Sprintf("%s: %v", where, args), environment: make(map[string]string)}
			for _, a := range args {
				d.args = append(d.args, fmt.Sprint(a))
			}
			if environment, ok := v["environment"].(map[string]any); ok {
				for name, value := range environment {
					d.environment[name] = fmt.Sprint(value)
				}
			}
			variables, _ := v["env"].([]any)
			for _, e := range variables {
				e := e.(map[string]any)
				d.environment[fmt.Sprint(e["name"])] = fmt.Sprint(e["value"])
			}
			*list = append(*list, d)
		}
		for _, one := range v {
			findContainers(where, one, list)
		}
	}
}

// TestDeployedCommands: containers use existing flags and variables of their commands, with
// valid values.
func TestDeployedCommands(t *testing.T) {
	list := deployedContainers(t)
	var commands []string
	for _, d := range list {
		cmd, flags, err := newRoot().Find(d.args)
		if err != nil || cmd.RunE == nil {
			t.Errorf("%s: no command: %v", d.where, err)
			continue
		}
		commands = append(commands, cmd.CommandPath())
		if err := cmd.ParseFlags(flags); err != nil {
			t.Errorf("%s: %v", d.where, err)
		}
		for name, value := range d.environment {
			checkVariable(t, d.where, cmd, name, value)
		}
		if remote := cmd.Flags().Lookup("metrics-unauthenticated"); remote != nil {
			listen := cmd.Flags().Lookup("metrics-listen").Value.String()
			if (remote.Value.String() == "true") != (listen != "" && !strings.HasPrefix(listen, "127.")) {
				t.Errorf("%s: listens on %q", d.where, listen)
			}
		}
	}
	slices.Sort(commands)
	want := []string{"csigscope collect", "csigscope export", "csigscope export", "csigscope query serve", "csigscope schema migrate"}
	if !slices.Equal(commands, want) {
		t.Errorf("commands %q, want %q", commands, want)
	}
}

// checkVariable: a variable of this project belongs to a flag.
func checkVariable(t *testing.T, where string, cmd *cobra.Command, name, value string) {
	t.Helper()
	if !strings.HasPrefix(name, environmentPrefix) || name == store.PasswordVariable {
		return
	}
	known := false
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		known = known || name == variable(cmd, f)
	})
	if !known {
		t.Errorf("%s: %s is the variable of no flag", where, name)
	}
	if !strings.HasSuffix(name, "_STORE") {
		return
	}
	if target, err := store.ParseDSN(value); err != nil || target.Database != store.DefaultDatabase || strings.Contains(value, "password") {
		t.Errorf("%s: store %q: %v", where, value, err)
	}
}

// TestDeployedConfiguration: the configuration is valid, and admits exporters and clients from
// other machines only with TLS and tokens.
func TestDeployedConfiguration(t *testing.T) {
	file := filepath.Join(deployment, "config", "csigscope.yaml")
	var out bytes.Buffer
	root := newRoot()
	root.SetOut(&out)
	root.SetArgs([]string{"config", "check", "--config", file})
	if err := root.ExecuteContext(t.Context()); err != nil || !strings.Contains(out.String(), "configuration is good") {
		t.Errorf("%v: %s", err, out.String())
	}
	n, err := openNetwork(file, "")
	if err != nil {
		t.Fatal(err)
	}
	c := n.Config.Collect
	if err := c.Ingest.CheckListen(); err != nil || c.Ingest.Listen != "0.0.0.0:4319" || c.Ingest.Tokens == "" || c.Instance == "" {
		t.Errorf("%v: %+v", err, c.Ingest)
	}
	// All nodes of the DaemonSet share the token that secrets.sh makes. Others may have one of their own.
	if permits := c.Ingest.Admission().Permits; len(permits) != 2 || permits[0].Name != "hosts" || permits[0].Limits.MaxStreams < 1000 || permits[1] != (remote.Permit{Name: "*"}) {
		t.Errorf("exporters %+v", permits)
	}
	api := &n.Config.API
	if err := checkAPIAddress(api, "--api-listen", "0.0.0.0:9465", false); err != nil || api.Auth().Anonymous.Role != "" {
		t.Errorf("%v: %+v", err, api)
	}
}
