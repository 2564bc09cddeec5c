package chdb_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csigscope/csigscope/aggregate/store/chdb"
	"github.com/csigscope/csigscope/aggregate/store/chdb/chdbtest"
)

// TestChildInherits: the engine's process inherits the variables that it needs and the
// descriptors from Start, and nothing else of this process.
func TestChildInherits(t *testing.T) {
	for name, value := range map[string]string{
		"CSIGSCOPE_STORE_PASSWORD": "secret", "CSIGSCOPE_ENGINE_LISTEN": "127.0.0.1:1", "NOTIFY_SOCKET": "/run/none",
		"WATCHDOG_USEC": "1", "LISTEN_FDS": "1", "GOMEMLIMIT": "1MiB", "TZ": "UTC", "LC_ALL": "C", "TMPDIR": "/tmp",
	} {
		t.Setenv(name, value)
	}
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], 0); err != nil { // as a shell opens descriptors
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	engine := chdbtest.Start(t)
	process := fmt.Sprintf("/proc/%d", engine.ChildPID())
	text, err := os.ReadFile(process + "/environ")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for assignment := range strings.SplitSeq(strings.TrimRight(string(text), "\x00"), "\x00") {
		name, _, _ := strings.Cut(assignment, "=")
		switch name {
		case "LANG", "LD_LIBRARY_PATH":
		default:
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if want := []string{chdb.ChildEnv, "CSIGSCOPE_ENGINE_OPTIONS", "LC_ALL", "TMPDIR", "TZ"}; !slices.Equal(names, want) {
		t.Errorf("variables %q, want %q", names, want)
	}
	ours, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", pipe[0]))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(process + "/fd/*")
	if err != nil || len(files) < 3 {
		t.Fatalf("descriptors %q, %v", files, err)
	}
	for _, file := range files {
		if theirs, err := os.Readlink(file); err == nil && theirs == ours {
			t.Errorf("%s is a pipe of the parent's", file)
		}
	}
}
