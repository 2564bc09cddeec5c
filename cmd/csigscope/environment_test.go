package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestVariables: no two flags share an environment variable, and none has another meaning;
// hidden commands, which csigscope itself starts, have none.
func TestVariables(t *testing.T) {
	root := newRoot()
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	owner := map[string]string{
		"CSIGSCOPE_STORE_PASSWORD": "the store's password", "CSIGSCOPE_ENGINE": "the engine's library",
		"CSIGSCOPE_ENGINE_CHILD": "the engine's process", "CSIGSCOPE_ENGINE_OPTIONS": "the engine's process",
	}
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			name, flag := variable(cmd, f), cmd.CommandPath()+" --"+f.Name
			switch {
			case cmd.Hidden && name != "":
				t.Errorf("%s has the variable %s", flag, name)
			case strings.HasPrefix(name, testPrefix):
				t.Errorf("%s: variable %s of tests", flag, name)
			case name == "", name == "CSIGSCOPE_CONFIG" && f.Name == "config", name == "CSIGSCOPE_VERBOSE" && f.Name == "verbose":
			case owner[name] != "":
				t.Errorf("%s and %s: one variable %s", flag, owner[name], name)
			default:
				owner[name] = flag
			}
		})
		for _, sub := range cmd.Commands() {
			check(sub)
		}
	}
	check(root)
	for name, want := range map[string]string{
		"CSIGSCOPE_QUERY_SERVE_LISTEN": "csigscope query serve --listen", "CSIGSCOPE_REPLAY_FABRIC": "csigscope replay --fabric",
		"CSIGSCOPE_SCHEMA_DROP_STORE": "csigscope schema drop --store",
	} {
		if owner[name] != want {
			t.Errorf("%s is of %q, want %q", name, owner[name], want)
		}
	}
}

