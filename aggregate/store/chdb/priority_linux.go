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
	// mergeNice is added to the process's nice value for merges. They then get a third of the processor
	// time of another thread: enough to keep up when inserts and queries keep all processors busy.
	mergeNice = 5
	// mostNice is the greatest nice value.
	mostNice = 19
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
	own, err := niceness(0)
	if err != nil {
		return fmt.Errorf("lower priority of merges: %w", err)
	}
	wanted := min(own+mergeNice, mostNice)
	for _, t := range threads {
		name, err := os.ReadFile(filepath.Join(tasks, t.Name(), "comm"))
		if err != nil || strings.TrimSpace(string(name)) != mergeThread {
			continue // it may have ended meanwhile
		}
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		if n, err := niceness(id); err != nil || n >= wanted {
			continue // a process without privileges may not set a lower one
		}
		if err := unix.Setpriority(unix.PRIO_PROCESS, id, wanted); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("lower priority of merges: %w", err)
		}
	}
	return nil
}

// niceness returns the nice value of a thread, of the calling one for id 0.
func niceness(id int) (int, error) {
	n, err := unix.Getpriority(unix.PRIO_PROCESS, id)
	return mostNice + 1 - n, err // the system call returns 20 - nice
}
