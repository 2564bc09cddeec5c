package deploy_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// mounted maps mount points to functions that report whether a file exists there. Volumes are empty
// at first and accept every file.
type mounted map[string]func(file string) bool // by mount point

func (m mounted) has(file string) (there, known bool) {
	for at, holds := range m {
		if rest, below := strings.CutPrefix(file, at+"/"); below {
			return holds(rest), true
		}
		if file == at {
			return true, true
		}
	}
	return false, false
}

func anything(string) bool { return true }

func folder(dir string) func(string) bool {
	return func(file string) bool {
		matches, err := filepath.Glob(filepath.Join(dir, file))
		return err == nil && len(matches) > 0
	}
}

// absolute matches the paths in the containers' arguments and files.
var absolute = regexp.MustCompile(`(?:^|[\s="'\[{:])(/(?:etc|run|var|prometheus|provision)[\w./*-]*)`)

func paths(text string) (list []string) {
	for _, m := range absolute.FindAllStringSubmatch(text, -1) {
		list = append(list, strings.TrimSuffix(m[1], "/"))
	}
	return list
}

// file that each container reads, besides its arguments
var reads = map[string]string{"collect": "config/csigscope.yaml", "prometheus": "prometheus/prometheus.yaml", "grafana": "../grafana/provisioned/provisioning/dashboards/csigscope.yaml"}

// checkPaths checks that all of a container's paths are mounted and exist.
func checkPaths(t *testing.T, what, told, file string, mounts mounted) {
	t.Helper()
	if file != "" {
		for line := range strings.Lines(string(read(t, file))) {
			code, _, _ := strings.Cut(line, "#")
			told += "\n" + code
		}
	}
	for _, p := range paths(told) {
		if there, known := mounts.has(p); !there {
			t.Errorf("%s: %s is not there (mounted: %v)", what, p, known)
		}
	}
}

func TestComposePaths(t *testing.T) {
	made := secrets(t)
	for what, s := range services(t) {
		mounts := mounted{}
		list, _ := s["volumes"].([]any)
		for _, m := range list {
			parts := strings.Split(m.(string), ":")
			switch source := parts[0]; {
			case strings.HasPrefix(source, "./secrets/"):
				mounts[parts[1]] = folder(filepath.Join(made.dir, source))
			case strings.HasPrefix(source, "."):
				mounts[parts[1]] = folder(source)
			default:
				mounts[parts[1]] = anything
			}
		}
		checkPaths(t, what, fmt.Sprint(s["command"], s["entrypoint"], s["environment"]), reads[what], mounts)
	}
}

// TestPathsFail checks that missing paths are found.
func TestPathsFail(t *testing.T) {
	mounts := mounted{"/etc/csigscope": folder("config"), "/data": anything}
	for file, want := range map[string][2]bool{
		"/etc/csigscope/csigscope.yaml": {true, true}, "/etc/csigscope/other.yaml": {false, true}, "/etc/other": {false, false}, "/data/x": {true, true},
	} {
		if there, known := mounts.has(file); [2]bool{there, known} != want {
			t.Errorf("%s: %v, %v, want %v", file, there, known, want)
		}
	}
	if got := paths(`a: /etc/x.yaml, "/run/y/z" [--config.file=/prometheus] http://127.0.0.1/etc`); fmt.Sprint(got) != "[/etc/x.yaml /run/y/z /prometheus]" {
		t.Errorf("paths %q", got)
	}
}
