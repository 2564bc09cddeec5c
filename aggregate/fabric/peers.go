package fabric

import (
	"regexp"
	"strconv"
	"strings"
)

// portLine is how a fingerprint prints a port.
var portLine = regexp.MustCompile(`^port (.+) id \d+ \S* peer ("(?:[^"\\]|\\.)*") \d+ kbit/s$`)

// Peers reads from a text that contains a Fingerprint what each port faces: the name of a
// device or host, by the port's name. Ports that face nothing known are not in it.
func Peers(text string) map[string]string {
	out := make(map[string]string)
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "port ") {
			continue
		}
		m := portLine.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil {
			continue
		}
		if peer, err := strconv.Unquote(m[2]); err == nil && peer != "" {
			out[m[1]] = peer
		}
	}
	return out
}
