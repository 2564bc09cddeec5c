//go:build !linux

package daemon

import "time"

// monotonic is not needed where there is no systemd.
func monotonic() (time.Duration, bool) { return 0, false }