// TestUnknownVariables: unknown variables cause a warning with the closest known one; those of
// other commands cause none and change nothing.
func TestUnknownVariables(t *testing.T) {
	t.Parallel()
	config := writeFile(t, filepath.Join(t.TempDir(), "config.yaml"), "windows: {max_keys: 77}\n")
	env := append(os.Environ(), "CSIGSCOPE_CONFIG="+config, "CSIGSCOPE_COLLECT_STORE=nonsense", "CSIGSCOPE_QUERY_SERVE_LISTEN=nonsense")
	r := runBinary(t, env, "config", "dump")
	if r.code != exitDone || r.stderr != "" || !strings.Contains(r.stdout, "max_keys: 77") {
		t.Errorf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	for name, want := range map[string]string{
		"CSIGSCOPE_FABRIC": "CSIGSCOPE_CONFIG_CHECK_FABRIC", "CSIGSCOPE_CONFIG_CHECK_FABRICS": "CSIGSCOPE_CONFIG_CHECK_FABRIC",
		"CSIGSCOPE_QUERY_SERV_LISTEN": "CSIGSCOPE_QUERY_SERVE_LISTEN", "CSIGSCOPE_CONFG": "CSIGSCOPE_CONFIG", "CSIGSCOPE_METRICS_LISTEN": "CSIGSCOPE_COLLECT_METRICS_LISTEN",
		"CSIGSCOPE_STORE_PASWORD": "CSIGSCOPE_STORE_PASSWORD",
	} {
		r := runBinary(t, append(os.Environ(), name+"=secret"), "config", "check")
		line := fmt.Sprintf("warning: no flag has the environment variable %s: did you mean %s?\n", name, want)
		if r.code != exitDone || r.stderr != line {
			t.Errorf("exit code %d: %s, want %s", r.code, r.stderr, line)
		}
	}
	r = runBinary(t, append(os.Environ(), "CSIGSCOPE_DECODE_OUTPUT=xml"), "decode", "none.pcap")
	if r.code != exitUsage {
		t.Errorf("variable of this command: exit code %d: %s", r.code, r.stderr)
	}
}

// TestExclusiveFlags: a flag takes precedence over the variables of the flags that it excludes.
func TestExclusiveFlags(t *testing.T) {
	t.Setenv("CSIGSCOPE_QUERY_CELLS_STORE", "none")
	t.Setenv("CSIGSCOPE_QUERY_CELLS_SERVER", "http://h")
	t.Setenv("CSIGSCOPE_QUERY_CELLS_FROM", "2026-01-05T09:30:00Z")
	t.Setenv("CSIGSCOPE_QUERY_CELLS_TO", "2026-01-05T09:31:00Z")
	t.Setenv("CSIGSCOPE_QUERY_CELLS_SINCE", "15m")
	t.Setenv("CSIGSCOPE_QUERY_COVERAGE_SIGNAL", "min_abw")
	t.Setenv("CSIGSCOPE_QUERY_COVERAGE_BY", "cell")
	t.Setenv("CSIGSCOPE_QUERY_EXPORT_TABLE", "findings")
	t.Setenv("CSIGSCOPE_QUERY_EXPORT_LEVEL", "device")
	t.Setenv("CSIGSCOPE_QUERY_EXPORT_SRC", "rack1")
	t.Setenv("CSIGSCOPE_REPLAY_FABRIC", "fabric.yaml")
	t.Setenv("CSIGSCOPE_DECODE_OUT", "out.json")
	t.Setenv("CSIGSCOPE_EMIT_DUMP", "true")
	t.Setenv("CSIGSCOPE_EMIT_SCENARIO_FILE", "mine.yaml")
	for line, want := range map[string]string{
		"query cells --server http://i --since 5m":                 "server since",
		"query cells --store embedded --from 2026-01-05T09:00:00Z": "from store to",
		"query cells --to 2026-01-05T09:40:00Z":                    "from server store to",
		"query cells --windows 5":                                  "server store windows",
		"query coverage --by window":                               "by",
		"query coverage --by cell":                                 "by signal",
		"query coverage --step 1s":                                 "signal step",
		"query export --table flows":                               "src table",
		"query export --table windows":                             "level src table",
		"query export --step 1s":                                   "level src step",
		"decode --follow":                                          "follow",
		"replay --scenario ring":                                   "scenario",
		"emit --list":                                              "list scenario-file",
		"emit --out captures":                                      "dump out scenario-file",
		"emit --scenario ring":                                     "dump scenario",
	} {
		words := strings.Fields(line)
		cmd, flags, err := newRoot().Find(words)
		if err != nil {
			t.Fatal(err)
		}
		cmd.SetErr(io.Discard)
		if err := errors.Join(cmd.ParseFlags(flags), flagsFromEnvironment(cmd)); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		var set []string
		cmd.Flags().Visit(func(f *pflag.Flag) { set = append(set, f.Name) })
		if got := strings.Join(set, " "); got != want {
			t.Errorf("%s: flags %s are set, want %s", line, got, want)
		}
	}
}

// TestScenarioBesideFiles: a scenario in the environment does not take the place of files.
func TestScenarioBesideFiles(t *testing.T) {
	t.Parallel()
	r := runBinary(t, append(os.Environ(), "CSIGSCOPE_REPLAY_SCENARIO=quickstart"), "replay", "none.pcap", "--store", "none")
	if r.code != exitUsage || !strings.Contains(r.stderr, "leave out files") {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
}

// TestEngineEnvironment: the environment variable of the page's address opens no port of the
// engine, and neither the engine nor its clients see other settings.
func TestEngineEnvironment(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux lists processes in /proc")
	}
	t.Parallel()
	env := engineEnv(t)
	store := "embedded:" + filepath.Join(t.TempDir(), "store")
	mustRun(t, env, "replay", "--scenario", "demo", "--set", "duration=1s", "--store", store)
	engine := freeAddress(t)
	p := startDaemon(t, append(env, "CSIGSCOPE_LISTEN="+engine, "CSIGSCOPE_ENGINE_LISTEN="+engine, "CSIGSCOPE_QUERY_SERVE_LISTEN=127.0.0.1:0",
		"CSIGSCOPE_QUERY_SERVE_STORE="+store, "CSIGSCOPE_STORE_PASSWORD=secret"), "query", "serve", "--name", "fabric")
	child := childOf(t, p.cmd.Process.Pid)
	environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", child))
	if err != nil {
		t.Fatal(err)
	}
	for assignment := range strings.SplitSeq(string(environment), "\x00") {
		name, _, _ := strings.Cut(assignment, "=")
		if strings.HasPrefix(name, environmentPrefix) && name != "CSIGSCOPE_ENGINE_CHILD" && name != "CSIGSCOPE_ENGINE_OPTIONS" || name == "NOTIFY_SOCKET" {
			t.Errorf("the engine has %s", name)
		}
	}
	if ports := listening(t, child); len(ports) > 0 {
		t.Errorf("the engine listens at %q", ports)
	}
	if ports := listening(t, p.cmd.Process.Pid); len(ports) != 1 {
		t.Errorf("query serve listens at %q, want its page alone", ports)
	}
}

// listening returns the TCP addresses at which a process listens, as the kernel writes them.
func listening(t *testing.T, pid int) (addresses []string) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil || len(files) == 0 {
		t.Fatalf("no descriptors of %d: %v", pid, err)
	}
	var sockets []string
	for _, file := range files {
		if target, err := os.Readlink(file); err == nil {
			sockets = append(sockets, target)
		}
	}
	for _, table := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(text) {
			const state, inode, listen = 3, 9, "0A"
			if f := strings.Fields(string(line)); len(f) > inode && f[state] == listen && slices.Contains(sockets, "socket:["+f[inode]+"]") {
				addresses = append(addresses, f[1])
			}
		}
	}
	return addresses
}
