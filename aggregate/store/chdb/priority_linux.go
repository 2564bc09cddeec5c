package chdb

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// mergeThread is the engine's name for threads that merge parts.
	mergeThread = "MergeMutate"
	// mergeNice leaves merges a third of the share of other threads on the same processor: enough
	// to keep up when inserts and queries keep all processors busy.
	mergeNice = 5
	// tasks are the threads of this process.
	tasks = "/proc/self/task"
)

// lowerMerges makes merges wait for inserts and queries when processors are scarce. A merge takes
// a processor for seconds, and no client waits for its result; if merges fall far behind, the
// engine itself slows inserts down.
func lowerMerges() error {
	threads, err := os.ReadDir(tasks)
	if err != nil {
		return fmt.Errorf("lower priority of merges: %w", err)
	}
	for _, t := range threads {
		name, err := os.ReadFile(filepath.Join(tasks, t.Name(), "comm"))
		if err != nil || strings.TrimSpace(string(name)) != mergeThread {
			continue // it may have ended meanwhile
		}
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		if err := unix.Setpriority(unix.PRIO_PROCESS, id, mergeNice); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("lower priority of merges: %w", err)
		}
	}
	return nil
}
