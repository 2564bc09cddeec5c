package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// unitCapabilities are the units, and the capabilities of each.
var unitCapabilities = map[string]string{
	"csigscope-collect.service": "",
	"csigscope-export.service":  "CAP_NET_RAW",
	"csigscope-query.service":   "",
	"csigscope-tap.service":     "CAP_NET_RAW",
}

// systemdAnalyze runs systemd's own checks; without it the test fails in CI.
func systemdAnalyze(t *testing.T, args ...string) (string, error) {
	t.Helper()
	path, err := exec.LookPath("systemd-analyze")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("systemd-analyze is not installed: run make deps")
		}
		t.Skip("SKIPPED: systemd-analyze is not installed: run make deps")
	}
	out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput()
	return string(out), err
}

// exposure is the worst permitted score of a unit, in tenths.
const exposure = "--threshold=20"

func TestUnits(t *testing.T) {
	files, err := filepath.Glob("systemd/*.service")
	if err != nil || len(files) != len(unitCapabilities) {
		t.Fatalf("units %q, %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			unit := string(text)
			if out, err := systemdAnalyze(t, "security", "--offline=true", exposure, file); err != nil || strings.Contains(out, "ignoring") {
				t.Errorf("%v\n%s", err, out)
			}
			// The binary is not installed here, so use another one.
			const path = "ExecStart=/usr/local/bin/csigscope "
			installed := filepath.Join(t.TempDir(), filepath.Base(file))
			if err := os.WriteFile(installed, []byte(strings.Replace(unit, path, "ExecStart=/bin/true ", 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := systemdAnalyze(t, "verify", installed); err != nil || strings.Contains(out, filepath.Base(file)) {
				t.Errorf("%v\n%s", err, out)
			}
			want := unitCapabilities[filepath.Base(file)]
			for _, line := range []string{
				"CapabilityBoundingSet=" + want, "AmbientCapabilities=" + want, "DynamicUser=yes", "NoNewPrivileges=yes",
				"ProtectSystem=strict", "MemoryDenyWriteExecute=yes", "Type=notify", "WatchdogSec=30", "KillMode=mixed", "LimitNOFILE=65536",
				"ExecReload=/bin/kill -HUP $MAINPID",
			} {
				if !strings.Contains(unit, "\n"+line+"\n") {
					t.Errorf("no line %s", line)
				}
			}
			_, args, ok := strings.Cut(regexp.MustCompile(`(?m)^ExecStart=.*$`).FindString(unit), path)
			if !ok {
				t.Fatal("starts another program")
			}
			cmd := knownCommand(t, strings.Fields(args))
			checkAddresses(t, cmd, unit, args)
			// The last line that names a system call applies.
			if store := cmd.Flags().Lookup("store"); store != nil && !strings.Contains(unit, "@resources\n# The engine lowers the priority of its merges.\nSystemCallFilter=setpriority\n") {
				t.Error("the engine may not lower the priority of its merges")
			}
		})
	}
}

// checkAddresses: a unit sets its addresses, all of loopback, by variables of its command instead of
// flags, so that a drop-in can change them.
func checkAddresses(t *testing.T, cmd *cobra.Command, unit, args string) {
	t.Helper()
	if strings.Contains(args, "listen") {
		t.Errorf("%s: a drop-in cannot change the address", args)
	}
	missing := []string{variable(cmd, cmd.Flags().Lookup("metrics-listen"))}
	if listen := cmd.Flags().Lookup("listen"); listen != nil {
		missing = append(missing, variable(cmd, listen))
	}
	for _, v := range regexp.MustCompile(`(?m)^Environment=(CSIGSCOPE_\w+)=(.*)$`).FindAllStringSubmatch(unit, -1) {
		name, value := v[1], v[2]
		checkVariable(t, "unit", cmd, name, value)
		if !strings.HasSuffix(name, "_LISTEN") || !strings.HasPrefix(value, "127.0.0.1:") {
			t.Errorf("%s=%s: expected an address of loopback", name, value)
		}
		missing = slices.DeleteFunc(missing, func(v string) bool { return v == name })
	}
	if len(missing) > 0 {
		t.Errorf("the unit does not set %s", missing)
	}
}

// TestUnitsInREADME: the variables that the README sets exist.
func TestUnitsInREADME(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	known := make(map[string]bool)
	for _, args := range [][]string{{"collect"}, {"export"}, {"query", "serve"}} {
		cmd, _, err := newRoot().Find(args)
		if err != nil {
			t.Fatal(err)
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) { known[variable(cmd, f)] = true })
	}
	set := regexp.MustCompile(`(CSIGSCOPE_(?:COLLECT|EXPORT|QUERY_SERVE)_\w+)=`).FindAllStringSubmatch(string(text), -1)
	if len(set) < 2 {
		t.Errorf("the README sets %q: expected addresses of a unit", set)
	}
	for _, v := range set {
		if !known[v[1]] {
			t.Errorf("%s is the variable of no flag", v[1])
		}
	}
}

// knownCommand checks that this program accepts a command line, and returns its command.
func knownCommand(t *testing.T, args []string) *cobra.Command {
	t.Helper()
	cmd, flags, err := newRoot().Find(args)
	if err != nil || cmd.RunE == nil {
		t.Fatalf("%q is no command: %v", args, err)
	}
	if err := cmd.ParseFlags(flags); err != nil {
		t.Errorf("%q: %v", args, err)
	}
	ops := false
	cmd.Flags().VisitAll(func(f *pflag.Flag) { ops = ops || f.Name == "metrics-listen" })
	if !ops {
		t.Errorf("%s tells systemd nothing: Type=notify would wait for ever", cmd.CommandPath())
	}
	return cmd
}

// TestOpenUnit: the check of the units fails on an unrestricted one.
func TestOpenUnit(t *testing.T) {
	file := filepath.Join(t.TempDir(), "open.service")
	if err := os.WriteFile(file, []byte("[Service]\nExecStart=/bin/true\nDynamicUser=yes\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := systemdAnalyze(t, "security", "--offline=true", exposure, file); err == nil {
		t.Errorf("passes: %s", out)
	}
}
