package daemon

import (
	"fmt"
	"io/fs"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// MemoryLimit is how much memory this process and those that it starts may take together.
type MemoryLimit struct {
	// Bytes of all processes together; 0 where nothing limits them.
	Bytes uint64
	// Source says where Bytes come from, for the log.
	Source string
	// Go is what the environment variable GOMEMLIMIT leaves to this process's Go heap, in
	// bytes; 0 where it is not set. It comes before all else.
	Go uint64
}

// String is where the limit comes from, for the log.
func (l *MemoryLimit) String() string {
	switch {
	case l.Go > 0 && l.Source != "":
		return "GOMEMLIMIT and " + l.Source
	case l.Go > 0:
		return "GOMEMLIMIT"
	}
	return l.Source
}

// cgroupShare is the part of a cgroup's limit that is used: the kernel kills at the limit, and
// counts pages of sockets and files as well.
const cgroupShare = 0.9

// FindMemoryLimit returns the limit that a configuration gives, in bytes, 0 for none, else 90 % of
// the smallest limit of the cgroups that this process is in (v1 and v2), as the files below root
// say, which is os.DirFS("/"). A file that cannot be read limits nothing.
func FindMemoryLimit(configured uint64, root fs.FS, getenv func(string) string) MemoryLimit {
	l := MemoryLimit{Bytes: configured, Source: "memory_limit"}
	if configured == 0 {
		l.Source = ""
		if n := cgroupLimit(root); n > 0 {
			l.Bytes, l.Source = uint64(cgroupShare*float64(n)), fmt.Sprintf("90 %% of the cgroup's %d MiB", n>>20)
		}
	}
	if text := getenv("GOMEMLIMIT"); text != "" && text != "off" {
		l.Go = uint64(debug.SetMemoryLimit(-1)) // the runtime has read it
	}
	return l
}

// unlimited is above all limits: cgroup v1 says 2^63 less a page where there is none.
const unlimited = 1 << 62

// cgroupLimit is the smallest limit of the cgroups around this process, in bytes; 0 for none.
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
		// A container may not see its own folder, and its cgroup is at the top then.
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
