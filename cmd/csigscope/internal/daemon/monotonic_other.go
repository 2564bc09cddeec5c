//go:build !linux

package daemon

import "time"

// monotonic is not needed without systemd.
func monotonic() (time.Duration, bool) { return 0, false }
