package store

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrOldServer is the error of servers that lack what the schema needs.
var ErrOldServer = errors.New("server too old")

// version is a server's, by which features are told apart.
type version struct{ major, minor int }

// The oldest server that the views run on, and one that has all that is used where
// present.
var (
	oldestServer  = version{24, 8}
	currentServer = version{26, 7}
)

func (v version) before(o version) bool {
	return v.major < o.major || v.major == o.major && v.minor < o.minor
}

func (v version) String() string { return fmt.Sprintf("%d.%d", v.major, v.minor) }

// parseVersion reads the answer to SELECT version(), such as "26.7.2.1", and refuses
// servers that are too old.
func parseVersion(s string) (version, error) {
	parts := strings.SplitN(s, ".", 3)
	if len(parts) < 2 {
		return version{}, fmt.Errorf("read server version %q: expected MAJOR.MINOR", s)
	}
	major, err := strconv.Atoi(parts[0])
	if err != nil {
		return version{}, fmt.Errorf("read server version %q: %w", s, err)
	}
	minor, err := strconv.Atoi(parts[1])
	if err != nil {
		return version{}, fmt.Errorf("read server version %q: %w", s, err)
	}
	v := version{major, minor}
	if v.before(oldestServer) {
		return v, fmt.Errorf("use server %s: %w: need ClickHouse %s or later, or --store embedded", s, ErrOldServer, oldestServer)
	}
	return v, nil
}
