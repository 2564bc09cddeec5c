package daemon

import (
	"errors"
	"fmt"
	"os"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// devices are written to by libraries.
var devices = []string{"/dev/null", "/dev/tty"}

// restrict requests the features of Linux 6.15 (Landlock version 7), and uses those that this
// kernel has. Moving and linking files between folders is allowed, since the engine creates
// parts of tables that way.
func restrict(f Folders) error {
	if version, err := ll.LandlockGetABIVersion(); err != nil || version < 1 {
		return fmt.Errorf("%w: the kernel has none, or it is switched off (Linux 5.13, CONFIG_SECURITY_LANDLOCK, lsm=landlock)", errNoSandbox)
	}
	rules := []landlock.Rule{landlock.RWFiles(devices...).IgnoreIfMissing()}
	for _, path := range f.Read {
		info, err := os.Stat(path)
		if err != nil {
			continue
		}
		if info.IsDir() {
			rules = append(rules, landlock.RODirs(path))
		} else {
			rules = append(rules, landlock.ROFiles(path))
		}
	}
	rules = append(rules, landlock.RWDirs(f.Write...).WithRefer().IgnoreIfMissing())
	err := landlock.V7.BestEffort().RestrictPaths(rules...)
	if errors.Is(err, unix.ENOTSUP) {
		return fmt.Errorf("%w: not all threads can be reached: build with cgo, or use a kernel with version 8 of the interface", errNoSandbox)
	}
	if err != nil {
		return fmt.Errorf("restrict process: %w", err)
	}
	return nil
}
