package daemon

import (
	"fmt"
	"io/fs"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// MemoryLimit is the maximum memory of this process and its children together.
type MemoryLimit struct {
	// Bytes is for all processes together; 0: no limit.
	Bytes uint64
	// Source says where Bytes comes from, for the log.
	Source string
	// Go is the limit of this process's Go heap in the environment variable GOMEMLIMIT, in
	// bytes; 0 if it is not set. It takes precedence.
	Go uint64
}

// String returns the source of the limit, for the log.
func (l *MemoryLimit) String() string {
	switch {
	case l.Go > 0 && l.Source != "":
		return "GOMEMLIMIT and " + l.Source
	case l.Go > 0:
		return "GOMEMLIMIT"
	}
	return l.Source
}

// cgroupShare is the usable fraction of a cgroup's limit: the kernel kills at the limit, and
// also counts pages of sockets and files.
const cgroupShare = 0.9

// FindMemoryLimit returns the configured limit in bytes or, if that is 0, 90 % of the smallest
// limit of the cgroups (v1 and v2) that contain this process. It reads the cgroup files below
// root, which is os.DirFS("/"). An unreadable file sets no limit.
func FindMemoryLimit(configured uint64, root fs.FS, getenv func(string) string) MemoryLimit {
	l := MemoryLimit{Bytes: configured, Source: "memory_limit"}
	if configured == 0 {
		l.Source = ""
		if n := cgroupLimit(root); n > 0 {
			l.Bytes, l.Source = uint64(cgroupShare*float64(n)), fmt.Sprintf("90 %% of the cgroup's %d MiB", n>>20)
		}
	}
	if text := getenv("GOMEMLIMIT"); text != "" && text != "off" {
		l.Go = uint64(debug.SetMemoryLimit(-1)) // the runtime has parsed it
	}
	return l
}

// unlimited is above all limits: cgroup v1 reports 2^63 minus a page for no limit.
const unlimited = 1 << 62

// cgroupLimit returns the smallest limit of the cgroups around this process, in bytes; 0 for
// none.
func cgroupLimit(root fs.FS) uint64 {
	text, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0
	}
	least := uint64(unlimited)
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3) // number, controllers, path
		if len(fields) != 3 {
			continue
		}
		base, file := "sys/fs/cgroup", "memory.max"
		switch {
		case fields[1] == "memory":
			base, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		case fields[1] != "":
			continue
		}
		// A container may not see its own folder; its cgroup is then at the top.
		for at := path.Clean("/" + fields[2]); ; at = path.Dir(at) {
			if text, err := fs.ReadFile(root, path.Join(base, at, file)); err == nil {
				if n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil {
					least = min(least, n)
				}
			}
			if at == "/" {
				break
			}
		}
	}
	if least >= unlimited {
		return 0
	}
	return least
}
